//! What people and retention do to messages: cancel, requeue, release a key, purge.
//!
//! Lists of ids are walked with prepared statements within one transaction, so they may be of any length. What was changed is
//! recorded in the audit trail within the same transaction.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::WorkItemId;
use mainstay_core::audit::{Actor, ITEMS_SHOWN, PreparedAudit};
use mainstay_core::join::Counted;
use mainstay_core::outbox::{MessageFilter, Retention};
use mainstay_core::queue::{FailureReason, Status};
use mainstay_core::store::Queue;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};

use crate::audit::note;
use crate::database::Database;
use crate::error::Fault;
use crate::joins::Counting;
use crate::statements::{AuditStatements, Statements};
use crate::value::{EVER, maybe_text_at, micros, span, text_at, uuid_at};

use super::settle::{Ending, retire};

/// A message that was changed by hand, with what is told of it.
pub(crate) struct Changed {
    pub(crate) id: WorkItemId,
    topic: String,
    /// Why it had failed, if it had.
    reason: Option<String>,
    attempts: u32,
}

impl Changed {
    pub(crate) fn told(&self, verb: Verb) -> Value {
        let Self { id, topic, reason, attempts } = self;
        let (before, after) = match verb {
            Verb::Cancel => {
                (json!({ "status": "ready" }), json!({ "status": "failed", "reason": "cancelled" }))
            }
            Verb::Requeue => (
                json!({ "status": "failed", "reason": reason, "attempts": attempts }),
                json!({ "status": "ready", "attempts": 0 }),
            ),
        };
        json!({ "id": id, "topic": topic, "before": before, "after": after })
    }
}

/// What is done to messages.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Verb {
    Cancel,
    Requeue,
}

/// What it takes to record something that is done to messages of a queue.
pub(crate) struct Recorder {
    queue: Queue,
    sql: Arc<AuditStatements>,
    by: Option<Actor>,
}

impl Recorder {
    pub(crate) fn new(database: &Database, by: Option<&Actor>) -> Self {
        Self { queue: database.names.kind(), sql: Arc::clone(&database.audit), by: by.cloned() }
    }

    /// Records it, if there is anything to record and somebody to record it of. Returns the ids.
    pub(crate) fn changed(
        &self,
        connection: &Connection,
        verb: Verb,
        changed: &[Changed],
        filter: Option<Value>,
    ) -> Result<Vec<WorkItemId>, Fault> {
        let ids = changed.iter().map(|item| item.id).collect::<Vec<_>>();
        let Some(by) = self.by.as_ref().filter(|_| !ids.is_empty()) else { return Ok(ids) };
        let items: Vec<_> = changed.iter().take(ITEMS_SHOWN).map(|item| item.told(verb)).collect();
        let mut data = json!({ "count": ids.len(), "items": items });
        if let Some(filter) = filter {
            data["filter"] = filter;
        }
        let verb = match verb {
            Verb::Cancel => "cancel",
            Verb::Requeue => "requeue",
        };
        let queue = self.queue.as_str();
        let record = PreparedAudit::administrative(format!("{queue}.{verb}"), by, data);
        note(connection, &self.sql, &record.about(queue, ids.iter().map(WorkItemId::to_string)))?;
        Ok(ids)
    }

    pub(super) fn other(
        &self,
        connection: &Connection,
        verb: &str,
        about: Option<(&str, &str)>,
        data: Value,
    ) -> Result<(), Fault> {
        let Some(by) = &self.by else { return Ok(()) };
        let record = PreparedAudit::administrative(format!("{}.{verb}", self.queue.as_str()), by, data);
        let record = match about {
            Some((kind, value)) => record.about(kind, [value]),
            None => record,
        };
        note(connection, &self.sql, &record)
    }
}

/// Fails Ready messages as cancelled. Returns those that changed, and what that meant for joins.
pub(crate) fn cancel(
    connection: &Connection,
    sql: &Statements,
    ids: &[WorkItemId],
) -> Result<(Vec<Changed>, Vec<Counted>), Fault> {
    let now = sql.now(connection)?;
    let ending = Ending::failed(FailureReason::Cancelled, Some("cancelled"));
    let mut changed = Vec::new();
    let mut counting = Counting::begin(connection, sql, now)?;
    for id in ids {
        let mut find = connection.prepare_cached(&sql.cancel_find)?;
        let found = find
            .query_row([id.as_uuid().as_bytes()], |row| Ok((row.get(0)?, text_at(row, 1)?)))
            .optional()?;
        if let Some((seq, topic)) = found {
            retire(connection, sql, seq, now, &ending)?;
            counting.ended(*id, ending.step())?;
            changed.push(Changed { id: *id, topic, reason: None, attempts: 0 });
        }
    }
    Ok((changed, counting.counted()?))
}

/// Makes Failed messages Ready. Returns those that changed.
pub(crate) fn requeue(
    connection: &Connection,
    sql: &Statements,
    ids: &[WorkItemId],
) -> Result<Vec<Changed>, Fault> {
    let now = sql.now(connection)?;
    let mut changed = Vec::new();
    for id in ids {
        let key = id.as_uuid();
        let mut find = connection.prepare_cached(&sql.requeue_find)?;
        let found = find.query_row([key.as_bytes()], |row| {
            Ok(Changed {
                id: *id,
                topic: text_at(row, 0)?,
                reason: maybe_text_at(row, 1)?,
                attempts: row.get(2)?,
            })
        });
        let Some(failed) = found.optional()? else { continue };
        let back = connection.prepare_cached(&sql.requeue_insert)?.execute(params![key.as_bytes(), now])?;
        if back == 0 {
            continue;
        }
        connection.prepare_cached(&sql.requeue_remove)?.execute([key.as_bytes()])?;
        connection.prepare_cached(&sql.requeue_unhold)?.execute([key.as_bytes()])?;
        changed.push(failed);
    }
    Ok(changed)
}

/// The same for failed messages that match, oldest failure first.
pub(crate) fn requeue_where(
    connection: &Connection,
    sql: &Statements,
    filter: &MessageFilter,
    limit: u32,
) -> Result<Vec<Changed>, Fault> {
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

/// What of a filter decides about a requeue, for its record.
pub(crate) fn told(filter: &MessageFilter, limit: u32) -> Value {
    json!({
        "topic": filter.topic,
        "reason": filter.reason.map(FailureReason::as_str),
        "correlation_id": filter.correlation_id,
        "failed_after": filter.settled_after,
        "failed_before": filter.settled_before,
        "max_rows": limit,
    })
}

/// Ends the hold on an ordering key. False when there was none.
pub(crate) fn release_key(
    connection: &Connection,
    sql: &Statements,
    key: &str,
    recorder: &Recorder,
) -> Result<bool, Fault> {
    let released = connection.prepare_cached(&sql.release_key)?.execute([key])? > 0;
    if released {
        let data = json!({ "before": { "held": true }, "after": { "held": false } });
        recorder.other(connection, "release_key", Some(("ordering_key", key)), data)?;
    }
    Ok(released)
}

/// Deletes one batch of settled messages past their age, with their idempotency keys. Returns how many.
pub(crate) fn purge(
    connection: &Connection,
    sql: &Statements,
    retention: &Retention,
    recorder: &Recorder,
) -> Result<u64, Fault> {
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
    if purged > 0 {
        recorder.other(connection, "purge", None, purge_told(purged, retention.done, retention.failed))?;
    }
    Ok(purged)
}

/// What is told of a purge by hand.
pub(crate) fn purge_told(count: u64, done: Option<Duration>, failed: Option<Duration>) -> Value {
    let seconds = |age: Option<Duration>| age.map(|age| age.as_secs());
    json!({ "count": count, "older_than_seconds": seconds(done), "failed_older_than_seconds": seconds(failed) })
}
