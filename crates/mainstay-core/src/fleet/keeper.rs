//! Keeps one database: lets it rest, looks at it, works on it, and lets the application's calls through.
//!
//! One task per database, and the only one that decides how many connections the database may have. It opens none without a share of the
//! budget, and gives the share back only when they are closed: what a call still uses stays here, and is counted once. Whatever the
//! database does or fails to do, it waits here for a bounded time and harms nobody else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::RunningMainstay;
use crate::store::Agenda;
use crate::telemetry;

use super::budget::{Budget, Line, Share};
use super::plan::Plan;
use super::store::{BatchRequest, Store};
use super::{FleetOptions, Owned, StoreState};

/// How long connections stay open for the application's next call, on a database that nobody works on.
const LINGER: Duration = Duration::from_millis(500);

/// How often a database that is worked on is asked what else there is to do.
const CHECK: Duration = Duration::from_secs(1);

/// The same while others wait for its connections.
const CHECK_WHILE_OTHERS_WAIT: Duration = Duration::from_millis(50);

/// How long closing connections is waited for before something else is seen to. The share stays taken until they are closed.
const CLOSING: Duration = Duration::from_secs(2);

/// How long a database that gives its place up keeps all its connections. What takes longer goes on, and has one whenever it needs one.
const PARTING: Duration = Duration::from_secs(1);

/// Connections of a database at work of which handlers can't have all: one is always left to answer a look.
const ENOUGH: usize = 3;

/// How often in a row a database with fewer may not answer in time.
const UNANSWERED: u32 = 2;

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
        Self {
            plan: Plan::new(&node.options, Instant::now()),
            held: None,
            recheck: false,
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
        self.store.view().breaker.hasten();
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

    /// Sets when to look or work next.
    fn plan(&mut self, agenda: &Agenda) {
        let is_due = |next: Option<Duration>| next.is_some_and(|next| next.is_zero());
        let changed = self.fanout_changes.is_some_and(|known| known != agenda.fanout_changes);
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

    // ---- working

    /// Works on the database until it has nothing to do, or has had its share.
    async fn work(&mut self) {
        self.store.set_state(StoreState::Waiting);
        if !self.hold_all().await {
            return;
        }
        self.store.set_state(StoreState::Warm);
        self.plan.works();
        self.allow().await;
        let ended = match self.begin().await {
            Ok(running) => {
                self.succeeded();
                self.plan.work_at = Instant::now() + self.node.options.upkeep;
                let end = self.attend().await;
                self.finish(running, end).await
            }
            Err(error) => Err(error),
        };
        self.let_go().await;
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
        // With few connections a look can also go unanswered because all are in handlers' hands.
        let patience = if options.connections_per_store < ENOUGH { UNANSWERED } else { 0 };
        loop {
            if self.stop.is_cancelled() || !owned.borrow_and_update().owns(self.store.id()) {
                return End::Stop;
            }
            // Whatever was written until now, this look sees it. What is written later stays told.
            self.store.signals.take_written();
            let agenda = match self.agenda().await {
                Ok(agenda) => {
                    unanswered = 0;
                    agenda
                }
                Err(error) if error.operation() == NO_ANSWER && unanswered < patience => {
                    unanswered += 1;
                    continue;
                }
                Err(error) => return End::Sick(error),
            };
            // Coordinators that run see for themselves.
            self.fanout_changes = Some(agenda.fanout_changes);
            let next = self.store.next(&agenda, self.node.dispatches);
            let busy = self.store.slots.in_hand() > 0 || next.is_some_and(|next| next < options.idle);
            let now = Instant::now();
            if self.store.signals.take().rung || busy {
                busy_at = now;
            }
            let others_wait = line.borrow_and_update().wants(self.store.server.as_deref());
            if others_wait && busy && began.elapsed() >= options.share {
                return End::Share;
            }
            if now - busy_at >= options.idle || (others_wait && !busy) {
                self.plan.wake();
                self.plan(&agenda);
                return End::Idle;
            }
            let check = if others_wait { CHECK_WHILE_OTHERS_WAIT } else { CHECK };
            tokio::select! {
                () = self.stop.cancelled() => {}
                _ = owned.changed() => {}
                () = someone_waits(&mut line, self.store.server.as_deref()), if !others_wait => {}
                Some(request) = self.requests.recv() => self.run_batch(request).await,
                () = tokio::time::sleep(check) => {}
            }
        }
    }

    /// Ends the work. Connections that are not needed for that are given back before it is done.
    async fn finish(&mut self, running: RunningMainstay, end: End) -> Result<()> {
        match end {
            End::Stop => running.stop().await,
            End::Sick(error) => self.abandon(running.stop(), error).await,
            End::Idle | End::Share => {
                if matches!(end, End::Share) {
                    // To the end of the line.
                    self.plan.work_at = Instant::now();
                }
                let (stop, mut owned) = (self.stop.clone(), self.node.owned.clone());
                let (id, sick) = (self.store.id().to_owned(), CancellationToken::new());
                let is_sick = sick.clone();
                let hurry = async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = is_sick.cancelled() => {}
                        _ = owned.wait_for(|owned| !owned.owns(&id)) => {}
                    }
                };
                let mut finishing = Box::pin(running.finish(hurry));
                let error = tokio::select! {
                    finished = &mut finishing => return finished,
                    error = self.part() => error,
                };
                sick.cancel();
                self.abandon(finishing, error).await
            }
        }
    }

    /// Gives the connections back while handlers take as long as they take. For what these still have to say, to renew and to settle, there
    /// is one whenever it is wanted, as for the application's calls. Returns what is wrong with the database, as soon as something is.
    async fn part(&mut self) -> Error {
        tokio::time::sleep(PARTING).await;
        // What is in hand is to be settled, also when all comes to its end.
        let never = CancellationToken::new();
        loop {
            self.let_go().await;
            let told = tokio::select! {
                () = self.store.signals.told() => true,
                () = tokio::time::sleep(CHECK), if self.held.is_some() => false,
            };
            if told {
                let told = self.store.signals.take();
                self.recheck |= told.recheck;
                if told.rung {
                    self.hear();
                }
                if told.wanted {
                    self.serve(Serving::Busy, &never).await;
                }
                continue;
            }
            // A handler's transaction may have it. Or nobody answers, which can only be told with one more.
            if self.held() + 1 >= ENOUGH.max(self.node.options.connections_per_store) {
                continue;
            }
            self.hold_one(&never).await;
            self.allow().await;
            if let Err(error) = self.agenda().await {
                return error;
            }
        }
    }

    /// Takes a database's connections away while its work comes to an end: it does not answer, and others can use them. Should it answer
    /// after all, one connection will do for what is still to be settled.
    async fn abandon(&mut self, ending: impl Future<Output = Result<()>>, error: Error) -> Result<()> {
        tokio::pin!(ending);
        self.sever().await;
        loop {
            tokio::select! {
                ended = &mut ending => return ended.and(Err(error)),
                () = self.store.signals.told() => {}
            }
            if self.store.signals.take().wanted {
                break;
            }
        }
        let ended = async {
            self.hold_one(&CancellationToken::new()).await;
            self.allow().await;
            let ended = tokio::time::timeout(self.node.options.look_timeout, &mut ending).await;
            self.sever().await;
            ended
        };
        match ended.await {
            Ok(ended) => ended.and(Err(error)),
            // What could not be settled lapses.
            Err(_) => ending.await.and(Err(error)),
        }
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

    /// Adds one connection to what is held, for a moment; false if `stop` comes first. What calls already have in use is not taken from
    /// them, so it takes another, unless that makes more than the database can have.
    async fn hold_one(&mut self, stop: &CancellationToken) -> bool {
        if self.held() >= self.node.options.connections_per_store {
            return true;
        }
        let (budget, server) = (&self.node.budget, self.store.server.as_deref());
        let asked = async {
            match self.store.is_well() {
                true => budget.one(server).await,
                false => budget.trial(server).await,
            }
        };
        match stop.run_until_cancelled(asked).await {
            None => false,
            Some(share) => {
                self.hold(share);
                true
            }
        }
    }

    /// Waits in line for all that the database works with; calls of the application are let through meanwhile. False if it is no longer
    /// wanted.
    async fn hold_all(&mut self) -> bool {
        let (node, server, stop) = (Arc::clone(&self.node), self.store.server.clone(), self.stop.clone());
        let count = node.options.connections_per_store;
        let mut owned = node.owned.clone();
        let line = node.budget.for_work(server.as_deref(), count);
        tokio::pin!(line);
        let share = loop {
            if stop.is_cancelled() || !owned.borrow_and_update().owns(self.store.id()) {
                return false;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return false,
                share = &mut line => break share,
                _ = owned.changed() => continue,
                () = self.store.signals.told() => {}
            }
            let told = self.store.signals.take();
            self.recheck |= told.recheck;
            if told.wanted {
                tokio::select! {
                    biased;
                    share = &mut line => break share,
                    () = self.serve(Serving::Busy, &stop) => {}
                }
            }
        };
        self.hold(share);
        if let Some(held) = &mut self.held {
            held.shrink_to(count);
        }
        true
    }

    fn hold(&mut self, share: Share) {
        match &mut self.held {
            Some(held) => held.absorb(share),
            None => self.held = Some(share),
        }
    }

    fn held(&self) -> usize {
        self.held.as_ref().map_or(0, Share::count)
    }

    /// Allows what is held.
    async fn allow(&self) {
        let allowed = self.store.provider.allow_connections(self.held());
        // It only takes time when more are open, and then they are on their way out.
        drop(tokio::time::timeout(CLOSING, allowed).await);
    }

    /// Closes the connections as soon as nobody uses them, and gives back what is closed.
    async fn let_go(&mut self) {
        let provider = Arc::clone(&self.store.provider);
        self.close(provider.allow_connections(0)).await;
    }

    /// Closes the connections, whoever uses them, and gives back what is closed.
    async fn sever(&mut self) {
        let provider = Arc::clone(&self.store.provider);
        self.close(provider.sever_connections()).await;
    }

    async fn close(&mut self, closing: impl Future<Output = ()>) {
        match tokio::time::timeout(CLOSING, closing).await {
            Ok(()) => self.held = None,
            Err(_) => self.settle(),
        }
    }

    /// Gives back what is closed, while none is allowed.
    fn settle(&mut self) {
        if let Some(held) = &mut self.held {
            held.shrink_to(self.store.provider.open_connections());
        }
        if self.held() == 0 {
            self.held = None;
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
