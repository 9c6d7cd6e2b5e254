//! Looking at jobs and runs: one snapshot each.

use std::time::Duration;

use mainstay_core::WorkItemId;
use mainstay_core::job::{Job, JobDefinition, JobRun, Misfire, Overlap, RunFilter, RunState, Trigger};
use mainstay_core::outbox::Page;
use mainstay_core::store::{DueJobs, RunPlace, RunsLookedAt};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::Sql;
use crate::error::Fault;
use crate::statements::JobStatements;
use crate::value::{EVER, maybe_moment_at, maybe_text_at, moment, moment_at, text_at, uuid_at};

pub(super) fn get(connection: &Connection, sql: &Sql, name: &str) -> Result<Option<Job>, Fault> {
    Ok(connection.prepare_cached(&sql.jobs.get)?.query_row([name], job_from).optional()?)
}

/// Jobs whose names come after `after`.
pub(super) fn list(connection: &Connection, sql: &Sql, after: &str, limit: u32) -> Result<Vec<Job>, Fault> {
    let mut statement = connection.prepare_cached(&sql.jobs.list)?;
    let found = statement.query_map(params![after, limit], job_from)?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Jobs whose time has come.
pub(super) fn due(
    connection: &Connection,
    sql: &Sql,
    after: Option<&(Option<i64>, String)>,
    limit: u32,
) -> Result<DueJobs, Fault> {
    let now = sql.queue.now(connection)?;
    let (at, name) = after.map_or((None, ""), |(at, name)| (*at, name.as_str()));
    let mut statement = connection.prepare_cached(&sql.jobs.due)?;
    let jobs = statement.query_map(params![now, at, name, limit], job_from)?.collect::<Result<_, _>>()?;
    let troubled = match after {
        Some(_) => Vec::new(),
        None => connection
            .prepare_cached(&sql.jobs.troubled)?
            .query_map([limit], job_from)?
            .collect::<Result<_, _>>()?,
    };
    Ok(DueJobs { now: moment(now), jobs, troubled })
}

/// Which of the next runs whose end is not noted are over.
pub(super) fn ended(
    connection: &Connection,
    sql: &Sql,
    after: Option<&RunPlace>,
    batch: u32,
) -> Result<RunsLookedAt, Fault> {
    let (job, id) = match after {
        Some(place) => (place.job.as_str(), place.id.as_uuid().as_bytes().to_vec()),
        None => ("", Vec::new()),
    };
    let mut statement = connection.prepare_cached(&sql.jobs.ended_page)?;
    let looked_at = statement.query_map(params![job, id, batch], |row| {
        Ok((WorkItemId::from_uuid(uuid_at(row, 0)?), text_at(row, 1)?, row.get::<_, bool>(2)?))
    })?;
    let looked_at = looked_at.collect::<Result<Vec<_>, _>>()?;
    let over = looked_at.iter().filter(|(_, _, over)| *over).map(|(id, ..)| *id).collect();
    let next = looked_at.last().filter(|_| looked_at.len() == batch as usize);
    Ok(RunsLookedAt { over, next: next.map(|(id, job, _)| RunPlace { job: job.clone(), id: *id }) })
}

/// The nearest nominal time of all enabled jobs, `now` if one is to be calculated.
pub(crate) fn next_nominal(
    connection: &Connection,
    sql: &JobStatements,
    now: i64,
) -> rusqlite::Result<Option<i64>> {
    connection.prepare_cached(&sql.next_nominal)?.query_row([now], |row| row.get(0)).optional()
}

pub(super) fn run(connection: &Connection, sql: &Sql, id: WorkItemId) -> Result<Option<JobRun>, Fault> {
    let mut statement = connection.prepare_cached(&sql.jobs.run)?;
    Ok(statement.query_row([id.as_uuid().as_bytes()], run_from).optional()?)
}

/// Runs that match, newest nominal time first.
pub(super) fn runs(
    connection: &Connection,
    sql: &Sql,
    filter: &RunFilter,
    page: Page,
) -> Result<Vec<JobRun>, Fault> {
    let before = match page.before {
        // Above every time and every id.
        None => (EVER.1, vec![0xff; 17]),
        Some(id) => {
            let id = id.as_uuid().as_bytes().to_vec();
            let mut nominal = connection.prepare_cached(&sql.jobs.nominal_of)?;
            let nominal = nominal.query_row([&id], |row| row.get(0)).optional()?;
            // Of a run that is not there nothing comes after.
            (nominal.unwrap_or(EVER.0), id)
        }
    };
    let (state, trigger) = (filter.state.map(RunState::as_str), filter.trigger.map(Trigger::as_str));
    let found = match &filter.job {
        None => connection
            .prepare_cached(&sql.jobs.runs)?
            .query_map(params![before.0, before.1, state, trigger, page.limit], run_from)?
            .collect::<Result<_, _>>()?,
        Some(job) => connection
            .prepare_cached(&sql.jobs.runs_of_job)?
            .query_map(params![before.0, before.1, state, trigger, page.limit, job], run_from)?
            .collect::<Result<_, _>>()?,
    };
    Ok(found)
}

fn job_from(row: &Row<'_>) -> rusqlite::Result<Job> {
    let seconds = |column| -> rusqlite::Result<Option<Duration>> {
        Ok(row.get::<_, Option<i64>>(column)?.map(|seconds| Duration::from_secs(seconds.unsigned_abs())))
    };
    // The constraints allow no other number.
    let misfire = Misfire::from_code(row.get(6)?, row.get(7)?, seconds(8)?).unwrap_or_default();
    let overlap = Overlap::from_code(row.get(9)?).unwrap_or_default();
    let definition = JobDefinition::new(text_at(row, 0)?, text_at(row, 1)?, text_at(row, 3)?)
        .payload(text_at(row, 2)?)
        .time_zone(text_at(row, 4)?)
        .enabled(row.get(5)?)
        .misfire(misfire)
        .overlap(overlap)
        .jitter(seconds(10)?.unwrap_or_default())
        .priority(row.get(11)?);
    let mut job = Job::new(definition, moment_at(row, 13)?);
    job.version = row.get(12)?;
    job.updated_at = moment_at(row, 14)?;
    job.next_nominal_at = maybe_moment_at(row, 15)?;
    job.last_nominal_at = maybe_moment_at(row, 16)?;
    job.problem = maybe_text_at(row, 17)?;
    Ok(job)
}

fn run_from(row: &Row<'_>) -> rusqlite::Result<JobRun> {
    let id = WorkItemId::from_uuid(uuid_at(row, 0)?);
    // The constraints and the view allow no other texts.
    let trigger = text_at(row, 2)?.parse().unwrap_or(Trigger::Cron);
    let mut run = JobRun::new(
        id,
        text_at(row, 1)?,
        trigger,
        moment_at(row, 3)?,
        moment_at(row, 4)?,
        moment_at(row, 6)?,
    );
    run.state = text_at(row, 5)?.parse().unwrap_or(RunState::Failed);
    run.dispatched_at = maybe_moment_at(row, 7)?;
    run.started_at = maybe_moment_at(row, 8)?;
    run.ended_at = maybe_moment_at(row, 9)?;
    run.attempts = row.get(10)?;
    run.error = maybe_text_at(row, 11)?;
    run.output = maybe_text_at(row, 12)?;
    Ok(run)
}
