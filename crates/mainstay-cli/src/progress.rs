//! How far a long piece of work has come: a bar that is drawn in place, where a person watches.

use std::time::{Duration, Instant};

use crate::output::Stream;
use crate::screen::Screen;
use crate::settings::Settings;
use crate::text::{age, count};

/// A person sees no more than this, and a terminal far away has to keep up.
const TICK: Duration = Duration::from_millis(100);
/// What is over sooner needs no bar.
const PATIENCE: Duration = Duration::from_millis(500);
const WIDTH: usize = 24;

/// A bar of a fixed width, filled as far as the work has come, with the percentage.
pub(crate) fn bar(part: f64) -> String {
    let part = part.clamp(0.0, 1.0);
    let filled = (part * WIDTH as f64) as usize;
    format!("{}{} {:>3.0} %", "█".repeat(filled), "░".repeat(WIDTH - filled), part * 100.0)
}

/// Work that is counted, on stderr: what is asked for goes to stdout meanwhile.
pub(crate) struct Progress {
    shown: bool,
    screen: Option<Screen>,
    what: &'static str,
    total: Option<u64>,
    done: u64,
    started: Instant,
    drawn: Instant,
}

impl Progress {
    /// Of so many, if that is known. Drawn if stderr is a terminal that nobody logs to.
    pub(crate) fn new(what: &'static str, total: Option<u64>, settings: &Settings) -> Self {
        let now = Instant::now();
        let shown = settings.may_draw_on(Stream::Err);
        Self { shown, screen: None, what, total, done: 0, started: now, drawn: now }
    }

    /// So many more are done.
    pub(crate) fn add(&mut self, done: u64) {
        self.done += done;
        let (now, elapsed) = (Instant::now(), self.started.elapsed());
        if !self.shown || elapsed < PATIENCE || now.duration_since(self.drawn) < TICK {
            return;
        }
        self.drawn = now;
        if self.screen.is_none() {
            self.screen = Screen::on(Stream::Err);
        }
        let line = line(self.what, self.done, self.total, elapsed);
        if let Some(screen) = &mut self.screen {
            screen.draw(&[line]);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(screen) = &mut self.screen {
            screen.clear();
        }
    }
}

fn line(what: &str, done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
    let told = format!("{}  {}/s", count(done), count(rate as u64));
    let Some(total) = total.filter(|total| *total > 0) else { return format!("{what}  {told}") };
    let left = total.saturating_sub(done) as f64 / rate.max(0.001);
    let left = Duration::try_from_secs_f64(left).map(age).unwrap_or_default();
    format!("{what}  {}  {told}  {left} left", bar(done as f64 / total as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_and_never_overflows() {
        assert_eq!(bar(0.0), format!("{}   0 %", "░".repeat(WIDTH)));
        assert_eq!(bar(0.5), format!("{}{}  50 %", "█".repeat(12), "░".repeat(12)));
        assert_eq!(bar(7.0), format!("{} 100 %", "█".repeat(WIDTH)));
    }

    #[test]
    fn what_is_left_is_told_where_the_whole_is_known() {
        let two = Duration::from_secs(2);
        assert_eq!(line("read", 3_000, None, two), "read  3,000  1,500/s");
        let told = line("read", 3_000, Some(6_000), two);
        assert!(told.contains(" 50 %") && told.ends_with("3,000  1,500/s  2.0 s left"), "{told}");
        assert!(!line("read", 0, Some(0), Duration::ZERO).contains('%'));
    }
}
