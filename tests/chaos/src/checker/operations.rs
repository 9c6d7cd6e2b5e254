//! Calls paired with their answers.
//!
//! A call takes effect at one instant between its invocation and its answer. The rules never guess
//! that instant; they only use what holds for every choice of it:
//!
//! - A call that was answered took effect before its answer ([`Operation::surely`]).
//! - A call that failed never took effect.
//! - Any other call may have taken effect, or may do so at any later moment: its `returned` is
//!   [`NEVER`] ([`Operation::possibly`]). That is a call whose process died before the answer, a call
//!   with an unknown outcome, and a call that a failover can have undone.

use std::collections::HashMap;

use super::windows::Windows;
use crate::history::{Answer, Call, Event, History};

/// The time of an answer that never came.
pub(crate) const NEVER: u64 = u64::MAX;

/// How a call came out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Outcome<'a> {
    /// It was answered.
    Answered(&'a Answer),
    /// It failed and had no effect for certain.
    Failed,
    /// It was not answered, or failed in a way that tells nothing.
    Unknown,
}

/// A call with its answer.
#[derive(Debug, Clone)]
pub(crate) struct Operation<'a> {
    pub process: &'a str,
    pub call: &'a Call,
    /// When it was invoked, in nanoseconds of the monotonic clock.
    pub invoked: u64,
    /// When it was answered; [`NEVER`] if its outcome is unknown.
    pub returned: u64,
    pub outcome: Outcome<'a>,
    /// The lines of the invocation and of the answer.
    pub lines: Vec<&'a str>,
    /// Whether a failover can have undone it although it was answered.
    pub may_be_lost: bool,
}

impl<'a> Operation<'a> {
    /// Pairs all calls of a history with their answers, in the order of their invocations.
    pub(crate) fn pair(history: &'a History, lost_tails: &Windows) -> Vec<Self> {
        let mut operations: Vec<Self> = Vec::new();
        let mut under_way: HashMap<(&str, u64), usize> = HashMap::new();
        for placed in &history.lines {
            let line = &placed.line;
            let id = (line.process.as_str(), line.call);
            if let Event::Invoke(call) = &line.event {
                under_way.insert(id, operations.len());
                operations.push(Self {
                    process: &line.process,
                    call,
                    invoked: line.at,
                    returned: NEVER,
                    outcome: Outcome::Unknown,
                    lines: vec![&placed.place],
                    may_be_lost: false,
                });
                continue;
            }
            let (outcome, returned) = match &line.event {
                Event::Ok(answer) => (Outcome::Answered(answer), line.at),
                Event::Fail(_) => (Outcome::Failed, line.at),
                Event::Unknown(_) => (Outcome::Unknown, NEVER),
                _ => continue,
            };
            if let Some(index) = under_way.remove(&id) {
                let operation = &mut operations[index];
                operation.outcome = outcome;
                operation.returned = returned;
                operation.lines.push(&placed.place);
            }
        }
        for operation in &mut operations {
            operation.may_be_lost = lost_tails.touch(operation.invoked, operation.returned);
        }
        operations
    }

    /// Returns the answer.
    pub(crate) fn answer(&self) -> Option<&'a Answer> {
        match self.outcome {
            Outcome::Answered(answer) => Some(answer),
            Outcome::Failed | Outcome::Unknown => None,
        }
    }

    /// Returns whether the call took effect, and no failover can have undone it.
    pub(crate) fn surely(&self) -> bool {
        self.answer().is_some() && !self.may_be_lost
    }

    /// Returns whether the call can have taken effect, now or later.
    pub(crate) fn possibly(&self) -> bool {
        self.outcome != Outcome::Failed
    }

    /// Returns whether this call was answered before the other one was made.
    pub(crate) fn before(&self, other: &Self) -> bool {
        self.returned < other.invoked
    }
}
