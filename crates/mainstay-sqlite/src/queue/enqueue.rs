//! Adding messages, on any connection: the writer's, a handler's or the application's own.
//!
//! The caller supplies the transaction or savepoint, so that all messages are added or none.

use std::collections::BTreeMap;

use mainstay_core::outbox::{Enqueued, PreparedMessage, When};
use mainstay_core::queue::Status;
use mainstay_core::{Error, JoinId, MessageId, WorkItemId};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use crate::call::run;
use crate::error::Fault;
use crate::joins::{attach, attached};
use crate::statements::Statements;
use crate::value::{micros, span, uuid_at};

pub(crate) const ENQUEUE: &str = "outbox.enqueue";

/// A moment as the insert takes it: absolute, or counted from the database's now.
pub(crate) fn when(when: Option<When>) -> (Option<i64>, Option<i64>) {
    match when {
        None => (None, None),
        Some(When::At(moment)) => (Some(micros(moment)), None),
        Some(When::In(duration)) => (None, Some(span(duration))),
    }
}

/// The error for an id that a message has whose status is this.
pub(crate) fn id_used(id: WorkItemId, status: i16) -> Error {
    match Status::from_code(status) {
        Ok(status) => Error::already_exists(ENQUEUE, id, status),
        Err(odd) => odd,
    }
}

pub(crate) fn enqueue(
    connection: &Connection,
    sql: &Statements,
    messages: &[PreparedMessage],
) -> Result<Vec<Enqueued>, Fault> {
    let now = sql.now(connection)?;
    let enqueued =
        messages.iter().map(|message| add(connection, sql, message, now)).collect::<Result<Vec<_>, _>>()?;
    for (join, items) in steps_of_joins(messages, &enqueued) {
        attached(join, &run(connection, &attach(sql, join, &items))?)?;
    }
    Ok(enqueued)
}

/// The joins that messages are steps of, each with its messages.
pub(crate) fn steps_of_joins(
    messages: &[PreparedMessage],
    enqueued: &[Enqueued],
) -> BTreeMap<JoinId, Vec<WorkItemId>> {
    let mut joins = BTreeMap::<_, Vec<_>>::new();
    for (message, enqueued) in messages.iter().zip(enqueued) {
        for join in message.joins() {
            joins.entry(*join).or_default().push(enqueued.work_item);
        }
    }
    joins
}

fn add(
    connection: &Connection,
    sql: &Statements,
    message: &PreparedMessage,
    now: i64,
) -> Result<Enqueued, Fault> {
    if let Some(key) = message.idempotency_key()
        && let Some(known) = reserve(connection, sql, key, message)?
    {
        return Ok(known);
    }
    let (due_at, due_in) = when(message.due());
    let (expires_at, expires_in) = when(message.expires());
    let added = connection.prepare_cached(&sql.enqueue_insert)?.execute(params![
        message.work_item().as_uuid().as_bytes(),
        message.message().as_uuid().as_bytes(),
        message.topic(),
        message.payload(),
        now,
        due_at,
        due_in,
        expires_at,
        expires_in,
        message.priority(),
        message.ordering_key(),
        message.hold_on_failure(),
        message.idempotency_key(),
        message.correlation_id(),
        message.headers_json(),
    ]);
    match added {
        Ok(_) => Ok(Enqueued { work_item: message.work_item(), message: message.message(), added: true }),
        Err(error) if is_used(&error) => Err(used(connection, sql, message.work_item())?.into()),
        Err(error) => Err(error.into()),
    }
}

/// What the insert of an id that is known is answered with.
fn used(connection: &Connection, sql: &Statements, id: WorkItemId) -> Result<Error, Fault> {
    let mut status = connection.prepare_cached(&sql.enqueue_status)?;
    let status = status.query_row([id.as_uuid().as_bytes()], |row| row.get(0))?;
    Ok(id_used(id, status))
}

/// The message that has the key already, if one has.
fn reserve(
    connection: &Connection,
    sql: &Statements,
    key: &str,
    message: &PreparedMessage,
) -> Result<Option<Enqueued>, Fault> {
    let (id, message_id) = (message.work_item().as_uuid(), message.message().as_uuid());
    let reserved = connection.prepare_cached(&sql.enqueue_reserve)?.execute(params![
        key,
        id.as_bytes(),
        message_id.as_bytes()
    ])?;
    if reserved > 0 {
        return Ok(None);
    }
    let ids = |row: &rusqlite::Row<'_>| Ok((uuid_at(row, 0)?, uuid_at(row, 1)?));
    let known = connection.prepare_cached(&sql.enqueue_known)?.query_row([key], ids).optional()?;
    Ok(known.map(|(id, message)| known_as(id, message)))
}

pub(crate) fn known_as(id: Uuid, message: Uuid) -> Enqueued {
    Enqueued { work_item: WorkItemId::from_uuid(id), message: MessageId::from_uuid(message), added: false }
}

/// The only unique column an insert gives is the id, and the only trigger that refuses one looks for it in the history.
fn is_used(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|failure| is_used_code(failure.extended_code))
}

pub(crate) fn is_used_code(code: i32) -> bool {
    const UNIQUE: i32 = 19 | (8 << 8);
    const TRIGGER: i32 = 19 | (7 << 8);
    matches!(code, UNIQUE | TRIGGER)
}
