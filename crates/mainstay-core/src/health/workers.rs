//! Whether anybody works: consumers that wait for work, hold claims, or have just ended something.
//!
//! Where nothing is due, nobody is missed: a process may rest, or belong to a fleet that lets the database rest.

use crate::store::Queue;

use super::check::{counted, told};
use super::{Finding, HealthOptions, HealthStatus, WorkSeen};

/// A queue as people call it.
pub(super) fn name(queue: Queue) -> &'static str {
    match queue {
        Queue::JobRuns => "job runs",
        other => other.as_str(),
    }
}

/// What is to be said of queues that gave no answer, if there are any.
pub(super) fn unknown(seen: &[(Queue, Result<WorkSeen, Finding>)]) -> Option<Finding> {
    let texts: Vec<_> = seen
        .iter()
        .filter_map(|(queue, seen)| Some(format!("{}: {}", name(*queue), seen.as_ref().err()?.summary)))
        .collect();
    (!texts.is_empty()).then(|| Finding::unknown(texts.join("; ")))
}

pub(super) fn judge(seen: &[(Queue, Result<WorkSeen, Finding>)], options: &HealthOptions) -> Finding {
    let known = || seen.iter().filter_map(|(queue, seen)| Some((*queue, seen.as_ref().ok()?)));
    let missed: Vec<_> = known()
        .filter(|(_, seen)| is_missed(seen, options))
        .map(|(queue, seen)| {
            let due = told(seen.oldest_due.unwrap_or_default());
            let last = match seen.last_settled {
                Some(ago) => format!("the last one ended an item {} ago", told(ago)),
                None => "none has ever ended an item".to_owned(),
            };
            format!("{}: work has been due for {due} and no worker is seen; {last}", name(queue))
        })
        .collect();
    if !missed.is_empty() {
        let finding = Finding::new(HealthStatus::Unhealthy, missed.join("; "));
        return finding.advise(
            "start a process that works on it, or see in the log of the one that should why it does not",
        );
    }
    if let Some(finding) = unknown(seen) {
        return finding;
    }
    let signs: Vec<_> = known().filter_map(|(queue, seen)| signs(queue, seen)).collect();
    Finding::healthy(match signs.is_empty() {
        true => "none is seen, and none is missed".to_owned(),
        false => signs.join("; "),
    })
}

/// Whether there is work that somebody should long have claimed, and no sign of anybody.
fn is_missed(seen: &WorkSeen, options: &HealthOptions) -> bool {
    let silent = seen.last_settled.is_none_or(|ago| ago >= options.silence);
    let nobody = seen.busy == 0 && seen.idle.unwrap_or(0) == 0;
    seen.oldest_due.is_some_and(|due| due >= options.silence) && nobody && silent
}

fn signs(queue: Queue, seen: &WorkSeen) -> Option<String> {
    let idle =
        seen.idle.filter(|idle| *idle > 0).map(|idle| format!("{} waiting", counted(idle, "consumer")));
    let busy = (seen.busy > 0).then(|| format!("{} at work", counted(seen.busy, "consumer")));
    let last = seen.last_settled.map(|ago| format!("an item ended {} ago", told(ago)));
    let signs: Vec<_> = [idle, busy, last].into_iter().flatten().collect();
    (!signs.is_empty()).then(|| format!("{}: {}", name(queue), signs.join(", ")))
}
