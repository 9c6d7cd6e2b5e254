//! Joins: each method is a few statements in one operation of the writer, or one look of a reader.

mod count;
mod notes;
mod steps;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::audit::{Actor, ITEMS_SHOWN, PreparedAudit};
use mainstay_core::join::{
    Attached, CancelledJoin, Counted, Join, JoinFilter, JoinMember, JoinPage, JoinState, JoinStats,
    MemberPage, PreparedJoin, Reported, Step as Outcome, answer,
};
use mainstay_core::store::{Argument, Capabilities, JoinStore, Names, Step, StoreCall};
use mainstay_core::{JoinId, Result, WorkItemId};
use rusqlite::{Connection, params};
use serde_json::json;

use crate::audit::note;
use crate::call;
use crate::database::Database;
use crate::error::Fault;
use crate::queue;
use crate::statements::{AuditStatements, JoinStatements, Statements};
use crate::value::{span, uuid_at};
use crate::writer::Ticket;

pub(crate) use count::Counting;
use notes::Notes;
pub(crate) use steps::{ATTACH, attach, attached};
use steps::{REPORT, START, bytes, step};

/// Joins in one SQLite database.
pub struct SqliteJoins {
    identifier: String,
    /// That of the outbox.
    database: Arc<Database>,
    statements: Arc<JoinStatements>,
}

impl SqliteJoins {
    pub(crate) fn new(database: Arc<Database>, names: &Names) -> Self {
        let path = database.location.place().path().display();
        let identifier = format!("sqlite:{path}#{}_{}", names.schema(), names.joins());
        Self { identifier, statements: JoinStatements::shared(names), database }
    }

    pub(crate) fn statements(&self) -> &Arc<JoinStatements> {
        &self.statements
    }

    fn call(&self, operation: &'static str, steps: Vec<Step>) -> StoreCall {
        StoreCall {
            operation,
            store: self.identifier.clone(),
            origin: Arc::clone(&self.database) as _,
            steps,
        }
    }

    fn notes(&self) -> Notes<'_> {
        Notes { audit: &self.database.audit, sql: &self.statements }
    }

    async fn read(&self, operation: &'static str, step: Step) -> Result<Vec<String>> {
        let run =
            move |connection: &Connection, _: &Statements| call::run(connection, std::slice::from_ref(&step));
        self.database.read(operation, run).await
    }
}

fn cancel(
    connection: &Connection,
    outbox: &Statements,
    (sql, audit): (&JoinStatements, &AuditStatements),
    join: JoinId,
    by: &Actor,
) -> Result<CancelledJoin, Fault> {
    const CANCEL: &str = "join.cancel";
    let id = join.as_uuid();
    let before = call::run(connection, &[step(&sql.get, [bytes(id)])])?;
    let before = answer::joins(CANCEL, &before)?.pop().ok_or_else(|| answer::unknown(CANCEL, join))?;
    if connection.prepare_cached(&sql.cancel)?.execute([id.as_bytes()])? == 0 {
        return Ok(CancelledJoin::default());
    }
    let mut waiting = connection.prepare_cached(&sql.cancel_waiting)?;
    let waiting = waiting.query_map([id.as_bytes()], |row| uuid_at(row, 0).map(WorkItemId::from_uuid))?;
    let waiting = waiting.collect::<Result<Vec<_>, _>>()?;
    // Other joins count them as failed by this; the cancelled one counts nothing any more.
    let (cancelled, counted) = queue::cancel(connection, outbox, &waiting)?;
    let messages: Vec<_> = cancelled.iter().map(|message| message.id).collect();
    for message in &messages {
        let item = message.as_uuid();
        connection.prepare_cached(&sql.cancel_member)?.execute([id.as_bytes(), item.as_bytes()])?;
    }
    let items: Vec<_> =
        cancelled.iter().take(ITEMS_SHOWN).map(|message| message.told(queue::Verb::Cancel)).collect();
    let data = json!({
        "before": { "state": before.state.as_str(), "completed": before.completed, "failed": before.failed },
        "after": { "state": JoinState::Cancelled.as_str() },
        "count": messages.len(),
        "items": items,
    });
    let record = PreparedAudit::administrative(CANCEL, by, data)
        .about("join", [join.to_string()])
        .about("outbox", messages.iter().map(WorkItemId::to_string));
    note(connection, audit, &record)?;
    Ok(CancelledJoin { changed: true, messages, counted })
}

fn purge(
    connection: &Connection,
    (sql, audit): (&JoinStatements, &AuditStatements),
    age: Duration,
    batch: u32,
    by: Option<&Actor>,
) -> Result<u64, Fault> {
    let mut select = connection.prepare_cached(&sql.purge_select)?;
    let ended = select.query_map(params![span(age), batch], |row| uuid_at(row, 0))?;
    let ended = ended.collect::<Result<Vec<_>, _>>()?;
    let (batch, mut purged) = (batch as usize, 0);
    for id in ended {
        let room = batch - purged;
        let mut members = connection.prepare_cached(&sql.purge_members)?;
        purged += members.execute(params![id.as_bytes(), room as i64])?;
        // The join goes last: one with many members takes several calls.
        if purged >= batch {
            break;
        }
        connection.prepare_cached(&sql.purge_continuations)?.execute([id.as_bytes()])?;
        connection.prepare_cached(&sql.purge)?.execute([id.as_bytes()])?;
        purged += 1;
        if purged >= batch {
            break;
        }
    }
    if let Some(by) = by.filter(|_| purged > 0) {
        let data = json!({ "count": purged, "older_than_seconds": age.as_secs() });
        note(connection, audit, &PreparedAudit::administrative("join.purge", by, data))?;
    }
    Ok(purged as u64)
}

#[async_trait]
impl JoinStore for SqliteJoins {
    fn identifier(&self) -> &str {
        &self.identifier
    }

    fn capabilities(&self) -> Capabilities {
        self.database.capabilities()
    }

    fn starting(&self, join: &PreparedJoin, by: Option<&Actor>) -> StoreCall {
        let mut steps = steps::start(&self.statements, join);
        steps.extend(by.map(|by| self.notes().start(join, by)).unwrap_or_default());
        self.call(START, steps)
    }

    fn started(&self, join: JoinId, answers: &[String]) -> Result<()> {
        steps::started(join, answers)
    }

    fn attaching(&self, join: JoinId, items: &[WorkItemId], by: Option<&Actor>) -> StoreCall {
        // Before they are members, so that it can tell those that were not.
        let mut steps = by.map(|by| self.notes().attach(join, items, by)).unwrap_or_default();
        let mut attach = attach(&self.database.statements, join, items);
        let lapse = attach.remove(0);
        steps.insert(0, lapse);
        steps.extend(attach);
        self.call(ATTACH, steps)
    }

    fn attached(&self, join: JoinId, answers: &[String]) -> Result<Attached> {
        attached(join, answers)
    }

    fn reporting(&self, join: JoinId, item: WorkItemId, step: Outcome, by: Option<&Actor>) -> StoreCall {
        let note = by.map(|by| self.notes().report(join, item, step, by)).unwrap_or_default();
        let steps = steps::report(&self.database.statements, &self.statements, (join, item), step, note);
        self.call(REPORT, steps)
    }

    fn reported(&self, join: JoinId, item: WorkItemId, answers: &[String]) -> Result<Reported> {
        steps::reported(join, item, answers)
    }

    async fn run(&self, call: StoreCall) -> Result<Vec<String>> {
        let ticket = Ticket::new(call.operation, call.steps.len());
        let run = move |connection: &Connection, _: &Statements| call::run(connection, &call.steps);
        // It may have ended a join, and so added its continuation.
        self.database.write_and_wake(ticket, run, |_| true).await
    }

    async fn get(&self, id: JoinId) -> Result<Option<Join>> {
        const GET: &str = "join.get";
        let answers = self.read(GET, step(&self.statements.get, [bytes(id.as_uuid())])).await?;
        Ok(answer::joins(GET, &answers)?.pop())
    }

    async fn list(&self, filter: &JoinFilter, page: JoinPage) -> Result<Vec<Join>> {
        const LIST: &str = "join.list";
        let before = page.before.map_or(Argument::Null, |id| bytes(id.as_uuid()));
        let state = filter.state.map(|state| i64::from(state.code())).into();
        let limit = i64::from(page.limit).into();
        let step = match &filter.grouping_key {
            Some(key) => step(&self.statements.list_group, [before, state, limit, key.as_str().into()]),
            None => step(&self.statements.list, [before, state, limit]),
        };
        answer::joins(LIST, &self.read(LIST, step).await?)
    }

    async fn members(&self, id: JoinId, page: MemberPage) -> Result<Vec<JoinMember>> {
        let after = page.after.map_or(Argument::Null, |item| bytes(item.as_uuid()));
        let arguments = [bytes(id.as_uuid()), after, i64::from(page.limit).into()];
        answer::members(&self.read("join.members", step(&self.statements.members, arguments)).await?)
    }

    async fn of_item(&self, item: WorkItemId) -> Result<Vec<JoinId>> {
        const OF: &str = "join.of_item";
        answer::ids(OF, &self.read(OF, step(&self.statements.of_item, [bytes(item.as_uuid())])).await?)
    }

    async fn cancel(&self, id: JoinId, by: &Actor) -> Result<CancelledJoin> {
        let (joins, audit) = (Arc::clone(&self.statements), Arc::clone(&self.database.audit));
        let by = by.clone();
        let cancel = move |connection: &Connection, sql: &Statements| {
            cancel(connection, sql, (&joins, &audit), id, &by)
        };
        self.database.write_and_wake("join.cancel", cancel, |cancelled| cancelled.changed).await
    }

    async fn expire(&self, limit: u32) -> Result<Vec<Counted>> {
        const EXPIRE: &str = "join.expire";
        let expire = step(&self.statements.expire, [i64::from(limit).into()]);
        let run = move |connection: &Connection, _: &Statements| {
            call::run(connection, std::slice::from_ref(&expire))
        };
        let answers =
            self.database.write_and_wake(EXPIRE, run, |answers: &Vec<String>| !answers.is_empty()).await?;
        let ended =
            answers.iter().map(|answer| answer::counted(EXPIRE, answer)).collect::<Result<Vec<_>>>()?;
        Ok(ended.into_iter().flatten().collect())
    }

    async fn next_deadline(&self) -> Result<Option<Duration>> {
        answer::next_deadline(
            &self.read("join.next_deadline", step(&self.statements.next_deadline, [])).await?,
        )
    }

    async fn stats(&self) -> Result<JoinStats> {
        answer::stats(&self.read("join.stats", step(&self.statements.stats, [])).await?)
    }

    async fn purge(&self, age: Duration, batch: u32, by: Option<&Actor>) -> Result<u64> {
        let (joins, audit, by) =
            (Arc::clone(&self.statements), Arc::clone(&self.database.audit), by.cloned());
        let ticket = Ticket::new("join.purge", batch as usize);
        let purge = move |connection: &Connection, _: &Statements| {
            purge(connection, (&joins, &audit), age, batch, by.as_ref())
        };
        self.database.write(ticket, purge).await
    }
}

impl fmt::Debug for SqliteJoins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJoins").field("identifier", &self.identifier).finish_non_exhaustive()
    }
}
