//! Topics that nobody claims from. The statements that look for work leave them out, so nothing else has to know of them.

use mainstay_core::audit::Actor;
use mainstay_core::outbox::PausedTopic;
use rusqlite::{Connection, params};
use serde_json::json;

use crate::error::Fault;
use crate::statements::Statements;
use crate::value::{maybe_text_at, moment_at, text_at};

use super::admin::Recorder;

/// Pauses a topic. False when it is paused already.
pub(super) fn pause(
    connection: &Connection,
    sql: &Statements,
    topic: &str,
    reason: Option<&str>,
    by: &Actor,
    recorder: &Recorder,
) -> Result<bool, Fault> {
    let now = sql.now(connection)?;
    let paused =
        connection.prepare_cached(&sql.pause)?.execute(params![topic, now, by.as_str(), reason])? > 0;
    if paused {
        let mut after = json!({ "paused": true });
        if let Some(reason) = reason {
            after["reason"] = reason.into();
        }
        let data = json!({ "before": { "paused": false }, "after": after });
        recorder.other(connection, "pause", Some(("topic", topic)), data)?;
    }
    Ok(paused)
}

/// Ends that. False when it was not paused.
pub(super) fn resume(
    connection: &Connection,
    sql: &Statements,
    topic: &str,
    recorder: &Recorder,
) -> Result<bool, Fault> {
    let resumed = connection.prepare_cached(&sql.resume)?.execute([topic])? > 0;
    if resumed {
        let data = json!({ "before": { "paused": true }, "after": { "paused": false } });
        recorder.other(connection, "resume", Some(("topic", topic)), data)?;
    }
    Ok(resumed)
}

/// What is paused, by name.
pub(super) fn paused(connection: &Connection, sql: &Statements) -> Result<Vec<PausedTopic>, Fault> {
    let mut statement = connection.prepare_cached(&sql.paused)?;
    let found = statement.query_map([], |row| {
        Ok(PausedTopic::new(text_at(row, 0)?, moment_at(row, 1)?, text_at(row, 2)?, maybe_text_at(row, 3)?))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}
