//! A database as the application sees it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::Result;
use mainstay_core::store::{
    Agenda, AuditStore, Capabilities, DiagnosisStore, FanoutStore, HealthStore, InboxStore, JobStore,
    JoinStore, LeaseStore, Names, OperationStore, OutboxStore, Provider, Queue, SchemaStore, TimerStore,
};

use crate::agenda::SqliteAgenda;
use crate::audit::SqliteAudit;
use crate::database::Database;
use crate::diagnosis::SqliteDiagnosis;
use crate::fanout::SqliteFanout;
use crate::health::SqliteHealth;
use crate::inbox::SqliteInbox;
use crate::jobs::SqliteJobs;
use crate::joins::SqliteJoins;
use crate::lease::SqliteLeases;
use crate::operations::SqliteOperations;
use crate::options::SqliteBuilder;
use crate::queue::SqliteQueue;
use crate::schema::SqliteSchema;
use crate::timer::SqliteTimers;
use crate::value::moment;

/// An SQLite database with Mainstay's tables in it. Cheap to clone; the last clone to go closes it.
#[derive(Clone)]
pub struct Sqlite {
    database: Arc<Database>,
    /// In the order of [`Queue::ALL`].
    queues: [Arc<SqliteQueue>; 4],
    inbox: Arc<SqliteInbox>,
    jobs: Arc<SqliteJobs>,
    joins: Arc<SqliteJoins>,
    agenda: Arc<SqliteAgenda>,
}

impl Sqlite {
    pub(crate) fn new(database: Database) -> Self {
        let outbox = Arc::new(database.of(Queue::Outbox));
        let queues = Queue::ALL
            .map(|queue| Arc::new(SqliteQueue::new(Arc::new(database.of(queue)), Arc::clone(&outbox))));
        let inbox = SqliteInbox::new(Arc::new(database.of(Queue::Inbox)), &database.names);
        let jobs = Arc::new(SqliteJobs::new(&database));
        let joins = Arc::new(SqliteJoins::new(outbox, &database.names));
        let agenda =
            Arc::new(SqliteAgenda::new(&database, jobs.statements().clone(), joins.statements().clone()));
        Self { database: Arc::new(database), queues, inbox: Arc::new(inbox), jobs, joins, agenda }
    }

    /// Opens a file, and creates it if there is none. Creates no table.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::builder(path).open().await
    }

    /// A database in memory, for tests. It belongs to this value and its clones, and is gone with the last of them.
    pub async fn memory() -> Result<Self> {
        Self::memory_builder().open().await
    }

    /// Opens a file with other settings than the default ones.
    pub fn builder(path: impl Into<PathBuf>) -> SqliteBuilder {
        SqliteBuilder::new(Some(path.into()))
    }

    /// Opens a database in memory with other settings than the default ones.
    pub fn memory_builder() -> SqliteBuilder {
        SqliteBuilder::new(None)
    }

    /// The same open database with the tables of other names: another set of queues beside this one, over the same connections.
    pub fn with_names(&self, names: Names) -> Self {
        Self::new(self.database.with_names(names))
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// Transactions committed by this value so far. Operations that come together share one, so there are fewer of
    /// these than of operations.
    pub fn commits(&self) -> u64 {
        self.database.link.commits.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Provider for Sqlite {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn capabilities(&self) -> Capabilities {
        self.database.capabilities()
    }

    fn queue(&self, queue: Queue) -> Arc<dyn OutboxStore> {
        Arc::clone(&self.queues[queue as usize]) as Arc<dyn OutboxStore>
    }

    fn leases(&self) -> Arc<dyn LeaseStore> {
        Arc::new(SqliteLeases::new(Arc::clone(&self.database)))
    }

    fn audit(&self) -> Arc<dyn AuditStore> {
        Arc::new(SqliteAudit::new(Arc::clone(&self.database)))
    }

    fn operations(&self) -> Arc<dyn OperationStore> {
        Arc::new(SqliteOperations::new(Arc::clone(&self.database)))
    }

    fn timers(&self) -> Arc<dyn TimerStore> {
        Arc::new(SqliteTimers::new(Arc::clone(&self.database)))
    }

    fn jobs(&self) -> Arc<dyn JobStore> {
        Arc::clone(&self.jobs) as Arc<dyn JobStore>
    }

    fn joins(&self) -> Arc<dyn JoinStore> {
        Arc::clone(&self.joins) as Arc<dyn JoinStore>
    }

    fn fanout(&self) -> Arc<dyn FanoutStore> {
        Arc::new(SqliteFanout::new(Arc::clone(&self.database)))
    }

    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::clone(&self.inbox) as Arc<dyn InboxStore>
    }

    fn health(&self) -> Arc<dyn HealthStore> {
        Arc::new(SqliteHealth::new(Arc::clone(&self.database)))
    }

    fn diagnosis(&self) -> Option<Arc<dyn DiagnosisStore>> {
        Some(Arc::new(SqliteDiagnosis::new(Arc::clone(&self.database))))
    }

    fn schema(&self) -> Arc<dyn SchemaStore> {
        Arc::new(SqliteSchema::new(Arc::clone(&self.database)))
    }

    async fn now(&self) -> Result<Timestamp> {
        let now = self.database.read("sqlite.now", |connection, sql| {
            Ok(connection.prepare_cached(&sql.alive)?.query_row([], |row| row.get(0))?)
        });
        now.await.map(moment)
    }

    async fn agenda(&self) -> Result<Agenda> {
        self.agenda.look().await
    }

    async fn allow_connections(&self, connections: usize) {
        let Some(gate) = &self.database.link.gate else { return };
        gate.allow(connections);
        if connections == 0 {
            self.database.link.rest().await;
        }
        self.database.location.at_most(connections).await;
    }

    fn open_connections(&self) -> usize {
        match self.database.link.gate {
            Some(_) => self.database.location.open(),
            None => 0,
        }
    }

    async fn close(&self) {
        self.database.link.close().await;
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("identifier", &self.database.identifier).finish_non_exhaustive()
    }
}
