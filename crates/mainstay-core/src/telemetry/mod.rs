//! Every metric, every log line and every span of the engine, in one module that is also their reference (R26, R27): a file for each thing that is told of, `names` for the metrics,
//! `spans` for the spans.
//!
//! Counters count rows that really changed. Levels follow OBX-085 to OBX-090. A payload or a header never gets here:
//! functions take counts, ids and topics.

mod fanout;
mod fleet;
mod health;
mod inbox;
mod jobs;
mod joins;
mod labels;
mod leases;
pub mod names;
#[cfg_attr(not(feature = "otel"), path = "no_otel.rs")]
mod otel;
mod queue;
mod spans;
mod timers;
mod trail;
mod webhooks;

/// The upper bounds of all histograms, in seconds: from a millisecond to ten minutes, as handlers and waits take.
pub const BUCKETS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];

/// What the trace state of a span's parent has when nothing came of what the span stands for, as of a claim that found no work: name and value. A sampler that
/// does not heed whether a parent is sampled can drop it by that, with what begins within it.
pub const DISCARDED: (&str, &str) = ("mainstay", "discarded");

pub(crate) use fanout::{
    fanout_administered, fanout_completed, fanout_dispatched, fanout_failed, fanout_known,
    fanout_not_completed, fanout_planning, fanout_refused, fanout_registered, fanout_term, fanout_was_ahead,
    fanouts_unknown,
};
pub(crate) use fleet::{
    assignment_changed, assignment_joined, assignment_members, assignment_owned, assignment_refused,
    fleet_gauges, fleet_not_refreshed, fleet_not_shared, fleet_refreshed, store_failed, store_looked_at,
    store_recovered, store_turn, watch_distrusted, watch_failed, watch_recovered,
};
pub(crate) use health::{alarm, health_status};
pub(crate) use inbox::{
    begun, forgotten, guard_ended, guard_lost, guard_unreleased, marked, received, revived, seen,
};
pub(crate) use jobs::{
    dispatched, job_administered, job_failed, job_not_planned, job_registered, job_rejected, materialised,
    run_not_noted, runs_ended, runs_purged,
};
pub(crate) use joins::{join_attached, join_cancelled, join_started, joins_purged};
pub use joins::{join_gauges, joins_counted};
pub use leases::active_leases;
pub(crate) use leases::{
    LeaseLoss, clock_jumped, lease_acquired, lease_contended, lease_forced, lease_lost, lease_released,
    lease_renewed, lease_unreleased, leases_acquired, leases_lost, leases_released, leases_renewed,
};
pub(crate) use otel::{current_context, current_state};
pub(crate) use queue::{
    Scene, administered, claim_lost, claimed, enqueued, handler_ended, handler_started, key_released,
    no_handler, paused, purged, reaped, rejected, retrying, service, settled, sweep_is_behind,
};
pub use queue::{gauges, inbox_gauges};
pub use spans::SPANS;
pub(crate) use spans::{Adding, Claiming, broken_off, handled, handling, settling, wanted as spans_wanted};
pub use timers::timer_gauges;
pub(crate) use timers::{fired, run_gauges, scheduled, timers_changed};
pub(crate) use trail::{
    audit_purged, audited, operation_ended, operation_over, operation_started, operations_purged,
    operations_stalled,
};
pub use webhooks::{
    Delivered, webhook_breaker, webhook_delivered, webhook_left_alone, webhook_put_off, webhook_recovered,
};
