//! The schema as it is committed, as it is scripted and as it is deployed are one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use mainstay_core::ErrorKind;
use mainstay_core::store::{Names, Provider, SchemaStatus};
use mainstay_sqlite::Sqlite;

use support::Scratch;

fn objects(connection: &rusqlite::Connection) -> String {
    let mut statement = connection
        .prepare(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY name",
        )
        .unwrap();
    let all = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    all.map(|sql| format!("{};\n", sql.unwrap())).collect::<Vec<_>>().join("\n")
}

const VERSION: i32 = mainstay_sqlite::MIGRATIONS[mainstay_sqlite::MIGRATIONS.len() - 1].version;

#[tokio::test]
async fn the_committed_schema_is_up_to_date() {
    let scratch = Scratch::new().await;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
    let header = "-- The migrated schema under the default names, for reading. Made by the tests with UPDATE_SCHEMA=1.\n\n";
    let found = format!("{header}{}", objects(&scratch.connect()));
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(file, &found).unwrap();
    }
    let committed = std::fs::read_to_string(file).unwrap_or_default().replace("\r\n", "\n");
    assert!(committed == found, "schema.sql is out of date; run this test with UPDATE_SCHEMA=1");
}

#[tokio::test]
async fn the_script_deploys_the_same() {
    let scratch = Scratch::new().await;
    let other = scratch.directory.path().join("scripted.db");
    let connection = rusqlite::Connection::open(&other).unwrap();
    connection.execute_batch(&scratch.sqlite.schema().script()).unwrap();
    assert_eq!(objects(&connection), objects(&scratch.connect()));
    let sqlite = Sqlite::open(&other).await.unwrap();
    assert!(matches!(sqlite.schema().status().await.unwrap(), SchemaStatus::Current { .. }));
}

/// Otherwise `PRAGMA integrity_check` of SQLite 3.40, which is what a distribution has, raises a false alarm.
#[tokio::test]
async fn tables_without_rowids_begin_with_their_keys() {
    let scratch = Scratch::new().await;
    let connection = scratch.connect();
    let mut tables =
        connection.prepare("SELECT name FROM pragma_table_list WHERE wr = 1 AND schema = 'main'").unwrap();
    let tables: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(tables.len() > 5, "{tables:?}");
    for table in tables {
        let mut columns = connection.prepare("SELECT pk FROM pragma_table_info(?1) ORDER BY cid").unwrap();
        let keys: Vec<i64> =
            columns.query_map([&table], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let count = keys.iter().filter(|key| **key > 0).count();
        assert_eq!(keys[..count], (1..=count as i64).collect::<Vec<_>>(), "{table}");
    }
}

#[tokio::test]
async fn a_step_that_was_edited_by_hand_is_noticed() {
    let scratch = Scratch::new().await;
    scratch.connect().execute("UPDATE infra_mainstay_migration SET checksum = 'x'", []).unwrap();
    assert!(matches!(
        scratch.sqlite.schema().status().await.unwrap(),
        SchemaStatus::Drifted { version: 1, .. }
    ));
    assert!(scratch.sqlite.schema().deploy().await.is_err());
}

#[tokio::test]
async fn a_table_that_was_dropped_by_hand_is_noticed() {
    let scratch = Scratch::new().await;
    scratch.connect().execute_batch("DROP TABLE infra_outbox_hold").unwrap();
    let schema = scratch.sqlite.schema();
    assert_eq!(schema.status().await.unwrap(), SchemaStatus::Incomplete { version: VERSION });
    assert!(schema.deploy().await.unwrap_err().to_string().contains("are gone"));
    assert!(schema.require().await.is_err());
}

#[tokio::test]
async fn tables_without_their_ledger_are_told_and_left_alone() {
    for gone in ["DROP TABLE infra_mainstay_migration", "DELETE FROM infra_mainstay_migration"] {
        let scratch = Scratch::new().await;
        scratch.connect().execute_batch(gone).unwrap();
        let before = objects(&scratch.connect());
        let schema = scratch.sqlite.schema();
        let status = schema.status().await.unwrap();
        assert!(matches!(status, SchemaStatus::Unrecorded { wanted: VERSION, .. }), "{gone}: {status:?}");
        for error in [schema.deploy().await.unwrap_err(), schema.require().await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Schema, "{gone}: {error}");
            for told in ["infra_outbox,", "infra_mainstay_migration", "--print"] {
                assert!(error.message().contains(told), "{told}: {error}");
            }
        }
        assert_eq!(objects(&scratch.connect()), before, "nothing was made on the way");
    }
}

#[tokio::test]
async fn a_name_that_sqlite_keeps_to_itself_is_refused_by_its_field() {
    let scratch = Scratch::new().await;
    for name in ["sqlite", "sqlite_x", "SQLite_x"] {
        let names = Names::default().with_schema(name).unwrap();
        let schema = scratch.sqlite.with_names(names).schema();
        for error in [schema.deploy().await.unwrap_err(), schema.status().await.unwrap_err()] {
            assert_eq!(
                (error.kind(), error.field()),
                (ErrorKind::InvalidArgument, Some("schema")),
                "{error}"
            );
            assert!(error.message().contains(name), "{error}");
        }
    }
    let names = Names::default().with_schema("sqlites").unwrap();
    scratch.sqlite.with_names(names).schema().deploy().await.unwrap();
}

#[tokio::test]
async fn names_that_collide_are_refused_when_it_is_opened() {
    let names = Names::default;
    for (names, field) in [
        (names().with_timers("outbox").unwrap(), "timers table"),
        (names().with_timers("OUTBOX").unwrap(), "timers table"),
        (names().with_lease("Timers").unwrap(), "lease table"),
        (names().with_lease("outbox_history").unwrap(), "lease table"),
        (names().with_jobs("outbox_Lane").unwrap(), "jobs table"),
        (names().with_inbox("Mainstay_Migration").unwrap(), "inbox table"),
    ] {
        let error = Sqlite::memory_builder().names(names).open().await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)), "{error}");
    }
    Sqlite::memory_builder().names(names().with_outbox("mail").unwrap()).open().await.unwrap();
}

#[tokio::test]
async fn something_else_in_the_way_is_told() {
    let scratch = Scratch::new().await;
    scratch.connect().execute_batch("CREATE TABLE other_outbox_lane (x)").unwrap();
    let schema = scratch.sqlite.with_names(Names::default().with_schema("other").unwrap()).schema();
    let error = schema.deploy().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    assert!(error.message().contains("other_outbox_lane"), "{error}");
}
