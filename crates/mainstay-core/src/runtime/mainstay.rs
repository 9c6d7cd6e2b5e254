//! Mainstay as an application holds it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::select_all;
use tokio_util::sync::CancellationToken;

use crate::audit::Audit;
use crate::error::Result;
use crate::fanout::{Fanout, FanoutService, KnownFanouts};
use crate::health::{FailedKept, Health, Startup, StartupGuard, StartupState};
use crate::inbox::Inbox;
use crate::job::{JobDefinition, Jobs};
use crate::join::Joins;
use crate::lease::Leases;
use crate::operation::Operations;
use crate::outbox::Outbox;
use crate::queue::Dispatcher;
use crate::store::{Provider, Queue};
use crate::telemetry;
use crate::timer::Timers;

use super::MainstayBuilder;
use super::fanout::Registration;
use super::lifecycle::{Running, Service, start};

/// The pause between looks at a database that can't be reached at the start.
const START_RETRY: Duration = Duration::from_millis(500);

/// Mainstay over one database. Cheap to clone.
#[derive(Clone)]
pub struct Mainstay(Arc<Inner>);

/// What it is made of.
pub(super) struct Inner {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) outbox: Outbox,
    pub(super) inbox: Inbox,
    pub(super) leases: Leases,
    pub(super) timers: Timers,
    pub(super) jobs: Jobs,
    pub(super) joins: Joins,
    pub(super) audit: Audit,
    pub(super) operations: Operations,
    /// To be registered at the first start.
    pub(super) definitions: Vec<JobDefinition>,
    pub(super) fanout: Fanout,
    /// To be registered at the first start.
    pub(super) fanouts: Vec<Registration>,
    /// Whether all of them have been.
    pub(super) registered: AtomicBool,
    /// None without a handler.
    pub(super) outbox_dispatcher: Option<Arc<Dispatcher>>,
    pub(super) inbox_dispatcher: Option<Arc<Dispatcher>>,
    /// All the rest.
    pub(super) services: Vec<Arc<dyn Service>>,
    /// Whether there is anything among them that makes messages of what is scheduled.
    pub(super) schedules: bool,
    pub(super) ends_joins: bool,
    pub(super) coordinators: Vec<Arc<FanoutService>>,
    pub(super) known_fanouts: Option<Arc<KnownFanouts>>,
    pub(super) deploy_schema: bool,
    /// Where it stands, for health.
    pub(super) startup: Arc<StartupState>,
    /// For how long failed messages are kept.
    pub(super) failed_kept: FailedKept,
}

impl Mainstay {
    /// Begins to put one together over `provider`.
    pub fn builder(provider: impl Provider) -> MainstayBuilder {
        Self::builder_over(Arc::new(provider))
    }

    /// The same over a provider that is shared.
    pub fn builder_over(provider: Arc<dyn Provider>) -> MainstayBuilder {
        MainstayBuilder::new(provider)
    }

    pub(super) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    /// The outbox.
    pub fn outbox(&self) -> &Outbox {
        &self.0.outbox
    }

    /// The inbox.
    pub fn inbox(&self) -> &Inbox {
        &self.0.inbox
    }

    /// The leases.
    pub fn leases(&self) -> &Leases {
        &self.0.leases
    }

    /// The timers. They fire in every process that was built with `timers(…)`.
    pub fn timers(&self) -> &Timers {
        &self.0.timers
    }

    /// The jobs.
    pub fn jobs(&self) -> &Jobs {
        &self.0.jobs
    }

    /// The joins. Their deadlines are kept in every process that was built with `joins(…)`.
    pub fn joins(&self) -> &Joins {
        &self.0.joins
    }

    /// The fan-outs. They are coordinated in every process that was built with `fanout(…)`.
    pub fn fanout(&self) -> &Fanout {
        &self.0.fanout
    }

    /// The audit trail.
    pub fn audit(&self) -> &Audit {
        &self.0.audit
    }

    /// The operations. They are given up and forgotten in every process that was built with `operations(…)`.
    pub fn operations(&self) -> &Operations {
        &self.0.operations
    }

    /// The database.
    pub fn provider(&self) -> &Arc<dyn Provider> {
        &self.0.provider
    }

    /// The health of this process and its database (R25).
    pub fn health(&self) -> Health {
        Health::of(self)
    }

    /// Where it stands between its start and its stop.
    pub fn startup(&self) -> Startup {
        self.0.startup.get()
    }

    /// For how long failed messages are kept.
    pub(crate) fn failed_kept(&self) -> FailedKept {
        self.0.failed_kept
    }

    pub(crate) fn startup_state(&self) -> &Arc<StartupState> {
        &self.0.startup
    }

    /// Whether it runs the service of this name.
    #[cfg(feature = "testing")]
    pub(crate) fn runs(&self, service: &str) -> bool {
        self.services().any(|one| one.name() == service)
    }

    fn services(&self) -> impl Iterator<Item = Arc<dyn Service>> + '_ {
        let dispatchers = [&self.0.outbox_dispatcher, &self.0.inbox_dispatcher];
        let dispatchers = dispatchers.into_iter().flatten().map(|one| Arc::clone(one) as Arc<dyn Service>);
        dispatchers.chain(self.0.services.iter().cloned())
    }

    /// Takes back what is told of the database all the time: somebody else tells it now, or nobody.
    pub(crate) fn retire(&self) {
        self.0.services.iter().for_each(|service| service.retire());
    }

    /// What hands messages of the outbox or the inbox to handlers; none without a handler, and for other queues.
    pub(crate) fn dispatcher(&self, queue: Queue) -> Option<&Arc<Dispatcher>> {
        match queue {
            Queue::Outbox => self.0.outbox_dispatcher.as_ref(),
            Queue::Inbox => self.0.inbox_dispatcher.as_ref(),
            Queue::Timers | Queue::JobRuns => None,
        }
    }

    /// Claims one batch of what is due in the outbox or the inbox, and handles and settles it: how many messages that were; zero
    /// without a handler for that queue. Needs no [`Self::start`].
    pub async fn run_batch(&self, queue: Queue, stop: &CancellationToken) -> Result<usize> {
        match self.dispatcher(queue) {
            Some(dispatcher) => dispatcher.run_batch(stop).await,
            None => Ok(0),
        }
    }

    /// Whether it brings the schema up to date at the start.
    pub(crate) fn deploys_schema(&self) -> bool {
        self.0.deploy_schema
    }

    /// Whether it makes messages of what is scheduled.
    pub(crate) fn schedules(&self) -> bool {
        self.0.schedules
    }

    /// Whether it ends joins at their deadlines.
    pub(crate) fn ends_joins(&self) -> bool {
        self.0.ends_joins
    }

    /// Which changes of policies its coordinators have seen, where they have to look for new fan-outs themselves.
    pub(crate) fn fanout_changes(&self) -> Option<i64> {
        self.0.known_fanouts.as_ref().map(|known| known.changes())
    }

    /// When its coordinators of fan-outs look next, each; none: once the policy has changed.
    pub(crate) fn coordinators(&self) -> impl Iterator<Item = Option<tokio::time::Instant>> + '_ {
        let known = self.0.known_fanouts.iter().map(|known| known.next_look());
        self.0.coordinators.iter().map(|coordinator| coordinator.next_look()).chain(known)
    }

    /// Checks the schema (or deploys it, if so set up), registers jobs and fan-outs and starts all background work. Waits for a database that is
    /// down to come up; a schema that is missing or of another version is an error at once.
    ///
    /// Started again after a stop, it registers nothing again: what was deleted meanwhile stays deleted.
    pub async fn start(&self) -> Result<RunningMainstay> {
        self.start_services(self.services().collect()).await
    }

    /// The same without handing out messages of the outbox and the inbox, which somebody else does.
    pub(crate) async fn start_chores(&self) -> Result<RunningMainstay> {
        self.start_services(self.0.services.clone()).await
    }

    async fn start_services(&self, services: Vec<Arc<dyn Service>>) -> Result<RunningMainstay> {
        let startup = self.0.startup.start();
        self.when_up(|| self.ready_schema()).await?;
        if !self.0.registered.load(Ordering::SeqCst) {
            self.register().await?;
            self.0.registered.store(true, Ordering::SeqCst);
        }
        let noted = services.into_iter().map(|service| start(startup.note(service)));
        let mut services: Vec<Running> = noted.collect();
        for service in &mut services {
            service.started().await;
        }
        startup.running();
        Ok(RunningMainstay { startup, services })
    }

    async fn register(&self) -> Result<()> {
        for definition in &self.0.definitions {
            self.when_up(|| async { self.jobs().create_or_update(definition.clone()).await.map(drop) })
                .await?;
        }
        for registration in &self.0.fanouts {
            self.when_up(|| registration.make(self.fanout())).await?;
        }
        Ok(())
    }

    /// The schema was deployed: the tables may be new and empty, so the next start registers everything.
    pub(crate) fn register_anew(&self) {
        self.0.registered.store(false, Ordering::SeqCst);
    }

    /// Starts, runs until `shutdown` completes, and stops gracefully.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) -> Result<()> {
        tokio::pin!(shutdown);
        let mut running = tokio::select! {
            () = &mut shutdown => return Ok(()),
            started = self.start() => started?,
        };
        tokio::select! {
            () = &mut shutdown => running.stop().await,
            broken = running.broken() => broken.and(running.stop().await),
        }
    }

    async fn ready_schema(&self) -> Result<()> {
        let schema = self.0.provider.schema();
        if !self.0.deploy_schema {
            return schema.require().await;
        }
        if !schema.status().await?.is_usable() {
            self.register_anew();
        }
        schema.deploy().await.map(drop)
    }

    /// Does it once the database is up.
    async fn when_up<Fut: Future<Output = Result<()>>>(&self, work: impl Fn() -> Fut) -> Result<()> {
        loop {
            match work().await {
                Err(error) if error.is_retryable() => {
                    telemetry::retrying(self.outbox().store().identifier(), "start", &error, START_RETRY);
                    tokio::time::sleep(START_RETRY).await;
                }
                other => return other,
            }
        }
    }
}

impl fmt::Debug for Mainstay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let services: Vec<_> = self.services().map(|service| service.name()).collect();
        f.debug_struct("Mainstay").field("outbox", &self.0.outbox).field("services", &services).finish()
    }
}

/// Mainstay with its background work running. Dropping it ends the work at once, as a crash would: claims then lapse.
#[derive(Debug)]
#[must_use = "dropping it ends the background work"]
pub struct RunningMainstay {
    /// Dropped before the services, whose ends are then nothing to note.
    startup: StartupGuard,
    services: Vec<Running>,
}

impl RunningMainstay {
    /// Stops gracefully: no new claims, running handlers get their grace period, the rest is released at once (R12).
    pub async fn stop(self) -> Result<()> {
        self.startup.stopping();
        for service in &self.services {
            service.request_stop();
        }
        let mut result = Ok(());
        for service in self.services {
            result = result.and(service.stop().await);
        }
        result
    }

    /// Finishes what is in hand, however long that takes, and begins nothing new. Once `hurry` completes, running handlers get their
    /// grace period, as in [`Self::stop`].
    pub async fn finish(self, hurry: impl Future<Output = ()>) -> Result<()> {
        self.startup.stopping();
        for service in &self.services {
            service.request_finish();
        }
        let tokens: Vec<_> = self.services.iter().map(|service| service.hurry().clone()).collect();
        let ended = async {
            let mut result = Ok(());
            for mut service in self.services {
                result = result.and(service.ended().await);
            }
            result
        };
        tokio::pin!(ended, hurry);
        tokio::select! {
            result = &mut ended => return result,
            () = hurry => {}
        }
        for token in tokens {
            token.cancel();
        }
        ended.await
    }

    /// Completes only when a service ends by itself, which it never should.
    async fn broken(&mut self) -> Result<()> {
        if self.services.is_empty() {
            return std::future::pending().await;
        }
        let ends = self.services.iter_mut().map(|service| Box::pin(service.ended()));
        let (result, index, _) = select_all(ends).await;
        // It has ended; the others are still to be stopped.
        drop(self.services.remove(index));
        result
    }
}
