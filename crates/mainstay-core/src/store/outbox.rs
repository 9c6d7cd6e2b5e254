//! What an outbox needs beyond the engine.

use std::any::Any;

use async_trait::async_trait;

use crate::audit::Actor;
use crate::error::Result;
use crate::id::{OwnerToken, WorkItemId};
use crate::outbox::{
    Enqueued, MessageExport, MessageFilter, OutboxMessage, OutboxStats, Page, PausedTopic, PreparedMessage,
    Retention,
};

use super::QueueStore;

/// An outbox in a database.
///
/// What is done by hand is recorded in the audit trail as the actor's, in the same transaction, if it changed anything: then both
/// are there, or neither. Without an actor there is no record.
#[async_trait]
pub trait OutboxStore: QueueStore {
    /// Adds messages, all or none, durably. Results in the order of the messages.
    async fn enqueue(&self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>>;

    /// One message, open or settled.
    async fn get(&self, id: WorkItemId) -> Result<Option<OutboxMessage>>;

    /// Messages that match, newest first by id.
    async fn list(&self, filter: &MessageFilter, page: Page) -> Result<Vec<OutboxMessage>>;

    /// Messages that match, in the order in which they were enqueued, however many there are.
    async fn export(&self, filter: &MessageFilter) -> Result<Box<dyn MessageExport>>;

    /// Fails Ready messages with reason `cancelled`. Returns those that changed.
    async fn cancel(&self, ids: &[WorkItemId], by: Option<&Actor>) -> Result<Vec<WorkItemId>>;

    /// Makes Failed messages Ready with attempts 0. Returns those that changed.
    async fn requeue(&self, ids: &[WorkItemId], by: &Actor) -> Result<Vec<WorkItemId>>;

    /// The same for up to `limit` failed messages that match, oldest failure first.
    async fn requeue_where(&self, filter: &MessageFilter, limit: u32, by: &Actor) -> Result<Vec<WorkItemId>>;

    /// Ends the hold on an ordering key. False when there was none.
    async fn release_key(&self, key: &str, by: &Actor) -> Result<bool>;

    /// Keeps everybody from claiming messages of a topic, from the next claim on. False when it is paused already.
    async fn pause(&self, topic: &str, reason: Option<&str>, by: &Actor) -> Result<bool>;

    /// Ends that, and wakes who waits for work. False when it was not paused.
    async fn resume(&self, topic: &str, by: &Actor) -> Result<bool>;

    /// The topics that are paused, by name.
    async fn paused(&self) -> Result<Vec<PausedTopic>>;

    /// How many messages stand where.
    async fn stats(&self) -> Result<OutboxStats>;

    /// The same without what is done and without topics: cheap, whatever the history holds.
    async fn backlog(&self) -> Result<OutboxStats>;

    /// Deletes one batch of settled messages past their age. Returns how many.
    async fn purge(&self, retention: &Retention, by: Option<&Actor>) -> Result<u64>;

    /// Makes a message in the outbox of each item that is due, up to `batch`, under the same ids, and ends the item: one
    /// transaction (R17). Returns the items. Only timers and job runs have it.
    async fn forward(&self, owner: OwnerToken, batch: u32) -> Result<Vec<WorkItemId>>;

    /// The provider's own type, for `enqueue_in`.
    fn as_any(&self) -> &dyn Any;
}
