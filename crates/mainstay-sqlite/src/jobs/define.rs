//! Registering jobs and changing them.

use mainstay_core::audit::{Actor, PreparedAudit};
use mainstay_core::job::{Expected, Job, JobChange, PreparedJob, Registered, RunState};
use mainstay_core::{Error, ErrorKind, WorkItemId};
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::{Sql, read};
use crate::audit::note;
use crate::error::Fault;
use crate::queue::cancel;
use crate::value::uuid_at;

/// Registers a job or changes the one of its name, if what is there is what is expected. The writer's transaction has the
/// database to itself, so what is read here is what is written over.
pub(super) fn upsert(
    connection: &Connection,
    sql: &Sql,
    job: &PreparedJob,
    expected: Expected,
    by: &Actor,
) -> Result<Registered, Fault> {
    let before = read::get(connection, sql, job.name())?;
    if !expected.is_met_by(before.as_ref()) {
        return Err(expected.refusal(job.name(), before.as_ref()).into());
    }
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
    let change = if connection.prepare_cached(&sql.jobs.insert)?.execute(values)? > 0 {
        JobChange::Created
    } else if connection.prepare_cached(&sql.jobs.update)?.execute(values)? > 0 {
        JobChange::Updated
    } else {
        JobChange::Unchanged
    };
    let job =
        read::get(connection, sql, job.name())?.ok_or_else(|| unknown("create_or_update", job.name()))?;
    if change != JobChange::Unchanged {
        let payload_changed = before.as_ref().is_none_or(|before| before.payload != job.payload);
        let before = before.as_ref().map(told);
        let data = json!({ "before": before, "after": told(&job), "payload_changed": payload_changed });
        record(connection, sql, "create_or_update", &job.name, by, data)?;
    }
    Ok(Registered { job, change })
}

pub(super) fn set_enabled(
    connection: &Connection,
    sql: &Sql,
    name: &str,
    enabled: bool,
    by: &Actor,
) -> Result<bool, Fault> {
    let now = sql.queue.now(connection)?;
    let changed = connection.prepare_cached(&sql.jobs.set_enabled)?.execute(params![name, enabled, now])?;
    if changed == 0 && read::get(connection, sql, name)?.is_none() {
        return Err(unknown("set_enabled", name).into());
    }
    if changed > 0 {
        let verb = if enabled { "enable" } else { "disable" };
        let data = json!({ "before": { "enabled": !enabled }, "after": { "enabled": enabled } });
        record(connection, sql, verb, name, by, data)?;
    }
    Ok(changed > 0)
}

/// Deletes a job and cancels its runs that are not dispatched. How many; none if there is no such job.
pub(super) fn delete(
    connection: &Connection,
    sql: &Sql,
    name: &str,
    by: &Actor,
) -> Result<Option<u64>, Fault> {
    let now = sql.queue.now(connection)?;
    let before = read::get(connection, sql, name)?;
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
    for item in &cancelled {
        let id = item.id.as_uuid();
        let end = params![id.as_bytes(), RunState::Cancelled.outcome(), now, "the job was deleted"];
        connection.prepare_cached(&sql.jobs.end_run)?.execute(end)?;
    }
    let data =
        json!({ "before": before.as_ref().map(told), "after": null, "cancelled_runs": cancelled.len() });
    record(connection, sql, "delete", name, by, data)?;
    Ok(Some(cancelled.len() as u64))
}

/// A job as a record tells it: all but its payload, which is nobody's business there.
fn told(job: &Job) -> Value {
    let (cap, window) = (job.misfire.cap(), job.misfire.window().map(|window| window.as_secs()));
    json!({
        "topic": job.topic,
        "cron": job.cron,
        "time_zone": job.time_zone,
        "enabled": job.enabled,
        "misfire": job.misfire.as_str(),
        "misfire_cap": cap,
        "misfire_window_seconds": window,
        "overlap": job.overlap.as_str(),
        "jitter_seconds": job.jitter.as_secs(),
        "priority": job.priority,
        "version": job.version,
    })
}

/// Records what was done to a job.
pub(super) fn record(
    connection: &Connection,
    sql: &Sql,
    verb: &str,
    name: &str,
    by: &Actor,
    data: Value,
) -> Result<(), Fault> {
    let record = PreparedAudit::administrative(format!("job.{verb}"), by, data);
    note(connection, &sql.audit, &record.about("job", [name]))
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
