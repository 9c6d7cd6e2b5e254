//! Records of what is done to joins by hand. They may stand in a transaction of the application's, where nobody looks at an answer before
//! the next statement: so each is written on the condition that the thing is done.

use mainstay_core::audit::{Actor, PreparedAudit};
use mainstay_core::join::{MemberState, PreparedJoin, Step as Outcome};
use mainstay_core::outbox::When;
use mainstay_core::store::Step;
use mainstay_core::{JoinId, WorkItemId};
use serde_json::{Value, json};

use crate::audit::steps_if;
use crate::statements::{AuditStatements, JoinStatements};

use super::steps::{ATTACH, REPORT, START, bytes, step};

/// What writes them.
pub(super) struct Notes<'a> {
    pub(super) audit: &'a AuditStatements,
    pub(super) sql: &'a JoinStatements,
}

impl Notes<'_> {
    /// Records a join whose last statement has just been run, if that has added anything.
    pub(super) fn start(&self, join: &PreparedJoin, by: &Actor) -> Vec<Step> {
        let data = json!({ "before": null, "after": told(join) });
        steps_if(self.audit, &record(START, join.id(), by, data), &self.sql.start_note, [])
    }

    /// Records those items that are going to be members and are not yet.
    pub(super) fn attach(&self, join: JoinId, items: &[WorkItemId], by: &Actor) -> Vec<Step> {
        let record = record(ATTACH, join, by, json!({}));
        let all: Vec<u8> = items.iter().flat_map(|item| item.as_uuid().into_bytes()).collect();
        let (join, all) = (|| bytes(join.as_uuid()), || all.as_slice().into());
        let mut steps = steps_if(self.audit, &record, &self.sql.attach_note, [join(), all()]);
        steps.push(step(&self.sql.attach_about, [bytes(record.id.as_uuid()), join(), all()]));
        steps
    }

    /// Records a report, if the step is going to be counted by it.
    pub(super) fn report(&self, join: JoinId, item: WorkItemId, outcome: Outcome, by: &Actor) -> Vec<Step> {
        let data = json!({
            "step": item,
            "before": { "state": MemberState::Pending.as_str() },
            "after": { "state": outcome.as_str() },
        });
        let record = record(REPORT, join, by, data).about("step", [item.to_string()]);
        let condition = [bytes(join.as_uuid()), bytes(item.as_uuid())];
        steps_if(self.audit, &record, &self.sql.report_note, condition)
    }
}

fn record(operation: &str, join: JoinId, by: &Actor, data: Value) -> PreparedAudit {
    PreparedAudit::administrative(operation, by, data).about("join", [join.to_string()])
}

/// A join as it is started, without the payloads of what follows.
fn told(join: &PreparedJoin) -> Value {
    let (deadline_at, deadline_in) = match join.deadline() {
        None => (None, None),
        Some(When::At(moment)) => (Some(moment), None),
        Some(When::In(time)) => (None, Some(time.as_secs_f64())),
    };
    let topic = |outcome: Outcome| {
        let found = join.continuations().iter().find(|(step, _)| *step == outcome);
        found.map(|(_, message)| message.topic())
    };
    json!({
        "expected": join.expected(),
        "needed": join.mode().needed(join.expected()),
        "mode": join.mode().as_str(),
        "grouping_key": join.grouping_key(),
        "deadline_at": deadline_at,
        "deadline_in_seconds": deadline_in,
        "on_completed": topic(Outcome::Completed),
        "on_failed": topic(Outcome::Failed),
    })
}
