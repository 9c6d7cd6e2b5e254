//! The dispatcher's loop. It owns all state, so there is no lock; everything slow runs in tasks beside it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock;
use crate::error::{ErrorKind, Result};
use crate::hash::Set;
use crate::id::OwnerToken;
use crate::outbox::Outbox;
use crate::queue::context::Ends;
use crate::queue::pulse::Beat;
use crate::queue::slots::{Slot, Slots};
use crate::queue::{ClaimHandle, ClaimRequest, Claimed, Context, DispatcherOptions, Registry, Settled};
use crate::renewing::{TURN_LIMIT, attempt, call_limit};
use crate::runtime::Waited;
use crate::runtime::pause::{BLOCKED, Pause, TROUBLE};
use crate::store::{WaitRequest, Wake};
use crate::telemetry::{self, Scene};
use crate::trace::TraceContext;

use super::admission::Admission;
use super::delivery::{self, End, Ended};
use super::ended_runs::EndedRuns;
use super::in_flight::{InFlight, LeaseTimes, Next};
use super::renewing::Renewing;
use super::seen::Seen;
use super::settling::{self, Settling, provider_panicked};
use super::source::{ClaimAnswer, Source, SourceEvent};
use super::stopping::Stopping;

pub(super) struct Engine {
    queue: Outbox,
    ends: Arc<Ends>,
    admission: Admission,
    options: DispatcherOptions,
    owner: OwnerToken,
    store: Arc<str>,
    stop: CancellationToken,
    hurry: CancellationToken,
    slots: Slots,
    /// A slot that no handler has yet.
    spare: Option<Slot>,
    next_slot: Option<BoxFuture<'static, Slot>>,
    beat: Beat,
    /// Whether there is to be one claim only, and what came of it.
    single: Option<Option<Result<usize>>>,
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
    /// Topics the last claim or wait left out because they had enough.
    left_out: Set<String>,
    settling: Settling,
    renewing: Renewing,
    ended_runs: EndedRuns,
    stopping: Option<Stopping>,
}

impl Engine {
    pub(super) fn new(
        ends: Ends,
        registry: Arc<Registry>,
        options: DispatcherOptions,
        owner: OwnerToken,
        (slots, seen): (Slots, Seen),
        (stop, hurry): (CancellationToken, CancellationToken),
    ) -> Self {
        let store: Arc<str> = ends.queue.store().identifier().into();
        Self {
            admission: Admission::new(registry, options, Arc::clone(&store), seen),
            store,
            in_flight: InFlight::new(LeaseTimes::new(options.lease, options.renew_at)),
            poll: Pause::new((options.poll_min, options.poll_max)),
            blocked: Pause::new(BLOCKED),
            queue: ends.queue.clone(),
            ended_runs: EndedRuns::new(ends.jobs.clone()),
            ends: Arc::new(ends),
            options,
            owner,
            stop,
            hurry,
            beat: slots.pulse().join(),
            slots,
            spare: None,
            next_slot: None,
            single: None,
            handlers: JoinSet::new(),
            source: Source::Idle,
            claim_trouble: Pause::new(TROUBLE),
            woken_for_due: false,
            left_out: Set::default(),
            settling: Settling::new(options.lease),
            renewing: Renewing::new(options.lease),
            stopping: None,
        }
    }

    /// Runs until stopped and everything held has been settled.
    pub(super) async fn run(mut self) {
        loop {
            self.start_all();
            if self.is_finished() {
                return Waited::Items(self.queue.store().as_ref()).take_leave(self.owner).await;
            }
            self.step().await;
        }
    }

    /// Claims once, and runs until everything that brought has been settled. Returns how many messages that were.
    pub(super) async fn run_batch(mut self) -> Result<usize> {
        self.single = Some(None);
        loop {
            self.start_all();
            let quiet = self.in_flight.len() == 0
                && self.settling.is_quiet()
                && !matches!(self.source, Source::Claiming(_));
            match self.single.take() {
                Some(Some(Err(error))) => return Err(error),
                Some(Some(Ok(count))) if quiet => return Ok(count),
                Some(None) if quiet && self.stopping.is_some() => return Ok(0),
                other => self.single = other,
            }
            if self.is_finished() {
                return Ok(0);
            }
            self.step().await;
        }
    }

    /// Starts all that may start.
    fn start_all(&mut self) {
        self.start_handlers();
        self.settling.start(&self.in_flight, &self.queue, self.owner);
        self.renewing.start(&mut self.in_flight, &self.queue, self.owner);
        self.start_claim();
        self.beat.in_hand(self.in_flight.len());
    }

    /// Waits for whatever happens next, and takes it in.
    async fn step(&mut self) {
        let tick = self.next_tick();
        let hurries = self.stopping.as_ref().is_some_and(Stopping::hurries);
        tokio::select! {
            () = self.stop.cancelled(), if self.stopping.is_none() => self.begin_stop(),
            () = self.hurry.cancelled(), if !hurries => {
                self.begin_stop();
                self.stopping.iter_mut().for_each(Stopping::hurry);
            }
            Some(ended) = self.handlers.join_next(), if !self.handlers.is_empty() => {
                self.on_ended(ended);
                while let Some(ended) = self.handlers.try_join_next() {
                    self.on_ended(ended);
                }
            }
            event = self.source.next() => self.on_source(event),
            slot = next_slot(&mut self.next_slot) => {
                self.next_slot = None;
                self.spare = Some(slot);
            }
            answer = self.settling.next() => self.on_settled(answer),
            answer = self.renewing.next() => self.on_renewed(answer),
            () = sleep_until(tick) => self.on_tick(),
        }
    }

    // ---- claiming

    fn start_claim(&mut self) {
        let over = matches!(self.single, Some(Some(_)));
        if over || self.stopping.is_some() || !matches!(self.source, Source::Idle) {
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
        self.left_out = self.admission.left_out(&self.in_flight);
        let request = ClaimRequest::new(self.owner)
            .lease(self.options.lease)
            .batch(batch as u32)
            // Each topic's own limit is applied when the message is here; others' messages must not fail by ours.
            .delivery_limit(ClaimRequest::DELIVERY_LIMIT_MAX)
            .only_topics(self.admission.only_topics())
            .except_topics(self.left_out.iter().cloned().collect());
        let queue = self.queue.clone();
        self.source = Source::Claiming(tokio::spawn(async move {
            let asked_at = clock::now().into_std();
            // What an answer would bring after that may be claimed by others.
            let limit = request.lease.min(TURN_LIMIT);
            let answer = attempt("dispatcher.claim", limit, queue.claim(&request)).await;
            (asked_at, request.batch, answer)
        }));
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
        if self.single.is_some() {
            return self.on_only_claim(answer);
        }
        // A provider that panicked is trouble like any other, not the end of all work.
        let Ok((asked_at, asked, answer)) = answer else { return self.pause_after_trouble() };
        let batch = match answer {
            Ok(batch) => batch,
            Err(error) if error.kind() == ErrorKind::Closed => return self.hurry.cancel(),
            Err(error) => {
                self.beat.could_not_claim(&error);
                telemetry::retrying(&self.store, "claim", &error, self.claim_trouble.next());
                return self.pause_after_trouble();
            }
        };
        self.claim_trouble.reset();
        self.beat.claimed();
        let count = batch.items.len();
        let kept = self.take_in(batch.items, asked_at);
        if self.stopping.is_some() {
            self.release_waiting();
        } else if self.options.own_topics_only && count > 0 && kept == 0 {
            // All of it is for others, or too much for now. Claiming goes on, but not as fast as it can.
            self.source = Source::Paused(Instant::now() + self.blocked.step());
        } else if count > 0 || !batch.rejected.is_empty() {
            self.poll.reset();
            self.blocked.reset();
            self.woken_for_due = false;
            if count < asked as usize {
                self.start_wait();
            }
        } else if std::mem::take(&mut self.woken_for_due) {
            // Something is due, but not for us: blocked behind its key, or others have it. Waiting would end at once,
            // over and over.
            self.source = Source::Paused(Instant::now() + self.blocked.step());
        } else {
            self.start_wait();
        }
    }

    fn on_only_claim(&mut self, answer: Result<ClaimAnswer, JoinError>) {
        let claimed = match answer {
            Ok((asked_at, _, Ok(batch))) => {
                let count = batch.items.len();
                let kept = self.take_in(batch.items, asked_at);
                // What is left to others is no work that was done.
                let done = batch.rejected.len() + if self.options.own_topics_only { kept } else { count };
                let learnt = self.admission.left_out(&self.in_flight).len() > self.left_out.len();
                if done == 0 && count > 0 && learnt && self.stopping.is_none() {
                    // All of it was for others. Their topics are known now, and what is ours may lie behind them: once more.
                    return;
                }
                Ok(done)
            }
            Ok((_, _, Err(error))) => Err(error),
            Err(panic) => Err(provider_panicked("dispatcher.claim", panic)),
        };
        self.single = Some(Some(claimed));
        if self.stopping.is_some() {
            self.release_waiting();
        }
    }

    fn pause_after_trouble(&mut self) {
        let delay = self.claim_trouble.step();
        if self.stopping.is_none() {
            self.source = Source::Paused(Instant::now() + delay);
        }
    }

    /// Keeps what is for this dispatcher, and gives the rest back. Returns how much it keeps.
    fn take_in(&mut self, items: Vec<Claimed>, asked_at: Instant) -> usize {
        let mut kept = 0;
        for claimed in items {
            self.admission.note(&claimed.topic);
            match self.admission.admit(&self.in_flight, &claimed) {
                Ok(registered) => {
                    let topic = Admission::topic(registered, &claimed.topic);
                    self.in_flight.add(claimed, topic, Arc::clone(registered), asked_at);
                    kept += 1;
                }
                Err(outcome) => self.settling.push(claimed.handle, outcome),
            }
        }
        kept
    }

    /// Waits for what the last claim could not bring. A topic that has become saturated by that claim would end the wait
    /// at once, and one that has run dry since must not be left out of it.
    fn start_wait(&mut self) {
        if self.left_out_runs_dry() {
            return;
        }
        self.left_out.extend(self.admission.left_out(&self.in_flight));
        let request = WaitRequest::new(self.owner)
            .timeout(self.poll.step())
            .call_limit(call_limit(self.options.lease))
            .only_topics(self.admission.only_topics())
            .except_topics(self.left_out.iter().cloned().collect());
        let queue = self.queue.clone();
        let wait = async move { queue.wait(&request).await };
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
        while self.handlers.len() < self.options.concurrency && self.in_flight.waiting() > 0 {
            let Some(slot) = self.spare.take().or_else(|| self.slots.try_take()) else {
                self.next_slot.get_or_insert_with(|| Box::pin(self.slots.clone().take()));
                return;
            };
            let Some(next) = self.in_flight.pop_waiting() else { break };
            self.start_handler(next, slot);
        }
        // Nobody here needs one now; others may.
        (self.spare, self.next_slot) = (None, None);
    }

    fn start_handler(&mut self, next: Next, slot: Slot) {
        let Next { claimed, topic, registered, asked_at } = next;
        let (handle, claimed) = (claimed.handle, *claimed);
        let since_claim = clock::since(asked_at.into());
        if let Some(outcome) = self.admission.too_late(&claimed, since_claim) {
            return self.settling.push(handle, outcome);
        }
        let attempts = registered.attempts(&self.options);
        let lag = (claimed.attempt == 1)
            .then(|| {
                Duration::try_from(claimed.claimed_at.duration_since(claimed.due_at)).unwrap_or_default()
            })
            .map(|lag| lag + since_claim);
        let scene = Scene { store: Arc::clone(&self.store), topic };
        telemetry::handler_started(&scene, claimed.message_id, lag);
        let parent = TraceContext::from_headers(&claimed.headers);
        let (span, trace) = telemetry::handling(&self.store, &claimed, parent);
        let ends = Arc::clone(&self.ends);
        let context = Context::new(claimed, ends, self.owner, (trace, parent), self.hurry.clone());
        self.ended_runs.begun(&context);
        self.in_flight.set_running(handle, context.clone());
        // In a box: the runtime moves what it is given several times, and this is more than a kilobyte.
        let delivery = delivery::run(context, registered, (scene, span), attempts);
        self.handlers.spawn(Box::pin(async move {
            let _slot = slot;
            delivery.await
        }));
    }

    fn on_ended(&mut self, ended: Result<Ended, JoinError>) {
        // Deliveries catch panics and are never aborted, so there is always an answer.
        let Ok(Ended { claim, end }) = ended else { return };
        let lost = self.in_flight.set_ended(claim);
        match end {
            End::Completed | End::Lost => self.forget(claim),
            End::Cancelled if lost => self.forget(claim),
            End::Cancelled => self.settling.release(claim),
            // A lost claim is settled all the same: the database decides, and says so when it is stale.
            End::Settle(outcome) => self.settling.push(claim, outcome),
        }
    }

    fn forget(&mut self, claim: ClaimHandle) {
        let keyed = self.in_flight.remove(claim);
        self.ended_runs.over(claim);
        if keyed || self.left_out_runs_dry() {
            self.claim_soon();
        }
    }

    fn left_out_runs_dry(&self) -> bool {
        self.left_out.iter().any(|topic| self.admission.runs_dry(&self.in_flight, topic))
    }

    // ---- settling and renewing

    fn on_settled(&mut self, answer: settling::Answer) {
        let over = self.settling.on_answer(&self.store, answer);
        for settlement in over.iter().flat_map(|batch| batch.iter()) {
            self.forget(settlement.claim);
        }
    }

    fn on_renewed(&mut self, answer: Result<Settled>) {
        for claim in self.renewing.on_answer(&self.store, &mut self.in_flight, answer) {
            self.lose(claim);
        }
    }

    fn lose(&mut self, claim: ClaimHandle) {
        if let Some(topic) = self.in_flight.lose(claim) {
            telemetry::claim_lost(&self.store, &topic, claim.id());
        }
    }

    // ---- time

    fn next_tick(&self) -> Option<Instant> {
        let settle = self.settling.next_tick();
        let renewal = self.renewing.next_tick(&self.in_flight);
        let deadline = self.in_flight.next_deadline();
        // Claims are counted by another clock.
        let claims = [renewal, deadline]
            .into_iter()
            .flatten()
            .min()
            .map(|when| clock::look_at(when.into()).into_std());
        let stop = self.stopping.as_ref().and_then(Stopping::next_tick);
        [settle, claims, stop].into_iter().flatten().min()
    }

    fn on_tick(&mut self) {
        let now = clock::now().into_std();
        if self.in_flight.next_deadline().is_some_and(|deadline| deadline <= now) {
            for claim in self.in_flight.lapsed(now) {
                self.lose(claim);
            }
            self.in_flight.recompute();
        }
        if self.stopping.as_mut().is_some_and(|stopping| stopping.ends_grace(Instant::now())) {
            self.in_flight.cancel_running();
        }
    }

    // ---- stopping

    fn begin_stop(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        self.stopping = Some(Stopping::new(self.options.grace));
        (self.spare, self.next_slot) = (None, None);
        telemetry::service(&self.store, "dispatcher", Some(self.owner), "stopping");
        if !matches!(self.source, Source::Claiming(_)) {
            self.source = Source::Idle;
        }
        self.release_waiting();
    }

    /// Gives back what no handler has begun with, without counting the delivery (R12).
    fn release_waiting(&mut self) {
        for claim in self.in_flight.drain_waiting() {
            self.settling.release(claim);
        }
    }

    fn is_finished(&self) -> bool {
        let Some(stopping) = &self.stopping else { return false };
        let quiet =
            self.handlers.is_empty() && self.settling.is_quiet() && matches!(self.source, Source::Idle);
        if !quiet && stopping.gives_up() {
            let left = self.in_flight.len();
            tracing::warn!(
                store = &*self.store,
                left,
                "stopped with claims unsettled; their leases will lapse"
            );
            return true;
        }
        quiet
    }
}

async fn next_slot(next: &mut Option<BoxFuture<'static, Slot>>) -> Slot {
    match next {
        Some(next) => next.await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}
