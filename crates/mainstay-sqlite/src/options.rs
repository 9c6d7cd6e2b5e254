//! What can be set when a database is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mainstay_core::store::{ConnectionGate, Names};
use mainstay_core::{Error, Result};
use tokio::sync::watch;

use crate::connection::{Location, Times, check_version};
use crate::database::{Database, identifier};
use crate::error::Place;
use crate::link::Link;
use crate::provider::Sqlite;
use crate::schema::check_names;
use crate::statements::{AuditStatements, Statements};

const OPEN: &str = "sqlite.open";

/// Opens a database with other settings than the default ones.
///
/// ```no_run
/// # async fn example() -> mainstay_core::Result<()> {
/// # use mainstay_sqlite::Sqlite;
/// let sqlite = Sqlite::builder("app.db").readers(4).keep_done_payloads(false).open().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is opened until `open` is called"]
pub struct SqliteBuilder {
    path: Option<PathBuf>,
    names: Names,
    busy_timeout: Duration,
    readers: usize,
    keep_done_payloads: bool,
    transaction_limit: Duration,
    statement_limit: Duration,
    call_timeout: Duration,
    gate: Option<Arc<ConnectionGate>>,
    creates: bool,
}

impl SqliteBuilder {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            names: Names::default(),
            busy_timeout: Duration::from_secs(5),
            readers: 2,
            keep_done_payloads: true,
            transaction_limit: Duration::from_secs(5),
            statement_limit: Duration::from_secs(10),
            call_timeout: Duration::from_secs(60),
            gate: None,
            creates: true,
        }
    }

    /// The names of the tables. SQLite has no schemas, so the schema is a prefix. Defaults to `infra_outbox`.
    pub fn names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// How long to wait for another process that is writing; a write asks three times. Defaults to 5 s.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// Connections that read, 1 to 64. A database in memory has none: the writer reads. Defaults to 2.
    pub fn readers(mut self, count: usize) -> Self {
        self.readers = count;
        self
    }

    /// Whether messages keep their payload when they are done. Failed ones always do. Defaults to true.
    pub fn keep_done_payloads(mut self, keep: bool) -> Self {
        self.keep_done_payloads = keep;
        self
    }

    /// How long a handler's transaction may take before it is rolled back. All other writes wait for
    /// it, so this bounds what one handler can do to the others. A statement that runs then is
    /// interrupted. A closure that blocks outside of SQLite can't be: the transaction is rolled back
    /// when it returns. Keep it well below the part of a lease that is left when it is renewed (12 s by
    /// default): renewals are writes too. At most an hour. Defaults to 5 s.
    pub fn transaction_limit(mut self, limit: Duration) -> Self {
        self.transaction_limit = limit;
        self
    }

    /// How long the statements of one operation may run before SQLite interrupts them, of reads and of
    /// writes. A write that runs holds up all others, renewals of leases too, so keep it below 12 s as
    /// well. A deployment of the schema may take an hour. At most an hour. Defaults to 10 s.
    pub fn statement_limit(mut self, limit: Duration) -> Self {
        self.statement_limit = limit;
        self
    }

    /// How long a call waits for its answer. A call that has not begun by then is withdrawn; one that
    /// has is bounded by `statement_limit`. A deployment of the schema is not bounded. At most an
    /// hour. Defaults to 60 s.
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = limit;
        self
    }

    /// Whether the file is made where there is none. Without it only a deployment of the schema makes it, and everything else fails
    /// until then. Defaults to true.
    pub fn create_missing(mut self, create: bool) -> Self {
        self.creates = create;
        self
    }

    /// Has somebody else say how many connections there may be: [`Self::open`] then opens none, and they are opened and let go as the
    /// gate allows. With one connection the writer reads too; with two, one watches for commits of others; the rest reads. Defaults to
    /// none: all that are wanted, for as long as the database is open.
    pub fn gate(mut self, gate: Arc<ConnectionGate>) -> Self {
        self.gate = Some(gate);
        self
    }

    fn validate(&self) -> Result<()> {
        check_names(OPEN, &self.names)?;
        if !(1..=64).contains(&self.readers) {
            let got = self.readers;
            return Err(Error::invalid(OPEN, "readers", format_args!("must be 1 to 64, got {got}")));
        }
        let limits = [
            ("transaction_limit", self.transaction_limit),
            ("statement_limit", self.statement_limit),
            ("call_timeout", self.call_timeout),
        ];
        for (name, got) in limits {
            if got.is_zero() || got > Duration::from_secs(3_600) {
                let reason = format_args!("must be above zero and at most 1 h, got {got:?}");
                return Err(Error::invalid(OPEN, name, reason));
            }
        }
        // SQLite counts it in milliseconds, in 32 bits.
        if self.busy_timeout > Duration::from_secs(24 * 3_600) {
            let got = self.busy_timeout;
            return Err(Error::invalid(
                OPEN,
                "busy_timeout",
                format_args!("must be at most 24 h, got {got:?}"),
            ));
        }
        Ok(())
    }

    /// Opens the database, and creates the file if there is none, unless told otherwise. Creates no
    /// table: that is what [`SchemaStore::deploy`](mainstay_core::store::SchemaStore::deploy) is for.
    ///
    /// Refuses with [`ErrorKind::Unsupported`](mainstay_core::ErrorKind::Unsupported) if the program is
    /// linked with a SQLite before 3.51.3, which can damage a file that several connections write to.
    pub async fn open(self) -> Result<Sqlite> {
        self.validate()?;
        check_version(rusqlite::version_number(), rusqlite::version())?;
        let location = self.location();
        let gated = self.gate.is_some();
        let times =
            Times { busy: self.busy_timeout, statement: self.statement_limit, call: self.call_timeout };
        let link = Arc::new(Link::new(location.clone(), times, self.readers, self.gate));
        let database = Database {
            identifier: identifier(&location, &self.names),
            statements: Statements::shared(&self.names),
            audit: AuditStatements::shared(&self.names),
            names: self.names,
            signal: Arc::clone(&link.signal),
            link,
            keep_done_payloads: self.keep_done_payloads,
            transaction_limit: self.transaction_limit,
            location,
            creates: self.creates,
        };
        if !gated {
            drop(database.open(OPEN).await?);
        }
        Ok(Sqlite::new(database))
    }

    fn location(&self) -> Location {
        static MEMORIES: AtomicU64 = AtomicU64::new(1);
        match &self.path {
            Some(path) => Location::File(Place::new(path), watch::Sender::new(0)),
            // Numbered, because stores are told apart by their identifier.
            None => {
                let number = MEMORIES.fetch_add(1, Ordering::Relaxed);
                Location::Memory(Place::new(format!(":memory:{number}")))
            }
        }
    }
}
