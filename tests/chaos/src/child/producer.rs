//! A producer: enqueues messages by themselves, and in transactions of its own that commit or roll back.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use mainstay::outbox::{EnqueueIn, EnqueueInBlocking, Enqueued, Message, OnFailure, Outbox, PreparedMessage};
use mainstay::store::Provider;
use mainstay::{JoinId, Joins, MessageId, NewJoin, NewTimer, Timers, WorkItemId};
use uuid::Uuid;

use crate::history::{Answer, Call, Sent, Trouble, Within, now};

use super::Child;
use super::payload::Payload;
use super::recorded::{Recorded, enqueued, sent};
use super::trouble::{record, record_driver, trouble};

/// Ordering keys in use.
pub(super) const KEYS: u64 = 12;

/// How long producers use the same idempotency key, in nanoseconds.
const SAME_KEY_NS: u64 = 2_000_000_000;

/// Runs until the process is to stop.
pub(super) async fn run(mut child: Child) -> Result<()> {
    let Some(provider) = child.recorded().await else { return Ok(()) };
    let outbox = Outbox::new(provider.outbox());
    let timers = Timers::new(provider.as_ref());
    loop {
        let ms = child.random.between(5, 60);
        if !child.pause(ms).await {
            return Ok(());
        }
        let count = if child.random.percent(70) { 1 } else { child.random.between(2, 6) };
        let messages: Vec<Message> = (0..count).map(|_| message(&mut child)).collect();
        // What becomes of it is recorded, and what failed is not tried again.
        match child.random.between(0, 99) {
            0..40 => drop(outbox.enqueue_many(messages).await),
            40..45 => again(&child, &outbox).await,
            45..70 => business(&child, &outbox, messages, Within::Commit).await,
            70..85 => business(&child, &outbox, messages, Within::Rollback).await,
            85..95 => schedule(&mut child, &timers).await,
            _ => join(&mut child, &provider, &outbox).await,
        }
    }
}

/// Enqueues a message with an id of the application's own, and again while it is not known what became of it.
async fn again(child: &Child, outbox: &Outbox) {
    let id = Uuid::new_v4();
    let message = Message::new("chaos.plain", Payload::plain().text())
        .work_item_id(WorkItemId::from_uuid(id))
        .message_id(MessageId::from_uuid(id));
    for _ in 0..5 {
        match outbox.enqueue(message.clone()).await {
            Err(error) if error.is_retryable() => drop(child.pause(200).await),
            // Added, or known by now.
            _ => return,
        }
    }
}

/// Schedules timers, and cancels some of them.
async fn schedule(child: &mut Child, timers: &Timers) {
    let timer = |child: &mut Child| {
        let due = Duration::from_millis(child.random.between(1, 3_000));
        NewTimer::new("chaos.timer", Payload::plain().text(), due)
    };
    let new: Vec<NewTimer> = (0..child.random.between(1, 3)).map(|_| timer(child)).collect();
    if let Ok(scheduled) = timers.schedule_many(new).await
        && child.random.percent(20)
    {
        let ids: Vec<WorkItemId> = scheduled.iter().map(|timer| timer.work_item).collect();
        drop(timers.cancel_many(&ids).await);
    }
}

/// Starts a join with its members and a continuation, in one transaction.
async fn join(child: &mut Child, provider: &Arc<Recorded>, outbox: &Outbox) {
    let id = JoinId::new();
    let (count, next) = (child.random.between(1, 4), WorkItemId::new());
    // The same message, however the join ends.
    let continuation = Message::new("chaos.joined", Payload::plain().text()).work_item_id(next);
    let member = |_| Message::new("chaos.member", Payload::plain().text()).join(id).prepare(outbox.limits());
    let Ok(members) = (0..count).map(member).collect::<mainstay::Result<Vec<_>>>() else { return };
    let Ok(recorded) = continuation.clone().prepare(outbox.limits()) else { return };
    let invoked = child.recorder.invoke(Call::Join {
        id: id.as_uuid(),
        members: members.iter().map(sent).collect(),
        continuation: sent(&recorded),
    });
    let starting = async {
        let mut tx = provider.outbox().begin().await?;
        let join =
            NewJoin::new(count as u32).id(id).on_completed(continuation.clone()).on_failed(continuation);
        Joins::new(provider.joins()).start_in(&mut tx, join).await?;
        tx.enqueue(&members).await?;
        Ok::<_, mainstay::Error>(tx)
    };
    match starting.await {
        Ok(tx) => record(invoked, &tx.commit().await, |()| Answer::Done),
        // The commit was not sent, so nothing of it stays.
        Err(error) => invoked.fail(trouble(&error)),
    }
}

/// A message as drawn.
fn message(child: &mut Child) -> Message {
    let lease_ms = child.lease_ms();
    let payload = Payload::draw(&mut child.random, lease_ms);
    let mut message = Message::new("chaos.plain", payload.text());
    if child.random.percent(10) {
        let id = Uuid::new_v4();
        message = message.work_item_id(WorkItemId::from_uuid(id)).message_id(MessageId::from_uuid(id));
    } else if child.random.percent(8) {
        // All producers have the same key for a while.
        message = message.idempotency_key(format!("key-{}", now() / SAME_KEY_NS));
    }
    if child.random.percent(35) {
        message = message.ordering_key(format!("key-{}", child.random.between(1, KEYS)));
        if child.random.percent(10) {
            message = message.on_failure(OnFailure::Hold);
        }
    } else if child.random.percent(10) {
        message = message.due_in(Duration::from_millis(child.random.between(50, 3_000)));
    } else if child.random.percent(10) {
        message = message.priority(child.random.between(0, 6) as i16 - 3);
    }
    message
}

/// Enqueues in a transaction of the application, beside a row of its own.
async fn business(child: &Child, outbox: &Outbox, messages: Vec<Message>, within: Within) {
    // With ids that are known before the call.
    let prepared: Vec<PreparedMessage> =
        messages.into_iter().filter_map(|message| message.prepare(outbox.limits()).ok()).collect();
    let sent: Vec<Sent> = prepared.iter().map(sent).collect();
    let ids: Vec<Uuid> = sent.iter().map(|sent| sent.id).collect();
    if child.database.sqlite().is_some() {
        // Blocks, as a program does that has no runtime.
        let work = || in_sqlite(child, outbox, &prepared, within, sent, &ids);
        tokio::task::block_in_place(work);
    } else {
        in_postgres(child, outbox, &prepared, within, sent, &ids).await;
    }
}

/// A failure before the commit was sent: the transaction is rolled back.
fn before_commit(text: impl std::fmt::Display) -> Trouble {
    Trouble { kind: "BeforeCommit".to_owned(), text: text.to_string() }
}

async fn in_postgres(
    child: &Child,
    outbox: &Outbox,
    messages: &[PreparedMessage],
    within: Within,
    sent: Vec<Sent>,
    ids: &[Uuid],
) {
    let Ok(mut client) = child.database.client().await else { return };
    let invoked = child.recorder.invoke(Call::Enqueue { messages: sent, within });
    let mut tx = match client.transaction().await {
        Ok(tx) => tx,
        Err(error) => return invoked.fail(before_commit(error)),
    };
    for id in ids {
        // The id is a UUID.
        let insert = format!("insert into chaos_business values ('{id}')");
        if let Err(error) = tx.batch_execute(&insert).await {
            return invoked.fail(before_commit(error));
        }
    }
    let results = match tx.enqueue_in(outbox.store().as_ref(), messages).await {
        Ok(results) => results,
        Err(error) => return invoked.fail(trouble(&error)),
    };
    if within == Within::Rollback {
        // Also if the answer is lost: nothing has committed it.
        let _ = tx.rollback().await;
        return invoked.ok(Answer::RolledBack);
    }
    match tx.commit().await {
        Ok(()) => invoked.ok(enqueued(ids, &results)),
        Err(error) => record_driver(invoked, &error),
    }
}

fn in_sqlite(
    child: &Child,
    outbox: &Outbox,
    messages: &[PreparedMessage],
    within: Within,
    sent: Vec<Sent>,
    ids: &[Uuid],
) {
    let Ok(mut connection) = child.database.connection() else { return };
    let invoked = child.recorder.invoke(Call::Enqueue { messages: sent, within });
    let mut tx = match connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate) {
        Ok(tx) => tx,
        Err(error) => return invoked.fail(before_commit(error)),
    };
    for id in ids {
        if let Err(error) = tx.execute("insert into chaos_business values (?1)", [id.to_string()]) {
            return invoked.fail(before_commit(error));
        }
    }
    let plain = |message: &PreparedMessage| message.due().is_none() && message.idempotency_key().is_none();
    // The transaction is rolled back when this returns before its commit.
    let results = if messages.iter().all(plain) && ids.first().is_some_and(|id| id.as_u128() % 3 == 0) {
        match insert(&tx, messages) {
            Ok(results) => results,
            Err(error) => return invoked.fail(before_commit(error)),
        }
    } else {
        match EnqueueInBlocking::enqueue_in(&mut tx, outbox.store().as_ref(), messages) {
            Ok(results) => results,
            Err(error) => return invoked.fail(trouble(&error)),
        }
    };
    if within == Within::Rollback {
        let _ = tx.rollback();
        return invoked.ok(Answer::RolledBack);
    }
    match tx.commit() {
        Ok(()) => invoked.ok(enqueued(ids, &results)),
        Err(error) => invoked.unknown(Trouble { kind: "commit".to_owned(), text: error.to_string() }),
    }
}

/// Adds messages by plain SQL, as programs in other languages do.
fn insert(tx: &rusqlite::Transaction<'_>, messages: &[PreparedMessage]) -> rusqlite::Result<Vec<Enqueued>> {
    let insert =
        "insert into infra_outbox (id, message_id, topic, payload, ordering_key, priority, hold_on_failure)
        values (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let mut statement = tx.prepare_cached(insert)?;
    let mut results = Vec::new();
    for added in messages {
        let (work_item, message) = (added.work_item(), added.message());
        statement.execute(rusqlite::params![
            work_item.as_uuid().as_bytes().as_slice(),
            message.as_uuid().as_bytes().as_slice(),
            added.topic(),
            added.payload(),
            added.ordering_key(),
            added.priority(),
            added.hold_on_failure(),
        ])?;
        results.push(Enqueued { work_item, message, added: true });
    }
    Ok(results)
}
