//! Every metric and every log line of the engine, in one file that is also their reference (R26, R27).
//!
//! Counters count rows that really changed. Levels follow OBX-085 to OBX-090. A payload or a header never gets here:
//! functions take counts, ids and topics.

use std::sync::Arc;
use std::time::Duration;

use metrics::{SharedString, counter, gauge, histogram};

use crate::audit::PreparedAudit;
use crate::error::Error;
use crate::fanout::{FanoutKey, FanoutPolicy};
use crate::fleet::{BreakerState, FleetStatus, Refreshed, StoreState};
use crate::id::{JoinId, MessageId, OwnerToken, WorkItemId};
use crate::inbox::{BeginAnswer, InboxKey, PreparedIncoming, Received, ReservationEnd, Seen};
use crate::job::Job;
use crate::join::{CancelledJoin, Counted, JoinReason, JoinState, JoinStats, PreparedJoin};
use crate::lease::{LeaseClaim, LeaseGrant, LeaseHolder};
use crate::operation::{Ended, OperationEnd, OperationId, PreparedOperation};
use crate::outbox::{Enqueued, OutboxStats, PreparedMessage};
use crate::queue::{ClaimBatch, FailureReason, Outcome, Settled, Settlement};
use crate::store::{Advanced, Dispatched, EndedRun};
use crate::timer::TimerStats;

/// The names of all metrics. Each carries the label `store`.
pub mod names {
    /// Counter, by `topic`: messages added.
    pub const ENQUEUED: &str = "mainstay_outbox_enqueued_total";
    /// Counter: messages claimed.
    pub const CLAIMED: &str = "mainstay_outbox_claimed_total";
    /// Counter, by `outcome` (ack, abandon, release, fail): messages settled.
    pub const SETTLED: &str = "mainstay_outbox_settled_total";
    /// Counter: settles that came too late, because the claim was no longer held.
    pub const STALE: &str = "mainstay_outbox_stale_settles_total";
    /// Counter, by `reason` (delivery-limit, expired): messages failed by a claim instead of being handed out.
    pub const REJECTED: &str = "mainstay_outbox_rejected_total";
    /// Counter: claims released because their lease had lapsed.
    pub const REAPED: &str = "mainstay_outbox_reaped_total";
    /// Counter: settled messages deleted by retention.
    pub const PURGED: &str = "mainstay_outbox_purged_total";
    /// Counter, by `topic`: deliveries for which this process has no handler.
    pub const NO_HANDLER: &str = "mainstay_outbox_no_handler_total";
    /// Counter, by `topic`: claims lost while their handler was running.
    pub const CLAIM_LOST: &str = "mainstay_outbox_claims_lost_total";
    /// Histogram in seconds, by `topic` and `outcome`: how long handlers ran.
    pub const HANDLER_SECONDS: &str = "mainstay_outbox_handler_seconds";
    /// Histogram in seconds, by `topic`: from due to the start of the handler, first deliveries only.
    pub const LAG_SECONDS: &str = "mainstay_outbox_lag_seconds";
    /// Gauge: messages ready or scheduled.
    pub const PENDING: &str = "outbox_pending_messages";
    /// Gauge: messages held by workers.
    pub const PROCESSING: &str = "outbox_processing_messages";
    /// Gauge: messages failed for good.
    pub const FAILED: &str = "outbox_failed_messages";
    /// Gauge in seconds: how long the oldest due message has waited.
    pub const OLDEST_SECONDS: &str = "mainstay_outbox_oldest_ready_seconds";
    /// Counter, by `action` (cancel, requeue, release-key): what an operator changed.
    pub const ADMINISTERED: &str = "mainstay_outbox_administered_total";
    /// Counter, by `name` and `outcome`: records that the application has written into the audit trail.
    pub const AUDITED: &str = "mainstay_audit_written_total";
    /// Counter: records of the audit trail that were deleted past their retention.
    pub const AUDIT_PURGED: &str = "mainstay_audit_purged_total";
    /// Counter, by `name`: operations started.
    pub const OPERATIONS_STARTED: &str = "mainstay_operations_started_total";
    /// Counter, by `state` (succeeded, failed, cancelled, stalled): operations ended.
    pub const OPERATIONS_ENDED: &str = "mainstay_operations_ended_total";
    /// Counter: operations that were deleted past their retention.
    pub const OPERATIONS_PURGED: &str = "mainstay_operations_purged_total";
    /// Counter: leases acquired.
    pub const LEASE_ACQUIRED: &str = "mainstay_lease_acquired_total";
    /// Counter: leases asked for that somebody else had.
    pub const LEASE_CONTENDED: &str = "mainstay_lease_contended_total";
    /// Counter: renewals of leases.
    pub const LEASE_RENEWED: &str = "mainstay_lease_renewed_total";
    /// Counter, by `reason` (lapsed: not renewed in time; taken: the database says that somebody else may have it): leases lost.
    pub const LEASE_LOST: &str = "mainstay_lease_lost_total";
    /// Counter, by `by` (holder, operator): leases released.
    pub const LEASE_RELEASED: &str = "mainstay_lease_released_total";
    /// Gauge: leases held, by anybody.
    pub const ACTIVE_LEASES: &str = "active_leases";
    /// Gauge, by `fleet`: buckets that this node holds.
    pub const FLEET_BUCKETS: &str = "mainstay_fleet_buckets_owned";
    /// Gauge, by `fleet`: nodes that share the fleet's databases, as this one sees it.
    pub const FLEET_MEMBERS: &str = "mainstay_fleet_members";
    /// Counter: failures of databases of a fleet, each of which is a `store` by its id.
    pub const FLEET_FAILURES: &str = "mainstay_fleet_failures_total";
    /// Gauge, with `fleet` as its `store`: databases of a fleet.
    pub const FLEET_STORES: &str = "mainstay_fleet_stores";
    /// Gauge, by `state`, with `fleet` as its `store`: databases of a fleet that are cold, waiting, warm, elsewhere or refused.
    pub const FLEET_STATES: &str = "mainstay_fleet_stores_by_state";
    /// Gauge, with `fleet` as its `store`: databases of a fleet that failed when they were last asked.
    pub const FLEET_SICK: &str = "mainstay_fleet_stores_failing";
    /// Gauge, with `fleet` as its `store`: connections of the fleet's budget that are given out.
    pub const FLEET_CONNECTIONS: &str = "mainstay_fleet_connections_used";
    /// Gauge, with `fleet` as its `store`: the fleet's budget of connections.
    pub const FLEET_BUDGET: &str = "mainstay_fleet_connections_budget";
    /// Gauge, with `fleet` as its `store`: databases that wait for connections.
    pub const FLEET_WAITING: &str = "mainstay_fleet_stores_waiting";
    /// Counter, by `topic`: timers scheduled.
    pub const TIMERS_SCHEDULED: &str = "mainstay_timers_scheduled_total";
    /// Counter: timers that have become messages.
    pub const TIMERS_FIRED: &str = "mainstay_timers_fired_total";
    /// Counter, by `action` (cancel, reschedule): timers changed before they fired.
    pub const TIMERS_CHANGED: &str = "mainstay_timers_changed_total";
    /// Gauge: timers that have not fired yet.
    pub const TIMERS_PENDING: &str = "timers_pending";
    /// Gauge: of these, those whose due time has passed.
    pub const TIMERS_OVERDUE: &str = "timers_overdue";
    /// Gauge in seconds: for how long the oldest of them has been.
    pub const TIMERS_OLDEST_SECONDS: &str = "mainstay_timers_oldest_overdue_seconds";
    /// Counter, by `source` and `outcome` (added, replaced, revived, in-progress, done): messages put into an inbox.
    pub const RECEIVED: &str = "mainstay_inbox_received_total";
    /// Counter, by `source`: messages that came again after they were known.
    pub const DUPLICATES: &str = "mainstay_inbox_duplicates_total";
    /// Counter, by `source`: messages that came again with another content.
    pub const HASH_MISMATCHES: &str = "mainstay_inbox_hash_mismatches_total";
    /// Counter, by `outcome` (new, busy, done, dead): reservations asked for.
    pub const BEGUN: &str = "mainstay_inbox_begun_total";
    /// Counter, by `outcome` (complete, fail, release, lost): reservations ended.
    pub const GUARDS_ENDED: &str = "mainstay_inbox_guards_ended_total";
    /// Counter, by `mark` (processing, processed, dead): messages marked by hand.
    pub const MARKED: &str = "mainstay_inbox_marked_total";
    /// Counter: messages revived by an operator.
    pub const REVIVED: &str = "mainstay_inbox_revived_total";
    /// Counter: settled messages that retention has forgotten.
    pub const FORGOTTEN: &str = "mainstay_inbox_forgotten_total";
    /// Gauge: received messages ready or scheduled.
    pub const INBOX_PENDING: &str = "inbox_pending_messages";
    /// Gauge: received messages held by workers.
    pub const INBOX_PROCESSING: &str = "inbox_processing_messages";
    /// Gauge: received messages in the queue that were given up.
    pub const INBOX_DEAD: &str = "inbox_dead_messages";
    /// Gauge in seconds: how long the oldest due received message has waited.
    pub const INBOX_OLDEST_SECONDS: &str = "mainstay_inbox_oldest_ready_seconds";
    /// Counter, by `operation`: database operations of the engine that failed and are tried again.
    pub const RETRIED: &str = "mainstay_store_retries_total";
    /// Gauge: runs of jobs that are not dispatched yet.
    pub const JOB_RUNS_PENDING: &str = "mainstay_job_runs_pending";
    /// Gauge: of these, those whose due time has passed.
    pub const JOB_RUNS_OVERDUE: &str = "mainstay_job_runs_overdue";
    /// Gauge in seconds: for how long the oldest of them has been.
    pub const JOB_RUNS_OLDEST_SECONDS: &str = "mainstay_job_runs_oldest_overdue_seconds";
    /// Counter, by `job`: runs made of occurrences.
    pub const JOB_MATERIALISED: &str = "mainstay_job_runs_materialised_total";
    /// Counter, by `job`: runs among those made whose nominal time was more than a minute ago.
    pub const JOB_LATE: &str = "mainstay_job_runs_late_total";
    /// Counter, by `job` and `reason` (misfire, overlap): occurrences that got no run.
    pub const JOB_SKIPPED: &str = "mainstay_job_occurrences_skipped_total";
    /// Counter, by `job`: runs whose message was put into the outbox.
    pub const JOB_DISPATCHED: &str = "mainstay_job_runs_dispatched_total";
    /// Histogram in seconds, by `job`: from a run's due time to its message in the outbox.
    pub const JOB_LATENESS_SECONDS: &str = "mainstay_job_lateness_seconds";
    /// Counter, by `job` and `outcome` (succeeded, failed, skipped, cancelled): runs that are over.
    pub const JOB_ENDED: &str = "mainstay_job_runs_ended_total";
    /// Histogram in seconds, by `job` and `outcome`: from a run's first start to its end.
    pub const JOB_RUN_SECONDS: &str = "mainstay_job_run_seconds";
    /// Counter, by `action` (delete, enable, disable, trigger): what somebody did to jobs.
    pub const JOB_ADMINISTERED: &str = "mainstay_job_administered_total";
    /// Counter: joins started.
    pub const JOINS_STARTED: &str = "mainstay_joins_started_total";
    /// Counter: members attached to joins, other than by an enqueue.
    pub const JOINS_ATTACHED: &str = "mainstay_joins_attached_total";
    /// Counter, by `outcome` (completed, failed): steps counted.
    pub const JOINS_COUNTED: &str = "mainstay_joins_steps_total";
    /// Counter, by `outcome` (completed, failed, cancelled): joins that have ended.
    pub const JOINS_ENDED: &str = "mainstay_joins_ended_total";
    /// Counter: rows of joins deleted by retention.
    pub const JOINS_PURGED: &str = "mainstay_joins_purged_total";
    /// Gauge: joins that wait for their steps.
    pub const JOINS_PENDING: &str = "mainstay_joins_pending";
    /// Gauge: of these, those whose deadline has passed.
    pub const JOINS_OVERDUE: &str = "mainstay_joins_overdue";
    /// Counter: runs deleted by retention.
    pub const JOB_RUNS_PURGED: &str = "mainstay_job_runs_purged_total";
    /// Counter, by `fanout` (topic and work key): slices put into the outbox.
    pub const FANOUT_DISPATCHED: &str = "mainstay_fanout_dispatched_total";
    /// Counter, by `fanout`: completions that moved a cursor.
    pub const FANOUT_COMPLETED: &str = "mainstay_fanout_completed_total";
    /// Counter, by `fanout`: passes of a coordinator that failed.
    pub const FANOUT_FAILED: &str = "mainstay_fanout_failed_passes_total";
    /// Counter, by `fanout`: shard keys of a planner that can't be used.
    pub const FANOUT_REFUSED: &str = "mainstay_fanout_refused_shards_total";
    /// Counter, by `action` (set, run): what somebody did to fan-outs.
    pub const FANOUT_ADMINISTERED: &str = "mainstay_fanout_administered_total";
}

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
fn count_added(name: &'static str, store: &str, messages: &[PreparedMessage], results: &[Enqueued]) {
    let mut added = messages.iter().zip(results).filter(|(_, enqueued)| enqueued.added).peekable();
    // Neighbours mostly share their topic, and are counted together.
    while let Some((message, _)) = added.next() {
        let topic = message.topic();
        let mut count = 1;
        while added.next_if(|(next, _)| next.topic() == topic).is_some() {
            count += 1;
        }
        counter!(name, "store" => store.to_owned(), "topic" => topic.to_owned()).increment(count);
    }
}

pub(crate) fn scheduled(store: &str, timers: &[PreparedMessage], results: &[Enqueued]) {
    for (timer, scheduled) in timers.iter().zip(results) {
        tracing::info!(
            store,
            topic = timer.topic(),
            correlation_id = timer.correlation_id(),
            timer = %scheduled.work_item,
            due = ?timer.due(),
            added = scheduled.added,
            "scheduled"
        );
    }
    count_added(names::TIMERS_SCHEDULED, store, timers, results);
}

/// Timers have become messages in the outbox, under the same ids.
pub(crate) fn fired(store: &str, timers: &[WorkItemId]) {
    for id in timers {
        tracing::debug!(store, timer = %id, "fired");
    }
    if !timers.is_empty() {
        counter!(names::TIMERS_FIRED, "store" => store.to_owned()).increment(timers.len() as u64);
    }
}

/// Timers were cancelled or rescheduled, each of them by its id.
pub(crate) fn timers_changed(store: &str, action: &'static str, timers: &[WorkItemId]) {
    for id in timers {
        tracing::info!(store, action, timer = %id, "a timer was changed");
    }
    if !timers.is_empty() {
        counter!(names::TIMERS_CHANGED, "store" => store.to_owned(), "action" => action)
            .increment(timers.len() as u64);
    }
}

/// Publishes the gauges of timers.
pub fn timer_gauges(store: &str, stats: &TimerStats) {
    let names = [names::TIMERS_PENDING, names::TIMERS_OVERDUE, names::TIMERS_OLDEST_SECONDS];
    waiting_gauges(store, stats, names);
}

/// Publishes the gauges of the queue that runs of jobs wait in until they are dispatched, as timers do until they fire.
pub(crate) fn run_gauges(store: &str, stats: &TimerStats) {
    let names = [names::JOB_RUNS_PENDING, names::JOB_RUNS_OVERDUE, names::JOB_RUNS_OLDEST_SECONDS];
    waiting_gauges(store, stats, names);
}

fn waiting_gauges(store: &str, stats: &TimerStats, [pending, overdue, oldest]: [&'static str; 3]) {
    let label = || store.to_owned();
    gauge!(pending, "store" => label()).set(stats.pending as f64);
    gauge!(overdue, "store" => label()).set(stats.overdue as f64);
    gauge!(oldest, "store" => label()).set(stats.oldest_overdue.map_or(0.0, |age| age.as_secs_f64()));
}

pub(crate) fn join_started(store: &str, join: &PreparedJoin) {
    tracing::info!(
        store,
        join = %join.id(),
        grouping_key = join.grouping_key(),
        mode = join.mode().as_str(),
        expected_steps = join.expected(),
        deadline = ?join.deadline(),
        "a join was started"
    );
    counter!(names::JOINS_STARTED, "store" => store.to_owned()).increment(1);
}

pub(crate) fn join_attached(store: &str, join: JoinId, added: u64) {
    tracing::debug!(store, join = %join, added, "members were attached to a join");
    if added > 0 {
        counter!(names::JOINS_ATTACHED, "store" => store.to_owned()).increment(added);
    }
}

/// Steps were counted, by hand or by the end of their messages, and joins may have ended by that. Providers tell of what a settle
/// has counted.
pub fn joins_counted(store: &str, counted: &[Counted]) {
    for Counted { join, completed, failed, state, reason } in counted {
        for (count, outcome) in [(*completed, "completed"), (*failed, "failed")] {
            if count > 0 {
                tracing::debug!(store, join = %join, outcome, count, "steps of a join were counted");
                counter!(names::JOINS_COUNTED, "store" => store.to_owned(), "outcome" => outcome)
                    .increment(u64::from(count));
            }
        }
        match state {
            JoinState::Pending | JoinState::Cancelled => continue,
            JoinState::Completed => tracing::info!(store, join = %join, "a join has completed"),
            JoinState::Failed => {
                let reason = reason.map_or("steps", JoinReason::as_str);
                tracing::warn!(store, join = %join, reason, "a join has failed");
            }
        }
        counter!(names::JOINS_ENDED, "store" => store.to_owned(), "outcome" => state.as_str()).increment(1);
    }
}

pub(crate) fn join_cancelled(store: &str, join: JoinId, cancelled: &CancelledJoin) {
    let (changed, messages) = (cancelled.changed, cancelled.messages.len());
    tracing::info!(store, join = %join, changed, messages, "a join was cancelled by an operator");
    if changed {
        let outcome = JoinState::Cancelled.as_str();
        counter!(names::JOINS_ENDED, "store" => store.to_owned(), "outcome" => outcome).increment(1);
    }
}

pub(crate) fn joins_purged(store: &str, count: u64) {
    if count > 0 {
        tracing::info!(store, count, "deleted joins past their retention");
        counter!(names::JOINS_PURGED, "store" => store.to_owned()).increment(count);
    }
}

/// Publishes the gauges of joins.
pub fn join_gauges(store: &str, stats: &JoinStats) {
    gauge!(names::JOINS_PENDING, "store" => store.to_owned()).set(stats.pending as f64);
    gauge!(names::JOINS_OVERDUE, "store" => store.to_owned()).set(stats.overdue as f64);
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

fn outcome_name(outcome: &Outcome) -> &'static str {
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

/// The application has written a record into the audit trail. What it says stays there.
pub(crate) fn audited(store: &str, record: &PreparedAudit) {
    tracing::debug!(store, id = %record.id, name = record.name, outcome = record.outcome.as_str(), "recorded");
    let (name, outcome) = (record.name.clone(), record.outcome.as_str());
    counter!(names::AUDITED, "store" => store.to_owned(), "name" => name, "outcome" => outcome).increment(1);
}

pub(crate) fn audit_purged(store: &str, count: u64) {
    if count > 0 {
        tracing::info!(store, count, "deleted records of the audit trail past their retention");
        counter!(names::AUDIT_PURGED, "store" => store.to_owned()).increment(count);
    }
}

/// An operation was started. What it is about stays in the database.
pub(crate) fn operation_started(store: &str, operation: &PreparedOperation) {
    tracing::debug!(store, operation = %operation.id, name = operation.name, "started an operation");
    let name = operation.name.clone();
    counter!(names::OPERATIONS_STARTED, "store" => store.to_owned(), "name" => name).increment(1);
}

/// An operation was ended, or had been before.
pub(crate) fn operation_ended(store: &str, id: OperationId, end: &OperationEnd, ended: Ended) {
    let state = end.state().as_str();
    match ended {
        Ended::Now => {
            tracing::debug!(store, operation = %id, state, "ended an operation");
            counter!(names::OPERATIONS_ENDED, "store" => store.to_owned(), "state" => state).increment(1);
        }
        Ended::Before(before) if before == end.state() => {}
        Ended::Before(before) => {
            let before = before.as_str();
            tracing::warn!(store, operation = %id, state, before, "the operation had another end before, which stays");
        }
    }
}

/// Whoever works on an operation has noticed that somebody else has ended it.
pub(crate) fn operation_over(store: &str, id: OperationId) {
    tracing::warn!(store, operation = %id, "the operation was ended by somebody else while it was worked on");
}

/// Operations without a sign of life were given up.
pub(crate) fn operations_stalled(store: &str, ids: &[OperationId]) {
    for id in ids {
        tracing::warn!(store, operation = %id, "the operation showed no sign of life and was marked as stalled");
    }
    if !ids.is_empty() {
        counter!(names::OPERATIONS_ENDED, "store" => store.to_owned(), "state" => "stalled")
            .increment(ids.len() as u64);
    }
}

pub(crate) fn operations_purged(store: &str, count: u64) {
    if count > 0 {
        tracing::info!(store, count, "deleted operations past their retention");
        counter!(names::OPERATIONS_PURGED, "store" => store.to_owned()).increment(count);
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
    counter!(names::NO_HANDLER, "store" => store.to_owned(), "topic" => topic.to_owned()).increment(1);
}

/// Where a delivery happens: shared texts, because every message needs them as labels.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) store: Arc<str>,
    pub(crate) topic: Arc<str>,
}

impl Scene {
    fn labels(&self) -> (SharedString, SharedString) {
        (Arc::clone(&self.store).into(), Arc::clone(&self.topic).into())
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
    counter!(names::CLAIM_LOST, "store" => store.to_owned(), "topic" => topic.to_owned()).increment(1);
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

pub(crate) fn job_registered(store: &str, job: &Job) {
    let Job { name, version, enabled, .. } = job;
    let next = job.next_nominal_at.map(tracing::field::display);
    tracing::info!(store, job = name, version, enabled, next, "the job is registered");
}

/// What somebody did to a job.
pub(crate) fn job_administered(store: &str, action: &'static str, job: &str) {
    tracing::info!(store, action, job, "changed by an operator");
    counter!(names::JOB_ADMINISTERED, "store" => store.to_owned(), "action" => action).increment(1);
}

/// A scheduler can't work with a job. Told once for each version of it.
pub(crate) fn job_rejected(store: &str, job: &str, error: &Error) {
    tracing::error!(store, job, %error, "the job can't be scheduled by this program");
}

/// A scheduler's work on a job has failed; the others go on.
pub(crate) fn job_failed(store: &str, job: &str, error: &Error, pause: Duration) {
    tracing::warn!(store, job, %error, ?pause, "the job is left alone for a while");
}

/// Runs were made of a job's occurrences; `late` of them were late, and `misfired` others were passed over.
pub(crate) fn materialised(store: &str, job: &str, advanced: &Advanced, late: u64, misfired: u64) {
    let (made, overlapped) = (advanced.made.len() as u64, advanced.skipped.len() as u64);
    let count = |name, count: u64| {
        if count > 0 {
            counter!(name, "store" => store.to_owned(), "job" => job.to_owned()).increment(count);
        }
    };
    let skip = |reason: &'static str, count: u64| {
        if count > 0 {
            tracing::warn!(store, job, reason, count, "occurrences were skipped");
            counter!(names::JOB_SKIPPED, "store" => store.to_owned(), "job" => job.to_owned(), "reason" => reason)
                .increment(count);
        }
    };
    for id in &advanced.made {
        tracing::info!(store, job, run = %id, "a run was made");
    }
    count(names::JOB_MATERIALISED, made);
    count(names::JOB_LATE, late.min(made));
    skip("misfire", misfired);
    skip("overlap", overlapped);
}

pub(crate) fn dispatched(store: &str, runs: &[Dispatched]) {
    for run in runs {
        let job = run.job.as_deref().unwrap_or("");
        tracing::info!(store, job, run = %run.id, late = ?run.late, "a run was dispatched");
        counter!(names::JOB_DISPATCHED, "store" => store.to_owned(), "job" => job.to_owned()).increment(1);
        histogram!(names::JOB_LATENESS_SECONDS, "store" => store.to_owned(), "job" => job.to_owned())
            .record(run.late);
    }
}

pub(crate) fn runs_ended(store: &str, runs: &[EndedRun]) {
    for EndedRun { id, job, outcome, ran } in runs {
        let outcome = outcome.as_str();
        tracing::info!(store, job, run = %id, outcome, ?ran, "a run is over");
        counter!(names::JOB_ENDED, "store" => store.to_owned(), "job" => job.clone(), "outcome" => outcome)
            .increment(1);
        if let Some(ran) = ran {
            histogram!(names::JOB_RUN_SECONDS, "store" => store.to_owned(), "job" => job.clone(), "outcome" => outcome)
                .record(*ran);
        }
    }
}

pub(crate) fn runs_purged(store: &str, count: u64) {
    if count > 0 {
        tracing::info!(store, count, "deleted runs past their retention");
        counter!(names::JOB_RUNS_PURGED, "store" => store.to_owned()).increment(count);
    }
}

/// What is only for reading was not noted; the work goes on.
pub(crate) fn run_not_noted(store: &str, run: WorkItemId, what: &'static str, error: &Error) {
    tracing::warn!(store, run = %run, what, %error, "could not be noted of the run");
}

pub(crate) fn fanout_registered(store: &str, policy: &FanoutPolicy) {
    let FanoutPolicy { key, version, enabled, .. } = policy;
    tracing::info!(store, fanout = %key, version, enabled, "the fan-out is registered");
}

/// What somebody did to a fan-out.
pub(crate) fn fanout_administered(store: &str, action: &'static str, key: &FanoutKey) {
    tracing::info!(store, action, fanout = %key, "changed by an operator");
    counter!(names::FANOUT_ADMINISTERED, "store" => store.to_owned(), "action" => action).increment(1);
}

/// This process coordinates the fan-out from now on.
pub(crate) fn fanout_term(store: &str, key: &FanoutKey, epoch: i64) {
    tracing::info!(store, fanout = %key, epoch, "coordinating the fan-out");
}

pub(crate) fn fanout_dispatched(store: &str, key: &FanoutKey, count: u64) {
    tracing::info!(store, fanout = %key, count, "slices were put into the outbox");
    counter!(names::FANOUT_DISPATCHED, "store" => store.to_owned(), "fanout" => key.to_string())
        .increment(count);
}

pub(crate) fn fanout_completed(store: &str, key: &FanoutKey, shard: &str, moved: bool) {
    tracing::debug!(store, fanout = %key, shard, moved, "a slice is completed");
    if moved {
        counter!(names::FANOUT_COMPLETED, "store" => store.to_owned(), "fanout" => key.to_string())
            .increment(1);
    }
}

/// A slice's message is done, but its cursor could not be moved.
pub(crate) fn fanout_not_completed(store: &str, key: &FanoutKey, shard: &str, error: &Error) {
    tracing::warn!(store, fanout = %key, shard, %error, "the cursor could not be moved; the shard comes round by its cadence");
}

/// A pass of a coordinator has failed, and will be made again.
pub(crate) fn fanout_failed(store: &str, key: &FanoutKey, error: &Error, pause: Duration) {
    tracing::warn!(store, fanout = %key, %error, ?pause, "a pass of the fan-out failed");
    counter!(names::FANOUT_FAILED, "store" => store.to_owned(), "fanout" => key.to_string()).increment(1);
}

/// Slices were to be made whose messages are there already.
pub(crate) fn fanout_known(store: &str, key: &FanoutKey, count: u64) {
    tracing::warn!(store, fanout = %key, count, "slices were made before: somebody has put their cursors back");
}

/// A planner gave shard keys that are empty or too long, or have a NUL character.
pub(crate) fn fanout_refused(store: &str, key: &FanoutKey, count: u64) {
    if count > 0 {
        tracing::warn!(store, fanout = %key, count, "shard keys must be 1 to 256 characters without NUL; others are left out");
        counter!(names::FANOUT_REFUSED, "store" => store.to_owned(), "fanout" => key.to_string())
            .increment(count);
    }
}

pub(crate) fn service(store: &str, service: &'static str, owner: Option<OwnerToken>, event: &'static str) {
    tracing::info!(store, service, owner = owner.map(tracing::field::display), "{event}");
}

/// Why a lease was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseLoss {
    /// It was not renewed in time, as far as this process can tell.
    Lapsed,
    /// The database says so.
    Taken,
}

impl LeaseLoss {
    fn as_str(self) -> &'static str {
        match self {
            Self::Lapsed => "lapsed",
            Self::Taken => "taken",
        }
    }
}

pub(crate) fn lease_acquired(store: &str, claim: &LeaseClaim, grant: &LeaseGrant) {
    let LeaseClaim { name, owner, epoch } = claim;
    tracing::info!(
        store,
        lease = name,
        owner,
        epoch,
        fencing_token = grant.fencing_token,
        "acquired a lease"
    );
    counter!(names::LEASE_ACQUIRED, "store" => store.to_owned()).increment(1);
}

pub(crate) fn lease_contended(store: &str, name: &str, holder: &LeaseHolder) {
    let (owner, epoch) = (holder.owner.as_deref(), holder.epoch);
    tracing::debug!(store, lease = name, owner, epoch, "somebody else has the lease");
    counter!(names::LEASE_CONTENDED, "store" => store.to_owned()).increment(1);
}

pub(crate) fn lease_renewed(store: &str, claim: &LeaseClaim, grant: &LeaseGrant) {
    let (name, epoch, token) = (&claim.name, claim.epoch, grant.fencing_token);
    tracing::debug!(store, lease = name, epoch, fencing_token = token, "renewed a lease");
    counter!(names::LEASE_RENEWED, "store" => store.to_owned()).increment(1);
}

pub(crate) fn lease_lost(store: &str, claim: &LeaseClaim, loss: LeaseLoss) {
    let reason = loss.as_str();
    let LeaseClaim { name, owner, epoch } = claim;
    tracing::warn!(
        store,
        lease = name,
        owner,
        epoch,
        reason,
        "a lease was lost; what runs under it must stop"
    );
    counter!(names::LEASE_LOST, "store" => store.to_owned(), "reason" => reason).increment(1);
}

pub(crate) fn lease_released(store: &str, claim: &LeaseClaim) {
    tracing::info!(store, lease = claim.name, epoch = claim.epoch, "released a lease");
    counter!(names::LEASE_RELEASED, "store" => store.to_owned(), "by" => "holder").increment(1);
}

/// A lease could not be given up at its end.
pub(crate) fn lease_unreleased(store: &str, name: &str, error: &Error) {
    tracing::warn!(store, lease = name, %error, "a lease could not be released; it lapses by itself");
}

/// An operator took a lease away.
pub(crate) fn lease_forced(store: &str, name: &str, owner: Option<&str>) {
    tracing::info!(
        store,
        action = "force-release",
        lease = name,
        owner,
        released = owner.is_some(),
        "changed by an operator"
    );
    if owner.is_some() {
        counter!(names::LEASE_RELEASED, "store" => store.to_owned(), "by" => "operator").increment(1);
    }
}

/// Many leases at once are counted, and named only by those who hold them.
pub(crate) fn leases_acquired(store: &str, count: usize) {
    if count > 0 {
        tracing::debug!(store, count, "acquired leases");
        counter!(names::LEASE_ACQUIRED, "store" => store.to_owned()).increment(count as u64);
    }
}

pub(crate) fn leases_renewed(store: &str, count: usize) {
    if count > 0 {
        tracing::debug!(store, count, "renewed leases");
        counter!(names::LEASE_RENEWED, "store" => store.to_owned()).increment(count as u64);
    }
}

pub(crate) fn leases_lost(store: &str, count: usize, loss: LeaseLoss) {
    if count > 0 {
        let reason = loss.as_str();
        tracing::warn!(store, count, reason, "leases were lost; what runs under them must stop");
        counter!(names::LEASE_LOST, "store" => store.to_owned(), "reason" => reason).increment(count as u64);
    }
}

pub(crate) fn leases_released(store: &str, count: usize) {
    if count > 0 {
        tracing::debug!(store, count, "released leases");
        counter!(names::LEASE_RELEASED, "store" => store.to_owned(), "by" => "holder")
            .increment(count as u64);
    }
}

/// A node has become a member of a fleet.
pub(crate) fn assignment_joined(store: &str, fleet: &str, owner: &str, seat: u32) {
    tracing::info!(store, fleet, owner, seat, "joined the fleet");
}

/// A node may not join a fleet, because a member puts databases into other buckets.
pub(crate) fn assignment_refused(store: &str, fleet: &str, agreement: &str, seat: u32, says: &str) {
    tracing::warn!(
        store,
        fleet,
        here = agreement,
        there = says,
        seat,
        "not joining the fleet: a member counts buckets otherwise, and both would work on the same database"
    );
}

/// Buckets changed hands, by this node's own decision.
pub(crate) fn assignment_changed(store: &str, fleet: &str, taken: usize, given: usize) {
    tracing::info!(store, fleet, taken, given, "shares of the fleet have changed");
}

pub(crate) fn assignment_owned(store: &str, fleet: &str, buckets: usize) {
    tracing::debug!(store, fleet, buckets, "owned buckets have changed");
    gauge!(names::FLEET_BUCKETS, "store" => store.to_owned(), "fleet" => fleet.to_owned())
        .set(buckets as f64);
}

pub(crate) fn assignment_members(store: &str, fleet: &str, members: usize) {
    gauge!(names::FLEET_MEMBERS, "store" => store.to_owned(), "fleet" => fleet.to_owned())
        .set(members as f64);
}

/// Publishes the gauge of held leases.
pub fn active_leases(store: &str, count: u64) {
    gauge!(names::ACTIVE_LEASES, "store" => store.to_owned()).set(count as f64);
}

pub(crate) fn received(store: &str, messages: &[PreparedIncoming], results: &[Received]) {
    for (incoming, received) in messages.iter().zip(results) {
        let (key, message, outcome) = (incoming.key(), incoming.message(), received.outcome);
        tracing::info!(
            store,
            source = key.source(),
            message_id = key.message_id(),
            topic = message.topic(),
            correlation_id = message.correlation_id(),
            work_item = received.work_item.map(tracing::field::display),
            %outcome,
            "received"
        );
        let source = || key.source().to_owned();
        counter!(names::RECEIVED, "store" => store.to_owned(), "source" => source(), "outcome" => outcome.as_str())
            .increment(1);
        duplicate(store, key, outcome.is_duplicate(), received.hash_mismatch);
    }
}

fn duplicate(store: &str, key: &InboxKey, is_duplicate: bool, hash_mismatch: bool) {
    let source = || key.source().to_owned();
    if is_duplicate {
        counter!(names::DUPLICATES, "store" => store.to_owned(), "source" => source()).increment(1);
    }
    if hash_mismatch {
        let message_id = key.message_id();
        tracing::warn!(store, source = key.source(), message_id, "a known message came with another content");
        counter!(names::HASH_MISMATCHES, "store" => store.to_owned(), "source" => source()).increment(1);
    }
}

/// A message that is done already is a duplicate for sure; any other may be on its first way.
pub(crate) fn seen(store: &str, key: &InboxKey, seen: &Seen) {
    let (source, message_id) = (key.source(), key.message_id());
    tracing::debug!(store, source, message_id, processed = seen.processed, "asked whether it is processed");
    duplicate(store, key, seen.processed, seen.hash_mismatch);
}

pub(crate) fn begun(store: &str, key: &InboxKey, answer: &BeginAnswer) {
    let outcome = match answer {
        BeginAnswer::New(_) => "new",
        BeginAnswer::Busy { .. } => "busy",
        BeginAnswer::Done { .. } => "done",
        BeginAnswer::Dead { .. } => "dead",
    };
    tracing::debug!(store, source = key.source(), message_id = key.message_id(), outcome, "began");
    counter!(names::BEGUN, "store" => store.to_owned(), "outcome" => outcome).increment(1);
    duplicate(store, key, matches!(answer, BeginAnswer::Done { .. }), answer.hash_mismatch());
}

pub(crate) fn guard_ended(store: &str, key: &InboxKey, end: &ReservationEnd) {
    let (source, message_id) = (key.source(), key.message_id());
    let outcome = match end {
        ReservationEnd::Complete => {
            tracing::debug!(store, source, message_id, "completed");
            "complete"
        }
        ReservationEnd::Fail(error) => {
            tracing::error!(store, source, message_id, error, "given up");
            "fail"
        }
        ReservationEnd::Release(Some(error)) => {
            tracing::error!(store, source, message_id, error, "an attempt failed; given back");
            "release"
        }
        ReservationEnd::Release(None) => {
            tracing::debug!(store, source, message_id, "given back");
            "release"
        }
    };
    counter!(names::GUARDS_ENDED, "store" => store.to_owned(), "outcome" => outcome).increment(1);
}

pub(crate) fn guard_lost(store: &str, key: &InboxKey) {
    let (source, message_id) = (key.source(), key.message_id());
    tracing::warn!(store, source, message_id, "a reservation was lost; what runs under it must stop");
    counter!(names::GUARDS_ENDED, "store" => store.to_owned(), "outcome" => "lost").increment(1);
}

/// A reservation could not be given back at its end.
pub(crate) fn guard_unreleased(store: &str, key: &InboxKey, error: &Error) {
    let (source, message_id) = (key.source(), key.message_id());
    tracing::warn!(store, source, message_id, %error, "a reservation could not be given back; it lapses by itself");
}

pub(crate) fn marked(store: &str, key: &InboxKey, mark: &'static str, changed: bool) {
    let (source, message_id) = (key.source(), key.message_id());
    tracing::debug!(store, source, message_id, mark, changed, "marked");
    if changed {
        counter!(names::MARKED, "store" => store.to_owned(), "mark" => mark).increment(1);
    }
}

/// What an operator did to dead messages, each of them by its key.
pub(crate) fn revived(store: &str, keys: &[InboxKey]) {
    for key in keys {
        let (source, message_id) = (key.source(), key.message_id());
        tracing::info!(store, action = "revive", source, message_id, "changed by an operator");
    }
    if !keys.is_empty() {
        counter!(names::REVIVED, "store" => store.to_owned()).increment(keys.len() as u64);
    }
}

pub(crate) fn forgotten(store: &str, count: u64) {
    if count > 0 {
        tracing::info!(store, count, "forgot settled messages past their retention");
        counter!(names::FORGOTTEN, "store" => store.to_owned()).increment(count);
    }
}

// ---- the fleet

/// A database of a fleet has failed and is left alone for a while. Only the first failure of several is worth a warning.
pub(crate) fn store_failed(store: &str, error: &Error, pause: Duration, news: bool) {
    counter!(names::FLEET_FAILURES, "store" => store.to_owned()).increment(1);
    if news {
        tracing::warn!(store, %error, ?pause, "a database of the fleet has failed; it is left alone for a while");
    } else {
        tracing::debug!(store, %error, ?pause, "a database of the fleet still fails");
    }
}

/// A database of a fleet that had failed answers again.
pub(crate) fn store_recovered(store: &str) {
    tracing::info!(store, "a database of the fleet is well again");
}

/// Discovery has answered.
pub(crate) fn fleet_refreshed(refreshed: &Refreshed) {
    let Refreshed { added, removed, replaced, kept, refused } = refreshed;
    gauge!(names::FLEET_STORES, "store" => FLEET).set((added.len() + replaced.len() + kept.len()) as f64);
    for (store, error) in refused {
        tracing::warn!(store, error, "a database of the fleet can't be used");
    }
    if added.len() + removed.len() + replaced.len() > 0 {
        tracing::info!(
            store = FLEET,
            added = added.len(),
            removed = removed.len(),
            replaced = replaced.len(),
            kept = kept.len(),
            "the databases of the fleet have changed"
        );
    }
}

/// Discovery has failed; the fleet stays as it is.
pub(crate) fn fleet_not_refreshed(error: &Error) {
    tracing::warn!(store = FLEET, %error, "the databases of the fleet could not be discovered; they stay as they are");
}

/// How the fleet is.
pub(crate) fn fleet_gauges(status: &FleetStatus) {
    for state in StoreState::ALL {
        let count = status.stores.iter().filter(|store| store.state == state).count();
        gauge!(names::FLEET_STATES, "store" => FLEET, "state" => state.as_str()).set(count as f64);
    }
    let failing = status.stores.iter().filter(|store| store.breaker != BreakerState::Closed).count();
    gauge!(names::FLEET_SICK, "store" => FLEET).set(failing as f64);
    gauge!(names::FLEET_CONNECTIONS, "store" => FLEET).set(status.connections.used as f64);
    gauge!(names::FLEET_BUDGET, "store" => FLEET).set(status.connections.budget as f64);
    gauge!(names::FLEET_WAITING, "store" => FLEET).set(status.connections.waiting as f64);
}

/// Sharing the databases with other nodes has broken off; it is taken up again.
pub(crate) fn fleet_not_shared(error: &Error) {
    tracing::error!(store = FLEET, %error, "sharing the databases of the fleet broke off; none is worked on until it is taken up again");
}

/// Stands for all databases of a fleet.
const FLEET: &str = "fleet";
