//! What the log is told of a collector that takes nothing: once, then every five minutes while it lasts, and when it is over.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long nothing more is said of trouble that was told.
const COOL_DOWN: Duration = Duration::from_secs(300);

/// The trouble with one collector.
#[derive(Debug, Default)]
pub(crate) struct Trouble(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Exports in a row that were not taken.
    lost: u64,
    /// Whether the log was told of any of them.
    told: bool,
    told_at: Option<Instant>,
}

/// What there is to tell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    Nothing,
    /// So many exports in a row were lost.
    Lost(u64),
    /// It takes exports again, after trouble that was told and so many that were lost.
    Over(u64),
}

impl Trouble {
    pub(crate) fn note(&self, taken: bool, now: Instant) -> News {
        // Numbers are whole whatever panicked beside them.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken {
            let State { lost, told, told_at } = std::mem::take(&mut *state);
            // When it comes and goes, the log has heard enough of it.
            state.told_at = told_at;
            return if told { News::Over(lost) } else { News::Nothing };
        }
        state.lost += 1;
        if state.told_at.is_some_and(|told| now.saturating_duration_since(told) < COOL_DOWN) {
            return News::Nothing;
        }
        (state.told, state.told_at) = (true, Some(now));
        News::Lost(state.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_and_then_now_and_then() {
        let (trouble, begin) = (Trouble::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(trouble.note(true, at(0)), News::Nothing);
        assert_eq!(trouble.note(false, at(1)), News::Lost(1));
        assert_eq!(trouble.note(false, at(2)), News::Nothing);
        assert_eq!(trouble.note(false, at(301)), News::Lost(3));
        assert_eq!(trouble.note(true, at(302)), News::Over(3));
        assert_eq!(trouble.note(true, at(303)), News::Nothing);
        assert_eq!(trouble.note(false, at(304)), News::Nothing, "it was told a moment ago");
        assert_eq!(trouble.note(true, at(305)), News::Nothing, "what was not told is not taken back");
        assert_eq!(trouble.note(false, at(900)), News::Lost(1));
    }
}
