//! Messages and what hands them out.

use std::sync::Arc;
use std::time::Duration;

use metrics::{SharedString, counter, gauge, histogram};

use crate::error::Error;
use crate::id::{MessageId, OwnerToken, WorkItemId};
use crate::outbox::{Enqueued, OutboxStats, PreparedMessage};
use crate::queue::{ClaimBatch, FailureReason, Outcome, Settled, Settlement};

use super::labels::TOPICS;
use super::names;

pub(crate) fn enqueued(store: &str, messages: &[PreparedMessage], results: &[Enqueued]) {
    for (message, enqueued) in messages.iter().zip(results) {
        tracing::info!(
            store,
            topic = message.topic(),
            correlation_id = message.correlation_id(),
            work_item = %enqueued.work_item,
            added = enqueued.added,
            "enqueued"
        );
    }
    count_added(names::ENQUEUED, store, messages, results);
}

/// Counts by topic what was really added.
pub(super) fn count_added(
    name: &'static str,
    store: &str,
    messages: &[PreparedMessage],
    results: &[Enqueued],
) {
    let mut added = messages.iter().zip(results).filter(|(_, enqueued)| enqueued.added).peekable();
    // Neighbours mostly share their topic, and are counted together.
    while let Some((message, _)) = added.next() {
        let topic = message.topic();
        let mut count = 1;
        while added.next_if(|(next, _)| next.topic() == topic).is_some() {
            count += 1;
        }
        counter!(name, "store" => store.to_owned(), "topic" => TOPICS.value(topic)).increment(count);
    }
}

pub(crate) fn claimed(store: &str, batch: &ClaimBatch) {
    let count = batch.items.len();
    tracing::debug!(store, count, "claimed");
    if count > 0 {
        counter!(names::CLAIMED, "store" => store.to_owned()).increment(count as u64);
    }
    for rejected in &batch.rejected {
        let reason = rejected.reason.as_str();
        tracing::error!(store, topic = %rejected.topic, work_item = %rejected.id, reason, "failed without delivery");
        counter!(names::REJECTED, "store" => store.to_owned(), "reason" => reason).increment(1);
    }
}

pub(super) fn outcome_name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Ack => "ack",
        Outcome::Abandon { .. } => "abandon",
        Outcome::Release { .. } => "release",
        Outcome::Fail { .. } | Outcome::Reject { .. } => "fail",
    }
}

pub(crate) fn settled(store: &str, settlements: &[Settlement], settled: &Settled) {
    // Mostly all of them, and then there is nothing to look up.
    let stale: crate::hash::Set<WorkItemId> = settled.stale.iter().copied().collect();
    let mut counts = [0u64; 9];
    let mut names = [""; 9];
    for settlement in settlements.iter().filter(|s| stale.is_empty() || !stale.contains(&s.claim.id())) {
        let code = settlement.outcome.code() as usize;
        counts[code] += 1;
        names[code] = outcome_name(&settlement.outcome);
    }
    for (count, outcome) in counts.into_iter().zip(names).filter(|(count, _)| *count > 0) {
        counter!(names::SETTLED, "store" => store.to_owned(), "outcome" => outcome).increment(count);
    }
    if !settled.stale.is_empty() {
        counter!(names::STALE, "store" => store.to_owned()).increment(settled.stale.len() as u64);
        for id in &settled.stale {
            tracing::warn!(store, work_item = %id, "the claim was no longer held; its outcome was not recorded");
        }
    }
}

pub(crate) fn reaped(store: &str, count: u64) {
    tracing::info!(store, count, "reaped lapsed leases");
    counter!(names::REAPED, "store" => store.to_owned()).increment(count);
}

pub(crate) fn purged(store: &str, count: u64) {
    if count > 0 {
        tracing::info!(store, count, "deleted settled messages past their retention");
        counter!(names::PURGED, "store" => store.to_owned()).increment(count);
    }
}

/// A sweep keeps records for longer, because the database's clock is far ahead of the last sweep's.
pub(crate) fn sweep_is_behind(store: &str, what: &str, behind: Duration) {
    tracing::warn!(
        store,
        what,
        seconds = behind.as_secs_f64(),
        "the database's clock is far ahead of the last sweep, so records are kept for that much longer. If the clock jumped, set it right. If \
         no sweep ran for so long, there is nothing to do: sweeps catch up, and a purge by hand does not wait for them"
    );
}

/// What an operator did to messages, each of them by its id.
pub(crate) fn administered(store: &str, action: &'static str, ids: &[WorkItemId]) {
    for id in ids {
        tracing::info!(store, action, work_item = %id, "changed by an operator");
    }
    if !ids.is_empty() {
        counter!(names::ADMINISTERED, "store" => store.to_owned(), "action" => action)
            .increment(ids.len() as u64);
    }
}

/// An operator let an ordering key go on.
pub(crate) fn key_released(store: &str, key: &str, released: bool) {
    tracing::info!(store, action = "release-key", ordering_key = key, released, "changed by an operator");
    if released {
        counter!(names::ADMINISTERED, "store" => store.to_owned(), "action" => "release-key").increment(1);
    }
}

/// An operator paused or resumed a topic.
pub(crate) fn paused(store: &str, topic: &str, action: &'static str, changed: bool) {
    tracing::info!(store, action, topic, changed, "changed by an operator");
    if changed {
        counter!(names::ADMINISTERED, "store" => store.to_owned(), "action" => action).increment(1);
    }
}

/// Publishes the gauges of an outbox.
pub fn gauges(store: &str, stats: &OutboxStats) {
    publish([names::PENDING, names::PROCESSING, names::FAILED, names::OLDEST_SECONDS], store, stats);
}

/// Publishes the gauges of an inbox's queue.
pub fn inbox_gauges(store: &str, stats: &OutboxStats) {
    let [pending, processing, dead] = [names::INBOX_PENDING, names::INBOX_PROCESSING, names::INBOX_DEAD];
    publish([pending, processing, dead, names::INBOX_OLDEST_SECONDS], store, stats);
}

fn publish(names: [&'static str; 4], store: &str, stats: &OutboxStats) {
    let [pending, processing, failed, oldest] = names;
    let label = || store.to_owned();
    gauge!(pending, "store" => label()).set((stats.ready + stats.scheduled) as f64);
    gauge!(processing, "store" => label()).set(stats.in_progress as f64);
    gauge!(failed, "store" => label()).set(stats.failed as f64);
    gauge!(oldest, "store" => label()).set(stats.oldest_ready.map_or(0.0, |age| age.as_secs_f64()));
}

pub(crate) fn no_handler(store: &str, topic: &str, id: WorkItemId, delay: Duration) {
    tracing::warn!(store, topic, work_item = %id, ?delay, "no handler for this topic; put back without counting");
    counter!(names::NO_HANDLER, "store" => store.to_owned(), "topic" => TOPICS.value(topic)).increment(1);
}

/// Where a delivery happens: shared texts, because every message needs them as labels.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) store: Arc<str>,
    pub(crate) topic: Arc<str>,
}

impl Scene {
    fn labels(&self) -> (SharedString, SharedString) {
        (Arc::clone(&self.store).into(), TOPICS.value(&self.topic))
    }
}

pub(crate) fn handler_started(scene: &Scene, message: MessageId, lag: Option<Duration>) {
    tracing::info!(store = &*scene.store, topic = &*scene.topic, message_id = %message, "handling");
    if let Some(lag) = lag {
        let (store, topic) = scene.labels();
        histogram!(names::LAG_SECONDS, "store" => store, "topic" => topic).record(lag);
    }
}

pub(crate) fn handler_ended(scene: &Scene, message: MessageId, outcome: &Outcome, took: Duration) {
    let (store, topic) = (&*scene.store, &*scene.topic);
    match outcome {
        Outcome::Abandon { error, delay } => {
            tracing::error!(store, topic, message_id = %message, ?delay, error, "the handler failed; to be tried again");
        }
        Outcome::Fail { error, reason } | Outcome::Reject { error, reason } => {
            tracing::error!(store, topic, message_id = %message, %reason, error, "the handler failed; given up");
        }
        Outcome::Ack | Outcome::Release { .. } => {
            tracing::debug!(store, topic, message_id = %message, outcome = outcome_name(outcome), "handled");
        }
    }
    let (store, topic) = scene.labels();
    histogram!(names::HANDLER_SECONDS, "store" => store, "topic" => topic, "outcome" => outcome_name(outcome))
        .record(took);
}

pub(crate) fn claim_lost(store: &str, topic: &str, id: WorkItemId) {
    tracing::warn!(store, topic, work_item = %id, "the claim was lost; its handler is cancelled");
    counter!(names::CLAIM_LOST, "store" => store.to_owned(), "topic" => TOPICS.value(topic)).increment(1);
}

/// Counted when it is settled, as any other failure.
pub(crate) fn rejected(store: &str, topic: &str, id: WorkItemId, reason: FailureReason) {
    let reason = reason.as_str();
    tracing::error!(store, topic, work_item = %id, reason, "failed without delivery");
}

pub(crate) fn retrying(store: &str, operation: &'static str, error: &Error, delay: Duration) {
    tracing::warn!(store, operation, %error, ?delay, "the database did not do it; trying again");
    counter!(names::RETRIED, "store" => store.to_owned(), "operation" => operation).increment(1);
}

pub(crate) fn service(store: &str, service: &'static str, owner: Option<OwnerToken>, event: &'static str) {
    tracing::info!(store, service, owner = owner.map(tracing::field::display), "{event}");
}
