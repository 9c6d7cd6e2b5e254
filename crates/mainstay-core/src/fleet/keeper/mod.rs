//! Keeps one database: lets it rest, looks at it, works on it, and lets the application's calls through.
//!
//! One task per database, and the only one that decides how many connections the database may have. It opens none without a share of the
//! budget, and gives the share back only when they are closed: what a call still uses stays here, and is counted once. Whatever the
//! database does or fails to do, it waits here for a bounded time and harms nobody else.

mod connections;
mod turn;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind, Result};
use crate::queue::pulse::Pulse;
use crate::runtime::RunningMainstay;
use crate::store::{Agenda, Queue};
use crate::telemetry;

use super::budget::{Budget, Line, Share};
use super::plan::Plan;
use super::store::{BatchRequest, Store};
use super::{FleetOptions, Owned, StoreState};

/// How long connections stay open for the application's next call, on a database that nobody works on.
const LINGER: Duration = Duration::from_millis(500);

const NO_ANSWER: &str = "fleet.look";

/// What all databases of a process have in common.
pub(super) struct Node {
    pub(super) options: FleetOptions,
    pub(super) budget: Budget,
    pub(super) owned: watch::Receiver<Owned>,
    /// Whether messages are handed out here, and not by a strategy.
    pub(super) dispatches: bool,
    /// Counts the work that is there to be handed out, for a strategy.
    pub(super) rung: watch::Sender<u64>,
}

/// Keeps one database.
pub(super) struct Keeper {
    pub(super) store: Arc<Store>,
    pub(super) node: Arc<Node>,
    pub(super) stop: CancellationToken,
    pub(super) requests: mpsc::UnboundedReceiver<BatchRequest>,
    plan: Plan,
    /// At least what is open. All that may be opened.
    held: Option<Share>,
    /// Somebody believes that what was wrong is over.
    recheck: bool,
    /// It was slow when others waited, and may take its time at the next turn.
    patient: bool,
    /// What was known of the policies of fan-outs when their coordinators last ran.
    fanout_changes: Option<i64>,
}

/// What to do next.
enum Next {
    Stop,
    /// Let the application's calls through.
    Serve,
    Look,
    Work,
    Batch(BatchRequest),
}

/// What else is going on while calls of the application are let through.
#[derive(PartialEq)]
enum Serving {
    /// Nothing. The first that adds work ends it: there is something better to do then.
    Resting,
    /// The database waits for what it works with, or finishes what it has in hand.
    Busy,
}

impl Keeper {
    pub(super) fn new(
        store: Arc<Store>,
        node: Arc<Node>,
        stop: CancellationToken,
        requests: mpsc::UnboundedReceiver<BatchRequest>,
    ) -> Self {
        Self {
            plan: Plan::new(&node.options, Instant::now()),
            held: None,
            recheck: false,
            patient: false,
            fanout_changes: None,
            store,
            node,
            stop,
            requests,
        }
    }

    /// Runs until told to stop, and lets go of the database.
    pub(super) async fn run(&mut self) {
        // Whatever a bug has left behind.
        self.let_go().await;
        loop {
            match self.rest().await {
                Next::Stop => break,
                Next::Serve => {
                    let stop = self.stop.clone();
                    self.serve(Serving::Resting, &stop).await;
                }
                Next::Look => self.look().await,
                Next::Work => self.work().await,
                Next::Batch(request) => self.batch(request).await,
            }
        }
        self.store.provider.close().await;
        self.store.retire();
        self.held = None;
    }

    fn is_owned(&self) -> bool {
        self.node.owned.borrow().owns(self.store.id())
    }

    // ---- resting

    /// Waits until there is something to do.
    async fn rest(&mut self) -> Next {
        let mut owned = self.node.owned.clone();
        let mut was_owned = true;
        loop {
            let told = self.store.signals.take();
            if self.stop.is_cancelled() {
                return Next::Stop;
            }
            let is_owned = owned.borrow_and_update().owns(self.store.id());
            self.store.set_state(if is_owned { StoreState::Cold } else { StoreState::Elsewhere });
            if !is_owned {
                // Who works on it finds out how it is. Calls from here are let through as to any other.
                self.store.view().breaker.forget();
                self.store.retire();
            }
            if is_owned && !was_owned {
                // Whoever had it last may have left anything.
                self.plan.work_now(Instant::now());
            }
            was_owned = is_owned;
            if told.recheck || std::mem::take(&mut self.recheck) {
                self.store.view().breaker.hasten();
                self.plan.look_at = Instant::now();
            }
            if told.rung {
                self.hear();
            }
            self.plan.set_watched(self.store.signals.is_watched(), Instant::now());
            if self.store.signals.take_written() {
                self.plan.ring(Instant::now());
            }
            self.settle();
            let due = is_owned.then(|| self.due());
            if told.wanted {
                // However many calls there are, they must not keep anybody from the work they add. It lets them through, too.
                if let Some(Ok(next)) = due {
                    self.store.signals.want();
                    return next;
                }
                return Next::Serve;
            }
            let wake_at = match due {
                None => None,
                Some(Ok(next)) => return next,
                Some(Err(wake_at)) => Some(wake_at),
            };
            let provider = Arc::clone(&self.store.provider);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Next::Stop,
                () = self.store.signals.told() => {}
                // The sender lives as long as the fleet.
                _ = owned.changed() => {}
                Some(request) = self.requests.recv() => return Next::Batch(request),
                () = sleep_until(wake_at) => {}
                // A call that took long is over.
                () = provider.allow_connections(0), if self.held.is_some() => self.held = None,
            }
        }
    }

    /// A client of this process has added work. Where that was possible, the database is there.
    fn hear(&mut self) {
        let breaker = &mut self.store.view().breaker;
        // That something could be added says nothing of one whose claims fail.
        if !breaker.is_unproven() {
            breaker.hasten();
        }
        self.plan.work_now(Instant::now());
    }

    /// What is to be done now, or when there is something.
    fn due(&self) -> Result<Next, Instant> {
        let now = Instant::now();
        match self.store.view().breaker.retry_at() {
            Some(retry_at) if retry_at > now => Err(retry_at),
            Some(_) => Ok(Next::Look),
            None if self.plan.work_at <= now => Ok(Next::Work),
            None if self.plan.look_at <= now => Ok(Next::Look),
            None => Err(self.plan.look_at.min(self.plan.work_at)),
        }
    }

    // ---- looking

    /// Looks whether there is something to do.
    async fn look(&mut self) {
        let beside_a_call = self.held.is_some();
        let stop = self.stop.clone();
        if !self.hold_one(&stop).await {
            return;
        }
        self.store.view().breaker.tries();
        telemetry::store_looked_at(self.store.provider.kind());
        self.allow().await;
        let looked = self.try_to_look().await;
        self.let_go().await;
        match looked {
            // Where a strategy hands out batches, and there is none to be had, nothing more can be asked of it.
            Ok(agenda)
                if self.store.view().breaker.is_unproven()
                    && (self.node.dispatches || self.has_batch(&agenda)) =>
            {
                self.store.view().breaker.tries_at_work();
                self.plan(&agenda);
                self.plan.work_at = Instant::now();
            }
            Ok(agenda) => {
                self.succeeded();
                self.plan(&agenda);
            }
            // It is about to be deployed.
            Err(error) if self.deploys_for(&error) => {
                self.succeeded();
                self.plan.work_at = Instant::now();
            }
            // A call that takes long can be all that is in the way.
            Err(error) if beside_a_call && error.operation() == NO_ANSWER && self.store.is_well() => {
                self.plan.looked(None, Instant::now());
            }
            Err(error) => self.failed(&error),
        }
    }

    async fn try_to_look(&self) -> Result<Agenda> {
        // One that has failed must be fit for work before others are told that it is.
        if !self.store.is_well() {
            self.is_fit().await?;
        }
        self.agenda().await
    }

    fn deploys_for(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::Schema && self.store.mainstay.deploys_schema()
    }

    /// Whether the database answers, and has the schema it should have.
    async fn is_fit(&self) -> Result<()> {
        let fit = async {
            match self.store.mainstay.deploys_schema() {
                true => self.store.provider.now().await.map(drop),
                false => self.store.provider.schema().require().await,
            }
        };
        let limit = self.node.options.look_timeout;
        tokio::time::timeout(limit, fit).await.unwrap_or_else(|_| Err(no_answer(NO_ANSWER, limit)))
    }

    /// Whether there are messages to be handed out now.
    fn has_batch(&self, agenda: &Agenda) -> bool {
        let due = |queue, next: Option<Duration>| {
            self.store.mainstay.dispatcher(queue).is_some() && next.is_some_and(|next| next.is_zero())
        };
        due(Queue::Outbox, agenda.outbox) || due(Queue::Inbox, agenda.inbox)
    }

    /// Sets when to look or work next.
    fn plan(&mut self, agenda: &Agenda) {
        let is_due = |next: Option<Duration>| next.is_some_and(|next| next.is_zero());
        // Before they ever ran there is something to coordinate if there is any fan-out: then it is not zero.
        let changed = self.fanout_changes.unwrap_or_default() != agenda.fanout_changes;
        let next = match changed && self.store.coordinates() {
            true => Some(Duration::ZERO),
            false => self.store.next(agenda, self.node.dispatches),
        };
        if self.plan.looked(next, Instant::now()) {
            telemetry::watch_distrusted(self.store.id());
        }
        if !self.node.dispatches && is_due(self.store.next(agenda, true)) {
            self.node.rung.send_modify(|rings| *rings += 1);
        }
    }

    async fn agenda(&self) -> Result<Agenda> {
        let limit = self.node.options.look_timeout;
        match tokio::time::timeout(limit, self.store.provider.agenda()).await {
            Ok(answer) => answer,
            Err(_) => Err(no_answer(NO_ANSWER, limit)),
        }
    }

    // ---- calls of the application

    /// Lets calls through until none has come for a while, or others have waited long enough.
    async fn serve(&mut self, serving: Serving, stop: &CancellationToken) {
        if !self.hold_one(stop).await {
            return;
        }
        self.allow().await;
        let latest = Instant::now() + self.node.options.share.max(LINGER);
        let mut until = Instant::now() + LINGER;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.store.signals.told() => {}
                () = sleep_until(Some(until.min(latest))) => break,
            }
            let told = self.store.signals.take();
            self.recheck |= told.recheck;
            if told.rung {
                self.hear();
                if serving == Serving::Resting && self.is_owned() {
                    break;
                }
            }
            // Nothing else is a call: that somebody has written, for one.
            if told.rung || told.wanted {
                until = Instant::now() + LINGER;
            }
        }
        self.let_go().await;
    }

    // ---- one batch, where a strategy decides who is next

    async fn batch(&mut self, request: BatchRequest) {
        if !self.hold_all().await {
            return;
        }
        self.allow().await;
        self.run_batch(request).await;
        self.let_go().await;
    }

    async fn run_batch(&self, request: BatchRequest) {
        // A database that is down would hold the strategy up for longer than this.
        let done = match self.is_fit().await {
            Ok(()) => {
                let done = self.store.mainstay.run_batch(request.queue, &self.stop).await;
                match &done {
                    // The other queue may be the one that fails.
                    Ok(0) => {}
                    Ok(_) => self.succeeded(),
                    Err(error) => self.failed_at_work(error),
                }
                done
            }
            Err(error) => {
                self.failed(&error);
                Err(error)
            }
        };
        // Whoever asked may have gone.
        drop(request.answer.send(done));
    }

    // ---- trouble

    fn succeeded(&self) {
        self.store.view().known = true;
        if self.store.view().breaker.succeeded() {
            telemetry::store_recovered(self.store.id());
        }
    }

    fn failed(&self, error: &Error) {
        self.store.view().known = true;
        let (pause, news) = self.store.view().breaker.failed(error);
        telemetry::store_failed(self.store.id(), error, pause, news);
    }

    /// It answers, and can't be worked on.
    fn failed_at_work(&self, error: &Error) {
        self.store.view().known = true;
        let (pause, news) = self.store.view().breaker.failed_at_work(error);
        telemetry::store_failed(self.store.id(), error, pause, news);
    }
}

fn no_answer(operation: &'static str, limit: Duration) -> Error {
    Error::new(ErrorKind::Unavailable, operation, format!("the database did not answer within {limit:?}"))
}

async fn someone_waits(line: &mut watch::Receiver<Line>, server: Option<&str>) {
    if line.wait_for(|line| line.wants(server)).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}
