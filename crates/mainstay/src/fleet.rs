//! One process over many databases, of whatever kind each of them is.

use std::sync::Arc;

use async_trait::async_trait;
use mainstay_core::store::Provider;
use mainstay_core::{Error, ErrorKind, Result};
#[cfg(feature = "postgres")]
use mainstay_postgres::PostgresConnector;
#[cfg(feature = "sqlite")]
use mainstay_sqlite::SqliteConnector;
#[cfg(feature = "sqlserver")]
use mainstay_sqlserver::SqlServerConnector;

pub use mainstay_core::fleet::*;

/// Connects the databases of a fleet by the schemes of their URLs: `sqlite:` and a path, `postgres://` or `postgresql://`,
/// `mssql://` or `sqlserver://`.
///
/// ```no_run
/// # #[cfg(feature = "sqlite")]
/// # async fn example() -> mainstay::Result<()> {
/// use mainstay::fleet::{DatabaseEntry, DatabaseList, Fleet, UrlConnector};
///
/// let databases = DatabaseList::new([
///     DatabaseEntry::new("acme", "sqlite:/var/lib/app/acme.db"),
///     DatabaseEntry::new("globex", "postgres://app@db.internal/globex"),
/// ])?;
/// let fleet = Fleet::builder(databases, UrlConnector::new())
///     .each(|_, mainstay| mainstay.deploy_schema(true))
///     .build()?;
/// let running = fleet.start().await?;
/// fleet.outbox("acme")?.enqueue(mainstay::Message::new("greet", "hello")).await?;
/// running.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct UrlConnector {
    #[cfg(feature = "sqlite")]
    sqlite: SqliteConnector,
    #[cfg(feature = "postgres")]
    postgres: PostgresConnector,
    #[cfg(feature = "sqlserver")]
    sqlserver: SqlServerConnector,
}

impl UrlConnector {
    /// With the default settings of each kind.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens databases of SQLite like this.
    #[cfg(feature = "sqlite")]
    #[must_use]
    pub fn sqlite(mut self, connector: SqliteConnector) -> Self {
        self.sqlite = connector;
        self
    }

    /// Connects to databases of PostgreSQL like this.
    #[cfg(feature = "postgres")]
    #[must_use]
    pub fn postgres(mut self, connector: PostgresConnector) -> Self {
        self.postgres = connector;
        self
    }

    /// Connects to databases of SQL Server like this.
    #[cfg(feature = "sqlserver")]
    #[must_use]
    pub fn sqlserver(mut self, connector: SqlServerConnector) -> Self {
        self.sqlserver = connector;
        self
    }

    fn of(&self, entry: &DatabaseEntry) -> Result<&dyn Connect> {
        // ADO.NET's form has no scheme.
        #[cfg(feature = "sqlserver")]
        if mainstay_sqlserver::SqlServer::is_connection_string(entry.target.expose()) {
            return Ok(&self.sqlserver);
        }
        match scheme(entry.target.expose()) {
            #[cfg(feature = "sqlite")]
            Some("sqlite") => Ok(&self.sqlite),
            #[cfg(feature = "postgres")]
            Some("postgres" | "postgresql") => Ok(&self.postgres),
            #[cfg(not(feature = "sqlite"))]
            Some("sqlite") => Err(unfit("the feature sqlite is off")),
            #[cfg(not(feature = "postgres"))]
            Some("postgres" | "postgresql") => Err(unfit("the feature postgres is off")),
            #[cfg(not(feature = "sqlserver"))]
            Some("mssql" | "sqlserver") => Err(unfit("the feature sqlserver is off")),
            // Whatever is there instead may be a password.
            _ => Err(unfit(
                "its URL must begin with sqlite:, postgres://, postgresql://, mssql:// or sqlserver://",
            )),
        }
    }
}

#[async_trait]
impl Connect for UrlConnector {
    async fn connect(&self, entry: &DatabaseEntry, terms: ConnectTerms) -> Result<Arc<dyn Provider>> {
        self.of(entry)?.connect(entry, terms).await
    }

    fn server(&self, entry: &DatabaseEntry) -> Option<String> {
        self.of(entry).ok()?.server(entry)
    }

    fn watch(&self, entry: &DatabaseEntry) -> Option<Box<dyn Watch>> {
        self.of(entry).ok()?.watch(entry)
    }
}

fn scheme(target: &str) -> Option<&str> {
    target.split_once(':').map(|(scheme, _)| scheme)
}

fn unfit(reason: &str) -> Error {
    Error::new(ErrorKind::Config, "fleet.connect", format!("the database can't be connected to: {reason}"))
        .with_field("target")
}
