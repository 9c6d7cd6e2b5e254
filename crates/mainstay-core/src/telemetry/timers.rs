//! Timers, and runs that wait as timers do.

use metrics::{counter, gauge};

use crate::id::WorkItemId;
use crate::outbox::{Enqueued, PreparedMessage};
use crate::timer::TimerStats;

use super::names;
use super::queue::count_added;

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
