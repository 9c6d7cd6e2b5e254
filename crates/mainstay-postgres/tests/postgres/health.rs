//! What the health checks cost on large tables: looked up in the database's own books.

use std::sync::Arc;

use mainstay_core::health::{Health, HealthStatus, Patience, Probe, SEEN_AT_MOST};
use mainstay_core::store::{Names, Provider, Queue, render};
use mainstay_postgres::Postgres;
use mainstay_tests::TestDatabase;

use crate::support::database;

const LOOK: &str = include_str!("../../queries/look.sql");
const QUERIES: &str = include_str!("../../queries/health.sql");

/// A statement of the file with these in the place of its parameters.
fn statement(name: &str, parameters: &[&str]) -> String {
    let (_, rest) = QUERIES.split_once(&format!("-- name: {name}\n")).unwrap();
    let sql = rest[..rest.find("\n--").unwrap_or(rest.len())].trim();
    let names = Names::default().of(Queue::Outbox);
    let filled = |sql: String, (at, value): (usize, &&str)| sql.replace(&format!("${}", at + 1), value);
    parameters.iter().enumerate().fold(render(sql, &names), filled)
}

/// Rows that the statement read from tables from end to end, and those it found by an index.
async fn reads(database: &TestDatabase, statement: &str) -> Vec<(String, i64, i64)> {
    // A connection of its own, because these counts begin with the connection.
    let client = database.client().await;
    let select = "select relname::text, coalesce(seq_tup_read, 0), coalesce(idx_tup_fetch, 0)
        from pg_stat_xact_all_tables where schemaname = 'infra'";
    client.batch_execute(LOOK).await.unwrap();
    client.batch_execute(statement).await.unwrap();
    let rows = client.query(select, &[]).await.unwrap();
    client.batch_execute("rollback").await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[tokio::test]
async fn a_look_at_100_000_rows_walks_the_front_only() {
    let database = database().await;
    let client = database.client().await;
    client
        .batch_execute(
            "insert into infra.outbox (created_at, due_at, id, message_id, topic, payload, ordering_key, priority)
             select now(), now() - make_interval(secs => n), gen_random_uuid(), gen_random_uuid(), 't', '',
                    case when n % 7 = 0 then 'key-' || n % 1000 end, n % 3 - 1
               from generate_series(1, 100000) n;
             insert into infra.outbox_history (seq, created_at, due_at, processed_at, generation, attempts, priority, status, id, message_id,
                    processed_by, hold_on_failure, topic, reason, payload)
             select n, now(), now(), now() - make_interval(secs => n), 1, 1, 0, 2 + n % 2, gen_random_uuid(), gen_random_uuid(),
                    gen_random_uuid(), false, 't', case when n % 2 = 1 then 'handler' end, ''
               from generate_series(1, 100000) n;
             insert into infra.jobs (name, topic, cron, next_nominal_at)
             select 'job-' || n, 't', '@daily', now() - make_interval(secs => n) from generate_series(1, 20000) n;",
        )
        .await
        .unwrap();
    let most = SEEN_AT_MOST.to_string();
    for analysed in [false, true] {
        if analysed {
            client.batch_execute("analyze").await.unwrap();
        }
        let statements = [statement("work", &["300", "120", &most]), statement("schedule", &["300", &most])];
        for statement in statements {
            for (table, walked, found) in reads(&database, &statement).await {
                assert!(walked <= 10, "{table}: {walked} rows read from end to end, analysed: {analysed}");
                // Of three priorities so many each, and for those with a key a look at who is ahead.
                assert!(found <= 4 * 1_000, "{table}: {found} rows found by an index, analysed: {analysed}");
            }
        }
    }
    let postgres = Postgres::connect(&database.url()).await.unwrap();
    let seen = postgres.health().work(Queue::Outbox, &Patience::none()).await.unwrap();
    // Counts are cut, ages are not.
    assert!(seen.overdue > 2_000 && seen.overdue <= 3_000, "{seen:?}");
    assert!(seen.oldest_due.unwrap().as_secs() >= 99_990, "{seen:?}");
    assert_eq!((seen.stuck, seen.busy, seen.idle), (0, 0, Some(0)));
    assert!(seen.last_settled.unwrap().as_secs() < 3_600, "{seen:?}");
}

#[tokio::test]
async fn a_doctor_sees_who_holds_a_transaction_open_and_not_what_it_says() {
    let database = database().await;
    let client = database.client().await;
    client.batch_execute("set application_name = 'nightly report'; begin; select 'a secret'").await.unwrap();
    let postgres = Postgres::connect(&database.url()).await.unwrap();
    let seen = postgres.diagnosis().unwrap().transactions().await.unwrap().unwrap();
    let holders: Vec<_> = seen.oldest.iter().map(|open| open.holder.as_str()).collect();
    assert!(holders[0].contains("application nightly report") && holders[0].contains("pid "), "{holders:?}");
    assert!(!holders[0].contains("secret") && holders[0].contains("idle in transaction"), "{holders:?}");
    client.batch_execute("rollback").await.unwrap();
    let seen = postgres.diagnosis().unwrap().transactions().await.unwrap().unwrap();
    assert!(seen.oldest.iter().all(|open| !open.holder.contains("nightly report")), "{seen:?}");
}

#[tokio::test]
async fn a_doctor_sees_dead_rows_and_indexes_that_are_not_valid() {
    let database = database().await;
    let client = database.client().await;
    let postgres = Arc::new(Postgres::connect(&database.url()).await.unwrap());
    let health = Health::new(Arc::clone(&postgres) as Arc<dyn Provider>);
    let report = health.check(Probe::Doctor).await;
    for check in ["storage", "indexes"] {
        assert_eq!(report.check(check).unwrap().status, HealthStatus::Healthy, "{report:#?}");
    }
    client
        .batch_execute(
            "alter table infra.jobs set (autovacuum_enabled = false);
             insert into infra.jobs (name, topic, cron) select 'job-' || n, 't', '@daily' from generate_series(1, 1000) n;
             delete from infra.jobs;
             select pg_stat_force_next_flush();
             update pg_index set indisvalid = false where indexrelid = 'infra.jobs_due'::regclass",
        )
        .await
        .unwrap();
    let seen = postgres.diagnosis().unwrap().storage().await.unwrap();
    let jobs = seen.tables.iter().find(|table| table.name == "jobs").unwrap();
    assert_eq!((jobs.live, jobs.dead, jobs.vacuumed), (0, 1_000, None), "{jobs:?}");
    assert_eq!(seen.tables[0].name, "jobs", "most dead rows come first");
    let report = health.check(Probe::Doctor).await;
    let indexes = report.check("indexes").unwrap();
    assert_eq!(indexes.status, HealthStatus::Degraded);
    assert!(indexes.summary.ends_with("jobs_due"), "{indexes:?}");
}
