//! A database with the schema deployed, and worker processes on it.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use mainstay::outbox::Outbox;
use mainstay::{Inbox, Jobs, Joins, Timers};
use mainstay_conformance::results::{self, CaseResult, Outcome};
use mainstay_tests::TestDatabase;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Makes a test of each function for each kind of database.
#[allow(unused_macros, reason = "each test file uses a part")]
macro_rules! on_every_database {
    ($($name:ident [$($id:literal),+]),+ $(,)?) => {
        $(mod $name {
            use super::support::{Database, not_applicable, recorded};

            const CASE: &str = stringify!($name);
            const IDS: &[&str] = &[$($id),+];

            #[tokio::test(flavor = "multi_thread")]
            async fn sqlite() {
                not_applicable(CASE, IDS, &["sqlite-memory"], "one process only");
                recorded(CASE, IDS, "sqlite-file", super::$name(Database::sqlite().await)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn postgres() {
                recorded(CASE, IDS, "postgres", super::$name(Database::postgres().await)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn pgbouncer() {
                recorded(CASE, IDS, "postgres-pgbouncer", super::$name(Database::pgbouncer().await)).await;
            }
        })+
    };
}

/// A SQLite file or a PostgreSQL database, deleted at the end.
pub struct Database {
    url: String,
    keep: Keep,
}

enum Keep {
    Directory(#[allow(dead_code, reason = "removed with it")] tempfile::TempDir),
    Postgres(TestDatabase),
}

impl Database {
    pub async fn sqlite() -> Self {
        Self::empty_sqlite().ready().await
    }

    pub async fn postgres() -> Self {
        Self::empty_postgres().await.ready().await
    }

    /// The same through PgBouncer in transaction mode.
    pub async fn pgbouncer() -> Self {
        Self::empty_pgbouncer().await.ready().await
    }

    /// A SQLite file without the schema.
    pub fn empty_sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("test.db").display());
        Self { url, keep: Keep::Directory(directory) }
    }

    /// A PostgreSQL database without the schema.
    pub async fn empty_postgres() -> Self {
        let database = TestDatabase::create(None).await;
        Self { url: database.url(), keep: Keep::Postgres(database) }
    }

    /// The same through PgBouncer in transaction mode.
    pub async fn empty_pgbouncer() -> Self {
        let database = TestDatabase::create(None).await;
        Self { url: database.bouncer_url(), keep: Keep::Postgres(database) }
    }

    async fn ready(self) -> Self {
        let provider = mainstay_e2e::open(&self.url).await.unwrap();
        provider.schema().deploy().await.unwrap();
        provider.close().await;
        mainstay_e2e::create_effects(&self.url).await.unwrap();
        self
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The same past a pooler.
    pub fn direct_url(&self) -> String {
        match &self.keep {
            Keep::Directory(_) => self.url.clone(),
            Keep::Postgres(database) => database.url(),
        }
    }

    pub async fn outbox(&self) -> Outbox {
        Outbox::new(mainstay_e2e::open(&self.url).await.unwrap().outbox())
    }

    pub async fn inbox(&self) -> Inbox {
        Inbox::new(mainstay_e2e::open(&self.url).await.unwrap().as_ref())
    }

    pub async fn jobs(&self) -> Jobs {
        Jobs::new(mainstay_e2e::open(&self.url).await.unwrap().jobs())
    }

    pub async fn joins(&self) -> Joins {
        Joins::new(mainstay_e2e::open(&self.url).await.unwrap().joins())
    }

    pub async fn timers(&self) -> Timers {
        Timers::new(mainstay_e2e::open(&self.url).await.unwrap().as_ref())
    }
}

/// A worker process. Killed when dropped.
pub struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    passed_over: Vec<String>,
}

impl Worker {
    /// Starts a worker and waits until it runs.
    pub async fn start(database: &Database, arguments: &[&str]) -> Self {
        Self::start_with(database, arguments, &[]).await
    }

    pub async fn start_with(database: &Database, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut worker = Self::spawn(database, arguments, environment);
        worker.line("ready").await;
        worker
    }

    /// Starts one without waiting; what it says is still to be read.
    pub fn spawn(database: &Database, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::spawn_program(Path::new(env!("CARGO_BIN_EXE_worker")), database, arguments, environment)
    }

    /// Starts the worker of another build without waiting.
    pub fn spawn_program(
        program: &Path,
        database: &Database,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let mut child = Command::new(program)
            .arg(database.url())
            .args(arguments)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, passed_over: Vec::new() }
    }

    /// Waits for a line. Handlers speak when they please, so what was passed over on the way to another line counts.
    pub async fn line(&mut self, wanted: &str) {
        if let Some(at) = self.passed_over.iter().position(|line| line == wanted) {
            self.passed_over.remove(at);
            return;
        }
        let found = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line == wanted {
                    return true;
                }
                self.passed_over.push(line);
            }
            false
        };
        let found = tokio::time::timeout(Duration::from_secs(60), found).await;
        assert_eq!(found, Ok(true), "the worker did not print {wanted:?}");
    }

    /// Waits until the process has ended, and returns whether it succeeded.
    pub async fn succeeded(mut self) -> bool {
        self.child.wait().await.unwrap().success()
    }

    /// Waits until the process has died.
    pub async fn died(&mut self) {
        let status = self.child.wait().await.unwrap();
        assert!(!status.success(), "the worker ended instead of dying");
    }

    /// Kills the process with SIGKILL.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Stops the process with SIGTERM and waits until it has.
    pub async fn stop(mut self) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
        self.line("stopped").await;
        assert!(self.child.wait().await.unwrap().success());
    }
}

/// Runs a test and leaves its result for the conformance report. It says failed until the test has passed.
pub async fn recorded(case: &str, ids: &[&str], provider: &str, test: impl Future<Output = ()>) {
    record(case, ids, provider, Outcome::Failed);
    test.await;
    record(case, ids, provider, Outcome::Passed);
}

/// Notes why a test makes no sense on a provider.
pub fn not_applicable(case: &str, ids: &[&str], providers: &[&str], reason: &str) {
    for provider in providers {
        record(case, ids, provider, Outcome::NotApplicable { reason: reason.to_owned() });
    }
}

fn record(case: &str, ids: &[&str], provider: &str, outcome: Outcome) {
    let ids = ids.iter().map(|id| (*id).to_owned()).collect();
    let result = CaseResult { case: case.to_owned(), ids, provider: provider.to_owned(), outcome };
    result.write(&results::directory()).unwrap();
}
