//! Registering jobs and changing them.

use mainstay_core::job::{Job, PreparedJob, RunState};
use mainstay_core::{Error, ErrorKind, WorkItemId};
use rusqlite::{Connection, params};

use super::{Sql, read};
use crate::error::Fault;
use crate::queue::cancel;
use crate::value::uuid_at;

/// Registers a job or changes the one of its name. Whether that changed anything, and the job.
pub(super) fn upsert(connection: &Connection, sql: &Sql, job: &PreparedJob) -> Result<(bool, Job), Fault> {
    let now = sql.queue.now(connection)?;
    let misfire = job.misfire();
    let values = params![
        job.name(),
        job.topic(),
        job.cron(),
        job.payload(),
        job.time_zone(),
        job.enabled(),
        misfire.code(),
        misfire.cap(),
        misfire.window().map(|window| window.as_secs() as i64),
        job.overlap().code(),
        job.jitter().as_secs() as i64,
        job.priority(),
        now,
    ];
    let added = connection.prepare_cached(&sql.jobs.insert)?.execute(values)? > 0;
    let changed = added || connection.prepare_cached(&sql.jobs.update)?.execute(values)? > 0;
    let job =
        read::get(connection, sql, job.name())?.ok_or_else(|| unknown("create_or_update", job.name()))?;
    Ok((changed, job))
}

pub(super) fn set_enabled(
    connection: &Connection,
    sql: &Sql,
    name: &str,
    enabled: bool,
) -> Result<bool, Fault> {
    let now = sql.queue.now(connection)?;
    let changed = connection.prepare_cached(&sql.jobs.set_enabled)?.execute(params![name, enabled, now])?;
    if changed == 0 && read::get(connection, sql, name)?.is_none() {
        return Err(unknown("set_enabled", name).into());
    }
    Ok(changed > 0)
}

/// Deletes a job and cancels its runs that are not dispatched. How many; none if there is no such job.
pub(super) fn delete(connection: &Connection, sql: &Sql, name: &str) -> Result<Option<u64>, Fault> {
    let now = sql.queue.now(connection)?;
    if connection.prepare_cached(&sql.jobs.delete)?.execute([name])? == 0 {
        return Ok(None);
    }
    let mut pending = connection.prepare_cached(&sql.jobs.pending)?;
    let pending = pending.query_map([name], |row| Ok(WorkItemId::from_uuid(uuid_at(row, 0)?)))?;
    let pending = pending.collect::<Result<Vec<_>, _>>()?;
    // Also those that somebody has claimed: whoever has one finds that it is gone.
    for id in &pending {
        connection.prepare_cached(&sql.jobs.unclaim)?.execute([id.as_uuid().as_bytes()])?;
    }
    let (cancelled, _) = cancel(connection, &sql.queue, &pending)?;
    for id in &cancelled {
        let id = id.as_uuid();
        let end = params![id.as_bytes(), RunState::Cancelled.outcome(), now, "the job was deleted"];
        connection.prepare_cached(&sql.jobs.end_run)?.execute(end)?;
    }
    Ok(Some(cancelled.len() as u64))
}

/// The error for a name that no job has.
pub(super) fn unknown(verb: &str, name: &str) -> Error {
    let operation = match verb {
        "trigger" => "job.trigger",
        "set_enabled" => "job.set_enabled",
        _ => "job.create_or_update",
    };
    Error::new(ErrorKind::NotFound, operation, format!("there is no job {name:?}"))
}
