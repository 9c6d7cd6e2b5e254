//! Turning what is due into messages: claim, enqueue and ack in one transaction, so that a crash loses nothing and doubles
//! nothing (R17).

use std::time::Duration;

use mainstay_core::queue::{ClaimRequest, Outcome, Settlement};
use mainstay_core::{OwnerToken, WorkItemId};
use rusqlite::{Connection, params};

use super::claim::claim;
use super::settle::settle;
use crate::error::Fault;
use crate::statements::Statements;

/// The claim lasts as long as the transaction; its lease is never seen.
const LEASE: Duration = Duration::from_secs(60);

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
    let claimed = claim(connection, sql, &request)?.items;
    let now = sql.now(connection)?;
    for item in &claimed {
        connection.prepare_cached(&sql.forward)?.execute(params![item.id().as_uuid().as_bytes(), now])?;
    }
    let settlements: Vec<Settlement> =
        claimed.iter().map(|item| Settlement { claim: item.handle, outcome: Outcome::Ack }).collect();
    settle(connection, sql, owner, &settlements, keep_done_payloads)?;
    Ok(claimed.iter().map(|item| item.id()).collect())
}
