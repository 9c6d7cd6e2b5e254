//! Operations: each method is one call of one procedure. Those that an application may do in its own transaction are worded as calls.

use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::Result;
use mainstay_core::audit::Actor;
use mainstay_core::operation::{
    EventPage, Operation, OperationEnd, OperationEvent, OperationFilter, OperationId, OperationPage,
    PreparedEvent, PreparedOperation, Progress, answer,
};
use mainstay_core::store::{Names, OperationStore, StoreCall};
use serde_json::{Value, json};

use crate::parameters::{Call, listed};
use crate::pool::Connections;
use crate::texts::Texts;

/// Operations in SQL Server.
pub struct SqlServerOperations {
    texts: Texts,
}

impl SqlServerOperations {
    pub(crate) fn new(connections: Connections, names: &Names) -> Self {
        Self { texts: Texts::new(connections, names, names.operations()) }
    }

    fn on(&self, verb: &str, id: OperationId) -> Call {
        self.texts.procedure(verb).id("Id", id.as_uuid())
    }
}

/// More than a database holds is all it holds.
fn whole(number: Option<u64>) -> Option<i64> {
    number.map(|number| i64::try_from(number).unwrap_or(i64::MAX))
}

#[async_trait]
impl OperationStore for SqlServerOperations {
    fn identifier(&self) -> &str {
        self.texts.identifier()
    }

    fn starting(&self, operation: &PreparedOperation) -> StoreCall {
        let tag = |(key, value): (&String, &String)| json!({ "key": listed(key), "value": listed(value) });
        let tags = Value::Array(operation.tags.iter().map(tag).collect()).to_string();
        let call = self
            .on("Start", operation.id)
            .text("Name", &operation.name)
            .text("Actor", operation.actor.as_str());
        let call = call.maybe_id("ParentId", operation.parent.map(|parent| parent.as_uuid()));
        let call = call.maybe_text("CorrelationId", operation.correlation_id.as_deref());
        let call = call.maybe_integer("Total", whole(operation.progress.total));
        let call = call.maybe_text("Message", operation.progress.message.as_deref()).text("Tags", tags);
        self.texts.call("operation.start", call)
    }

    fn advancing(&self, id: OperationId, progress: &Progress) -> StoreCall {
        let call = self.on("Progress", id).maybe_integer("Done", whole(progress.done));
        let call = call
            .maybe_integer("Total", whole(progress.total))
            .maybe_text("Message", progress.message.as_deref());
        self.texts.call("operation.progress", call)
    }

    fn noting(&self, id: OperationId, event: &PreparedEvent) -> StoreCall {
        let call =
            self.on("Note", id).text("Kind", &event.kind).maybe_text("Message", event.message.as_deref());
        self.texts.call("operation.event", call.maybe_text("Data", event.data.as_deref()))
    }

    fn ending(&self, id: OperationId, end: &OperationEnd) -> StoreCall {
        let call = self.on("End", id).integer("State", end.state().code()).maybe_text("Error", end.error());
        self.texts.call("operation.end", call)
    }

    async fn run(&self, call: StoreCall) -> Result<Vec<String>> {
        self.texts.run(call).await
    }

    async fn get(&self, id: OperationId) -> Result<Option<Operation>> {
        const GET: &str = "operation.get";
        Ok(answer::operations(GET, &self.texts.ask(GET, self.on("List", id)).await?)?.pop())
    }

    async fn list(&self, filter: &OperationFilter, page: OperationPage) -> Result<Vec<Operation>> {
        const LIST: &str = "operation.list";
        let name = filter.name.as_deref().filter(|name| !name.is_empty());
        let call = self.texts.procedure("List").maybe_text("Name", name);
        let call = call.maybe_integer("State", filter.state.map(|state| state.code()));
        let call = call.maybe_id("ParentId", filter.parent.map(|parent| parent.as_uuid()));
        let call = call.maybe_text("CorrelationId", filter.correlation_id.as_deref());
        let call = call.maybe_moment("After", filter.after).maybe_moment("BeforeTime", filter.before);
        let call = call.maybe_id("Before", page.before.map(|id| id.as_uuid())).integer("MaxRows", page.limit);
        let tag = filter.tag.as_ref();
        let call = call.maybe_text("TagKey", tag.map(|(key, _)| key.as_str()));
        let call = call.maybe_text("TagValue", tag.map(|(_, value)| value.as_str()));
        answer::operations(LIST, &self.texts.ask(LIST, call).await?)
    }

    async fn events(&self, id: OperationId, page: EventPage) -> Result<Vec<OperationEvent>> {
        const EVENTS: &str = "operation.events";
        let after = i64::try_from(page.after).unwrap_or(i64::MAX);
        let call = self.on("Events", id).integer("After", after).integer("MaxRows", page.limit);
        answer::events(EVENTS, &self.texts.ask(EVENTS, call).await?)
    }

    async fn stalled(&self, silence: Duration, limit: u32) -> Result<Vec<Operation>> {
        const STALLED: &str = "operation.stalled";
        let call =
            self.texts.procedure("Stalled").seconds("SilenceSeconds", silence).integer("MaxRows", limit);
        answer::operations(STALLED, &self.texts.ask(STALLED, call).await?)
    }

    async fn mark_stalled(
        &self,
        silence: Duration,
        limit: u32,
        by: Option<&Actor>,
    ) -> Result<Vec<OperationId>> {
        const MARK: &str = "operation.mark_stalled";
        let call = self.texts.procedure("MarkStalled").seconds("SilenceSeconds", silence);
        answer::ids(MARK, &self.texts.ask(MARK, call.integer("MaxRows", limit).actor(by)).await?)
    }

    async fn purge(&self, age: Duration, batch: u32, by: Option<&Actor>) -> Result<u64> {
        let call = self
            .texts
            .procedure("Purge")
            .seconds("OlderThanSeconds", age)
            .integer("MaxRows", batch)
            .actor(by);
        answer::purged(&self.texts.ask("operation.purge", call).await?)
    }
}

impl std::fmt::Debug for SqlServerOperations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlServerOperations")
            .field("identifier", &self.texts.identifier())
            .finish_non_exhaustive()
    }
}
