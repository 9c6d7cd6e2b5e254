//! SQLite databases of a fleet: how they are opened, and how a control database tells of them.

use std::sync::Arc;

use async_trait::async_trait;
use mainstay_core::fleet::{Connect, ConnectTerms, DatabaseDiscovery, DatabaseEntry, Watch};
use mainstay_core::store::Provider;
use mainstay_core::{Error, ErrorKind, Result};

use crate::options::SqliteBuilder;
use crate::provider::Sqlite;
use crate::watch::FileWatch;

const DISCOVER: &str = "sqlite.discover";

/// Changes the settings of each database before it is opened.
type Change = Box<dyn Fn(&DatabaseEntry, SqliteBuilder) -> SqliteBuilder + Send + Sync>;

/// Opens the databases of a fleet whose targets are files, as a path or as `sqlite:` and a path.
pub struct SqliteConnector {
    change: Option<Change>,
}

impl SqliteConnector {
    /// With the default settings, except that only a deployment of the schema makes a file that is missing: a database that has vanished
    /// must not come back empty.
    pub fn new() -> Self {
        Self { change: None }
    }

    /// Changes the settings of each database. How many connections there are is the fleet's to say.
    #[must_use]
    pub fn with(
        mut self,
        change: impl Fn(&DatabaseEntry, SqliteBuilder) -> SqliteBuilder + Send + Sync + 'static,
    ) -> Self {
        self.change = Some(Box::new(change));
        self
    }
}

impl Default for SqliteConnector {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for SqliteConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SqliteConnector")
    }
}

#[async_trait]
impl Connect for SqliteConnector {
    async fn connect(&self, entry: &DatabaseEntry, terms: ConnectTerms) -> Result<Arc<dyn Provider>> {
        let builder = Sqlite::builder(path(entry.target.expose()))
            .names(entry.names.clone())
            .readers(terms.connections.saturating_sub(2).clamp(1, 64))
            .create_missing(false);
        let builder = match &self.change {
            Some(change) => change(entry, builder),
            None => builder,
        };
        Ok(Arc::new(builder.gate(terms.gate).open().await?))
    }

    /// Each file is on its own.
    fn server(&self, _: &DatabaseEntry) -> Option<String> {
        None
    }

    fn watch(&self, _: &DatabaseEntry) -> Option<Box<dyn Watch>> {
        Some(Box::new(FileWatch::default()))
    }
}

/// The path of a target.
pub(crate) fn path(target: &str) -> &str {
    let path = target.strip_prefix("sqlite:").unwrap_or(target);
    path.strip_prefix("//").unwrap_or(path)
}

/// The databases that a query on a control database tells of.
pub struct SqliteDiscovery {
    control: Sqlite,
    query: Arc<str>,
}

impl SqliteDiscovery {
    /// Asks `control` by this query each time. Its first column is the id, its second the path or URL, both as text. Further ones are known
    /// by their names, see [`DatabaseEntry::set`]: `schema`, `outbox_table`, `options`; null is the default. A column of another name is
    /// refused.
    pub fn new(control: Sqlite, query: impl Into<Arc<str>>) -> Self {
        Self { control, query: query.into() }
    }
}

impl std::fmt::Debug for SqliteDiscovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteDiscovery").field("control", &self.control).finish_non_exhaustive()
    }
}

#[async_trait]
impl DatabaseDiscovery for SqliteDiscovery {
    async fn discover(&self) -> Result<Vec<DatabaseEntry>> {
        let query = Arc::clone(&self.query);
        let read = self.control.database().read(DISCOVER, move |connection, _| {
            let mut statement = connection.prepare(&query)?;
            if statement.column_count() < 2 {
                return Err(unfit().into());
            }
            let names: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
            let mut rows = statement.query([])?;
            let mut entries = Vec::new();
            while let Some(row) = rows.next()? {
                entries.push(entry(row, &names)?);
            }
            Ok(entries)
        });
        read.await
    }
}

fn entry(row: &rusqlite::Row<'_>, names: &[String]) -> Result<DatabaseEntry> {
    let text = |column: usize| row.get::<_, String>(column).map_err(|_| unfit());
    let mut entry = DatabaseEntry::new(text(0)?, text(1)?);
    for (column, name) in names.iter().enumerate().skip(2) {
        let value: Option<String> = row.get(column).map_err(|_| {
            Error::new(ErrorKind::Config, DISCOVER, format!("the query's column {name:?} must be text"))
        })?;
        entry = entry.set(name, value.as_deref()).map_err(|error| {
            let text = format!("the query can't be used: {}", error.message());
            Error::new(ErrorKind::Config, DISCOVER, text)
        })?;
    }
    Ok(entry)
}

fn unfit() -> Error {
    let text = "the query must give an id and a path or URL as its first two columns, both text and not null";
    Error::new(ErrorKind::Config, DISCOVER, text)
}
