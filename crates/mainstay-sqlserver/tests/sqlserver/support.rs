//! Databases of the server under test.

use std::time::Duration;

use mainstay_core::WorkItemId;
use mainstay_core::store::Provider;
use mainstay_sqlserver::tiberius::{Row, error::Error};
use mainstay_sqlserver::{Client, SqlServer, SqlServerBuilder};
use mainstay_tests::eventually;

const SERVER: &str = "MAINSTAY_TEST_SQLSERVER";

/// Bounds every wait of a test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A deployed database, and what the program under test calls itself there.
pub(crate) struct Database {
    pub(crate) name: String,
    pub(crate) is_babelfish: bool,
    admin: SqlServer,
}

/// Returns the server's URL with another database and program.
fn url_of(database: &str, program: &str) -> Option<String> {
    let url = std::env::var(SERVER).ok()?;
    let (server, parameters) = url.split_once('?').unwrap_or((&url, ""));
    let (scheme, rest) = server.split_once("://").unwrap();
    let address = rest.split('/').next().unwrap();
    Some(format!("{scheme}://{address}/{database}?{parameters}&application_name={program}"))
}

impl Database {
    /// Creates one; none without a server.
    pub(crate) async fn new() -> Option<Self> {
        let name = format!("mainstay_{}", WorkItemId::new().as_uuid().simple());
        let Some(master) = url_of("master", "admin") else {
            eprintln!("not run: set {SERVER} to the URL of a server");
            return None;
        };
        let server = SqlServer::connect(&master).await.unwrap();
        let create = format!("CREATE DATABASE {name}");
        // Some engines make one database at a time.
        eventually(DEADLINE, &create, async || {
            let mut client = server.client().await.unwrap();
            tried(&mut client, &create).await.is_ok()
        })
        .await;
        let version = "SELECT CAST(SERVERPROPERTY(N'BabelfishVersion') AS NVARCHAR(100))";
        let version = run(&mut server.client().await.unwrap(), version).await;
        let is_babelfish = version[0].get::<&str, _>(0).is_some();
        server.close().await;
        let admin = SqlServer::connect(&url_of(&name, "admin").unwrap()).await.unwrap();
        admin.schema().deploy().await.unwrap();
        Some(Self { name, is_babelfish, admin })
    }

    /// The name that the program under test has in the server's list of sessions.
    pub(crate) fn program(&self) -> String {
        format!("program_{}", self.name)
    }

    pub(crate) fn builder(&self) -> SqlServerBuilder {
        SqlServer::builder(&url_of(&self.name, &self.program()).unwrap())
    }

    /// A connection of an application, which waits for locks without end.
    pub(crate) async fn client(&self) -> Client {
        self.admin.client().await.unwrap()
    }

    pub(crate) async fn end(self) {
        self.admin.close().await;
        let server = SqlServer::connect(&url_of("master", "admin").unwrap()).await.unwrap();
        let drop = format!("DROP DATABASE {}", self.name);
        eventually(DEADLINE, &drop, async || {
            let mut client = server.client().await.unwrap();
            tried(&mut client, &drop).await.is_ok()
        })
        .await;
        server.close().await;
    }
}

pub(crate) async fn tried(client: &mut Client, sql: &str) -> Result<Vec<Row>, Error> {
    client.simple_query(sql).await?.into_first_result().await
}

pub(crate) async fn run(client: &mut Client, sql: &str) -> Vec<Row> {
    tried(client, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}
