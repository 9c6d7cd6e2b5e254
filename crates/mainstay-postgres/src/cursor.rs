//! Where the last full claim of each owner ended, so that the next one need not walk over what it has just taken.
//!
//! Only a hint, and only for a moment: messages can become claimable behind it (a lease lapses, a transaction commits
//! late), and the next look from the beginning finds them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mainstay_core::OwnerToken;
use mainstay_core::queue::ClaimRequest;

use crate::moment::Moment;

/// How long after a look from the beginning the next one is due.
const FRESH: Duration = Duration::from_millis(100);

/// Smaller claims look from the beginning: they are made where order counts, not speed.
const SMALLEST: u32 = 10;

/// From so many owners on, those that have not claimed for long are forgotten.
const MANY: usize = 1_000;

/// A place in the order of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) due_at: Moment,
    pub(crate) seq: i64,
}

struct Cursor {
    position: Position,
    only_topics: Vec<String>,
    except_topics: Vec<String>,
    /// When this owner last looked from the beginning.
    began: Instant,
}

#[derive(Default)]
pub(crate) struct Cursors(Mutex<HashMap<OwnerToken, Cursor>>);

impl Cursors {
    fn cursors(&self) -> MutexGuard<'_, HashMap<OwnerToken, Cursor>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where this claim may begin; none for the beginning.
    pub(crate) fn start(&self, request: &ClaimRequest) -> Option<Position> {
        let cursors = self.cursors();
        let cursor = cursors.get(&request.owner)?;
        let same = cursor.only_topics == request.only_topics && cursor.except_topics == request.except_topics;
        (same && request.batch >= SMALLEST && cursor.began.elapsed() < FRESH).then_some(cursor.position)
    }

    /// Notes where a claim that began at `start` has ended; none if it was not full.
    pub(crate) fn note(&self, request: &ClaimRequest, start: Option<Position>, end: Option<Position>) {
        let mut cursors = self.cursors();
        let Some(position) = end.filter(|_| request.batch >= SMALLEST) else {
            cursors.remove(&request.owner);
            return;
        };
        let now = Instant::now();
        if cursors.len() >= MANY {
            cursors.retain(|_, cursor| now.duration_since(cursor.began) < FRESH);
        }
        let before = start.and_then(|_| cursors.get(&request.owner)).map(|cursor| cursor.began);
        let cursor = Cursor {
            position,
            only_topics: request.only_topics.clone(),
            except_topics: request.except_topics.clone(),
            began: before.unwrap_or(now),
        };
        cursors.insert(request.owner, cursor);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn only_the_next_claim_of_the_same_kind_goes_on() {
        let cursors = Cursors::default();
        let request = ClaimRequest::new(OwnerToken::new());
        let place = Position { due_at: Moment(Timestamp::UNIX_EPOCH), seq: 7 };
        assert_eq!(cursors.start(&request), None);
        cursors.note(&request, None, Some(place));
        assert_eq!(cursors.start(&request), Some(place));
        assert_eq!(cursors.start(&ClaimRequest::new(OwnerToken::new())), None);
        assert_eq!(cursors.start(&request.clone().except_topics(vec!["t".to_owned()])), None);
        // One that was not full has seen everything, so there is nothing to go on from.
        cursors.note(&request, Some(place), None);
        assert_eq!(cursors.start(&request), None);
        let small = ClaimRequest::new(OwnerToken::new()).batch(SMALLEST - 1);
        cursors.note(&small, None, Some(place));
        assert_eq!(cursors.start(&small), None);
    }

    #[test]
    fn going_on_does_not_put_off_the_look_from_the_beginning() {
        let cursors = Cursors::default();
        let request = ClaimRequest::new(OwnerToken::new());
        let place = Position { due_at: Moment(Timestamp::UNIX_EPOCH), seq: 7 };
        cursors.note(&request, None, Some(place));
        let began = cursors.cursors()[&request.owner].began;
        cursors.note(&request, Some(place), Some(Position { seq: 8, ..place }));
        assert_eq!(cursors.cursors()[&request.owner].began, began);
        cursors.note(&request, None, Some(place));
        assert!(cursors.cursors()[&request.owner].began >= began);
    }
}
