//! Enqueueing: how many messages a second become durable.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::Context as _;
use mainstay::{JoinId, Message, Outbox};

use super::clock::rate_of;
use super::limits::batch;
use super::progress::{Goal, Progress};
use super::scratch::Place;
use super::{BULK, PAYLOAD_BYTES, Plan, Scratch};
use crate::text::count;

/// What the dispatchers have a handler for.
pub(super) const TOPIC: &str = "bench.work";

pub(super) fn payload() -> Arc<str> {
    "x".repeat(PAYLOAD_BYTES).into()
}

/// Callers that each enqueue one message after the other.
pub(super) async fn standalone(
    progress: &mut Progress,
    title: &str,
    outbox: &Outbox,
    plan: &Plan,
    callers: usize,
) -> anyhow::Result<f64> {
    let payload = payload();
    let caller = |clock: super::clock::Clock| {
        let (outbox, payload) = (outbox.clone(), Arc::clone(&payload));
        async move {
            while clock.is_running() {
                outbox.enqueue(Message::new(TOPIC, &*payload)).await?;
                clock.count(1);
            }
            Ok(())
        }
    };
    rate_of(progress, title, plan.time, caller, callers).await.context("a message could not be enqueued")
}

/// Callers that each begin a transaction, enqueue one message in it, and commit. None where nobody else can have one.
pub(super) async fn in_transaction(
    progress: &mut Progress,
    title: &str,
    scratch: &Scratch,
    outbox: &Outbox,
    plan: &Plan,
    callers: usize,
) -> anyhow::Result<Option<f64>> {
    let payload = payload();
    match &scratch.place {
        Place::Memory => Ok(None),
        Place::Postgres { plain, .. } => {
            let caller = |clock: super::clock::Clock| {
                let (outbox, payload, pool) = (outbox.clone(), Arc::clone(&payload), plain.pool().clone());
                async move {
                    let mut client = pool.get().await?;
                    while clock.is_running() {
                        let mut tx = client.transaction().await?;
                        outbox.enqueue_in(&mut tx, Message::new(TOPIC, &*payload)).await?;
                        tx.commit().await?;
                        clock.count(1);
                    }
                    Ok(())
                }
            };
            rate_of(progress, title, plan.time, caller, callers).await.map(Some)
        }
        Place::SqlServer { server, .. } => {
            let caller = |clock: super::clock::Clock| {
                let (outbox, payload, server) = (outbox.clone(), Arc::clone(&payload), server.clone());
                async move {
                    let mut client = server.client().await?;
                    while clock.is_running() {
                        batch(&mut client, "SET XACT_ABORT ON; BEGIN TRANSACTION").await?;
                        outbox.enqueue_in(&mut client, Message::new(TOPIC, &*payload)).await?;
                        batch(&mut client, "COMMIT TRANSACTION").await?;
                        clock.count(1);
                    }
                    Ok(())
                }
            };
            rate_of(progress, title, plan.time, caller, callers).await.map(Some)
        }
        Place::File { path, .. } => {
            // One connection, lent to one caller after the other: SQLite has one writer.
            let connection = Arc::new(Mutex::new(super::limits::open_sqlite(path)?));
            let caller = |clock: super::clock::Clock| {
                let (outbox, payload, connection) =
                    (outbox.clone(), Arc::clone(&payload), Arc::clone(&connection));
                let work = move || -> anyhow::Result<()> {
                    while clock.is_running() {
                        let mut connection = super::limits::lock(&connection);
                        let mut tx =
                            connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
                        outbox.enqueue_in_blocking(&mut tx, Message::new(TOPIC, &*payload))?;
                        tx.commit()?;
                        clock.count(1);
                    }
                    Ok(())
                };
                async move { tokio::task::spawn_blocking(work).await? }
            };
            rate_of(progress, title, plan.time, caller, callers).await.map(Some)
        }
    }
}

/// One caller that enqueues many messages per call, as steps of a join if there is one.
pub(super) async fn bulk(
    progress: &mut Progress,
    title: &str,
    outbox: &Outbox,
    messages: u64,
    join: Option<JoinId>,
) -> anyhow::Result<f64> {
    let payload = payload();
    let counter = AtomicU64::new(0);
    let started = Instant::now();
    let work = async {
        while counter.load(Ordering::Relaxed) < messages {
            let size = BULK.min(messages - counter.load(Ordering::Relaxed));
            let each = (0..size).map(|_| {
                let message = Message::new(TOPIC, &*payload);
                join.into_iter().fold(message, Message::join)
            });
            outbox.enqueue_many(each.collect()).await?;
            counter.fetch_add(size, Ordering::Relaxed);
        }
        Ok(())
    };
    progress.watch(title, Goal::Count(messages), &counter, work).await?;
    let rate = messages as f64 / started.elapsed().as_secs_f64().max(1e-9);
    progress.finish(title, &format!("{}/s", count(rate as u64)));
    Ok(rate)
}
