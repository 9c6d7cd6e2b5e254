//! What a person sees while the benchmark runs: results as they come, and a bar for the one under way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::output::{self, Stream};
use crate::progress::bar;
use crate::screen::{Screen, bold};
use crate::text::count;

const TICK: Duration = Duration::from_millis(100);

/// When a measurement is at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// When the counter is there.
    Count(u64),
    /// When the time is over.
    Time(Duration),
}

/// The results so far, and where they are shown.
pub(crate) struct Progress {
    screen: Option<Screen>,
    quiet: bool,
    finished: Vec<String>,
}

impl Progress {
    /// In place on a terminal, if `in_place`; otherwise a line on stderr for each measurement.
    pub(crate) fn new(in_place: bool, quiet: bool) -> Self {
        Self { screen: if in_place { Screen::on(Stream::Out) } else { None }, quiet, finished: Vec::new() }
    }

    /// Shows how `counter` comes closer to the goal while `work` runs.
    pub(crate) async fn watch<T>(
        &mut self,
        name: &str,
        goal: Goal,
        counter: &AtomicU64,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        if self.screen.is_none() && !self.quiet {
            output::note(format_args!("measuring {name}"));
        }
        let started = Instant::now();
        let mut ticks = tokio::time::interval(TICK);
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                result = &mut work => return result,
                _ = ticks.tick() => self.draw(name, goal, counter.load(Ordering::Relaxed), started.elapsed()),
            }
        }
    }

    /// Keeps a result in view.
    pub(crate) fn finish(&mut self, name: &str, result: &str) {
        self.finished.push(format!("  {name:<40} {}", bold(result)));
    }

    /// Clears the view away; the results take its place.
    pub(crate) fn end(&mut self) {
        if let Some(mut screen) = self.screen.take() {
            screen.clear();
        }
    }

    fn draw(&mut self, name: &str, goal: Goal, reached: u64, elapsed: Duration) {
        let Some(screen) = &mut self.screen else { return };
        let part = match goal {
            Goal::Count(0) => 0.0,
            Goal::Count(goal) => reached as f64 / goal as f64,
            Goal::Time(time) => elapsed.as_secs_f64() / time.as_secs_f64().max(1e-3),
        };
        let rate = reached as f64 / elapsed.as_secs_f64().max(0.001);
        let mut lines = vec!["mainstay bench; Ctrl-C stops it and tidies up".to_owned(), String::new()];
        lines.extend(self.finished.iter().cloned());
        lines.push(format!("  {name:<40} {}  {}/s", bar(part), count(rate as u64)));
        screen.draw(&lines);
    }
}
