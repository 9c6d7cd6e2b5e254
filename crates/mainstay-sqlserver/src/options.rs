//! The settings of a SQL Server provider.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mainstay_core::store::{ConnectionGate, Names};
use mainstay_core::{Error, ErrorKind, Result};

use crate::provider::SqlServer;
use crate::token::Tokens;
use crate::url::{Login, Trust};

/// What can be set on a [`SqlServer`] before it connects.
///
/// ```no_run
/// # async fn run() -> mainstay_core::Result<()> {
/// use mainstay_sqlserver::SqlServer;
///
/// let server = SqlServer::builder("Server=db,1433;Database=orders;User Id=app;Password=secret")
///     .ca_certificate("/etc/ssl/company.pem")
///     .pool_size(16)
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing happens before `connect`"]
pub struct SqlServerBuilder {
    pub(crate) url: String,
    pub(crate) names: Names,
    pub(crate) pool_size: Option<usize>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) acquire_timeout: Duration,
    pub(crate) call_timeout: Option<Duration>,
    pub(crate) trust: Option<Trust>,
    pub(crate) login: Option<Login>,
    pub(crate) keep_done_payloads: bool,
    pub(crate) gate: Option<Arc<ConnectionGate>>,
    pub(crate) runtime: Option<tokio::runtime::Handle>,
}

impl SqlServerBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            names: Names::default(),
            pool_size: None,
            connect_timeout: None,
            acquire_timeout: Duration::from_secs(30),
            call_timeout: None,
            trust: None,
            login: None,
            keep_done_payloads: true,
            gate: None,
            runtime: None,
        }
    }

    /// The names of schema and tables. Defaults to `infra`, and to `Outbox`, `Inbox`, `JobRuns` and so on.
    pub fn names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// Connections at most. Defaults to `Max Pool Size` of the connection string, or else 8. Handlers' transactions get three quarters of
    /// them; the rest is kept to renew and settle claims while those run.
    pub fn pool_size(mut self, connections: usize) -> Self {
        self.pool_size = Some(connections);
        self
    }

    /// How long the server has to accept a connection and a login. Defaults to `Connect Timeout` of the connection string, or else 15 s.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = Some(limit);
        self
    }

    /// How long an operation waits for a free connection. Defaults to 30 s.
    pub fn acquire_timeout(mut self, limit: Duration) -> Self {
        self.acquire_timeout = limit;
        self
    }

    /// How long a call may take once it has a connection. Then it fails with `Unavailable`, and its connection is closed: the server ends the
    /// statement. Attempts after a conflict share the limit. A statement waits for a lock for half of it, and for 4 s at most (30 s in a handler's
    /// transaction). Defaults to `Command Timeout` of the connection string, or else 60 s. It bounds no deployment of the schema; a handler's own
    /// statements are bounded by its time limit.
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = Some(limit);
        self
    }

    /// Trusts the certificate authorities in this PEM file too, as `CaCertificate` in the connection string does. Defaults to those of the
    /// operating system alone.
    pub fn ca_certificate(mut self, path: impl Into<PathBuf>) -> Self {
        self.trust = Some(Trust::File(path.into()));
        self
    }

    /// The same with the text of the file.
    pub fn ca_certificate_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.trust = Some(Trust::Pem(pem.into()));
        self
    }

    /// Takes whatever certificate the server shows, as `TrustServerCertificate=true` does. Whoever is in between can then read and change
    /// everything; only for a network that is trusted anyway. Defaults to false.
    pub fn trust_server_certificate(mut self, trust: bool) -> Self {
        if trust {
            self.trust = Some(Trust::Anything);
        }
        self
    }

    /// Logs in with a token of Azure Active Directory, instead of a user and a password. A token lasts an hour or so: connections that are open
    /// stay, new ones need a new token, so this is for what is over by then. Defaults to none.
    pub fn access_token(mut self, token: impl Into<String>) -> Self {
        self.login = Some(Login::Token(token.into()));
        self
    }

    /// The same with a token for every connection: this is called whenever one is opened, and part of the time it has for that. It should keep a token for
    /// as long as that is good. What goes wrong is told by its message, so that must have no secret in it. Defaults to none.
    ///
    /// ```no_run
    /// # async fn run() -> mainstay_core::Result<()> {
    /// # async fn fresh_token() -> mainstay_core::Result<String> { Ok(String::new()) }
    /// use mainstay_sqlserver::SqlServer;
    ///
    /// let server = SqlServer::builder("Server=orders.database.windows.net;Database=orders")
    ///     .access_token_with(fresh_token)
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn access_token_with<F, T>(mut self, ask: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<String>> + Send + 'static,
    {
        self.login = Some(Login::Tokens(Tokens::new(ask)));
        self
    }

    /// Whether the payloads of done messages are kept until retention deletes them. Defaults to true.
    pub fn keep_done_payloads(mut self, keep: bool) -> Self {
        self.keep_done_payloads = keep;
        self
    }

    /// Has somebody else say how many connections there may be: they are made and let go as the gate allows, and operations wait for them.
    /// Defaults to none: all that are needed.
    pub fn gate(mut self, gate: Arc<ConnectionGate>) -> Self {
        self.gate = Some(gate);
        self
    }

    /// Where connections live. Defaults to the runtime that the operation runs on which needs one; a provider that outlives that needs another.
    pub fn runtime(mut self, runtime: tokio::runtime::Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Checks the settings. Connections are made when first needed, so the server need not be up yet.
    pub async fn connect(self) -> Result<SqlServer> {
        SqlServer::new(self)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::new(ErrorKind::Config, "sqlserver.connect", what));
        if self.pool_size.is_some_and(|size| !(1..=10_000).contains(&size)) {
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

/// No connection string and no token: they are secrets.
impl std::fmt::Debug for SqlServerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlServerBuilder")
            .field("names", &self.names)
            .field("pool_size", &self.pool_size)
            .field("connect_timeout", &self.connect_timeout)
            .field("acquire_timeout", &self.acquire_timeout)
            .field("call_timeout", &self.call_timeout)
            .field("trust", &self.trust)
            .field("keep_done_payloads", &self.keep_done_payloads)
            .finish_non_exhaustive()
    }
}
