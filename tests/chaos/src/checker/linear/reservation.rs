//! The sequential model of a received message that is reserved, and then completed.

use super::{Instant, Model};
use crate::checker::operations::Operation;
use crate::history::{Answer, Call};

/// A received message as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Reservation {
    is_completed: bool,
    holder: Option<Holder>,
    /// The highest generation that was given, at least.
    generation: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Holder {
    /// None: the answer to its call never came, so no call can name it.
    generation: Option<i64>,
    /// Until when it holds for certain.
    until: u64,
}

impl Reservation {
    fn is_held_under(&self, generation: i64) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.generation == Some(generation))
    }

    fn reserved(&self, instant: Instant, lease_ms: u64, generation: Option<i64>) -> Option<(Self, Instant)> {
        let is_next = generation.is_none_or(|generation| generation > self.generation);
        if self.is_completed || !is_next {
            return None;
        }
        let instant = instant.from(self.holder.as_ref().map_or(0, |holder| holder.until))?;
        let until = instant.until(lease_ms);
        let reserved = Self {
            is_completed: false,
            holder: Some(Holder { generation, until }),
            generation: generation.unwrap_or(self.generation + 1),
        };
        Some((reserved, instant))
    }

    fn completed(&self) -> Self {
        Self { is_completed: true, holder: None, generation: self.generation }
    }

    fn released(&self) -> Self {
        Self { holder: None, ..self.clone() }
    }
}

impl Model for Reservation {
    fn step(&self, operation: &Operation<'_>, instant: Instant, _: bool) -> Vec<(Self, Instant)> {
        let is_there = self.is_completed || self.holder.is_some();
        let next = match (operation.call, operation.answer()) {
            (Call::Begin { lease_ms, .. }, Some(Answer::Begun { generation: Some(generation) })) => {
                vec![self.reserved(instant, *lease_ms, Some(*generation))]
            }
            (Call::Begin { .. }, Some(_)) => vec![is_there.then(|| (self.clone(), instant))],
            (Call::Begin { lease_ms, .. }, None) if operation.possibly() => {
                vec![self.reserved(instant, *lease_ms, None)]
            }
            // Also once it has lapsed, if no other call took it.
            (Call::Finish { generation, .. }, Some(_)) => {
                vec![self.is_held_under(*generation).then(|| (self.completed(), instant))]
            }
            // The guard of a call that came to nothing is dropped, which releases it.
            (Call::Finish { generation, .. }, None) if self.is_held_under(*generation) => {
                let completed = operation.possibly().then(|| (self.completed(), instant));
                vec![Some((self.released(), instant)), completed]
            }
            _ => Vec::new(),
        };
        next.into_iter().flatten().collect()
    }
}
