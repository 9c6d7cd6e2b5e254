//! Joins: each method is one call of one public SQL function, in one round trip.
//!
//! Arguments and answers are texts, so that the same statements run on the program's own connections and in the transactions of
//! every driver (see `texts`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::audit::Actor;
use mainstay_core::join::{
    Attached, CancelledJoin, Counted, Join, JoinFilter, JoinMember, JoinMode, JoinPage, JoinState, JoinStats,
    MemberPage, PreparedJoin, Reported, Step as Outcome, answer,
};
use mainstay_core::outbox::{PreparedMessage, When};
use mainstay_core::store::{Capabilities, JoinStore, Names, StoreCall};
use mainstay_core::{JoinId, Result, WorkItemId};
use uuid::Uuid;

use crate::audit::actor;
use crate::contention::Wait;
use crate::moment::Moment;
use crate::parameters::array;
use crate::pool::Connections;
use crate::provider::capabilities;
use crate::statements::JoinStatements;
use crate::texts::Texts;

/// Joins in PostgreSQL.
pub struct PostgresJoins {
    texts: Texts,
    statements: Arc<JoinStatements>,
}

impl PostgresJoins {
    pub(crate) fn new(connections: Connections, names: &Names) -> Result<Self> {
        Ok(Self {
            texts: Texts::new(connections, names, names.joins()),
            statements: JoinStatements::shared(names)?,
        })
    }
}

fn id(id: Uuid) -> Option<String> {
    Some(id.to_string())
}

/// One text for each continuation, as PostgreSQL writes an array. None where none has it.
fn column(join: &PreparedJoin, read: impl Fn(Outcome, &PreparedMessage) -> Option<String>) -> Option<String> {
    let texts: Vec<_> = join.continuations().iter().map(|(step, message)| read(*step, message)).collect();
    array(texts.iter().any(Option::is_some).then_some(texts))
}

#[async_trait]
impl JoinStore for PostgresJoins {
    fn identifier(&self) -> &str {
        self.texts.identifier()
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn starting(&self, join: &PreparedJoin, by: Option<&Actor>) -> StoreCall {
        let [by, about] = actor(by);
        let quorum = match join.mode() {
            JoinMode::Quorum(needed) => Some(needed.to_string()),
            JoinMode::All | JoinMode::Any | JoinMode::Deadline => None,
        };
        let (deadline_at, deadline_in) = match join.deadline() {
            None => (None, None),
            Some(When::At(moment)) => (Some(Moment(moment).to_text()), None),
            Some(When::In(time)) => (None, Some(time.as_secs_f64().to_string())),
        };
        let arguments = [
            Some(join.expected().to_string()),
            join.grouping_key().map(str::to_owned),
            Some(join.mode().as_str().to_owned()),
            quorum,
            deadline_at,
            deadline_in,
            id(join.id().as_uuid()),
            column(join, |step, _| Some(step.as_str().to_owned())),
            column(join, |_, message| Some(message.topic().to_owned())),
            column(join, |_, message| Some(message.payload().to_owned())),
            column(join, |_, message| message.correlation_id().map(str::to_owned)),
            column(join, |_, message| message.headers_json()),
            column(join, |_, message| Some(message.priority().to_string())),
            column(join, |_, message| message.ordering_key().map(str::to_owned)),
            column(join, |_, message| Some(message.hold_on_failure().to_string())),
            column(join, |_, message| id(message.work_item().as_uuid())),
            column(join, |_, message| id(message.message().as_uuid())),
            by,
            about,
        ];
        self.texts.call("join.start", &self.statements.start, arguments)
    }

    fn started(&self, _join: JoinId, _answers: &[String]) -> Result<()> {
        // The function refuses an id that is taken.
        Ok(())
    }

    fn attaching(&self, join: JoinId, items: &[WorkItemId], by: Option<&Actor>) -> StoreCall {
        let [by, about] = actor(by);
        let items = array(Some(items.iter().map(|item| id(item.as_uuid())).collect()));
        self.texts.call("join.attach", &self.statements.attach, [id(join.as_uuid()), items, by, about])
    }

    fn attached(&self, _join: JoinId, answers: &[String]) -> Result<Attached> {
        answer::attached(answers)
    }

    fn reporting(&self, join: JoinId, item: WorkItemId, step: Outcome, by: Option<&Actor>) -> StoreCall {
        let [by, about] = actor(by);
        let arguments = [id(join.as_uuid()), id(item.as_uuid()), Some(step.as_str().to_owned()), by, about];
        self.texts.call("join.report", &self.statements.report, arguments)
    }

    fn reported(&self, _join: JoinId, _item: WorkItemId, answers: &[String]) -> Result<Reported> {
        answer::reported(answers)
    }

    async fn run(&self, call: StoreCall) -> Result<Vec<String>> {
        self.texts.run(call, Wait::Long).await
    }

    async fn get(&self, join: JoinId) -> Result<Option<Join>> {
        const GET: &str = "join.get";
        let answers = self.texts.ask(GET, &self.statements.get, [id(join.as_uuid())]).await?;
        Ok(answer::joins(GET, &answers)?.pop())
    }

    async fn list(&self, filter: &JoinFilter, page: JoinPage) -> Result<Vec<Join>> {
        const LIST: &str = "join.list";
        let arguments = [
            filter.grouping_key.clone(),
            filter.state.map(|state| state.code().to_string()),
            page.before.map(|join| join.to_string()),
            Some(page.limit.to_string()),
        ];
        answer::joins(LIST, &self.texts.ask(LIST, &self.statements.list, arguments).await?)
    }

    async fn members(&self, join: JoinId, page: MemberPage) -> Result<Vec<JoinMember>> {
        let arguments =
            [id(join.as_uuid()), page.after.map(|item| item.to_string()), Some(page.limit.to_string())];
        answer::members(&self.texts.ask("join.members", &self.statements.members, arguments).await?)
    }

    async fn of_item(&self, item: WorkItemId) -> Result<Vec<JoinId>> {
        const OF: &str = "join.of_item";
        answer::ids(OF, &self.texts.ask(OF, &self.statements.of_item, [id(item.as_uuid())]).await?)
    }

    async fn cancel(&self, join: JoinId, by: &Actor) -> Result<CancelledJoin> {
        let [by, about] = actor(Some(by));
        let arguments = [id(join.as_uuid()), by, about];
        let answers = self.texts.ask("join.cancel", &self.statements.cancel, arguments).await?;
        answer::cancelled(&answers)
    }

    async fn expire(&self, limit: u32) -> Result<Vec<Counted>> {
        const EXPIRE: &str = "join.expire";
        let answers = self.texts.ask(EXPIRE, &self.statements.expire, [Some(limit.to_string())]).await?;
        let ended =
            answers.iter().map(|answer| answer::counted(EXPIRE, answer)).collect::<Result<Vec<_>>>()?;
        Ok(ended.into_iter().flatten().filter(|one| one.state != JoinState::Pending).collect())
    }

    async fn next_deadline(&self) -> Result<Option<Duration>> {
        answer::next_deadline(
            &self.texts.ask("join.next_deadline", &self.statements.next_deadline, []).await?,
        )
    }

    async fn stats(&self) -> Result<JoinStats> {
        answer::stats(&self.texts.ask("join.stats", &self.statements.stats, []).await?)
    }

    async fn purge(&self, age: Duration, batch: u32, by: Option<&Actor>) -> Result<u64> {
        let [by, about] = actor(by);
        let arguments = [Some(age.as_secs_f64().to_string()), Some(batch.to_string()), by, about];
        answer::purged(&self.texts.ask("join.purge", &self.statements.purge, arguments).await?)
    }
}

impl std::fmt::Debug for PostgresJoins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresJoins").field("identifier", &self.texts.identifier()).finish_non_exhaustive()
    }
}
