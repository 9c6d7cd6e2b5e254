//! One fixture with the few verbs most cases begin with. Each fails the case where the database refuses.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a case fails by panicking")]

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::inbox::{Inbox, InboxEntry};
use mainstay_core::job::Jobs;
use mainstay_core::join::Joins;
use mainstay_core::outbox::{Message, Outbox, OutboxMessage};
use mainstay_core::queue::{ClaimBatch, ClaimHandle, ClaimRequest, Claimed};
use mainstay_core::store::{Names, Provider, Queue};
use mainstay_core::timer::{NewTimer, Timer, Timers};
use mainstay_core::{Error, OwnerToken, WorkItemId};

use crate::fixture::{Fixture, Lacking};
use crate::session::Session;

/// By how much a lease may be longer than asked for: a clock of whole milliseconds cuts off what it is given at, and no lease may be shorter.
pub(crate) const GRAIN: Duration = Duration::from_millis(1);

/// The topic of messages whose topic does not matter.
pub(crate) const TOPIC: &str = "conformance";

/// The lease of claims whose lease does not matter.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// An outbox under test.
pub(crate) struct World<'a> {
    pub(crate) fixture: &'a dyn Fixture,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) outbox: Outbox,
    pub(crate) timers: Timers,
    pub(crate) inbox: Inbox,
    names: Names,
}

impl<'a> World<'a> {
    /// The fixture's database.
    pub(crate) async fn open(fixture: &'a dyn Fixture) -> Self {
        let provider = fixture.provider().await;
        Self::over(fixture, provider, Names::default())
    }

    /// The fixture's database under other names, deployed.
    pub(crate) async fn named(fixture: &'a dyn Fixture, names: Names) -> Self {
        let provider = fixture.with_names(names.clone()).await;
        provider.schema().deploy().await.expect("deploy the schema under other names");
        Self::over(fixture, provider, names)
    }

    /// A provider of the fixture.
    pub(crate) fn over(fixture: &'a dyn Fixture, provider: Arc<dyn Provider>, names: Names) -> Self {
        let (outbox, timers) = (Outbox::new(provider.outbox()), Timers::new(provider.as_ref()));
        let inbox = Inbox::new(provider.as_ref());
        Self { fixture, provider, outbox, timers, inbox, names }
    }

    /// The outbox of another instance on the same database.
    pub(crate) async fn second(&self) -> Outbox {
        Outbox::new(self.fixture.second().await.outbox())
    }

    /// A session of plain SQL on the outbox.
    pub(crate) async fn session(&self) -> Result<Box<dyn Session>, Lacking> {
        self.fixture.session(&self.names, Queue::Outbox).await
    }

    /// The jobs.
    pub(crate) fn jobs(&self) -> Jobs {
        Jobs::new(self.provider.jobs())
    }

    /// The joins.
    pub(crate) fn joins(&self) -> Joins {
        Joins::new(self.provider.joins())
    }

    /// The engine over the queue in which jobs' runs wait.
    pub(crate) fn run_queue(&self) -> Outbox {
        Outbox::new(self.provider.queue(Queue::JobRuns))
    }

    pub(crate) async fn advance(&self, by: Duration) {
        self.fixture.advance(&self.names, by).await;
    }

    pub(crate) async fn set_back(&self, by: Duration) {
        self.fixture.set_back(&self.names, by).await;
    }

    pub(crate) async fn now(&self) -> Timestamp {
        self.provider.now().await.expect("the database's clock")
    }

    pub(crate) async fn enqueue(&self, message: Message) -> WorkItemId {
        let enqueued = self.outbox.enqueue(message).await.expect("enqueue");
        assert!(enqueued.added, "a message without a known idempotency key must be added");
        enqueued.work_item
    }

    /// Enqueues `count` messages, one call each, so that their order is that of the returned ids.
    pub(crate) async fn enqueue_some(&self, count: usize) -> Vec<WorkItemId> {
        let mut ids = Vec::new();
        for number in 0..count {
            ids.push(self.enqueue(Message::new(TOPIC, number.to_string())).await);
        }
        ids
    }

    pub(crate) async fn enqueue_error(&self, message: Message) -> Error {
        self.outbox.enqueue(message).await.expect_err("the message must be refused")
    }

    /// Claims up to `batch` for `owner`, with nothing rejected on the way.
    pub(crate) async fn claim(&self, owner: OwnerToken, batch: u32) -> Vec<Claimed> {
        let claimed = self.claim_batch(&ClaimRequest::new(owner).lease(LEASE).batch(batch)).await;
        assert_eq!(claimed.rejected, [], "nothing was to be rejected");
        claimed.items
    }

    pub(crate) async fn claim_batch(&self, request: &ClaimRequest) -> ClaimBatch {
        self.outbox.claim(request).await.expect("claim")
    }

    /// Claims the only message that is due.
    pub(crate) async fn claim_one(&self, owner: OwnerToken) -> Claimed {
        let mut claimed = self.claim(owner, 50).await;
        assert_eq!(claimed.len(), 1, "exactly one message was due, claimed {claimed:?}");
        claimed.remove(0)
    }

    /// Nothing can be claimed, by anybody.
    pub(crate) async fn assert_nothing_due(&self) {
        let claimed = self.claim_batch(&ClaimRequest::new(OwnerToken::new())).await;
        assert!(claimed.items.is_empty(), "nothing should be claimable, claimed {:?}", claimed.items);
        assert_eq!(claimed.rejected, [], "nothing was to be rejected");
    }

    pub(crate) async fn row(&self, id: WorkItemId) -> OutboxMessage {
        self.outbox.get(id).await.expect("get").unwrap_or_else(|| panic!("{id} must be in the outbox"))
    }

    pub(crate) async fn rows(&self, ids: &[WorkItemId]) -> Vec<OutboxMessage> {
        let mut rows = Vec::new();
        for id in ids {
            rows.push(self.row(*id).await);
        }
        rows
    }

    /// Schedules a timer that is not there yet.
    pub(crate) async fn schedule(&self, timer: NewTimer) -> WorkItemId {
        let scheduled = self.timers.schedule(timer).await.expect("schedule");
        assert!(scheduled.added, "a timer without a known idempotency key must be added");
        scheduled.work_item
    }

    /// Schedules `count` timers that are due now, one call each, so that their order is that of the returned ids.
    pub(crate) async fn schedule_some(&self, count: usize) -> Vec<WorkItemId> {
        let mut ids = Vec::new();
        for number in 0..count {
            ids.push(self.schedule(NewTimer::new(TOPIC, number.to_string(), Duration::ZERO)).await);
        }
        ids
    }

    pub(crate) async fn timer(&self, id: WorkItemId) -> Timer {
        self.timers.get(id).await.expect("get").unwrap_or_else(|| panic!("{id} must be a timer"))
    }

    /// Makes messages of up to `batch` timers that are due.
    pub(crate) async fn forward(&self, owner: OwnerToken, batch: u32) -> Vec<WorkItemId> {
        self.timers.queue().store().forward(owner, batch).await.expect("forward")
    }

    /// The only message of the ledger that this source calls so.
    pub(crate) async fn entry(&self, source: &str, message_id: &str) -> InboxEntry {
        let entry = self.inbox.get(source, message_id).await.expect("get");
        entry.unwrap_or_else(|| panic!("{source}/{message_id} must be in the ledger"))
    }

    /// How many messages there are in all, open and settled.
    pub(crate) async fn total(&self) -> u64 {
        let stats = self.outbox.stats().await.expect("stats");
        stats.open() + stats.done + stats.failed
    }
}

/// The ids of claimed items, as a set.
pub(crate) fn ids(claimed: &[Claimed]) -> BTreeSet<WorkItemId> {
    claimed.iter().map(Claimed::id).collect()
}

/// A list of ids as a set; none may come twice.
pub(crate) fn set(list: &[WorkItemId]) -> BTreeSet<WorkItemId> {
    let set: BTreeSet<_> = list.iter().copied().collect();
    assert_eq!(set.len(), list.len(), "an id comes twice in {list:?}");
    set
}

pub(crate) fn handles(claimed: &[Claimed]) -> Vec<ClaimHandle> {
    claimed.iter().map(|item| item.handle).collect()
}

/// Every column a settle or claim may touch, to show that nothing changed.
pub(crate) fn snapshot(row: &OutboxMessage) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        (row.status, row.reason, row.attempts, row.generation, row.owner, row.locked_until),
        (row.next_attempt_at, row.processed_at, row.processed_by, row.last_error.clone()),
        (row.topic.clone(), row.payload.clone(), row.message_id, row.correlation_id.clone()),
    )
}

/// Polls `future` at most `polls` times, lets others run in between, and drops it.
pub(crate) async fn interrupted<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let once = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context)));
        if let Poll::Ready(output) = once.await {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}
