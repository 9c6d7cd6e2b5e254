//! The application's handle on joins.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::audit::Actor;
use crate::bell::Bell;
use crate::error::{Error, Result};
use crate::id::{JoinId, WorkItemId};
use crate::outbox::Limits;
use crate::runtime::{SweepClock, purge_pages};
use crate::store::{CallIn, CallInBlocking, JoinStore, StoreCall};
use crate::telemetry;

use super::{
    Attached, CancelledJoin, Counted, Join, JoinFilter, JoinMember, JoinPage, JoinRetention, JoinState,
    JoinStats, MemberPage, NewJoin, PreparedJoin, Reported, Step,
};

/// The application's handle on joins. Cheap to clone.
///
/// All rules are checked here, once, before any provider sees a call. Dropping any of the futures is harmless: the operation
/// either happened as a whole or not at all.
#[derive(Clone)]
pub struct Joins {
    store: Arc<dyn JoinStore>,
    limits: Limits,
    /// Rung when this process has started a join that has a deadline.
    nearer: Arc<Notify>,
    bell: Bell,
    /// Who changes joins by hand. None for an application that goes about its business.
    actor: Option<Actor>,
}

impl Joins {
    /// Joins over a provider's store.
    pub fn new(store: Arc<dyn JoinStore>) -> Self {
        let limits = Limits { nul_in_payload: store.capabilities().nul_in_payload, ..Limits::default() };
        Self { store, limits, nearer: Arc::default(), bell: Bell::default(), actor: None }
    }

    /// Bounds payloads of continuations to this many bytes. Defaults to 64 MiB.
    #[must_use]
    pub fn with_payload_limit(mut self, bytes: usize) -> Self {
        self.limits.payload_bytes = bytes;
        self
    }

    /// Rings when a join was started, or what it does next was put into the outbox.
    pub(crate) fn with_bell(mut self, bell: Bell) -> Self {
        self.bell = bell;
        self
    }

    /// The same handle for somebody who changes joins by hand: what it starts, attaches, reports and cancels is recorded in
    /// the audit trail as theirs. Defaults to nobody: then starting, attaching and reporting, which applications do all the time, leave no
    /// record, and cancelling is [`Actor::library`]'s.
    #[must_use]
    pub fn by(&self, actor: impl Into<Actor>) -> Self {
        Self { actor: Some(actor.into()), ..self.clone() }
    }

    /// The provider's store.
    pub fn store(&self) -> &Arc<dyn JoinStore> {
        &self.store
    }

    /// Starts a join. It is durable when this returns. `InvalidArgument` if it was given an id that is taken.
    pub async fn start(&self, join: NewJoin) -> Result<JoinId> {
        let join = join.prepare(&self.limits)?;
        let answers = self.store.run(self.starting(&join)?).await?;
        self.started(&join, &answers)
    }

    /// Starts a join in the caller's transaction: it is there if and only if the caller commits.
    pub async fn start_in<Tx, Marker>(&self, tx: &mut Tx, join: NewJoin) -> Result<JoinId>
    where
        Tx: CallIn<Marker>,
    {
        let join = join.prepare(&self.limits)?;
        let answers = tx.call_in(&self.starting(&join)?).await?;
        self.started(&join, &answers)
    }

    /// The same on a driver that blocks.
    pub fn start_in_blocking<Tx, Marker>(&self, tx: &mut Tx, join: NewJoin) -> Result<JoinId>
    where
        Tx: CallInBlocking<Marker>,
    {
        let join = join.prepare(&self.limits)?;
        let answers = tx.call_in(&self.starting(&join)?)?;
        self.started(&join, &answers)
    }

    fn starting(&self, join: &PreparedJoin) -> Result<StoreCall> {
        Ok(self.store.starting(join, self.named("join.start")?))
    }

    /// Whoever was named, if they can be.
    fn named(&self, operation: &'static str) -> Result<Option<&Actor>> {
        let actor = self.actor.as_ref();
        actor.map_or(Ok(()), |actor| actor.validate(operation))?;
        Ok(actor)
    }

    fn started(&self, join: &PreparedJoin, answers: &[String]) -> Result<JoinId> {
        self.store.started(join.id(), answers)?;
        telemetry::join_started(self.store.identifier(), join);
        if join.deadline().is_some() {
            self.nearer.notify_one();
            self.bell.ring();
        }
        Ok(join.id())
    }

    /// Ends when this process has started a join that has a deadline.
    pub(super) async fn nearer_deadline(&self) {
        self.nearer.notified().await;
    }

    /// Makes items steps of a join: messages of the outbox, or whatever is then reported by hand. Those that are members already
    /// stay as they are. A message that has ended before this is counted at once.
    ///
    /// `NotFound` if there is no such join, and an error if it has ended.
    pub async fn attach(&self, join: JoinId, items: &[WorkItemId]) -> Result<Attached> {
        let answers = self.store.run(self.attaching(join, items)?).await?;
        self.attached(join, &answers)
    }

    /// The same in the caller's transaction.
    pub async fn attach_in<Tx, Marker>(
        &self,
        tx: &mut Tx,
        join: JoinId,
        items: &[WorkItemId],
    ) -> Result<Attached>
    where
        Tx: CallIn<Marker>,
    {
        let answers = tx.call_in(&self.attaching(join, items)?).await?;
        self.attached(join, &answers)
    }

    /// The same in the caller's transaction on a driver that blocks.
    pub fn attach_in_blocking<Tx, Marker>(
        &self,
        tx: &mut Tx,
        join: JoinId,
        items: &[WorkItemId],
    ) -> Result<Attached>
    where
        Tx: CallInBlocking<Marker>,
    {
        let answers = tx.call_in(&self.attaching(join, items)?)?;
        self.attached(join, &answers)
    }

    fn attaching(&self, join: JoinId, items: &[WorkItemId]) -> Result<StoreCall> {
        Ok(self.store.attaching(join, items, self.named("join.attach")?))
    }

    fn counted(&self, counted: &[Counted]) {
        telemetry::joins_counted(self.store.identifier(), counted);
        if counted.iter().any(|counted| counted.state != JoinState::Pending) {
            self.bell.ring();
        }
    }

    fn attached(&self, join: JoinId, answers: &[String]) -> Result<Attached> {
        let attached = self.store.attached(join, answers)?;
        telemetry::join_attached(self.store.identifier(), join, attached.added);
        self.counted(attached.counted.as_slice());
        Ok(attached)
    }

    /// Counts a step by hand, once: a step that was counted before, by hand or by the end of its message, is not counted again.
    ///
    /// `NotFound` if there is no such join, or the item is no member of it.
    pub async fn report(&self, join: JoinId, item: WorkItemId, step: Step) -> Result<Reported> {
        let answers = self.store.run(self.reporting(join, item, step)?).await?;
        self.reported(join, item, &answers)
    }

    /// The same in the caller's transaction.
    pub async fn report_in<Tx, Marker>(
        &self,
        tx: &mut Tx,
        join: JoinId,
        item: WorkItemId,
        step: Step,
    ) -> Result<Reported>
    where
        Tx: CallIn<Marker>,
    {
        let answers = tx.call_in(&self.reporting(join, item, step)?).await?;
        self.reported(join, item, &answers)
    }

    /// The same in the caller's transaction on a driver that blocks.
    pub fn report_in_blocking<Tx, Marker>(
        &self,
        tx: &mut Tx,
        join: JoinId,
        item: WorkItemId,
        step: Step,
    ) -> Result<Reported>
    where
        Tx: CallInBlocking<Marker>,
    {
        let answers = tx.call_in(&self.reporting(join, item, step)?)?;
        self.reported(join, item, &answers)
    }

    fn reporting(&self, join: JoinId, item: WorkItemId, step: Step) -> Result<StoreCall> {
        Ok(self.store.reporting(join, item, step, self.named("join.report")?))
    }

    fn reported(&self, join: JoinId, item: WorkItemId, answers: &[String]) -> Result<Reported> {
        let reported = self.store.reported(join, item, answers)?;
        if let Reported::Counted(counted) = &reported {
            self.counted(&[*counted]);
        }
        Ok(reported)
    }

    /// One join.
    pub async fn get(&self, id: JoinId) -> Result<Option<Join>> {
        self.store.get(id).await
    }

    /// Joins that match, newest first.
    pub async fn list(&self, filter: &JoinFilter, page: JoinPage) -> Result<Vec<Join>> {
        filter.validate()?;
        page.validate()?;
        self.store.list(filter, page).await
    }

    /// A join's members, by id.
    pub async fn members(&self, id: JoinId, page: MemberPage) -> Result<Vec<JoinMember>> {
        page.validate()?;
        self.store.members(id, page).await
    }

    /// The joins that an item is a member of.
    pub async fn of_item(&self, item: WorkItemId) -> Result<Vec<JoinId>> {
        self.store.of_item(item).await
    }

    /// Cancels a join: it ends without a continuation, and those of its messages that have not started are cancelled, which other
    /// joins of theirs count as failed. What is being handled goes on and is not counted here any more.
    ///
    /// `NotFound` if there is no such join.
    pub async fn cancel(&self, id: JoinId) -> Result<CancelledJoin> {
        let by = self.actor.clone().unwrap_or_else(Actor::library);
        by.validate("join.cancel")?;
        let cancelled = self.store.cancel(id, &by).await?;
        telemetry::join_cancelled(self.store.identifier(), id, &cancelled);
        self.counted(&cancelled.counted);
        Ok(cancelled)
    }

    /// Ends up to `limit` joins whose deadline has passed. [`super::JoinService`] does this by itself.
    pub async fn expire(&self, limit: u32) -> Result<Vec<Counted>> {
        if limit == 0 {
            return Err(Error::invalid("join.expire", "limit", "must be at least 1, got 0"));
        }
        let ended = self.store.expire(limit).await?;
        self.counted(&ended);
        Ok(ended)
    }

    /// How many joins stand where.
    pub async fn stats(&self) -> Result<JoinStats> {
        self.store.stats().await
    }

    /// Deletes joins that ended long ago with their members, batch by batch, until none is left. Returns how many rows. Recorded in
    /// the audit trail where an actor is named, for each batch.
    pub async fn purge(&self, retention: &JoinRetention) -> Result<u64> {
        self.purge_by(*retention, None).await
    }

    /// Deletes as retention does by itself.
    pub(crate) async fn sweep(&self, retention: JoinRetention, clock: &SweepClock) -> Result<u64> {
        self.purge_by(retention, Some(clock)).await
    }

    async fn purge_by(&self, retention: JoinRetention, clock: Option<&SweepClock>) -> Result<u64> {
        retention.validate()?;
        self.actor.as_ref().map(|actor| actor.validate("join.purge")).transpose()?;
        let page = |retention: JoinRetention| async move {
            let Some(age) = retention.ended else { return Ok(0) };
            self.store.purge(age, retention.batch, self.actor.as_ref()).await
        };
        let purged = purge_pages("join.purge", retention, clock, page).await?;
        telemetry::joins_purged(self.store.identifier(), purged);
        Ok(purged)
    }
}

impl fmt::Debug for Joins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joins").field("store", &self.store.identifier()).finish_non_exhaustive()
    }
}
