//! sqlx: a connection, or a transaction on one.

use mainstay_core::lease::{GuardIn, LeaseClaim};
use mainstay_core::outbox::{EnqueueIn, Enqueued, PreparedMessage};
use mainstay_core::store::{Argument, CallIn, LeaseStore, OutboxStore, Step, StoreCall};
use mainstay_core::{Error, ErrorKind, Result};
use sqlx::{AssertSqlSafe, Connection, Row, Sqlite, SqliteConnection, Transaction};
use uuid::Uuid;

use crate::database::Database;
use crate::error::{Fault, Place, Trouble};
use crate::joins::{ATTACH, attach, attached};
use crate::lease::{GUARD, SqliteLeases, lost, no_transaction};
use crate::queue::{ENQUEUE, id_used, is_used_code, known_as, steps_of_joins, when};
use crate::statements::Statements;

use super::{InSqlite, database_of, database_of_call};

const ENQUEUE_IN: &str = "outbox.enqueue_in";

/// On a connection: within the transaction that is open on it, or in one of its own if none is.
impl EnqueueIn<InSqlite> for SqliteConnection {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        add_all(self, database_of(store)?, messages).await
    }
}

impl EnqueueIn<InSqlite> for Transaction<'_, Sqlite> {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        add_all(self, database_of(store)?, messages).await
    }
}

impl CallIn<InSqlite> for SqliteConnection {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        run_call(self, call).await
    }
}

impl CallIn<InSqlite> for Transaction<'_, Sqlite> {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        run_call(self, call).await
    }
}

async fn run_call(connection: &mut SqliteConnection, call: &StoreCall) -> Result<Vec<String>> {
    let place = database_of_call(call)?.location.place();
    let fail = |error| error_from(place, call.operation, error);
    let mut savepoint = connection.begin().await.map_err(fail)?;
    let answers = run_steps(&mut savepoint, place, call.operation, &call.steps).await?;
    savepoint.commit().await.map_err(fail)?;
    Ok(answers)
}

async fn run_steps(
    connection: &mut SqliteConnection,
    place: &Place,
    operation: &'static str,
    steps: &[Step],
) -> Result<Vec<String>> {
    let fail = |error| error_from(place, operation, error);
    let mut answers = Vec::new();
    for step in steps {
        let query =
            step.arguments.iter().fold(sqlx::query(safe(&step.sql)), |query, argument| match argument {
                Argument::Null => query.bind(None::<i64>),
                Argument::Integer(number) => query.bind(*number),
                Argument::Text(text) => query.bind(text.as_str()),
                Argument::Bytes(bytes) => query.bind(bytes.as_slice()),
            });
        for row in query.fetch_all(&mut *connection).await.map_err(fail)? {
            answers.push(row.try_get(0).map_err(fail)?);
        }
    }
    Ok(answers)
}

async fn add_all(
    connection: &mut SqliteConnection,
    database: &Database,
    messages: &[PreparedMessage],
) -> Result<Vec<Enqueued>> {
    let (place, sql) = (database.location.place(), &*database.statements);
    let fail = |error| error_from(place, ENQUEUE_IN, error);
    // A savepoint within the application's transaction. Dropped before its commit, it takes back what was added.
    let mut savepoint = connection.begin().await.map_err(fail)?;
    let now = sqlx::query_scalar(safe(&sql.clock)).fetch_one(&mut *savepoint).await.map_err(fail)?;
    let mut enqueued = Vec::with_capacity(messages.len());
    for message in messages {
        enqueued.push(add(&mut savepoint, place, sql, message, now).await?);
    }
    for (join, items) in steps_of_joins(messages, &enqueued) {
        let steps = attach(sql, join, &items);
        attached(join, &run_steps(&mut savepoint, place, ATTACH, &steps).await?)?;
    }
    savepoint.commit().await.map_err(fail)?;
    Ok(enqueued)
}

async fn add(
    connection: &mut SqliteConnection,
    place: &Place,
    sql: &Statements,
    message: &PreparedMessage,
    now: i64,
) -> Result<Enqueued> {
    let fail = |error| error_from(place, ENQUEUE_IN, error);
    let (id, message_id) = (bytes(message.work_item().as_uuid()), bytes(message.message().as_uuid()));
    if let Some(key) = message.idempotency_key() {
        let reserve =
            sqlx::query(safe(&sql.enqueue_reserve)).bind(key).bind(id.clone()).bind(message_id.clone());
        if reserve.execute(&mut *connection).await.map_err(fail)?.rows_affected() == 0 {
            let known = sqlx::query_as::<_, (Vec<u8>, Vec<u8>)>(safe(&sql.enqueue_known)).bind(key);
            let (id, message_id) = known.fetch_one(&mut *connection).await.map_err(fail)?;
            return Ok(known_as(uuid_from(&id)?, uuid_from(&message_id)?));
        }
    }
    let (due_at, due_in) = when(message.due());
    let (expires_at, expires_in) = when(message.expires());
    let added = sqlx::query(safe(&sql.enqueue_insert))
        .bind(id)
        .bind(message_id)
        .bind(message.topic())
        .bind(message.payload())
        .bind(now)
        .bind(due_at)
        .bind(due_in)
        .bind(expires_at)
        .bind(expires_in)
        .bind(message.priority())
        .bind(message.ordering_key())
        .bind(message.hold_on_failure())
        .bind(message.idempotency_key())
        .bind(message.correlation_id())
        .bind(message.headers_json())
        .execute(&mut *connection)
        .await;
    match added {
        Ok(_) => Ok(Enqueued { work_item: message.work_item(), message: message.message(), added: true }),
        Err(error) if code(&error).is_some_and(is_used_code) => {
            let status =
                sqlx::query_scalar(safe(&sql.enqueue_status)).bind(bytes(message.work_item().as_uuid()));
            let status = status.fetch_one(connection).await.map_err(fail)?;
            Err(id_used(message.work_item(), status))
        }
        Err(error) => Err(fail(error)),
    }
}

/// The statements come from this crate; only the names in them are the application's, and those are quoted.
fn safe(sql: &str) -> AssertSqlSafe<&str> {
    AssertSqlSafe(sql)
}

fn bytes(id: Uuid) -> Vec<u8> {
    id.as_bytes().to_vec()
}

fn uuid_from(bytes: &[u8]) -> Result<Uuid> {
    let odd =
        |_| Error::new(ErrorKind::Internal, ENQUEUE, "an id in the idempotency table is not 16 bytes long");
    Uuid::from_slice(bytes).map_err(odd)
}

/// On a connection: within the transaction that was begun on it with sqlx. Without one it is refused.
impl GuardIn<InSqlite> for SqliteConnection {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        guard(self, store, claim).await
    }
}

impl GuardIn<InSqlite> for Transaction<'_, Sqlite> {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        guard(self, store, claim).await
    }
}

async fn guard(connection: &mut SqliteConnection, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
    let leases = SqliteLeases::of(store)?;
    let database = leases.database();
    let fail = |error| error_from(database.location.place(), GUARD, error);
    if !connection.is_in_transaction() {
        return Err(no_transaction());
    }
    let clock = sqlx::query_scalar(safe(&database.statements.clock));
    let now: i64 = clock.fetch_one(&mut *connection).await.map_err(fail)?;
    let guard = sqlx::query(safe(&leases.statements().guard))
        .bind(&claim.name)
        .bind(&claim.owner)
        .bind(claim.epoch)
        .bind(now);
    let guarded = guard.execute(&mut *connection).await.map_err(fail)?.rows_affected();
    let home = sqlx::query_scalar(safe(&leases.statements().home));
    let file: String = home.fetch_one(connection).await.map_err(fail)?;
    leases.check_home(&file)?;
    match guarded {
        0 => Err(lost(claim)),
        _ => Ok(()),
    }
}

fn error_from(place: &Place, operation: &'static str, error: sqlx::Error) -> Error {
    match code(&error) {
        Some(code) => {
            let detail = error.as_database_error().map(|error| error.message().to_owned());
            let same = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), detail);
            Trouble::of(&same).at(place, operation).with_source(error)
        }
        None => {
            let text = "sqlx could not run a statement; see the error underneath";
            place.error(
                operation,
                Fault::Core(Error::new(ErrorKind::Unavailable, operation, text).with_source(error)),
            )
        }
    }
}

/// SQLite's extended code.
fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}
