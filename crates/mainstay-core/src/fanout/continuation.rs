//! What follows a run when all its slices have ended.

use crate::error::Result;
use crate::join::{NewJoin, PreparedJoin};
use crate::outbox::{Limits, Message};

use super::FanoutKey;

/// What follows a run: a message when all its slices are done, another when all have ended and some have failed.
///
/// A run with either has a join, which is started in the transaction that makes its slices; so there are never slices whose end nobody
/// counts, nor a join that waits for slices nobody has made. The messages are templates: each run sends them with ids of its own, and
/// [`Context::join`](crate::queue::Context::join) tells their handlers which run it was.
///
/// Such a run is made in **one** transaction, however many shards there are: one without is made some hundred slices at a time.
#[derive(Debug, Clone, Default)]
#[must_use = "a continuation does nothing by itself"]
pub struct RunContinuation {
    then: Option<Message>,
    or_else: Option<Message>,
}

impl RunContinuation {
    /// What follows when all slices are done.
    pub fn then(mut self, message: Message) -> Self {
        self.then = Some(message);
        self
    }

    /// What follows when all slices have ended and some of them have failed.
    pub fn or_else(mut self, message: Message) -> Self {
        self.or_else = Some(message);
        self
    }

    /// Whether nothing follows.
    pub fn is_none(&self) -> bool {
        self.then.is_none() && self.or_else.is_none()
    }

    /// Refuses messages that can't follow a run: they have no due time, expiry, idempotency key or join of their own.
    pub fn validate(&self, key: &FanoutKey, limits: &Limits) -> Result<()> {
        self.join(key, 1, limits).map(drop)
    }

    /// The join of a run of so many slices. It is found by the topic of its slices.
    pub(super) fn join(&self, key: &FanoutKey, slices: u32, limits: &Limits) -> Result<PreparedJoin> {
        let mut join = NewJoin::new(slices).grouping_key(key.message_topic());
        if let Some(message) = &self.then {
            join = join.on_completed(message.with_new_ids());
        }
        if let Some(message) = &self.or_else {
            join = join.on_failed(message.with_new_ids());
        }
        join.prepare(limits)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_run_has_ids_of_its_own() {
        let (key, limits) = (FanoutKey::new("etl", "payments").unwrap(), Limits::default());
        let end = RunContinuation::default().then(Message::new("done", "{}"));
        let (one, two) = (end.join(&key, 2, &limits).unwrap(), end.join(&key, 2, &limits).unwrap());
        assert_ne!(one.id(), two.id());
        let ids = |join: &PreparedJoin| {
            (join.continuations()[0].1.work_item(), join.continuations()[0].1.message())
        };
        assert!(ids(&one).0 != ids(&two).0 && ids(&one).1 != ids(&two).1);
        assert_eq!((one.expected(), one.grouping_key()), (2, Some("fanout:etl:payments")));
    }

    #[test]
    fn what_cannot_follow_is_refused() {
        let (key, limits) = (FanoutKey::new("etl", "payments").unwrap(), Limits::default());
        let message = || Message::new("done", "{}");
        assert!(RunContinuation::default().is_none());
        let fine = RunContinuation::default().or_else(message());
        assert!(!fine.is_none() && fine.validate(&key, &limits).is_ok());
        let late = RunContinuation::default().then(message().due_in(Duration::from_secs(1)));
        assert_eq!(late.validate(&key, &limits).unwrap_err().field(), Some("on_completed"));
        let once = RunContinuation::default().or_else(message().idempotency_key("one"));
        assert_eq!(once.validate(&key, &limits).unwrap_err().field(), Some("on_failed"));
    }
}
