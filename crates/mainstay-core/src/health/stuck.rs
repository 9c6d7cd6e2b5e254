//! Work that somebody claimed and nobody finishes: its lease lapsed long ago.
//!
//! A claim takes such work by itself, so where it stays nobody claims from that queue any more.

use crate::store::Queue;

use super::check::{counted, told};
use super::workers::{name, unknown};
use super::{Finding, HealthOptions, HealthStatus, WorkSeen};

pub(super) fn judge(seen: &[(Queue, Result<WorkSeen, Finding>)], options: &HealthOptions) -> Finding {
    let mut status = HealthStatus::Healthy;
    let mut texts = Vec::new();
    for (queue, seen) in seen {
        let Ok(seen) = seen else { continue };
        let longest = seen.longest_lapsed.unwrap_or_default();
        if seen.stuck == 0 || longest < options.stuck_degraded {
            continue;
        }
        status = status.max(match longest >= options.stuck_unhealthy {
            true => HealthStatus::Unhealthy,
            false => HealthStatus::Degraded,
        });
        let count = counted(seen.stuck, "item");
        texts.push(format!("{}: {count} whose lease lapsed, the first {} ago", name(*queue), told(longest)));
    }
    if !texts.is_empty() {
        return Finding::new(status, texts.join("; ")).advise(
            "whoever claimed them is gone and nobody takes over: start a worker for that queue, or see with \
             `mainstay outbox list` which topics no worker handles",
        );
    }
    unknown(seen).unwrap_or_else(|| Finding::healthy("no claim has been left behind"))
}
