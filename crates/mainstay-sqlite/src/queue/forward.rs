//! Turning what is due into messages: claim, enqueue and ack in one transaction, so that a crash loses nothing and doubles
//! nothing (R17). Payloads go from table to table and are never all in memory.

use std::time::Duration;

use mainstay_core::queue::{ClaimRequest, Claimed, FailureReason, Outcome, Settlement};
use mainstay_core::text::NAME_MAX;
use mainstay_core::timer::take_ordering_key;
use mainstay_core::{OwnerToken, WorkItemId};
use rusqlite::{Connection, params};

use super::claim::claim_bare;
use super::settle::settle;
use crate::error::Fault;
use crate::statements::Statements;

/// The claim lasts as long as the transaction; its lease is never seen.
const LEASE: Duration = Duration::from_secs(60);

/// What is said of an item whose message can't be made.
const TAKEN: &str = "the outbox already has another message under this id";

pub(crate) fn forward(
    connection: &Connection,
    sql: &Statements,
    owner: OwnerToken,
    batch: u32,
    keep_done_payloads: bool,
) -> Result<Vec<WorkItemId>, Fault> {
    // No delivery limit: this is not a delivery.
    let request =
        ClaimRequest::new(owner).lease(LEASE).batch(batch).delivery_limit(ClaimRequest::DELIVERY_LIMIT_MAX);
    let mut claimed = claim_bare(connection, sql, &request)?.items;
    // In the order in which they fell due, which is then the order of the messages.
    claimed.sort_by_key(|item| item.due_at);
    let now = sql.now(connection)?;
    let mut settlements = Vec::with_capacity(claimed.len());
    let mut forwarded = Vec::with_capacity(claimed.len());
    for item in &mut claimed {
        let outcome = if add(connection, sql, item, now)? || is_known(connection, sql, item)? {
            forwarded.push(item.id());
            Outcome::Ack
        } else {
            // Nothing may be lost without a word.
            Outcome::Fail { reason: FailureReason::Handler, error: Some(TAKEN.to_owned()) }
        };
        settlements.push(Settlement { claim: item.handle, outcome });
    }
    settle(connection, sql, owner, &settlements, keep_done_payloads)?;
    Ok(forwarded)
}

/// Whether there was room for the message: nothing else has its id.
fn add(connection: &Connection, sql: &Statements, item: &mut Claimed, now: i64) -> Result<bool, Fault> {
    // Rows written by hand may name any key; one that is refused would keep all others from being forwarded.
    let is_key = |key: &String| (1..=NAME_MAX).contains(&key.chars().count()) && !key.contains('\0');
    let named = take_ordering_key(&mut item.headers).filter(is_key);
    let ordering_key = item.ordering_key.take().or(named);
    // A map of texts always has a JSON form, so `ok()` hides no error.
    let headers = (!item.headers.is_empty()).then(|| serde_json::to_string(&item.headers).ok()).flatten();
    let id = item.id().as_uuid();
    let add = params![id.as_bytes(), now, ordering_key, headers];
    Ok(connection.prepare_cached(&sql.forward)?.execute(add)? > 0)
}

/// Whether what has its id is its own message.
fn is_known(connection: &Connection, sql: &Statements, item: &Claimed) -> Result<bool, Fault> {
    let (id, message) = (item.id().as_uuid(), item.message_id.as_uuid());
    let ids = params![id.as_bytes(), message.as_bytes()];
    Ok(connection.prepare_cached(&sql.forward_known)?.query_row(ids, |row| row.get(0))?)
}
