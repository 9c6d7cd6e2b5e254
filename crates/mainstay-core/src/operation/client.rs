//! The application's handle on operations.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::audit::Actor;
use crate::bounds::validate_limit;
use crate::error::{Error, Result};
use crate::renewing::{TURN_LIMIT, attempt};
use crate::runtime::{SweepClock, purge_pages};
use crate::store::{CallIn, CallInBlocking, OperationStore};
use crate::telemetry;

use super::{
    Ended, EventPage, NewEvent, NewOperation, Operation, OperationEnd, OperationEvent, OperationFilter,
    OperationId, OperationOptions, OperationPage, OperationRetention, OperationScope, PreparedOperation,
    Progress, answer,
};

/// How many operations are marked as stalled in one transaction.
const MARKED_AT_ONCE: u32 = 100;

/// The application's handle on operations. Cheap to clone.
///
/// All rules are checked here, once, before any provider sees a call. Dropping any of the futures is harmless.
#[derive(Clone)]
pub struct Operations {
    store: Arc<dyn OperationStore>,
    options: OperationOptions,
    actor: Actor,
}

impl Operations {
    /// The operations of a provider's store.
    pub fn new(store: Arc<dyn OperationStore>) -> Self {
        Self { store, options: OperationOptions::default(), actor: Actor::library() }
    }

    /// With other options than the default ones. They are checked where they are used.
    #[must_use]
    pub fn with_options(mut self, options: OperationOptions) -> Self {
        self.options = options;
        self
    }

    /// The same handle for somebody: what it starts is theirs, and what it does by hand is recorded as theirs. Defaults to
    /// [`Actor::library`].
    #[must_use]
    pub fn by(&self, actor: impl Into<Actor>) -> Self {
        Self { actor: actor.into(), ..self.clone() }
    }

    /// The provider's store.
    pub fn store(&self) -> &Arc<dyn OperationStore> {
        &self.store
    }

    /// The options.
    pub fn options(&self) -> &OperationOptions {
        &self.options
    }

    /// Starts an operation. It is durable when this returns. Whoever starts it this way shows signs of life and ends it;
    /// [`Self::begin`] sees to that.
    ///
    /// `NotFound` if what it is a part of is not there.
    pub async fn start(&self, new: NewOperation) -> Result<OperationId> {
        let prepared = new.prepare(&self.actor)?;
        let answers = self.store.run(self.store.starting(&prepared)).await?;
        self.started(&prepared, &answers)
    }

    /// Starts an operation in the caller's transaction: it is there if and only if the caller commits.
    pub async fn start_in<Tx, Marker>(&self, tx: &mut Tx, new: NewOperation) -> Result<OperationId>
    where
        Tx: CallIn<Marker> + ?Sized,
    {
        let prepared = new.prepare(&self.actor)?;
        let answers = tx.call_in(&self.store.starting(&prepared)).await?;
        self.started(&prepared, &answers)
    }

    /// The same on a driver that blocks.
    pub fn start_in_blocking<Tx, Marker>(&self, tx: &mut Tx, new: NewOperation) -> Result<OperationId>
    where
        Tx: CallInBlocking<Marker> + ?Sized,
    {
        let prepared = new.prepare(&self.actor)?;
        let answers = tx.call_in(&self.store.starting(&prepared))?;
        self.started(&prepared, &answers)
    }

    /// Starts an operation for as long as the scope lives: it shows signs of life, and records a failure if it is dropped without an
    /// end.
    pub async fn begin(&self, new: NewOperation) -> Result<OperationScope> {
        self.options.validate()?;
        let prepared = new.prepare(&self.actor)?;
        // Made first, so that whoever drops this future ends what may have been started.
        let mut scope = OperationScope::new(self.clone(), prepared.id);
        let started = match self.store.run(self.store.starting(&prepared)).await {
            Ok(answers) => self.started(&prepared, &answers),
            Err(error) => Err(error),
        };
        match started {
            Ok(_) => {
                scope.live();
                Ok(scope)
            }
            // It may be there all the same, if the answer got lost on its way: then the scope ends it.
            Err(error) if error.is_retryable() => Err(error),
            Err(error) => {
                scope.disarm();
                Err(error)
            }
        }
    }

    /// Records how far an operation has come, which is a sign of life too.
    ///
    /// An operation that has ended refuses it, with an error of the field `operation`: it is time to stop. `NotFound` if there is none.
    pub async fn progress(&self, id: OperationId, progress: Progress) -> Result<()> {
        const PROGRESS: &str = "operation.progress";
        let progress = progress.prepare(PROGRESS)?;
        let answers = self.store.run(self.store.advancing(id, &progress)).await?;
        answer::advanced(PROGRESS, id, &answers)
    }

    /// Shows a sign of life. An operation that has ended refuses it, as it does progress.
    pub async fn heartbeat(&self, id: OperationId) -> Result<()> {
        self.progress(id, Progress::alive()).await
    }

    /// Records something that happened, which is a sign of life too: its number in the operation. An operation that has ended refuses
    /// it, as it does progress.
    pub async fn event(&self, id: OperationId, event: NewEvent) -> Result<u64> {
        let event = event.prepare()?;
        answer::noted(id, &self.store.run(self.store.noting(id, &event)).await?)
    }

    /// The same in the caller's transaction: the event is there if and only if the caller commits. Until then nobody else can record
    /// anything of the operation.
    pub async fn event_in<Tx, Marker>(&self, tx: &mut Tx, id: OperationId, event: NewEvent) -> Result<u64>
    where
        Tx: CallIn<Marker> + ?Sized,
    {
        let event = event.prepare()?;
        answer::noted(id, &tx.call_in(&self.store.noting(id, &event)).await?)
    }

    /// Ends an operation: it was done.
    pub async fn succeed(&self, id: OperationId) -> Result<Ended> {
        self.end(id, OperationEnd::Succeeded).await
    }

    /// Ends an operation: it failed.
    pub async fn fail(&self, id: OperationId, error: impl fmt::Display) -> Result<Ended> {
        let end = OperationEnd::failed(error);
        self.end(id, end).await
    }

    /// Ends an operation: it was called off. Whoever works on it is told by its next sign of life.
    pub async fn cancel(&self, id: OperationId) -> Result<Ended> {
        self.end(id, OperationEnd::Cancelled).await
    }

    /// Ends an operation, unless it has ended: the first end stays. `NotFound` if there is none.
    pub async fn end(&self, id: OperationId, end: OperationEnd) -> Result<Ended> {
        let answers = self.store.run(self.store.ending(id, &end)).await?;
        self.ended(id, &end, &answers)
    }

    /// The same in the caller's transaction: it ends if and only if the caller commits.
    pub async fn end_in<Tx, Marker>(&self, tx: &mut Tx, id: OperationId, end: OperationEnd) -> Result<Ended>
    where
        Tx: CallIn<Marker> + ?Sized,
    {
        let answers = tx.call_in(&self.store.ending(id, &end)).await?;
        self.ended(id, &end, &answers)
    }

    /// The same in the caller's transaction on a driver that blocks.
    pub fn end_in_blocking<Tx, Marker>(
        &self,
        tx: &mut Tx,
        id: OperationId,
        end: OperationEnd,
    ) -> Result<Ended>
    where
        Tx: CallInBlocking<Marker> + ?Sized,
    {
        let answers = tx.call_in(&self.store.ending(id, &end))?;
        self.ended(id, &end, &answers)
    }

    /// One operation.
    pub async fn get(&self, id: OperationId) -> Result<Option<Operation>> {
        self.store.get(id).await
    }

    /// Operations that match, newest first.
    pub async fn list(&self, filter: &OperationFilter, page: OperationPage) -> Result<Vec<Operation>> {
        const LIST: &str = "operation.list";
        validate_limit(LIST, page.limit)?;
        filter.validate(LIST)?;
        let found = self.store.list(filter, page).await?;
        if let Some(last) = page.before
            && found.is_empty()
            && self.store.get(last).await?.is_none()
        {
            return Err(Error::page_lost(LIST, "before"));
        }
        Ok(found)
    }

    /// The parts of an operation, newest first.
    pub async fn children(&self, id: OperationId, page: OperationPage) -> Result<Vec<Operation>> {
        self.list(&OperationFilter::all().parent(id), page).await
    }

    /// The events of an operation, in their order.
    pub async fn events(&self, id: OperationId, page: EventPage) -> Result<Vec<OperationEvent>> {
        const EVENTS: &str = "operation.events";
        validate_limit(EVENTS, page.limit)?;
        if i64::try_from(page.after).is_err() {
            return Err(Error::invalid(EVENTS, "after", "must be the number of an event"));
        }
        self.store.events(id, page).await
    }

    /// Running operations without a sign of life for this long, the longest silent first. Nothing is changed.
    pub async fn stalled(&self, silence: Duration, limit: u32) -> Result<Vec<Operation>> {
        const STALLED: &str = "operation.stalled";
        validate_silence(STALLED, silence)?;
        validate_limit(STALLED, limit)?;
        self.store.stalled(silence, limit).await
    }

    /// Ends all running operations without a sign of life for this long, as stalled, and records that in the audit trail. Whoever still
    /// works on one is told by its next sign of life, which is refused. Returns which.
    pub async fn mark_stalled(&self, silence: Duration) -> Result<Vec<OperationId>> {
        self.actor.validate("operation.mark_stalled")?;
        self.mark_stalled_by(silence, Some(&self.actor)).await
    }

    /// What the runtime does by itself: the same without a record of it.
    pub(crate) async fn give_up(&self, silence: Duration) -> Result<Vec<OperationId>> {
        self.mark_stalled_by(silence, None).await
    }

    async fn mark_stalled_by(&self, silence: Duration, by: Option<&Actor>) -> Result<Vec<OperationId>> {
        validate_silence("operation.mark_stalled", silence)?;
        let mut marked = Vec::new();
        loop {
            let stalled = self.store.mark_stalled(silence, MARKED_AT_ONCE, by);
            let batch = attempt("operation.mark_stalled", TURN_LIMIT, stalled).await?;
            telemetry::operations_stalled(self.store.identifier(), &batch);
            let last = batch.len() < MARKED_AT_ONCE as usize;
            marked.extend(batch);
            if last {
                return Ok(marked);
            }
        }
    }

    /// Deletes operations that ended long ago, with their events, batch by batch, until none is left, and records that. Returns how
    /// many.
    pub async fn purge(&self, retention: &OperationRetention) -> Result<u64> {
        self.actor.validate("operation.purge")?;
        self.purge_by(*retention, Some(&self.actor), None).await
    }

    /// Deletes as retention does by itself: without a record of it.
    pub(crate) async fn sweep(&self, retention: OperationRetention, clock: &SweepClock) -> Result<u64> {
        self.purge_by(retention, None, Some(clock)).await
    }

    async fn purge_by(
        &self,
        retention: OperationRetention,
        by: Option<&Actor>,
        clock: Option<&SweepClock>,
    ) -> Result<u64> {
        retention.validate()?;
        let page = |retention: OperationRetention| async move {
            let Some(age) = retention.ended else { return Ok(0) };
            self.store.purge(age, retention.batch, by).await
        };
        let purged = purge_pages("operation.purge", retention, clock, page).await?;
        telemetry::operations_purged(self.store.identifier(), purged);
        Ok(purged)
    }

    fn started(&self, prepared: &PreparedOperation, answers: &[String]) -> Result<OperationId> {
        answer::started(prepared.parent, answers)?;
        telemetry::operation_started(self.store.identifier(), prepared);
        Ok(prepared.id)
    }

    fn ended(&self, id: OperationId, end: &OperationEnd, answers: &[String]) -> Result<Ended> {
        let ended = answer::ended(id, answers)?;
        telemetry::operation_ended(self.store.identifier(), id, end, ended);
        Ok(ended)
    }
}

/// Refuses no silence at all, which would be that of every operation.
fn validate_silence(operation: &'static str, silence: Duration) -> Result<()> {
    if silence.is_zero() {
        return Err(Error::invalid(operation, "silence", "must be greater than zero"));
    }
    Ok(())
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.store.identifier();
        f.debug_struct("Operations")
            .field("store", &store)
            .field("actor", &self.actor)
            .finish_non_exhaustive()
    }
}
