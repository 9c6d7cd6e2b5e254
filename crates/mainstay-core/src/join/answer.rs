//! What the stores of joins answer: JSON texts, times in microseconds since 1970. Every provider words its answers alike, so
//! that they are read here, once.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{JoinId, WorkItemId};
use crate::inbox::answer::{only, read};

use super::{
    Attached, CancelledJoin, Counted, Join, JoinMember, JoinMode, JoinState, JoinStats, MemberState, Reported,
};

/// `[join, completed, failed, state, reason]`.
type CountedAnswer = (Uuid, u32, u32, i16, Option<String>);

fn counted_from((join, completed, failed, state, reason): CountedAnswer) -> Result<Counted> {
    let (state, reason) = (JoinState::from_code(state)?, reason.map(|text| text.parse()).transpose()?);
    Ok(Counted { join: JoinId::from_uuid(join), completed, failed, state, reason })
}

/// A list of `[join, completed, failed, state, reason]`.
pub fn counted(operation: &'static str, answer: &str) -> Result<Vec<Counted>> {
    read::<Vec<CountedAnswer>>(operation, answer)?.into_iter().map(counted_from).collect()
}

/// `[added, [[join, completed, failed, state, reason]], null]`; without a count, nothing had ended.
pub fn attached(answers: &[String]) -> Result<Attached> {
    let (added, counted, ()): (u64, Option<Vec<CountedAnswer>>, ()) = only("join.attach", answers)?;
    let counted = counted.and_then(|mut all| all.pop()).map(counted_from).transpose()?;
    Ok(Attached { added, counted })
}

/// `[outcome, state, [[join, completed, failed, state, reason]], null]`, where the outcome is counted, already or ended.
pub fn reported(answers: &[String]) -> Result<Reported> {
    const REPORT: &str = "join.report";
    type Answer = (String, i16, Option<Vec<CountedAnswer>>, ());
    let (outcome, state, counted, ()): Answer = only(REPORT, answers)?;
    let odd = || Error::new(ErrorKind::Internal, REPORT, "the database's answer lacks something");
    Ok(match outcome.as_str() {
        "counted" => {
            let counted = counted.and_then(|mut all| all.pop()).ok_or_else(odd)?;
            Reported::Counted(counted_from(counted)?)
        }
        "already" => Reported::Already,
        "ended" => Reported::Ended(JoinState::from_code(state)?),
        _ => return Err(odd()),
    })
}

#[derive(Deserialize)]
struct JoinAnswer {
    id: Uuid,
    grouping_key: Option<String>,
    mode: i16,
    needed: u32,
    expected: u32,
    completed: u32,
    failed: u32,
    state: i16,
    reason: Option<String>,
    deadline_at: Option<i64>,
    created_at: i64,
    updated_at: i64,
    ended_at: Option<i64>,
}

fn moment(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// Objects of joins.
pub fn joins(operation: &'static str, answers: &[String]) -> Result<Vec<Join>> {
    let read = |answer: &String| {
        let join: JoinAnswer = read(operation, answer)?;
        let mode = match join.mode {
            0 => JoinMode::All,
            1 => JoinMode::Any,
            2 => JoinMode::Quorum(join.needed),
            3 => JoinMode::Deadline,
            other => {
                let message = format!("there is no mode with the code {other}");
                return Err(Error::new(ErrorKind::Internal, operation, message));
            }
        };
        Ok(Join {
            id: JoinId::from_uuid(join.id),
            grouping_key: join.grouping_key,
            mode,
            expected: join.expected,
            completed: join.completed,
            failed: join.failed,
            state: JoinState::from_code(join.state)?,
            reason: join.reason.map(|text| text.parse()).transpose()?,
            deadline_at: join.deadline_at.map(moment),
            created_at: moment(join.created_at),
            updated_at: moment(join.updated_at),
            ended_at: join.ended_at.map(moment),
        })
    };
    answers.iter().map(read).collect()
}

/// `[work item, state, updated at]` of each.
pub fn members(answers: &[String]) -> Result<Vec<JoinMember>> {
    let read = |answer: &String| {
        let (item, state, updated_at): (Uuid, i16, i64) = read("join.members", answer)?;
        Ok(JoinMember::new(WorkItemId::from_uuid(item), MemberState::from_code(state)?, moment(updated_at)))
    };
    answers.iter().map(read).collect()
}

/// `[join]` of each.
pub fn ids(operation: &'static str, answers: &[String]) -> Result<Vec<JoinId>> {
    let read = |answer: &String| read::<(Uuid,)>(operation, answer).map(|(id,)| JoinId::from_uuid(id));
    answers.iter().map(read).collect()
}

/// `[microseconds until then]`, null if there is nothing.
pub fn next_deadline(answers: &[String]) -> Result<Option<Duration>> {
    let (left,): (Option<i64>,) = only("join.next_deadline", answers)?;
    Ok(left.map(|micros| Duration::from_micros(micros.max(0).unsigned_abs())))
}

/// `[pending, overdue]`.
pub fn stats(answers: &[String]) -> Result<JoinStats> {
    let (pending, overdue) = only("join.stats", answers)?;
    Ok(JoinStats::new(pending, overdue))
}

/// `[items, [[join, completed, failed, state, reason]]]`; null for the items of a join that had ended.
pub fn cancelled(answers: &[String]) -> Result<CancelledJoin> {
    type Answer = (Option<Vec<Uuid>>, Option<Vec<CountedAnswer>>);
    let (items, counted): Answer = only("join.cancel", answers)?;
    let counted = counted.unwrap_or_default().into_iter().map(counted_from).collect::<Result<Vec<_>>>()?;
    let changed = items.is_some();
    let messages = items.unwrap_or_default().into_iter().map(WorkItemId::from_uuid).collect();
    Ok(CancelledJoin { changed, messages, counted })
}

/// `[rows]`.
pub fn purged(answers: &[String]) -> Result<u64> {
    only::<(u64,)>("join.purge", answers).map(|(rows,)| rows)
}

/// The error of a join that is not there.
pub fn unknown(operation: &'static str, join: JoinId) -> Error {
    Error::new(ErrorKind::NotFound, operation, format!("there is no join {join}")).with_field("join")
}

/// The error of an item that is no member of the join.
pub fn not_a_member(operation: &'static str, join: JoinId, item: WorkItemId) -> Error {
    let message = format!("{item} is no member of the join {join}; attach it first");
    Error::new(ErrorKind::NotFound, operation, message).with_field("work_item")
}

/// The error of an attach that comes too late.
pub fn ended(operation: &'static str, join: JoinId, state: JoinState) -> Error {
    let reason = format_args!("{join} has ended ({state}), so nothing can be attached to it; start another");
    Error::invalid(operation, "join", reason)
}

/// The error of an id that is taken.
pub fn taken(id: JoinId) -> Error {
    Error::invalid("join.start", "id", format_args!("must be new, but there is a join {id} already"))
}
