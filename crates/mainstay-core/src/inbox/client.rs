//! The application's handle on an inbox.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::audit::Actor;
use crate::bell::Bell;
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::id::OwnerToken;
use crate::outbox::{Outbox, PausedTopic, Retention};
use crate::queue::{ClaimBatch, ClaimHandle, ClaimRequest, Settled, Settlement};
use crate::runtime::{SweepClock, purge_pages};
use crate::store::{CallIn, CallInBlocking, InboxStore, Provider, Queue};
use crate::telemetry;
use crate::text::error_text;

use super::{
    Begin, BeginAnswer, ContentHash, EntryState, Guard, GuardOptions, InboxEntry, InboxFilter, InboxKey,
    InboxPage, InboxRetention, InboxStats, Incoming, Mark, PreparedIncoming, Received, Reservation, Seen,
};

/// The application's handle on an inbox. Cheap to clone.
///
/// All rules are checked here, once, before any provider sees a call. Dropping any of the futures is harmless: the operation
/// either happened as a whole or not at all.
#[derive(Clone)]
pub struct Inbox {
    store: Arc<dyn InboxStore>,
    queue: Outbox,
    /// Who changes messages by hand. None for an application that goes about its business.
    actor: Option<Actor>,
}

/// What `begin` came to, with how long to wait.
pub(super) enum Attempt {
    New(Guard),
    Busy { until: Timestamp, wait: Duration },
    Done,
    Dead,
}

impl Inbox {
    /// The inbox of a provider.
    pub fn new(provider: &dyn Provider) -> Self {
        Self { store: provider.inbox(), queue: Outbox::new(provider.queue(Queue::Inbox)), actor: None }
    }

    /// Bounds payloads to this many bytes. Defaults to 64 MiB.
    #[must_use]
    pub fn with_payload_limit(mut self, bytes: usize) -> Self {
        self.queue = self.queue.with_payload_limit(bytes);
        self
    }

    /// Rings when messages have been received, or revived.
    #[must_use]
    pub(crate) fn with_bell(mut self, bell: Bell) -> Self {
        self.queue = self.queue.with_bell(bell);
        self
    }

    /// The same handle for somebody who changes messages by hand: what it marks and revives is recorded in the audit trail as theirs.
    /// Defaults to nobody: then marking, which applications do all the time, leaves no record, and reviving is [`Actor::library`]'s.
    #[must_use]
    pub fn by(&self, actor: impl Into<Actor>) -> Self {
        let actor = actor.into();
        Self { store: Arc::clone(&self.store), queue: self.queue.by(&actor), actor: Some(actor) }
    }

    /// The provider's store.
    pub fn store(&self) -> &Arc<dyn InboxStore> {
        &self.store
    }

    /// The queue that workers take received messages from. What is enqueued there directly is in no ledger: use [`Inbox::enqueue`].
    pub fn queue(&self) -> &Outbox {
        &self.queue
    }

    // ---- asking and marking by hand

    /// Whether a message is done. Notes it as seen if it is not known, and when it was last seen in any case; that is no attempt.
    ///
    /// By itself this keeps nobody from handling the message twice at the same time: see [`Inbox::begin`].
    pub async fn already_processed(
        &self,
        source: &str,
        message_id: &str,
        hash: impl Into<Option<ContentHash>>,
    ) -> Result<Seen> {
        let key = InboxKey::new(source, message_id)?;
        let seen = self.store.seen(&key, hash.into().as_ref()).await?;
        telemetry::seen(self.store.identifier(), &key, &seen);
        Ok(seen)
    }

    /// Says that somebody is at a message, for `lease`. False when that is not so: it is done, dead, or reserved by a guard.
    pub async fn mark_processing(&self, source: &str, message_id: &str, lease: Duration) -> Result<bool> {
        ClaimRequest::validate_lease("inbox.mark_processing", lease)?;
        self.mark(source, message_id, Mark::Processing(lease)).await
    }

    /// Says that a message is done, whoever is at it, and takes it out of the queue unless a worker has it; a delivery that is under
    /// way goes on, and whatever it ends in, the message stays done. False when it was done already.
    pub async fn mark_processed(&self, source: &str, message_id: &str) -> Result<bool> {
        self.mark(source, message_id, Mark::Processed).await
    }

    /// Gives a message up, whoever is at it. False when it was dead already, or is done.
    pub async fn mark_dead(&self, source: &str, message_id: &str, error: Option<String>) -> Result<bool> {
        let error = error.as_deref().and_then(error_text);
        self.mark(source, message_id, Mark::Dead(error)).await
    }

    async fn mark(&self, source: &str, message_id: &str, mark: Mark) -> Result<bool> {
        let key = InboxKey::new(source, message_id)?;
        self.actor.as_ref().map(|actor| actor.validate("inbox.mark")).transpose()?;
        let changed = self.store.mark(&key, &mark, self.actor.as_ref()).await?;
        telemetry::marked(self.store.identifier(), &key, mark.as_str(), changed);
        Ok(changed)
    }

    // ---- reserving

    /// Reserves a message while it is handled. Of any number of callers at once, exactly one gets [`Begin::New`]; if that one
    /// dies, its reservation lapses and the next caller gets it (R14).
    pub async fn begin(&self, source: &str, message_id: &str) -> Result<Begin> {
        self.begin_with(source, message_id, &GuardOptions::default()).await
    }

    /// The same with other options.
    pub async fn begin_with(&self, source: &str, message_id: &str, options: &GuardOptions) -> Result<Begin> {
        let key = InboxKey::new(source, message_id)?;
        Ok(match self.attempt(&key, options).await? {
            Attempt::New(guard) => Begin::New(guard),
            Attempt::Busy { until, .. } => Begin::Busy { until },
            Attempt::Done => Begin::Done,
            Attempt::Dead => Begin::Dead,
        })
    }

    pub(super) async fn attempt(&self, key: &InboxKey, options: &GuardOptions) -> Result<Attempt> {
        options.validate()?;
        let (owner, asked_at) = (OwnerToken::new(), clock::now());
        let answer = self.store.begin(key, options.hash.as_ref(), owner, options.lease).await?;
        telemetry::begun(self.store.identifier(), key, &answer);
        Ok(match answer {
            BeginAnswer::New(reserved) => {
                let reservation = Reservation { key: key.clone(), owner, generation: reserved.generation };
                let store = Arc::clone(&self.store);
                Attempt::New(Guard::new(store, reservation, reserved, options, asked_at))
            }
            BeginAnswer::Busy { until, wait, .. } => Attempt::Busy { until, wait },
            BeginAnswer::Done { .. } => Attempt::Done,
            BeginAnswer::Dead { .. } => Attempt::Dead,
        })
    }

    // ---- the queue

    /// Puts a message into the queue, in a transaction of its own. It is durable when this returns. A message that is known is not
    /// added a second time: see [`ReceivedOutcome`](super::ReceivedOutcome).
    pub async fn enqueue(&self, incoming: Incoming) -> Result<Received> {
        only(self.enqueue_many(vec![incoming]).await?)
    }

    /// Puts many messages into the queue: all or none. The results are in the order of the messages.
    pub async fn enqueue_many(&self, incoming: Vec<Incoming>) -> Result<Vec<Received>> {
        if incoming.is_empty() {
            return Ok(Vec::new());
        }
        let adding = self.adding(&incoming);
        let prepared = adding.within(|| self.prepare(incoming))?;
        let received = adding.run(self.store.enqueue(&prepared)).await?;
        telemetry::received(self.store.identifier(), &prepared, &received);
        self.queue.bell().ring();
        Ok(received)
    }

    /// Puts a message into the queue in the caller's transaction: it is there if and only if the caller commits.
    pub async fn enqueue_in<Tx, Marker>(&self, tx: &mut Tx, incoming: Incoming) -> Result<Received>
    where
        Tx: CallIn<Marker> + ?Sized,
    {
        only(self.enqueue_many_in(tx, vec![incoming]).await?)
    }

    /// Puts many messages into the queue in the caller's transaction.
    pub async fn enqueue_many_in<Tx, Marker>(
        &self,
        tx: &mut Tx,
        incoming: Vec<Incoming>,
    ) -> Result<Vec<Received>>
    where
        Tx: CallIn<Marker> + ?Sized,
    {
        if incoming.is_empty() {
            return Ok(Vec::new());
        }
        let adding = self.adding(&incoming);
        let prepared = adding.within(|| self.prepare(incoming))?;
        let reception = self.store.reception(&prepared);
        let receiving = async { self.store.received(&tx.call_in(&reception).await?) };
        let received = adding.run(receiving).await?;
        telemetry::received(self.store.identifier(), &prepared, &received);
        self.queue.bell().ring();
        Ok(received)
    }

    /// Puts a message into the queue in the caller's transaction on a driver that blocks.
    pub fn enqueue_in_blocking<Tx, Marker>(&self, tx: &mut Tx, incoming: Incoming) -> Result<Received>
    where
        Tx: CallInBlocking<Marker> + ?Sized,
    {
        let adding = self.adding(std::slice::from_ref(&incoming));
        let prepared = adding.within(|| self.prepare(vec![incoming]))?;
        let received = adding.within(|| self.store.received(&tx.call_in(&self.store.reception(&prepared))?));
        adding.end(&received);
        let received = received?;
        telemetry::received(self.store.identifier(), &prepared, &received);
        self.queue.bell().ring();
        only(received)
    }

    /// Claims due messages for `request.owner`. What was only seen and never enqueued is never among them (R15).
    pub async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch> {
        self.queue.claim(request).await
    }

    /// Marks claimed messages as done.
    pub async fn ack(&self, owner: OwnerToken, claims: &[ClaimHandle]) -> Result<Settled> {
        self.queue.ack(owner, claims).await
    }

    /// Gives claimed messages back to be tried again after `delay`, or after the default backoff.
    pub async fn abandon(
        &self,
        owner: OwnerToken,
        claims: &[ClaimHandle],
        delay: Option<Duration>,
        error: Option<String>,
    ) -> Result<Settled> {
        self.queue.abandon(owner, claims, delay, error).await
    }

    /// Gives claimed messages up: they are dead until somebody revives them.
    pub async fn fail(
        &self,
        owner: OwnerToken,
        claims: &[ClaimHandle],
        error: Option<String>,
    ) -> Result<Settled> {
        self.queue.fail(owner, claims, error).await
    }

    /// Settles claimed messages, each with its own outcome, in one transaction.
    pub async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled> {
        self.queue.settle(owner, settlements).await
    }

    /// Frees messages whose lease has lapsed. Claims take those anyway.
    pub async fn reap_expired(&self) -> Result<u64> {
        self.queue.reap_expired().await
    }

    // ---- looking and mending

    /// One message of the ledger.
    pub async fn get(&self, source: &str, message_id: &str) -> Result<Option<InboxEntry>> {
        self.store.get(&InboxKey::new(source, message_id)?).await
    }

    /// Messages of the ledger that match, newest first.
    pub async fn list(&self, filter: &InboxFilter, page: &InboxPage) -> Result<Vec<InboxEntry>> {
        page.validate()?;
        let found = self.store.list(filter, page).await?;
        if let Some(last) = &page.after
            && found.is_empty()
            && self.store.get(last).await?.is_none()
        {
            return Err(Error::page_lost("inbox.list", "after"));
        }
        Ok(found)
    }

    /// Makes dead messages live again, with all their attempts: ready in the queue if they were there, otherwise free for the next
    /// caller. Returns those that changed.
    pub async fn revive(&self, keys: &[InboxKey]) -> Result<Vec<InboxKey>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let by = self.administrator();
        by.validate("inbox.revive")?;
        let revived = self.store.revive(keys, &by).await?;
        telemetry::revived(self.store.identifier(), &revived);
        self.queue.bell().ring();
        Ok(revived)
    }

    /// The same for up to `limit` dead messages that match, newest first.
    pub async fn revive_where(&self, filter: &InboxFilter, limit: u32) -> Result<Vec<InboxKey>> {
        if limit == 0 {
            return Err(Error::invalid("inbox.revive", "limit", "must be at least 1, got 0"));
        }
        if filter.state.is_some_and(|state| state != EntryState::Dead) {
            return Ok(Vec::new());
        }
        let filter = filter.clone().state(EntryState::Dead);
        let (mut revived, mut after) = (Vec::new(), None);
        while (revived.len() as u64) < u64::from(limit) {
            let left = u64::from(limit) - revived.len() as u64;
            let page = InboxPage { limit: left.min(1_000) as u32, after };
            let dead: Vec<_> = self.list(&filter, &page).await?.into_iter().map(|entry| entry.key).collect();
            let full = dead.len() == page.limit as usize;
            // Those that are revived are no longer listed, so only what could not be is to be passed over.
            let changed = self.revive(&dead).await?;
            after = dead.iter().rev().find(|key| !changed.contains(key)).cloned().or(page.after);
            revived.extend(changed);
            if !full {
                break;
            }
        }
        Ok(revived)
    }

    /// Pauses a topic of the queue for every worker, as [`Outbox::pause`] does. What is received without the queue, with
    /// [`begin`](Self::begin) and its like, is not held up.
    pub async fn pause(&self, topic: &str, reason: Option<&str>) -> Result<bool> {
        self.queue.by(self.administrator()).pause(topic, reason).await
    }

    /// Lets workers have the messages of a paused topic again, and wakes them. False when it was not paused.
    pub async fn resume(&self, topic: &str) -> Result<bool> {
        self.queue.by(self.administrator()).resume(topic).await
    }

    /// The topics of the queue that are paused, by name.
    pub async fn paused(&self) -> Result<Vec<PausedTopic>> {
        self.queue.paused().await
    }

    /// How many messages stand where, in the ledger and in the queue.
    pub async fn stats(&self) -> Result<InboxStats> {
        Ok(InboxStats::new(self.store.stats().await?, self.queue.stats().await?))
    }

    /// Forgets settled messages past their age, batch by batch, until none is left. Returns how many. A forgotten message that comes
    /// again is new. Each batch leaves a record in the audit trail.
    pub async fn forget(&self, retention: &InboxRetention) -> Result<u64> {
        let by = self.administrator();
        by.validate("inbox.forget")?;
        self.forget_by(*retention, Some(&by), None).await
    }

    /// Forgets as retention does by itself: without a record of it.
    pub(crate) async fn sweep(&self, retention: InboxRetention, clock: &SweepClock) -> Result<u64> {
        self.forget_by(retention, None, Some(clock)).await
    }

    async fn forget_by(
        &self,
        retention: InboxRetention,
        by: Option<&Actor>,
        clock: Option<&SweepClock>,
    ) -> Result<u64> {
        retention.validate()?;
        let page = |retention| async move { self.store.forget(&retention, by).await };
        let forgotten = purge_pages("inbox.forget", retention, clock, page).await?;
        telemetry::forgotten(self.store.identifier(), forgotten);
        // What was in the queue without being in the ledger.
        let rest = Retention::default().done(retention.done).failed(retention.dead).batch(retention.batch);
        Ok(forgotten + self.queue.purge_by(rest, by, clock).await?)
    }

    fn administrator(&self) -> Actor {
        self.actor.clone().unwrap_or_else(Actor::library)
    }

    fn adding(&self, incoming: &[Incoming]) -> telemetry::Adding {
        let messages = incoming.iter().map(Incoming::message);
        telemetry::Adding::begin(self.store.identifier(), "receive", messages)
    }

    fn prepare(&self, incoming: Vec<Incoming>) -> Result<Vec<PreparedIncoming>> {
        incoming.into_iter().map(|incoming| incoming.prepare(self.queue.limits())).collect()
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("store", &self.store.identifier()).finish_non_exhaustive()
    }
}

fn only(received: Vec<Received>) -> Result<Received> {
    let missing = || Error::new(ErrorKind::Internal, "inbox.enqueue", "the store gave no answer");
    received.into_iter().next().ok_or_else(missing)
}
