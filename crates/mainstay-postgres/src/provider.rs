//! A PostgreSQL database as a whole.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::Result;
use mainstay_core::store::{
    Agenda, Allowance, AuditStore, Capabilities, DiagnosisStore, FanoutStore, HealthStore, InboxStore,
    JobStore, JoinStore, LeaseStore, Names, OperationStore, OutboxStore, Provider, Queue, SchemaStore,
    TimerStore,
};
use tokio_util::sync::CancellationToken;

use crate::agenda::PostgresAgenda;
use crate::audit::PostgresAudit;
use crate::diagnosis::PostgresDiagnosis;
use crate::error::PoolLimits;
use crate::fanout::PostgresFanout;
use crate::health::PostgresHealth;
use crate::inbox::PostgresInbox;
use crate::jobs::PostgresJobs;
use crate::joins::PostgresJoins;
use crate::lease::PostgresLeases;
use crate::listener::Listener;
use crate::moment::Moment;
use crate::operations::PostgresOperations;
use crate::options::PostgresBuilder;
use crate::pool::{Connections, Connector};
use crate::queue::PostgresQueue;
use crate::rows;
use crate::schema::PostgresSchema;
use crate::statements::{JobStatements, QueueStatements};
use crate::timer::PostgresTimers;
use crate::tls;
use crate::url::Target;
use crate::waiting::Waiting;

/// What connections of a fleet are called on the server, unless the URL says otherwise.
pub(crate) const FLEET: &str = "mainstay fleet";

/// The default time limit on making a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The default time limit of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A PostgreSQL database with Mainstay's tables in it. Cheap to clone.
#[derive(Clone)]
pub struct Postgres {
    shared: Arc<Shared>,
}

struct Shared {
    names: Names,
    identifier: String,
    connections: Connections,
    /// In the order of [`Queue::ALL`].
    queues: [Arc<PostgresQueue>; 4],
    inbox: Arc<PostgresInbox>,
    leases: Arc<PostgresLeases>,
    timers: Arc<PostgresTimers>,
    jobs: Arc<PostgresJobs>,
    joins: Arc<PostgresJoins>,
    fanout: Arc<PostgresFanout>,
    audit: Arc<PostgresAudit>,
    operations: Arc<PostgresOperations>,
    schema: Arc<PostgresSchema>,
    health: Arc<PostgresHealth>,
    diagnosis: Arc<PostgresDiagnosis>,
    agenda: PostgresAgenda,
    listener: Option<Arc<Listener>>,
    closed: CancellationToken,
}

/// What makes the connections that these settings tell of, and where to.
pub(crate) fn connector(
    options: &PostgresBuilder,
    name: &str,
    allowance: Allowance,
) -> Result<(Target, Connector)> {
    let mut target = Target::parse(&options.url)?;
    if target.config.get_application_name().is_none() {
        target.config.application_name(name);
    }
    let roots = options.roots.as_ref().or(target.roots.as_ref());
    let (mode, tls) = tls::connector(target.tls_mode, roots)?;
    let in_url = target.config.get_connect_timeout().copied();
    let connect = options.connect_timeout.or(in_url).unwrap_or(CONNECT_TIMEOUT);
    let connector = Connector::new(&target, mode.driver_mode(), tls, connect, allowance);
    Ok((target, connector))
}

impl Postgres {
    /// The database of this URL: `postgres://user:password@host:port/database`, with libpq's parameters and several
    /// hosts if wanted. Checks the URL; connections are made when first needed, so the server need not be up yet.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// The same with settings.
    pub fn builder(url: &str) -> PostgresBuilder {
        PostgresBuilder::new(url)
    }

    pub(crate) fn new(options: PostgresBuilder) -> Result<Self> {
        options.validate()?;
        let name = if options.gate.is_some() { FLEET } else { "mainstay" };
        let (target, connector) = connector(&options, name, Allowance::new(options.gate.clone()))?;
        let connect = connector.timeout();
        let call = options.call_timeout.or(target.call_timeout).unwrap_or(CALL_TIMEOUT);
        let acquire = options.acquire_timeout;
        let limits = PoolLimits { address: target.address(), connect, acquire, call };
        let connections =
            Connections::new(connector.clone(), options.pool_size, options.prepared_statements, limits)?;

        let names = options.names;
        let database = format!("{}/{}", target.address(), target.database());
        let identifier = format!("{database}/{}", names.schema());
        let closed = CancellationToken::new();
        let outbox = QueueStatements::shared(&names.of(Queue::Outbox))?;
        let listener = options.listen.then(|| {
            Arc::new(Listener::new(
                connector,
                connections.clone(),
                outbox.probe.clone(),
                identifier.clone(),
                closed.child_token(),
            ))
        });
        let queue = |queue: Queue| -> Result<Arc<PostgresQueue>> {
            let names = names.of(queue);
            let statements = match queue {
                Queue::Outbox => Arc::clone(&outbox),
                Queue::Inbox | Queue::Timers | Queue::JobRuns => QueueStatements::shared(&names)?,
            };
            let waiting = Waiting::new(
                connections.clone(),
                Arc::clone(&statements),
                queue,
                listener.clone(),
                closed.child_token(),
            );
            let identifier = format!("{identifier}.{}", names.queue());
            let (connections, outbox) = (connections.clone(), Arc::clone(&outbox));
            let keep = options.keep_done_payloads;
            Ok(Arc::new(PostgresQueue::new(identifier, connections, statements, outbox, keep, waiting)))
        };
        let [first, second, third, fourth] = Queue::ALL;
        let queues = [queue(first)?, queue(second)?, queue(third)?, queue(fourth)?];
        let jobs = {
            let names = names.of(Queue::JobRuns);
            let statements = JobStatements::shared(&names)?;
            let waiting = Waiting::new(
                connections.clone(),
                statements.waiting(&names)?,
                Queue::JobRuns,
                listener.clone(),
                closed.child_token(),
            );
            let identifier = format!("{identifier}.{}", names.jobs());
            let keep = options.keep_done_payloads;
            Arc::new(PostgresJobs::new(identifier, connections.clone(), statements, keep, waiting))
        };
        let inbox = Arc::new(PostgresInbox::new(connections.clone(), &names)?);
        let joins = Arc::new(PostgresJoins::new(connections.clone(), &names)?);
        let leases = Arc::new(PostgresLeases::new(connections.clone(), &names)?);
        let timers = Arc::new(PostgresTimers::new(connections.clone(), &names)?);
        let fanout =
            PostgresFanout::new(connections.clone(), &names, listener.clone(), closed.child_token())?;
        let fanout = Arc::new(fanout);
        let audit = Arc::new(PostgresAudit::new(connections.clone(), &names)?);
        let operations = Arc::new(PostgresOperations::new(connections.clone(), &names)?);
        let schema = Arc::new(PostgresSchema::new(connections.clone(), names.clone())?);
        let health = Arc::new(PostgresHealth::new(connections.clone(), &names)?);
        let diagnosis = PostgresDiagnosis::new(connections.clone(), &names, listener.clone())?;
        let agenda = PostgresAgenda::new(connections.clone(), &names)?;
        let shared = Shared {
            names,
            identifier,
            connections,
            queues,
            inbox,
            leases,
            timers,
            jobs,
            joins,
            fanout,
            schema,
            health,
            diagnosis: Arc::new(diagnosis),
            agenda,
            listener,
            audit,
            operations,
            closed,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The names of schema and tables.
    pub fn names(&self) -> &Names {
        &self.shared.names
    }

    /// The pool of connections, for the application's own statements. Leave no session state on them: they are shared,
    /// and may be sessions of a pooler.
    pub fn pool(&self) -> &deadpool_postgres::Pool {
        self.shared.connections.pool()
    }

    pub(crate) fn connections(&self) -> &Connections {
        &self.shared.connections
    }

    /// The script that gives `role` what an application needs and no more. To be run by the owner of the schema.
    pub fn grants_script(&self, role: &str) -> String {
        crate::schema::grants_script(&self.shared.names, role)
    }
}

pub(crate) fn capabilities() -> Capabilities {
    let mut capabilities = Capabilities::none();
    capabilities.own_clock = true;
    capabilities.roles = true;
    capabilities.shared = true;
    capabilities.functions = true;
    capabilities
}

#[async_trait]
impl Provider for Postgres {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn queue(&self, queue: Queue) -> Arc<dyn OutboxStore> {
        Arc::clone(&self.shared.queues[queue as usize]) as Arc<dyn OutboxStore>
    }

    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::clone(&self.shared.inbox) as Arc<dyn InboxStore>
    }

    fn leases(&self) -> Arc<dyn LeaseStore> {
        Arc::clone(&self.shared.leases) as Arc<dyn LeaseStore>
    }

    fn timers(&self) -> Arc<dyn TimerStore> {
        Arc::clone(&self.shared.timers) as Arc<dyn TimerStore>
    }

    fn jobs(&self) -> Arc<dyn JobStore> {
        Arc::clone(&self.shared.jobs) as Arc<dyn JobStore>
    }

    fn joins(&self) -> Arc<dyn JoinStore> {
        Arc::clone(&self.shared.joins) as Arc<dyn JoinStore>
    }

    fn fanout(&self) -> Arc<dyn FanoutStore> {
        Arc::clone(&self.shared.fanout) as Arc<dyn FanoutStore>
    }

    fn audit(&self) -> Arc<dyn AuditStore> {
        Arc::clone(&self.shared.audit) as Arc<dyn AuditStore>
    }

    fn operations(&self) -> Arc<dyn OperationStore> {
        Arc::clone(&self.shared.operations) as Arc<dyn OperationStore>
    }

    fn health(&self) -> Arc<dyn HealthStore> {
        Arc::clone(&self.shared.health) as Arc<dyn HealthStore>
    }

    fn diagnosis(&self) -> Option<Arc<dyn DiagnosisStore>> {
        Some(Arc::clone(&self.shared.diagnosis) as Arc<dyn DiagnosisStore>)
    }

    fn schema(&self) -> Arc<dyn SchemaStore> {
        Arc::clone(&self.shared.schema) as Arc<dyn SchemaStore>
    }

    async fn now(&self) -> Result<Timestamp> {
        const NOW: &str = "postgres.now";
        let rows = self.shared.connections.query(NOW, "select statement_timestamp()", &[]).await?;
        Ok(rows::value::<Moment>(NOW, &rows)?.0)
    }

    async fn agenda(&self) -> Result<Agenda> {
        self.shared.agenda.look().await
    }

    async fn allow_connections(&self, connections: usize) {
        let Shared { connections: pool, listener, .. } = &*self.shared;
        if !pool.is_gated() {
            return;
        }
        match listener {
            // Only at work. Where there are fewer, all are for calls and looks.
            Some(listener) if connections > pool.max_size() => {
                listener.resume();
                pool.allow(connections - 1);
            }
            Some(listener) => {
                pool.allow(connections);
                listener.pause().await;
            }
            None => pool.allow(connections),
        }
        pool.at_most(connections).await;
    }

    fn open_connections(&self) -> usize {
        match self.shared.connections.is_gated() {
            true => self.shared.connections.open(),
            false => 0,
        }
    }

    async fn sever_connections(&self) {
        if self.shared.connections.is_gated() {
            self.shared.connections.sever();
            self.allow_connections(0).await;
        }
    }

    async fn close(&self) {
        self.shared.closed.cancel();
        self.shared.connections.close();
        for queue in &self.shared.queues {
            queue.close().await;
        }
        self.shared.connections.wait_for_closing().await;
    }
}

/// No URL: it may hold a password.
impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").field("identifier", &self.shared.identifier).finish_non_exhaustive()
    }
}
