//! The stores' answers: JSON texts, times in microseconds since 1970. Every provider words its answers alike, so that they are read
//! here, once.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::id::WorkItemId;
use crate::inbox::answer::{Flag, read};

use super::{FanoutCursor, FanoutKey, FanoutPolicy, PlannedSlice};

pub use crate::inbox::answer::{changed, only};

#[derive(Deserialize)]
struct Policy {
    topic: String,
    work_key: String,
    every_seconds: u64,
    jitter_seconds: u64,
    cron: Option<String>,
    time_zone: String,
    enabled: Flag,
    version: i64,
    last_run_at: Option<i64>,
    run_requested_at: Option<i64>,
    since_at: i64,
    created_at: i64,
    updated_at: i64,
    now: i64,
}

#[derive(Deserialize)]
struct Cursor {
    shard_key: String,
    last_completed_at: Option<i64>,
    slice_id: Option<Uuid>,
    slice_due_at: Option<i64>,
    slice_cursor_at: Option<i64>,
    in_flight: Flag,
    created_at: i64,
    updated_at: i64,
}

/// An object with the fields of [`FanoutPolicy`] and the database's `now` for each.
pub fn policies(operation: &'static str, answers: &[String]) -> Result<Vec<(FanoutPolicy, Timestamp)>> {
    answers.iter().map(|answer| read(operation, answer).and_then(policy)).collect()
}

/// The same for at most one.
pub fn maybe_policy(
    operation: &'static str,
    answers: &[String],
) -> Result<Option<(FanoutPolicy, Timestamp)>> {
    Ok(policies(operation, answers)?.pop())
}

/// The same for one that must be there.
pub fn policy_of(operation: &'static str, answers: &[String]) -> Result<FanoutPolicy> {
    let none = || Error::new(ErrorKind::Internal, operation, "the database returned no policy");
    maybe_policy(operation, answers)?.map(|(policy, _)| policy).ok_or_else(none)
}

fn policy(row: Policy) -> Result<(FanoutPolicy, Timestamp)> {
    let mut policy = FanoutPolicy::new(FanoutKey::new(row.topic, row.work_key)?, moment(row.created_at));
    policy.every = Duration::from_secs(row.every_seconds);
    policy.jitter = Duration::from_secs(row.jitter_seconds);
    policy.cron = row.cron;
    policy.time_zone = row.time_zone;
    policy.enabled = row.enabled.0;
    policy.version = row.version;
    policy.last_run_at = row.last_run_at.map(moment);
    policy.run_requested_at = row.run_requested_at.map(moment);
    policy.since_at = moment(row.since_at);
    policy.updated_at = moment(row.updated_at);
    Ok((policy, moment(row.now)))
}

/// An object with the fields of [`FanoutCursor`] for each.
pub fn cursors(operation: &'static str, answers: &[String]) -> Result<Vec<FanoutCursor>> {
    answers.iter().map(|answer| read(operation, answer).map(cursor)).collect()
}

fn cursor(row: Cursor) -> FanoutCursor {
    let mut cursor = FanoutCursor::new(row.shard_key, moment(row.created_at));
    cursor.last_completed_at = row.last_completed_at.map(moment);
    cursor.slice_id = row.slice_id.map(WorkItemId::from_uuid);
    cursor.slice_due_at = row.slice_due_at.map(moment);
    cursor.slice_cursor_at = row.slice_cursor_at.map(moment);
    cursor.in_flight = row.in_flight.0;
    cursor.updated_at = moment(row.updated_at);
    cursor
}

/// `[shard key]` for each.
pub fn shards(operation: &'static str, answers: &[String]) -> Result<Vec<String>> {
    answers.iter().map(|answer| read::<(String,)>(operation, answer).map(|(shard,)| shard)).collect()
}

/// The error for a fan-out that is not registered.
pub fn unknown(operation: &'static str, key: &FanoutKey) -> Error {
    Error::new(ErrorKind::NotFound, operation, format!("there is no fan-out {key}"))
}

/// Planned slices as the stores take them: an array of `[shard key, cursor, last slice, id, nominal]` each, ids in plain hexadecimal
/// digits.
pub fn plan(slices: &[PlannedSlice]) -> String {
    let micros = |moment: Timestamp| moment.as_microsecond();
    let id = |id: WorkItemId| id.as_uuid().simple().to_string();
    let slice = |slice: &PlannedSlice| {
        serde_json::json!([
            slice.shard_key,
            slice.cursor.map(micros),
            slice.last_slice.map(id),
            id(slice.id),
            micros(slice.nominal),
        ])
    };
    serde_json::Value::Array(slices.iter().map(slice).collect()).to_string()
}

/// Texts as the stores take them: an array.
pub fn texts(texts: &[String]) -> String {
    serde_json::Value::from(texts).to_string()
}

/// The error for a shard, or a fan-out by its work key, that can't be forgotten yet.
pub fn in_flight(operation: &'static str, field: &'static str, slice: Option<WorkItemId>) -> Error {
    let slice = slice.map(|slice| format!(", the message {slice}")).unwrap_or_default();
    let reason = format_args!("has a slice in flight{slice}; cancel that, or wait for its end");
    Error::invalid(operation, field, reason)
}

/// `[a slice in flight, how many shards]`: how many shards were forgotten with a fan-out, unless one of its slices is in flight. None
/// if there is no such fan-out, which answers with nothing.
pub fn deleted(operation: &'static str, answer: Option<&String>) -> Result<Option<u64>> {
    let Some(answer) = answer else { return Ok(None) };
    let (slice, shards): (Option<Uuid>, Option<u64>) = read(operation, answer)?;
    match slice.map(WorkItemId::from_uuid) {
        None => Ok(shards),
        slice => Err(in_flight(operation, "work_key", slice)),
    }
}

fn moment(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_either_dialect_are_read() {
        let id = Uuid::now_v7();
        let row = |id: &str, flag: &str| {
            format!(
                r#"{{"shard_key":"7","last_completed_at":1000000,"slice_id":{id},"slice_due_at":null,"slice_cursor_at":null,
                    "in_flight":{flag},"created_at":0,"updated_at":0}}"#
            )
        };
        for (text, flag) in [(id.to_string(), "true"), (id.simple().to_string().to_uppercase(), "1")] {
            let read = cursors("t", &[row(&format!("\"{text}\""), flag)]).unwrap();
            assert_eq!(read[0].slice_id, Some(WorkItemId::from_uuid(id)));
            assert!(read[0].in_flight && read[0].last_completed_at == Timestamp::from_second(1).ok());
        }
        assert!(!cursors("t", &[row("null", "0")]).unwrap()[0].in_flight);
        assert!(maybe_policy("t", &[]).unwrap().is_none());
        assert!(policy_of("t", &[]).is_err());
    }
}
