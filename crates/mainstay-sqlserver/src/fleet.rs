//! SQL Server databases of a fleet: how they are connected to, and how a control database tells of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::fleet::{Connect, ConnectTerms, DatabaseDiscovery, DatabaseEntry};
use mainstay_core::store::{Provider, Step};
use mainstay_core::{Error, ErrorKind, Result};

use crate::options::SqlServerBuilder;
use crate::provider::SqlServer;
use crate::rows::{Cell, Row};
use crate::url::Target;

const DISCOVER: &str = "sqlserver.discover";

/// Changes the settings of each database before it is connected to.
type Change = Arc<dyn Fn(&DatabaseEntry, SqlServerBuilder) -> SqlServerBuilder + Send + Sync>;

/// Connects the databases of a fleet whose targets are connection strings of SQL Server. Nothing tells it that one of them was written to: work that
/// others add is found by looking.
pub struct SqlServerConnector {
    change: Option<Change>,
}

impl SqlServerConnector {
    /// With the default settings, except that a database has 3 s to accept a connection: while nobody answers, a part of the budget is
    /// taken.
    pub fn new() -> Self {
        Self { change: None }
    }

    /// Changes the settings of each database: certificates, timeouts and so on. How many connections there are is the fleet's to say.
    #[must_use]
    pub fn with(
        mut self,
        change: impl Fn(&DatabaseEntry, SqlServerBuilder) -> SqlServerBuilder + Send + Sync + 'static,
    ) -> Self {
        self.change = Some(Arc::new(change));
        self
    }
}

impl Default for SqlServerConnector {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for SqlServerConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SqlServerConnector")
    }
}

#[async_trait]
impl Connect for SqlServerConnector {
    async fn connect(&self, entry: &DatabaseEntry, terms: ConnectTerms) -> Result<Arc<dyn Provider>> {
        let builder = SqlServer::builder(entry.target.expose())
            .names(entry.names.clone())
            .connect_timeout(Duration::from_secs(3));
        let builder = match &self.change {
            Some(change) => change(entry, builder),
            None => builder,
        };
        Ok(Arc::new(builder.pool_size(terms.connections.max(1)).gate(terms.gate).connect().await?))
    }

    fn server(&self, entry: &DatabaseEntry) -> Option<String> {
        Target::parse(entry.target.expose()).ok().map(|target| target.address())
    }
}

/// The databases that a query on a control database tells of.
pub struct SqlServerDiscovery {
    control: SqlServer,
    query: String,
}

impl SqlServerDiscovery {
    /// Asks `control` by this query each time. Its first column is the id, its second the connection string, both as text. Further ones are known by
    /// their names, see [`DatabaseEntry::set`]: `schema`, `outbox_table`, `options`; null is the default. A column of another name is refused.
    pub fn new(control: SqlServer, query: impl Into<String>) -> Self {
        Self { control, query: query.into() }
    }
}

impl std::fmt::Debug for SqlServerDiscovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlServerDiscovery").field("control", &self.control).finish_non_exhaustive()
    }
}

#[async_trait]
impl DatabaseDiscovery for SqlServerDiscovery {
    async fn discover(&self) -> Result<Vec<DatabaseEntry>> {
        let step = Step { sql: self.query.clone().into(), arguments: Vec::new() };
        self.control.connections().run(DISCOVER, &step).await?.iter().map(entry).collect()
    }
}

fn entry(row: &Row) -> Result<DatabaseEntry> {
    let mut columns = row.columns();
    let mut text = || match columns.next() {
        Some((_, Cell::Text(text))) => Ok(text.clone()),
        _ => {
            let message = "the query must give an id and a connection string as its first two columns, both text and not null";
            Err(unfit(message))
        }
    };
    let mut entry = DatabaseEntry::new(text()?, text()?);
    for (name, cell) in columns {
        let value = match cell {
            Cell::Text(text) => Some(text.as_str()),
            Cell::Null => None,
            _ => return Err(unfit(&format!("the query's column {name:?} must be text"))),
        };
        entry = entry
            .set(name, value)
            .map_err(|error| unfit(&format!("the query can't be used: {}", error.message())))?;
    }
    Ok(entry)
}

fn unfit(text: &str) -> Error {
    Error::new(ErrorKind::Config, DISCOVER, text)
}
