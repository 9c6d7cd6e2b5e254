//! The dispatcher's loop. It owns all state, so there is no lock; everything slow runs in tasks beside it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::id::OwnerToken;
use crate::outbox::Outbox;
use crate::queue::{
    ClaimHandle, ClaimRequest, Claimed, Context, DispatcherOptions, FailureReason, Outcome, Registry,
    Settled, Settlement,
};
use crate::store::Wake;
use crate::telemetry;

use super::delivery::{self, End, Ended};
use super::in_flight::{InFlight, LeaseTimes};
use super::source::{ClaimAnswer, Pause, Source, SourceEvent};

/// Settlements per call. More gain nothing and hold the rows' locks longer.
const SETTLE_BATCH: usize = 1_000;

/// How long the last settles may take after the grace period, should the database be gone.
const LAST_SETTLES: Duration = Duration::from_secs(10);

/// The pause after a failed database call, first and longest.
const TROUBLE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The longest pause while what is due is not for us. Short: meanwhile no notification is heard.
const BLOCKED: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// A settle under way. The settlements stay here, so that they are known even if the provider panics.
struct Settling {
    batch: Arc<Vec<Settlement>>,
    task: JoinHandle<Result<Settled>>,
}

/// A renewal under way, with what it was asked for and when.
struct Renewing {
    claims: Arc<Vec<ClaimHandle>>,
    asked_at: Instant,
    task: AbortOnDropHandle<Result<Settled>>,
}

pub(super) struct Engine {
    outbox: Outbox,
    registry: Arc<Registry>,
    options: DispatcherOptions,
    owner: OwnerToken,
    store: String,
    stop: CancellationToken,
    in_flight: InFlight,
    handlers: JoinSet<Ended>,
    source: Source,
    /// The wait when nothing is due.
    poll: Pause,
    /// The pause after a claim that failed.
    claim_trouble: Pause,
    /// The pause while what is due is not for us.
    blocked: Pause,
    /// Whether the last wait ended because something was said to be due.
    woken_for_due: bool,
    /// Topics the last claim left out because they had enough.
    left_out: HashSet<String>,
    unsettled: Vec<Settlement>,
    settling: Option<Settling>,
    /// So many of the next settlements go one by one, to find the one that the store refuses.
    settle_singly: usize,
    settle_trouble: Pause,
    settle_not_before: Option<Instant>,
    renewing: Option<Renewing>,
    stopping: Option<Stopping>,
}

/// How a stop goes on.
#[derive(Clone, Copy)]
struct Stopping {
    /// When running handlers are dropped.
    grace_ends: Instant,
    /// Whether they have been.
    grace_over: bool,
    /// When to leave even with claims unsettled, because the database does not answer.
    gives_up: Instant,
}

impl Engine {
    pub(super) fn new(
        outbox: Outbox,
        registry: Arc<Registry>,
        options: DispatcherOptions,
        owner: OwnerToken,
        stop: CancellationToken,
    ) -> Self {
        let trouble = || Pause::new(TROUBLE.0, TROUBLE.1);
        Self {
            store: outbox.store().identifier().to_owned(),
            in_flight: InFlight::new(LeaseTimes::new(options.lease, options.renew_at)),
            poll: Pause::new(options.poll_min, options.poll_max),
            blocked: Pause::new(BLOCKED.0, BLOCKED.1),
            outbox,
            registry,
            options,
            owner,
            stop,
            handlers: JoinSet::new(),
            source: Source::Idle,
            claim_trouble: trouble(),
            woken_for_due: false,
            left_out: HashSet::new(),
            unsettled: Vec::new(),
            settling: None,
            settle_singly: 0,
            settle_trouble: trouble(),
            settle_not_before: None,
            renewing: None,
            stopping: None,
        }
    }

    /// Runs until stopped and everything held has been settled.
    pub(super) async fn run(mut self) {
        loop {
            self.start_handlers();
            self.start_settle();
            self.start_renewal();
            self.start_claim();
            if self.is_finished() {
                return;
            }
            let tick = self.next_tick();
            tokio::select! {
                () = self.stop.cancelled(), if self.stopping.is_none() => self.begin_stop(),
                Some(ended) = self.handlers.join_next(), if !self.handlers.is_empty() => {
                    self.on_ended(ended);
                    while let Some(ended) = self.handlers.try_join_next() {
                        self.on_ended(ended);
                    }
                }
                event = self.source.next() => self.on_source(event),
                answer = task(self.settling.as_mut().map(|settling| &mut settling.task)) => self.on_settled(answer),
                answer = task(self.renewing.as_mut().map(|renewing| &mut renewing.task)) => self.on_renewed(answer),
                () = sleep_until(tick) => self.on_tick(),
            }
        }
    }

    // ---- claiming

    fn start_claim(&mut self) {
        if self.stopping.is_some() || !matches!(self.source, Source::Idle) {
            return;
        }
        let capacity = self.options.concurrency + self.options.prefetch;
        let room = capacity.saturating_sub(self.in_flight.len());
        let batch = (self.options.batch as usize).min(room);
        // Small claims cost as much as large ones: wait until half a batch fits, unless handlers would run dry.
        let worth_it =
            batch * 2 >= (self.options.batch as usize).min(capacity) || self.in_flight.waiting() == 0;
        if batch == 0 || !worth_it {
            return;
        }
        self.left_out = self.saturated_topics();
        let request = ClaimRequest::new(self.owner)
            .lease(self.options.lease)
            .batch(batch as u32)
            // Each topic's own limit is applied when the message is here; others' messages must not fail by ours.
            .delivery_limit(ClaimRequest::DELIVERY_LIMIT_MAX)
            .except_topics(self.left_out.iter().cloned().collect());
        let outbox = self.outbox.clone();
        self.source = Source::Claiming(tokio::spawn(async move {
            let asked_at = Instant::now();
            let answer = outbox.claim(&request).await;
            (asked_at, request.batch, answer)
        }));
    }

    /// Topics that have as many messages waiting as may run: more would only be held, not handled.
    fn saturated_topics(&self) -> HashSet<String> {
        let topics = self.registry.bounded().map(|(topic, _)| topic);
        topics.filter(|topic| self.is_saturated(topic)).map(str::to_owned).collect()
    }

    fn is_saturated(&self, topic: &str) -> bool {
        let bound = self.registry.get(topic).and_then(|registered| registered.policy.concurrency);
        bound.is_some_and(|bound| self.in_flight.of_topic(topic) >= bound * 2)
    }

    fn on_source(&mut self, event: SourceEvent) {
        self.source = Source::Idle;
        match event {
            SourceEvent::Claimed(answer) => self.on_claimed(answer),
            SourceEvent::Woken(Ok(Ok(wake))) => {
                self.woken_for_due = wake == Wake::Due;
                if wake == Wake::Notified {
                    self.poll.reset();
                }
            }
            SourceEvent::Woken(_) => {
                // The wait itself failed, so poll. The claim that follows tells what is wrong.
                self.source = Source::Paused(Instant::now() + self.claim_trouble.step());
            }
            SourceEvent::Resumed => {}
        }
    }

    fn on_claimed(&mut self, answer: Result<ClaimAnswer, JoinError>) {
        // A provider that panicked is trouble like any other, not the end of all work.
        let Ok((asked_at, asked, answer)) = answer else { return self.pause_after_trouble() };
        let batch = match answer {
            Ok(batch) => batch,
            Err(error) if error.kind() == ErrorKind::Closed => return self.begin_stop(),
            Err(error) => {
                telemetry::retrying(&self.store, "claim", &error, self.claim_trouble.next());
                return self.pause_after_trouble();
            }
        };
        self.claim_trouble.reset();
        let count = batch.items.len();
        for claimed in batch.items {
            self.take_in(claimed, asked_at);
        }
        if self.stopping.is_some() {
            self.release_waiting();
        } else if count > 0 || !batch.rejected.is_empty() {
            self.poll.reset();
            self.blocked.reset();
            self.woken_for_due = false;
            if count < asked as usize {
                self.start_wait();
            }
        } else if std::mem::take(&mut self.woken_for_due) {
            // Something is due, but not for us: blocked behind its key, or of a topic left out. Waiting would end
            // at once, over and over.
            self.source = Source::Paused(Instant::now() + self.blocked.step());
        } else {
            self.start_wait();
        }
    }

    fn pause_after_trouble(&mut self) {
        let delay = self.claim_trouble.step();
        if self.stopping.is_none() {
            self.source = Source::Paused(Instant::now() + delay);
        }
    }

    fn take_in(&mut self, claimed: Claimed, asked_at: Instant) {
        let handle = claimed.handle;
        let attempts = self.registry.attempts(&claimed.topic, &self.options);
        let verdict = if self.registry.get(&claimed.topic).is_none() {
            let delay = self.options.no_handler_delay;
            telemetry::no_handler(&self.store, &claimed.topic, claimed.id(), delay);
            Some(Outcome::Release { delay: Some(delay), error: None })
        } else if claimed.attempt > attempts {
            telemetry::rejected(&self.store, &claimed.topic, claimed.id(), FailureReason::DeliveryLimit);
            let last = claimed.last_error.as_deref().unwrap_or("none was recorded");
            let error = format!("delivery limit of {attempts} reached; last error: {last}");
            Some(Outcome::Reject { reason: FailureReason::DeliveryLimit, error: Some(error) })
        } else if self.is_saturated(&claimed.topic) {
            // One claim can bring more of a bounded topic than it can use. Held here, nobody else could have it.
            Some(Outcome::Release { delay: None, error: None })
        } else {
            None
        };
        match verdict {
            None => self.in_flight.add(claimed, asked_at),
            Some(outcome) => self.unsettled.push(Settlement { claim: handle, outcome }),
        }
    }

    fn start_wait(&mut self) {
        let timeout = self.poll.step();
        let (outbox, owner) = (self.outbox.clone(), self.owner);
        let wait = async move { outbox.store().wait(owner, timeout).await };
        self.source = Source::Waiting(AbortOnDropHandle::new(tokio::spawn(wait)));
    }

    /// Lets the next claim start now: something that could not be claimed may be claimable.
    fn claim_soon(&mut self) {
        if matches!(self.source, Source::Waiting(_) | Source::Paused(_)) {
            self.source = Source::Idle;
        }
    }

    // ---- handling

    fn start_handlers(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        while self.handlers.len() < self.options.concurrency {
            let registry = &self.registry;
            let may_run = |in_flight: &InFlight, topic: &str| {
                let bound = registry.get(topic).and_then(|registered| registered.policy.concurrency);
                bound.is_none_or(|bound| in_flight.running_of_topic(topic) < bound)
            };
            let Some((handle, claimed, asked_at)) = self.in_flight.pop_waiting(may_run) else { return };
            self.start_handler(handle, *claimed, asked_at);
        }
    }

    fn start_handler(&mut self, handle: ClaimHandle, claimed: Claimed, asked_at: Instant) {
        // The database's clock is at most this far past the moment of the claim.
        let since_claim = asked_at.elapsed();
        if claimed.expires_at.is_some_and(|expiry| claimed.claimed_at + since_claim >= expiry) {
            telemetry::rejected(&self.store, &claimed.topic, claimed.id(), FailureReason::Expired);
            let error = Some("expired before a handler was free".to_owned());
            self.unsettled.push(Settlement {
                claim: handle,
                outcome: Outcome::Reject { reason: FailureReason::Expired, error },
            });
            return;
        }
        let Some(registered) = self.registry.get(&claimed.topic).cloned() else { return };
        let attempts = self.registry.attempts(&claimed.topic, &self.options);
        let lag = (claimed.attempt == 1)
            .then(|| {
                Duration::try_from(claimed.claimed_at.duration_since(claimed.due_at)).unwrap_or_default()
            })
            .map(|lag| lag + since_claim);
        telemetry::handler_started(&self.store, &claimed.topic, claimed.message_id, lag);
        let context = Context::new(claimed, self.outbox.clone(), self.owner, self.stop.clone());
        let cancel = self.in_flight.set_running(handle, context.clone());
        self.handlers.spawn(delivery::run(context, registered, attempts, cancel));
    }

    fn on_ended(&mut self, ended: Result<Ended, JoinError>) {
        // Deliveries catch panics and are never aborted, so there is always an answer.
        let Ok(Ended { claim, end }) = ended else { return };
        let lost = self.in_flight.set_ended(claim);
        match end {
            End::Completed => self.forget(claim),
            End::Cancelled if lost => self.forget(claim),
            End::Cancelled => {
                self.unsettled
                    .push(Settlement { claim, outcome: Outcome::Release { delay: None, error: None } });
            }
            // A lost claim is settled all the same: the database decides, and says so when it is stale.
            End::Settle(outcome) => self.unsettled.push(Settlement { claim, outcome }),
        }
    }

    fn forget(&mut self, claim: ClaimHandle) {
        let keyed = self.in_flight.remove(claim);
        let room_for_left_out = self.left_out.iter().any(|topic| {
            let bound = self.registry.get(topic).and_then(|registered| registered.policy.concurrency);
            bound.is_some_and(|bound| self.in_flight.of_topic(topic) < bound)
        });
        if keyed || room_for_left_out {
            self.claim_soon();
        }
    }

    // ---- settling

    fn start_settle(&mut self) {
        let too_early = self.settle_not_before.is_some_and(|when| when > Instant::now());
        if self.settling.is_some() || self.unsettled.is_empty() || too_early {
            return;
        }
        let size = if self.settle_singly > 0 { 1 } else { SETTLE_BATCH };
        self.settle_singly = self.settle_singly.saturating_sub(1);
        let rest = self.unsettled.split_off(self.unsettled.len().min(size));
        let batch = Arc::new(std::mem::replace(&mut self.unsettled, rest));
        let (outbox, owner, settlements) = (self.outbox.clone(), self.owner, Arc::clone(&batch));
        let task = tokio::spawn(async move { outbox.settle(owner, &settlements).await });
        self.settling = Some(Settling { batch, task });
    }

    fn on_settled(&mut self, answer: Result<Result<Settled>, JoinError>) {
        let Some(Settling { batch, .. }) = self.settling.take() else { return };
        let answer = answer.unwrap_or_else(|panic| Err(provider_panicked("dispatcher.settle", panic)));
        match answer {
            Ok(_) => {
                self.settle_trouble.reset();
                self.settle_not_before = None;
                for settlement in batch.iter() {
                    self.forget(settlement.claim);
                }
            }
            Err(error) if error.is_retryable() => {
                let delay = self.settle_trouble.step();
                telemetry::retrying(&self.store, "settle", &error, delay);
                self.settle_not_before = Some(Instant::now() + delay);
                // First in, first out: what ended first is settled first.
                self.unsettled.splice(0..0, batch.iter().cloned());
            }
            Err(error) if batch.len() > 1 => {
                tracing::warn!(store = self.store, %error, count = batch.len(), "could not settle; now one by one");
                self.settle_singly = batch.len();
                self.unsettled.splice(0..0, batch.iter().cloned());
            }
            Err(error) => {
                // Trying again can't help. The leases lapse and the messages are delivered again.
                tracing::error!(store = self.store, %error, count = batch.len(), "could not settle; given up");
                for settlement in batch.iter() {
                    self.forget(settlement.claim);
                }
            }
        }
    }

    // ---- renewing

    fn start_renewal(&mut self) {
        if self.renewing.is_some() {
            return;
        }
        let claims = self.in_flight.due_renewals(Instant::now());
        if claims.is_empty() {
            return;
        }
        let claims = Arc::new(claims);
        let (outbox, owner, lease) = (self.outbox.clone(), self.owner, self.options.lease);
        let asked_at = Instant::now();
        let asked = Arc::clone(&claims);
        let task = tokio::spawn(async move { outbox.renew(owner, &asked, lease).await });
        self.renewing = Some(Renewing { claims, asked_at, task: AbortOnDropHandle::new(task) });
    }

    fn on_renewed(&mut self, answer: Result<Result<Settled>, JoinError>) {
        let Some(Renewing { claims, asked_at, .. }) = self.renewing.take() else { return };
        let answer = answer.unwrap_or_else(|panic| Err(provider_panicked("dispatcher.renew", panic)));
        match answer {
            Ok(settled) => {
                self.in_flight.renewed(&settled.changed, &claims, asked_at);
                let stale: HashSet<_> = settled.stale.into_iter().collect();
                for claim in claims.iter().copied().filter(|claim| stale.contains(&claim.id())) {
                    self.lose(claim);
                }
            }
            Err(error) => {
                // The deadlines stand: a claim that can't be renewed in time is given up then.
                let delay =
                    (self.options.lease / 20).clamp(Duration::from_millis(10), Duration::from_secs(1));
                telemetry::retrying(&self.store, "renew", &error, delay);
                self.in_flight.renew_again(&claims, Instant::now() + delay);
            }
        }
    }

    fn lose(&mut self, claim: ClaimHandle) {
        if let Some(topic) = self.in_flight.lose(claim) {
            telemetry::claim_lost(&self.store, &topic, claim.id());
        }
    }

    // ---- time

    fn next_tick(&self) -> Option<Instant> {
        let settle = self.settle_not_before.filter(|_| self.settling.is_none() && !self.unsettled.is_empty());
        // A renewal that is due waits for the one under way; it must not keep the loop turning meanwhile.
        let renewal = self.in_flight.next_renewal().filter(|_| self.renewing.is_none());
        let deadline = self.in_flight.next_deadline();
        let stop = self.stopping.map(|stop| if stop.grace_over { stop.gives_up } else { stop.grace_ends });
        [settle, renewal, deadline, stop].into_iter().flatten().min()
    }

    fn on_tick(&mut self) {
        let now = Instant::now();
        if self.in_flight.next_deadline().is_some_and(|deadline| deadline <= now) {
            for claim in self.in_flight.lapsed(now) {
                self.lose(claim);
            }
            self.in_flight.recompute();
        }
        if let Some(stopping) = &mut self.stopping
            && !stopping.grace_over
            && stopping.grace_ends <= now
        {
            stopping.grace_over = true;
            self.in_flight.cancel_running();
        }
    }

    // ---- stopping

    fn begin_stop(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        let grace_ends = Instant::now() + self.options.grace;
        self.stopping = Some(Stopping { grace_ends, grace_over: false, gives_up: grace_ends + LAST_SETTLES });
        telemetry::service(&self.store, "dispatcher", Some(self.owner), "stopping");
        if !matches!(self.source, Source::Claiming(_)) {
            self.source = Source::Idle;
        }
        self.release_waiting();
    }

    /// Gives back what no handler has begun with, without counting the delivery (R12).
    fn release_waiting(&mut self) {
        for claim in self.in_flight.drain_waiting() {
            self.unsettled.push(Settlement { claim, outcome: Outcome::Release { delay: None, error: None } });
        }
    }

    fn is_finished(&self) -> bool {
        let Some(Stopping { gives_up, .. }) = self.stopping else { return false };
        let quiet = self.handlers.is_empty()
            && self.unsettled.is_empty()
            && self.settling.is_none()
            && matches!(self.source, Source::Idle);
        if !quiet && gives_up <= Instant::now() {
            let left = self.in_flight.len();
            tracing::warn!(
                store = self.store,
                left,
                "stopped with claims unsettled; their leases will lapse"
            );
            return true;
        }
        quiet
    }
}

fn provider_panicked(operation: &'static str, panic: JoinError) -> Error {
    Error::new(ErrorKind::Internal, operation, "the provider panicked").with_source(panic)
}

/// Waits for a task, if there is one. Safe to drop and call again.
async fn task<T: Future + Unpin>(task: Option<&mut T>) -> T::Output {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}
