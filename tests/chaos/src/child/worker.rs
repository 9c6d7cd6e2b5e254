//! A worker of the library: handles the outbox's messages and what the inbox has received.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use mainstay::backoff::Backoff;
use mainstay::postgres::PostgresTransaction;
use mainstay::runtime::QueueBuilder;
use mainstay::sqlite::SqliteTransaction;
use mainstay::sqlserver::SqlServerTransaction;
use mainstay::store::StoreTransaction;
use mainstay::{Context, HandlerError, Mainstay, TopicPolicy};

use crate::history::{Answer, Call, QueueName, Recorder};

use super::Child;
use super::application::execute;
use super::payload::{Act, Payload};
use super::recorded::{Owners, claim};
use super::session::Engine;
use super::trouble::record;

/// What all topics begin with.
pub(super) const TOPICS: &str = "chaos.";

/// What the handlers share.
struct Handling {
    recorder: Arc<Recorder>,
    owners: Owners,
    queue: QueueName,
    engine: Engine,
}

/// Sets a queue up to handle all topics.
fn set_up<R>(queue: QueueBuilder<R>, handling: Handling, child: &Child) -> QueueBuilder<R> {
    let policy = TopicPolicy::default()
        .backoff(Backoff::fixed(Duration::from_millis(200)))
        .attempts(child.delivery_limit);
    let handling = Arc::new(handling);
    let handler = move |context| handle(Arc::clone(&handling), context);
    let lease = child.lease;
    queue
        .raw_prefix_handler_with(TOPICS, policy, handler)
        .retention(None)
        .gauges_every(None)
        .reap_every(Some(lease))
        .options(|options| {
            options.lease = lease;
            options.poll_max = Duration::from_secs(1);
            options.grace = lease;
            options.concurrency = 8;
            options.batch = 10;
            options.prefetch = 10;
        })
}

/// Runs until the process is to stop.
pub(super) async fn run(child: Child) -> Result<()> {
    let Some(provider) = child.recorded().await else { return Ok(()) };
    let handling = |queue| Handling {
        recorder: Arc::clone(&child.recorder),
        owners: provider.owners(),
        queue,
        engine: child.database.engine(),
    };
    let mainstay = Mainstay::builder_over(provider.clone())
        .outbox(|outbox| set_up(outbox, handling(QueueName::Outbox), &child))
        .inbox(|inbox| set_up(inbox, handling(QueueName::Inbox), &child))
        .build()?;
    // A server that is down for a moment fails the start, and the process is started again.
    let running = mainstay.start().await?;
    child.stop.cancelled().await;
    running.stop().await?;
    Ok(())
}

/// Does what the payload says.
async fn handle(handling: Arc<Handling>, context: Context) -> Result<(), HandlerError> {
    let claim = claim(&context.message().handle);
    let owner = handling.owners.of(handling.queue);
    let handled = handling.recorder.invoke(Call::Handle { queue: handling.queue, owner, claim });
    let payload = Payload::read(context.payload());
    tokio::time::sleep(Duration::from_millis(payload.ms)).await;
    let result = match payload.act {
        Act::Ack => Ok(()),
        Act::Fail => Err(HandlerError::fail("as the payload says")),
        Act::Retry(times) if context.attempt() <= times => Err(HandlerError::retry("as the payload says")),
        Act::Snooze if claim.is_to_be_snoozed() => Err(HandlerError::snooze(Duration::from_millis(100))),
        Act::Complete | Act::Retry(_) | Act::Snooze => {
            let completing = handling.recorder.invoke(Call::Complete { queue: handling.queue, owner, claim });
            let result = complete(handling.engine, &context).await;
            record(completing, &result, |()| Answer::Done);
            result.map_err(HandlerError::from)
        }
    };
    handled.ok(Answer::Done);
    result
}

/// Writes an effect and acks, in one transaction.
async fn complete(engine: Engine, context: &Context) -> mainstay::Result<()> {
    match engine {
        Engine::Postgres => complete_in::<PostgresTransaction>(context).await,
        Engine::Sqlite => complete_in::<SqliteTransaction>(context).await,
        Engine::SqlServer => complete_in::<SqlServerTransaction>(context).await,
    }
}

async fn complete_in<T: StoreTransaction>(context: &Context) -> mainstay::Result<()> {
    let mut tx = context.transaction::<T>().await?;
    execute(tx.driver(), format!("insert into chaos_effect values ('{}')", context.id())).await?;
    tx.complete().await
}
