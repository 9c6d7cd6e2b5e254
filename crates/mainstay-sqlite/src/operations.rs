//! Operations: each method is a few statements in one operation of the writer, or one look of a reader.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::Result;
use mainstay_core::audit::{Actor, ITEMS_SHOWN, PreparedAudit};
use mainstay_core::operation::{
    EventPage, Operation, OperationEnd, OperationEvent, OperationFilter, OperationId, OperationPage,
    PreparedEvent, PreparedOperation, Progress, answer,
};
use mainstay_core::store::{Argument, OperationStore, Step, StoreCall};
use rusqlite::{Connection, params};
use serde_json::json;

use crate::audit::{narrowed, note};
use crate::call;
use crate::database::{Database, operations_identifier};
use crate::error::Fault;
use crate::statements::{AuditStatements, OperationStatements, Statements};
use crate::value::{EVER, micros, span, text_at, uuid_at};
use crate::writer::Ticket;

/// Operations in one SQLite database.
pub struct SqliteOperations {
    identifier: String,
    database: Arc<Database>,
    statements: Arc<OperationStatements>,
}

impl SqliteOperations {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        let identifier = operations_identifier(&database.location, &database.names);
        Self { identifier, statements: OperationStatements::shared(&database.names), database }
    }

    fn call(&self, operation: &'static str, steps: Vec<Step>) -> StoreCall {
        let (store, origin) = (self.identifier.clone(), Arc::clone(&self.database) as _);
        StoreCall { operation, store, origin, steps }
    }

    async fn read(&self, operation: &'static str, step: Step) -> Result<Vec<String>> {
        let run =
            move |connection: &Connection, _: &Statements| call::run(connection, std::slice::from_ref(&step));
        self.database.read(operation, run).await
    }
}

fn bytes(id: OperationId) -> Argument {
    id.as_uuid().as_bytes().as_slice().into()
}

/// A number that was checked to be one of the database's.
fn number(number: Option<u64>) -> Argument {
    number.and_then(|number| i64::try_from(number).ok()).into()
}

fn step<const N: usize>(sql: &Arc<str>, arguments: [Argument; N]) -> Step {
    Step { sql: Arc::clone(sql), arguments: arguments.into() }
}

#[async_trait]
impl OperationStore for SqliteOperations {
    fn identifier(&self) -> &str {
        &self.identifier
    }

    fn starting(&self, operation: &PreparedOperation) -> StoreCall {
        let sql = &self.statements;
        let mut steps = vec![step(
            &sql.start,
            [
                bytes(operation.id),
                operation.name.as_str().into(),
                operation.parent.map_or(Argument::Null, bytes),
                number(operation.progress.total),
                operation.progress.message.clone().into(),
                operation.actor.as_str().into(),
                operation.correlation_id.clone().into(),
            ],
        )];
        let tag = |(key, value): (&String, &String)| {
            step(&sql.tag, [bytes(operation.id), key.as_str().into(), value.as_str().into()])
        };
        steps.extend(operation.tags.iter().map(tag));
        self.call("operation.start", steps)
    }

    fn advancing(&self, id: OperationId, progress: &Progress) -> StoreCall {
        let (done, total) = (number(progress.done), number(progress.total));
        let advance =
            step(&self.statements.progress, [bytes(id), done, total, progress.message.clone().into()]);
        self.call("operation.progress", vec![advance, step(&self.statements.standing, [bytes(id)])])
    }

    fn noting(&self, id: OperationId, event: &PreparedEvent) -> StoreCall {
        let sql = &self.statements;
        let (message, data) = (event.message.clone().into(), event.data.clone().into());
        let steps = vec![
            step(&sql.count_event, [bytes(id)]),
            step(&sql.event, [bytes(id), event.kind.as_str().into(), message, data]),
            step(&sql.standing, [bytes(id)]),
        ];
        self.call("operation.event", steps)
    }

    fn ending(&self, id: OperationId, end: &OperationEnd) -> StoreCall {
        let arguments = [bytes(id), i64::from(end.state().code()).into(), end.error().into()];
        let end = step(&self.statements.end, arguments);
        self.call("operation.end", vec![end, step(&self.statements.standing, [bytes(id)])])
    }

    async fn run(&self, call: StoreCall) -> Result<Vec<String>> {
        let ticket = Ticket::new(call.operation, call.steps.len());
        let run = move |connection: &Connection, _: &Statements| call::run(connection, &call.steps);
        self.database.write(ticket, run).await
    }

    async fn get(&self, id: OperationId) -> Result<Option<Operation>> {
        const GET: &str = "operation.get";
        let answers = self.read(GET, step(&self.statements.get, [bytes(id)])).await?;
        Ok(answer::operations(GET, &answers)?.pop())
    }

    async fn list(&self, filter: &OperationFilter, page: OperationPage) -> Result<Vec<Operation>> {
        const LIST: &str = "operation.list";
        let name = filter.name.as_ref().filter(|name| !name.is_empty());
        let mut arguments: Vec<Argument> = vec![
            name.cloned().into(),
            // Behind every name that begins so.
            name.map(|name| format!("{name}\u{10ffff}")).into(),
            filter.state.map(|state| i64::from(state.code())).into(),
            filter.parent.map_or(Argument::Null, bytes),
            filter.correlation_id.clone().into(),
            filter.after.map_or(EVER.0, micros).into(),
            filter.before.map_or(EVER.1, micros).into(),
            page.before.map_or(Argument::Null, bytes),
            i64::from(page.limit).into(),
        ];
        let text = match &filter.tag {
            None => &self.statements.list,
            Some((key, value)) => {
                arguments.extend([key.as_str().into(), value.as_str().into()]);
                &self.statements.list_tagged
            }
        };
        let given = [
            (1, name.is_some()),
            (3, filter.state.is_some()),
            (4, filter.parent.is_some()),
            (5, filter.correlation_id.is_some()),
        ];
        let step = Step { sql: narrowed(text, &given).into(), arguments };
        answer::operations(LIST, &self.read(LIST, step).await?)
    }

    async fn events(&self, id: OperationId, page: EventPage) -> Result<Vec<OperationEvent>> {
        const EVENTS: &str = "operation.events";
        let arguments = [bytes(id), number(Some(page.after)), i64::from(page.limit).into()];
        answer::events(EVENTS, &self.read(EVENTS, step(&self.statements.events, arguments)).await?)
    }

    async fn stalled(&self, silence: Duration, limit: u32) -> Result<Vec<Operation>> {
        const STALLED: &str = "operation.stalled";
        let arguments = [span(silence).into(), i64::from(limit).into()];
        answer::operations(STALLED, &self.read(STALLED, step(&self.statements.stalled, arguments)).await?)
    }

    async fn mark_stalled(
        &self,
        silence: Duration,
        limit: u32,
        by: Option<&Actor>,
    ) -> Result<Vec<OperationId>> {
        let (sql, audit, by) = (Arc::clone(&self.statements), Arc::clone(&self.database.audit), by.cloned());
        let mark = move |connection: &Connection, all: &Statements| {
            let now = all.now(connection)?;
            mark_stalled(connection, &sql, &audit, now, silence, limit, by.as_ref())
        };
        self.database.write(Ticket::new("operation.mark_stalled", limit as usize), mark).await
    }

    async fn purge(&self, age: Duration, batch: u32, by: Option<&Actor>) -> Result<u64> {
        let (sql, audit, by) = (Arc::clone(&self.statements), Arc::clone(&self.database.audit), by.cloned());
        let purge = move |connection: &Connection, all: &Statements| {
            purge(connection, &sql, &audit, all.now(connection)?, age, batch, by.as_ref())
        };
        self.database.write(Ticket::new("operation.purge", batch as usize), purge).await
    }
}

fn mark_stalled(
    connection: &Connection,
    sql: &OperationStatements,
    audit: &AuditStatements,
    now: i64,
    silence: Duration,
    limit: u32,
    by: Option<&Actor>,
) -> Result<Vec<OperationId>, Fault> {
    let mut select = connection.prepare_cached(&sql.stalled_ids)?;
    let since = now.saturating_sub(span(silence));
    let found = select.query_map(params![since, limit], |row| Ok((uuid_at(row, 0)?, text_at(row, 1)?)))?;
    let found = found.collect::<Result<Vec<_>, _>>()?;
    for (id, _) in &found {
        connection.prepare_cached(&sql.mark_stalled)?.execute(params![id.as_bytes(), now])?;
    }
    if let Some(by) = by.filter(|_| !found.is_empty()) {
        let item = |(id, name): &(uuid::Uuid, String)| json!({ "id": id, "name": name, "before": { "state": "running" }, "after": { "state": "stalled" } });
        let items: Vec<_> = found.iter().take(ITEMS_SHOWN).map(item).collect();
        let data =
            json!({ "count": found.len(), "silent_for_seconds": silence.as_secs_f64(), "items": items });
        let about = found.iter().map(|(id, _)| id.to_string());
        let record =
            PreparedAudit::administrative("operation.mark_stalled", by, data).about("operation", about);
        note(connection, audit, &record)?;
    }
    Ok(found.into_iter().map(|(id, _)| OperationId::from_uuid(id)).collect())
}

fn purge(
    connection: &Connection,
    sql: &OperationStatements,
    audit: &AuditStatements,
    now: i64,
    age: Duration,
    batch: u32,
    by: Option<&Actor>,
) -> Result<u64, Fault> {
    let mut select = connection.prepare_cached(&sql.purge_select)?;
    let doomed = select.query_map(params![now.saturating_sub(span(age)), batch], |row| uuid_at(row, 0))?;
    let doomed = doomed.collect::<Result<Vec<_>, _>>()?;
    for id in &doomed {
        for statement in [&sql.purge_tags, &sql.purge_events, &sql.purge] {
            connection.prepare_cached(statement)?.execute([id.as_bytes()])?;
        }
    }
    let count = doomed.len() as u64;
    if let Some(by) = by.filter(|_| count > 0) {
        let data = json!({ "count": count, "older_than_seconds": age.as_secs() });
        note(connection, audit, &PreparedAudit::administrative("operation.purge", by, data))?;
    }
    Ok(count)
}

impl fmt::Debug for SqliteOperations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOperations").field("identifier", &self.identifier).finish_non_exhaustive()
    }
}
