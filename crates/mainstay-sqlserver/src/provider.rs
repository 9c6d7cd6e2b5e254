//! A SQL Server database as a whole.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::Result;
use mainstay_core::store::{
    Agenda, Allowance, AuditStore, Capabilities, DiagnosisStore, FanoutStore, HealthStore, InboxStore,
    JobStore, JoinStore, LeaseStore, Names, OperationStore, OutboxStore, Provider, Queue, SchemaStore, Step,
    TimerStore,
};
use tokio_util::sync::CancellationToken;

use crate::agenda::SqlServerAgenda;
use crate::audit::SqlServerAudit;
use crate::diagnosis::SqlServerDiagnosis;
use crate::fanout::SqlServerFanout;
use crate::health::SqlServerHealth;
use crate::inbox::SqlServerInbox;
use crate::jobs::SqlServerJobs;
use crate::joins::SqlServerJoins;
use crate::lease::SqlServerLeases;
use crate::operations::SqlServerOperations;
use crate::options::SqlServerBuilder;
use crate::parameters::{Call, named};
use crate::pool::{Connections, PoolOptions};
use crate::procedures::QueueProcedures;
use crate::queue::SqlServerQueue;
use crate::rows;
use crate::schema::{SqlServerSchema, local};
use crate::timer::SqlServerTimers;
use crate::url::Target;
use crate::waiting::{Signals, Waiting};

/// The default time limit on making a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The default time limit of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A SQL Server database with Mainstay's tables in it. Cheap to clone.
#[derive(Clone)]
pub struct SqlServer {
    shared: Arc<Shared>,
}

struct Shared {
    names: Names,
    identifier: String,
    connections: Connections,
    /// In the order of [`Queue::ALL`].
    queues: [Arc<SqlServerQueue>; 4],
    inbox: Arc<SqlServerInbox>,
    timers: Arc<SqlServerTimers>,
    jobs: Arc<SqlServerJobs>,
    joins: Arc<SqlServerJoins>,
    fanout: Arc<SqlServerFanout>,
    health: Arc<SqlServerHealth>,
    diagnosis: Arc<SqlServerDiagnosis>,
    agenda: SqlServerAgenda,
    leases: Arc<SqlServerLeases>,
    audit: Arc<SqlServerAudit>,
    operations: Arc<SqlServerOperations>,
    schema: Arc<SqlServerSchema>,
    closed: CancellationToken,
}

impl SqlServer {
    /// The database of this connection string: `mssql://user:password@host:port/database` or
    /// `Server=host,port;Database=…;User Id=…;Password=…`. Checks it; connections are made when first needed, so the server need not be up
    /// yet.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// The same with settings.
    pub fn builder(url: &str) -> SqlServerBuilder {
        SqlServerBuilder::new(url)
    }

    /// Whether a text is a connection string of SQL Server, in one of the forms that [`Self::connect`] takes. What is wrong with it is told there.
    pub fn is_connection_string(text: &str) -> bool {
        Target::is_meant(text)
    }

    /// Where a connection string points to, as it may be shown: `mssql://user@host:port/database`.
    pub fn location(text: &str) -> Result<String> {
        Ok(Target::parse(text)?.shown())
    }

    pub(crate) fn new(options: SqlServerBuilder) -> Result<Self> {
        options.validate()?;
        let mut target = Target::parse(&options.url)?;
        if let Some(trust) = options.trust {
            target.trust = trust;
        }
        if options.login.is_some() {
            target.login = options.login;
        }
        let pool = PoolOptions {
            size: options.pool_size.or(target.pool_size).unwrap_or(8),
            connect: options.connect_timeout.or(target.connect_timeout).unwrap_or(CONNECT_TIMEOUT),
            acquire: options.acquire_timeout,
            call: options.call_timeout.or(target.call_timeout).unwrap_or(CALL_TIMEOUT),
            runtime: options.runtime,
        };
        let home = target.database.clone();
        let connections = Connections::new(target, pool, Allowance::new(options.gate));
        let names = local(&options.names)?;
        let identifier = format!("{}/{}", connections.store(), names.schema());
        let (closed, signals) = (CancellationToken::new(), Signals::new());
        let outbox = Arc::new(QueueProcedures::new(&names.of(Queue::Outbox)));
        let queues = Queue::ALL.map(|queue| {
            let names = names.of(queue);
            let procedures = Arc::new(QueueProcedures::new(&names));
            let waiting = Waiting::new(
                connections.clone(),
                Arc::clone(&procedures),
                signals.clone(),
                closed.child_token(),
            );
            let identifier = format!("{identifier}.{}", names.queue());
            let (keep, outbox) = (options.keep_done_payloads, Arc::clone(&outbox));
            Arc::new(SqlServerQueue::new(identifier, connections.clone(), procedures, outbox, keep, waiting))
        });
        let inbox = Arc::new(SqlServerInbox::new(connections.clone(), &names, signals.clone()));
        let timers = Arc::new(SqlServerTimers::new(connections.clone(), &names, signals.clone()));
        let waiting = Waiting::new(
            connections.clone(),
            Arc::new(QueueProcedures::new(&names.of(Queue::JobRuns))),
            signals.clone(),
            closed.child_token(),
        );
        let look = Call::new(&named(&names, &names.jobs(), "NextDue")).step();
        let (keep, waiting) = (options.keep_done_payloads, waiting.looking_with(look));
        let jobs = Arc::new(SqlServerJobs::new(connections.clone(), &names, keep, waiting));
        let joins = Arc::new(SqlServerJoins::new(connections.clone(), &names, signals.clone()));
        let fanout = SqlServerFanout::new(connections.clone(), &names, signals.clone(), closed.child_token());
        let fanout = Arc::new(fanout);
        let health = Arc::new(SqlServerHealth::new(connections.clone(), &names));
        let diagnosis = Arc::new(SqlServerDiagnosis::new(connections.clone(), &names));
        let agenda = SqlServerAgenda::new(connections.clone(), &names);
        let leases = Arc::new(SqlServerLeases::new(connections.clone(), &names, home));
        let audit = Arc::new(SqlServerAudit::new(connections.clone(), &names));
        let operations = Arc::new(SqlServerOperations::new(connections.clone(), &names));
        let schema = Arc::new(SqlServerSchema::new(connections.clone(), names.clone())?);
        let shared = Shared {
            names,
            identifier,
            connections,
            queues,
            inbox,
            timers,
            jobs,
            joins,
            fanout,
            health,
            diagnosis,
            agenda,
            leases,
            audit,
            operations,
            schema,
            closed,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The names of schema and tables, as the database has them.
    pub fn names(&self) -> &Names {
        &self.shared.names
    }

    /// How often this value has asked the server something so far: round trips.
    pub fn round_trips(&self) -> u64 {
        self.shared.connections.visits()
    }

    pub(crate) fn connections(&self) -> &Connections {
        &self.shared.connections
    }

    /// A client of the driver's own with a connection to the same database, for the application's statements and transactions.
    pub async fn client(&self) -> Result<crate::Client> {
        Ok(self.shared.connections.open_one("sqlserver.client").await?.into_client())
    }

    /// The script that gives `user` what an application needs and no more. To be run by the owner of the schema.
    pub fn grants_script(&self, user: &str) -> String {
        crate::schema::grants_script(&self.shared.names, user)
    }
}

pub(crate) fn capabilities() -> Capabilities {
    let mut capabilities = Capabilities::none();
    capabilities.functions = true;
    capabilities.own_clock = true;
    capabilities.roles = true;
    capabilities.shared = true;
    capabilities
}

#[async_trait]
impl Provider for SqlServer {
    fn kind(&self) -> &'static str {
        "sqlserver"
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn queue(&self, queue: Queue) -> Arc<dyn OutboxStore> {
        Arc::clone(&self.shared.queues[queue as usize]) as Arc<dyn OutboxStore>
    }

    fn leases(&self) -> Arc<dyn LeaseStore> {
        Arc::clone(&self.shared.leases) as Arc<dyn LeaseStore>
    }

    fn audit(&self) -> Arc<dyn AuditStore> {
        Arc::clone(&self.shared.audit) as Arc<dyn AuditStore>
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

    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::clone(&self.shared.inbox) as Arc<dyn InboxStore>
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
        const NOW: &str = "sqlserver.now";
        let step = Step { sql: "SELECT SYSUTCDATETIME() AS now".into(), arguments: Vec::new() };
        rows::only(NOW, &self.shared.connections.run(NOW, &step).await?)?.moment("now")
    }

    async fn agenda(&self) -> Result<Agenda> {
        self.shared.agenda.look().await
    }

    async fn allow_connections(&self, connections: usize) {
        if self.shared.connections.is_gated() {
            self.shared.connections.allow(connections);
            self.shared.connections.at_most(connections).await;
        }
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
            self.shared.connections.at_most(0).await;
        }
    }

    async fn close(&self) {
        self.shared.closed.cancel();
        self.shared.connections.close();
    }
}

/// No connection string: it may hold a password.
impl std::fmt::Debug for SqlServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlServer").field("identifier", &self.shared.identifier).finish_non_exhaustive()
    }
}
