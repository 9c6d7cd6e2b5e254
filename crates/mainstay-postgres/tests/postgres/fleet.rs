//! Many databases of one server under a budget of connections, as the server counts them, and the gate that keeps it.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use mainstay_core::ErrorKind;
use mainstay_core::fleet::DatabaseDiscovery;
use mainstay_core::fleet::{DatabaseEntry, DatabaseList, Fleet, StoreState};
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::Context;
use mainstay_core::store::{ConnectionGate, Names, Provider};
use mainstay_postgres::{Postgres, PostgresConnector, PostgresDiscovery};
use mainstay_tests::{TestDatabase, TestPostgres, eventually};

use tokio::sync::{Semaphore, mpsc};

use crate::support::{DEADLINE, database};

/// The processes of the server that serve clients of these databases.
async fn served(client: &tokio_postgres::Client, databases: &[String]) -> BTreeSet<i32> {
    let query =
        "select pid from pg_stat_activity where datname = any($1) and backend_type = 'client backend'";
    client.query(query, &[&databases]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Connections that have lasted for a while. One that was let go of may be seen for a moment longer: the server has its own pace.
struct Lasting {
    client: tokio_postgres::Client,
    databases: Vec<String>,
    seen: Vec<(Instant, BTreeSet<i32>)>,
}

impl Lasting {
    const WHILE: Duration = Duration::from_millis(700);

    async fn look(&mut self) -> (usize, usize) {
        let (at, now) = (Instant::now(), served(&self.client, &self.databases).await);
        let before = self.seen.iter().rev().find(|(seen, _)| at - *seen >= Self::WHILE);
        let lasted = before.map_or(0, |(_, before)| before.intersection(&now).count());
        let counts = (now.len(), lasted);
        self.seen.push((at, now));
        counts
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_never_sees_more_connections_than_the_budget() {
    const BUDGET: usize = 7;
    let (mut databases, mut entries) = (Vec::new(), Vec::new());
    for number in 0..5 {
        let database = database().await;
        let filling = Postgres::builder(&database.url()).pool_size(1).connect().await.unwrap();
        let messages = (0..120).map(|message| Message::new("t", message.to_string())).collect();
        Outbox::new(filling.outbox()).enqueue_many(messages).await.unwrap();
        filling.close().await;
        entries.push(DatabaseEntry::new(format!("tenant-{number}"), database.url()));
        databases.push(database);
    }
    let names: Vec<String> = databases.iter().map(|database| database.name().to_owned()).collect();
    let client = TestPostgres::admin().await;
    eventually(DEADLINE, "nobody is connected", async || served(&client, &names).await.is_empty()).await;

    let handled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&handled);
    let fleet = Fleet::builder(DatabaseList::new(entries).unwrap(), PostgresConnector::new())
        .options(|options| {
            (options.connections, options.connections_per_store) = (BUDGET, 3);
            (options.share, options.idle) = (Duration::from_millis(300), Duration::from_millis(300));
            (options.poll_min, options.poll_max) = (Duration::from_millis(50), Duration::from_millis(200));
        })
        .each(move |_, mainstay| {
            let count = Arc::clone(&count);
            mainstay.outbox(|outbox| {
                outbox.raw_handler("t", move |_: Context| {
                    let count = Arc::clone(&count);
                    async move {
                        // Work that takes a moment, so that there is something to count meanwhile.
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
        })
        .build()
        .unwrap();
    let running = fleet.start().await.unwrap();
    let mut lasting = Lasting { client, databases: names, seen: Vec::new() };
    let mut most = 0;
    eventually(DEADLINE, "all messages are handled", async || {
        let id = format!("tenant-{}", lasting.seen.len() % 5);
        // The application's own calls are counted too.
        fleet.outbox(&id).unwrap().stats().await.unwrap();
        let (now, lasted) = lasting.look().await;
        most = most.max(now);
        assert!(lasted <= BUDGET, "{lasted} connections");
        assert!(fleet.status().connections.used <= BUDGET);
        handled.load(Ordering::SeqCst) >= 600
    })
    .await;
    assert!(most >= 3, "at most {most} connections were seen, which shows nothing");
    running.stop().await;
    eventually(DEADLINE, "all connections are closed", async || lasting.look().await.0 == 0).await;
    assert_eq!(handled.load(Ordering::SeqCst), 600, "each once");
}

/// Several databases of one server, and how a fleet is told of them.
async fn tenants(count: usize) -> (Vec<TestDatabase>, DatabaseList) {
    let (mut databases, mut entries) = (Vec::new(), Vec::new());
    for number in 0..count {
        let database = database().await;
        entries.push(DatabaseEntry::new(format!("tenant-{number}"), database.url()));
        databases.push(database);
    }
    (databases, DatabaseList::new(entries).unwrap())
}

#[tokio::test]
async fn calls_get_through_to_a_server_that_is_at_its_bound() {
    let (_databases, list) = tenants(2).await;
    let (may_end, (begun, mut begins)) = (Arc::new(Semaphore::new(0)), mpsc::unbounded_channel());
    let gate = Arc::clone(&may_end);
    let fleet = Fleet::builder(list, PostgresConnector::new())
        .options(|options| {
            // One database at work, and one connection for looks and calls.
            options.connections_per_server = Some(4);
            options.share = Duration::from_secs(3_600);
            options.watch = None;
        })
        .each(move |entry, mainstay| {
            let (id, begun, gate) = (entry.id.clone(), begun.clone(), Arc::clone(&gate));
            mainstay.outbox(|outbox| {
                outbox.raw_handler("t", move |_: Context| {
                    // Nobody may be listening any more.
                    let _ = begun.send(id.clone());
                    let gate = Arc::clone(&gate);
                    async move { gate.acquire().await.unwrap().forget() }
                })
            })
        })
        .build()
        .unwrap();
    let running = fleet.start().await.unwrap();
    fleet.outbox("tenant-0").unwrap().enqueue(Message::new("t", "")).await.unwrap();
    assert_eq!(begins.recv().await.unwrap(), "tenant-0");
    let waiting = fleet.outbox("tenant-1").unwrap();
    waiting.enqueue(Message::new("t", "")).await.unwrap();
    eventually(DEADLINE, "it waits for the server", async || {
        fleet.status().store("tenant-1").unwrap().state == StoreState::Waiting
    })
    .await;
    // Who waits for three must not keep those waiting who want the one that is kept.
    let stats = tokio::time::timeout(DEADLINE, waiting.stats()).await.expect("a call that gets through");
    assert_eq!(stats.unwrap().ready, 1);
    may_end.add_permits(2);
    assert_eq!(begins.recv().await.unwrap(), "tenant-1");
    running.stop().await;
    assert_eq!(fleet.status().connections.used, 0);
}

#[tokio::test]
async fn a_call_that_takes_long_is_counted_once() {
    let (databases, list) = tenants(1).await;
    let fleet = Fleet::builder(list, PostgresConnector::new())
        .options(|options| options.watch = None)
        .routes_only()
        .build()
        .unwrap();
    let running = fleet.start().await.unwrap();
    let mut client = databases[0].client().await;
    let locked = client.transaction().await.unwrap();
    locked.batch_execute("lock table infra.outbox in access exclusive mode").await.unwrap();
    let outbox = fleet.outbox("tenant-0").unwrap();
    let long = tokio::spawn(async move { outbox.stats().await });
    let provider = Arc::clone(fleet.mainstay("tenant-0").unwrap().provider());
    eventually(DEADLINE, "it is under way", async || provider.open_connections() == 1).await;
    // Each of these calls opens a connection beside it, and closes it.
    for _ in 0..3 {
        provider.now().await.unwrap();
        eventually(DEADLINE, "only the long one is open", async || {
            provider.open_connections() == 1 && fleet.status().connections.used == 1
        })
        .await;
    }
    locked.rollback().await.unwrap();
    long.await.unwrap().unwrap();
    eventually(DEADLINE, "all are given back", async || fleet.status().connections.used == 0).await;
    running.stop().await;
}

/// A provider behind a gate.
async fn gated(database: &TestDatabase) -> (Postgres, Arc<AtomicUsize>) {
    let wanted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&wanted);
    let gate = ConnectionGate::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let postgres = Postgres::builder(&database.url()).pool_size(2).gate(gate).connect().await.unwrap();
    (postgres, wanted)
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
async fn a_closed_gate_keeps_calls_waiting_and_connections_closed() {
    let database = database().await;
    let (postgres, wanted) = gated(&database).await;
    let names = [database.name().to_owned()];
    let client = TestPostgres::admin().await;
    let calling = {
        let postgres = postgres.clone();
        tokio::spawn(async move { postgres.now().await })
    };
    eventually(DEADLINE, "it is told that somebody waits", async || wanted.load(Ordering::SeqCst) > 0).await;
    assert!(served(&client, &names).await.is_empty(), "nothing was opened");
    postgres.allow_connections(1).await;
    calling.await.unwrap().unwrap();
    // Two at once have to share the one.
    let both = tokio::join!(postgres.now(), postgres.agenda());
    both.0.unwrap();
    both.1.unwrap();
    assert!(served(&client, &names).await.len() <= 1);
    postgres.allow_connections(0).await;
    eventually(DEADLINE, "it is closed", async || served(&client, &names).await.is_empty()).await;
    // And open again.
    postgres.allow_connections(2).await;
    postgres.now().await.unwrap();
    postgres.close().await;
    assert_eq!(postgres.now().await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn dropped_calls_give_their_passes_back() {
    let database = database().await;
    let (postgres, _) = gated(&database).await;
    for polls in 0..60 {
        // Whatever state the gate is in when the call is dropped.
        postgres.allow_connections(polls % 3).await;
        interrupted(polls, postgres.agenda()).await;
    }
    postgres.allow_connections(1).await;
    postgres.now().await.unwrap();
    tokio::time::timeout(DEADLINE, postgres.allow_connections(0)).await.expect("nobody holds a connection");
    let (client, names) = (TestPostgres::admin().await, [database.name().to_owned()]);
    eventually(DEADLINE, "all are closed", async || served(&client, &names).await.is_empty()).await;
    postgres.close().await;
}

#[tokio::test]
async fn a_control_database_tells_of_databases() {
    let database = database().await;
    let control = Postgres::connect(&database.url()).await.unwrap();
    let client = database.client().await;
    client.batch_execute("create table tenants (id text, url text, live bool)").await.unwrap();
    let rows = "insert into tenants values ('a', 'postgres://db/a', true), ('b', 'postgres://db/b', false)";
    client.batch_execute(rows).await.unwrap();
    let discovery =
        PostgresDiscovery::new(control.clone(), "select id, url from tenants where live order by id");
    assert_eq!(discovery.discover().await.unwrap(), [DatabaseEntry::new("a", "postgres://db/a")]);
    client.batch_execute("update tenants set live = true").await.unwrap();
    assert_eq!(discovery.discover().await.unwrap().len(), 2);
    for unfit in ["select id from tenants", "select id, null::text from tenants", "select 1, 2"] {
        let discovery = PostgresDiscovery::new(control.clone(), unfit);
        assert_eq!(discovery.discover().await.unwrap_err().kind(), ErrorKind::Config, "{unfit}");
    }
    // Further columns are known by their names, and one that is not is refused: it may be one that is misspelt.
    let found = async |columns: &str| {
        let query = format!("select 'a', 'postgres://db/a', {columns}");
        PostgresDiscovery::new(control.clone(), query).discover().await
    };
    let entry = || DatabaseEntry::new("a", "postgres://db/a");
    let full = found(
        "'work'::name as schema, 'mail'::varchar as outbox_table, null::text as lease_table, '{\"region\": \"eu\"}'::jsonb as options",
    );
    let names = Names::default().with_schema("work").unwrap().with_outbox("mail").unwrap();
    assert_eq!(full.await.unwrap(), [entry().names(names).option("region", "eu")]);
    let as_text = found("'{\"region\": \"eu\"}' as options, null::json as options").await.unwrap();
    assert_eq!(as_text, [entry().option("region", "eu")]);
    for (unfit, named) in [
        ("'work' as shema", "shema"),
        ("null::text as shema", "shema"),
        ("1 as schema", "schema"),
        ("'' as schema", "schema"),
        ("'x' as no_such_table", "no_such"),
        ("'secret' as options", "options"),
    ] {
        let error = found(unfit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{unfit}: {error}");
        assert!(error.message().contains(named) && !error.to_string().contains("secret"), "{error}");
    }
    let missing = PostgresDiscovery::new(control.clone(), "select id, url from nowhere");
    missing.discover().await.unwrap_err();
    control.close().await;
}
