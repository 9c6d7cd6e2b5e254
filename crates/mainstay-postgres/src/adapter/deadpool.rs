//! deadpool-postgres: its transactions, and its clients within a transaction begun by hand.

use deadpool_postgres::{ClientWrapper, Object, Transaction};
use mainstay_core::Result;
use mainstay_core::lease::{GuardIn, LeaseClaim};
use mainstay_core::outbox::{EnqueueIn, Enqueued, PreparedMessage};
use mainstay_core::store::{CallIn, LeaseStore, OutboxStore, StoreCall};

use super::{call_on, enqueue_on, guard_on};
use crate::queue::PostgresQueue;
use crate::session::Session;

/// Marks the types of deadpool-postgres.
#[derive(Debug)]
pub struct Deadpool;

impl EnqueueIn<Deadpool> for Transaction<'_> {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        let queue = PostgresQueue::of(store)?;
        enqueue_on(Session::within(self, queue.prepared()), queue.statements(), messages).await
    }
}

impl EnqueueIn<Deadpool> for ClientWrapper {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        let queue = PostgresQueue::of(store)?;
        enqueue_on(Session::of(self, queue.prepared()), queue.statements(), messages).await
    }
}

impl EnqueueIn<Deadpool> for Object {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        let queue = PostgresQueue::of(store)?;
        enqueue_on(Session::of(self, queue.prepared()), queue.statements(), messages).await
    }
}

impl GuardIn<Deadpool> for Transaction<'_> {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        guard_on(self.client(), store, claim).await
    }
}

impl GuardIn<Deadpool> for ClientWrapper {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        guard_on(self, store, claim).await
    }
}

impl GuardIn<Deadpool> for Object {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        guard_on(self, store, claim).await
    }
}

impl CallIn<Deadpool> for Transaction<'_> {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        call_on(self.client(), call).await
    }
}

impl CallIn<Deadpool> for ClientWrapper {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        call_on(self, call).await
    }
}

impl CallIn<Deadpool> for Object {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        call_on(self, call).await
    }
}
