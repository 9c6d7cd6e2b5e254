//! Taking work: what is asked for, and what comes back.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;
use std::time::Duration;

use jiff::Timestamp;

use crate::bounds::validate_batch;
use crate::error::{Error, Result};
use crate::id::{MessageId, OwnerToken, WorkItemId};
use crate::outbox::Headers;
use crate::renewing::call_limit;

use super::FailureReason;

const CLAIM: &str = "queue.claim";

/// The longest lease.
const LEASE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Asks for due work.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimRequest {
    /// Who claims. Never nil.
    pub owner: OwnerToken,
    /// How long the claim holds unless renewed: above zero, at most a day. Defaults to 30 s.
    pub lease: Duration,
    /// Rows at most, 1 to 100,000. Defaults to 50.
    pub batch: u32,
    /// Deliveries a message may have; one that has had them fails instead of being handed out. Defaults to 10.
    pub delivery_limit: u32,
    /// Only these topics. Defaults to empty: all.
    pub only_topics: Vec<String>,
    /// Not these topics. Defaults to empty: none is left out.
    pub except_topics: Vec<String>,
}

impl ClaimRequest {
    /// The highest delivery limit: no message gets there, so a claim with it fails none.
    pub const DELIVERY_LIMIT_MAX: u32 = 1_000_000;

    /// A claim for `owner` with everything at its default.
    pub fn new(owner: OwnerToken) -> Self {
        Self {
            owner,
            lease: Duration::from_secs(30),
            batch: 50,
            delivery_limit: 10,
            only_topics: Vec::new(),
            except_topics: Vec::new(),
        }
    }

    /// How long the claim holds unless renewed.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }
    /// Rows at most.
    #[must_use]
    pub fn batch(mut self, rows: u32) -> Self {
        self.batch = rows;
        self
    }
    /// Deliveries a message may have.
    #[must_use]
    pub fn delivery_limit(mut self, deliveries: u32) -> Self {
        self.delivery_limit = deliveries;
        self
    }
    /// Only these topics.
    #[must_use]
    pub fn only_topics(mut self, topics: Vec<String>) -> Self {
        self.only_topics = topics;
        self
    }
    /// Not these topics.
    #[must_use]
    pub fn except_topics(mut self, topics: Vec<String>) -> Self {
        self.except_topics = topics;
        self
    }

    /// How long a call may take that work claimed like this waits for: two leases, a minute at most.
    pub fn call_limit(&self) -> Duration {
        call_limit(self.lease)
    }

    /// Refuses a nil owner and a lease, batch or limit outside its bounds.
    pub fn validate(&self) -> Result<()> {
        self.owner.validate(CLAIM)?;
        Self::validate_lease(CLAIM, self.lease)?;
        validate_batch(CLAIM, self.batch)?;
        if !(1..=Self::DELIVERY_LIMIT_MAX).contains(&self.delivery_limit) {
            let got = self.delivery_limit;
            return Err(Error::invalid(
                CLAIM,
                "delivery_limit",
                format_args!("must be 1 to 1,000,000, got {got}"),
            ));
        }
        Ok(())
    }

    pub(crate) fn validate_lease(operation: &'static str, lease: Duration) -> Result<()> {
        if lease.is_zero() || lease > LEASE_MAX {
            return Err(Error::invalid(
                operation,
                "lease",
                format_args!("must be above zero and at most 24 h, got {lease:?}"),
            ));
        }
        Ok(())
    }
}

/// What proves a claim, with its owner. Opaque: what is inside may change with the storage.
///
/// Two handles are equal if they stand for the same claim, wherever it is stored.
#[derive(Debug, Clone, Copy)]
pub struct ClaimHandle {
    id: WorkItemId,
    generation: i64,
    place: Option<NonZeroU64>,
}

impl PartialEq for ClaimHandle {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.generation == other.generation
    }
}

impl Eq for ClaimHandle {}

impl Hash for ClaimHandle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
        self.generation.hash(state);
    }
}

impl ClaimHandle {
    /// A handle; for providers.
    pub const fn new(id: WorkItemId, generation: i64) -> Self {
        Self { id, generation, place: None }
    }
    /// The same with a hint of where the provider has put the row, which finds it faster; for providers.
    #[must_use]
    pub const fn at(self, place: Option<NonZeroU64>) -> Self {
        Self { place, ..self }
    }
    /// The hint given with [`Self::at`]; for providers. The row may have moved since.
    pub const fn place(&self) -> Option<NonZeroU64> {
        self.place
    }
    /// The claimed row.
    pub const fn id(&self) -> WorkItemId {
        self.id
    }
    /// Which claim of that row this is. It grows with every claim, so an old claim can't pass for a new one (R10).
    pub const fn generation(&self) -> i64 {
        self.generation
    }
}

/// A claimed work item.
#[derive(Clone)]
#[non_exhaustive]
pub struct Claimed {
    /// What settles and renews it.
    pub handle: ClaimHandle,
    /// The message's id.
    pub message_id: MessageId,
    /// The topic.
    pub topic: String,
    /// The payload.
    pub payload: String,
    /// Where it came from.
    pub correlation_id: Option<String>,
    /// Which delivery this is, from 1.
    pub attempt: u32,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// Since when it has been due.
    pub due_at: Timestamp,
    /// Not handed out from this on.
    pub expires_at: Option<Timestamp>,
    /// When it was claimed, by the database's clock.
    pub claimed_at: Timestamp,
    /// Until when the claim holds, by the database's clock.
    pub locked_until: Timestamp,
    /// The error of the last delivery.
    pub last_error: Option<String>,
    /// -9 to 9.
    pub priority: i16,
    /// Its ordering key.
    pub ordering_key: Option<String>,
    /// Its headers.
    pub headers: Headers,
}

impl Claimed {
    /// A claimed item with what every one has; providers fill in the rest.
    pub fn new(
        handle: ClaimHandle,
        message_id: MessageId,
        topic: String,
        payload: String,
        attempt: u32,
        claimed_at: Timestamp,
        locked_until: Timestamp,
    ) -> Self {
        Self {
            handle,
            message_id,
            topic,
            payload,
            correlation_id: None,
            attempt,
            created_at: claimed_at,
            due_at: claimed_at,
            expires_at: None,
            claimed_at,
            locked_until,
            last_error: None,
            priority: 0,
            ordering_key: None,
            headers: Headers::new(),
        }
    }

    /// The row's id.
    pub fn id(&self) -> WorkItemId {
        self.handle.id()
    }

    /// Deliveries that failed before this one.
    pub fn retry_count(&self) -> u32 {
        self.attempt.saturating_sub(1)
    }
}

/// No payload and no header: neither belongs in a log (R27).
impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claimed")
            .field("handle", &self.handle)
            .field("message_id", &self.message_id)
            .field("topic", &self.topic)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// A work item that a claim failed instead of handing it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The row.
    pub id: WorkItemId,
    /// The topic.
    pub topic: String,
    /// Why: `DeliveryLimit` or `Expired`.
    pub reason: FailureReason,
}

/// What a claim brought.
#[derive(Debug, Clone, Default)]
pub struct ClaimBatch {
    /// Claimed, most urgent first.
    pub items: Vec<Claimed>,
    /// Failed on the way, by the delivery limit or by expiry.
    pub rejected: Vec<Rejected>,
}

impl ClaimBatch {
    /// The handles of the claimed items.
    pub fn handles(&self) -> Vec<ClaimHandle> {
        self.items.iter().map(|item| item.handle).collect()
    }
}
