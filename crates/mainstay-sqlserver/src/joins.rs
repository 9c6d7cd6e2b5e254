//! Joins: each method is one call of one procedure, in one round trip.
//!
//! What was counted on the way comes in results of its own, beside the answer, so that whatever ends an item can tell of it.

use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::audit::Actor;
use mainstay_core::join::{
    Attached, CancelledJoin, Counted, Join, JoinFilter, JoinMember, JoinMode, JoinPage, JoinState, JoinStats,
    MemberPage, PreparedJoin, Reported, Step as Outcome, answer,
};
use mainstay_core::outbox::When;
use mainstay_core::store::{Capabilities, JoinStore, Names, Queue, StoreCall};
use mainstay_core::{JoinId, Result, WorkItemId};
use serde_json::{Value, json};

use crate::parameters::{Call, bodies, ids, message};
use crate::pool::Connections;
use crate::provider::capabilities;
use crate::rows;
use crate::texts::Texts;
use crate::waiting::Signals;

/// Joins in SQL Server.
pub struct SqlServerJoins {
    texts: Texts,
    signals: Signals,
}

impl SqlServerJoins {
    pub(crate) fn new(connections: Connections, names: &Names, signals: Signals) -> Self {
        Self { texts: Texts::new(connections, names, names.joins()), signals }
    }

    fn on(&self, verb: &str, join: JoinId) -> Call {
        self.texts.procedure(verb).id("JoinId", join.as_uuid())
    }
}

/// The answer proper, and beside it what was counted.
fn told(answers: &[String]) -> (Value, Vec<Value>) {
    let (mut main, mut counted) = (Value::Null, Vec::new());
    for answer in answers {
        let read: Value = serde_json::from_str(answer).unwrap_or_default();
        match read.get("counted").and_then(Value::as_str).map(serde_json::from_str) {
            Some(Ok(Value::Array(list))) => counted.extend(list),
            Some(_) => {}
            None => main = read,
        }
    }
    (main, counted)
}

/// As the stores' answers word it: null where nothing was counted.
fn list(counted: Vec<Value>) -> Value {
    if counted.is_empty() { Value::Null } else { Value::Array(counted) }
}

#[async_trait]
impl JoinStore for SqlServerJoins {
    fn identifier(&self) -> &str {
        self.texts.identifier()
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn starting(&self, join: &PreparedJoin, by: Option<&Actor>) -> StoreCall {
        let call = self.texts.procedure("Start").integer("ExpectedSteps", join.expected());
        let call = call.maybe_text("GroupingKey", join.grouping_key()).text("Mode", join.mode().as_str());
        let call = match join.mode() {
            JoinMode::Quorum(needed) => call.integer("Quorum", needed),
            JoinMode::All | JoinMode::Any | JoinMode::Deadline => call,
        };
        let call = match join.deadline() {
            None => call,
            Some(When::At(moment)) => call.maybe_moment("DeadlineAt", Some(moment)),
            Some(When::In(time)) => call.seconds("DeadlineInSeconds", time),
        };
        let object = |(place, (step, next)): (usize, &(Outcome, _))| {
            let mut object = message(place + 1, next);
            object.insert("outcome".to_owned(), json!(if *step == Outcome::Completed { 1 } else { 2 }));
            Value::Object(object)
        };
        let next = Value::Array(join.continuations().iter().enumerate().map(object).collect()).to_string();
        let bodies =
            bodies(join.continuations().iter().map(|(_, next)| (next.payload(), next.headers_json())));
        let call = call.id("Id", join.id().as_uuid()).text("Continuations", next).text("Bodies", bodies);
        self.texts.call("join.start", call.actor(by))
    }

    fn started(&self, _join: JoinId, _answers: &[String]) -> Result<()> {
        // The procedure refuses an id that is taken.
        Ok(())
    }

    fn attaching(&self, join: JoinId, items: &[WorkItemId], by: Option<&Actor>) -> StoreCall {
        self.texts
            .call("join.attach", self.on("Attach", join).text("Ids", ids(items)).actor(by).telling_of_joins())
    }

    fn attached(&self, _join: JoinId, answers: &[String]) -> Result<Attached> {
        let (main, counted) = told(answers);
        answer::attached(&[json!([main.get(0), list(counted), null]).to_string()])
    }

    fn reporting(&self, join: JoinId, item: WorkItemId, step: Outcome, by: Option<&Actor>) -> StoreCall {
        let call = self.on("Report", join).id("WorkItemId", item.as_uuid()).text("Outcome", step.as_str());
        self.texts.call("join.report", call.actor(by).telling_of_joins())
    }

    fn reported(&self, _join: JoinId, _item: WorkItemId, answers: &[String]) -> Result<Reported> {
        let (main, counted) = told(answers);
        answer::reported(&[json!([main.get(0), main.get(1), list(counted), null]).to_string()])
    }

    async fn run(&self, call: StoreCall) -> Result<Vec<String>> {
        let answers = self.texts.run(call).await?;
        // A join that has ended has put its message there.
        self.signals.signal(Queue::Outbox);
        Ok(answers)
    }

    async fn get(&self, join: JoinId) -> Result<Option<Join>> {
        const GET: &str = "join.get";
        let call = self.texts.procedure("List").id("Id", join.as_uuid());
        Ok(answer::joins(GET, &self.texts.ask(GET, call).await?)?.pop())
    }

    async fn list(&self, filter: &JoinFilter, page: JoinPage) -> Result<Vec<Join>> {
        const LIST: &str = "join.list";
        let call = self.texts.procedure("List").maybe_text("GroupingKey", filter.grouping_key.as_deref());
        let call = call.maybe_integer("State", filter.state.map(JoinState::code));
        let call = call.maybe_id("Before", page.before.map(|id| id.as_uuid())).integer("MaxRows", page.limit);
        answer::joins(LIST, &self.texts.ask(LIST, call).await?)
    }

    async fn members(&self, join: JoinId, page: MemberPage) -> Result<Vec<JoinMember>> {
        let call = self.on("Members", join).maybe_id("After", page.after.map(|item| item.as_uuid()));
        answer::members(&self.texts.ask("join.members", call.integer("MaxRows", page.limit)).await?)
    }

    async fn of_item(&self, item: WorkItemId) -> Result<Vec<JoinId>> {
        const OF: &str = "join.of_item";
        let call = self.texts.procedure("OfItem").id("WorkItemId", item.as_uuid());
        answer::ids(OF, &self.texts.ask(OF, call).await?)
    }

    async fn cancel(&self, join: JoinId, by: &Actor) -> Result<CancelledJoin> {
        const CANCEL: &str = "join.cancel";
        let answers =
            self.texts.ask(CANCEL, self.on("Cancel", join).actor(Some(by)).telling_of_joins()).await?;
        self.signals.signal(Queue::Outbox);
        let (main, counted) = told(&answers);
        let changed =
            matches!(main.get("cancelled"), Some(Value::Number(number)) if number.as_i64() == Some(1));
        let objects = main.get("ids").and_then(Value::as_array).cloned().unwrap_or_default();
        let items: Vec<Value> = objects.into_iter().filter_map(|object| object.get("id").cloned()).collect();
        let items = if changed { Value::Array(items) } else { Value::Null };
        answer::cancelled(&[json!([items, list(counted)]).to_string()])
    }

    async fn expire(&self, limit: u32) -> Result<Vec<Counted>> {
        const EXPIRE: &str = "join.expire";
        let rows = self.texts.rows(EXPIRE, self.texts.procedure("Expire").integer("MaxJoins", limit)).await?;
        let ended = rows::counted(EXPIRE, &rows)?;
        if !ended.is_empty() {
            self.signals.signal(Queue::Outbox);
        }
        Ok(ended.into_iter().filter(|one| one.state != JoinState::Pending).collect())
    }

    async fn next_deadline(&self) -> Result<Option<Duration>> {
        let call = self.texts.procedure("NextDeadline");
        answer::next_deadline(&self.texts.ask("join.next_deadline", call).await?)
    }

    async fn stats(&self) -> Result<JoinStats> {
        answer::stats(&self.texts.ask("join.stats", self.texts.procedure("Stats")).await?)
    }

    async fn purge(&self, age: Duration, batch: u32, by: Option<&Actor>) -> Result<u64> {
        let call = self.texts.procedure("Purge").seconds("OlderThanSeconds", age).integer("MaxRows", batch);
        answer::purged(&self.texts.ask("join.purge", call.actor(by)).await?)
    }
}

impl std::fmt::Debug for SqlServerJoins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlServerJoins").field("identifier", &self.texts.identifier()).finish_non_exhaustive()
    }
}
