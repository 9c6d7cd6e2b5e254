//! Deployment: from nothing, by many at once, under any name, by a role with few rights, and as scripts.

use std::process::Stdio;

use mainstay_core::outbox::{Message, MessageFilter, Outbox, Page, Retention};
use mainstay_core::queue::ClaimRequest;
use mainstay_core::store::{Names, Provider, Queue, SchemaStatus, WaitRequest, Wake, render};
use mainstay_core::{ErrorKind, OwnerToken};
use mainstay_postgres::{Postgres, PostgresSchema};
use mainstay_tests::{OwnCluster, PostgresUrl, TestDatabase};
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

use crate::support::{Fixture, database};

/// The version of the schema that this program wants.
const VERSION: i32 = PostgresSchema::VERSION;

/// Runs a script with psql, as a person would.
async fn psql(url: &str, script: &str) -> Result<String, String> {
    let mut child = tokio::process::Command::new("psql")
        .args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "-v",
            "ON_ERROR_STOP=1",
            "--file=-",
            url,
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("psql is there");
    let mut input = child.stdin.take().unwrap();
    input.write_all(script.as_bytes()).await.unwrap();
    drop(input);
    let output = child.wait_with_output().await.unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[tokio::test]
async fn nothing_is_created_unless_asked_for() {
    let database = TestDatabase::create(None).await;
    let postgres = Postgres::connect(&database.url()).await.unwrap();
    assert_eq!(postgres.schema().status().await.unwrap(), SchemaStatus::Missing { wanted: VERSION });
    let error = postgres.schema().require().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("mainstay migrate"), "{error}");
    let error = Outbox::new(postgres.outbox()).stats().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    let client = database.client().await;
    assert!(client.query("select from pg_namespace where nspname = 'infra'", &[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn many_deploy_at_once() {
    let database = TestDatabase::create(None).await;
    let mut deploys = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let url = database.url();
        deploys.spawn(async move {
            let postgres = Postgres::connect(&url).await.unwrap();
            postgres.schema().deploy().await.unwrap()
        });
    }
    while let Some(status) = deploys.join_next().await {
        assert_eq!(status.unwrap(), SchemaStatus::Current { version: VERSION });
    }
    let client = database.client().await;
    let rows = client.query("select version from infra.mainstay_migration order by 1", &[]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), (0..=VERSION).collect::<Vec<_>>());
}

#[tokio::test]
async fn changed_functions_are_replaced_and_old_signatures_go() {
    let fixture = Fixture::new().await;
    let client = fixture.database.client().await;
    // As an older version might have left it: another text, and a function with fewer arguments.
    client
        .batch_execute(
            "update infra.mainstay_migration set checksum = 'old' where version = 0;
             create function infra.outbox_release_key(key text, why integer default null) returns boolean language sql as 'select false';",
        )
        .await
        .unwrap();
    let schema = fixture.postgres.schema();
    assert_eq!(schema.status().await.unwrap(), SchemaStatus::Outdated { found: VERSION, wanted: VERSION });
    assert_eq!(schema.require().await.unwrap_err().kind(), ErrorKind::Schema);
    assert_eq!(schema.deploy().await.unwrap(), SchemaStatus::Current { version: VERSION });
    assert!(!fixture.outbox.release_key("k").await.unwrap());
    let left = "select from pg_proc where proname = 'outbox_release_key'";
    assert_eq!(client.query(left, &[]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_newer_and_a_drifted_schema_are_left_alone() {
    let fixture = Fixture::new().await;
    let client = fixture.database.client().await;
    let schema = fixture.postgres.schema();
    client
        .batch_execute(&format!(
            "insert into infra.mainstay_migration values ('outbox', {0}, 'later', 'x', {0}, now())",
            VERSION + 1
        ))
        .await
        .unwrap();
    assert_eq!(
        schema.status().await.unwrap(),
        SchemaStatus::Newer { found: VERSION + 1, wanted: VERSION, oldest_program: VERSION + 1 }
    );
    assert_eq!(schema.deploy().await.unwrap_err().kind(), ErrorKind::Schema);
    client
        .batch_execute("delete from infra.mainstay_migration where version = 2; update infra.mainstay_migration set checksum = 'x' where version = 1")
        .await
        .unwrap();
    assert!(matches!(schema.status().await.unwrap(), SchemaStatus::Drifted { version: 1, .. }));
    assert_eq!(schema.deploy().await.unwrap_err().kind(), ErrorKind::Schema);
}

#[tokio::test]
async fn functions_of_a_newer_program_are_left_alone() {
    let fixture = Fixture::new().await;
    let client = fixture.database.client().await;
    // As the next release may leave it: another record of the functions, and one more form of a function.
    client
        .batch_execute(&format!(
            "insert into infra.mainstay_migration values ('outbox', {}, 'later', 'x', {VERSION}, now());
             update infra.mainstay_migration set checksum = 'later' where version = 0;
             create function infra.outbox_release_key(key text, why integer) returns boolean language sql as 'select false';",
            VERSION + 1
        ))
        .await
        .unwrap();
    let compatible = SchemaStatus::Compatible { found: VERSION + 1, wanted: VERSION };
    assert_eq!(fixture.postgres.schema().deploy().await.unwrap(), compatible);
    let kept = "select (select checksum from infra.mainstay_migration where version = 0),
                       (select count(*) from pg_proc where proname = 'outbox_release_key')";
    let row = client.query_one(kept, &[]).await.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, i64>(1)), ("later", 2));
    all_operations(&fixture).await;
    drop(client);
    fixture.end().await;
}

#[tokio::test]
async fn a_deploy_that_fails_leaves_nothing_behind() {
    let database = TestDatabase::create(None).await;
    let client = database.client().await;
    // In the way of the functions, which come last.
    client
        .batch_execute("create schema infra; create function infra.outbox_idle(uuid, float8, text[], text[]) returns int language sql as 'select 1'")
        .await
        .unwrap();
    let postgres = Postgres::connect(&database.url()).await.unwrap();
    let error = postgres.schema().deploy().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    assert!(error.message().contains("did not make it"), "{error}");
    assert_eq!(postgres.schema().status().await.unwrap(), SchemaStatus::Missing { wanted: VERSION });
    assert!(client.query("select from pg_class where relname like 'outbox%'", &[]).await.unwrap().is_empty());
    client.batch_execute("drop function infra.outbox_idle").await.unwrap();
    postgres.schema().deploy().await.unwrap();
}

#[tokio::test]
async fn any_name_will_do() {
    let long = "schema-of-forty-bytes-".to_owned() + &"x".repeat(18);
    for (schema, outbox) in [
        (r#"in"fra"; drop schema public; --"#, "out'box; select 1"),
        ("emoji 🦀 schema", "🦀 queue"),
        (long.as_str(), "outbox-of-thirty-six-bytes-xxxxxxxxx"),
        ("Upper Case", "select"),
        ("%s %I", "new\nline \\ back"),
    ] {
        let database = TestDatabase::create(None).await;
        let names = Names::default().with_schema(schema).unwrap().with_outbox(outbox).unwrap();
        let postgres = Postgres::builder(&database.url()).names(names).connect().await.unwrap();
        assert_eq!(
            postgres.schema().deploy().await.unwrap(),
            SchemaStatus::Current { version: VERSION },
            "{schema}"
        );
        postgres.schema().require().await.unwrap();
        let fixture = Fixture::with(database, postgres);
        all_operations(&fixture).await;
        let client = fixture.database.client().await;
        let found = client
            .query(
                "select from information_schema.tables where table_schema = $1 and table_name = $2",
                &[&schema, &outbox],
            )
            .await
            .unwrap();
        assert_eq!(found.len(), 1, "{schema}.{outbox}");
        assert_eq!(
            client.query("select from pg_namespace where nspname = 'public'", &[]).await.unwrap().len(),
            1
        );
        fixture.end().await;
    }
}

#[tokio::test]
async fn a_schema_can_hold_several_outboxes() {
    let first = Fixture::new().await;
    let names = Names::default().with_outbox("second").unwrap();
    let second = Postgres::builder(&first.database.url()).names(names).connect().await.unwrap();
    assert_eq!(second.schema().status().await.unwrap(), SchemaStatus::Missing { wanted: VERSION });
    assert_eq!(second.schema().deploy().await.unwrap(), SchemaStatus::Current { version: VERSION });
    Outbox::new(second.outbox()).enqueue(Message::new("t", "")).await.unwrap();
    assert_eq!(first.open().await, 0);
    all_operations(&first).await;
    first.end().await;
}

#[tokio::test]
async fn what_was_dropped_by_hand_is_noticed_and_functions_come_back() {
    let fixture = Fixture::new().await;
    let client = fixture.database.client().await;
    let schema = fixture.postgres.schema();
    client.batch_execute("drop function infra.outbox_take").await.unwrap();
    assert!(matches!(schema.status().await.unwrap(), SchemaStatus::Outdated { .. }));
    assert_eq!(schema.deploy().await.unwrap(), SchemaStatus::Current { version: VERSION });
    client.batch_execute("drop table infra.outbox_hold").await.unwrap();
    assert_eq!(schema.status().await.unwrap(), SchemaStatus::Incomplete { version: VERSION });
    assert_eq!(schema.deploy().await.unwrap_err().kind(), ErrorKind::Schema);
    drop(client);
    fixture.end().await;
}

#[tokio::test]
async fn tables_without_their_ledger_are_told_and_left_alone() {
    let fixture = Fixture::new().await;
    let client = fixture.database.client().await;
    let schema = fixture.postgres.schema();
    let tables = "drop table infra.outbox, infra.outbox_history, infra.outbox_idempotency, infra.outbox_hold, infra.outbox_waiter cascade";
    for (gone, left) in [
        ("delete from infra.mainstay_migration", "\"outbox_history\""),
        ("drop table infra.mainstay_migration cascade", "\"outbox_history\""),
        // The domains alone would be in the way too.
        (tables, "\"outbox_label\""),
    ] {
        client.batch_execute(gone).await.unwrap();
        let status = schema.status().await.unwrap();
        assert!(matches!(status, SchemaStatus::Unrecorded { wanted: VERSION, .. }), "{gone}: {status:?}");
        for error in [schema.deploy().await.unwrap_err(), schema.require().await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Schema, "{gone}: {error}");
            for told in [left, "\"infra\".mainstay_migration", "--print"] {
                assert!(error.message().contains(told), "{told}: {error}");
            }
        }
    }
    client.batch_execute("drop schema infra cascade").await.unwrap();
    assert_eq!(schema.deploy().await.unwrap(), SchemaStatus::Current { version: VERSION });
    drop(client);
    fixture.end().await;
}

#[tokio::test]
async fn a_name_that_postgresql_keeps_to_itself_is_refused_before_anything_is_asked() {
    let names = Names::default().with_schema("pg_x").unwrap();
    let error =
        Postgres::builder("postgres://nobody@127.0.0.1:1/none").names(names).connect().await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("schema")), "{error}");
}

/// Uses everything an application uses.
pub(crate) async fn all_operations(fixture: &Fixture) {
    let outbox = &fixture.outbox;
    let owner = OwnerToken::new();
    outbox.enqueue(Message::new("t", "p").idempotency_key("i").ordering_key("o")).await.unwrap();
    let many = (0..5).map(|n| Message::new("t", n.to_string()).ordering_key(n.to_string())).collect();
    outbox.enqueue_many(many).await.unwrap();
    let claimed = outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    assert_eq!(claimed.items.len(), 6);
    let handles = claimed.handles();
    outbox.renew(owner, &handles, std::time::Duration::from_secs(30)).await.unwrap();
    assert_eq!(outbox.ack(owner, &handles[..1]).await.unwrap().changed.len(), 1);
    assert_eq!(outbox.abandon(owner, &handles[1..2], None, None).await.unwrap().changed.len(), 1);
    assert_eq!(outbox.release(owner, &handles[2..3], None).await.unwrap().changed.len(), 1);
    assert_eq!(outbox.fail(owner, &handles[3..5], None).await.unwrap().changed.len(), 2);
    let mut tx = fixture.store.begin().await.unwrap();
    let ack =
        mainstay_core::queue::Settlement { claim: handles[5], outcome: mainstay_core::queue::Outcome::Ack };
    assert_eq!(tx.settle(owner, &[ack]).await.unwrap().changed.len(), 1);
    tx.commit().await.unwrap();
    assert_eq!(outbox.requeue(&[handles[3].id()]).await.unwrap().len(), 1);
    assert_eq!(outbox.cancel(&[handles[3].id()]).await.unwrap().len(), 1);
    assert_eq!(outbox.requeue_where(&MessageFilter::all().topic("t"), 1).await.unwrap().len(), 1);
    assert!(!outbox.release_key("o").await.unwrap());
    outbox.reap_expired().await.unwrap();
    assert!(outbox.get(handles[0].id()).await.unwrap().is_some());
    assert_eq!(outbox.list(&MessageFilter::all(), Page::default()).await.unwrap().len(), 6);
    assert_eq!(outbox.stats().await.unwrap().done, 2);
    let all = Retention::default().done(Some(std::time::Duration::ZERO));
    assert_eq!(outbox.purge(&all).await.unwrap(), 2);
    fixture.postgres.now().await.unwrap();
    fixture.postgres.schema().require().await.unwrap();
    // With work due it ends at once, and by then the listener has started.
    let wake = fixture
        .store
        .wait(&WaitRequest::new(owner).timeout(std::time::Duration::from_secs(60)))
        .await
        .unwrap();
    assert_ne!(wake, Wake::TimedOut);
}

#[tokio::test]
async fn a_role_with_the_grants_and_no_more_can_do_everything() {
    let database = database().await;
    let role = format!("app \" {}", Uuid::new_v4().simple());
    let quoted = role.replace('"', "\"\"");
    let admin = database.client().await;
    admin.batch_execute(&format!("create role \"{quoted}\" login password 'pw'")).await.unwrap();
    let owner = Postgres::connect(&database.url()).await.unwrap();

    let encoded = role.replace(' ', "%20").replace('"', "%22");
    let url = PostgresUrl::parse(&database.url()).with_credentials(&encoded, "pw").to_string();
    let postgres = Postgres::connect(&url).await.unwrap();
    let error = Outbox::new(postgres.outbox()).stats().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.message().contains("infra"), "the object is not named: {error}");

    // Twice: running it again changes nothing.
    for _ in 0..2 {
        psql(&database.url(), &owner.grants_script(&role)).await.unwrap();
    }
    let fixture = Fixture::with(database, postgres);
    all_operations(&fixture).await;
    // Deploying what is there already needs no right; anything else does.
    fixture.postgres.schema().deploy().await.unwrap();
    let client = fixture.postgres.pool().get().await.unwrap();
    let error = client.batch_execute("create table infra.mine (id int)").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42501");
    drop(client);
    admin.batch_execute(&format!("drop owned by \"{quoted}\"; drop role \"{quoted}\"")).await.unwrap();
    fixture.end().await;
}

#[tokio::test]
async fn the_script_is_all_a_person_needs() {
    let database = TestDatabase::create(None).await;
    let names = Names::default().with_schema("of \"mine\"").unwrap();
    let postgres = Postgres::builder(&database.url()).names(names).connect().await.unwrap();
    psql(&database.url(), &postgres.schema().script()).await.unwrap();
    postgres.schema().require().await.unwrap();
    let fixture = Fixture::with(database, postgres);
    all_operations(&fixture).await;
    fixture.end().await;
}

#[tokio::test]
async fn every_statement_fits_the_schema() {
    let database = database().await;
    let client = database.client().await;
    let queue = include_str!("../../queries/queue.sql");
    for file in [queue, include_str!("../../queries/joins.sql"), include_str!("../../queries/schema.sql")] {
        for statement in file.split("-- name: ").skip(1) {
            let (name, sql) = statement.split_once('\n').unwrap();
            // A queue that has all of the functions.
            let names = Names::default().of(Queue::Timers);
            let sql = render(sql.split("\n--").next().unwrap(), &names);
            if sql.starts_with("create") {
                // Can't be prepared, and does nothing where it has been done.
                client.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
            } else {
                client.prepare(&sql).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
            }
        }
    }
}

#[tokio::test]
async fn the_sql_tests_pass() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests-sql/outbox.sql");
    let script = std::fs::read_to_string(script).expect("the script is there");
    // On a server of its own: transactions of other tests would hold the horizon back.
    let cluster = OwnCluster::create().await;
    let postgres = Postgres::connect(cluster.url()).await.unwrap();
    postgres.schema().deploy().await.unwrap();
    postgres.close().await;
    psql(cluster.url(), &script).await.unwrap();
}

/// The committed picture of the schema. After a change: `MAINSTAY_WRITE_SCHEMA=1 cargo xtask test -p mainstay-postgres picture`.
#[tokio::test]
async fn the_picture_of_the_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
    let database = database().await;
    let client = database.client().await;
    let rows = client.query(include_str!("picture.sql"), &[]).await.unwrap();
    let mut picture = String::from(
        "-- What the migrations and functions make of an empty database, for reading and for comparing versions. Written by a test.\n",
    );
    for row in rows {
        picture.push_str(row.get(0));
        picture.push('\n');
    }
    if std::env::var_os("MAINSTAY_WRITE_SCHEMA").is_some() {
        std::fs::write(path, &picture).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(committed == picture, "schema.sql is not current; write it anew with MAINSTAY_WRITE_SCHEMA=1");
}
