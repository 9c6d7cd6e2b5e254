//! Processes whose machine is suspended, or whose clock is set: their monotonic clock stands still while the wall clock goes on. They count
//! what they hold as lost once its end has passed by either clock.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use mainstay::lease::Leases;
use mainstay::outbox::Message;
use mainstay_tests::TestPostgres;
use support::{Database, Worker, not_applicable, recorded};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Far less than a lease of these tests lasts, and than the time until its renewal: nothing of theirs passes by itself.
const DEADLINE: Duration = Duration::from_secs(120);

const LEASE: &[&str] = &["--lease-ms", "3600000"];

/// The wall clock of a process, which a test sets while the process runs.
struct Wall {
    file: PathBuf,
    _directory: tempfile::TempDir,
    environment: Vec<(&'static str, String)>,
}

impl Wall {
    fn new() -> Self {
        let Some(library) = TestPostgres::faketime() else {
            panic!("libfaketime is not installed; `cargo xtask test` brings it");
        };
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("offset");
        let environment = vec![
            ("LD_PRELOAD", text(&library)),
            ("FAKETIME_TIMESTAMP_FILE", text(&file)),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        let wall = Self { file, _directory: directory, environment };
        wall.set("+0");
        wall
    }

    fn environment(&self) -> Vec<(&str, &str)> {
        self.environment.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    /// Sets it this far from the right time, at once.
    fn set(&self, offset: &str) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, offset).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A process that speaks and listens. Killed when dropped.
struct Process {
    _child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(program: &str, arguments: &[&str], wall: &Wall) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .args(LEASE)
            .envs(wall.environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { input: child.stdin.take().unwrap(), _child: child, lines }
    }

    async fn line(&mut self) -> String {
        let line = tokio::time::timeout(DEADLINE, self.lines.next_line()).await.expect("an answer");
        line.unwrap().expect("the process lives")
    }

    async fn tell(&mut self, word: &str) -> String {
        self.input.write_all(format!("{word}\n").as_bytes()).await.unwrap();
        self.line().await
    }
}

/// A lease counts as lost at once for every caller, and its work is canceled. No smaller step of the clock ends it.
async fn a_suspended_holder_loses_its_lease(database: Database) {
    let leases = Leases::new(mainstay_e2e::open(database.url()).await.unwrap().leases());
    let wall = Wall::new();
    let mut holder = Process::start(env!("CARGO_BIN_EXE_holder"), &[database.url(), "one"], &wall);
    assert_eq!(holder.line().await, "holding 1");
    for step in ["+60", "-60", "+600", "-7200"] {
        wall.set(step);
        assert_eq!(holder.tell("check").await, "fine", "{step}");
    }
    // Two hours ahead of what it was, and where it began: that it was set back before hides nothing.
    wall.set("+0");
    assert_eq!(holder.tell("check").await, "lost");
    assert_eq!(holder.tell("begin").await, "refused", "it does not even ask");
    assert_eq!(holder.tell("wait").await, "cancelled");
    // The database still keeps it for the holder. No other holder has it, which is the safe side.
    assert!(leases.get("one").await.unwrap().unwrap().held);

    // No caller asks: the holder notices by itself, long before the lease would be renewed.
    let mut holder = Process::start(env!("CARGO_BIN_EXE_holder"), &[database.url(), "two"], &wall);
    assert_eq!(holder.line().await, "holding 1");
    assert_eq!(holder.tell("check").await, "fine");
    holder.input.write_all(b"wait\n").await.unwrap();
    wall.set("+7200");
    assert_eq!(holder.line().await, "cancelled");
}

/// A node owns nothing of what it owned, and takes it anew.
async fn a_suspended_node_owns_nothing(database: Database) {
    let wall = Wall::new();
    let mut member = Process::start(env!("CARGO_BIN_EXE_member"), &[database.url()], &wall);
    assert_eq!(member.line().await, "joined");
    let epochs = |owned: &str| -> Vec<String> {
        owned.split(' ').filter_map(|one| one.split_once(':')).map(|(_, epoch)| epoch.to_owned()).collect()
    };
    let before = member.tell("").await;
    assert_eq!(epochs(&before), vec!["1"; 64]);
    wall.set("+7200");
    // It may have taken some again already.
    let owned = epochs(&member.tell("").await);
    assert!(owned.iter().all(|epoch| epoch == "2"), "{owned:?}");
    let again = async {
        while epochs(&member.tell("").await) != vec!["2"; 64] {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, again).await.expect("it has all again, under new epochs");
}

/// The handler of a claim is dropped.
async fn a_suspended_worker_drops_its_handlers(database: Database) {
    let wall = Wall::new();
    let mut worker = Worker::start_with(&database, LEASE, &wall.environment()).await;
    database.outbox().await.enqueue(Message::new("hang", "")).await.unwrap();
    worker.line("hanging").await;
    wall.set("+7200");
    worker.line("dropped").await;
}

const IDS: &[&str] = &["MST-008", "R20"];

macro_rules! on_postgres {
    ($($name:ident $test:ident),+ $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let case = stringify!($name);
            not_applicable(case, IDS, &["sqlite-file", "sqlite-memory"], "own clock");
            recorded(case, IDS, "postgres", $test(Database::postgres().await)).await;
            recorded(case, IDS, "postgres-pgbouncer", $test(Database::pgbouncer().await)).await;
        })+
    };
}

on_postgres!(
    mst_008_a_suspended_holder_loses_its_lease a_suspended_holder_loses_its_lease,
    mst_008_a_suspended_node_owns_nothing a_suspended_node_owns_nothing,
    mst_008_a_suspended_worker_drops_its_handlers a_suspended_worker_drops_its_handlers,
);
