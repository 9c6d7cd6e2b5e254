//! A receiver: gets messages from elsewhere more than once, through the inbox's queue and by reservations.

use std::sync::Arc;

use anyhow::Result;
use mainstay::inbox::{Guard, GuardOptions};
use mainstay::outbox::Message;
use mainstay::store::Provider;
use mainstay::{Begin, Inbox, Incoming};

use crate::history::{Answer, Call, now};

use super::Child;
use super::application::execute;
use super::payload::Payload;
use super::recorded::Recorded;
use super::trouble::{record, trouble};

/// Where messages come from.
const SOURCE: &str = "chaos";

/// How long all receivers get the same message, in nanoseconds.
const SAME_NS: u64 = 400_000_000;

/// Runs until the process is to stop.
pub(super) async fn run(mut child: Child) -> Result<()> {
    let Some(provider) = child.recorded().await else { return Ok(()) };
    let inbox = Inbox::new(provider.as_ref());
    loop {
        let ms = child.random.between(30, 250);
        if !child.pause(ms).await {
            return Ok(());
        }
        if child.random.percent(60) {
            receive(&child, &inbox).await;
        } else {
            reserve(&mut child, &provider, &inbox).await;
        }
    }
}

/// Receives a message into the queue.
async fn receive(child: &Child, inbox: &Inbox) {
    let id = format!("queued-{}", now() / SAME_NS);
    let payload = Payload::plain();
    let call =
        Call::Receive { source: SOURCE.to_owned(), id: id.clone(), marker: payload.marker().to_owned() };
    let invoked = child.recorder.invoke(call);
    let message = Message::new("chaos.received", payload.text());
    let received = inbox.enqueue(Incoming::new(SOURCE, id, message)).await;
    record(invoked, &received, |received| Answer::Received {
        new: !received.outcome.is_duplicate(),
        item: received.work_item.map(|item| item.as_uuid()),
    });
}

/// Reserves a message, and completes it with an effect.
async fn reserve(child: &mut Child, provider: &Arc<Recorded>, inbox: &Inbox) {
    let id = format!("reserved-{}", now() / (SAME_NS * 2));
    let lease_ms = child.lease_ms();
    let invoked = child.recorder.invoke(Call::Begin { source: SOURCE.to_owned(), id: id.clone(), lease_ms });
    let options = GuardOptions::default().lease(child.lease).renew(false);
    let begun = inbox.begin_with(SOURCE, &id, &options).await;
    record(invoked, &begun, |begun| Answer::Begun {
        generation: match begun {
            Begin::New(guard) => Some(guard.generation()),
            _ => None,
        },
    });
    let Ok(Begin::New(guard)) = begun else { return };
    let ms = child.random.between(0, 50);
    child.pause(ms).await;
    if !finish(child, provider, &guard, id).await {
        // As a process that dies leaves it: dropping it would give the reservation back in a call of its own.
        std::mem::forget(guard);
    }
}

/// Writes an effect and completes the reservation, in one transaction. Whether that is done.
async fn finish(child: &Child, provider: &Arc<Recorded>, guard: &Guard, id: String) -> bool {
    let invoked = child.recorder.invoke(Call::Finish {
        source: SOURCE.to_owned(),
        id: id.clone(),
        generation: guard.generation(),
    });
    let completing = async {
        let mut tx = provider.outbox().begin().await?;
        execute(tx.as_mut(), format!("insert into chaos_received values ('{SOURCE}', '{id}')")).await?;
        guard.complete_in(&mut tx).await?;
        Ok::<_, mainstay::Error>(tx)
    };
    match completing.await {
        Ok(tx) => {
            let committed = tx.commit().await;
            record(invoked, &committed, |()| Answer::Done);
            committed.is_ok()
        }
        // The commit was not sent, so nothing of it stays.
        Err(error) => {
            invoked.fail(trouble(&error));
            false
        }
    }
}
