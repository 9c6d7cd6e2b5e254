//! Looking at messages: one, a page of them, counts. Reads only, on one snapshot.

use std::collections::BTreeMap;
use std::time::Duration;

use mainstay_core::outbox::{MessageFilter, OutboxMessage, OutboxStats, Page, TopicStats};
use mainstay_core::queue::Status;
use mainstay_core::{MessageId, OwnerToken, WorkItemId};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};

use crate::error::Fault;
use crate::statements::Statements;
use crate::value::{
    headers_at, maybe_moment_at, maybe_text_at, maybe_uuid_at, micros, moment_at, text_at, uuid_at,
};

/// One message, open or settled.
pub(crate) fn get(
    connection: &Connection,
    sql: &Statements,
    id: WorkItemId,
) -> Result<Option<OutboxMessage>, Fault> {
    let mut statement = connection.prepare_cached(&sql.get)?;
    Ok(statement.query_row([id.as_uuid().as_bytes()], message_from).optional()?)
}

/// Messages that match, newest first by id.
pub(crate) fn list(
    connection: &Connection,
    sql: &Statements,
    filter: &MessageFilter,
    page: Page,
) -> Result<Vec<OutboxMessage>, Fault> {
    // A blob longer than any id, and so above all of them.
    let before = page.before.map_or_else(|| vec![0xff; 17], |id| id.as_uuid().as_bytes().to_vec());
    let mut statement = connection.prepare_cached(&sql.list)?;
    let page_of = [page.limit.into(), filter.without_payloads.into()];
    let arguments = [before.into()].into_iter().chain(conditions(filter)).chain(page_of);
    let found = statement.query_map(params_from_iter(arguments), message_from)?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// What a filter asks for, in the order in which every statement that takes one has it.
pub(super) fn conditions(filter: &MessageFilter) -> [Value; 6] {
    [
        filter.topic.clone().into(),
        filter.status.map(Status::code).into(),
        filter.reason.map(|reason| reason.as_str().to_owned()).into(),
        filter.correlation_id.clone().into(),
        filter.settled_after.map(micros).into(),
        filter.settled_before.map(micros).into(),
    ]
}

pub(super) fn message_from(row: &Row<'_>) -> rusqlite::Result<OutboxMessage> {
    let (id, message_id) = (WorkItemId::from_uuid(uuid_at(row, 0)?), MessageId::from_uuid(uuid_at(row, 1)?));
    let mut message = OutboxMessage::new(id, message_id, text_at(row, 2)?, moment_at(row, 8)?);
    message.payload = maybe_text_at(row, 3)?;
    message.correlation_id = maybe_text_at(row, 4)?;
    // The constraints allow no other number and no other text.
    message.status = Status::from_code(row.get(5)?).unwrap_or(Status::Failed);
    message.reason = maybe_text_at(row, 6)?.and_then(|reason| reason.parse().ok());
    message.attempts = row.get(7)?;
    message.due_at = maybe_moment_at(row, 9)?;
    message.next_attempt_at = moment_at(row, 10)?;
    message.expires_at = maybe_moment_at(row, 11)?;
    message.owner = maybe_uuid_at(row, 12)?.map(OwnerToken::from_uuid);
    message.locked_until = maybe_moment_at(row, 13)?;
    message.generation = row.get(14)?;
    message.processed_at = maybe_moment_at(row, 15)?;
    message.processed_by = maybe_uuid_at(row, 16)?.map(OwnerToken::from_uuid);
    message.last_error = maybe_text_at(row, 17)?;
    message.priority = row.get(18)?;
    message.ordering_key = maybe_text_at(row, 19)?;
    message.idempotency_key = maybe_text_at(row, 20)?;
    message.headers = headers_at(row, 21)?;
    Ok(message)
}

/// How many messages stand where.
pub(crate) fn stats(connection: &Connection, sql: &Statements) -> Result<OutboxStats, Fault> {
    let mut stats = backlog(connection, sql)?;
    let count = |row: &Row<'_>| row.get::<_, i64>(0).map(i64::unsigned_abs);
    stats.done = connection.prepare_cached(&sql.stats_done)?.query_row([], count)?;
    Ok(stats)
}

/// The same without what is done, which may be a long history.
pub(crate) fn backlog(connection: &Connection, sql: &Statements) -> Result<OutboxStats, Fault> {
    let now = sql.now(connection)?;
    let mut stats = OutboxStats::default();
    let mut topics = BTreeMap::<String, TopicStats>::new();
    let mut oldest: Option<i64> = None;
    let count = |row: &Row<'_>, column: usize| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let age = |since: i64| Duration::from_micros(now.saturating_sub(since).unsigned_abs());

    let mut open = connection.prepare_cached(&sql.stats_open)?;
    let mut rows = open.query([now])?;
    while let Some(row) = rows.next()? {
        let topic = topics.entry(text_at(row, 0)?).or_default();
        topic.ready = count(row, 1)?;
        topic.scheduled = count(row, 2)?;
        topic.in_progress = count(row, 3)?;
        stats.ready += topic.ready;
        stats.scheduled += topic.scheduled;
        stats.in_progress += topic.in_progress;
        stats.lapsed += count(row, 4)?;
        let since: Option<i64> = row.get(5)?;
        topic.oldest_ready = since.map(age);
        // What somebody has paused is not late.
        let paused: bool = row.get(6)?;
        let late = since.filter(|_| !paused);
        oldest = oldest.into_iter().chain(late).min();
    }
    let mut failed = connection.prepare_cached(&sql.stats_failed)?;
    let mut rows = failed.query([])?;
    while let Some(row) = rows.next()? {
        let topic = topics.entry(text_at(row, 0)?).or_default();
        topic.failed = count(row, 1)?;
        stats.failed += topic.failed;
    }
    stats.held_keys = connection.prepare_cached(&sql.stats_held)?.query_row([], |row| count(row, 0))?;
    stats.oldest_ready = oldest.map(age);
    let named = topics.into_iter().map(|(name, mut topic)| {
        topic.topic = name;
        topic
    });
    stats.topics = named.collect();
    Ok(stats)
}
