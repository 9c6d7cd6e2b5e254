//! Files of a fleet: the gate that says how many connections there are, how files are told of, and what the fleet tells of itself.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::fleet::{DatabaseDiscovery, DatabaseEntry, DatabaseFile, DatabaseList, Fleet, StoreState};
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::Context;
use mainstay_core::store::{ConnectionGate, Names, Provider};
use mainstay_sqlite::{Sqlite, SqliteConnector, SqliteDiscovery};
use mainstay_tests::eventually;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use support::{PATIENCE, Scratch};

/// A database behind a gate, in a file that was deployed; and how often somebody found the gate closed.
async fn gated(scratch: &Scratch) -> (Sqlite, Arc<AtomicUsize>) {
    scratch.sqlite.close().await;
    let wanted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&wanted);
    let gate = ConnectionGate::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let sqlite = Sqlite::builder(scratch.path()).create_missing(false).gate(gate).open().await.unwrap();
    (sqlite, wanted)
}

/// The connections to a file that this process has, as the system counts them.
fn descriptors(path: &Path) -> BTreeSet<OsString> {
    let path = path.canonicalize().unwrap();
    let files = std::fs::read_dir("/proc/self/fd").unwrap().map(Result::unwrap);
    let ours = files.filter(|file| std::fs::read_link(file.path()).is_ok_and(|link| link == path));
    ours.map(|file| file.file_name()).collect()
}

fn connections(path: &Path) -> usize {
    descriptors(path).len()
}

#[tokio::test]
async fn a_closed_gate_keeps_calls_waiting_and_the_file_closed() {
    let scratch = Scratch::new().await;
    let (sqlite, wanted) = gated(&scratch).await;
    let path = scratch.path();
    let calling = {
        let sqlite = sqlite.clone();
        tokio::spawn(async move { sqlite.now().await })
    };
    eventually(PATIENCE, "it is told that somebody waits", async || wanted.load(Ordering::SeqCst) > 0).await;
    assert_eq!(connections(&path), 0, "nothing was opened");
    sqlite.allow_connections(1).await;
    calling.await.unwrap().unwrap();
    // What reads and what writes have to share the one.
    let outbox = Outbox::new(sqlite.outbox());
    let (added, agenda) = tokio::join!(outbox.enqueue(Message::new("t", "1")), sqlite.agenda());
    added.unwrap();
    agenda.unwrap();
    assert_eq!(connections(&path), 1);
    sqlite.allow_connections(0).await;
    assert_eq!(connections(&path), 0, "closed when it says so");
    // And open again, with one for reading.
    sqlite.allow_connections(3).await;
    assert_eq!(outbox.stats().await.unwrap().open(), 1);
    assert!((2..=3).contains(&connections(&path)), "{}", connections(&path));
    sqlite.close().await;
    assert_eq!(connections(&path), 0);
    assert_eq!(sqlite.now().await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_look_at_a_file_that_rests_leaves_nothing_open() {
    let scratch = Scratch::new().await;
    let (sqlite, _) = gated(&scratch).await;
    for _ in 0..3 {
        sqlite.allow_connections(1).await;
        assert_eq!(sqlite.agenda().await.unwrap().outbox, None);
        assert_eq!(connections(&scratch.path()), 0);
        sqlite.allow_connections(0).await;
    }
    sqlite.close().await;
}

/// Polls a future so many times, and drops it.
async fn interrupted<F: Future>(polls: usize, future: F) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let done =
            std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await;
        if done {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn dropped_calls_hold_no_connection() {
    let scratch = Scratch::new().await;
    let (sqlite, _) = gated(&scratch).await;
    let outbox = Outbox::new(sqlite.outbox());
    for polls in 0..60 {
        // Whatever state the gate is in when the call is dropped.
        sqlite.allow_connections(polls % 4).await;
        interrupted(polls, outbox.enqueue(Message::new("t", "1"))).await;
        interrupted(polls, outbox.stats()).await;
    }
    sqlite.allow_connections(1).await;
    sqlite.now().await.unwrap();
    tokio::time::timeout(PATIENCE, sqlite.allow_connections(0)).await.expect("nobody holds a connection");
    // Also what a call had just begun to open when it was dropped.
    assert_eq!(connections(&scratch.path()), 0);
    sqlite.close().await;
}

#[tokio::test]
async fn a_file_that_is_missing_is_not_made_and_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gone.db");
    let databases = DatabaseList::new([DatabaseEntry::new("gone", path.display().to_string())]).unwrap();
    let fleet = Fleet::builder(databases, SqliteConnector::new())
        .each(|_, mainstay| mainstay.deploy_schema(true))
        .build()
        .unwrap();
    let running = fleet.start().await.unwrap();
    let error = || fleet.status().store("gone").and_then(|store| store.last_error.clone());
    eventually(PATIENCE, "it has failed", async || error().is_some()).await;
    let error = error().unwrap();
    for part in ["gone.db", "is not there", "deploy"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!path.exists());
    fleet.deploy(1).await.remove(0).result.unwrap();
    let state = || fleet.status().store("gone").cloned().unwrap();
    eventually(PATIENCE, "it is well", async || state().failures == 0).await;
    running.stop().await;
}

#[tokio::test]
async fn a_control_database_tells_of_files() {
    let scratch = Scratch::new().await;
    let control = scratch.connect();
    control.execute_batch("create table tenants (id, path, live)").unwrap();
    control
        .execute_batch("insert into tenants values ('a', '/data/a.db', 1), ('b', '/data/b.db', 0)")
        .unwrap();
    let query = "select id, path from tenants where live order by id";
    let discovery = SqliteDiscovery::new(scratch.sqlite.clone(), query);
    assert_eq!(discovery.discover().await.unwrap(), [DatabaseEntry::new("a", "/data/a.db")]);
    control.execute_batch("update tenants set live = 1").unwrap();
    assert_eq!(discovery.discover().await.unwrap().len(), 2, "asked anew");
    for unfit in ["select id from tenants", "select id, null from tenants", "select 1, 2"] {
        let discovery = SqliteDiscovery::new(scratch.sqlite.clone(), unfit);
        assert_eq!(discovery.discover().await.unwrap_err().kind(), ErrorKind::Config, "{unfit}");
    }
    // Further columns are known by their names, and one that is not is refused: it may be one that is misspelt.
    let found = async |columns: &str| {
        let query = format!("select 'a', '/data/a.db', {columns}");
        SqliteDiscovery::new(scratch.sqlite.clone(), query).discover().await
    };
    let full =
        "'work' as schema, 'mail' as outbox_table, null as lease_table, '{\"region\": \"eu\"}' as options";
    let names = Names::default().with_schema("work").unwrap().with_outbox("mail").unwrap();
    let entry = DatabaseEntry::new("a", "/data/a.db").names(names).option("region", "eu");
    assert_eq!(found(full).await.unwrap(), [entry]);
    for (unfit, named) in [
        ("'work' as shema", "shema"),
        ("null as shema", "shema"),
        ("1 as schema", "schema"),
        ("'secret' as options", "options"),
    ] {
        let error = found(unfit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{unfit}: {error}");
        assert!(error.message().contains(named) && !error.to_string().contains("secret"), "{error}");
    }
    let missing = SqliteDiscovery::new(scratch.sqlite.clone(), "select id, path from nowhere");
    missing.discover().await.unwrap_err();
}

/// Makes a file with Mainstay's tables.
async fn make(path: &Path) -> String {
    let sqlite = Sqlite::open(path).await.unwrap();
    sqlite.schema().deploy().await.unwrap();
    sqlite.close().await;
    path.display().to_string()
}

#[test]
fn a_file_tells_of_schemas_tables_and_options() {
    let directory = tempfile::tempdir().unwrap();
    let names = Names::default().with_schema("work").unwrap().with_outbox("mail").unwrap();
    let wanted = DatabaseEntry::new("a", "/data/a.db").names(names).option("region", "eu");
    let toml = "[[databases]]\nid = 'a'\nurl = '/data/a.db'\nschema = 'work'\noutbox_table = 'mail'\noptions = { region = 'eu' }";
    let json = r#"{"databases": [{"id": "a", "url": "/data/a.db", "schema": "work", "outbox_table": "mail", "options": {"region": "eu"}}]}"#;
    let nothing = directory.path().join("nothing.json");
    std::fs::write(
        &nothing,
        r#"{"databases": [{"id": "a", "url": "/data/a.db", "schema": null, "outbox_table": null}]}"#,
    )
    .unwrap();
    assert_eq!(DatabaseFile::new(&nothing).read().unwrap(), [DatabaseEntry::new("a", "/data/a.db")]);
    for (file, text) in [("fleet.toml", toml), ("fleet.json", json)] {
        let path = directory.path().join(file);
        std::fs::write(&path, text).unwrap();
        assert_eq!(DatabaseFile::new(&path).read().unwrap(), std::slice::from_ref(&wanted), "{file}");
        for (known, unknown) in
            [("schema", "shema"), ("outbox_table", "nobox_table"), ("databases", "database")]
        {
            std::fs::write(&path, text.replace(known, unknown)).unwrap();
            let error = DatabaseFile::new(&path).read().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            assert!(error.message().contains(file), "{error}");
        }
    }
}

#[tokio::test]
async fn a_list_in_a_file_is_read_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (make(&directory.path().join("a.db")).await, make(&directory.path().join("b.db")).await);
    let list = directory.path().join("fleet.toml");
    let line = |id: &str, url: &str| format!("[[databases]]\nid = {id:?}\nurl = {url:?}\n");
    std::fs::write(&list, line("a", &a)).unwrap();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let fleet = Fleet::builder(DatabaseFile::new(&list), SqliteConnector::new())
        .each(move |entry, mainstay| {
            let (id, tell) = (entry.id.clone(), tell.clone());
            mainstay.outbox(|outbox| {
                outbox.raw_handler("t", move |_: Context| {
                    tell.send(id.clone()).unwrap();
                    std::future::ready(())
                })
            })
        })
        .build()
        .unwrap();
    let running = fleet.start().await.unwrap();
    assert_eq!(fleet.ids(), ["a"]);
    std::fs::write(&list, line("a", &a) + &line("b", &b)).unwrap();
    assert_eq!(fleet.refresh().await.unwrap().added, ["b"]);
    fleet.outbox("b").unwrap().enqueue(Message::new("t", "1")).await.unwrap();
    assert_eq!(told.recv().await.as_deref(), Some("b"));
    // A list that is being written, or is not there, changes nothing.
    std::fs::write(&list, "[[databases]]\nid = ").unwrap();
    assert_eq!(fleet.refresh().await.unwrap_err().kind(), ErrorKind::Config);
    std::fs::remove_file(&list).unwrap();
    assert_eq!(fleet.refresh().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(fleet.ids(), ["a", "b"]);
    assert!(fleet.status().refresh_error.is_some());
    std::fs::write(&list, line("b", &b)).unwrap();
    assert_eq!(fleet.refresh().await.unwrap().removed, ["a"]);
    assert_eq!(fleet.outbox("a").unwrap_err().kind(), ErrorKind::NotFound);
    running.stop().await;
}

#[tokio::test]
async fn a_fleet_tells_in_gauges_how_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let mut entries = Vec::new();
    for id in ["a", "b"] {
        entries.push(DatabaseEntry::new(id, make(&directory.path().join(id)).await));
    }
    let missing = directory.path().join("missing").display().to_string();
    entries.push(DatabaseEntry::new("c", missing));
    // Everything runs on this thread.
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let fleet = Fleet::builder(DatabaseList::new(entries).unwrap(), SqliteConnector::new())
        .options(|options| {
            (options.gauges, options.connections) = (Some(Duration::from_millis(20)), 7);
            (options.idle, options.poll_max) = (Duration::from_millis(50), Duration::from_millis(250));
        })
        .build()
        .unwrap();
    let running = fleet.start().await.unwrap();
    let mut seen = BTreeMap::new();
    eventually(PATIENCE, "the gauges tell of all three", async || {
        for (key, _, _, value) in snapshotter.snapshot().into_vec() {
            let (_, key) = key.into_parts();
            let labels = key.labels().map(|label| format!(" {}", label.value())).collect::<String>();
            let name = key.name().strip_prefix("mainstay_fleet_").map(|name| format!("{name}{labels}"));
            match (name, value) {
                (Some(name), DebugValue::Gauge(value)) => drop(seen.insert(name, value.0 as u64)),
                (Some(name), DebugValue::Counter(count)) => *seen.entry(name).or_insert(0) += count,
                _ => {}
            }
        }
        let is = |name: &str, value: u64| seen.get(name) == Some(&value);
        is("stores fleet", 3)
            && is("stores_by_state fleet cold", 3)
            && is("stores_failing fleet", 1)
            && is("stores_waiting fleet", 0)
            && is("connections_used fleet", 0)
            && is("connections_budget fleet", 7)
            && seen.get("looks_total fleet sqlite").is_some_and(|looks| *looks >= 4)
            && seen.get("failures_total c").is_some_and(|failures| *failures >= 1)
    })
    .await;
    assert_eq!(fleet.status().store("a").unwrap().state, StoreState::Cold);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn looks_and_calls_share_the_one_connection_there_may_be() {
    let scratch = Scratch::new().await;
    let (sqlite, _) = gated(&scratch).await;
    let over = Arc::new(AtomicBool::new(false));
    let watching = {
        let (path, over) = (scratch.path(), Arc::clone(&over));
        std::thread::spawn(move || {
            let mut most = 0;
            while !over.load(Ordering::SeqCst) {
                // Twice, so that one that is closed is not counted together with the next.
                most = most.max(descriptors(&path).intersection(&descriptors(&path)).count());
            }
            most
        })
    };
    for _ in 0..100 {
        sqlite.allow_connections(1).await;
        let calling = {
            let sqlite = sqlite.clone();
            tokio::spawn(async move { sqlite.now().await })
        };
        sqlite.agenda().await.unwrap();
        calling.await.unwrap().unwrap();
        sqlite.allow_connections(0).await;
    }
    over.store(true, Ordering::SeqCst);
    assert_eq!(watching.join().unwrap(), 1);
    sqlite.close().await;
}
