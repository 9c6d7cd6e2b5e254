//! The ledger of received messages: each method is a few statements in one operation of the writer, or one look of a reader.
//!
//! What may also happen in a transaction of the application's is worded as a call, so that every driver can run it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::audit::{Actor, ITEMS_SHOWN, PreparedAudit};
use mainstay_core::inbox::{
    BeginAnswer, ContentHash, EntryState, InboxEntry, InboxFilter, InboxKey, InboxPage, InboxRetention,
    LedgerStats, Mark, PreparedIncoming, Received, ReceivedOutcome, Reservation, ReservationEnd, Seen,
    answer,
};
use mainstay_core::store::{Argument, InboxStore, Names, Step, StoreCall};
use mainstay_core::{Error, ErrorKind, OwnerToken, Result, WorkItemId};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::audit::note;
use crate::call;
use crate::database::Database;
use crate::error::Fault;
use crate::queue::{purge_told, requeue, when};
use crate::statements::{AuditStatements, InboxStatements, Statements};
use crate::value::{lease_span, maybe_uuid_at, span};
use crate::writer::Ticket;

const ENQUEUE: &str = "inbox.enqueue";

/// The ledger of received messages in one SQLite database.
pub struct SqliteInbox {
    /// That of the inbox's queue.
    database: Arc<Database>,
    statements: Arc<InboxStatements>,
}

fn step<const N: usize>(sql: &Arc<str>, arguments: [Argument; N]) -> Step {
    Step { sql: Arc::clone(sql), arguments: arguments.into() }
}

fn bytes(id: Uuid) -> Argument {
    id.as_bytes().as_slice().into()
}

fn hash_bytes(hash: Option<&ContentHash>) -> Argument {
    hash.map(|hash| hash.as_bytes().as_slice()).into()
}

/// The arguments every statement begins with.
fn key_of(key: &InboxKey) -> [Argument; 2] {
    [key.source().into(), key.message_id().into()]
}

impl SqliteInbox {
    pub(crate) fn new(database: Arc<Database>, names: &Names) -> Self {
        Self { database, statements: InboxStatements::shared(names) }
    }

    fn call(&self, operation: &'static str, steps: Vec<Step>) -> StoreCall {
        let origin = Arc::clone(&self.database);
        StoreCall { operation, store: self.database.identifier.clone(), origin, steps }
    }

    /// Runs it in a transaction of its own, and tells those who wait for work if there may be some.
    async fn write(
        &self,
        ticket: impl Into<Ticket>,
        steps: Vec<Step>,
        wakes: fn(&Vec<String>) -> bool,
    ) -> Result<Vec<String>> {
        let run = move |connection: &Connection, _: &Statements| call::run(connection, &steps);
        self.database.write_and_wake(ticket, run, wakes).await
    }

    async fn read(&self, operation: &'static str, step: Step) -> Result<Vec<String>> {
        let run =
            move |connection: &Connection, _: &Statements| call::run(connection, std::slice::from_ref(&step));
        self.database.read(operation, run).await
    }

    fn completion_steps(&self, reservation: &Reservation, state: i64, error: Option<&str>) -> Vec<Step> {
        let [source, message_id, owner, generation] = held(reservation);
        let arguments = [source, message_id, owner, generation, state.into(), error.into()];
        vec![step(&self.statements.guard_settle, arguments)]
    }

    fn reception_steps(&self, messages: &[PreparedIncoming]) -> Vec<Step> {
        let mut steps = Vec::with_capacity(messages.len() * 3);
        for incoming in messages {
            let ([source, message_id], hash) = (key_of(incoming.key()), hash_bytes(Some(incoming.hash())));
            let message = incoming.message();
            let ((due_at, due_in), (expires_at, expires_in)) = (when(message.due()), when(message.expires()));
            let key = || [source.clone(), message_id.clone()];
            let [s, m] = key();
            steps.push(step(&self.statements.enqueue_before, [s, m, hash.clone()]));
            let [s, m] = key();
            steps.push(step(
                &self.statements.enqueue,
                [
                    s,
                    m,
                    hash,
                    message.topic().into(),
                    message.payload().into(),
                    message.correlation_id().into(),
                    due_at.into(),
                    due_in.into(),
                    expires_at.into(),
                    expires_in.into(),
                    i64::from(message.priority()).into(),
                    message.ordering_key().into(),
                    i64::from(message.hold_on_failure()).into(),
                    message.headers_json().into(),
                    bytes(message.work_item().as_uuid()),
                    bytes(message.message().as_uuid()),
                ],
            ));
            steps.push(step(&self.statements.enqueue_after, key()));
        }
        steps
    }
}

fn held(reservation: &Reservation) -> [Argument; 4] {
    let [source, message_id] = key_of(&reservation.key);
    [source, message_id, bytes(reservation.owner.as_uuid()), reservation.generation.into()]
}

/// What the answers of [`SqliteInbox::reception_steps`] say: how each message stood before, and how it stands now.
fn received(answers: &[String]) -> Result<Vec<Received>> {
    let read = |pair: &[String]| {
        let [before, after] = pair else {
            return Err(Error::new(ErrorKind::Internal, ENQUEUE, "the database gave half an answer"));
        };
        let (state, answer::Flag(hash_mismatch), answer::Flag(was_open)): (i64, answer::Flag, answer::Flag) =
            answer::read(ENQUEUE, before)?;
        let (work_item, status): (Option<Uuid>, Option<i64>) = answer::read(ENQUEUE, after)?;
        let outcome = match (state, was_open, status) {
            (2, ..) => ReceivedOutcome::Done,
            (3, ..) => ReceivedOutcome::Revived,
            (_, true, Some(1)) => ReceivedOutcome::InProgress,
            (_, true, _) => ReceivedOutcome::Replaced,
            (_, false, _) => ReceivedOutcome::Added,
        };
        Ok(Received { outcome, work_item: work_item.map(WorkItemId::from_uuid), hash_mismatch })
    };
    answers.chunks(2).map(read).collect()
}

#[async_trait]
impl InboxStore for SqliteInbox {
    fn identifier(&self) -> &str {
        &self.database.identifier
    }

    async fn seen(&self, key: &InboxKey, hash: Option<&ContentHash>) -> Result<Seen> {
        let [source, message_id] = key_of(key);
        let steps = vec![step(&self.statements.seen, [source, message_id, hash_bytes(hash)])];
        answer::seen(&self.write("inbox.seen", steps, |_| false).await?)
    }

    async fn mark(&self, key: &InboxKey, mark: &Mark, by: Option<&Actor>) -> Result<bool> {
        let sql = &self.statements;
        let [source, message_id] = key_of(key);
        let settle = |state: i64, error: Argument| {
            step(&sql.mark_settled, [source.clone(), message_id.clone(), state.into(), error])
        };
        let steps = match mark {
            Mark::Processing(lease) => {
                let mark = [source.clone(), message_id.clone(), lease_span(*lease).into()];
                vec![step(&sql.mark_processing, mark), step(&sql.postpone, key_of(key))]
            }
            Mark::Processed => {
                vec![settle(2, Argument::Null), step(&sql.mark_done_after_all, key_of(key))]
            }
            Mark::Dead(error) => {
                let error: Argument = error.clone().into();
                let again = [source.clone(), message_id.clone(), error.clone()];
                vec![settle(3, error), step(&sql.mark_dead_again, again)]
            }
        };
        let steps = [steps, vec![step(&sql.touch, key_of(key))]].concat();
        let (key, verb, inbox) = (key.clone(), mark.as_str(), Arc::clone(&self.statements));
        let (by, audit) = (by.cloned(), Arc::clone(&self.database.audit));
        let work = move |connection: &Connection, _: &Statements| {
            let state = || state(connection, &inbox, &key);
            let before = state()?;
            let changed = !call::run(connection, &steps)?.is_empty();
            if let Some(by) = by.as_ref().filter(|_| changed) {
                let data = json!({ "before": { "state": before }, "after": { "state": state()? } });
                let record = PreparedAudit::administrative(format!("inbox.mark_{verb}"), by, data);
                note(connection, &audit, &about(record, &key))?;
            }
            Ok(changed)
        };
        // What stood behind it in its ordering key may be ready now.
        self.database.write_and_wake("inbox.mark", work, |_| true).await
    }

    async fn begin(
        &self,
        key: &InboxKey,
        hash: Option<&ContentHash>,
        owner: OwnerToken,
        lease: Duration,
    ) -> Result<BeginAnswer> {
        let (sql, hash, owner) = (&self.statements, hash_bytes(hash), bytes(owner.as_uuid()));
        let with = |last: &[Argument]| [&key_of(key)[..], std::slice::from_ref(&hash), last].concat();
        let steps = vec![
            Step { sql: Arc::clone(&sql.begin), arguments: with(&[owner.clone(), lease_span(lease).into()]) },
            Step { sql: Arc::clone(&sql.begun), arguments: with(&[owner]) },
            Step { sql: Arc::clone(&sql.begin_seen), arguments: with(&[]) },
        ];
        answer::begun(&self.write("inbox.begin", steps, |_| false).await?)
    }

    async fn renew(&self, reservation: &Reservation, lease: Duration) -> Result<Option<Timestamp>> {
        let [source, message_id, owner, generation] = held(reservation);
        let renew = [source, message_id, owner, generation, lease_span(lease).into()];
        let steps = vec![
            step(&self.statements.renew, renew),
            step(&self.statements.postpone, key_of(&reservation.key)),
        ];
        let answers = self.write("inbox.renew", steps, |_| false).await?;
        if answers.is_empty() { Ok(None) } else { answer::renewed(&answers) }
    }

    async fn end(&self, reservation: &Reservation, end: &ReservationEnd) -> Result<bool> {
        let steps = match end {
            ReservationEnd::Complete => self.completion_steps(reservation, 2, None),
            ReservationEnd::Fail(error) => self.completion_steps(reservation, 3, error.as_deref()),
            ReservationEnd::Release(error) => {
                let [source, message_id, owner, generation] = held(reservation);
                let release = [source, message_id, owner, generation, error.clone().into()];
                vec![
                    step(&self.statements.guard_release, release),
                    step(&self.statements.hasten, key_of(&reservation.key)),
                ]
            }
        };
        Ok(!self.write("inbox.end", steps, |_| true).await?.is_empty())
    }

    async fn enqueue(&self, messages: &[PreparedIncoming]) -> Result<Vec<Received>> {
        let ticket = Ticket::new(ENQUEUE, messages.len());
        received(&self.write(ticket, self.reception_steps(messages), |_| true).await?)
    }

    async fn get(&self, key: &InboxKey) -> Result<Option<InboxEntry>> {
        const GET: &str = "inbox.get";
        let answers = self.read(GET, step(&self.statements.get, key_of(key))).await?;
        Ok(answer::entries(GET, &answers)?.pop())
    }

    async fn list(&self, filter: &InboxFilter, page: &InboxPage) -> Result<Vec<InboxEntry>> {
        const LIST: &str = "inbox.list";
        let after = page.after.as_ref();
        let mut arguments: Vec<Argument> = vec![
            filter.source.clone().into(),
            filter.topic.clone().into(),
            after.map(InboxKey::source).into(),
            after.map(InboxKey::message_id).into(),
            i64::from(page.limit).into(),
        ];
        let sql = match filter.state {
            None => &self.statements.list,
            Some(state) => {
                arguments.push(i64::from(state.code()).into());
                &self.statements.list_state
            }
        };
        let step = Step { sql: Arc::clone(sql), arguments };
        answer::entries(LIST, &self.read(LIST, step).await?)
    }

    async fn revive(&self, keys: &[InboxKey], by: &Actor) -> Result<Vec<InboxKey>> {
        let ticket = Ticket::new("inbox.revive", keys.len());
        let (keys, statements) = (keys.to_vec(), Arc::clone(&self.statements));
        let (by, audit) = (by.clone(), Arc::clone(&self.database.audit));
        let revive = move |connection: &Connection, sql: &Statements| {
            let revived = revive(connection, sql, &statements, &keys)?;
            record_revived(connection, &statements, &audit, &revived, &by)?;
            Ok(revived)
        };
        self.database.write_and_wake(ticket, revive, |revived| !revived.is_empty()).await
    }

    async fn stats(&self) -> Result<LedgerStats> {
        answer::stats(&self.read("inbox.stats", step(&self.statements.stats, [])).await?)
    }

    async fn forget(&self, retention: &InboxRetention, by: Option<&Actor>) -> Result<u64> {
        let ticket = Ticket::new("inbox.forget", retention.batch as usize);
        let (retention, statements) = (*retention, Arc::clone(&self.statements));
        let (by, audit) = (by.cloned(), Arc::clone(&self.database.audit));
        let forget = move |connection: &Connection, sql: &Statements| {
            let forgotten = forget(connection, sql, &statements, &retention)?;
            if let Some(by) = by.as_ref().filter(|_| forgotten > 0) {
                let data = purge_told(forgotten, retention.done, retention.dead);
                note(connection, &audit, &PreparedAudit::administrative("inbox.forget", by, data))?;
            }
            Ok(forgotten)
        };
        self.database.write(ticket, forget).await
    }

    fn completion(&self, reservation: &Reservation) -> StoreCall {
        self.call("inbox.complete_in", self.completion_steps(reservation, 2, None))
    }

    fn completed(&self, answers: &[String]) -> Result<bool> {
        Ok(!answers.is_empty())
    }

    fn reception(&self, messages: &[PreparedIncoming]) -> StoreCall {
        self.call("inbox.enqueue_in", self.reception_steps(messages))
    }

    fn received(&self, answers: &[String]) -> Result<Vec<Received>> {
        received(answers)
    }
}

/// Where a message stands in the ledger, as a record tells it.
fn state(connection: &Connection, inbox: &InboxStatements, key: &InboxKey) -> Result<Option<String>, Fault> {
    let mut find = connection.prepare_cached(&inbox.state)?;
    let found = find.query_row(params![key.source(), key.message_id()], |row| row.get(0)).optional()?;
    Ok(found.map(EntryState::from_code).transpose()?.map(|state| state.to_string()))
}

fn about(record: PreparedAudit, key: &InboxKey) -> PreparedAudit {
    record.about("inbox", [key.message_id()]).about("source", [key.source()])
}

fn record_revived(
    connection: &Connection,
    inbox: &InboxStatements,
    audit: &AuditStatements,
    revived: &[InboxKey],
    by: &Actor,
) -> Result<(), Fault> {
    if revived.is_empty() {
        return Ok(());
    }
    let mut items = Vec::new();
    for key in revived.iter().take(ITEMS_SHOWN) {
        let after = json!({ "state": state(connection, inbox, key)? });
        let (source, message_id) = (key.source(), key.message_id());
        items.push(json!({ "source": source, "message_id": message_id, "before": { "state": "dead" }, "after": after }));
    }
    let data: Value = json!({ "count": revived.len(), "items": items });
    let record = PreparedAudit::administrative("inbox.requeue", by, data);
    let record = record.about("inbox", revived.iter().map(InboxKey::message_id));
    note(connection, audit, &record.about("source", revived.iter().map(InboxKey::source)))
}

fn revive(
    connection: &Connection,
    sql: &Statements,
    inbox: &InboxStatements,
    keys: &[InboxKey],
) -> Result<Vec<InboxKey>, Fault> {
    let mut revived = Vec::new();
    for key in keys {
        let key_values = params![key.source(), key.message_id()];
        let mut find = connection.prepare_cached(&inbox.revive_find)?;
        let dead = find.query_row(key_values, |row| maybe_uuid_at(row, 0)).optional()?;
        let Some(work_item) = dead else { continue };
        // From the queue's history, if it is there: the ledger follows.
        let work_item: Vec<_> = work_item.map(WorkItemId::from_uuid).into_iter().collect();
        if requeue(connection, sql, &work_item)?.is_empty() {
            connection.prepare_cached(&inbox.revive)?.execute(key_values)?;
        }
        revived.push(key.clone());
    }
    Ok(revived)
}

fn forget(
    connection: &Connection,
    sql: &Statements,
    inbox: &InboxStatements,
    retention: &InboxRetention,
) -> Result<u64, Fault> {
    let now = sql.now(connection)?;
    let mut room = i64::from(retention.batch);
    let mut forgotten = 0;
    for (state, age) in [(2, retention.done), (3, retention.dead)] {
        let Some(age) = age else { continue };
        let until = now.saturating_sub(span(age));
        let mut select = connection.prepare_cached(&inbox.forget_select)?;
        let found = select.query_map(params![state, until, room], |row| {
            Ok((row.get::<_, i64>(0)?, maybe_uuid_at(row, 1)?))
        })?;
        let doomed = found.collect::<Result<Vec<_>, _>>()?;
        for (row, work_item) in &doomed {
            connection.prepare_cached(&inbox.forget_entry)?.execute([row])?;
            if let Some(id) = work_item {
                connection.prepare_cached(&inbox.forget_history)?.execute([id.as_bytes()])?;
            }
        }
        forgotten += doomed.len() as u64;
        room -= doomed.len() as i64;
    }
    Ok(forgotten)
}

impl fmt::Debug for SqliteInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteInbox").field("identifier", &self.database.identifier).finish_non_exhaustive()
    }
}
