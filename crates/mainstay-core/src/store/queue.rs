//! The engine's view of a queue.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::OwnerToken;
use crate::queue::{ClaimBatch, ClaimHandle, ClaimRequest, Settled, Settlement};
use crate::renewing::{TURN_LIMIT, attempt};

use super::{Capabilities, StoreTransaction};

/// Why a wait for work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Somebody enqueued.
    Notified,
    /// Something has become due, or is about to.
    Due,
    /// Work has been coming all the time, so claim again. There may be none just now.
    Flow,
    /// Nothing happened for as long as was asked.
    TimedOut,
}

/// Asks to be woken for work.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitRequest {
    /// Who waits: the owner of the claims that follow.
    pub consumer: OwnerToken,
    /// How long at most. Defaults to 1 s.
    pub timeout: Duration,
    /// Only work of these topics ends the wait, as in a claim. Defaults to empty: all.
    pub only_topics: Vec<String>,
    /// Work of these topics does not end the wait, as in a claim. Defaults to empty: none is left out.
    pub except_topics: Vec<String>,
    /// How long each of its statements may take; the sleep between them does not count. Defaults to 60 s.
    pub call_limit: Duration,
}

impl WaitRequest {
    /// A wait of `consumer` with everything at its default.
    pub fn new(consumer: OwnerToken) -> Self {
        Self {
            consumer,
            timeout: Duration::from_secs(1),
            only_topics: Vec::new(),
            except_topics: Vec::new(),
            call_limit: TURN_LIMIT,
        }
    }

    /// How long at most.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
    /// Only work of these topics ends the wait.
    #[must_use]
    pub fn only_topics(mut self, topics: Vec<String>) -> Self {
        self.only_topics = topics;
        self
    }
    /// Work of these topics does not end the wait.
    #[must_use]
    pub fn except_topics(mut self, topics: Vec<String>) -> Self {
        self.except_topics = topics;
        self
    }
    /// How long each of its statements may take.
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit;
        self
    }

    /// Runs one of its statements within the limit. For providers.
    pub async fn within_limit<T>(
        &self,
        operation: &'static str,
        statement: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        attempt(operation, self.call_limit, statement).await
    }
}

/// A work queue in a database.
#[async_trait]
pub trait QueueStore: Send + Sync + 'static {
    /// Names the store in logs and metrics: the database and the table, no secret.
    fn identifier(&self) -> &str;

    /// What the provider can do.
    fn capabilities(&self) -> Capabilities;

    /// Takes due work: Ready and due, or InProgress with a lapsed lease (R2). Counts a delivery for each (R3).
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch>;

    /// Ends claims. Compares id, owner and generation of each.
    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled>;

    /// Extends claims to `lease` from the database's now. Compares id, owner and generation of each.
    async fn renew(&self, owner: OwnerToken, claims: &[ClaimHandle], lease: Duration) -> Result<Settled>;

    /// Makes work with a lapsed lease Ready. Returns how many.
    async fn reap_expired(&self) -> Result<u64>;

    /// Waits until there may be work of the topics asked for. Work that is already due ends the wait at once, so nothing
    /// that came between the last claim and this call is missed. Errors only when the wait itself is impossible.
    async fn wait(&self, request: &WaitRequest) -> Result<Wake>;

    /// Tells that a consumer will not wait again, so that nobody takes trouble to wake it. May take time, and may fail
    /// unseen: whatever it would undo lapses by itself.
    async fn leave(&self, consumer: OwnerToken);

    /// Begins a transaction in which a handler's writes, its messages and its ack commit together.
    async fn begin(&self) -> Result<Box<dyn StoreTransaction>>;
}
