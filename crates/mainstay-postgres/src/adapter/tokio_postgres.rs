//! tokio-postgres: its transactions, and its client within a transaction begun by hand.

use mainstay_core::Result;
use mainstay_core::lease::{GuardIn, LeaseClaim};
use mainstay_core::outbox::{EnqueueIn, Enqueued, PreparedMessage};
use mainstay_core::store::{CallIn, LeaseStore, OutboxStore, StoreCall};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Transaction};

use super::{GUARD, steps};
use crate::addition::Addition;
use crate::error::from_driver;
use crate::lease::{IN_TRANSACTION, PostgresLeases};
use crate::pool::Parameter;
use crate::queue::PostgresQueue;
use crate::rows;
use crate::session::Session;
use crate::statements::QueueStatements;

/// Marks the types of tokio-postgres.
#[derive(Debug)]
pub struct TokioPostgres;

impl EnqueueIn<TokioPostgres> for Transaction<'_> {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        enqueue_on(Session::Unnamed(self.client()), PostgresQueue::of(store)?.statements(), messages).await
    }
}

impl EnqueueIn<TokioPostgres> for Client {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        enqueue_on(Session::Unnamed(self), PostgresQueue::of(store)?.statements(), messages).await
    }
}

impl GuardIn<TokioPostgres> for Transaction<'_> {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        guard_on(self.client(), store, claim).await
    }
}

impl GuardIn<TokioPostgres> for Client {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        guard_on(self, store, claim).await
    }
}

/// Guards a lease in whatever transaction the connection is in, and refuses to where there is none.
pub(crate) async fn guard_on(client: &Client, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
    let failed = |error| from_driver(GUARD, error);
    let leases = PostgresLeases::of(store)?;
    let mut home = leases.home().await?;
    loop {
        let parameters: [Parameter<'_>; 4] = [
            (&claim.name, Type::TEXT),
            (&claim.owner, Type::TEXT),
            (&claim.epoch, Type::INT8),
            (&home, Type::TEXT),
        ];
        // Both are sent before the first is answered, in this order.
        let (in_transaction, guarded) = tokio::join!(
            client.batch_execute(IN_TRANSACTION),
            client.query_typed(&leases.statements().guard, &parameters)
        );
        in_transaction.map_err(failed)?;
        let found: String = rows::value(GUARD, &guarded.map_err(failed)?)?;
        if found == home {
            return Ok(());
        }
        home = leases.moved_to(found).await?;
    }
}

impl CallIn<TokioPostgres> for Transaction<'_> {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        call_on(self.client(), call).await
    }
}

impl CallIn<TokioPostgres> for Client {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        call_on(self, call).await
    }
}

/// Runs what a store does in whatever transaction the connection is in.
pub(crate) async fn call_on(client: &Client, call: &StoreCall) -> Result<Vec<String>> {
    let mut answers = Vec::new();
    for (sql, arguments) in steps(call)? {
        let parameters: Vec<Parameter<'_>> =
            arguments.iter().map(|argument| (argument as &(dyn ToSql + Sync), Type::TEXT)).collect();
        let rows = client.query_typed(sql, &parameters).await;
        let rows = rows.map_err(|error| from_driver(call.operation, error))?;
        answers.extend(rows::answers(call.operation, &rows)?);
    }
    Ok(answers)
}

/// Enqueues in whatever transaction the connection is in.
pub(crate) async fn enqueue_on(
    session: Session<'_>,
    statements: &QueueStatements,
    messages: &[PreparedMessage],
) -> Result<Vec<Enqueued>> {
    match messages {
        [] => Ok(Vec::new()),
        messages => Addition::new(messages).on(session, statements).await,
    }
}
