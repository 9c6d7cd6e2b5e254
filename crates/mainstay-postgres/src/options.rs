//! The settings of a PostgreSQL provider.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mainstay_core::store::{ConnectionGate, Names};
use mainstay_core::{Error, ErrorKind, Result};

use crate::provider::Postgres;
use crate::tls::Roots;

/// What can be set on a [`Postgres`] before it connects.
///
/// ```no_run
/// # async fn run() -> mainstay_core::Result<()> {
/// use mainstay_postgres::Postgres;
///
/// let postgres = Postgres::builder("postgres://app:secret@db1,db2/orders?sslmode=verify-full")
///     .ca_certificate("/etc/ssl/company.pem")
///     .pool_size(16)
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens before `connect`"]
pub struct PostgresBuilder {
    pub(crate) url: String,
    pub(crate) names: Names,
    pub(crate) pool_size: usize,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) acquire_timeout: Duration,
    pub(crate) call_timeout: Option<Duration>,
    pub(crate) roots: Option<Roots>,
    pub(crate) keep_done_payloads: bool,
    pub(crate) listen: bool,
    pub(crate) prepared_statements: bool,
    pub(crate) gate: Option<Arc<ConnectionGate>>,
}

impl PostgresBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            names: Names::default(),
            pool_size: 8,
            connect_timeout: None,
            acquire_timeout: Duration::from_secs(30),
            call_timeout: None,
            roots: None,
            keep_done_payloads: true,
            listen: true,
            prepared_statements: false,
            gate: None,
        }
    }

    /// The names of schema and tables. Defaults to `infra` and `outbox`.
    pub fn names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// Connections at most, beside one for notifications. Defaults to 8. Handlers' transactions get three quarters of them. So do
    /// calls that can wait for another client's transaction (an enqueue with an id of your own, an idempotency key or a join; a
    /// received message), up to half of all. The rest is kept to claim, and to renew and settle claims, while those run.
    pub fn pool_size(mut self, connections: usize) -> Self {
        self.pool_size = connections;
        self
    }

    /// How long each server of the URL has to accept a connection. Defaults to `connect_timeout` of the URL, or else 5 s.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = Some(limit);
        self
    }

    /// How long an operation waits for a free connection. Defaults to 30 s.
    pub fn acquire_timeout(mut self, limit: Duration) -> Self {
        self.acquire_timeout = limit;
        self
    }

    /// How long a call may take once it has a connection. Then it fails with `Unavailable`, and the server is asked to cancel its
    /// statement. Defaults to `call_timeout` of the URL, in seconds, or else 60 s. It bounds each statement, not a whole export, and no deployment of the schema. A handler's own
    /// statements in its transaction are canceled after up to one and a quarter times as long.
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = Some(limit);
        self
    }

    /// Trusts the certificate authorities in this PEM file, as `sslrootcert` in the URL does. Defaults to those of the
    /// operating system, asked only with `sslmode=verify-ca` or `verify-full`. Without a `sslmode`, naming an authority
    /// means `verify-full`.
    pub fn ca_certificate(mut self, path: impl Into<PathBuf>) -> Self {
        self.roots = Some(Roots::File(path.into()));
        self
    }

    /// The same with the text of the file.
    pub fn ca_certificate_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(Roots::Pem(pem.into()));
        self
    }

    /// Whether the payloads of done messages are kept until retention deletes them. Defaults to true.
    pub fn keep_done_payloads(mut self, keep: bool) -> Self {
        self.keep_done_payloads = keep;
        self
    }

    /// Whether to listen for notifications, on a connection of its own. Defaults to true. Without them, and where they
    /// don't get through (as with a pooler in transaction mode), new messages are found by polling.
    pub fn listen(mut self, listen: bool) -> Self {
        self.listen = listen;
        self
    }

    /// Whether statements are prepared once per connection, which saves the server their parsing: it pays for single messages
    /// in the application's own transactions (those of deadpool-postgres; sqlx, diesel and SeaORM have caches of their own).
    /// Only for connections that are sessions of the server: direct ones, and those of a pooler that keeps account of
    /// prepared statements. Defaults to false.
    pub fn prepared_statements(mut self, prepared: bool) -> Self {
        self.prepared_statements = prepared;
        self
    }

    /// Has somebody else say how many connections there may be, of those of the pool and the one for notifications: they are made and
    /// let go as the gate allows, and operations wait for them. With one connection there are no notifications. Defaults to none: all
    /// that are needed.
    pub fn gate(mut self, gate: Arc<ConnectionGate>) -> Self {
        self.gate = Some(gate);
        self
    }

    /// Checks the settings. Connections are made when first needed, so the server need not be up yet.
    pub async fn connect(self) -> Result<Postgres> {
        Postgres::new(self)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::new(ErrorKind::Config, "postgres.connect", what));
        if !(1..=10_000).contains(&self.pool_size) {
            return wrong("pool_size must be 1 to 10,000");
        }
        if self.connect_timeout.is_some_and(|limit| limit.is_zero()) {
            return wrong("connect_timeout must be above zero");
        }
        if self.acquire_timeout.is_zero() {
            return wrong("acquire_timeout must be above zero");
        }
        if self.call_timeout.is_some_and(|limit| limit.is_zero()) {
            return wrong("call_timeout must be above zero");
        }
        Ok(())
    }
}

/// No URL: it may hold a password.
impl std::fmt::Debug for PostgresBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresBuilder")
            .field("names", &self.names)
            .field("pool_size", &self.pool_size)
            .field("connect_timeout", &self.connect_timeout)
            .field("acquire_timeout", &self.acquire_timeout)
            .field("call_timeout", &self.call_timeout)
            .field("roots", &self.roots)
            .field("keep_done_payloads", &self.keep_done_payloads)
            .field("listen", &self.listen)
            .field("prepared_statements", &self.prepared_statements)
            .finish_non_exhaustive()
    }
}
