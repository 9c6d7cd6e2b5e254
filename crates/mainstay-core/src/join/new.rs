//! A join to be started, and the rules it must keep.

use std::time::Duration;

use jiff::Timestamp;

use crate::error::{Error, Result};
use crate::id::JoinId;
use crate::outbox::{Limits, Message, PreparedMessage, When};
use crate::text::validate_name;

use super::Step;

pub(super) const START: &str = "join.start";

/// When a join has ended, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JoinMode {
    /// When all steps have ended: Failed if any has failed, else Completed.
    #[default]
    All,
    /// When one step has completed: Completed. When all have failed: Failed.
    Any,
    /// When this many steps have completed: Completed. When too many have failed for that: Failed.
    Quorum(u32),
    /// As `All`; at the deadline by what has ended by then: Failed if any has failed, else Completed.
    Deadline,
}

impl JoinMode {
    /// As the databases keep it.
    pub const fn code(self) -> i16 {
        match self {
            Self::All => 0,
            Self::Any => 1,
            Self::Quorum(_) => 2,
            Self::Deadline => 3,
        }
    }

    /// What it is called.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Any => "any",
            Self::Quorum(_) => "quorum",
            Self::Deadline => "deadline",
        }
    }

    /// How many steps have to complete, of `expected`.
    pub const fn needed(self, expected: u32) -> u32 {
        match self {
            Self::All | Self::Deadline => expected,
            Self::Any => 1,
            Self::Quorum(needed) => needed,
        }
    }
}

/// A join to be started.
///
/// ```
/// # use mainstay_core::join::NewJoin;
/// # use mainstay_core::outbox::Message;
/// let join = NewJoin::new(3)
///     .grouping_key("order-7")
///     .on_completed(Message::new("order.ready", "7"))
///     .on_failed(Message::new("order.stuck", "7"));
/// ```
#[derive(Debug, Clone)]
#[must_use = "a join does nothing until it is started"]
pub struct NewJoin {
    id: JoinId,
    expected: u32,
    mode: JoinMode,
    grouping_key: Option<String>,
    deadline: Option<When>,
    on_completed: Option<Message>,
    on_failed: Option<Message>,
}

impl NewJoin {
    /// A join of this many steps, 1 to 1,000,000,000, that ends when all of them have.
    pub fn new(expected: u32) -> Self {
        Self {
            id: JoinId::new(),
            expected,
            mode: JoinMode::All,
            grouping_key: None,
            deadline: None,
            on_completed: None,
            on_failed: None,
        }
    }

    /// Uses this id instead of a new one.
    pub fn id(mut self, id: JoinId) -> Self {
        self.id = id;
        self
    }

    /// When it has ended, and how. Defaults to [`JoinMode::All`].
    pub fn mode(mut self, mode: JoinMode) -> Self {
        self.mode = mode;
        self
    }

    /// What it is found by later, 1 to 255 characters. An empty one counts as none.
    pub fn grouping_key(mut self, key: impl Into<String>) -> Self {
        self.grouping_key = Some(key.into()).filter(|key| !key.is_empty());
        self
    }

    /// Ends it at this moment at the latest. What it then ends as is the mode's affair.
    pub fn deadline_at(mut self, deadline: Timestamp) -> Self {
        self.deadline = Some(When::At(deadline));
        self
    }

    /// Ends it at the latest this long from the database's now.
    pub fn deadline_in(mut self, time: Duration) -> Self {
        self.deadline = Some(When::In(time));
        self
    }

    /// What is enqueued when it completes. It has topic, payload, correlation id, headers, priority and ordering key, and no
    /// due time, expiry or idempotency key.
    pub fn on_completed(mut self, message: Message) -> Self {
        self.on_completed = Some(message);
        self
    }

    /// What is enqueued when it fails, at its deadline too. The same rules.
    pub fn on_failed(mut self, message: Message) -> Self {
        self.on_failed = Some(message);
        self
    }

    /// Makes it ready for a provider: checks every rule.
    pub fn prepare(self, limits: &Limits) -> Result<PreparedJoin> {
        self.validate()?;
        let mut continuations = Vec::new();
        for (step, field, message) in [
            (Step::Completed, "on_completed", self.on_completed),
            (Step::Failed, "on_failed", self.on_failed),
        ] {
            let Some(message) = message else { continue };
            let prepared = message.prepare_for(START, limits)?;
            let extra = prepared.due().is_some() || prepared.expires().is_some();
            if extra || prepared.idempotency_key().is_some() || !prepared.joins().is_empty() {
                let reason = "must have no due time, expiry, idempotency key or join of its own";
                return Err(Error::invalid(START, field, reason));
            }
            continuations.push((step, prepared));
        }
        Ok(PreparedJoin {
            id: self.id,
            expected: self.expected,
            mode: self.mode,
            grouping_key: self.grouping_key,
            deadline: self.deadline,
            continuations,
        })
    }

    fn validate(&self) -> Result<()> {
        const MOST: u32 = 1_000_000_000;
        let expected = self.expected;
        if !(1..=MOST).contains(&expected) {
            let reason = format_args!("must be 1 to 1,000,000,000, got {expected}");
            return Err(Error::invalid(START, "expected_steps", reason));
        }
        let needed = self.mode.needed(expected);
        if !(1..=expected).contains(&needed) {
            let reason = format_args!("must be 1 to the expected steps ({expected}), got {needed}");
            return Err(Error::invalid(START, "quorum", reason));
        }
        if let Some(key) = &self.grouping_key {
            validate_name(START, "grouping_key", key)?;
        }
        match self.deadline {
            Some(deadline) => deadline.validate(START, "deadline"),
            None if self.mode == JoinMode::Deadline => {
                Err(Error::invalid(START, "deadline", "must be given where the mode is deadline"))
            }
            None => Ok(()),
        }
    }
}

/// A join that keeps every rule. Providers take these, so none of them checks again.
#[derive(Debug, Clone)]
pub struct PreparedJoin {
    id: JoinId,
    expected: u32,
    mode: JoinMode,
    grouping_key: Option<String>,
    deadline: Option<When>,
    continuations: Vec<(Step, PreparedMessage)>,
}

impl PreparedJoin {
    /// Its id.
    pub fn id(&self) -> JoinId {
        self.id
    }
    /// How many steps it has.
    pub fn expected(&self) -> u32 {
        self.expected
    }
    /// When it has ended, and how.
    pub fn mode(&self) -> JoinMode {
        self.mode
    }
    /// What it is found by; never empty.
    pub fn grouping_key(&self) -> Option<&str> {
        self.grouping_key.as_deref()
    }
    /// When it ends at the latest.
    pub fn deadline(&self) -> Option<When> {
        self.deadline
    }
    /// What is enqueued when it ends, by how it ends. At most one for each.
    pub fn continuations(&self) -> &[(Step, PreparedMessage)] {
        &self.continuations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_of(join: NewJoin) -> &'static str {
        join.prepare(&Limits::default()).unwrap_err().field().unwrap()
    }

    #[test]
    fn each_rule_names_its_field() {
        let fine = || NewJoin::new(2);
        assert!(fine().prepare(&Limits::default()).is_ok());
        assert_eq!(field_of(NewJoin::new(0)), "expected_steps");
        assert_eq!(field_of(fine().mode(JoinMode::Quorum(3))), "quorum");
        assert_eq!(field_of(fine().mode(JoinMode::Quorum(0))), "quorum");
        assert_eq!(field_of(fine().mode(JoinMode::Deadline)), "deadline");
        assert_eq!(field_of(fine().deadline_in(Duration::MAX)), "deadline");
        assert_eq!(field_of(fine().grouping_key("k".repeat(256))), "grouping_key");
        assert_eq!(field_of(fine().grouping_key("a\0b")), "grouping_key");
        assert_eq!(field_of(fine().on_completed(Message::new("", ""))), "topic");
        let late = Message::new("t", "").due_in(Duration::from_secs(1));
        assert_eq!(field_of(fine().on_failed(late)), "on_failed");
    }

    #[test]
    fn an_empty_grouping_key_counts_as_none() {
        let join = NewJoin::new(1).grouping_key("").prepare(&Limits::default()).unwrap();
        assert_eq!(join.grouping_key(), None);
    }
}
