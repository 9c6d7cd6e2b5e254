//! Holders of leases are paused and killed, and their clocks are wrong. Nobody writes beside the next holder.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
#[macro_use]
mod support;

use std::process::Stdio;
use std::time::Duration;

use mainstay::lease::{Acquired, Lease, LeaseOptions, Leases};
use mainstay_tests::{TestPostgres, eventually};
use support::{Database, not_applicable, recorded};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const DEADLINE: Duration = Duration::from_secs(120);

/// A process that holds a lease, or was told who does. Killed when dropped.
struct Holder {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    async fn start(
        database: &Database,
        name: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_holder"))
            .args([database.url(), name])
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { input: child.stdin.take().unwrap(), child, lines }
    }

    async fn line(&mut self) -> String {
        let line =
            tokio::time::timeout(DEADLINE, self.lines.next_line()).await.expect("the holder to answer");
        line.unwrap().expect("the holder lives")
    }

    async fn tell(&mut self, word: &str) -> String {
        self.ask(word).await;
        self.line().await
    }

    async fn ask(&mut self, word: &str) {
        self.input.write_all(format!("{word}\n").as_bytes()).await.unwrap();
    }

    async fn signal(&self, signal: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().await.unwrap().success());
    }
}

fn long() -> LeaseOptions {
    LeaseOptions::default().duration(Duration::from_secs(600)).owner("test")
}

async fn leases(database: &Database) -> Leases {
    Leases::new(mainstay_e2e::open(database.url()).await.unwrap().leases())
}

/// Asks until the lease is to be had. A writer that is paused within a transaction keeps SQLite as a whole.
async fn acquire(leases: &Leases, name: &str) -> Lease {
    let asked = async {
        loop {
            match leases.acquire_with(name, long().wait(Duration::from_secs(5))).await {
                Ok(Acquired::Lease(lease)) => return lease,
                Ok(Acquired::Held(_)) => {}
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    };
    tokio::time::timeout(DEADLINE, asked).await.expect("the lease to be had")
}

/// R20: a holder that was paused past its lease can't commit through `guard`.
async fn r20_a_paused_holder_can_not_commit(database: Database) {
    let leases = leases(&database).await;
    let mut holder = Holder::start(&database, "paused", &[], &[]).await;
    assert_eq!(holder.line().await, "holding 1");
    assert_eq!(holder.tell("check").await, "fine");
    holder.signal("-STOP").await;
    let next = acquire(&leases, "paused").await;
    assert_eq!(next.epoch(), 2);
    // Told before it wakes up, so that it is the first thing it does.
    holder.ask("begin").await;
    holder.signal("-CONT").await;
    assert_eq!(holder.line().await, "refused");
    assert_eq!(holder.tell("check").await, "lost");
    assert_eq!(mainstay_e2e::effects(database.url()).await.unwrap(), [""; 0]);
    next.check().unwrap();
    assert!(next.renew().await.unwrap());
}

/// R20: paused between its guard and its commit, it still has the lease when it commits: nobody else gets it before.
async fn r20_a_holder_paused_within_its_transaction_comes_first(database: Database) {
    let leases = leases(&database).await;
    let mut holder = Holder::start(&database, "paused", &[], &[]).await;
    assert_eq!(holder.line().await, "holding 1");
    assert_eq!(holder.tell("begin").await, "guarded");
    holder.signal("-STOP").await;
    // Its lease lapses, and its transaction is still open: not for so long that it would be rolled back for that.
    let early = tokio::time::timeout(Duration::from_secs(3), acquire(&leases, "paused")).await;
    assert!(early.is_err(), "somebody else has the lease although the first one can still commit");
    holder.ask("commit").await;
    holder.signal("-CONT").await;
    let next = acquire(&leases, "paused").await;
    // The one that was given up may have been answered since, and has then given the lease up too.
    assert!(next.epoch() >= 2);
    let effects = mainstay_e2e::effects(database.url()).await.unwrap();
    assert_eq!(effects, ["written"], "whoever has the lease sees what the one before has written");
    assert_eq!(holder.line().await, "committed");
    assert_eq!(holder.tell("begin").await, "refused");
}

/// R20: a killed holder's lease lapses by itself, and not before its time.
async fn r20_a_killed_holder_loses_the_lease_in_time(database: Database) {
    let leases = leases(&database).await;
    let mut holder = Holder::start(&database, "killed", &[], &[]).await;
    assert_eq!(holder.line().await, "holding 1");
    holder.child.kill().await.unwrap();
    let left = leases.get("killed").await.unwrap().unwrap();
    assert_eq!(left.owner.as_deref(), Some("holder"));
    let next = acquire(&leases, "killed").await;
    assert_eq!(next.epoch(), 2);
    assert!(next.server_time() >= left.expires_at, "not before its time");
}

on_every_database!(
    r20_a_paused_holder_can_not_commit["R20"],
    r20_a_holder_paused_within_its_transaction_comes_first["R20"],
    r20_a_killed_holder_loses_the_lease_in_time["R20"],
);

/// MST-008: whatever a process's clock says, the database's decides who holds a lease, and the monotonic one how long.
async fn a_skewed_clock_decides_nothing(database: Database, offset: &str) {
    let Some(library) = TestPostgres::faketime() else {
        panic!("libfaketime is not installed; `cargo xtask test` brings it");
    };
    let environment = [
        ("LD_PRELOAD", library.to_str().unwrap()),
        ("FAKETIME", offset),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
    ];
    let leases = leases(&database).await;
    let mine = acquire(&leases, "mine").await;
    let mut thief = Holder::start(&database, "mine", &[], &environment).await;
    assert_eq!(thief.line().await, "held test", "a clock that is ahead does not end the lease");
    assert!(mine.renew().await.unwrap());

    let arguments = ["--lease-ms", "5000"];
    let mut holder = Holder::start(&database, "theirs", &arguments, &environment).await;
    assert_eq!(holder.line().await, "holding 1");
    let first = leases.get("theirs").await.unwrap().unwrap();
    assert_eq!(first.expires_at.duration_since(first.renewed_at).as_millis(), 5_000);
    assert!(leases.acquire_with("theirs", long()).await.unwrap().lease().is_none());
    eventually(DEADLINE, "it is renewed in time", async || {
        let now = leases.get("theirs").await.unwrap().unwrap();
        assert!(now.held || now.fencing_token > 1);
        now.fencing_token > 2
    })
    .await;
    assert_eq!(holder.tell("check").await, "fine");
    assert_eq!(holder.tell("begin").await, "guarded");
    assert_eq!(holder.tell("commit").await, "committed");
    assert_eq!(holder.tell("release").await, "released");
    assert_eq!(acquire(&leases, "theirs").await.epoch(), 2);
}

async fn on_postgres(case: &str, offset: &str) {
    const IDS: &[&str] = &["MST-008", "R20"];
    not_applicable(case, IDS, &["sqlite-file", "sqlite-memory"], "own clock");
    recorded(case, IDS, "postgres", a_skewed_clock_decides_nothing(Database::postgres().await, offset)).await;
    let pooled = a_skewed_clock_decides_nothing(Database::pgbouncer().await, offset);
    recorded(case, IDS, "postgres-pgbouncer", pooled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mst_008_a_holder_whose_clock_is_ahead_decides_nothing() {
    on_postgres("mst_008_a_holder_whose_clock_is_ahead_decides_nothing", "+30m").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mst_008_a_holder_whose_clock_is_behind_decides_nothing() {
    on_postgres("mst_008_a_holder_whose_clock_is_behind_decides_nothing", "-30m").await;
}
