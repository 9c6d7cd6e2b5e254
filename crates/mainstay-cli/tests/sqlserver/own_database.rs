//! A database of the server that `MAINSTAY_TEST_SQLSERVER` names (a URL with a login that may make databases), for one case, and the program that
//! works on it.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use mainstay::sqlserver::tiberius::Row;
use mainstay::sqlserver::{Client, SqlServer};
use mainstay::store::Provider;
use mainstay_tests::eventually;

use crate::program::{Program, Ran};

pub(crate) const SERVER: &str = "MAINSTAY_TEST_SQLSERVER";

/// Nothing takes that long; it only keeps a test from waiting for ever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// How long a database may still be in use that is to be dropped.
const LET_GO: Duration = Duration::from_secs(20);

/// The program in a folder of its own, with a database of its own. Dropped, both are gone.
pub(crate) struct OwnDatabase {
    pub(crate) program: Program,
    name: String,
}

impl OwnDatabase {
    /// An empty one.
    pub(crate) fn new() -> Self {
        let name = format!("mainstay_{}", uuid::Uuid::now_v7().simple());
        block_on(async {
            let server = connect("master").await;
            let create = format!("CREATE DATABASE {name}");
            // Some engines make one database at a time, and others may be making theirs.
            let made = async || {
                let mut client = server.client().await.unwrap();
                async { client.simple_query(&create).await?.into_results().await }.await.is_ok()
            };
            eventually(PATIENCE, &create, made).await;
            server.close().await;
        });
        let program = Program::new().with_variable("MAINSTAY_DATABASE", url_of(&name));
        Self { program, name }
    }

    /// One with a current schema.
    pub(crate) fn migrated() -> Self {
        let database = Self::new();
        database.run(&["migrate"]).succeeded();
        database
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn url(&self) -> String {
        url_of(&self.name)
    }

    /// The same place as ADO.NET writes it.
    pub(crate) fn ado(&self) -> String {
        let url = self.url();
        let (credentials, rest) = url.split_once("://").unwrap().1.split_once('@').unwrap();
        let (user, password) = credentials.split_once(':').unwrap();
        let (address, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (server, database) = address.split_once('/').unwrap();
        let (server, password) = (server.replace(':', ","), password.replace('\'', "''"));
        let parameters = parameters.replace('&', ";");
        format!("Server=tcp:{server};Database={database};User Id={user};Password='{password}';{parameters}")
    }

    /// As the program shows where it is.
    pub(crate) fn location(&self) -> String {
        SqlServer::location(&self.url()).unwrap()
    }

    /// Runs the program on it.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        let ran = self.program.run(arguments);
        assert_no_password(&ran);
        ran
    }

    /// What a run that succeeded has printed as JSON.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> serde_json::Value {
        self.run(&[arguments, &["--json"]].concat()).succeeded().json()
    }

    /// What a run that succeeded has printed for people.
    #[track_caller]
    pub(crate) fn told(&self, arguments: &[&str]) -> String {
        self.run(arguments).succeeded().stdout
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.program.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// What a program of the application does, beside the one that is tried.
    pub(crate) fn within<T>(&self, work: impl AsyncFnOnce(&SqlServer) -> T) -> T {
        block_on(async {
            let server = connect(&self.name).await;
            let result = work(&server).await;
            server.close().await;
            result
        })
    }

    /// Runs batches as they are, one after the other on one connection of the driver.
    pub(crate) fn execute<'a>(&self, batches: impl IntoIterator<Item = &'a str>) {
        self.within(async |server| {
            let mut client = server.client().await.unwrap();
            for batch in batches {
                rows(&mut client, batch).await;
            }
        });
    }

    /// The first column of the first row.
    pub(crate) fn count(&self, query: &str) -> i32 {
        self.within(async |server| {
            let mut client = server.client().await.unwrap();
            rows(&mut client, query).await[0].get::<i32, _>(0).unwrap()
        })
    }
}

impl Drop for OwnDatabase {
    fn drop(&mut self) {
        let drop_it = [format!("DROP DATABASE {}", self.name)];
        // The server may take a moment to see that a program has gone. Whoever uses it longer keeps it: a case fails for better reasons.
        let end = Instant::now() + LET_GO;
        while !attempt("master", &drop_it) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Runs batches of which any may fail: a case that panics tidies up as far as it can. Tells whether all were run.
pub(crate) fn attempt(database: &str, batches: &[String]) -> bool {
    block_on(async {
        let server = connect(database).await;
        let mut all = true;
        for batch in batches {
            all &= match server.client().await {
                Ok(mut client) => {
                    async { client.simple_query(batch).await?.into_results().await }.await.is_ok()
                }
                Err(_) => false,
            };
        }
        server.close().await;
        all
    })
}

async fn rows(client: &mut Client, batch: &str) -> Vec<Row> {
    let rows = async { client.simple_query(batch).await?.into_first_result().await };
    rows.await.unwrap_or_else(|error| panic!("{error} in {batch}"))
}

async fn connect(database: &str) -> SqlServer {
    SqlServer::connect(&url_of(database)).await.unwrap()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// The server's URL with another database.
fn url_of(database: &str) -> String {
    let url = std::env::var(SERVER).unwrap();
    let (server, parameters) = url.split_once('?').unwrap_or((&url, ""));
    let (scheme, rest) = server.split_once("://").unwrap();
    let address = rest.split('/').next().unwrap();
    format!("{scheme}://{address}/{database}?{parameters}")
}

/// The password is nowhere, whatever was asked for.
#[track_caller]
fn assert_no_password(ran: &Ran) {
    let url = std::env::var(SERVER).unwrap();
    let credentials = url.split_once("://").unwrap().1.split('@').next().unwrap();
    let password = credentials.split_once(':').unwrap().1;
    // A shorter one may be a part of any word.
    let is_there = |text: &str| password.len() >= 8 && text.contains(password);
    assert!(!is_there(&ran.stdout) && !is_there(&ran.stderr), "the password is shown");
}
