//! What people and retention do to messages: cancel, requeue, release a key, purge.
//!
//! Lists of ids are walked with prepared statements within one transaction, so they may be of any length.

use mainstay_core::WorkItemId;
use mainstay_core::join::Counted;
use mainstay_core::outbox::{MessageFilter, Retention};
use mainstay_core::queue::{FailureReason, Status};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::Fault;
use crate::joins::Counting;
use crate::statements::Statements;
use crate::value::{EVER, maybe_text_at, micros, span, uuid_at};

use super::settle::{Ending, retire};

/// Fails Ready messages as cancelled. Returns those that changed, and what that meant for joins.
pub(crate) fn cancel(
    connection: &Connection,
    sql: &Statements,
    ids: &[WorkItemId],
) -> Result<(Vec<WorkItemId>, Vec<Counted>), Fault> {
    let now = sql.now(connection)?;
    let ending = Ending::failed(FailureReason::Cancelled, Some("cancelled"));
    let mut changed = Vec::new();
    let mut counting = Counting::begin(connection, sql, now)?;
    for id in ids {
        let mut find = connection.prepare_cached(&sql.cancel_find)?;
        let found = find.query_row([id.as_uuid().as_bytes()], |row| row.get(0)).optional()?;
        if let Some(seq) = found {
            retire(connection, sql, seq, now, &ending)?;
            counting.ended(*id, ending.step())?;
            changed.push(*id);
        }
    }
    Ok((changed, counting.counted()?))
}

/// Makes Failed messages Ready. Returns those that changed.
pub(crate) fn requeue(
    connection: &Connection,
    sql: &Statements,
    ids: &[WorkItemId],
) -> Result<Vec<WorkItemId>, Fault> {
    let now = sql.now(connection)?;
    let mut changed = Vec::new();
    for id in ids {
        let key = id.as_uuid();
        let back = connection.prepare_cached(&sql.requeue_insert)?.execute(params![key.as_bytes(), now])?;
        if back == 0 {
            continue;
        }
        connection.prepare_cached(&sql.requeue_remove)?.execute([key.as_bytes()])?;
        connection.prepare_cached(&sql.requeue_unhold)?.execute([key.as_bytes()])?;
        changed.push(*id);
    }
    Ok(changed)
}

/// The same for failed messages that match, oldest failure first.
pub(crate) fn requeue_where(
    connection: &Connection,
    sql: &Statements,
    filter: &MessageFilter,
    limit: u32,
) -> Result<Vec<WorkItemId>, Fault> {
    if filter.status.is_some_and(|status| status != Status::Failed) {
        return Ok(Vec::new());
    }
    let after = filter.settled_after.map_or(EVER.0, micros);
    let before = filter.settled_before.map_or(EVER.1, micros);
    let reason = filter.reason.map(FailureReason::as_str);
    let mut select = connection.prepare_cached(&sql.requeue_select)?;
    let found = select
        .query_map(params![filter.topic, reason, filter.correlation_id, after, before, limit], |row| {
            Ok(WorkItemId::from_uuid(uuid_at(row, 0)?))
        })?;
    let ids = found.collect::<Result<Vec<_>, _>>()?;
    requeue(connection, sql, &ids)
}

/// Ends the hold on an ordering key. False when there was none.
pub(crate) fn release_key(connection: &Connection, sql: &Statements, key: &str) -> Result<bool, Fault> {
    Ok(connection.prepare_cached(&sql.release_key)?.execute([key])? > 0)
}

/// Deletes one batch of settled messages past their age, with their idempotency keys. Returns how many.
pub(crate) fn purge(connection: &Connection, sql: &Statements, retention: &Retention) -> Result<u64, Fault> {
    let now = sql.now(connection)?;
    let mut room = i64::from(retention.batch);
    let mut purged = 0;
    for (status, age) in [(Status::Done, retention.done), (Status::Failed, retention.failed)] {
        let Some(age) = age else { continue };
        let until = now.saturating_sub(span(age));
        let mut select = connection.prepare_cached(&sql.purge_select)?;
        let found = select.query_map(params![status.code(), until, room], |row| {
            Ok((row.get::<_, i64>(0)?, uuid_at(row, 1)?, maybe_text_at(row, 2)?))
        })?;
        let doomed = found.collect::<Result<Vec<_>, _>>()?;
        for (seq, id, key) in &doomed {
            connection.prepare_cached(&sql.purge_remove)?.execute([seq])?;
            if let Some(key) = key {
                connection.prepare_cached(&sql.purge_forget)?.execute(params![key, id.as_bytes()])?;
            }
        }
        purged += doomed.len() as u64;
        room -= doomed.len() as i64;
    }
    Ok(purged)
}
