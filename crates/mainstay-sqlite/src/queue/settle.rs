//! Ending and renewing claims. Each compares id, owner and generation, so a worker that lost its claim changes nothing.

use std::time::Duration;

use mainstay_core::join::{Counted, Step};
use mainstay_core::queue::{ClaimHandle, FailureReason, Outcome, Settled, Settlement, Status};
use mainstay_core::{OwnerToken, WorkItemId};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::Fault;
use crate::joins::Counting;
use crate::statements::Statements;
use crate::value::{after, lease_end};

/// How a message leaves the open table.
pub(super) struct Ending<'a> {
    status: Status,
    reason: Option<FailureReason>,
    error: Option<&'a str>,
    /// Puts the error from before behind this one, instead of losing it.
    append_earlier: bool,
    keep_payload: bool,
    /// Claimed, but never handed to a handler: that was no delivery.
    undelivered: bool,
}

impl<'a> Ending<'a> {
    fn done(keep_payload: bool) -> Self {
        let (reason, error) = (None, None);
        Self { status: Status::Done, reason, error, append_earlier: false, keep_payload, undelivered: false }
    }

    pub(super) fn failed(reason: FailureReason, error: Option<&'a str>) -> Self {
        let status = Status::Failed;
        let reason = Some(reason);
        Self { status, reason, error, append_earlier: false, keep_payload: true, undelivered: false }
    }

    /// Failed by a claim, between deliveries.
    pub(super) fn rejected(reason: FailureReason, error: &'a str) -> Self {
        Self { append_earlier: true, ..Self::failed(reason, Some(error)) }
    }

    /// What it means for the joins of the message.
    pub(super) fn step(&self) -> Step {
        if self.status == Status::Done { Step::Completed } else { Step::Failed }
    }

    /// Whether its ordering key has to wait, if the message asked for that. Not after a cancellation: whoever cancels a
    /// message wants the rest to go on.
    fn may_hold(&self) -> bool {
        self.reason.is_some_and(|reason| reason != FailureReason::Cancelled)
    }
}

/// Moves a message to the history.
pub(super) fn retire(
    connection: &Connection,
    sql: &Statements,
    seq: i64,
    now: i64,
    ending: &Ending<'_>,
) -> Result<(), Fault> {
    connection.prepare_cached(&sql.settle_retire)?.execute(params![
        seq,
        ending.status.code(),
        ending.reason.map(FailureReason::as_str),
        now,
        ending.error,
        ending.append_earlier,
        ending.keep_payload,
        ending.undelivered,
    ])?;
    if ending.may_hold() {
        connection.prepare_cached(&sql.settle_hold)?.execute([seq, now])?;
    }
    connection.prepare_cached(&sql.settle_remove)?.execute([seq])?;
    Ok(())
}

/// What a settle changed, and whether that may have made work ready.
pub(crate) struct SettleResult {
    pub(crate) settled: Settled,
    pub(crate) may_wake: bool,
    pub(crate) counted: Vec<Counted>,
}

/// Settles within the caller's transaction.
pub(crate) fn settle(
    connection: &Connection,
    sql: &Statements,
    owner: OwnerToken,
    settlements: &[Settlement],
    keep_done_payloads: bool,
) -> Result<SettleResult, Fault> {
    let now = sql.now(connection)?;
    let mut changed = Vec::with_capacity(settlements.len());
    let mut may_wake = false;
    let mut counting = Counting::begin(connection, sql, now)?;
    for Settlement { claim, outcome } in settlements {
        let hit = match outcome {
            Outcome::Ack => {
                let ending = Ending::done(keep_done_payloads);
                end(connection, sql, owner, claim, now, &ending, &mut counting)?
            }
            Outcome::Fail { reason, error } => {
                let ending = Ending::failed(*reason, error.as_deref());
                end(connection, sql, owner, claim, now, &ending, &mut counting)?
            }
            Outcome::Reject { reason, error } => {
                let ending = Ending { undelivered: true, ..Ending::failed(*reason, error.as_deref()) };
                end(connection, sql, owner, claim, now, &ending, &mut counting)?
            }
            Outcome::Abandon { delay, error } => {
                give_back(connection, &sql.settle_abandon, owner, claim, now, *delay, error.as_deref())?
            }
            Outcome::Release { delay, error } => {
                give_back(connection, &sql.settle_release, owner, claim, now, *delay, error.as_deref())?
            }
        };
        if let Some(wakes) = hit {
            changed.push(claim.id());
            may_wake |= wakes;
        }
    }
    let asked = settlements.iter().map(|settlement| settlement.claim.id());
    may_wake |= counting.may_wake();
    Ok(SettleResult {
        settled: Settled::from_changed(asked, changed),
        may_wake,
        counted: counting.counted()?,
    })
}

/// None when the claim no longer holds, else whether somebody behind it may now be ready.
fn end(
    connection: &Connection,
    sql: &Statements,
    owner: OwnerToken,
    claim: &ClaimHandle,
    now: i64,
    ending: &Ending<'_>,
    counting: &mut Counting<'_>,
) -> Result<Option<bool>, Fault> {
    let (id, owner) = (claim.id().as_uuid(), owner.as_uuid());
    let found = connection
        .prepare_cached(&sql.settle_find)?
        .query_row(params![id.as_bytes(), owner.as_bytes(), claim.generation()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?))
        })
        .optional()?;
    let Some((seq, keyed)) = found else { return Ok(None) };
    retire(connection, sql, seq, now, ending)?;
    counting.ended(claim.id(), ending.step())?;
    Ok(Some(keyed))
}

fn give_back(
    connection: &Connection,
    statement: &str,
    owner: OwnerToken,
    claim: &ClaimHandle,
    now: i64,
    delay: Option<Duration>,
    error: Option<&str>,
) -> Result<Option<bool>, Fault> {
    let (id, owner) = (claim.id().as_uuid(), owner.as_uuid());
    // As far as the tables can hold.
    let delay = delay.map(|delay| after(now, delay) - now);
    let changed = connection.prepare_cached(statement)?.execute(params![
        id.as_bytes(),
        owner.as_bytes(),
        claim.generation(),
        now,
        delay,
        error
    ])?;
    Ok((changed > 0).then_some(true))
}

/// Extends claims within the caller's transaction.
pub(crate) fn renew(
    connection: &Connection,
    sql: &Statements,
    owner: OwnerToken,
    claims: &[ClaimHandle],
    lease: Duration,
) -> Result<Settled, Fault> {
    let now = sql.now(connection)?;
    let until = lease_end(now, lease);
    let owner = owner.as_uuid();
    let mut statement = connection.prepare_cached(&sql.renew)?;
    let mut changed = Vec::with_capacity(claims.len());
    let mut seen = std::collections::HashSet::with_capacity(claims.len());
    for claim in claims {
        let id = claim.id().as_uuid();
        let hit = statement.execute(params![id.as_bytes(), owner.as_bytes(), claim.generation(), until])?;
        if hit > 0 && seen.insert(claim.id()) {
            changed.push(claim.id());
        }
    }
    let asked: Vec<WorkItemId> = claims.iter().map(ClaimHandle::id).collect();
    Ok(Settled::from_changed(asked, changed))
}

/// Makes work with a lapsed lease ready. Returns how many.
pub(crate) fn reap(connection: &Connection, sql: &Statements) -> Result<u64, Fault> {
    let now = sql.now(connection)?;
    Ok(connection.prepare_cached(&sql.reap)?.execute([now])? as u64)
}
