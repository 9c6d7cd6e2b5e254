//! PostgreSQL databases of a fleet: how they are connected to, and how a control database tells of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::fleet::{Connect, ConnectTerms, DatabaseDiscovery, DatabaseEntry, Watch};
use mainstay_core::store::Provider;
use mainstay_core::{Error, ErrorKind, Result};
use tokio_postgres::types::{FromSql, Type, accepts};

use crate::error::from_driver;
use crate::options::PostgresBuilder;
use crate::provider::Postgres;
use crate::url::Target;
use crate::watch::ServerWatch;

const DISCOVER: &str = "postgres.discover";

/// Changes the settings of each database before it is connected to.
pub(crate) type Change = Arc<dyn Fn(&DatabaseEntry, PostgresBuilder) -> PostgresBuilder + Send + Sync>;

/// Connects the databases of a fleet whose targets are URLs of PostgreSQL.
pub struct PostgresConnector {
    change: Option<Change>,
}

impl PostgresConnector {
    /// With the default settings, except that a database has 3 s to accept a connection: while nobody answers, a part of the budget is
    /// taken.
    pub fn new() -> Self {
        Self { change: None }
    }

    /// Changes the settings of each database: certificates, timeouts and so on. How many connections there are is the fleet's to say.
    #[must_use]
    pub fn with(
        mut self,
        change: impl Fn(&DatabaseEntry, PostgresBuilder) -> PostgresBuilder + Send + Sync + 'static,
    ) -> Self {
        self.change = Some(Arc::new(change));
        self
    }
}

impl Default for PostgresConnector {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for PostgresConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PostgresConnector")
    }
}

#[async_trait]
impl Connect for PostgresConnector {
    async fn connect(&self, entry: &DatabaseEntry, terms: ConnectTerms) -> Result<Arc<dyn Provider>> {
        let builder = builder(entry, self.change.as_ref());
        // One of them is for notifications.
        let pool = if builder.listen { terms.connections.saturating_sub(1) } else { terms.connections };
        Ok(Arc::new(builder.pool_size(pool.max(1)).gate(terms.gate).connect().await?))
    }

    fn server(&self, entry: &DatabaseEntry) -> Option<String> {
        Target::parse(entry.target.expose()).ok().map(|target| target.address())
    }

    fn watch(&self, entry: &DatabaseEntry) -> Option<Box<dyn Watch>> {
        let target = Target::parse(entry.target.expose()).ok()?;
        Some(Box::new(ServerWatch::new(&target, self.change.clone())))
    }
}

/// The settings of a database.
pub(crate) fn builder(entry: &DatabaseEntry, change: Option<&Change>) -> PostgresBuilder {
    let builder = Postgres::builder(entry.target.expose())
        .names(entry.names.clone())
        .connect_timeout(Duration::from_secs(3));
    match change {
        Some(change) => change(entry, builder),
        None => builder,
    }
}

/// The databases that a query on a control database tells of.
pub struct PostgresDiscovery {
    control: Postgres,
    query: String,
}

impl PostgresDiscovery {
    /// Asks `control` by this query each time. Its first column is the id, its second the URL, both as text. Further ones are known by
    /// their names, see [`DatabaseEntry::set`]: `schema`, `outbox_table`, `options` (text, json or jsonb); null is the default. A column of
    /// another name is refused.
    pub fn new(control: Postgres, query: impl Into<String>) -> Self {
        Self { control, query: query.into() }
    }
}

impl std::fmt::Debug for PostgresDiscovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresDiscovery").field("control", &self.control).finish_non_exhaustive()
    }
}

#[async_trait]
impl DatabaseDiscovery for PostgresDiscovery {
    async fn discover(&self) -> Result<Vec<DatabaseEntry>> {
        let lease = self.control.connections().lease(DISCOVER).await?;
        let client = lease.client()?;
        let rows = async {
            client.query_typed(&self.query, &[]).await.map_err(|error| from_driver(DISCOVER, error))
        };
        let rows = lease.bounded(DISCOVER, rows).await?;
        lease.give_back();
        rows.iter().map(entry).collect()
    }
}

fn entry(row: &tokio_postgres::Row) -> Result<DatabaseEntry> {
    let text = |column: usize| -> Result<String> {
        row.try_get(column).map_err(|_| {
            unfit("the query must give an id and a URL as its first two columns, both text and not null")
        })
    };
    let mut entry = DatabaseEntry::new(text(0)?, text(1)?);
    for (number, column) in row.columns().iter().enumerate().skip(2) {
        let value: Option<Said> = row.try_get(number).map_err(|_| {
            let (name, kind) = (column.name(), column.type_());
            unfit(&format!(
                "the query's column {name:?} must be text, or json or jsonb for options, got {kind}"
            ))
        })?;
        entry = entry
            .set(column.name(), value.as_ref().map(|said| said.0.as_str()))
            .map_err(|error| unfit(&format!("the query can't be used: {}", error.message())))?;
    }
    Ok(entry)
}

fn unfit(text: &str) -> Error {
    Error::new(ErrorKind::Config, DISCOVER, text)
}

/// A text, or JSON as a text.
struct Said(String);

impl<'a> FromSql<'a> for Said {
    fn from_sql(
        kind: &Type,
        raw: &'a [u8],
    ) -> std::result::Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        // The binary form of jsonb has the number of its version in front.
        let raw = if *kind == Type::JSONB { raw.get(1..).ok_or("too short")? } else { raw };
        Ok(Self(std::str::from_utf8(raw)?.to_owned()))
    }

    accepts!(TEXT, VARCHAR, BPCHAR, NAME, JSON, JSONB);
}
