//! The application's handle on an outbox.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::audit::Actor;
use crate::bell::Bell;
use crate::error::{Error, Result};
use crate::id::{OwnerToken, WorkItemId};
use crate::queue::{
    ClaimBatch, ClaimHandle, ClaimRequest, FailureReason, Outcome, Settled, Settlement, validate_settlements,
};
use crate::renewing::{WAIT_SPARE, attempt};
use crate::runtime::{SweepClock, purge_pages};
use crate::store::{OutboxStore, WaitRequest, Wake};
use crate::telemetry;
use crate::text::validate_name;
use crate::trace::TraceContext;

use super::{
    Enqueued, Limits, Message, MessageExport, MessageFilter, OutboxMessage, OutboxStats, Page, PausedTopic,
    PreparedMessage, Retention,
};

/// A transaction of a driver that an outbox can enqueue in.
///
/// `Marker` is a type of the provider's crate; it is inferred and only lets providers implement this for
/// drivers' own types. The implementation neither commits nor rolls back (OBX-003).
pub trait EnqueueIn<Marker> {
    /// Adds the messages within the caller's transaction.
    fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> impl Future<Output = Result<Vec<Enqueued>>>;
}

/// The same for drivers that block.
pub trait EnqueueInBlocking<Marker> {
    /// Adds the messages within the caller's transaction.
    fn enqueue_in(&mut self, store: &dyn OutboxStore, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>>;
}

/// The application's handle on an outbox. Cheap to clone.
///
/// All rules are checked here, once, before any provider sees a call. Dropping any of the futures is
/// harmless: the operation either happened as a whole or not at all.
#[derive(Clone)]
pub struct Outbox {
    store: Arc<dyn OutboxStore>,
    limits: Limits,
    bell: Bell,
    /// Who changes things by hand.
    actor: Actor,
}

impl Outbox {
    /// An outbox over a provider's store.
    pub fn new(store: Arc<dyn OutboxStore>) -> Self {
        let limits = Limits { nul_in_payload: store.capabilities().nul_in_payload, ..Limits::default() };
        Self { store, limits, bell: Bell::default(), actor: Actor::library() }
    }

    /// Bounds payloads to this many bytes. Defaults to 64 MiB.
    #[must_use]
    pub fn with_payload_limit(mut self, bytes: usize) -> Self {
        self.limits.payload_bytes = bytes;
        self
    }

    /// Rings when messages have been added, or made ready again.
    #[must_use]
    pub(crate) fn with_bell(mut self, bell: Bell) -> Self {
        self.bell = bell;
        self
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// The same handle for somebody: what it changes by hand is recorded in the audit trail as theirs. Defaults to
    /// [`Actor::library`].
    #[must_use]
    pub fn by(&self, actor: impl Into<Actor>) -> Self {
        Self { actor: actor.into(), ..self.clone() }
    }

    /// The bounds on messages.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The provider's store.
    pub fn store(&self) -> &Arc<dyn OutboxStore> {
        &self.store
    }

    /// Enqueues one message in a transaction of its own. It is durable when this returns.
    pub async fn enqueue(&self, message: Message) -> Result<Enqueued> {
        let adding = self.adding(std::slice::from_ref(&message));
        let prepared = [adding.within(|| message.prepare(&self.limits))?];
        let enqueued = only(adding.run(self.store.enqueue(&prepared)).await?)?;
        telemetry::enqueued(self.store.identifier(), &prepared, &[enqueued]);
        self.bell.ring();
        Ok(enqueued)
    }

    /// Enqueues many messages: all or none. The results are in the order of the messages.
    pub async fn enqueue_many(&self, messages: Vec<Message>) -> Result<Vec<Enqueued>> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let adding = self.adding(&messages);
        let prepared = adding.within(|| self.prepare(messages))?;
        let enqueued = adding.run(self.store.enqueue(&prepared)).await?;
        telemetry::enqueued(self.store.identifier(), &prepared, &enqueued);
        self.bell.ring();
        Ok(enqueued)
    }

    /// Enqueues one message in the caller's transaction: it is there if and only if the caller commits.
    pub async fn enqueue_in<Tx, Marker>(&self, tx: &mut Tx, message: Message) -> Result<Enqueued>
    where
        Tx: EnqueueIn<Marker>,
    {
        only(self.enqueue_many_in(tx, vec![message]).await?)
    }

    /// Enqueues many messages in the caller's transaction.
    pub async fn enqueue_many_in<Tx, Marker>(
        &self,
        tx: &mut Tx,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>>
    where
        Tx: EnqueueIn<Marker>,
    {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let adding = self.adding(&messages);
        let prepared = adding.within(|| self.prepare(messages))?;
        let enqueued = adding.run(tx.enqueue_in(self.store.as_ref(), &prepared)).await?;
        telemetry::enqueued(self.store.identifier(), &prepared, &enqueued);
        self.bell.ring();
        Ok(enqueued)
    }

    /// Enqueues one message in the caller's transaction on a driver that blocks.
    pub fn enqueue_in_blocking<Tx, Marker>(&self, tx: &mut Tx, message: Message) -> Result<Enqueued>
    where
        Tx: EnqueueInBlocking<Marker>,
    {
        let adding = self.adding(std::slice::from_ref(&message));
        let prepared = [adding.within(|| message.prepare(&self.limits))?];
        let enqueued = adding.within(|| tx.enqueue_in(self.store.as_ref(), &prepared));
        adding.end(&enqueued);
        let enqueued = only(enqueued?)?;
        telemetry::enqueued(self.store.identifier(), &prepared, &[enqueued]);
        self.bell.ring();
        Ok(enqueued)
    }

    /// Claims due messages for `request.owner`. A claim without an answer is given up after two leases, a minute at most: what it
    /// claimed comes back when its lease lapses.
    pub async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch> {
        request.validate()?;
        let claiming = telemetry::Claiming::begin(self.store.identifier());
        let claimed = attempt("outbox.claim", request.call_limit(), self.store.claim(request)).await;
        claiming.end(&claimed);
        let batch = claimed?;
        telemetry::claimed(self.store.identifier(), &batch);
        Ok(batch)
    }

    /// Waits until there may be something to claim, or the request's time is over. See [`QueueStore::wait`](crate::store::QueueStore::wait).
    pub async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        let limit = request.timeout.saturating_add(WAIT_SPARE.max(request.call_limit));
        attempt("outbox.wait", limit, self.store.wait(request)).await
    }

    /// Marks claimed messages as handled.
    pub async fn ack(&self, owner: OwnerToken, claims: &[ClaimHandle]) -> Result<Settled> {
        self.settle_all(owner, claims, &Outcome::Ack).await
    }

    /// Gives claimed messages back to be tried again after `delay`, or after the default backoff.
    pub async fn abandon(
        &self,
        owner: OwnerToken,
        claims: &[ClaimHandle],
        delay: Option<Duration>,
        error: Option<String>,
    ) -> Result<Settled> {
        self.settle_all(owner, claims, &Outcome::Abandon { delay, error }).await
    }

    /// Gives claimed messages back without counting the delivery, at once or after `delay`.
    pub async fn release(
        &self,
        owner: OwnerToken,
        claims: &[ClaimHandle],
        delay: Option<Duration>,
    ) -> Result<Settled> {
        self.settle_all(owner, claims, &Outcome::Release { delay, error: None }).await
    }

    /// Fails claimed messages for good.
    pub async fn fail(
        &self,
        owner: OwnerToken,
        claims: &[ClaimHandle],
        error: Option<String>,
    ) -> Result<Settled> {
        self.settle_all(owner, claims, &Outcome::Fail { reason: FailureReason::Handler, error }).await
    }

    /// Settles claimed messages, each with its own outcome, in one transaction.
    pub async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled> {
        self.settle_handled(owner, settlements, &[]).await
    }

    /// The same for handlers that ran here, in these contexts.
    pub(crate) async fn settle_handled(
        &self,
        owner: OwnerToken,
        settlements: &[Settlement],
        handled: &[TraceContext],
    ) -> Result<Settled> {
        owner.validate("outbox.settle")?;
        let settlements = validate_settlements(settlements)?;
        if settlements.is_empty() {
            return Ok(Settled::default());
        }
        let settle = self.store.settle(owner, &settlements);
        let settled = telemetry::settling(self.store.identifier(), &settlements, handled, settle).await?;
        telemetry::settled(self.store.identifier(), &settlements, &settled);
        Ok(settled)
    }

    async fn settle_all(
        &self,
        owner: OwnerToken,
        claims: &[ClaimHandle],
        outcome: &Outcome,
    ) -> Result<Settled> {
        let settlements: Vec<_> =
            claims.iter().map(|claim| Settlement { claim: *claim, outcome: outcome.clone() }).collect();
        self.settle(owner, &settlements).await
    }

    /// Extends claims to `lease` from now.
    pub async fn renew(&self, owner: OwnerToken, claims: &[ClaimHandle], lease: Duration) -> Result<Settled> {
        owner.validate("outbox.renew")?;
        ClaimRequest::validate_lease("outbox.renew", lease)?;
        if claims.is_empty() {
            return Ok(Settled::default());
        }
        self.store.renew(owner, claims, lease).await
    }

    /// Frees messages whose lease has lapsed. Claims take those anyway; this makes them visible as ready (R2).
    pub async fn reap_expired(&self) -> Result<u64> {
        let reaped = self.store.reap_expired().await?;
        telemetry::reaped(self.store.identifier(), reaped);
        Ok(reaped)
    }

    /// One message, open or settled.
    pub async fn get(&self, id: WorkItemId) -> Result<Option<OutboxMessage>> {
        self.store.get(id).await
    }

    /// Messages that match, newest first.
    pub async fn list(&self, filter: &MessageFilter, page: Page) -> Result<Vec<OutboxMessage>> {
        page.validate()?;
        self.store.list(filter, page).await
    }

    /// Messages that match, in the order in which they were enqueued, some at a time, however many there are.
    pub async fn export(&self, filter: &MessageFilter) -> Result<Box<dyn MessageExport>> {
        self.store.export(filter).await
    }

    /// Cancels messages that have not started: they end Failed with reason `cancelled`. Returns those that changed.
    pub async fn cancel(&self, ids: &[WorkItemId]) -> Result<Vec<WorkItemId>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.actor.validate("outbox.cancel")?;
        let cancelled = self.store.cancel(ids, Some(&self.actor)).await?;
        telemetry::administered(self.store.identifier(), "cancel", &cancelled);
        Ok(cancelled)
    }

    /// Makes failed messages ready again, with all their attempts. Returns those that changed.
    pub async fn requeue(&self, ids: &[WorkItemId]) -> Result<Vec<WorkItemId>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.actor.validate("outbox.requeue")?;
        let requeued = self.store.requeue(ids, &self.actor).await?;
        telemetry::administered(self.store.identifier(), "requeue", &requeued);
        self.bell.ring();
        Ok(requeued)
    }

    /// Makes up to `limit` failed messages that match ready again, oldest failure first.
    pub async fn requeue_where(&self, filter: &MessageFilter, limit: u32) -> Result<Vec<WorkItemId>> {
        if limit == 0 {
            return Err(Error::invalid("outbox.requeue", "limit", "must be at least 1, got 0"));
        }
        self.actor.validate("outbox.requeue")?;
        let requeued = self.store.requeue_where(filter, limit, &self.actor).await?;
        telemetry::administered(self.store.identifier(), "requeue", &requeued);
        self.bell.ring();
        Ok(requeued)
    }

    /// Lets an ordering key that a failed message holds go on without it. False when it was not held.
    pub async fn release_key(&self, key: &str) -> Result<bool> {
        validate_name("outbox.release_key", "ordering_key", key)?;
        self.actor.validate("outbox.release_key")?;
        let released = self.store.release_key(key, &self.actor).await?;
        telemetry::key_released(self.store.identifier(), key, released);
        self.bell.ring();
        Ok(released)
    }

    /// Pauses a topic for every worker, whatever its language: from the next claim on nobody gets messages of it. What was claimed before
    /// goes on to its end, messages can still be enqueued, and nothing of what waits is changed or lost. The reason is told to who asks
    /// why messages wait. False when it is paused already, and then nothing changes.
    ///
    /// Messages of the topic that expire meanwhile fail when it is resumed: nobody looks at them before.
    pub async fn pause(&self, topic: &str, reason: Option<&str>) -> Result<bool> {
        const PAUSE: &str = "outbox.pause";
        validate_name(PAUSE, "topic", topic)?;
        if let Some(reason) = reason {
            validate_name(PAUSE, "reason", reason)?;
        }
        self.actor.validate(PAUSE)?;
        let changed = self.store.pause(topic, reason, &self.actor).await?;
        telemetry::paused(self.store.identifier(), topic, "pause", changed);
        Ok(changed)
    }

    /// Lets workers have the messages of a paused topic again, and wakes them. False when it was not paused.
    pub async fn resume(&self, topic: &str) -> Result<bool> {
        const RESUME: &str = "outbox.resume";
        validate_name(RESUME, "topic", topic)?;
        self.actor.validate(RESUME)?;
        let changed = self.store.resume(topic, &self.actor).await?;
        telemetry::paused(self.store.identifier(), topic, "resume", changed);
        self.bell.ring();
        Ok(changed)
    }

    /// The topics that are paused, by name.
    pub async fn paused(&self) -> Result<Vec<PausedTopic>> {
        self.store.paused().await
    }

    /// How many messages stand where.
    pub async fn stats(&self) -> Result<OutboxStats> {
        self.store.stats().await
    }

    /// The same without what is done and without topics: cheap, whatever the history holds.
    pub async fn backlog(&self) -> Result<OutboxStats> {
        self.store.backlog().await
    }

    /// Deletes settled messages past their age, batch by batch, until none is left. Returns how many. Each batch leaves a record in
    /// the audit trail.
    pub async fn purge(&self, retention: &Retention) -> Result<u64> {
        self.actor.validate("outbox.purge")?;
        self.purge_by(*retention, Some(&self.actor), None).await
    }

    /// Deletes as retention does by itself: without a record of it.
    pub(crate) async fn sweep(&self, retention: Retention, clock: &SweepClock) -> Result<u64> {
        self.purge_by(retention, None, Some(clock)).await
    }

    pub(crate) async fn purge_by(
        &self,
        retention: Retention,
        by: Option<&Actor>,
        clock: Option<&SweepClock>,
    ) -> Result<u64> {
        retention.validate()?;
        let page = |retention| async move { self.store.purge(&retention, by).await };
        let purged = purge_pages("outbox.purge", retention, clock, page).await?;
        telemetry::purged(self.store.identifier(), purged);
        Ok(purged)
    }

    fn adding(&self, messages: &[Message]) -> telemetry::Adding {
        telemetry::Adding::begin(self.store.identifier(), "enqueue", messages.iter())
    }

    fn prepare(&self, messages: Vec<Message>) -> Result<Vec<PreparedMessage>> {
        messages.into_iter().map(|message| message.prepare(&self.limits)).collect()
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("store", &self.store.identifier()).finish_non_exhaustive()
    }
}

fn only(enqueued: Vec<Enqueued>) -> Result<Enqueued> {
    let missing = || Error::new(crate::ErrorKind::Internal, "outbox.enqueue", "the store returned no ids");
    enqueued.into_iter().next().ok_or_else(missing)
}
