//! Making runs: of the occurrences that have come, and on demand. A run is a row in the ledger and one in the queue, made in the
//! transaction that moves the job on.

use jiff::Timestamp;
use mainstay_core::audit::{Actor, PreparedAudit};
use mainstay_core::job::{CurrentRun, Job, JobRun, Overlap, RunState, Trigger};
use mainstay_core::store::{Advance, Advanced, Occurrence};
use mainstay_core::{Error, ErrorKind, WorkItemId};
use rusqlite::{Connection, params};
use serde_json::json;

use super::define::unknown;
use super::{Sql, read};
use crate::audit::note;
use crate::error::Fault;
use crate::value::{micros, moment};

/// A second, as the tables count.
const SECOND: i64 = 1_000_000;

/// Makes the runs and moves the job on, if it still is what it was planned with.
pub(super) fn advance(
    connection: &Connection,
    sql: &Sql,
    advance: &Advance,
) -> Result<Option<Advanced>, Fault> {
    let moved = connection.prepare_cached(&sql.jobs.advance)?.execute(params![
        advance.job,
        advance.version,
        advance.expected.map(micros),
        micros(advance.next),
        advance.last.map(micros),
    ])?;
    if moved == 0 {
        return Ok(None);
    }
    let Some(job) = read::get(connection, sql, &advance.job)? else { return Ok(None) };
    make_runs(connection, sql, &job, Trigger::Cron, &advance.occurrences).map(Some)
}

/// Makes a run now.
pub(super) fn trigger(connection: &Connection, sql: &Sql, name: &str, by: &Actor) -> Result<JobRun, Fault> {
    let job = read::get(connection, sql, name)?.ok_or_else(|| unknown("trigger", name))?;
    let now = sql.queue.now(connection)?;
    // Never on a whole second: occurrences are, and must not find their place taken. It is due all the same.
    let mut nominal = now;
    let mut taken = connection.prepare_cached(&sql.jobs.taken)?;
    while nominal % SECOND == 0 || taken.query_row(params![name, nominal], |row| row.get(0))? {
        nominal += 1;
    }
    let occurrence = Occurrence { nominal_at: moment(nominal), due_at: moment(now) };
    let id = WorkItemId::new();
    let mut under_way = is_under_way(connection, sql, &job)?;
    make_run(connection, sql, &job, Trigger::Manual, occurrence, id, &mut under_way)?;
    let none = || Error::new(ErrorKind::Internal, "job.trigger", "the run that was made is not there");
    let run = read::run(connection, sql, id)?.ok_or_else(none)?;
    let after = json!({ "run": run.id, "nominal_at": run.nominal_at, "state": run.state.as_str() });
    let record = PreparedAudit::administrative("job.trigger", by, json!({ "before": null, "after": after }));
    note(connection, &sql.audit, &record.about("job", [name]).about("run", [run.id.to_string()]))?;
    Ok(run)
}

fn make_runs(
    connection: &Connection,
    sql: &Sql,
    job: &Job,
    trigger: Trigger,
    occurrences: &[Occurrence],
) -> Result<Advanced, Fault> {
    let mut advanced = Advanced::default();
    if occurrences.is_empty() {
        return Ok(advanced);
    }
    let mut under_way = is_under_way(connection, sql, job)?;
    for occurrence in occurrences {
        let id = WorkItemId::new();
        match make_run(connection, sql, job, trigger, *occurrence, id, &mut under_way)? {
            Some(Made::Run) => advanced.made.push(id),
            Some(Made::Skipped) => advanced.skipped.push(occurrence.nominal_at),
            None => {}
        }
    }
    Ok(advanced)
}

/// Whether an earlier run keeps new ones from being made.
fn is_under_way(connection: &Connection, sql: &Sql, job: &Job) -> Result<bool, Fault> {
    if job.overlap != Overlap::Skip {
        return Ok(false);
    }
    Ok(connection.prepare_cached(&sql.jobs.under_way)?.query_row([&job.name], |row| row.get(0))?)
}

enum Made {
    Run,
    Skipped,
}

/// None if the occurrence has its run already.
fn make_run(
    connection: &Connection,
    sql: &Sql,
    job: &Job,
    trigger: Trigger,
    occurrence: Occurrence,
    id: WorkItemId,
    under_way: &mut bool,
) -> Result<Option<Made>, Fault> {
    let now = sql.queue.now(connection)?;
    let (outcome, error) = match *under_way {
        true => (RunState::Skipped.outcome(), Some("an earlier run was not over")),
        false => (None, None),
    };
    let added = connection.prepare_cached(&sql.jobs.add_run)?.execute(params![
        id.as_uuid().as_bytes(),
        job.name,
        trigger.as_str(),
        micros(occurrence.nominal_at),
        micros(occurrence.due_at),
        now,
        outcome,
        error,
    ])?;
    if added == 0 {
        return Ok(None);
    }
    if *under_way {
        return Ok(Some(Made::Skipped));
    }
    *under_way = job.overlap == Overlap::Skip;
    add_item(connection, sql, job, trigger, occurrence, id, now)?;
    Ok(Some(Made::Run))
}

/// The run's row in the queue. Its message has the run's id too.
fn add_item(
    connection: &Connection,
    sql: &Sql,
    job: &Job,
    trigger: Trigger,
    occurrence: Occurrence,
    id: WorkItemId,
    now: i64,
) -> Result<(), Fault> {
    let key = id.as_uuid();
    let none: Option<Timestamp> = None;
    let headers = CurrentRun::new(job.name.clone(), id, occurrence.nominal_at, trigger).to_headers();
    connection.prepare_cached(&sql.queue.enqueue_insert)?.execute(params![
        key.as_bytes(),
        key.as_bytes(),
        job.topic,
        job.payload,
        now,
        micros(occurrence.due_at),
        none.map(micros),
        none.map(micros),
        none.map(micros),
        job.priority,
        job.ordering_key(),
        false,
        none.map(micros),
        format!("job-run-{id}"),
        // A map of texts always has a JSON form, so `ok()` hides no error.
        serde_json::to_string(&headers).ok(),
    ])?;
    Ok(())
}
