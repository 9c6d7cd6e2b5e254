//! What a doctor looks at: catalogues and statistics of the server, the way notifications take, and whose sessions are.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::health::{
    IndexSeen, OpenTransaction, RightsSeen, RunsSeen, SEEN_AT_MOST, SessionsSeen, StorageSeen, TableSeen,
    TransactionsSeen,
};
use mainstay_core::outbox::TopicStats;
use mainstay_core::store::{DiagnosisStore, Names, Queue};
use mainstay_core::{Error, ErrorKind, Result};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::error::from_driver;
use crate::listener::Listener;
use crate::pool::{Connections, Parameter};
use crate::rows::{self, Reader};
use crate::schema::{function_names, relation_names};
use crate::statements::{DiagnosisStatements, QueueStatements};

/// A notification that takes longer does not come.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

/// How often it is tried whether sessions are shared, before they are taken not to be.
const SESSION_TRIALS: usize = 5;

const SESSIONS: &str = "diagnosis.sessions";

/// Looks at what surrounds the work in a PostgreSQL database.
pub(crate) struct PostgresDiagnosis {
    connections: Connections,
    names: Names,
    statements: Arc<DiagnosisStatements>,
    listener: Option<Arc<Listener>>,
}

impl PostgresDiagnosis {
    pub(crate) fn new(
        connections: Connections,
        names: &Names,
        listener: Option<Arc<Listener>>,
    ) -> Result<Self> {
        Ok(Self {
            connections,
            names: names.clone(),
            statements: DiagnosisStatements::shared(names)?,
            listener,
        })
    }

    /// The tables that hold work and its history. Without the few rows of set-up.
    fn tables(&self) -> Vec<String> {
        relation_names(&self.names, &["table"])
    }
}

#[async_trait]
impl DiagnosisStore for PostgresDiagnosis {
    async fn rights(&self) -> Result<RightsSeen> {
        const RIGHTS: &str = "diagnosis.rights";
        let (tables, views) = (self.tables(), relation_names(&self.names, &["view"]));
        let functions = function_names(&self.names);
        let parameters: [Parameter<'_>; 3] =
            [(&tables, Type::TEXT_ARRAY), (&views, Type::TEXT_ARRAY), (&functions, Type::TEXT_ARRAY)];
        let rows = self.connections.look(RIGHTS, &self.statements.rights, &parameters).await?;
        let mut seen = RightsSeen::default();
        if let Some(row) = rows.first() {
            let row = Reader::new(RIGHTS, row);
            (seen.user, seen.missing) = (row.get(0)?, row.get(1)?);
        }
        Ok(seen)
    }

    /// Two connections ask for their sessions. The second holds on to the one it got, so where the first had only borrowed one, either the
    /// second has got that, or the first gets another; unless somebody else took it just then, so it is tried a few times.
    async fn sessions(&self) -> Result<Option<SessionsSeen>> {
        let first = self.connections.lease(SESSIONS).await?;
        let second = self.connections.lease(SESSIONS).await?;
        let (asking, holding) = (first.client()?, second.client()?);
        let seen = async {
            for _ in 0..SESSION_TRIALS {
                let before = session(asking).await?;
                run(holding, "begin read only").await?;
                let held = session(holding).await?;
                let after = session(asking).await?;
                run(holding, "rollback").await?;
                if before == held || before != after {
                    return Ok(SessionsSeen::Shared);
                }
            }
            Ok(SessionsSeen::Own)
        };
        let seen = first.bounded(SESSIONS, seen).await?;
        first.give_back();
        second.give_back();
        Ok(Some(seen))
    }

    async fn transactions(&self) -> Result<Option<TransactionsSeen>> {
        const TRANSACTIONS: &str = "diagnosis.transactions";
        let rows = self.connections.look(TRANSACTIONS, &self.statements.transactions, &[]).await?;
        let mut seen = TransactionsSeen::default();
        for row in &rows {
            let row = Reader::new(TRANSACTIONS, row);
            let age = row.get::<Option<f64>>(0)?.and_then(rows::seconds).unwrap_or_default();
            seen.oldest.push(OpenTransaction::new(age, row.get::<String>(1)?));
            seen.partly = row.get(2)?;
        }
        Ok(Some(seen))
    }

    async fn storage(&self) -> Result<StorageSeen> {
        const STORAGE: &str = "diagnosis.storage";
        let names = self.tables();
        let parameters: [Parameter<'_>; 1] = [(&names, Type::TEXT_ARRAY)];
        let tables = self.connections.look(STORAGE, &self.statements.tables, &parameters).await?;
        let indexes = self.connections.look(STORAGE, &self.statements.indexes, &parameters).await?;
        let mut seen = StorageSeen::default();
        for row in &tables {
            let row = Reader::new(STORAGE, row);
            let mut table = TableSeen::default();
            (table.name, table.live, table.dead) = (row.get(0)?, row.count(1)?, row.count(2)?);
            table.bytes = row.count(3)?;
            table.vacuumed = row.get::<Option<f64>>(4)?.and_then(rows::seconds);
            seen.bytes += table.bytes;
            seen.tables.push(table);
        }
        for row in &indexes {
            let row = Reader::new(STORAGE, row);
            let mut index = IndexSeen::default();
            (index.name, index.valid, index.scans) = (row.get(0)?, row.get(1)?, row.count(2)?);
            (index.bytes, index.table_bytes) = (row.count(3)?, row.count(4)?);
            seen.bytes += index.bytes;
            seen.indexes.push(index);
        }
        Ok(seen)
    }

    async fn notifications(&self) -> Result<Option<Option<Duration>>> {
        match &self.listener {
            Some(listener) => listener.try_out(HEARD_WITHIN).await.map(Some),
            None => Ok(None),
        }
    }

    async fn topics(&self, queue: Queue) -> Result<Vec<TopicStats>> {
        const TOPICS: &str = "diagnosis.topics";
        let statements = QueueStatements::shared(&self.names.of(queue))?;
        let rows = self.connections.query(TOPICS, &statements.stats_by_topic, &[]).await?;
        rows::topics(TOPICS, &rows)
    }

    async fn runs(&self, within: Duration, late: Duration) -> Result<RunsSeen> {
        const RUNS: &str = "diagnosis.runs";
        let (within, late, most) = (within.as_secs_f64(), late.as_secs_f64(), SEEN_AT_MOST as i64);
        let parameters: [Parameter<'_>; 3] =
            [(&within, Type::FLOAT8), (&late, Type::FLOAT8), (&most, Type::INT8)];
        let rows = self.connections.look(RUNS, &self.statements.runs, &parameters).await?;
        let mut seen = RunsSeen::default();
        let Some(row) = rows.first() else { return Ok(seen) };
        let row = Reader::new(RUNS, row);
        (seen.runs, seen.late) = (row.count(0)?, row.count(1)?);
        (seen.skipped, seen.failed) = (row.count(2)?, row.count(3)?);
        seen.latest = row.get::<Option<f64>>(4)?.and_then(rows::seconds);
        seen.latest_job = row.get(5)?;
        Ok(seen)
    }
}

/// The server's process that is behind a connection for the moment.
async fn session(client: &Client) -> Result<i32> {
    let rows = client.query_typed("select pg_backend_pid()", &[]).await;
    let rows = rows.map_err(|error| from_driver(SESSIONS, error))?;
    let nothing = || Error::new(ErrorKind::Internal, SESSIONS, "the database returned no row");
    Reader::new(SESSIONS, rows.first().ok_or_else(nothing)?).get(0)
}

async fn run(client: &Client, sql: &str) -> Result<()> {
    client.batch_execute(sql).await.map_err(|error| from_driver(SESSIONS, error))
}
