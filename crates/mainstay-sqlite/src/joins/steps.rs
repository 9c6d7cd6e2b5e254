//! What is done to joins in a transaction that may be the application's: statements with their arguments, and what they answer.

use std::sync::Arc;

use mainstay_core::inbox::answer::read;
use mainstay_core::join::{Attached, Counted, JoinState, PreparedJoin, Reported, Step as Outcome, answer};
use mainstay_core::store::{Argument, Step};
use mainstay_core::{JoinId, Result, WorkItemId};
use uuid::Uuid;

use crate::queue::when;
use crate::statements::{JoinStatements, Statements};

pub(crate) const ATTACH: &str = "join.attach";
pub(super) const START: &str = "join.start";
pub(super) const REPORT: &str = "join.report";

pub(super) fn step<const N: usize>(sql: &Arc<str>, arguments: [Argument; N]) -> Step {
    Step { sql: Arc::clone(sql), arguments: arguments.into() }
}

pub(super) fn bytes(id: Uuid) -> Argument {
    id.as_bytes().as_slice().into()
}

pub(super) fn start(sql: &JoinStatements, join: &PreparedJoin) -> Vec<Step> {
    let (deadline_at, deadline_in) = when(join.deadline());
    let id = join.id().as_uuid();
    let mut steps = vec![step(
        &sql.start,
        [
            bytes(id),
            i64::from(join.expected()).into(),
            i64::from(join.mode().needed(join.expected())).into(),
            i64::from(join.mode().code()).into(),
            join.grouping_key().into(),
            deadline_at.into(),
            deadline_in.into(),
        ],
    )];
    for (outcome, message) in join.continuations() {
        steps.push(step(
            &sql.start_continuation,
            [
                bytes(id),
                i64::from(outcome.code()).into(),
                bytes(message.work_item().as_uuid()),
                bytes(message.message().as_uuid()),
                message.topic().into(),
                message.payload().into(),
                message.correlation_id().into(),
                message.headers_json().into(),
                i64::from(message.priority()).into(),
                message.ordering_key().into(),
                i64::from(message.hold_on_failure()).into(),
                id.to_string().into(),
            ],
        ));
    }
    steps
}

/// Makes items members of a join. The first of the steps ends the join if its time has come.
pub(crate) fn attach(sql: &Statements, join: JoinId, items: &[WorkItemId]) -> Vec<Step> {
    let join = || bytes(join.as_uuid());
    let all: Vec<u8> = items.iter().flat_map(|item| item.as_uuid().into_bytes()).collect();
    vec![
        step(&sql.joins_lapse_one, [join()]),
        step(&sql.joins_attach_before, [join()]),
        step(&sql.joins_attach, [join(), all.as_slice().into()]),
        step(&sql.joins_attach_after, [join(), all.as_slice().into()]),
    ]
}

/// What the answers of [`attach`] say.
pub(crate) fn attached(join: JoinId, answers: &[String]) -> Result<Attached> {
    let [before, after] = answers else { return Err(answer::unknown(ATTACH, join)) };
    let (was, completed_before, failed_before): (i16, u32, u32) = read(ATTACH, before)?;
    type After = (u64, i16, Option<String>, u32, u32, u64);
    let (added, state, reason, completed, failed, missing): After = read(ATTACH, after)?;
    if was != JoinState::Pending.code() && missing > 0 {
        return Err(answer::ended(ATTACH, join, JoinState::from_code(was)?));
    }
    let counted = Counted {
        join,
        completed: completed.saturating_sub(completed_before),
        failed: failed.saturating_sub(failed_before),
        state: JoinState::from_code(state)?,
        reason: reason.map(|text| text.parse()).transpose()?,
    };
    let counted = Some(counted).filter(|counted| counted.completed + counted.failed > 0);
    // Nothing is changed in a join that had ended; the number is then that of an earlier statement.
    Ok(Attached { added: if was == JoinState::Pending.code() { added } else { 0 }, counted })
}

/// What the answers of [`start`] say.
pub(super) fn started(join: JoinId, answers: &[String]) -> Result<()> {
    if answers.is_empty() { Err(answer::taken(join)) } else { Ok(()) }
}

pub(super) fn report(
    outbox: &Statements,
    sql: &JoinStatements,
    (join, item): (JoinId, WorkItemId),
    outcome: Outcome,
    note: Vec<Step>,
) -> Vec<Step> {
    let (join, item) = (|| bytes(join.as_uuid()), || bytes(item.as_uuid()));
    let mut steps = vec![step(&outbox.joins_lapse_one, [join()]), step(&sql.report_before, [join(), item()])];
    steps.extend(note);
    steps.push(step(&sql.report, [join(), item(), i64::from(outcome.code()).into()]));
    steps.push(step(&sql.report_after, [join()]));
    steps
}

/// What the answers of [`report`] say.
pub(super) fn reported(join: JoinId, item: WorkItemId, answers: &[String]) -> Result<Reported> {
    let [before, after] = answers else { return Err(answer::unknown(REPORT, join)) };
    let (was, completed_before, failed_before, member): (i16, u32, u32, Option<i16>) = read(REPORT, before)?;
    let (state, reason, completed, failed): (i16, Option<String>, u32, u32) = read(REPORT, after)?;
    match member {
        None => return Err(answer::not_a_member(REPORT, join, item)),
        Some(0) if was != JoinState::Pending.code() => {
            return Ok(Reported::Ended(JoinState::from_code(was)?));
        }
        Some(0) => {}
        Some(_) => return Ok(Reported::Already),
    }
    Ok(Reported::Counted(Counted {
        join,
        completed: completed.saturating_sub(completed_before),
        failed: failed.saturating_sub(failed_before),
        state: JoinState::from_code(state)?,
        reason: reason.map(|text| text.parse()).transpose()?,
    }))
}
