//! The model's enqueues, one by one and many at once, with idempotency keys.

use mainstay_core::ErrorKind;
use mainstay_core::outbox::{Enqueued, Message, OnFailure};
use mainstay_core::queue::Status;

use super::model::{Check, Item, Model, TICK, check, key_name, told};
use super::step::New;
use crate::world::{TOPIC, World};

impl Model {
    pub(super) async fn enqueue(&mut self, world: &World<'_>, new: &New) -> Check {
        let enqueued = world.outbox.enqueue(message(new)).await.map_err(told)?;
        let index = self.add(new, enqueued)?;
        self.compare(world, index).await
    }

    pub(super) async fn enqueue_many(&mut self, world: &World<'_>, many: &[New]) -> Check {
        let messages = many.iter().map(message).collect();
        let enqueued = world.outbox.enqueue_many(messages).await.map_err(told)?;
        check!(enqueued.len() == many.len(), "{} answers for {} messages", enqueued.len(), many.len());
        for (new, enqueued) in many.iter().zip(enqueued) {
            let index = self.add(new, enqueued)?;
            self.compare(world, index).await?;
        }
        Ok(())
    }

    /// An id is used once: refused as long as its message is there, and free once retention has deleted that.
    pub(super) async fn enqueue_again(&mut self, world: &World<'_>, number: usize, new: &New) -> Check {
        let Some(index) = self.numbered(number) else { return Ok(()) };
        let (id, status, purged) = (self.items[index].id, self.items[index].status, self.items[index].purged);
        let answer = world.outbox.enqueue(message(new).work_item_id(id)).await;
        if purged || self.keyed(new).is_some() {
            let enqueued = answer.map_err(told)?;
            check!(!enqueued.added || enqueued.work_item == id, "{} instead of {id}", enqueued.work_item);
            let index = self.add(new, enqueued)?;
            return self.compare(world, index).await;
        }
        match answer {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let existing = error.existing().map(|item| (item.id, item.status));
                check!(existing == Some((id, status)), "{existing:?} instead of {id}, which is {status}");
            }
            other => return Err(format!("{id} is {status}, and enqueueing it again gave {other:?}")),
        }
        self.compare(world, index).await
    }

    /// The message that has the idempotency key of a new one.
    fn keyed(&self, new: &New) -> Option<usize> {
        self.items.iter().position(|item| !item.purged && new.once.is_some() && item.once == new.once)
    }

    /// Takes in what the database says it did: a message, or the one that has its idempotency key already.
    fn add(&mut self, new: &New, enqueued: Enqueued) -> Result<usize, String> {
        if let Some(index) = self.keyed(new) {
            let first = self.items[index].id;
            check!(!enqueued.added && enqueued.work_item == first, "{enqueued:?} instead of {first}");
            return Ok(index);
        }
        check!(enqueued.added, "it was not added");
        self.items.push(Item {
            id: enqueued.work_item,
            key: new.key,
            hold: new.hold && new.key.is_some(),
            status: Status::Ready,
            reason: None,
            attempts: 0,
            generation: 0,
            owner: None,
            due: self.tick + u64::from(new.due.unwrap_or(0)),
            locked: 0,
            expires: new.expires.map(|ticks| self.tick + u64::from(ticks)),
            once: new.once,
            settled: 0,
            purged: false,
        });
        Ok(self.items.len() - 1)
    }
}

fn message(new: &New) -> Message {
    let mut message = Message::new(TOPIC, "").priority(new.priority);
    if let Some(key) = new.key {
        let on_failure = if new.hold { OnFailure::Hold } else { OnFailure::Skip };
        message = message.ordering_key(key_name(key)).on_failure(on_failure);
    }
    if let Some(ticks) = new.due {
        message = message.due_in(TICK * ticks);
    }
    if let Some(ticks) = new.expires {
        message = message.expires_in(TICK * ticks);
    }
    if let Some(once) = new.once {
        message = message.idempotency_key(format!("once {once}"));
    }
    message
}
