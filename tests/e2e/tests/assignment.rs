//! Nodes of a fleet are paused and killed, and their clocks are wrong. No database is owned by two of them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
#[macro_use]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use mainstay::fleet::assignment::{Assignment, AssignmentOptions, Owned};
use mainstay::lease::{LeaseOptions, LeaseRecord, Leases};
use mainstay::runtime::{Running, start};
use mainstay_tests::{TestPostgres, eventually};
use support::{Database, not_applicable, recorded};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

const DEADLINE: Duration = Duration::from_secs(120);

type Buckets = BTreeMap<u32, i64>;

/// A process that takes part in the fleet. Killed when dropped.
struct Member {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Member {
    async fn join(database: &Database, environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_member"))
            .arg(database.url())
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut member = Self { input: child.stdin.take().unwrap(), child, lines };
        assert_eq!(member.line().await, "joined");
        member
    }

    async fn line(&mut self) -> String {
        let line =
            tokio::time::timeout(DEADLINE, self.lines.next_line()).await.expect("the member to answer");
        line.unwrap().expect("the member lives")
    }

    async fn ask(&mut self) {
        self.input.write_all(b"\n").await.unwrap();
    }

    async fn answer(&mut self) -> Buckets {
        let line = self.line().await;
        let bucket = |text: &str| {
            let (bucket, epoch) = text.split_once(':').unwrap();
            (bucket.parse().unwrap(), epoch.parse().unwrap())
        };
        if line == "nothing" { Buckets::new() } else { line.split(' ').map(bucket).collect() }
    }

    async fn owned(&mut self) -> Buckets {
        self.ask().await;
        self.answer().await
    }

    async fn signal(&self, signal: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().await.unwrap().success());
    }
}

impl Member {
    /// Stops it, but not within a transaction: on SQLite nobody else could write then.
    async fn pause(&self, leases: &Leases) {
        loop {
            self.signal("-STOP").await;
            let probe = leases.acquire_with("probe", LeaseOptions::default().wait(DEADLINE));
            if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(1), probe).await {
                return;
            }
            self.signal("-CONT").await;
        }
    }
}

async fn leases(database: &Database) -> Leases {
    Leases::new(mainstay_e2e::open(database.url()).await.unwrap().leases())
}

/// The test itself as a node.
async fn join(leases: &Leases) -> (Running, watch::Receiver<Owned>) {
    let options = AssignmentOptions::default().lease(Duration::from_secs(3)).node("test");
    let assignment = Arc::new(Assignment::new(leases.clone(), options).unwrap());
    let owned = assignment.owned();
    (start(assignment), owned)
}

/// Waits until the two share everything, and tells what the member has.
async fn shared(member: &mut Member, owned: &watch::Receiver<Owned>) -> Buckets {
    let mut theirs = Buckets::new();
    eventually(DEADLINE, "the two share everything", async || {
        theirs = member.owned().await;
        let mine = owned.borrow().buckets();
        let all: BTreeSet<&u32> = mine.keys().chain(theirs.keys()).collect();
        !mine.is_empty() && !theirs.is_empty() && all.len() == 64 && mine.len() + theirs.len() == 64
    })
    .await;
    theirs
}

async fn all_is_mine(owned: &watch::Receiver<Owned>) {
    eventually(DEADLINE, "all is taken over", async || owned.borrow().buckets().len() == 64).await;
}

async fn record(leases: &Leases, bucket: u32) -> LeaseRecord {
    leases.get(&format!("fleet:default:bucket:{bucket}")).await.unwrap().unwrap()
}

/// R24: a node that was paused past its lease does not own what it owned, from the first moment on.
async fn r24_a_paused_node_owns_nothing_when_it_wakes_up(database: Database) {
    let leases = leases(&database).await;
    let mut member = Member::join(&database, &[]).await;
    let (running, owned) = join(&leases).await;
    let before = shared(&mut member, &owned).await;
    member.pause(&leases).await;
    all_is_mine(&owned).await;
    let taken = owned.borrow().buckets();
    assert!(before.iter().all(|(bucket, epoch)| taken[bucket] > *epoch), "each under a new epoch");
    // Asked before it wakes up, so that it is among the first things it does.
    member.ask().await;
    member.signal("-CONT").await;
    let after = member.answer().await;
    for (bucket, epoch) in &after {
        // It may have come back by now, as a newcomer, and been given its share.
        assert!(*epoch > taken[bucket], "bucket {bucket} of epoch {epoch} was somebody else's");
    }
    let again = shared(&mut member, &owned).await;
    assert!(again.iter().all(|(bucket, epoch)| *epoch > taken[bucket]));
    running.stop().await.unwrap();
    eventually(DEADLINE, "the member has everything at once", async || member.owned().await.len() == 64)
        .await;
}

/// R24: what a killed node held is taken over once it has lapsed, and not before.
async fn r24_a_killed_node_is_replaced_in_time(database: Database) {
    let leases = leases(&database).await;
    let mut member = Member::join(&database, &[]).await;
    let (running, owned) = join(&leases).await;
    let before = shared(&mut member, &owned).await;
    member.child.kill().await.unwrap();
    let mut left = Vec::new();
    for bucket in before.keys() {
        left.push((*bucket, record(&leases, *bucket).await));
    }
    all_is_mine(&owned).await;
    for (bucket, before) in left {
        let now = record(&leases, bucket).await;
        // The test may have been so slow that it was taken over before it looked.
        assert!(now.acquired_at >= before.expires_at || now.epoch == before.epoch, "bucket {bucket}");
    }
    running.stop().await.unwrap();
}

on_every_database!(
    r24_a_paused_node_owns_nothing_when_it_wakes_up["R24", "R20"],
    r24_a_killed_node_is_replaced_in_time["R24", "R20"],
);

/// MST-008: a node whose clock is wrong has its share, keeps it, and takes nothing from others.
async fn a_skewed_node_is_a_node(database: Database, offset: &str) {
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
    let (running, owned) = join(&leases).await;
    all_is_mine(&owned).await;
    let mut member = Member::join(&database, &environment).await;
    shared(&mut member, &owned).await;
    // Through as many renewals as it takes to be held longer than a lease lasts. A machine that stands still loses it, rightly.
    eventually(DEADLINE, "both keep what they have", async || {
        let theirs = shared(&mut member, &owned).await;
        let mine = owned.borrow().buckets();
        let mut kept = true;
        for (bucket, epoch) in theirs.iter().chain(&mine) {
            let record = record(&leases, *bucket).await;
            let long = record.renewed_at.duration_since(record.acquired_at).as_secs() >= 4;
            kept = kept && record.epoch == *epoch && record.held && long;
        }
        kept
    })
    .await;
    running.stop().await.unwrap();
}

async fn on_postgres(case: &str, offset: &str) {
    const IDS: &[&str] = &["MST-008", "R24"];
    not_applicable(case, IDS, &["sqlite-file", "sqlite-memory"], "own clock");
    recorded(case, IDS, "postgres", a_skewed_node_is_a_node(Database::postgres().await, offset)).await;
    let pooled = a_skewed_node_is_a_node(Database::pgbouncer().await, offset);
    recorded(case, IDS, "postgres-pgbouncer", pooled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mst_008_a_node_whose_clock_is_ahead_is_a_node() {
    on_postgres("mst_008_a_node_whose_clock_is_ahead_is_a_node", "+30m").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mst_008_a_node_whose_clock_is_behind_is_a_node() {
    on_postgres("mst_008_a_node_whose_clock_is_behind_is_a_node", "-30m").await;
}
