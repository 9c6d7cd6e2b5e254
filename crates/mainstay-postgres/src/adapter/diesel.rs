//! diesel-async: its connections, within a transaction of theirs.
//!
//! At its level `debug` this driver logs the parameters of every statement, payloads among them; keep the target
//! `tokio_postgres` at `info` where that matters.

use diesel::QueryableByName;
use diesel::result::{DatabaseErrorInformation, DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::{Array, Bool, Nullable, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use mainstay_core::lease::{GuardIn, LeaseClaim};
use mainstay_core::outbox::{EnqueueIn, Enqueued, PreparedMessage};
use mainstay_core::store::{CallIn, LeaseStore, OutboxStore, StoreCall};
use mainstay_core::{Error, ErrorKind, Result};

use super::{ENQUEUE, GUARD, enqueued, steps};
use crate::error::{USED_ID, from_server};
use crate::lease::{IN_TRANSACTION, PostgresLeases};
use crate::parameters::addition_as_text;
use crate::queue::PostgresQueue;

/// Marks the types of diesel-async.
#[derive(Debug)]
pub struct DieselAsync;

#[derive(QueryableByName)]
#[diesel(check_for_backend(diesel::pg::Pg))]
struct EnqueuedRow {
    #[diesel(sql_type = Text)]
    work_item_id: String,
    #[diesel(sql_type = Text)]
    message_id: String,
    #[diesel(sql_type = Bool)]
    added: bool,
}

/// A column of texts, as diesel calls it.
type Texts = Nullable<Array<Nullable<Text>>>;

impl EnqueueIn<DieselAsync> for AsyncPgConnection {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        let outbox = PostgresQueue::of(store)?;
        let (statement, columns) = addition_as_text(outbox.statements(), messages);
        let mut query = diesel::sql_query(statement).into_boxed();
        for column in columns {
            query = query.bind::<Texts, _>(column);
        }
        let rows: Vec<EnqueuedRow> =
            query.get_results(self).await.map_err(|error| failed(ENQUEUE, &error))?;
        rows.iter().map(|row| enqueued(&row.work_item_id, &row.message_id, row.added)).collect()
    }
}

#[derive(QueryableByName)]
#[diesel(check_for_backend(diesel::pg::Pg))]
struct GuardedRow {
    #[diesel(sql_type = Text)]
    home: String,
}

impl GuardIn<DieselAsync> for AsyncPgConnection {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        let fail = |error| failed(GUARD, &error);
        let leases = PostgresLeases::of(store)?;
        self.batch_execute(IN_TRANSACTION).await.map_err(fail)?;
        let mut home = leases.home().await?;
        loop {
            let query = diesel::sql_query(&leases.statements().guard_as_text)
                .bind::<Text, _>(&claim.name)
                .bind::<Text, _>(&claim.owner)
                .bind::<Text, _>(claim.epoch.to_string())
                .bind::<Text, _>(&home);
            let guarded: GuardedRow = query.get_result(self).await.map_err(fail)?;
            if guarded.home == home {
                return Ok(());
            }
            home = leases.moved_to(guarded.home).await?;
        }
    }
}

#[derive(QueryableByName)]
#[diesel(check_for_backend(diesel::pg::Pg))]
struct AnswerRow {
    #[diesel(sql_type = Text)]
    answer: String,
}

impl CallIn<DieselAsync> for AsyncPgConnection {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        let mut answers = Vec::new();
        for (sql, arguments) in steps(call)? {
            let mut query = diesel::sql_query(sql).into_boxed();
            for text in arguments {
                query = query.bind::<Nullable<Text>, _>(text);
            }
            let rows: Vec<AnswerRow> =
                query.get_results(self).await.map_err(|error| failed(call.operation, &error))?;
            answers.extend(rows.into_iter().map(|row| row.answer));
        }
        Ok(answers)
    }
}

fn failed(operation: &'static str, error: &DieselError) -> Error {
    match error {
        DieselError::DatabaseError(DatabaseErrorKind::UnableToSendCommand, cause) => {
            let message = format!("the connection broke off: {}", cause.message());
            Error::new(ErrorKind::Unavailable, operation, message)
        }
        DieselError::DatabaseError(kind, server) => {
            from_server(operation, code(kind, server.as_ref()), server.message())
        }
        other => Error::new(ErrorKind::Internal, operation, other.to_string()),
    }
}

/// The SQLSTATE that diesel keeps to itself, as far as it can be told.
fn code(kind: &DatabaseErrorKind, server: &dyn DatabaseErrorInformation) -> &'static str {
    match kind {
        DatabaseErrorKind::UniqueViolation => "23505",
        DatabaseErrorKind::NotNullViolation => "23502",
        DatabaseErrorKind::CheckViolation => "23514",
        DatabaseErrorKind::SerializationFailure => "40001",
        DatabaseErrorKind::ReadOnlyTransaction => "25006",
        DatabaseErrorKind::ClosedConnection => "08006",
        _ => {
            let message = server.message();
            let told = |words: &str| message.contains(words);
            if told("the lease is lost") {
                "ML001"
            } else if told("belongs to a work item that is") {
                USED_ID
            } else if told("so nothing can be attached to it") {
                "MJ001"
            } else if told("there is no j") || told("is no member of the join") {
                "P0002"
            } else if told("can only be used in transaction blocks") {
                "25P01"
            } else if told("needs READ COMMITTED") {
                "25001"
            } else if told("permission denied") {
                "42501"
            } else if told("does not exist") {
                "42883"
            } else if told("current transaction is aborted") {
                "25P02"
            } else {
                ""
            }
        }
    }
}
