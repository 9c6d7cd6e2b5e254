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
    /// It was claimed and given back untouched each time: those who claim it have no handler for its topic.
    NoHandler {
        /// How often.
        claims: i64,
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
    let given_back = item.generation > 0 && item.attempts == 0 && item.last_error.is_none();
    match (lane.held_by, lane.first) {
        (Some(by), _) => Why::KeyHeld { key, by },
        (None, Some(first)) => Why::KeyBehind { key, first, ahead: lane.ahead },
        _ if given_back => Why::NoHandler { claims: item.generation },
        _ if item.next_attempt_at > now => Why::NotDue { until: item.next_attempt_at },
        _ => match item.expires_at {
            Some(at) if at <= now => Why::Expired { at },
            _ => Why::Unclaimed { since: item.next_attempt_at },
        },
    }
}

fn between(earlier: Timestamp, later: Timestamp) -> String {
    told(Duration::try_from(later.duration_since(earlier)).unwrap_or_default())
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
            Some(format!(
                "mend what made it fail and run `mainstay outbox requeue {by}`, or go on without it: `mainstay outbox release-key {key:?}`"
            )),
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
                Some(format!("when it may go on: `mainstay {} resume {topic}`", queue.as_str())),
            )
        }
        Why::NoHandler { claims } => (
            format!(
                "it was claimed {claims} times and given back untouched: whoever claims it has no handler for {:?}, or was stopped",
                item.topic
            ),
            Some(format!("start {worker}")),
        ),
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
