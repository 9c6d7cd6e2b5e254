//! One database of the fleet: its clients, its signals, and what is known of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};

use crate::error::Result;
use crate::queue::slots::Slots;
use crate::runtime::Mainstay;
use crate::store::{Agenda, Provider, Queue};

use super::{BreakerState, DatabaseEntry, Mark, StoreState, StoreStatus};
use crate::breaker::Breaker;

/// One database of the fleet.
pub(super) struct Store {
    pub(super) entry: DatabaseEntry,
    pub(super) server: Option<String>,
    /// Where it is watched from outside, if it is.
    pub(super) place: Option<String>,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) mainstay: Mainstay,
    pub(super) slots: Slots,
    pub(super) signals: Arc<Signals>,
    /// Asks for one batch, where a strategy decides who is next.
    pub(super) batches: mpsc::UnboundedSender<BatchRequest>,
    view: Mutex<View>,
}

/// What is known of it.
pub(super) struct View {
    pub(super) state: StoreState,
    pub(super) breaker: Breaker,
    /// Whether this process has found out how it is.
    pub(super) known: bool,
    /// Whether it was worked on here, and is told of in gauges since.
    told: bool,
    /// How it looked from outside.
    mark: Option<Mark>,
}

/// Somebody wants one batch handled.
pub(super) struct BatchRequest {
    pub(super) queue: Queue,
    pub(super) answer: oneshot::Sender<Result<usize>>,
}

/// What is told to whoever keeps the database. Each stays until it is taken.
#[derive(Debug, Default)]
pub(super) struct Signals {
    told: Notify,
    /// Somebody waits for a connection.
    wanted: AtomicBool,
    /// A client of this process has added work.
    rung: AtomicBool,
    /// Somebody believes that what was wrong is over.
    recheck: AtomicBool,
    /// Somebody has written to it. Taken by itself: only who is about to look may forget it.
    written: AtomicBool,
    /// Whether that would be told. Not a signal, but a change of it is.
    watched: AtomicBool,
}

/// Signals that were taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    pub(super) wanted: bool,
    pub(super) rung: bool,
    pub(super) recheck: bool,
}

impl Signals {
    pub(super) fn want(&self) {
        self.tell(&self.wanted);
    }

    pub(super) fn ring(&self) {
        self.tell(&self.rung);
    }

    pub(super) fn recheck(&self) {
        self.tell(&self.recheck);
    }

    pub(super) fn write(&self) {
        self.tell(&self.written);
    }

    pub(super) fn take_written(&self) -> bool {
        self.written.swap(false, Ordering::SeqCst)
    }

    pub(super) fn set_watched(&self, watched: bool) {
        if self.watched.swap(watched, Ordering::SeqCst) != watched {
            self.told.notify_one();
        }
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::SeqCst)
    }

    fn tell(&self, signal: &AtomicBool) {
        signal.store(true, Ordering::SeqCst);
        self.told.notify_one();
    }

    pub(super) fn take(&self) -> Told {
        let take = |signal: &AtomicBool| signal.swap(false, Ordering::SeqCst);
        Told { wanted: take(&self.wanted), rung: take(&self.rung), recheck: take(&self.recheck) }
    }

    /// Waits for the next signal. One that came since the last wait ends it at once.
    pub(super) async fn told(&self) {
        self.told.notified().await;
    }
}

impl Store {
    pub(super) fn new(
        (entry, server, place): (DatabaseEntry, Option<String>, Option<String>),
        mainstay: Mainstay,
        slots: Slots,
        signals: Arc<Signals>,
        breaker: Breaker,
    ) -> (Self, mpsc::UnboundedReceiver<BatchRequest>) {
        let (batches, requests) = mpsc::unbounded_channel();
        let provider = Arc::clone(mainstay.provider());
        let view =
            Mutex::new(View { state: StoreState::Cold, breaker, known: false, told: false, mark: None });
        (Self { entry, server, place, provider, mainstay, slots, signals, batches, view }, requests)
    }

    pub(super) fn id(&self) -> &str {
        &self.entry.id
    }

    pub(super) fn view(&self) -> MutexGuard<'_, View> {
        // A few plain values are whole whatever panicked beside them.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_state(&self, state: StoreState) {
        let mut view = self.view();
        view.state = state;
        view.told |= state == StoreState::Warm;
    }

    /// Somebody else works on it from now on, or nobody.
    pub(super) fn retire(&self) {
        if std::mem::take(&mut self.view().told) {
            self.mainstay.retire();
        }
    }

    /// What the doorbell has read; none if the database can't be seen. Anything that is not as it was before rings. Only one that hears
    /// everything is believed when it is silent.
    pub(super) fn hear(&self, mark: Option<Mark>, everything: bool) {
        let before = std::mem::replace(&mut self.view().mark, mark);
        if mark.is_some() && mark != before {
            self.signals.write();
        }
        self.signals.set_watched(mark.is_some() && everything);
    }

    /// Whether the database answered when last asked, or was never asked.
    pub(super) fn is_well(&self) -> bool {
        self.view().breaker.state() == BreakerState::Closed
    }

    /// Whether it may be worked on: it is well, or only work can show that it is.
    pub(super) fn may_be_tried(&self) -> bool {
        let breaker = &self.view().breaker;
        breaker.state() == BreakerState::Closed || breaker.is_tried_at_work()
    }

    /// When this process has something to do in it. `dispatches` says whether it hands out messages here, too.
    pub(super) fn next(&self, agenda: &Agenda, dispatches: bool) -> Option<Duration> {
        let handles = |queue| dispatches && self.mainstay.dispatcher(queue).is_some();
        let outbox = agenda.outbox.filter(|_| handles(Queue::Outbox));
        let inbox = agenda.inbox.filter(|_| handles(Queue::Inbox));
        let scheduled = agenda.scheduled.filter(|_| self.mainstay.schedules());
        let joins = agenda.joins.filter(|_| self.mainstay.ends_joins());
        let now = tokio::time::Instant::now();
        let looks = self.mainstay.coordinators().flatten().min();
        let fanout = looks.map(|look| look.saturating_duration_since(now));
        [outbox, inbox, scheduled, joins, fanout].into_iter().flatten().min()
    }

    /// Whether it makes slices of fan-outs.
    pub(super) fn coordinates(&self) -> bool {
        self.mainstay.coordinators().next().is_some()
    }

    pub(super) fn status(&self) -> StoreStatus {
        let view = self.view();
        let error = view.breaker.last_error();
        StoreStatus {
            id: self.entry.id.clone(),
            state: view.state,
            breaker: view.breaker.state(),
            since: view.breaker.since(),
            failures: view.breaker.failures(),
            last_error: error.map(|(_, text)| text.clone()),
            last_error_kind: error.map(|(kind, _)| *kind),
            in_hand: self.slots.pulse().in_hand(),
            watched: self.signals.is_watched(),
            known: view.known,
            entry_error: None,
        }
    }
}
