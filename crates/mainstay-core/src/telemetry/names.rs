//! The names of all metrics. Each carries the label `store`.

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
/// Counter, by `action` (cancel, requeue, release-key, pause, resume): what an operator changed.
pub const ADMINISTERED: &str = "mainstay_outbox_administered_total";
/// Counter, by `outcome`: records that the application has written into the audit trail.
pub const AUDITED: &str = "mainstay_audit_written_total";
/// Counter: records of the audit trail that were deleted past their retention.
pub const AUDIT_PURGED: &str = "mainstay_audit_purged_total";
/// Counter: operations started.
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
/// Counter, by `reason` (lapsed, taken): leases lost, because they were not renewed in time, or because the database says that somebody else may have them.
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
/// Counter, by `provider`, with `fleet` as its `store`: looks at databases with nothing to do.
pub const FLEET_LOOKS: &str = "mainstay_fleet_looks_total";
/// Gauge, with `fleet` as its `store`: databases of a fleet.
pub const FLEET_STORES: &str = "mainstay_fleet_stores";
/// Gauge, by `state`, with `fleet` as its `store`: databases of a fleet that are cold, waiting, warm, elsewhere or refused.
pub const FLEET_STATES: &str = "mainstay_fleet_stores_by_state";
/// Gauge, with `fleet` as its `store`: databases of a fleet that failed when they were last asked.
pub const FLEET_SICK: &str = "mainstay_fleet_stores_failing";
/// Gauge, with `fleet` as its `store`: databases of a fleet whose entry can't be used. Those that were running keep running by their previous entry.
pub const FLEET_REFUSED: &str = "mainstay_fleet_entries_refused";
/// Gauge, with `fleet` as its `store`: databases of a fleet whose writes are seen from outside.
pub const FLEET_WATCHED: &str = "mainstay_fleet_stores_watched";
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
/// Gauge, by `check`: how a check of the watchdog's came out: 0 healthy, 1 degraded, 2 could not tell, 3 unhealthy.
pub const HEALTH_STATUS: &str = "mainstay_health_status";
/// Counter, by `check` and `status` (degraded, unknown, unhealthy): what the watchdog said of checks that are bad.
pub const HEALTH_ALARMS: &str = "mainstay_health_alarms_total";
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
/// Counter, by `route` and `outcome` (delivered, gone, rejected, timeout, unreachable, forbidden): deliveries to HTTP handlers.
pub const WEBHOOK_DELIVERIES: &str = "mainstay_webhook_deliveries_total";
/// Histogram in seconds, by `route` and `outcome`: how long deliveries to HTTP handlers took.
pub const WEBHOOK_SECONDS: &str = "mainstay_webhook_delivery_seconds";
/// Counter, by `route`: messages put off because their receiver is left alone, or has as many deliveries under way as it may have.
pub const WEBHOOK_PUT_OFF: &str = "mainstay_webhook_put_off_total";
/// Gauge, by `route`, with `webhooks` as its `store`: whether a receiver is left alone: 0 no, 1 one delivery tries it, 2 yes.
pub const WEBHOOK_BREAKER: &str = "mainstay_webhook_breaker_state";
