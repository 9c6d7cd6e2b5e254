//! An operator: requeues, cancels, pauses, releases, purges and reaps by hand.

use std::time::Duration;

use anyhow::Result;
use mainstay::lease::Leases;
use mainstay::outbox::{MessageFilter, Outbox, Page, Retention};
use mainstay::queue::Status;
use mainstay::store::{Provider, Queue};

use crate::history::{Answer, Call};

use super::Child;
use super::trouble::record;

/// The topic that is paused now and then.
const TOPIC: &str = "chaos.plain";

/// Runs until the process is to stop. What fails is in the history, and is not tried again.
pub(super) async fn run(mut child: Child) -> Result<()> {
    let Some(provider) = child.recorded().await else { return Ok(()) };
    let outbox = Outbox::new(provider.outbox());
    let leases = Leases::new(provider.leases());
    // A predecessor may have died in the middle of a pause.
    drop(outbox.resume(TOPIC).await);
    loop {
        let ms = child.random.between(200, 800);
        if !child.pause(ms).await {
            return Ok(());
        }
        match child.random.between(0, 99) {
            0..30 => drop(outbox.requeue_where(&MessageFilter::all(), 20).await),
            30..45 => {
                let ready = MessageFilter::all().status(Status::Ready).without_payloads();
                let page = Page { limit: 3, ..Page::default() };
                if let Ok(found) = outbox.list(&ready, page).await {
                    let ids: Vec<_> = found.iter().map(|message| message.id).collect();
                    drop(outbox.cancel(&ids).await);
                }
            }
            45..55 => {
                drop(outbox.pause(TOPIC, Some("chaos")).await);
                child.pause(300).await;
                drop(outbox.resume(TOPIC).await);
            }
            55..70 => {
                let key = format!("key-{}", child.random.between(1, super::producer::KEYS));
                drop(outbox.release_key(&key).await);
            }
            70..76 => {
                let retention =
                    Retention::default().done(Some(Duration::from_secs(5))).failed(None).batch(50);
                drop(outbox.purge(&retention).await);
            }
            76..82 => {
                let name = format!("lease-{}", child.random.between(1, 3));
                drop(leases.force_release(&name).await);
            }
            82..85 => {
                let invoked = child.recorder.invoke(Call::Deploy);
                record(invoked, &provider.schema().deploy().await, |_| Answer::Done);
            }
            _ => {
                for queue in [Queue::Outbox, Queue::Timers, Queue::JobRuns, Queue::Inbox] {
                    drop(Outbox::new(provider.queue(queue)).reap_expired().await);
                }
            }
        }
    }
}
