//! What an inbox needs beyond the engine: the ledger of what was received.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::audit::Actor;
use crate::error::Result;
use crate::id::OwnerToken;
use crate::inbox::{
    BeginAnswer, ContentHash, InboxEntry, InboxFilter, InboxKey, InboxPage, InboxRetention, LedgerStats,
    Mark, PreparedIncoming, Received, Reservation, ReservationEnd, Seen,
};

use super::StoreCall;

/// The ledger of received messages in a database. The queue they are worked from is [`Queue::Inbox`](super::Queue::Inbox); the
/// ledger follows what becomes of them there by itself. What is done by hand is recorded as in [`super::OutboxStore`].
#[async_trait]
pub trait InboxStore: Send + Sync + 'static {
    /// Names the store in logs and metrics: the database and the table, no secret.
    fn identifier(&self) -> &str;

    /// Whether a message is done. Notes it as seen if it is not known, and when it was last seen in any case.
    async fn seen(&self, key: &InboxKey, hash: Option<&ContentHash>) -> Result<Seen>;

    /// Says how far a message is. Done stays done. Returns whether that changed anything.
    async fn mark(&self, key: &InboxKey, mark: &Mark, by: Option<&Actor>) -> Result<bool>;

    /// Reserves a message for `owner`, if nobody has it and it is not settled.
    async fn begin(
        &self,
        key: &InboxKey,
        hash: Option<&ContentHash>,
        owner: OwnerToken,
        lease: Duration,
    ) -> Result<BeginAnswer>;

    /// Extends a reservation to `lease` from the database's now. None when it no longer holds.
    async fn renew(&self, reservation: &Reservation, lease: Duration) -> Result<Option<Timestamp>>;

    /// Ends a reservation. False when it no longer held.
    async fn end(&self, reservation: &Reservation, end: &ReservationEnd) -> Result<bool>;

    /// Receives messages into the queue, all or none, durably. Results in the order of the messages.
    async fn enqueue(&self, messages: &[PreparedIncoming]) -> Result<Vec<Received>>;

    /// One message of the ledger.
    async fn get(&self, key: &InboxKey) -> Result<Option<InboxEntry>>;

    /// Messages of the ledger that match, newest first.
    async fn list(&self, filter: &InboxFilter, page: &InboxPage) -> Result<Vec<InboxEntry>>;

    /// Makes dead messages live again: ready in the queue if they were there, otherwise as if only seen. Returns those that changed.
    async fn revive(&self, keys: &[InboxKey], by: &Actor) -> Result<Vec<InboxKey>>;

    /// How many messages of the ledger stand where.
    async fn stats(&self) -> Result<LedgerStats>;

    /// Deletes one batch of settled messages past their age, with what the queue has kept of them. Returns how many.
    async fn forget(&self, retention: &InboxRetention, by: Option<&Actor>) -> Result<u64>;

    /// What completes a reservation, for the caller's transaction.
    fn completion(&self, reservation: &Reservation) -> StoreCall;

    /// What its answers say: whether the reservation still held.
    fn completed(&self, answers: &[String]) -> Result<bool>;

    /// What receives messages, for the caller's transaction.
    fn reception(&self, messages: &[PreparedIncoming]) -> StoreCall;

    /// What its answers say.
    fn received(&self, answers: &[String]) -> Result<Vec<Received>>;
}
