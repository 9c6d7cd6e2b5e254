//! Failed messages of the outbox, and dead ones of the inbox's queue, that retention is about to delete: nobody will be able to requeue them.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::outbox::{MessageFilter, Page};
use crate::queue::Status;
use crate::store::{Provider, Queue};

use super::check::told;
use super::{Finding, HealthOptions, HealthStatus};

/// How many are looked for. What matters is that there are any.
const LOOKED_FOR: u32 = 100;

/// For how long a process keeps what has failed, if not for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FailedKept {
    /// Failed messages of the outbox.
    pub(crate) outbox: Option<Duration>,
    /// Dead messages of the inbox.
    pub(crate) inbox: Option<Duration>,
}

impl FailedKept {
    /// Whether anything is deleted.
    pub(super) fn ends(&self) -> bool {
        self.outbox.is_some() || self.inbox.is_some()
    }
}

/// How many will be gone within the options' time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Expiring {
    outbox: usize,
    inbox: usize,
}

pub(super) async fn count(
    provider: &dyn Provider,
    kept: FailedKept,
    options: &HealthOptions,
) -> Result<Expiring> {
    Ok(Expiring {
        outbox: count_in(provider, Queue::Outbox, kept.outbox, options).await?,
        inbox: count_in(provider, Queue::Inbox, kept.inbox, options).await?,
    })
}

async fn count_in(
    provider: &dyn Provider,
    queue: Queue,
    kept: Option<Duration>,
    options: &HealthOptions,
) -> Result<usize> {
    let Some(kept) = kept else { return Ok(0) };
    let from = provider.now().await?;
    let past = kept.saturating_sub(options.expiring_within);
    let settled = from.checked_sub(past).map_err(|_| {
        Error::invalid("health.expiring", "failed", format_args!("is longer than the calendar: {past:?}"))
    })?;
    let filter = MessageFilter::all().status(Status::Failed).settled_before(settled).without_payloads();
    let page = Page { limit: LOOKED_FOR, before: None };
    Ok(provider.queue(queue).list(&filter, page).await?.len())
}

pub(super) fn judge(seen: Expiring, options: &HealthOptions) -> Finding {
    let within = told(options.expiring_within);
    let of = [
        (seen.outbox, "failed message", "`mainstay outbox list --status failed`, `mainstay outbox requeue`"),
        (
            seen.inbox,
            "dead message of the inbox",
            "`mainstay inbox list --state dead`, `mainstay inbox requeue`",
        ),
    ];
    let of: Vec<_> = of.into_iter().filter(|(count, ..)| *count > 0).collect();
    if of.is_empty() {
        return Finding::healthy(format!("no failed message is deleted within {within}"));
    }
    let counts: Vec<_> = of.iter().map(|(count, noun, _)| counted(*count, noun)).collect();
    let is = if seen.outbox + seen.inbox == 1 { "is" } else { "are" };
    let advice: Vec<_> = of.iter().map(|(.., commands)| *commands).collect();
    Finding::new(
        HealthStatus::Degraded,
        format!("{} {is} deleted by retention within {within}", counts.join(" and ")),
    )
    .advise(format!("requeue those that are still wanted: {}", advice.join("; ")))
}

/// `3 failed messages`, `1 dead message of the inbox`.
fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        many => {
            let or_more = if many >= LOOKED_FOR as usize { " or more" } else { "" };
            format!("{many}{or_more} {}", noun.replacen("message", "messages", 1))
        }
    }
}
