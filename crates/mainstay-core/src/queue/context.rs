//! What a handler is given: the message, its claim, and the means to commit together with it.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{JoinId, MessageId, OwnerToken, WorkItemId};
use crate::inbox::{MESSAGE_ID, SOURCE};
use crate::job::{CurrentRun, Jobs};
use crate::join::JOIN;
use crate::outbox::{Enqueued, Headers, Message, Outbox, PreparedMessage, RESERVED_HEADER};
use crate::renewing::attempt;
use crate::store::{StoreCall, StoreTransaction};
use crate::telemetry;
use crate::trace::TraceContext;

use super::cancel::Cancel;
use super::{Claimed, Outcome, Settlement};

/// A message in the hands of its handler. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Delivery>);

/// Where a handler's messages come from, and where those it enqueues go.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) queue: Outbox,
    pub(crate) outbox: Outbox,
    /// Where what there is to say of runs is noted.
    pub(crate) jobs: Option<Jobs>,
}

struct Delivery {
    claimed: Claimed,
    ends: Arc<Ends>,
    owner: OwnerToken,
    trace: TraceContext,
    parent: Option<TraceContext>,
    run: Option<CurrentRun>,
    stopping: CancellationToken,
    cancel: Cancel,
    /// How far the handler's own transaction has come; see the constants below.
    completion: AtomicU8,
}

/// How long a handler waits at most until its start is noted.
const NOTE_LIMIT: Duration = Duration::from_secs(5);

/// The handler has not acked by itself.
const OPEN: u8 = 0;
/// The handler's transaction is committing its ack. Its claim may look lost from outside, because it is settled.
const COMPLETING: u8 = 1;
/// The ack has been committed in the handler's own transaction.
const COMPLETED: u8 = 2;
/// The handler's transaction found the claim gone, and that has been reported.
const LOST: u8 = 3;

impl Context {
    pub(crate) fn new(
        claimed: Claimed,
        ends: Arc<Ends>,
        owner: OwnerToken,
        (trace, parent): (TraceContext, Option<TraceContext>),
        stopping: CancellationToken,
    ) -> Self {
        let run = CurrentRun::from_headers(&claimed.headers);
        let (cancel, completion) = (Cancel::default(), AtomicU8::new(OPEN));
        Self(Arc::new(Delivery { claimed, ends, owner, trace, parent, run, stopping, cancel, completion }))
    }

    /// The row's id.
    pub fn id(&self) -> WorkItemId {
        self.0.claimed.id()
    }
    /// The message's id, the same over all deliveries: deduplicate by this.
    pub fn message_id(&self) -> MessageId {
        self.0.claimed.message_id
    }
    /// The topic.
    pub fn topic(&self) -> &str {
        &self.0.claimed.topic
    }
    /// The payload.
    pub fn payload(&self) -> &str {
        &self.0.claimed.payload
    }
    /// The headers.
    pub fn headers(&self) -> &Headers {
        &self.0.claimed.headers
    }
    /// The correlation id.
    pub fn correlation_id(&self) -> Option<&str> {
        self.0.claimed.correlation_id.as_deref()
    }
    /// Where a received message comes from; none for others.
    pub fn source(&self) -> Option<&str> {
        self.reserved(SOURCE)
    }
    /// What its source calls a received message; none for others.
    pub fn received_id(&self) -> Option<&str> {
        self.reserved(MESSAGE_ID)
    }
    /// The join that this message continues; none for others.
    pub fn join(&self) -> Option<JoinId> {
        self.reserved(JOIN)?.parse().ok()
    }
    /// What Mainstay itself says of the message.
    fn reserved(&self, name: &str) -> Option<&str> {
        self.headers().get(&format!("{RESERVED_HEADER}{name}")).map(String::as_str)
    }
    /// Which delivery this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.0.claimed.attempt
    }
    /// All that was claimed.
    pub fn message(&self) -> &Claimed {
        &self.0.claimed
    }
    /// The trace of this delivery: a child of the one the message was enqueued in.
    pub fn trace(&self) -> TraceContext {
        self.0.trace
    }
    /// The trace the message was enqueued in.
    pub fn parent_trace(&self) -> Option<TraceContext> {
        self.0.parent
    }
    /// The outbox, for the handler's own messages.
    pub fn outbox(&self) -> &Outbox {
        &self.0.ends.outbox
    }
    /// The queue the message came from.
    pub fn queue(&self) -> &Outbox {
        &self.0.ends.queue
    }
    /// The run of a job that this message is; none for all other messages.
    pub fn job(&self) -> Option<&CurrentRun> {
        self.0.run.as_ref()
    }

    /// Keeps a text with the run that this message is, for people to read: at most 64 KiB, the last one counts.
    ///
    /// It is written at once, in a transaction of its own. On SQLite, don't call it while holding a transaction, which has
    /// the only writer.
    pub async fn record_output(&self, output: &str) -> Result<()> {
        match (self.job(), &self.0.ends.jobs) {
            (Some(run), Some(jobs)) => jobs.record_output(run.id, output).await,
            (None, _) => Err(not_a_run("this message is not a run of a job")),
            (_, None) => Err(not_a_run("this dispatcher was made without jobs")),
        }
    }

    /// Notes that a handler has begun with the run that this message is, if it is one.
    pub(crate) async fn note_start(&self) {
        let (Some(run), Some(jobs)) = (self.job(), &self.0.ends.jobs) else { return };
        // The handler waits for it only so long: no work depends on it.
        let Claimed { claimed_at, locked_until, .. } = self.message();
        let lease = Duration::try_from(locked_until.duration_since(*claimed_at)).unwrap_or_default();
        let limit = (lease / 2).min(NOTE_LIMIT);
        if let Err(error) = attempt("job.started", limit, jobs.store().started(run.id)).await {
            telemetry::run_not_noted(jobs.store().identifier(), run.id, "its start", &error);
        }
    }

    /// Cancelled when the process is stopping. The handler may go on until the grace period ends.
    pub fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    /// Begins a transaction in which the handler's writes, the messages it enqueues and the ack commit together.
    ///
    /// `T` is the provider's transaction type. Dropping it rolls back.
    pub async fn transaction<T: StoreTransaction>(&self) -> Result<HandlerTransaction<T>> {
        let mut inner = self.queue().store().begin().await?;
        if !inner.as_any_mut().is::<T>() {
            let wanted = std::any::type_name::<T>();
            let store = self.queue().store().identifier();
            return Err(Error::invalid(
                "handler.transaction",
                "transaction type",
                format_args!("{wanted} is not what the store {store} uses"),
            ));
        }
        Ok(HandlerTransaction { inner, context: self.clone(), enqueued: Vec::new(), kind: PhantomData })
    }

    /// The same for handlers of Mainstay's own, which have no statements of a driver to run.
    pub(crate) async fn own_transaction(&self) -> Result<HandlerTransaction<()>> {
        let inner = self.queue().store().begin().await?;
        Ok(HandlerTransaction { inner, context: self.clone(), enqueued: Vec::new(), kind: PhantomData })
    }

    /// Runs what a store does and acks, in one transaction. The store's answers.
    pub(crate) async fn complete_with(&self, call: &StoreCall) -> Result<Vec<String>> {
        let mut transaction = self.own_transaction().await?;
        let answers = transaction.inner.call(call).await?;
        transaction.complete().await?;
        Ok(answers)
    }

    /// Drops the handler, wherever it is.
    pub(crate) fn cancel(&self) {
        self.0.cancel.fire();
    }

    /// Waits until the handler is to be dropped.
    pub(crate) async fn cancelled(&self) {
        self.0.cancel.fired().await;
    }

    /// Whether the ack was committed in the handler's own transaction.
    pub(crate) fn is_completed(&self) -> bool {
        self.0.completion.load(Ordering::Acquire) == COMPLETED
    }

    /// Whether the handler's own transaction has begun to ack.
    pub(crate) fn is_completing(&self) -> bool {
        matches!(self.0.completion.load(Ordering::Acquire), COMPLETING | COMPLETED)
    }

    /// Whether the handler's own transaction found the claim gone. There is nothing left to settle.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.completion.load(Ordering::Acquire) == LOST
    }

    fn set_completion(&self, state: u8) {
        self.0.completion.store(state, Ordering::Release);
    }
}

fn not_a_run(why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, "handler.record_output", why)
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.0.claimed).finish()
    }
}

/// Marks a delivery as completing while it lives, unless it has come to an end by then.
struct Completing(Context);

impl Completing {
    fn begin(context: Context) -> Self {
        context.set_completion(COMPLETING);
        Self(context)
    }

    fn succeed(self) {
        self.0.set_completion(COMPLETED);
    }
}

impl Drop for Completing {
    fn drop(&mut self) {
        let state = &self.0.0.completion;
        // An end that was reached stays.
        let _ = state.compare_exchange(COMPLETING, OPEN, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// A transaction that ends a delivery: exactly-once effects within one database (MST-030, MST-031).
#[must_use = "dropping the transaction rolls it back"]
pub struct HandlerTransaction<T> {
    inner: Box<dyn StoreTransaction>,
    context: Context,
    /// To be logged and counted once they are committed.
    enqueued: Vec<(PreparedMessage, Enqueued)>,
    kind: PhantomData<fn() -> T>,
}

impl<T: StoreTransaction> HandlerTransaction<T> {
    /// The provider's transaction, for the handler's own statements.
    #[allow(clippy::expect_used, reason = "the type was checked when the transaction was begun")]
    pub fn driver(&mut self) -> &mut T {
        let any: &mut dyn Any = self.inner.as_any_mut();
        any.downcast_mut().expect("the type was checked when the transaction was begun")
    }
}

impl<T> HandlerTransaction<T> {
    /// Enqueues a message that is there if and only if this transaction commits.
    pub async fn enqueue(&mut self, message: Message) -> Result<Enqueued> {
        let (outbox, one) = (self.context.outbox(), std::slice::from_ref(&message));
        let adding = telemetry::Adding::begin(outbox.store().identifier(), "enqueue", one.iter());
        let prepared = adding.within(|| message.prepare(outbox.limits()))?;
        let enqueued = adding.run(self.inner.enqueue(std::slice::from_ref(&prepared))).await?;
        let nothing = || Error::new(ErrorKind::Internal, "handler.enqueue", "the store returned no ids");
        let enqueued = enqueued.into_iter().next().ok_or_else(nothing)?;
        self.enqueued.push((prepared, enqueued));
        Ok(enqueued)
    }

    /// Acks the message and commits, both or neither. When the claim is no longer held nothing is committed and the
    /// error is `ClaimLost`: somebody else has the message.
    pub async fn complete(self) -> Result<()> {
        // Also when this future is dropped: a handler that gave up on it must be cancellable again.
        let completing = Completing::begin(self.context.clone());
        let result = self.ack_and_commit().await;
        if result.is_ok() {
            completing.succeed();
        }
        result
    }

    async fn ack_and_commit(mut self) -> Result<()> {
        let claim = self.context.0.claimed.handle;
        let settlement = [Settlement { claim, outcome: Outcome::Ack }];
        let store = self.context.queue().store().identifier();
        let settle = self.inner.settle(self.context.0.owner, &settlement);
        let settled = telemetry::settling(store, &settlement, &[self.context.trace()], settle).await?;
        if settled.changed.is_empty() {
            self.inner.rollback().await?;
            telemetry::settled(self.context.queue().store().identifier(), &settlement, &settled);
            self.context.set_completion(LOST);
            return Err(Error::new(
                ErrorKind::ClaimLost,
                "handler.complete",
                "the claim is no longer held; the transaction was rolled back",
            ));
        }
        self.inner.commit().await?;
        let (messages, results): (Vec<_>, Vec<_>) = self.enqueued.into_iter().unzip();
        telemetry::enqueued(self.context.outbox().store().identifier(), &messages, &results);
        telemetry::settled(self.context.queue().store().identifier(), &settlement, &settled);
        Ok(())
    }

    /// Rolls back. The delivery goes on.
    pub async fn rollback(self) -> Result<()> {
        self.inner.rollback().await
    }
}

impl<T> fmt::Debug for HandlerTransaction<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandlerTransaction").field(&self.context).finish()
    }
}
