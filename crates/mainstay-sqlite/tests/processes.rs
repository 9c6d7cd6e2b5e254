//! Several processes on one file, and processes that are killed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::{ClaimRequest, Status};
use mainstay_core::store::Provider;
use mainstay_core::{OwnerToken, WorkItemId};
use mainstay_sqlite::Sqlite;

use support::{PATIENCE, Scratch};

const ROLE: &str = "MAINSTAY_TEST_ROLE";
const FILE: &str = "MAINSTAY_TEST_FILE";

/// A process of this test's program, which runs the test `child` in the given role. Killed when dropped.
struct Process(Child);

impl Process {
    fn start(role: &str, file: &Path) -> (Self, BufReader<ChildStdout>) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env(ROLE, role)
            .env(FILE, file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        (Self(child), output)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Not a test by itself: what the processes of the others do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let (Ok(role), Some(file)) = (std::env::var(ROLE), std::env::var_os(FILE)) else { return };
    let outbox = Outbox::new(Sqlite::open(file).await.unwrap().outbox());
    match role.as_str() {
        "drain" => drain(&outbox).await,
        "churn" => churn(&outbox).await,
        "write" => write(&outbox).await,
        _ => panic!("no such role"),
    }
}

fn say(word: &str, id: WorkItemId) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{word} {id}").and_then(|()| out.flush()).unwrap();
}

/// Claims and acknowledges until nothing is left.
async fn drain(outbox: &Outbox) {
    let owner = OwnerToken::new();
    while outbox.stats().await.unwrap().open() > 0 {
        let batch = outbox.claim(&ClaimRequest::new(owner).batch(5).lease(PATIENCE)).await.unwrap();
        for item in &batch.items {
            say("acked", item.id());
        }
        assert_eq!(outbox.ack(owner, &batch.handles()).await.unwrap().stale, []);
    }
}

/// Enqueues, claims and acknowledges for ever, and says what was done once it is done.
async fn churn(outbox: &Outbox) {
    let worker = |outbox: Outbox| async move {
        let owner = OwnerToken::new();
        for _ in 0..u64::MAX {
            let id = outbox.enqueue(Message::new("t", "x".repeat(500))).await.unwrap().work_item;
            say("added", id);
            let batch = outbox.claim(&ClaimRequest::new(owner).batch(1).lease(PATIENCE)).await.unwrap();
            for id in outbox.ack(owner, &batch.handles()).await.unwrap().changed {
                say("acked", id);
            }
        }
    };
    let workers: Vec<_> = (0..8).map(|_| tokio::spawn(worker(outbox.clone()))).collect();
    for worker in workers {
        worker.await.unwrap();
    }
}

/// How many enqueue at the same time, so that the next transaction is always at hand.
const HOT: usize = 8;

/// Enqueues without a pause. A transaction holds no more than `HOT` messages.
async fn write(outbox: &Outbox) {
    let writer = |outbox: Outbox| async move {
        for _ in 0..u64::MAX {
            let id = outbox.enqueue(Message::new("hot", "")).await.unwrap().work_item;
            say("added", id);
        }
    };
    let writers: Vec<_> = (0..HOT).map(|_| tokio::spawn(writer(outbox.clone()))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

/// What a child said, as word and id.
fn said(line: &str) -> Option<(&str, WorkItemId)> {
    let (word, id) = line.split_once(' ')?;
    Some((word, id.parse().ok()?))
}

#[tokio::test]
async fn processes_share_the_work_and_never_a_message() {
    let scratch = Scratch::new().await;
    let messages = (0..300).map(|n| Message::new("t", n.to_string())).collect();
    let added = scratch.outbox.enqueue_many(messages).await.unwrap();
    let children: Vec<_> = (0..3).map(|_| Process::start("drain", &scratch.path())).collect();
    let mut seen = BTreeSet::new();
    for (mut process, output) in children {
        for line in output.lines() {
            if let Some((_, id)) = said(&line.unwrap()) {
                assert!(seen.insert(id), "{id} was claimed twice");
            }
        }
        assert!(process.0.wait().unwrap().success());
    }
    assert_eq!(seen, added.iter().map(|message| message.work_item).collect());
    assert_eq!(scratch.outbox.stats().await.unwrap().done, 300);
}

#[tokio::test]
async fn a_killed_process_loses_nothing_it_acknowledged() {
    let scratch = Scratch::new().await;
    for round in 0..5 {
        let (mut process, output) = Process::start("churn", &scratch.path());
        let (mut added, mut acked) = (Vec::new(), BTreeSet::new());
        for line in output.lines() {
            // The last line may be cut off by the kill.
            let Ok(line) = line else { break };
            match said(&line) {
                Some(("added", id)) => added.push(id),
                Some(("acked", id)) => drop(acked.insert(id)),
                _ => {}
            }
            if added.len() == 100 + round * 37 {
                // SIGKILL, in the midst of its writes; what it still said is read to the end.
                process.0.kill().unwrap();
            }
        }
        process.0.wait().unwrap();
        assert!(added.len() >= 100 && !acked.is_empty());
        for id in added {
            let found = scratch.outbox.get(id).await.unwrap().expect("what was acknowledged is there");
            assert!(!acked.contains(&id) || found.status == Status::Done, "{id} is {}", found.status);
        }
    }
    let check: String = scratch.connect().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

/// Each write is a turn. Counted are the messages that the other process has between two of ours, in the order of the table.
#[tokio::test]
async fn a_single_writer_gets_turns_beside_a_process_that_writes_without_a_pause() {
    const WRITES: usize = 41;
    let scratch = Scratch::new().await;
    let (_hot, output) = Process::start("write", &scratch.path());
    // Its pipe must not fill up.
    let mut lines = output.lines();
    let first = lines.find_map(|line| said(&line.unwrap()).map(|(_, id)| id));
    assert!(first.is_some());
    std::thread::spawn(move || lines.for_each(drop));
    for _ in 0..WRITES {
        scratch.outbox.enqueue(Message::new("single", "")).await.unwrap();
    }
    let connection = scratch.connect();
    let between = "SELECT (SELECT count(*) FROM infra_outbox h WHERE h.topic = 'hot' AND h.seq > own.before AND h.seq < own.seq)
        FROM (SELECT seq, lag(seq) OVER (ORDER BY seq) AS before FROM infra_outbox WHERE topic = 'single') own
        WHERE own.before IS NOT NULL";
    let mut statement = connection.prepare(between).unwrap();
    let turns = statement.query_map([], |row| row.get::<_, i64>(0)).unwrap();
    let mut turns: Vec<i64> = turns.map(Result::unwrap).collect();
    turns.sort_unstable();
    assert_eq!(turns.len(), WRITES - 1);
    let most = 5 * i64::try_from(HOT).unwrap();
    // Without turns, the one has hundreds and then the other. The median, since the machine may stop either for any time.
    let median = turns[turns.len() / 2];
    assert!((1..=most).contains(&median), "messages of the other process for each of ours: {turns:?}");
}
