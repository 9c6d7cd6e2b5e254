//! Work that has been due for long, and that nobody has claimed: of each queue, of the jobs, and the deadlines of joins.

use std::time::Duration;

use crate::store::Queue;

use super::check::{counted, told};
use super::{Finding, HealthOptions, HealthStatus, ScheduleSeen, WorkSeen};

/// The name of a queue's check.
pub(super) fn name(queue: Queue) -> &'static str {
    match queue {
        Queue::Outbox => "overdue.outbox",
        Queue::Inbox => "overdue.inbox",
        Queue::Timers => "overdue.timers",
        Queue::JobRuns => "overdue.job_runs",
    }
}

pub(super) fn judge_queue(queue: Queue, seen: &WorkSeen, options: &HealthOptions) -> Finding {
    let finding = judge((seen.overdue, "item"), seen.oldest_due, options);
    advise(
        finding,
        match queue {
            Queue::Outbox => {
                "start workers, or more of them, with handlers for what waits: `mainstay outbox stats` tells the topics"
            }
            Queue::Inbox => {
                "start workers, or more of them, with handlers for what waits: `mainstay inbox stats` tells how much"
            }
            Queue::Timers => "start a process with timers switched on, or see in its log why they don't fire",
            Queue::JobRuns => {
                "start a process with jobs switched on, or see in its log why runs don't become messages"
            }
        },
    )
}

pub(super) fn judge_jobs(seen: &ScheduleSeen, options: &HealthOptions) -> Finding {
    let late = judge((seen.jobs_overdue, "job"), seen.oldest_job, options);
    if seen.jobs_in_trouble == 0 || late.status > HealthStatus::Degraded {
        return advise(late, "start a process with jobs switched on, or see in its log why it makes no runs");
    }
    let example = seen.job_in_trouble.as_deref().unwrap_or_default();
    let count = counted(seen.jobs_in_trouble, "job");
    let mut text = format!("{count} can't be read by any scheduler, such as {example:?}");
    if late.status == HealthStatus::Degraded {
        text = format!("{}; {text}", late.summary);
    }
    Finding::new(HealthStatus::Degraded, text)
        .advise("`mainstay jobs show NAME` tells what is wrong with it; correct it or disable it")
}

pub(super) fn judge_joins(seen: &ScheduleSeen, options: &HealthOptions) -> Finding {
    let late = judge((seen.joins_overdue, "join"), seen.oldest_join, options);
    advise(late, "start a process with joins switched on, or see in its log why their deadlines are not kept")
}

fn judge((overdue, noun): (u64, &str), oldest: Option<Duration>, options: &HealthOptions) -> Finding {
    let Some(oldest) = oldest else { return Finding::healthy("nothing is due") };
    if overdue == 0 || oldest < options.overdue_degraded {
        return Finding::healthy(format!("the first has been due for {}", told(oldest)));
    }
    let (status, limit) = match oldest >= options.overdue_unhealthy {
        true => (HealthStatus::Unhealthy, options.overdue_unhealthy),
        false => (HealthStatus::Degraded, options.overdue_degraded),
    };
    let text = format!(
        "{} due for longer than {}, the first for {}; the limit is {}",
        counted(overdue, noun),
        told(options.overdue_degraded),
        told(oldest),
        told(limit)
    );
    Finding::new(status, text)
}

fn advise(finding: Finding, advice: &str) -> Finding {
    match finding.status {
        HealthStatus::Healthy => finding,
        _ => finding.advise(advice),
    }
}
