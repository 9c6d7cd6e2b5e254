//! What a person sees while the shop is open: a view that is drawn in place on a terminal, a line per second elsewhere.

use std::collections::VecDeque;
use std::time::Duration;

use mainstay::outbox::OutboxStats;
use tokio::time::Instant;

use super::customers::Orders;
use crate::meter::{Meter, Reading};
use crate::output::{self, Stream};
use crate::screen::{Screen, bold, dim};
use crate::text::{count, milliseconds};

/// The seconds of throughput that are drawn.
const HISTORY: usize = 40;

/// Where the run is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Phase {
    /// Orders are placed.
    Open {
        /// Until then, if there is an end.
        closes: Option<Instant>,
    },
    /// No more orders; what was ordered comes to its end.
    Draining,
}

/// How the view is shown.
#[derive(Debug)]
enum Medium {
    Screen(Screen),
    Lines,
    Nothing,
}

/// The view of a run.
#[derive(Debug)]
pub(crate) struct View {
    medium: Medium,
    location: String,
    /// The last full second: when, what was counted, orders placed.
    last: (Duration, Reading, u64),
    /// Orders and ends per second, lately.
    rates: (f64, f64),
    throughput: VecDeque<f64>,
}

impl View {
    /// In place on a terminal, if `in_place`; otherwise line by line on stderr.
    pub(crate) fn new(location: &str, in_place: bool, quiet: bool) -> Self {
        let screen = if in_place { Screen::on(Stream::Out) } else { None };
        let medium = match screen {
            Some(screen) => Medium::Screen(screen),
            None if quiet => Medium::Nothing,
            None => {
                output::note(format_args!("the shop opens on {location}"));
                Medium::Lines
            }
        };
        Self {
            medium,
            location: location.to_owned(),
            last: Default::default(),
            rates: (0.0, 0.0),
            throughput: VecDeque::new(),
        }
    }

    /// Shows how things stand.
    pub(crate) fn show(
        &mut self,
        phase: Phase,
        elapsed: Duration,
        (orders, complete): (&Orders, u64),
        meter: &Meter,
        stats: &OutboxStats,
    ) {
        let reading = meter.read();
        let full_second = self.take_rates(elapsed, reading, orders.placed());
        match &self.medium {
            Medium::Nothing => {}
            Medium::Lines if !full_second => {}
            Medium::Lines => output::note(self.line(phase, elapsed, orders, meter, stats)),
            Medium::Screen(_) => {
                let lines = self.lines(phase, elapsed, (orders, complete), meter, stats);
                if let Medium::Screen(screen) = &mut self.medium {
                    screen.draw(&lines);
                }
            }
        }
    }

    /// Clears the view away; the summary takes its place.
    pub(crate) fn end(mut self) {
        if let Medium::Screen(screen) = &mut self.medium {
            screen.clear();
        }
    }

    fn take_rates(&mut self, elapsed: Duration, reading: Reading, placed: u64) -> bool {
        let (at, before, placed_before) = self.last;
        let seconds = elapsed.saturating_sub(at).as_secs_f64();
        if seconds < 0.95 {
            return false;
        }
        let ended = |reading: Reading| reading.done + reading.failed;
        self.rates.0 = placed.saturating_sub(placed_before) as f64 / seconds;
        self.rates.1 = ended(reading).saturating_sub(ended(before)) as f64 / seconds;
        self.throughput.push_back(self.rates.1);
        if self.throughput.len() > HISTORY {
            self.throughput.pop_front();
        }
        self.last = (elapsed, reading, placed);
        true
    }

    fn line(
        &self,
        phase: Phase,
        elapsed: Duration,
        orders: &Orders,
        meter: &Meter,
        stats: &OutboxStats,
    ) -> String {
        let reading = meter.read();
        let word = match phase {
            Phase::Open { .. } => "open",
            Phase::Draining => "draining",
        };
        format!(
            "{:>4.0} s {word}: {} orders ({:.0}/s), {} done, {} failed, {} retries, {} waiting, {} in progress, p50 {} p99 {}",
            elapsed.as_secs_f64(),
            count(orders.placed()),
            self.rates.0,
            count(reading.done),
            count(reading.failed),
            count(reading.retried),
            count(stats.ready + stats.scheduled),
            count(stats.in_progress),
            percentile(meter, 0.5),
            percentile(meter, 0.99),
        )
    }

    fn lines(
        &self,
        phase: Phase,
        elapsed: Duration,
        (orders, complete): (&Orders, u64),
        meter: &Meter,
        stats: &OutboxStats,
    ) -> Vec<String> {
        let reading = meter.read();
        let status = match phase {
            Phase::Open { closes: None } => "open; Ctrl-C closes the shop and checks the books".to_owned(),
            Phase::Open { closes: Some(moment) } => {
                let left = moment.saturating_duration_since(Instant::now()).as_secs_f64();
                format!("open for another {:.0} s; Ctrl-C closes it now", left.ceil())
            }
            Phase::Draining => {
                format!("closed; finishing what was ordered, {} to go (Ctrl-C quits)", count(stats.open()))
            }
        };
        let refused = match orders.refused() {
            0 => String::new(),
            refused => format!("   {} refused by the database", count(refused)),
        };
        vec![
            format!("{}  {}  {:.0} s", bold("mainstay demo"), dim(&self.location), elapsed.as_secs_f64()),
            format!("the shop is {status}"),
            String::new(),
            format!("  orders      {} placed    {:>7.0} /s{refused}", figure(orders.placed()), self.rates.0),
            format!(
                "  messages    {} done      {:>7.0} /s  {}",
                figure(reading.done),
                self.rates.1,
                sparkline(&self.throughput)
            ),
            format!("              {} failed for good", figure(reading.failed)),
            format!("              {} retries", figure(reading.retried)),
            format!("              {} stale settles", figure(reading.stale)),
            format!("  branches    {} times all counted", figure(complete)),
            String::new(),
            format!("  now         {} ready       {}", figure(stats.ready), bar(stats.ready)),
            format!("              {} scheduled   {}", figure(stats.scheduled), bar(stats.scheduled)),
            format!("              {} in progress {}", figure(stats.in_progress), bar(stats.in_progress)),
            String::new(),
            format!(
                "  latency     p50 {}   p95 {}   p99 {}   {}",
                bold(percentile(meter, 0.5)),
                bold(percentile(meter, 0.95)),
                bold(percentile(meter, 0.99)),
                dim("from due to handler")
            ),
        ]
    }
}

/// A count in its column.
fn figure(number: u64) -> String {
    bold(format_args!("{:>9}", count(number)))
}

fn percentile(meter: &Meter, part: f64) -> String {
    meter.lag().percentile(part).map_or_else(|| "-".to_owned(), milliseconds)
}

/// One mark per second, as high as it was busy.
fn sparkline(values: &VecDeque<f64>) -> String {
    const MARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().fold(1.0, f64::max);
    values.iter().map(|value| MARKS[((value / most * 7.0).round() as usize).min(7)]).collect()
}

/// A bar that still tells something when there are very many: each doubling is one mark longer.
fn bar(messages: u64) -> String {
    "■".repeat((64 - messages.leading_zeros()) as usize)
}
