//! Topics that somebody paused. What waits there waits as it should, so it is told and never counts as trouble; but whoever wonders why
//! nothing happens finds it here. Timers and runs of jobs are another matter: no command pauses them, so somebody wrote to their tables.

use crate::error::Result;
use crate::store::{Provider, Queue};

use super::check::counted;
use super::{Finding, HealthStatus};

/// Topics that are named.
const NAMED: usize = 3;

/// What is paused, with the queue it is of.
pub(super) async fn seen(provider: &dyn Provider) -> Result<Vec<(Queue, String)>> {
    let mut all = Vec::new();
    for queue in Queue::ALL {
        let paused = provider.queue(queue).paused().await?;
        all.extend(paused.into_iter().map(|paused| (queue, paused.topic)));
    }
    Ok(all)
}

pub(super) fn judge(paused: &[(Queue, String)]) -> Finding {
    if paused.is_empty() {
        return Finding::healthy("no topic is paused");
    }
    let named =
        paused.iter().take(NAMED).map(|(queue, topic)| format!("{topic:?} of the {}", queue.as_str()));
    let mut text = format!("{} paused: ", counted(paused.len() as u64, "topic"));
    text.push_str(&named.collect::<Vec<_>>().join(", "));
    if paused.len() > NAMED {
        text.push_str(&format!(" and {} more", paused.len() - NAMED));
    }
    if paused.iter().any(|(queue, _)| !matches!(queue, Queue::Outbox | Queue::Inbox)) {
        return Finding::new(HealthStatus::Degraded, text).advise(
            "timers and runs of jobs are paused by nothing of Mainstay's, and don't become messages until that ends: delete the row in the table \
             of that queue whose name ends in _paused; pause the topic of the outbox instead (`mainstay outbox pause`)",
        );
    }
    Finding::healthy(text)
        .advise("`mainstay outbox stats` and `mainstay inbox stats` tell who did it, when and why")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_paused_is_named_and_is_no_trouble() {
        assert_eq!(judge(&[]).summary, "no topic is paused");
        let topic = |name: &str| (Queue::Outbox, name.to_owned());
        let finding = judge(&[topic("a"), (Queue::Inbox, "b".to_owned()), topic("c"), topic("d")]);
        assert_eq!(finding.status, HealthStatus::Healthy);
        assert_eq!(
            finding.summary,
            "4 topics paused: \"a\" of the outbox, \"b\" of the inbox, \"c\" of the outbox and 1 more"
        );
        // By whatever was written to its table: there is no command for it.
        for queue in [Queue::Timers, Queue::JobRuns] {
            let finding = judge(&[topic("a"), (queue, "b".to_owned())]);
            assert_eq!(finding.status, HealthStatus::Degraded);
            assert!(finding.summary.contains("\"b\" of the"), "{}", finding.summary);
        }
    }
}
