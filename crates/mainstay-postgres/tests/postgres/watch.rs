//! What the server counts of its databases, and who may know it.

use mainstay_core::ErrorKind;
use mainstay_core::fleet::{Connect, DatabaseEntry, Mark, Watch};
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::store::{ConnectionGate, Provider};
use mainstay_postgres::{Postgres, PostgresConnector};
use mainstay_tests::{PostgresUrl, TestDatabase, TestPostgres, eventually};

use crate::support::{DEADLINE, database};

fn entry(database: &TestDatabase) -> DatabaseEntry {
    DatabaseEntry::new(database.name(), database.url())
}

fn watch(entry: &DatabaseEntry) -> Box<dyn Watch> {
    PostgresConnector::new().watch(entry).unwrap()
}

async fn read(watch: &mut dyn Watch, entries: &[&DatabaseEntry]) -> Vec<Option<Mark>> {
    watch.read(entries).await.unwrap()
}

/// Adds work as another process does, on a connection of its own.
async fn add(database: &TestDatabase) -> Postgres {
    let postgres = Postgres::builder(&database.url()).pool_size(1).connect().await.unwrap();
    Outbox::new(postgres.outbox()).enqueue(Message::new("t", "x")).await.unwrap();
    postgres
}

/// Waits until what was written before is counted: marks stay as they are.
async fn settled(watch: &mut dyn Watch, entry: &DatabaseEntry) -> Mark {
    let mut before = read(watch, &[entry]).await[0].unwrap();
    // Whoever wrote has ended its session, which counts at once; the server's own chores may follow.
    eventually(DEADLINE, "nothing is written any more", async || {
        let now = read(&mut *watch, &[entry]).await[0].unwrap();
        std::mem::replace(&mut before, now) == now
    })
    .await;
    before
}

#[tokio::test]
async fn a_write_is_seen_and_a_look_is_not() {
    let database = database().await;
    let entry = entry(&database);
    let mut watch = watch(&entry);
    database.client().await.batch_execute("create table public.watched (number int)").await.unwrap();

    // As a keeper looks: with a connection that is opened for it and closed again.
    let gate = ConnectionGate::new(|| {});
    let provider = Postgres::builder(&database.url()).gate(gate).connect().await.unwrap();
    // The server's own chores may fall into one round, but looks would fall into each.
    eventually(DEADLINE, "looks are not seen", async || {
        let before = read(watch.as_mut(), &[&entry]).await[0].unwrap();
        for _ in 0..3 {
            provider.allow_connections(1).await;
            provider.schema().require().await.unwrap();
            provider.agenda().await.unwrap();
            provider.now().await.unwrap();
            provider.allow_connections(0).await;
        }
        settled(watch.as_mut(), &entry).await == before
    })
    .await;
    provider.close().await;
    let before = settled(watch.as_mut(), &entry).await;

    let writer = add(&database).await;
    eventually(DEADLINE, "the write is seen while its connection is open", async || {
        read(watch.as_mut(), &[&entry]).await[0] != Some(before)
    })
    .await;
    writer.close().await;

    // One that has only just counted something else, and says nothing more.
    let before = settled(watch.as_mut(), &entry).await;
    let client = database.client().await;
    client.batch_execute("select count(*) from infra.outbox").await.unwrap();
    client.batch_execute("insert into public.watched values (1)").await.unwrap();
    let now = read(watch.as_mut(), &[&entry]).await[0];
    assert_ne!(now, Some(before), "what is not yet counted is seen by its session");
    drop(client);

    // A change of what is there counts, too.
    let client = database.client().await;
    let before = settled(watch.as_mut(), &entry).await;
    client.batch_execute("update infra.outbox set payload = 'y'").await.unwrap();
    eventually(DEADLINE, "the change is seen", async || {
        read(watch.as_mut(), &[&entry]).await[0] != Some(before)
    })
    .await;
    watch.let_go().await;
}

#[tokio::test]
async fn one_connection_sees_all_databases_of_a_server() {
    let databases = [database().await, database().await, database().await];
    let entries: Vec<_> = databases.iter().map(entry).collect();
    let all: Vec<_> = entries.iter().collect();
    let missing = DatabaseEntry::new(
        "missing",
        PostgresUrl::parse(&databases[0].url()).with_database("nowhere").to_string(),
    );
    assert_eq!(watch(&entries[0]).place(), watch(&entries[1]).place());
    let mut watch = watch(&entries[0]);
    let before = read(watch.as_mut(), &[&all[..], &[&missing]].concat()).await;
    assert_eq!(before.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, true, false]);

    let admin = TestPostgres::admin().await;
    let names: Vec<_> = databases.iter().map(|database| database.name().to_owned()).collect();
    let served = async || -> Vec<String> {
        let query = "select datname::text from pg_stat_activity where datname = any($1) and application_name = 'mainstay fleet'";
        admin.query(query, &[&names]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(served().await, [names[0].clone()], "one connection, to the first of them");
    for database in &databases[1..] {
        let at = names.iter().position(|name| name == database.name()).unwrap();
        let before = read(watch.as_mut(), &all).await[at];
        add(database).await.close().await;
        eventually(DEADLINE, "a write to another database is seen", async || {
            read(watch.as_mut(), &all).await[at] != before
        })
        .await;
    }

    // Once its database has left, the connection is to another one, and keeps nobody from dropping the first.
    read(watch.as_mut(), &all[1..]).await;
    eventually(DEADLINE, "another one is connected to", async || served().await == [names[1].clone()]).await;
    // The same where it was dropped and nobody said so.
    admin.batch_execute(&format!("drop database {} with (force)", names[1])).await.unwrap();
    let read_again = async || watch.read(&all[1..]).await.is_ok_and(|marks| marks[1].is_some());
    eventually(DEADLINE, "a database that is left is connected to", read_again).await;
    watch.let_go().await;
    eventually(DEADLINE, "nobody is connected", async || served().await.is_empty()).await;
}

#[tokio::test]
async fn whoever_may_connect_may_watch() {
    let database = database().await;
    let role = format!("watcher_{}", database.name());
    let admin = TestPostgres::admin().await;
    admin.batch_execute(&format!("create role {role} login password 'watch'")).await.unwrap();
    for url in [database.url(), database.bouncer_url()] {
        let url = PostgresUrl::parse(&url).with_credentials(&role, "watch").to_string();
        let entry = DatabaseEntry::new("a", url);
        let mut watch = watch(&entry);
        let before = settled(watch.as_mut(), &entry).await;
        add(&database).await.close().await;
        eventually(DEADLINE, "the write is seen", async || {
            read(watch.as_mut(), &[&entry]).await[0] != Some(before)
        })
        .await;
        watch.let_go().await;
    }
    admin.batch_execute(&format!("drop role {role}")).await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_count_says_so() {
    let database = database().await;
    let admin = TestPostgres::admin().await;
    let counting = |setting: &str| format!("alter database {} set track_counts = {setting}", database.name());
    admin.batch_execute(&counting("off")).await.unwrap();
    let entry = entry(&database);
    let mut watch = watch(&entry);
    let error = watch.read(&[&entry]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("track_counts"), "{error}");
    admin.batch_execute(&counting("on")).await.unwrap();
    // Of the connection's own settings; the fleet lets go of it after a failure.
    watch.let_go().await;
    assert!(read(watch.as_mut(), &[&entry]).await[0].is_some());
    watch.let_go().await;
}

#[tokio::test]
async fn a_database_that_is_connected_to_otherwise_is_watched_likewise() {
    let database = database().await;
    let entry = entry(&database);
    let connector = PostgresConnector::new().with(|_, builder| builder.ca_certificate("/nowhere.pem"));
    let error = connector.watch(&entry).unwrap().read(&[&entry]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "the connector's settings are used: {error}");
}
