//! Keeps one database: lets it rest, looks at it, works on it, and lets the application's calls through.
//!
//! One task per database, and the only one that decides how many connections the database may have. It opens none without a share of the
//! budget, and gives the share back only when they are closed. Whatever the database does or fails to do, it waits here for a bounded time
//! and harms nobody else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{Pause, RunningMainstay};
use crate::store::Agenda;
use crate::telemetry;

use super::budget::{Budget, Share};
use super::store::{BatchRequest, Store};
use super::{FleetOptions, Owned, StoreState};

/// How long connections stay open for the application's next call, on a database that nobody works on.
const LINGER: Duration = Duration::from_millis(500);

/// How often a database that is worked on is asked what else there is to do.
const CHECK: Duration = Duration::from_secs(1);

/// The same while others wait for its connections.
const CHECK_WHILE_OTHERS_WAIT: Duration = Duration::from_millis(50);

/// How long closing connections is waited for before others are seen to. The share stays taken until they are closed.
const CLOSING: Duration = Duration::from_secs(2);

/// How often in a row a database that is worked on may not answer in time.
const UNANSWERED: u32 = 2;

const NO_ANSWER: &str = "fleet.look";

/// What all databases of a process have in common.
pub(super) struct Node {
    pub(super) options: FleetOptions,
    pub(super) budget: Budget,
    pub(super) owned: watch::Receiver<Owned>,
    /// Whether messages are handed out here, and not by a strategy.
    pub(super) dispatches: bool,
}

/// Keeps one database.
pub(super) struct Keeper {
    pub(super) store: Arc<Store>,
    pub(super) node: Arc<Node>,
    pub(super) stop: CancellationToken,
    pub(super) requests: mpsc::UnboundedReceiver<BatchRequest>,
    plan: Plan,
}

/// When to do something next.
struct Plan {
    pause: Pause,
    look_at: Instant,
    /// When to work, at the latest: the chores are seen to then.
    work_at: Instant,
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

/// Why work on a database ends.
enum End {
    /// The process, or the database's place in the fleet, comes to its end; or it is another node's now.
    Stop,
    /// It has nothing to do.
    Idle,
    /// It has had its share, and others wait.
    Share,
    Sick(Error),
}

impl Keeper {
    pub(super) fn new(
        store: Arc<Store>,
        node: Arc<Node>,
        stop: CancellationToken,
        requests: mpsc::UnboundedReceiver<BatchRequest>,
    ) -> Self {
        let (now, options) = (Instant::now(), &node.options);
        let pause = Pause::new((options.poll_min, options.poll_max));
        // Chores first: they check the schema and register jobs.
        Self {
            plan: Plan { pause, look_at: now, work_at: now, fanout_changes: None },
            store,
            node,
            stop,
            requests,
        }
    }

    /// Runs until told to stop, and lets go of the database.
    pub(super) async fn run(&mut self) {
        loop {
            match self.rest().await {
                Next::Stop => break,
                Next::Serve => self.serve().await,
                Next::Look => self.look().await,
                Next::Work => self.work().await,
                Next::Batch(request) => self.batch(request).await,
            }
        }
        self.store.provider.close().await;
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
            if is_owned && !was_owned {
                // Whoever had it last may have left anything.
                self.plan.pause.reset();
                self.plan.work_at = Instant::now();
            }
            was_owned = is_owned;
            if told.recheck {
                self.store.view().breaker.hasten();
                self.plan.look_at = Instant::now();
            }
            if told.rung {
                self.plan.pause.reset();
                self.plan.work_at = Instant::now();
            }
            if told.wanted {
                return Next::Serve;
            }
            let wake_at = match is_owned {
                false => None,
                true => match self.due() {
                    Ok(next) => return next,
                    Err(wake_at) => Some(wake_at),
                },
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Next::Stop,
                () = self.store.signals.told() => {}
                // The sender lives as long as the fleet.
                _ = owned.changed() => {}
                Some(request) = self.requests.recv() => return Next::Batch(request),
                () = sleep_until(wake_at) => {}
            }
        }
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
        let Some(share) = self.share(self.node.budget.one(self.store.server.as_deref())).await else {
            return;
        };
        self.store.view().breaker.tries();
        telemetry::store_looked_at(self.store.provider.kind());
        self.allow(1).await;
        let looked = self.try_to_look().await;
        self.let_go(share).await;
        match looked {
            Ok(agenda) => {
                self.succeeded();
                self.plan(&agenda);
            }
            // It is about to be deployed.
            Err(error) if self.deploys_for(&error) => {
                self.succeeded();
                self.plan.work_at = Instant::now();
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

    /// Sets when to look or work next.
    fn plan(&mut self, agenda: &Agenda) {
        let now = Instant::now();
        let next = self.store.next(agenda, self.node.dispatches);
        let changed = self.plan.fanout_changes.is_some_and(|known| known != agenda.fanout_changes);
        if next.is_some_and(|next| next.is_zero()) || (changed && self.store.coordinates()) {
            // Work is done with the chores; there is only one way to begin.
            self.plan.work_at = now;
        }
        let pause = self.plan.pause.step();
        self.plan.look_at = now + next.map_or(pause, |next| next.min(pause));
    }

    async fn agenda(&self) -> Result<Agenda> {
        let limit = self.node.options.look_timeout;
        match tokio::time::timeout(limit, self.store.provider.agenda()).await {
            Ok(answer) => answer,
            Err(_) => Err(no_answer(NO_ANSWER, limit)),
        }
    }

    // ---- calls of the application

    /// Lets calls through until none has come for a while.
    async fn serve(&mut self) {
        let Some(share) = self.share(self.node.budget.one(self.store.server.as_deref())).await else {
            return;
        };
        self.allow(1).await;
        let (mut until, mut recheck) = (Instant::now() + LINGER, false);
        loop {
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = self.store.signals.told() => {}
                () = sleep_until(Some(until)) => break,
            }
            let told = self.store.signals.take();
            recheck |= told.recheck;
            if told.rung {
                self.plan.pause.reset();
                self.plan.work_at = Instant::now();
                if self.is_owned() {
                    break;
                }
            }
            until = Instant::now() + LINGER;
        }
        self.let_go(share).await;
        if recheck {
            // Not here: it is for whoever looks at the database next.
            self.store.signals.recheck();
        }
    }

    // ---- working

    /// Works on the database until it has nothing to do, or has had its share.
    async fn work(&mut self) {
        self.store.set_state(StoreState::Waiting);
        let count = self.node.options.connections_per_store;
        let Some(share) = self.share_for_work(count).await else { return };
        self.store.set_state(StoreState::Warm);
        self.allow(count).await;
        let ended = match self.begin().await {
            Ok(running) => {
                self.succeeded();
                self.plan.work_at = Instant::now() + self.node.options.upkeep;
                let end = self.attend().await;
                self.finish(running, end).await
            }
            Err(error) => Err(error),
        };
        self.let_go(share).await;
        if let Err(error) = ended {
            self.failed(&error);
        }
    }

    async fn begin(&self) -> Result<RunningMainstay> {
        // By itself a Mainstay waits for a database that is down. Here somebody else can use the time.
        self.is_fit().await?;
        let limit = self.node.options.start_timeout;
        let starting = async {
            match self.node.dispatches {
                true => self.store.mainstay.start().await,
                false => self.store.mainstay.start_chores().await,
            }
        };
        match tokio::time::timeout(limit, starting).await {
            Ok(started) => started,
            Err(_) => Err(no_answer("fleet.start", limit)),
        }
    }

    /// Watches over the work, until there is a reason to end it.
    async fn attend(&mut self) -> End {
        let options = self.node.options;
        let (mut owned, mut line) = (self.node.owned.clone(), self.node.budget.line());
        let began = Instant::now();
        let (mut busy_at, mut unanswered) = (began, 0);
        loop {
            if self.stop.is_cancelled() || !owned.borrow_and_update().owns(self.store.id()) {
                return End::Stop;
            }
            let agenda = match self.agenda().await {
                Ok(agenda) => {
                    unanswered = 0;
                    agenda
                }
                // A look can also go unanswered because all connections are in handlers' hands.
                Err(error) if error.operation() == NO_ANSWER && unanswered < UNANSWERED => {
                    unanswered += 1;
                    continue;
                }
                Err(error) => return End::Sick(error),
            };
            // Coordinators that run see for themselves.
            self.plan.fanout_changes = Some(agenda.fanout_changes);
            let next = self.store.next(&agenda, self.node.dispatches);
            let busy = self.store.slots.in_hand() > 0 || next.is_some_and(|next| next < options.idle);
            let now = Instant::now();
            if self.store.signals.take().rung || busy {
                busy_at = now;
            }
            let others_wait = *line.borrow_and_update() > 0;
            if others_wait && busy && began.elapsed() >= options.share {
                return End::Share;
            }
            if now - busy_at >= options.idle || (others_wait && !busy) {
                self.plan.pause.reset();
                self.plan(&agenda);
                return End::Idle;
            }
            let check = if others_wait { CHECK_WHILE_OTHERS_WAIT } else { CHECK };
            tokio::select! {
                () = self.stop.cancelled() => {}
                _ = owned.changed() => {}
                () = someone_waits(&mut line), if !others_wait => {}
                Some(request) = self.requests.recv() => self.run_batch(request).await,
                () = tokio::time::sleep(check) => {}
            }
        }
    }

    async fn finish(&mut self, running: RunningMainstay, end: End) -> Result<()> {
        match end {
            End::Stop => running.stop().await,
            End::Sick(error) => {
                running.stop().await?;
                Err(error)
            }
            End::Idle | End::Share => {
                if matches!(end, End::Share) {
                    // To the end of the line.
                    self.plan.work_at = Instant::now();
                }
                let (stop, mut owned) = (self.stop.clone(), self.node.owned.clone());
                let id = self.store.id().to_owned();
                let hurry = async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        _ = owned.wait_for(|owned| !owned.owns(&id)) => {}
                    }
                };
                running.finish(hurry).await
            }
        }
    }

    // ---- one batch, where a strategy decides who is next

    async fn batch(&mut self, request: BatchRequest) {
        let count = self.node.options.connections_per_store;
        let Some(share) = self.share_for_work(count).await else { return };
        self.allow(count).await;
        self.run_batch(request).await;
        self.let_go(share).await;
    }

    async fn run_batch(&self, request: BatchRequest) {
        // A database that is down would hold the strategy up for longer than this.
        let done = match self.is_fit().await {
            Ok(()) => self.store.mainstay.run_batch(request.queue, &self.stop).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &done {
            self.failed(error);
        }
        // Whoever asked may have gone.
        drop(request.answer.send(done));
    }

    // ---- connections

    /// A share of the budget; none if it is no longer wanted.
    async fn share(&self, asked: impl Future<Output = Share>) -> Option<Share> {
        self.stop.run_until_cancelled(asked).await
    }

    /// Waits in line for all that the database works with; calls of the application are let through meanwhile. None if it is no longer
    /// wanted.
    async fn share_for_work(&mut self, count: usize) -> Option<Share> {
        let (node, server) = (Arc::clone(&self.node), self.store.server.clone());
        let mut owned = node.owned.clone();
        let line = node.budget.for_work(server.as_deref(), count);
        tokio::pin!(line);
        loop {
            if self.stop.is_cancelled() || !owned.borrow_and_update().owns(self.store.id()) {
                return None;
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                share = &mut line => return Some(share),
                _ = owned.changed() => {}
                () = self.store.signals.told() => {
                    if self.store.signals.take().wanted {
                        self.serve().await;
                    }
                }
            }
        }
    }

    async fn allow(&self, connections: usize) {
        let allowed = self.store.provider.allow_connections(connections);
        // It only takes time when more are open, and then they are on their way out.
        drop(tokio::time::timeout(CLOSING, allowed).await);
    }

    /// Closes the connections and gives the share back.
    async fn let_go(&self, share: Share) {
        let provider = Arc::clone(&self.store.provider);
        if tokio::time::timeout(CLOSING, provider.allow_connections(0)).await.is_err() {
            // Somebody still uses one. Nobody else may have it until then.
            tokio::spawn(async move {
                provider.allow_connections(0).await;
                drop(share);
            });
        }
    }

    // ---- trouble

    fn succeeded(&self) {
        if self.store.view().breaker.succeeded() {
            telemetry::store_recovered(self.store.id());
        }
    }

    fn failed(&self, error: &Error) {
        let (pause, news) = self.store.view().breaker.failed(error);
        telemetry::store_failed(self.store.id(), error, pause, news);
    }
}

fn no_answer(operation: &'static str, limit: Duration) -> Error {
    Error::new(ErrorKind::Unavailable, operation, format!("the database did not answer within {limit:?}"))
}

async fn someone_waits(line: &mut watch::Receiver<usize>) {
    if line.wait_for(|waiting| *waiting > 0).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}
