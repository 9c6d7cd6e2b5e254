//! Waiting for work without missing any, and without asking all the time.
//!
//! Producers notify only while a consumer has declared itself idle, and read that declaration inside their own
//! transaction. One that read "nobody" may still be about to commit; so after declaring itself a consumer looks again at a
//! short interval until all transactions from before have ended (the horizon has passed). Then it may sleep until it is
//! notified, until the next message is due, or until its time is up.
//!
//! A declaration outlives the wait it was made in. It is renewed before it lapses, so the horizon need not be waited for
//! again, and taken back when there is a backlog or a steady flow: a busy consumer needs no notifications, and they cost
//! the producers, whose commits then go one by one. A consumer in a flow claims again after short pauses instead, and one
//! that is notified over and over, only to find that others were faster, looks at longer ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainstay_core::queue::{ClaimBatch, ClaimRequest};
use mainstay_core::store::{Queue, WaitRequest, Wake};
use mainstay_core::{OwnerToken, Result};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;

use crate::error::closed;
use crate::listener::{Listener, Signal, Subject};
use crate::pool::{Connections, Parameter};
use crate::queue::topics;
use crate::rows::{self, Reader};
use crate::statements::QueueStatements;

const WAIT: &str = "queue.wait";

/// The pauses between looks until the horizon has passed, and after looks that showed work that could not be had.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Claims that brought something with no longer gaps than this between them are a flow, from so many on.
const FLOW_GAP: Duration = Duration::from_millis(20);
const FLOW_CLAIMS: u32 = 4;

/// The pauses between claims within a flow. When none of the claims brings anything, the flow has ended.
const FLOW_PAUSES: [Duration; 3] =
    [Duration::from_millis(2), Duration::from_millis(4), Duration::from_millis(8)];

/// Notifications in a row without anything to claim, from which on a consumer no longer asks for them: others are faster.
const VAIN: u32 = 3;
/// So many looks at the longest pause showed nothing: it may ask again.
const VAIN_LOOKS: u32 = 5;

/// How much longer than its wait a declaration holds.
const SPARE: Duration = Duration::from_secs(60);

/// Consumers that have not been heard of for this long are forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);

pub(crate) struct Waiting {
    connections: Connections,
    statements: Arc<QueueStatements>,
    queue: Queue,
    listener: Option<Arc<Listener>>,
    closed: CancellationToken,
    consumers: Mutex<HashMap<OwnerToken, Consumer>>,
}

/// What is remembered of a consumer between its calls.
#[derive(Debug)]
struct Consumer {
    declared: Option<Declaration>,
    /// Whether one was asked for. One that was given up midway may be in force without being known here.
    asked: bool,
    /// The last claim was full: there is probably more.
    backlog: bool,
    /// Claims in a row that brought something, without a long gap.
    flow: u32,
    /// When the last of them was.
    fed: Option<Instant>,
    /// Claims within the flow, in a row, that brought nothing.
    misses: usize,
    /// Whether the last wait was ended by a notification.
    notified: bool,
    /// Notifications, in a row, that there was nothing to claim after.
    vain: u32,
    /// Waits that ended at once, without a claim that got something since.
    fruitless: u32,
    seen: Instant,
}

/// A declaration of being idle that is in force.
#[derive(Debug, Clone, Copy)]
struct Declaration {
    until: Instant,
    horizon: i64,
    passed: bool,
    /// In which session of listening it was made. With the connection a server may have lost it.
    session: u64,
}

impl Default for Consumer {
    fn default() -> Self {
        Self {
            declared: None,
            asked: false,
            backlog: false,
            flow: 0,
            fed: None,
            misses: 0,
            notified: false,
            vain: 0,
            fruitless: 0,
            seen: Instant::now(),
        }
    }
}

impl Waiting {
    pub(crate) fn new(
        connections: Connections,
        statements: Arc<QueueStatements>,
        queue: Queue,
        listener: Option<Arc<Listener>>,
        closed: CancellationToken,
    ) -> Self {
        Self { connections, statements, queue, listener, closed, consumers: Mutex::default() }
    }

    /// Ends what listens.
    pub(crate) async fn close(&self) {
        if let Some(listener) = &self.listener {
            listener.close().await;
        }
    }

    fn consumers(&self) -> MutexGuard<'_, HashMap<OwnerToken, Consumer>> {
        // Nothing panics while it is held, and a map is whole whatever happened.
        self.consumers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered of the consumer, changed by `change`.
    fn consumer<T>(&self, token: OwnerToken, change: impl FnOnce(&mut Consumer) -> T) -> T {
        let now = Instant::now();
        let mut consumers = self.consumers();
        if !consumers.contains_key(&token) {
            consumers.retain(|_, consumer| now.duration_since(consumer.seen) < FORGOTTEN);
        }
        let consumer = consumers.entry(token).or_default();
        consumer.seen = now;
        change(consumer)
    }

    /// Takes the declaration of a consumer back that has a backlog. Before the claim, because nothing may be awaited
    /// after it.
    pub(crate) async fn before_claim(&self, owner: OwnerToken) {
        self.take_back(owner, |consumer| consumer.backlog).await;
    }

    /// Takes a declaration back, if there may be one and `wanted`.
    async fn take_back(&self, token: OwnerToken, wanted: impl FnOnce(&Consumer) -> bool) {
        let asked = self.consumers().get_mut(&token).is_some_and(|consumer| {
            wanted(consumer) && {
                consumer.declared = None;
                std::mem::take(&mut consumer.asked)
            }
        });
        if asked {
            let consumer = token.as_uuid();
            // Left alone it lapses by itself, so an error does not matter.
            let _ = self.connections.query(WAIT, &self.statements.busy, &[(&consumer, Type::UUID)]).await;
        }
    }

    /// Remembers what a claim brought.
    pub(crate) fn after_claim(&self, request: &ClaimRequest, batch: &ClaimBatch) {
        let full = batch.items.len() as u64 >= u64::from(request.batch);
        let something = !batch.items.is_empty() || !batch.rejected.is_empty();
        self.after(request.owner, full, something, true);
    }

    /// The same for one who forwards. A notification that brings nothing is not in vain: it may have been for something that is
    /// due sooner than all the rest.
    pub(crate) fn after_forward(&self, owner: OwnerToken, full: bool, something: bool) {
        self.after(owner, full, something, false);
    }

    /// The last wait was not for nothing, whatever comes of what was found.
    pub(crate) fn found_something(&self, owner: OwnerToken) {
        if let Some(consumer) = self.consumers().get_mut(&owner) {
            consumer.fruitless = 0;
        }
    }

    fn after(&self, owner: OwnerToken, full: bool, something: bool, counts_vain: bool) {
        // Many owners never wait; only what waiting will need is kept.
        if !self.consumers().contains_key(&owner) {
            return;
        }
        self.consumer(owner, |consumer| {
            consumer.backlog = full;
            let now = Instant::now();
            let goes_on = consumer.fed.is_some_and(|fed| now.duration_since(fed) < FLOW_GAP);
            let notified = std::mem::take(&mut consumer.notified);
            if something {
                consumer.flow = if goes_on { consumer.flow.saturating_add(1) } else { 1 };
                consumer.fed = Some(now);
                (consumer.misses, consumer.vain, consumer.fruitless) = (0, 0, 0);
            } else {
                consumer.misses += 1;
                if consumer.misses >= FLOW_PAUSES.len() {
                    consumer.flow = 0;
                }
                consumer.vain = consumer.vain.saturating_add(u32::from(notified && counts_vain));
            }
        });
    }

    /// Takes the declaration of a consumer back that will not wait again, and forgets it.
    pub(crate) async fn leave(&self, token: OwnerToken) {
        self.take_back(token, |_| true).await;
        self.consumers().remove(&token);
    }

    pub(crate) async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        let wake = tokio::select! {
            wake = self.wait_open(request) => wake?,
            () = self.closed.cancelled() => return Err(closed(WAIT)),
        };
        self.consumer(request.consumer, |consumer| consumer.notified = wake == Wake::Notified);
        Ok(wake)
    }

    async fn wait_open(&self, request: &WaitRequest) -> Result<Wake> {
        let token = request.consumer;
        let deadline = Instant::now() + request.timeout.min(Duration::from_secs(24 * 3_600));
        // Before the declaration: what comes after it is then heard.
        let mut ear = Ear::new(self.listener.as_deref(), Subject::Queue(self.queue));
        let (flow, misses, vain) =
            self.consumer(token, |consumer| (consumer.flow, consumer.misses, consumer.vain));
        if flow >= FLOW_CLAIMS {
            let _ = tokio::time::timeout(request.call_limit, self.take_back(token, |_| true)).await;
            // The claim that follows is the look.
            let pause = FLOW_PAUSES[misses.min(FLOW_PAUSES.len() - 1)];
            tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
            return Ok(Wake::Flow);
        }
        if vain >= VAIN {
            let _ = tokio::time::timeout(request.call_limit, self.take_back(token, |_| true)).await;
            if let Some(wake) = self.look_in_vain(request, &mut ear, deadline).await? {
                return Ok(wake);
            }
            self.consumer(token, |consumer| consumer.vain = VAIN - 1);
        }
        let mut look = match ear.heard.listening {
            true => self.declare(request, ear.heard.session).await?,
            false => Look { next_due: self.next_due(request).await?, declared: None },
        };
        let mut pause = FIRST_PAUSE;
        loop {
            if look.next_due.is_some_and(|due| due <= Instant::now()) {
                return self.due(token, &mut ear, deadline).await;
            }
            let unsure = look.declared.filter(|declared| !declared.passed);
            let again = unsure.map(|_| Instant::now() + pause);
            let until = [look.next_due, again].into_iter().flatten().fold(deadline, Instant::min);
            if ear.sleep_until(until).await {
                return Ok(Wake::Notified);
            }
            if Instant::now() >= deadline {
                return Ok(Wake::TimedOut);
            }
            if let Some(declared) = unsure
                && look.next_due.is_none_or(|due| due > Instant::now())
            {
                look = self.look_again(request, declared).await?;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Looks for what others leave, with growing pauses and without asking anybody to notify: each notification would
    /// cost the producers, and be for nothing. None when it is time to ask again.
    async fn look_in_vain(
        &self,
        request: &WaitRequest,
        ear: &mut Ear,
        deadline: Instant,
    ) -> Result<Option<Wake>> {
        let mut pause = FIRST_PAUSE;
        let mut looks = 0;
        while looks < VAIN_LOOKS {
            tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
            if self.next_due(request).await?.is_some_and(|due| due <= Instant::now()) {
                return self.due(request.consumer, ear, deadline).await.map(Some);
            }
            if Instant::now() >= deadline {
                // However short its waits are, it asks again one day.
                self.consumer(request.consumer, |consumer| consumer.vain = VAIN - 1);
                return Ok(Some(Wake::TimedOut));
            }
            looks += u32::from(pause == LONGEST_PAUSE);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(None)
    }

    /// Work is due. If the last such waits were for nothing (others have it locked, or just took it), it is given time.
    async fn due(&self, token: OwnerToken, ear: &mut Ear, deadline: Instant) -> Result<Wake> {
        let fruitless = self.consumer(token, |consumer| {
            let before = consumer.fruitless;
            consumer.fruitless = before.saturating_add(1);
            before
        });
        if fruitless > 0 {
            let pause = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(fruitless - 1)).min(LONGEST_PAUSE);
            if ear.sleep_until(deadline.min(Instant::now() + pause)).await {
                return Ok(Wake::Notified);
            }
        }
        Ok(Wake::Due)
    }

    /// Makes sure that producers notify for the length of the wait, and looks when something is due next.
    async fn declare(&self, request: &WaitRequest, session: u64) -> Result<Look> {
        let (token, timeout) = (request.consumer, request.timeout);
        let asked = Instant::now();
        let held = self.consumer(token, |consumer| consumer.declared);
        let held = held.filter(|declared| declared.until > asked && declared.session == session);
        if let Some(declared) = held.filter(|declared| declared.until > asked + timeout) {
            return match declared.passed {
                true => Ok(Look { next_due: self.next_due(request).await?, declared: Some(declared) }),
                false => self.look_again(request, declared).await,
            };
        }
        self.consumer(token, |consumer| consumer.asked = true);
        let span = timeout.min(Duration::from_secs(24 * 3_600)) + SPARE;
        let (id, seconds) = (token.as_uuid(), span.as_secs_f64());
        let (only, except) = (topics(&request.only_topics), topics(&request.except_topics));
        let parameters: [Parameter<'_>; 4] = [
            (&id, Type::UUID),
            (&seconds, Type::FLOAT8),
            (&only, Type::TEXT_ARRAY),
            (&except, Type::TEXT_ARRAY),
        ];
        let rows = self.connections.query(WAIT, &self.statements.idle, &parameters);
        let rows = request.within_limit(WAIT, rows).await?;
        let next_due = due_from(rows::value(WAIT, &rows)?);
        let until = asked + span;
        // Renewed without a gap, the old horizon still stands: everybody since has seen a declaration.
        let declared = match held.filter(|held| held.until > Instant::now()) {
            Some(held) => Declaration { until, ..held },
            None => {
                let rows = self.connections.query(WAIT, &self.statements.horizon, &[]);
                let rows = request.within_limit(WAIT, rows).await?;
                Declaration { until, horizon: rows::value(WAIT, &rows)?, passed: false, session }
            }
        };
        self.consumer(token, |consumer| consumer.declared = Some(declared));
        Ok(Look { next_due, declared: Some(declared) })
    }

    /// Looks whether the horizon has passed, and when something is due next.
    async fn look_again(&self, request: &WaitRequest, declared: Declaration) -> Result<Look> {
        let (only, except) = (topics(&request.only_topics), topics(&request.except_topics));
        let parameters: [Parameter<'_>; 3] =
            [(&declared.horizon, Type::INT8), (&only, Type::TEXT_ARRAY), (&except, Type::TEXT_ARRAY)];
        let rows = self.connections.query(WAIT, &self.statements.horizon_passed, &parameters);
        let rows = request.within_limit(WAIT, rows).await?;
        let passed = rows::value(WAIT, &rows)?;
        let next_due = match rows.first() {
            Some(row) => due_from(Reader::new(WAIT, row).get(1)?),
            None => None,
        };
        let declared = Declaration { passed, ..declared };
        self.consumer(request.consumer, |consumer| consumer.declared = Some(declared));
        Ok(Look { next_due, declared: Some(declared) })
    }

    async fn next_due(&self, request: &WaitRequest) -> Result<Option<Instant>> {
        let (only, except) = (topics(&request.only_topics), topics(&request.except_topics));
        let parameters: [Parameter<'_>; 2] = [(&only, Type::TEXT_ARRAY), (&except, Type::TEXT_ARRAY)];
        let rows = self.connections.query(WAIT, &self.statements.next_due, &parameters);
        let rows = request.within_limit(WAIT, rows).await?;
        Ok(due_from(rows::value(WAIT, &rows)?))
    }
}

/// What a look at the database showed.
struct Look {
    next_due: Option<Instant>,
    declared: Option<Declaration>,
}

fn due_from(seconds: Option<f64>) -> Option<Instant> {
    Instant::now().checked_add(rows::seconds(seconds?)?)
}

/// Hears notifications, from the moment it is made.
pub(crate) struct Ear {
    signals: Option<watch::Receiver<Signal>>,
    heard: Signal,
}

impl Ear {
    pub(crate) fn new(listener: Option<&Listener>, subject: Subject) -> Self {
        let mut signals = listener.map(|listener| listener.subscribe(subject));
        let heard = signals.as_mut().map(|signals| *signals.borrow_and_update()).unwrap_or_default();
        Self { signals, heard }
    }

    /// Sleeps until `until`. True when there was a notification, or listening has begun or ended.
    pub(crate) async fn sleep_until(&mut self, until: Instant) -> bool {
        let sleep = tokio::time::sleep_until(until);
        let Some(signals) = &mut self.signals else {
            sleep.await;
            return false;
        };
        let woken = signals.wait_for(|signal| signal.wakes != self.heard.wakes);
        tokio::select! {
            // An error means that the listener is gone, which a closing store says elsewhere.
            woken = woken => woken.is_ok(),
            () = sleep => false,
        }
    }
}
