//! Why an item is where it is, and in particular why nobody works on it.
//!
//! It reads the item, what is ahead of it in its ordering key, and the database's clock. Nothing here writes.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::error::Result;
use crate::id::{OwnerToken, WorkItemId};
use crate::outbox::{OutboxMessage, PausedTopic};
use crate::queue::{FailureReason, Status};
use crate::store::{Provider, Queue};

use super::LaneSeen;
use super::check::told;

/// An owner who is not known, or not named.
const SOMEBODY: &str = "somebody";

/// Where an item stands, and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "because", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Why {
    /// It is not due yet.
    NotDue {
        /// When it is.
        until: Timestamp,
    },
    /// An item of its ordering key failed and holds the key.
    KeyHeld {
        /// The key.
        key: String,
        /// The failed item.
        by: WorkItemId,
    },
    /// Others of its ordering key come first.
    KeyBehind {
        /// The key.
        key: String,
        /// The first of them.
        first: WorkItemId,
        /// How many there are, up to [`SEEN_AT_MOST`](super::SEEN_AT_MOST).
        ahead: u64,
    },
    /// Its topic is paused: nobody gets its messages until it is resumed.
    Paused {
        /// Since when.
        since: Timestamp,
        /// Who paused it.
        by: String,
        /// Why, in their words.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// It was claimed and given back without an attempt each time: those who claim it have no handler for its topic, or their handler
    /// puts it off, or they were stopped. Its last error tells which, where whoever gave it back has said so.
    GivenBack {
        /// How often.
        claims: i64,
        /// Until when it was put off, if that is still to come.
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// It expired; the next claim fails it.
    Expired {
        /// When.
        at: Timestamp,
    },
    /// It could be claimed, and nobody has.
    Unclaimed {
        /// Since when.
        since: Timestamp,
    },
    /// Somebody works on it.
    Claimed {
        /// Who.
        by: Option<OwnerToken>,
        /// Until when, unless that is put off.
        until: Timestamp,
    },
    /// Somebody had it and did not end it in time; the next claim takes it.
    Lapsed {
        /// Who.
        by: Option<OwnerToken>,
        /// Since when.
        since: Timestamp,
    },
    /// It failed for good.
    Failed {
        /// Why.
        reason: Option<FailureReason>,
        /// When.
        at: Option<Timestamp>,
    },
    /// It is done.
    Done {
        /// When.
        at: Option<Timestamp>,
    },
}

/// Why an item is where it is, in words, and what to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The item.
    pub id: WorkItemId,
    /// The queue it is in: `outbox`, `inbox`, `timers`, `job_runs`.
    pub queue: &'static str,
    /// Its topic.
    pub topic: String,
    /// Where it stands.
    pub status: Status,
    /// Deliveries so far.
    pub attempts: u32,
    /// The last error, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Why.
    #[serde(flatten)]
    pub why: Why,
    /// The same in words.
    pub summary: String,
    /// What to do, if there is anything to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Explanation {
    /// Of the item of this id: a message of the outbox, or else an item of another queue. None if there is none.
    pub async fn of(provider: &dyn Provider, id: WorkItemId) -> Result<Option<Self>> {
        for queue in Queue::ALL {
            // What has fired is a message under the same id, which the outbox knows.
            let Some(item) = provider.queue(queue).get(id).await? else { continue };
            let lane = match (item.status, &item.ordering_key) {
                (Status::Ready, Some(_)) => provider.health().lane(queue, id).await?,
                _ => LaneSeen::default(),
            };
            let paused = match item.status {
                Status::Ready | Status::InProgress => provider.queue(queue).paused().await?,
                Status::Done | Status::Failed => Vec::new(),
            };
            let paused = paused.into_iter().find(|paused| paused.topic == item.topic);
            let now = provider.now().await?;
            return Ok(Some(Self::new(queue, item, lane, paused, now)));
        }
        Ok(None)
    }

    /// The same without who has, or had, the item claimed: with that, somebody else could settle it.
    #[must_use]
    pub fn anonymous(mut self) -> Self {
        if let Why::Claimed { by, .. } | Why::Lapsed { by, .. } = &mut self.why
            && let Some(owner) = by.take()
        {
            self.summary = self.summary.replace(&owner.to_string(), SOMEBODY);
        }
        self
    }

    fn new(
        queue: Queue,
        item: OutboxMessage,
        lane: LaneSeen,
        paused: Option<PausedTopic>,
        now: Timestamp,
    ) -> Self {
        let why = why(&item, &lane, paused, now);
        let (summary, advice) = in_words(queue, &item, &why, now);
        Self {
            id: item.id,
            queue: queue.as_str(),
            topic: item.topic,
            status: item.status,
            attempts: item.attempts,
            last_error: item.last_error,
            why,
            summary,
            advice,
        }
    }
}

fn why(item: &OutboxMessage, lane: &LaneSeen, paused: Option<PausedTopic>, now: Timestamp) -> Why {
    // What somebody works on goes on to its end.
    let running = item.locked_until.is_some_and(|until| until > now);
    if let (Some(PausedTopic { since, by, reason, .. }), false) = (paused, running) {
        return Why::Paused { since, by, reason };
    }
    match item.status {
        Status::Done => Why::Done { at: item.processed_at },
        Status::Failed => Why::Failed { reason: item.reason, at: item.processed_at },
        Status::InProgress => match item.locked_until {
            Some(until) if until > now => Why::Claimed { by: item.owner, until },
            until => Why::Lapsed { by: item.owner, since: until.unwrap_or(now) },
        },
        Status::Ready => waiting(item, lane, now),
    }
}

/// What keeps it longest comes first: a key that is held needs somebody, a due time only has to pass.
fn waiting(item: &OutboxMessage, lane: &LaneSeen, now: Timestamp) -> Why {
    let key = item.ordering_key.clone().unwrap_or_default();
    let put_off = Some(item.next_attempt_at).filter(|until| *until > now);
    // A requeue begins with no attempts too, but at once, and keeps the error it failed with.
    let given_back =
        item.generation > 0 && item.attempts == 0 && (put_off.is_some() || item.last_error.is_none());
    match (lane.held_by, lane.first) {
        (Some(by), _) => Why::KeyHeld { key, by },
        (None, Some(first)) => Why::KeyBehind { key, first, ahead: lane.ahead },
        _ if given_back => Why::GivenBack { claims: item.claims(), until: put_off },
        _ => match (put_off, item.expires_at) {
            (Some(until), _) => Why::NotDue { until },
            (None, Some(at)) if at <= now => Why::Expired { at },
            _ => Why::Unclaimed { since: item.next_attempt_at },
        },
    }
}

fn between(earlier: Timestamp, later: Timestamp) -> String {
    told(Duration::try_from(later.duration_since(earlier)).unwrap_or_default())
}

/// What is known of it: that nobody has tried it, and why, if that was said.
fn given_back(
    item: &OutboxMessage,
    (claims, until): (i64, Option<Timestamp>),
    now: Timestamp,
    worker: &str,
) -> (String, Option<String>) {
    let times = if claims == 1 { "once".to_owned() } else { format!("{claims} times") };
    let begun = format!("it was claimed {times} and given back without an attempt");
    match (until.map(|until| between(now, until)), &item.last_error) {
        (Some(left), Some(error)) => (format!("{begun}, put off for {left} more: {error}"), None),
        (Some(left), None) => (
            format!(
                "{begun}, put off for {left} more: its handler asked for that, or a webhook leaves its receiver alone, or whoever claims it \
                 has no handler for {:?}",
                item.topic
            ),
            Some(format!(
                "if that goes on, see the log of whoever claims it; if there is no handler, start {worker}"
            )),
        ),
        (None, _) => (
            format!("{begun}, and nobody has claimed it since"),
            Some(format!(
                "whoever had it was stopped, or has no handler for {:?}: start {worker}, or see with `mainstay health` whether workers are busy",
                item.topic
            )),
        ),
    }
}

/// A text as one word of a shell, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn in_words(queue: Queue, item: &OutboxMessage, why: &Why, now: Timestamp) -> (String, Option<String>) {
    let worker = match queue {
        Queue::Outbox | Queue::Inbox => format!("a worker with a handler for {:?}", item.topic),
        Queue::Timers => "a process with timers switched on".to_owned(),
        Queue::JobRuns => "a process with jobs switched on".to_owned(),
    };
    let owner = |by: &Option<OwnerToken>| by.map_or_else(|| SOMEBODY.to_owned(), |by| by.to_string());
    let last = item.last_error.as_ref().map(|error| format!("; the last error: {error}")).unwrap_or_default();
    let at = |at: &Option<Timestamp>| at.map(|at| format!(" {} ago", between(at, now))).unwrap_or_default();
    match why {
        Why::NotDue { until } if item.attempts > 0 => {
            let left = between(now, *until);
            (format!("it is to be tried again in {left}, after delivery {}{last}", item.attempts), None)
        }
        Why::NotDue { until } => (format!("it is not due yet, but in {}", between(now, *until)), None),
        Why::KeyHeld { key, by } => (
            format!("its ordering key {key:?} is held by {by}, which failed"),
            Some(match queue {
                Queue::Inbox => {
                    "mend what made it fail and requeue it: `mainstay inbox requeue SOURCE ID`".to_owned()
                }
                _ => format!(
                    "mend what made it fail and run `mainstay outbox requeue {by}`, or go on without it: `mainstay outbox release-key {}`",
                    quoted(key)
                ),
            }),
        ),
        Why::KeyBehind { key, first, ahead } => (
            format!("{ahead} of its ordering key {key:?} come first, the first of them {first}"),
            Some(format!("see what that one waits for: `mainstay why {first}`")),
        ),
        Why::Paused { since, by, reason } => {
            let told = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let topic = &item.topic;
            (
                format!("its topic {topic:?} was paused by {by} {} ago{told}", between(*since, now)),
                // Nothing else has a command for it, nor is it paused by one.
                matches!(queue, Queue::Outbox | Queue::Inbox).then(|| {
                    format!("when it may go on: `mainstay {} resume {}`", queue.as_str(), quoted(topic))
                }),
            )
        }
        Why::GivenBack { claims, until } => given_back(item, (*claims, *until), now, &worker),
        Why::Expired { at } => (
            format!("it expired {} ago; the next claim fails it", between(*at, now)),
            Some(format!("nobody claims from this queue; start {worker}")),
        ),
        Why::Unclaimed { since } => {
            let since = between(*since, now);
            (
                format!("it has been due for {since}, and nobody has claimed it"),
                Some(format!("start {worker}, or see with `mainstay health` whether workers are busy")),
            )
        }
        Why::Claimed { by, until } => {
            (format!("{} works on it, and holds it for {} more", owner(by), between(now, *until)), None)
        }
        Why::Lapsed { by, since } => (
            format!(
                "{} had it, and its lease lapsed {} ago; the next claim takes it",
                owner(by),
                between(*since, now)
            ),
            Some(format!("if that stays so, nobody claims from this queue: start {worker}")),
        ),
        Why::Failed { reason, at: when } => {
            let text = match reason {
                Some(FailureReason::Cancelled) => "it was cancelled",
                Some(FailureReason::Expired) => "it expired before a handler had it",
                Some(FailureReason::DeliveryLimit) => "it was delivered as often as the limit allows",
                Some(FailureReason::Handler) | None => "its handler failed it",
            };
            let advice = match queue {
                Queue::Outbox => Some(format!("to try again: `mainstay outbox requeue {}`", item.id)),
                Queue::Inbox => Some("to try again: `mainstay inbox requeue SOURCE ID`".to_owned()),
                Queue::Timers | Queue::JobRuns => None,
            };
            (format!("{text}{}{last}", at(when)), advice)
        }
        Why::Done { at: when } => (format!("it is done{}", at(when)), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::MessageId;

    fn explained(change: impl FnOnce(&mut OutboxMessage, Timestamp)) -> Explanation {
        let now: Timestamp = "2026-11-18T00:00:00Z".parse().unwrap();
        let mut item = OutboxMessage::new(WorkItemId::new(), MessageId::new(), "mail.send".to_owned(), now);
        item.next_attempt_at = now;
        change(&mut item, now);
        Explanation::new(Queue::Outbox, item, LaneSeen::default(), None, now)
    }

    #[test]
    fn what_was_given_back_says_what_is_known_of_it() {
        let minute = Duration::from_secs(60);
        let told = explained(|item, _| item.generation = 2);
        assert_eq!(told.why, Why::GivenBack { claims: 2, until: None });
        let says = "2 times and given back without an attempt, and nobody has claimed it since";
        assert!(told.summary.ends_with(says), "{}", told.summary);
        let put_off = explained(|item, now| (item.generation, item.next_attempt_at) = (1, now + minute));
        for says in ["once and", "1 min more", "its handler asked for that", "no handler for \"mail.send\""] {
            assert!(put_off.summary.contains(says), "{says}: {}", put_off.summary);
        }
        let said = explained(|item, now| {
            (item.generation, item.next_attempt_at) = (1, now + minute);
            item.last_error = Some("the receiver is left alone".to_owned());
        });
        assert!(said.summary.ends_with("more: the receiver is left alone"), "{}", said.summary);
        assert_eq!(said.advice, None);
        // One that was requeued was tried.
        let requeued = explained(|item, _| {
            item.generation = 1;
            item.last_error = Some("no stock".to_owned());
        });
        assert!(matches!(requeued.why, Why::Unclaimed { .. }), "{requeued:?}");
    }

    #[test]
    fn what_is_advised_can_be_pasted_into_a_shell() {
        let (now, topic) = (Timestamp::UNIX_EPOCH, "it's; rm -rf $HOME");
        let item = OutboxMessage::new(WorkItemId::new(), MessageId::new(), topic.to_owned(), now);
        let paused = |queue| {
            let paused = PausedTopic::new(topic, now, "alice", None);
            Explanation::new(queue, item.clone(), LaneSeen::default(), Some(paused), now).advice
        };
        let advice = paused(Queue::Inbox).unwrap();
        assert!(advice.ends_with(r"`mainstay inbox resume 'it'\''s; rm -rf $HOME'`"), "{advice}");
        assert_eq!(paused(Queue::Timers), None, "there is no such command");
        let lane = LaneSeen { held_by: Some(item.id), ..LaneSeen::default() };
        let mut item = item.clone();
        item.ordering_key = Some("a 'b c".to_owned());
        let advice = Explanation::new(Queue::Outbox, item, lane, None, now).advice.unwrap();
        assert!(advice.ends_with(r"`mainstay outbox release-key 'a '\''b c'`"), "{advice}");
    }
}
