//! A producer: enqueues messages by themselves, and in transactions of its own that commit or roll back.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use mainstay::outbox::{Message, OnFailure, Outbox};
use mainstay::store::Provider;
use mainstay::{JoinId, Joins, MessageId, NewJoin, NewTimer, Timers, WorkItemId};
use uuid::Uuid;

use crate::history::{Answer, Call, Within, now};

use super::Child;
use super::business::Business;
use super::payload::Payload;
use super::recorded::{Recorded, sent};
use super::trouble::{record, trouble};

/// Ordering keys in use.
pub(super) const KEYS: u64 = 12;

/// How long producers use the same idempotency key, in nanoseconds.
const SAME_KEY_NS: u64 = 2_000_000_000;

/// Runs until the process is to stop.
pub(super) async fn run(mut child: Child) -> Result<()> {
    let Some(provider) = child.recorded().await else { return Ok(()) };
    let outbox = Outbox::new(provider.outbox());
    let timers = Timers::new(provider.as_ref());
    let mut business = Business::default();
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
            45..70 => business.run(&child, &outbox, messages, Within::Commit).await,
            70..85 => business.run(&child, &outbox, messages, Within::Rollback).await,
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
