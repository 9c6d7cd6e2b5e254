//! Operations: each method is one call of one public SQL function, or one reading, in one round trip.
//!
//! Arguments and answers are texts, so that the same statements run on the program's own connections and in the transactions of
//! every driver (see `texts`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::Result;
use mainstay_core::audit::Actor;
use mainstay_core::operation::{
    EventPage, Operation, OperationEnd, OperationEvent, OperationFilter, OperationId, OperationPage,
    PreparedEvent, PreparedOperation, Progress, answer,
};
use mainstay_core::store::{Names, OperationStore, StoreCall};

use crate::audit::actor;
use crate::contention::Wait;
use crate::moment::Moment;
use crate::parameters::array;
use crate::pool::Connections;
use crate::statements::OperationStatements;
use crate::texts::Texts;

/// Operations in PostgreSQL.
pub struct PostgresOperations {
    texts: Texts,
    statements: Arc<OperationStatements>,
}

impl PostgresOperations {
    pub(crate) fn new(connections: Connections, names: &Names) -> Result<Self> {
        Ok(Self {
            texts: Texts::new(connections, names, names.operations()),
            statements: OperationStatements::shared(names)?,
        })
    }
}

fn text(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

/// As the functions take it, who refuse more than 10,000,000,000 seconds.
fn seconds(duration: Duration) -> Option<String> {
    text(duration.as_secs_f64().min(1e10))
}

#[async_trait]
impl OperationStore for PostgresOperations {
    fn identifier(&self) -> &str {
        self.texts.identifier()
    }

    fn starting(&self, operation: &PreparedOperation) -> StoreCall {
        let tags = |part: fn((&String, &String)) -> String| {
            array(Some(operation.tags.iter().map(part).map(Some).collect()))
        };
        let arguments = [
            text(operation.id),
            text(&operation.name),
            text(&operation.actor),
            operation.parent.and_then(text),
            operation.correlation_id.clone(),
            operation.progress.total.and_then(text),
            operation.progress.message.clone(),
            tags(|(key, _)| key.clone()),
            tags(|(_, value)| value.clone()),
        ];
        self.texts.call("operation.start", &self.statements.start, arguments)
    }

    fn advancing(&self, id: OperationId, progress: &Progress) -> StoreCall {
        let (done, total) = (progress.done.and_then(text), progress.total.and_then(text));
        let arguments = [text(id), done, total, progress.message.clone()];
        self.texts.call("operation.progress", &self.statements.progress, arguments)
    }

    fn noting(&self, id: OperationId, event: &PreparedEvent) -> StoreCall {
        let arguments = [text(id), text(&event.kind), event.message.clone(), event.data.clone()];
        self.texts.call("operation.event", &self.statements.note, arguments)
    }

    fn ending(&self, id: OperationId, end: &OperationEnd) -> StoreCall {
        let arguments = [text(id), text(end.state()), end.error()];
        self.texts.call("operation.end", &self.statements.end, arguments)
    }

    async fn run(&self, call: StoreCall) -> Result<Vec<String>> {
        self.texts.run(call, Wait::Brief).await
    }

    async fn get(&self, id: OperationId) -> Result<Option<Operation>> {
        const GET: &str = "operation.get";
        let answers = self.texts.ask(GET, &self.statements.get, &[text(id)]).await?;
        Ok(answer::operations(GET, &answers)?.pop())
    }

    async fn list(&self, filter: &OperationFilter, page: OperationPage) -> Result<Vec<Operation>> {
        const LIST: &str = "operation.list";
        let name = filter.name.as_ref().filter(|name| !name.is_empty());
        let time = |moment: Option<jiff::Timestamp>| moment.map(|moment| Moment(moment).to_text());
        let mut arguments = vec![
            name.cloned(),
            // Behind every name that begins so.
            name.map(|name| format!("{name}\u{10ffff}")),
            filter.state.and_then(|state| text(state.code())),
            filter.parent.and_then(text),
            filter.correlation_id.clone(),
            time(filter.after),
            time(filter.before),
            page.before.and_then(text),
            text(page.limit),
        ];
        let sql = match &filter.tag {
            None => &self.statements.list,
            Some((key, value)) => {
                arguments.extend([text(key), text(value)]);
                &self.statements.list_tagged
            }
        };
        answer::operations(LIST, &self.texts.ask(LIST, sql, &arguments).await?)
    }

    async fn events(&self, id: OperationId, page: EventPage) -> Result<Vec<OperationEvent>> {
        const EVENTS: &str = "operation.events";
        let arguments = [text(id), text(page.after), text(page.limit)];
        answer::events(EVENTS, &self.texts.ask(EVENTS, &self.statements.events, &arguments).await?)
    }

    async fn stalled(&self, silence: Duration, limit: u32) -> Result<Vec<Operation>> {
        const STALLED: &str = "operation.stalled";
        let arguments = [seconds(silence), text(limit)];
        answer::operations(STALLED, &self.texts.ask(STALLED, &self.statements.stalled, &arguments).await?)
    }

    async fn mark_stalled(
        &self,
        silence: Duration,
        limit: u32,
        by: Option<&Actor>,
    ) -> Result<Vec<OperationId>> {
        const MARK: &str = "operation.mark_stalled";
        let [by, about] = actor(by);
        let arguments = [seconds(silence), text(limit), by, about];
        answer::ids(MARK, &self.texts.ask(MARK, &self.statements.mark_stalled, &arguments).await?)
    }

    async fn purge(&self, age: Duration, batch: u32, by: Option<&Actor>) -> Result<u64> {
        let [by, about] = actor(by);
        let arguments = [seconds(age), text(batch), by, about];
        answer::purged(&self.texts.ask("operation.purge", &self.statements.purge, &arguments).await?)
    }
}

impl std::fmt::Debug for PostgresOperations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOperations")
            .field("identifier", &self.texts.identifier())
            .finish_non_exhaustive()
    }
}
