//! What becomes of runs: they are dispatched, they start, they end, and one day they are forgotten.

use std::time::Duration;

use mainstay_core::job::RunState;
use mainstay_core::outbox::Retention;
use mainstay_core::store::{Dispatched, EndedRun};
use mainstay_core::{OwnerToken, WorkItemId};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::Sql;
use crate::error::Fault;
use crate::queue::forward;
use crate::value::{maybe_text_at, span, text_at, uuid_at};

/// Makes a message of each run that is due, and notes when.
pub(super) fn dispatch(
    connection: &Connection,
    sql: &Sql,
    owner: OwnerToken,
    batch: u32,
    keep_done_payloads: bool,
) -> Result<Vec<Dispatched>, Fault> {
    let forwarded = forward(connection, &sql.queue, owner, batch, keep_done_payloads)?;
    let now = sql.queue.now(connection)?;
    let mut note = connection.prepare_cached(&sql.jobs.dispatched)?;
    let mut dispatched = Vec::with_capacity(forwarded.len());
    for id in forwarded {
        let facts = |row: &rusqlite::Row<'_>| Ok((text_at(row, 0)?, row.get::<_, i64>(1)?));
        let noted = note.query_row(params![id.as_uuid().as_bytes(), now], facts).optional()?;
        // A run that somebody put into the queue without us is dispatched too.
        let late = noted.as_ref().map_or(Duration::ZERO, |(_, due)| between(*due, now));
        dispatched.push(Dispatched { id, job: noted.map(|(job, _)| job), late });
    }
    Ok(dispatched)
}

fn between(from: i64, to: i64) -> Duration {
    Duration::from_micros(u64::try_from(to.saturating_sub(from)).unwrap_or(0))
}

pub(super) fn started(connection: &Connection, sql: &Sql, id: WorkItemId) -> Result<bool, Fault> {
    let now = sql.queue.now(connection)?;
    let id = id.as_uuid();
    Ok(connection.prepare_cached(&sql.jobs.started)?.execute(params![id.as_bytes(), now])? > 0)
}

/// Notes the end of those of these runs that are over.
pub(super) fn collect(
    connection: &Connection,
    sql: &Sql,
    ids: &[WorkItemId],
) -> Result<Vec<EndedRun>, Fault> {
    let now = sql.queue.now(connection)?;
    let mut ended = connection.prepare_cached(&sql.jobs.ended)?;
    let mut note = connection.prepare_cached(&sql.jobs.note_end)?;
    let mut runs = Vec::new();
    for id in ids {
        let key = id.as_uuid();
        let found = ended.query_row(params![now, key.as_bytes()], |row| {
            let (outcome, at, start): (i16, i64, Option<i64>) = (row.get(1)?, row.get(2)?, row.get(5)?);
            let (attempts, error): (u32, _) = (row.get(3)?, maybe_text_at(row, 4)?);
            Ok((text_at(row, 0)?, outcome, at, attempts, error, start.map(|start| between(start, at))))
        });
        let Some((job, outcome, at, attempts, error, ran)) = found.optional()? else { continue };
        note.execute(params![key.as_bytes(), outcome, at, attempts, error])?;
        runs.push(EndedRun { id: *id, job, outcome: RunState::from_outcome(outcome)?, ran });
    }
    Ok(runs)
}

/// Forgets one batch of runs that ended longer ago than they are kept.
pub(super) fn purge(connection: &Connection, sql: &Sql, retention: &Retention) -> Result<u64, Fault> {
    let now = sql.queue.now(connection)?;
    let mut purged = 0;
    for (failed, age) in [(false, retention.done), (true, retention.failed)] {
        let room = u64::from(retention.batch).saturating_sub(purged);
        let Some(age) = age.filter(|_| room > 0) else { continue };
        let before = now.saturating_sub(span(age));
        let mut select = connection.prepare_cached(&sql.jobs.purge_select)?;
        let room = i64::try_from(room).unwrap_or(i64::MAX);
        let doomed = select.query_map(params![failed, before, room], |row| uuid_at(row, 0))?;
        let doomed: Vec<Uuid> = doomed.collect::<Result<_, _>>()?;
        for id in &doomed {
            connection.prepare_cached(&sql.jobs.purge_item)?.execute([id.as_bytes()])?;
            connection.prepare_cached(&sql.jobs.purge_run)?.execute([id.as_bytes()])?;
        }
        purged += doomed.len() as u64;
    }
    Ok(purged)
}
