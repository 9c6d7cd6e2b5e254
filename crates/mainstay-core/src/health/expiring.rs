//! Failed messages that retention is about to delete: nobody will be able to requeue them.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::outbox::{MessageFilter, Page};
use crate::queue::Status;
use crate::store::Provider;

use super::check::told;
use super::{Finding, HealthOptions, HealthStatus};

/// How many are looked for. What matters is that there are any.
const LOOKED_FOR: u32 = 100;

/// How many failed messages of the outbox will be gone within the options' time, of those that are kept for so long.
pub(super) async fn count(provider: &dyn Provider, kept: Duration, options: &HealthOptions) -> Result<usize> {
    let from = provider.now().await?;
    let past = kept.saturating_sub(options.expiring_within);
    let settled = from.checked_sub(past).map_err(|_| {
        Error::invalid("health.expiring", "failed", format_args!("is longer than the calendar: {past:?}"))
    })?;
    let filter = MessageFilter::all().status(Status::Failed).settled_before(settled).without_payloads();
    let page = Page { limit: LOOKED_FOR, before: None };
    Ok(provider.outbox().list(&filter, page).await?.len())
}

pub(super) fn judge(count: usize, options: &HealthOptions) -> Finding {
    let within = told(options.expiring_within);
    let count = match count {
        0 => return Finding::healthy(format!("no failed message is deleted within {within}")),
        1 => "1 failed message is".to_owned(),
        many if many >= LOOKED_FOR as usize => format!("{many} or more failed messages are"),
        many => format!("{many} failed messages are"),
    };
    Finding::new(HealthStatus::Degraded, format!("{count} deleted by retention within {within}")).advise(
        "requeue those that are still wanted: `mainstay outbox list --status failed`, `mainstay outbox requeue`",
    )
}
