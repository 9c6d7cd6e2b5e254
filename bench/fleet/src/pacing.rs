//! Adds messages at a steady pace.
//!
//! Nobody waits for the message before: if the first one to a database takes a second, the next is late by nothing, and all of them count.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use mainstay::Message;
use mainstay::outbox::Outbox;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::wire::{Load, Shot, TOPIC, now};

/// How long calls are waited for once all have been made.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often those aside get a message.
const ASIDE: Duration = Duration::from_secs(4);

/// The number of messages that nobody counts.
const UNCOUNTED: u64 = u64::MAX;

/// Adds a load. `outboxes` are those it is for, `aside` the others.
pub(crate) async fn send(load: &Load, outboxes: Vec<Outbox>, aside: Vec<Outbox>) -> Vec<Shot> {
    let every = Duration::from_secs_f64(1.0 / f64::from(load.per_second.max(1)));
    let rounds = (load.seconds / every.as_secs_f64()) as u64;
    let beside: JoinSet<()> = aside.into_iter().enumerate().map(|(at, outbox)| bother(outbox, at)).collect();
    let (count, begin) = (outboxes.len() as u64, Instant::now());
    let outboxes: Arc<[Outbox]> = outboxes.into();
    let mut calls = JoinSet::new();
    let mut shots = Vec::new();
    for step in 0..rounds * count {
        tokio::time::sleep_until(begin + every.mul_f64(step as f64 / count as f64)).await;
        let (number, to) = (load.first + step, (step % count) as usize);
        shots.push(Shot { number, to, called: now(), committed: None });
        let outboxes = Arc::clone(&outboxes);
        calls.spawn(async move {
            let committed = enqueue(&outboxes[to], number).await.is_ok().then(now);
            (step as usize, committed)
        });
    }
    let all = async {
        while let Some(ended) = calls.join_next().await {
            if let Ok((at, committed)) = ended {
                shots[at].committed = committed;
            }
        }
    };
    // What has not returned by then counts as failed.
    drop(tokio::time::timeout(PATIENCE, all).await);
    drop(beside);
    shots
}

/// Adds one message that nobody counts.
pub(crate) async fn touch(outbox: &Outbox) -> Result<()> {
    enqueue(outbox, UNCOUNTED).await
}

async fn enqueue(outbox: &Outbox, number: u64) -> Result<()> {
    outbox.enqueue(Message::new(TOPIC, number.to_string())).await?;
    Ok(())
}

/// Calls now and then, as an application does that knows nothing of the database's health.
async fn bother(outbox: Outbox, at: usize) {
    tokio::time::sleep(ASIDE.mul_f64(at as f64 / 10.0)).await;
    let mut calls = JoinSet::new();
    loop {
        let outbox = outbox.clone();
        // What it says is between the two of them.
        calls.spawn(async move { drop(touch(&outbox).await) });
        tokio::time::sleep(ASIDE).await;
        while calls.try_join_next().is_some() {}
    }
}
