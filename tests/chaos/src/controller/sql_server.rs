//! A database of the run's own on a SQL Server that the environment names.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use mainstay::sqlserver::SqlServer;
use uuid::Uuid;

use crate::child::{Database, Session};

/// The variable with the server's URL.
const SERVER: &str = "MAINSTAY_TEST_SQLSERVER";

/// How long a database may take to be created or dropped. Babelfish creates one at a time, and a database that is in use cannot
/// be dropped.
const PATIENCE: Duration = Duration::from_secs(30);

/// The URL of a server, taken apart: `mssql://user:password@host:port/database?parameters`.
#[derive(Clone)]
struct ServerUrl {
    /// With the colon and the slashes.
    scheme: String,
    /// `user:password@`, as written.
    credentials: String,
    host: String,
    port: u16,
    /// What follows the `?`, as written.
    parameters: String,
}

impl ServerUrl {
    fn parse(url: &str) -> Result<Self> {
        // Tells what is wrong without the password.
        SqlServer::location(url)?;
        let Some((scheme, rest)) = url.split_once("://") else {
            bail!("it must be a URL like mssql://user:password@host:1433/master");
        };
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (credentials, address) =
            rest.rsplit_once('@').context("the user and the password are missing")?;
        let address = address.split('/').next().unwrap_or_default();
        // An IPv6 address is full of colons and ends with a bracket.
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().context("the port")?),
            _ => (address, 1433),
        };
        Ok(Self {
            scheme: format!("{scheme}://"),
            credentials: format!("{credentials}@"),
            host: host.to_owned(),
            port,
            parameters: parameters.to_owned(),
        })
    }

    /// `host:port`.
    fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The URL of a database.
    fn of(&self, database: &str) -> String {
        let Self { scheme, credentials, parameters, .. } = self;
        format!("{scheme}{credentials}{}/{database}?{parameters}", self.address())
    }

    /// The URL of a database at another address, for a program with a name.
    fn through(&self, address: SocketAddr, database: &str, program: &str) -> String {
        let Self { scheme, credentials, host, parameters, .. } = self;
        // The certificate is the server's still. What the URL says of it comes later and prevails.
        format!(
            "{scheme}{credentials}{address}/{database}?hostNameInCertificate={host}&{parameters}\
             &application_name={program}"
        )
    }
}

fn find_server() -> Result<ServerUrl> {
    let Ok(url) = std::env::var(SERVER) else {
        bail!(
            "set {SERVER} to the URL of a SQL Server with a login that may create databases, \
             like mssql://sa:password@127.0.0.1:1433/master?encrypt=disabled"
        );
    };
    ServerUrl::parse(&url).context(SERVER)
}

/// Fails unless the environment names a SQL Server.
pub fn require_sql_server() -> Result<()> {
    find_server().map(drop)
}

/// A database of the run's own. Dropped with this.
pub(super) struct OwnDatabase {
    server: ServerUrl,
    name: String,
}

impl OwnDatabase {
    /// Creates it.
    pub(super) async fn create() -> Result<Self> {
        let database = Self { server: find_server()?, name: format!("mainstay_{}", Uuid::now_v7().simple()) };
        let create = format!("CREATE DATABASE {}", database.name);
        let created = again_and_again(async || Ok(database.master().await?.execute(&create).await?)).await;
        created.with_context(|| format!("cannot create a database on the server that {SERVER} names"))?;
        Ok(database)
    }

    /// The server's `host:port`.
    pub(super) fn address(&self) -> String {
        self.server.address()
    }

    /// Its URL.
    pub(super) fn url(&self) -> String {
        self.server.of(&self.name)
    }

    /// Its URL for a process that connects by way of a link. Its sessions bear the name of the process.
    pub(super) fn url_through(&self, link: SocketAddr, process: &str) -> String {
        self.server.through(link, &self.name, process)
    }

    async fn master(&self) -> Result<Session> {
        Database::new(&self.server.of("master")).session().await
    }

    /// Ends the sessions that are left, and drops it.
    async fn remove(&self) -> Result<()> {
        let sessions = format!(
            "SELECT COALESCE(program_name, N''), CAST(session_id AS BIGINT) FROM sys.dm_exec_sessions
              WHERE database_id = DB_ID(N'{}') AND session_id <> @@SPID",
            self.name
        );
        let drop_database = format!("DROP DATABASE {}", self.name);
        again_and_again(async || {
            let mut master = self.master().await?;
            for (_, session) in master.rows(&sessions).await? {
                // Fails when the session has ended meanwhile.
                let _ = master.execute(&format!("KILL {session}")).await;
            }
            Ok(master.execute(&drop_database).await?)
        })
        .await
    }
}

impl Drop for OwnDatabase {
    fn drop(&mut self) {
        // The runtime of the run may be ending, so this has one of its own.
        let remove = || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(self.remove())
        };
        let removed = std::thread::scope(|scope| scope.spawn(remove).join());
        if let Ok(Err(error)) = removed {
            eprintln!("cannot drop the database {}: {error:#}", self.name);
        }
    }
}

/// Tries something until it succeeds, or fails for too long.
async fn again_and_again(work: impl AsyncFn() -> Result<()>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match work().await {
            Err(_) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(200)).await,
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_url_leads_to_another_database_and_through_a_link() {
        let server = ServerUrl::parse("mssql://sa:p%40ss@db.example/master?encrypt=strict").unwrap();
        assert_eq!(server.address(), "db.example:1433");
        assert_eq!(server.of("a"), "mssql://sa:p%40ss@db.example:1433/a?encrypt=strict");
        let through = server.through(SocketAddr::from(([127, 0, 0, 1], 7)), "a", "worker-1.2");
        assert_eq!(
            through,
            "mssql://sa:p%40ss@127.0.0.1:7/a?hostNameInCertificate=db.example&encrypt=strict\
             &application_name=worker-1.2"
        );
        assert_eq!(SqlServer::location(&through).unwrap(), "mssql://sa@127.0.0.1:7/a");
    }

    #[test]
    fn a_url_of_another_form_is_refused() {
        for url in ["postgres://a:b@db/x", "Server=db;User Id=a;Password=b", "mssql://db/x"] {
            assert!(ServerUrl::parse(url).is_err(), "{url}");
        }
    }
}
