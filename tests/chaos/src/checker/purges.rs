//! When operators may have purged Done messages.

use super::audit::Audit;
use super::operations::Operation;
use super::story::Story;
use crate::history::{Answer, Call, Outcome};

const NANOSECONDS: u64 = 1_000_000;

/// By how much the clock of the database and that of the machine can differ over the age of a message.
const TOLERANCE: u64 = 100 * NANOSECONDS;

/// A call that may have purged messages.
#[derive(Debug, Clone, Copy)]
struct Purge {
    invoked: u64,
    returned: u64,
    age: u64,
}

/// All calls that may have purged messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Purges {
    purges: Vec<Purge>,
    /// Whether a message can look older than it is.
    has_clock_steps: bool,
}

impl Purges {
    /// Finds the calls. The audit trail tells whether those without an answer did anything.
    pub(crate) fn of(operations: &[Operation<'_>], audit: Option<&Audit>, has_clock_steps: bool) -> Self {
        let may_be_unseen = audit.is_none_or(Audit::is_purged_unseen);
        let purges = operations.iter().filter_map(|operation| {
            let Call::Purge { age_ms } = operation.call else { return None };
            let is_effective = match operation.answer() {
                Some(answer) => *answer != Answer::Count(0),
                None => operation.possibly() && may_be_unseen,
            };
            let age = age_ms.saturating_mul(NANOSECONDS);
            is_effective.then_some(Purge { invoked: operation.invoked, returned: operation.returned, age })
        });
        Self { purges: purges.collect(), has_clock_steps }
    }

    /// Returns whether a message may have been purged at an instant from `from` to `to`: it was Done for long enough.
    pub(crate) fn may_have_purged(&self, story: &Story<'_>, from: u64, to: u64) -> bool {
        let acks = story.ends.iter().filter(|end| end.outcome == Outcome::Ack);
        let Some(done) = acks.map(|end| end.operation.invoked).min() else { return false };
        self.purges.iter().any(|purge| {
            let age = if self.has_clock_steps { 0 } else { purge.age };
            purge.invoked <= to
                && purge.returned >= from
                && done.saturating_add(age) <= purge.returned.saturating_add(TOLERANCE)
                && done <= purge.returned
                && done <= to
        })
    }
}
