//! What the stores of operations answer: JSON texts, times in microseconds since 1970. Every provider words its answers alike, so
//! that they are read here, once.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::inbox::answer::{only, read};

use super::{Ended, Operation, OperationEvent, OperationId, OperationState, Progress};

/// `[id]`; nothing or null where the parent is not there.
pub fn started(parent: Option<OperationId>, answers: &[String]) -> Result<()> {
    const START: &str = "operation.start";
    let id = match answers.first() {
        Some(answer) => read::<(Option<Uuid>,)>(START, answer)?.0,
        None => None,
    };
    match (id, parent) {
        (Some(_), _) => Ok(()),
        (None, Some(parent)) => {
            let text = format!("there is no operation {parent} that this could be a part of");
            Err(Error::new(ErrorKind::NotFound, START, text).with_field("parent"))
        }
        (None, None) => Err(Error::new(ErrorKind::Internal, START, "the database gave no answer")),
    }
}

/// `[state before]` first; nothing or null where there is no such operation.
fn before<T: serde::de::DeserializeOwned>(
    operation: &'static str,
    id: OperationId,
    answers: &[String],
) -> Result<(OperationState, T)> {
    let first = answers.first().map(|answer| read::<(Option<i16>, T)>(operation, answer)).transpose()?;
    match first {
        Some((Some(code), rest)) => Ok((OperationState::from_code(code)?, rest)),
        _ => Err(unknown(operation, id)),
    }
}

/// `[state before, null]`: refuses one that had ended.
pub fn advanced(operation: &'static str, id: OperationId, answers: &[String]) -> Result<()> {
    let (state, ()) = before(operation, id, answers)?;
    if state.is_terminal() { Err(over(operation, id, state)) } else { Ok(()) }
}

/// `[state before, number of the event]`: refuses one that had ended.
pub fn noted(id: OperationId, answers: &[String]) -> Result<u64> {
    const EVENT: &str = "operation.event";
    let (state, seq) = before::<Option<u64>>(EVENT, id, answers)?;
    if state.is_terminal() {
        return Err(over(EVENT, id, state));
    }
    seq.ok_or_else(|| Error::new(ErrorKind::Internal, EVENT, "the database's answer lacks something"))
}

/// `[state before, null]`.
pub fn ended(id: OperationId, answers: &[String]) -> Result<Ended> {
    let (state, ()) = before("operation.end", id, answers)?;
    Ok(if state.is_terminal() { Ended::Before(state) } else { Ended::Now })
}

/// The error of an operation that is not there.
fn unknown(operation: &'static str, id: OperationId) -> Error {
    Error::new(ErrorKind::NotFound, operation, format!("there is no operation {id}")).with_field("id")
}

/// The error of what comes after the end.
fn over(operation: &'static str, id: OperationId, state: OperationState) -> Error {
    let reason = format_args!("{id} has ended ({state}), and an end is final; stop, or start another");
    Error::invalid(operation, "operation", reason)
}

/// Whether it is the error of what comes after the end, or of an operation that is not there any more.
pub(super) fn is_over(error: &Error) -> bool {
    matches!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("operation")))
        || error.kind() == ErrorKind::NotFound
}

#[derive(Deserialize)]
struct Row {
    id: Uuid,
    name: String,
    parent: Option<Uuid>,
    state: i16,
    done: Option<u64>,
    total: Option<u64>,
    message: Option<String>,
    error: Option<String>,
    actor: String,
    correlation_id: Option<String>,
    tags: BTreeMap<String, String>,
    events: u64,
    started_at: i64,
    updated_at: i64,
    ended_at: Option<i64>,
}

/// An object with the fields of [`Operation`] for each.
pub fn operations(operation: &'static str, answers: &[String]) -> Result<Vec<Operation>> {
    answers.iter().map(|answer| read::<Row>(operation, answer).and_then(from_row)).collect()
}

fn from_row(row: Row) -> Result<Operation> {
    Ok(Operation {
        id: OperationId::from_uuid(row.id),
        name: row.name,
        parent: row.parent.map(OperationId::from_uuid),
        state: OperationState::from_code(row.state)?,
        progress: Progress { done: row.done, total: row.total, message: row.message },
        error: row.error,
        actor: row.actor,
        correlation_id: row.correlation_id,
        tags: row.tags,
        events: row.events,
        started_at: moment(row.started_at),
        updated_at: moment(row.updated_at),
        ended_at: row.ended_at.map(moment),
    })
}

/// `[seq, recorded at, kind, message, data]` for each.
pub fn events(operation: &'static str, answers: &[String]) -> Result<Vec<OperationEvent>> {
    type Answer = (u64, i64, String, Option<String>, Option<String>);
    let event = |answer: &String| {
        let (seq, recorded_at, kind, message, data): Answer = read(operation, answer)?;
        let data = data.map(|data| read(operation, &data)).transpose()?;
        Ok(OperationEvent { seq, recorded_at: moment(recorded_at), kind, message, data })
    };
    answers.iter().map(event).collect()
}

/// `[id]` of each.
pub fn ids(operation: &'static str, answers: &[String]) -> Result<Vec<OperationId>> {
    let id = |answer: &String| read::<(Uuid,)>(operation, answer).map(|(id,)| OperationId::from_uuid(id));
    answers.iter().map(id).collect()
}

/// `[count]`.
pub fn purged(answers: &[String]) -> Result<u64> {
    only::<(u64,)>("operation.purge", answers).map(|(count,)| count)
}

fn moment(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 { Timestamp::MIN } else { Timestamp::MAX })
}
