//! Programs of two releases on one database: the worker of a pinned earlier commit beside this tree's.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
mod support;

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use mainstay::ErrorKind;
use mainstay::outbox::{Message, Outbox};
use mainstay::store::SchemaStatus;
use mainstay_tests::eventually;
use support::{Database, Worker};

const DEADLINE: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn sqlite() {
    on(Database::empty_sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres() {
    on(Database::empty_postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pgbouncer() {
    on(Database::empty_pgbouncer().await).await;
}

/// Not a case of the conformance report: a shallow clone, which does not have the pinned commit, can't run it.
async fn on(database: Database) {
    match std::env::var_os("MAINSTAY_TEST_PINNED_WORKER").map(PathBuf::from) {
        Some(program) => overlap(Old { program, database }).await,
        None => eprintln!("not run: the clone does not have the pinned commit"),
    }
}

/// The worker of the pinned commit, and the database.
struct Old {
    program: PathBuf,
    database: Database,
}

impl Old {
    fn spawn(&self, arguments: &[&str]) -> Worker {
        Worker::spawn_program(&self.program, &self.database, arguments, &[])
    }

    async fn start(&self) -> Worker {
        let mut worker = self.spawn(&[]);
        worker.line("ready").await;
        worker
    }

    async fn run(&self, arguments: &[&str]) {
        assert!(self.spawn(arguments).succeeded().await, "the old program failed with {arguments:?}");
    }
}

/// An upgrade under load, one process at a time, and the way back.
async fn overlap(old: Old) {
    let database = &old.database;
    old.run(&["--deploy"]).await;
    mainstay_e2e::create_effects(database.url()).await.unwrap();
    let routines = database.routines().await;

    // The new program does not start on the old schema, and says what to do.
    let provider = mainstay_e2e::open(database.url()).await.unwrap();
    let schema = provider.schema();
    let SchemaStatus::Outdated { found, wanted } = schema.status().await.unwrap() else {
        panic!("the pinned commit has the schema of this tree: move tests/e2e/pinned-commit");
    };
    assert_eq!(found + 1, wanted, "the pinned commit is one release back");
    let error = schema.require().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.message().contains("mainstay migrate"), "{error}");
    assert!(!Worker::spawn(database, &[], &[]).succeeded().await);

    let (first, second) = (old.start().await, old.start().await);
    old.run(&["--send", "400"]).await;
    let outbox = Outbox::new(provider.outbox());
    let done = async |count: u64| {
        let reached = async || outbox.stats().await.is_ok_and(|stats| stats.done >= count);
        eventually(DEADLINE, "more messages are done", reached).await;
    };
    done(40).await;

    // Migrated beneath the old workers, which go on.
    assert_eq!(schema.deploy().await.unwrap(), SchemaStatus::Current { version: wanted });
    assert_routines_kept(&routines, &database.routines().await);
    let mut new = Worker::start(database, &[]).await;
    let messages = (0..200).map(|n| Message::new("record", n.to_string())).collect();
    outbox.enqueue_many(messages).await.unwrap();
    done(160).await;

    // An old process dies and comes back, deploying at its start as many do; the schema stays the newer one.
    first.kill().await;
    old.run(&["--deploy"]).await;
    assert_eq!(schema.status().await.unwrap(), SchemaStatus::Current { version: wanted });
    let third = old.start().await;
    old.run(&["--send", "200"]).await;
    done(500).await;

    // Rolled back: old programs alone.
    new.stop().await;
    done(800).await;
    old.run(&["--send", "100"]).await;
    done(900).await;
    second.stop().await;
    third.stop().await;

    // Rolled forward again.
    new = Worker::start(database, &[]).await;
    old.run(&["--send", "20"]).await;
    done(920).await;
    new.stop().await;

    let stats = outbox.stats().await.unwrap();
    assert_eq!((stats.open(), stats.done, stats.failed), (0, 920, 0));
    let effects = mainstay_e2e::effects(database.url()).await.unwrap();
    let distinct: HashSet<&String> = effects.iter().collect();
    assert_eq!((effects.len(), distinct.len()), (920, 920), "an effect was lost or doubled");
}

/// A routine as a caller sees it.
#[derive(Debug)]
struct Routine {
    name: String,
    /// The types of its arguments, in order.
    arguments: Vec<String>,
    /// How many of them must be given.
    required: usize,
    result: String,
}

impl Database {
    /// The functions of the schema; none on SQLite.
    async fn routines(&self) -> Vec<Routine> {
        let url = self.direct_url();
        if url.starts_with("sqlite:") {
            return Vec::new();
        }
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let select =
            "select p.proname::text, array(select format_type(t, null) from unnest(p.proargtypes) t)::text[],
                             (p.pronargs - p.pronargdefaults)::int, pg_get_function_result(p.oid)
                        from pg_proc p where p.pronamespace = 'infra'::regnamespace";
        let rows = client.query(select, &[]).await.unwrap();
        let routine = |row: &tokio_postgres::Row| Routine {
            name: row.get(0),
            arguments: row.get(1),
            required: usize::try_from(row.get::<_, i32>(2)).unwrap(),
            // A trigger's function has none that a caller sees.
            result: row.get::<_, Option<String>>(3).unwrap_or_default(),
        };
        rows.iter().map(routine).collect()
    }
}

/// Every call of an old routine still resolves, and returns what it returned.
fn assert_routines_kept(before: &[Routine], after: &[Routine]) {
    for old in before {
        let is_kept = after.iter().any(|new| {
            new.name == old.name
                && new.arguments.starts_with(&old.arguments)
                && new.required <= old.required
                && new.result == old.result
        });
        assert!(is_kept, "programs of the previous release call {old:?}");
    }
}
