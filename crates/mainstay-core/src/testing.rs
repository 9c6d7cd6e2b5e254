//! Help for the tests of applications (feature `testing`): look at what was enqueued, and handle all that is due.
//!
//! Use it with an in-memory SQLite database. It works on any provider, since it goes through the public interface.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};
use crate::job::JobService;
use crate::outbox::{MessageFilter, Outbox, OutboxMessage, OutboxStats, Page};
use crate::runtime::{INBOX_DISPATCHER, Mainstay};
use crate::store::Queue;
use crate::timer::TimerService;

/// Runs the handlers until nothing is due, and gives the books. Messages that are due later stay. Timers and runs of jobs that
/// are due count too, if it was built to fire and to dispatch them, and received messages if there are handlers for them.
///
/// An error when that takes longer than `deadline`.
pub async fn drain(mainstay: &Mainstay, deadline: Duration) -> Result<OutboxStats> {
    let running = mainstay.start().await?;
    let drained = tokio::time::timeout(deadline, until_idle(mainstay)).await;
    running.stop().await?;
    drained.unwrap_or_else(|_| {
        let text = format!("messages were still due after {deadline:?}");
        Err(Error::new(ErrorKind::Unavailable, "testing.drain", text))
    })
}

async fn until_idle(mainstay: &Mainstay) -> Result<OutboxStats> {
    loop {
        // First timers, runs and what was received: what becomes of them between the looks is then seen as a message.
        let fires = mainstay.runs(TimerService::NAME) && mainstay.timers().stats().await?.overdue > 0;
        let runs = mainstay.runs(JobService::NAME)
            && Outbox::new(mainstay.provider().queue(Queue::JobRuns)).backlog().await?.ready > 0;
        let received = mainstay.runs(INBOX_DISPATCHER) && {
            let backlog = mainstay.inbox().queue().backlog().await?;
            backlog.ready + backlog.in_progress > 0
        };
        let stats = mainstay.outbox().stats().await?;
        if !fires && !runs && !received && stats.ready + stats.in_progress == 0 {
            return Ok(stats);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// All messages of a topic, open or settled, oldest first.
pub async fn enqueued(outbox: &Outbox, topic: &str) -> Result<Vec<OutboxMessage>> {
    let filter = MessageFilter::all().topic(topic);
    let mut messages = outbox.list(&filter, Page { limit: 1_000, before: None }).await?;
    messages.reverse();
    Ok(messages)
}

/// The one message of a topic whose payload is JSON of `T` and satisfies `wanted`.
///
/// # Panics
///
/// When there is none, or more than one.
pub async fn assert_enqueued<T>(outbox: &Outbox, topic: &str, wanted: impl Fn(&T) -> bool) -> OutboxMessage
where
    T: DeserializeOwned,
{
    let all = match enqueued(outbox, topic).await {
        Ok(all) => all,
        Err(error) => panic!("could not look at {topic:?}: {error}"),
    };
    let count = all.len();
    let matches = |message: &OutboxMessage| {
        let payload = message.payload.as_deref().unwrap_or_default();
        serde_json::from_str(payload).is_ok_and(|value| wanted(&value))
    };
    let mut found: Vec<_> = all.into_iter().filter(matches).collect();
    match (found.len(), found.pop()) {
        (1, Some(message)) => message,
        (hits, _) => panic!("{hits} of the {count} messages of {topic:?} match, 1 was expected"),
    }
}
