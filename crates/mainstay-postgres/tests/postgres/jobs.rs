//! What jobs cost the outbox, and what they cost themselves: looked up in the database's own books.

use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::job::{JobDefinition, Jobs, RunState};
use mainstay_core::outbox::{Message, Outbox, Retention};
use mainstay_core::queue::ClaimRequest;
use mainstay_core::store::Provider;
use mainstay_postgres::Postgres;
use mainstay_tests::TestDatabase;

use crate::support::database;

/// Rows of a table that the statement read from end to end, and those it found by an index.
async fn reads(database: &TestDatabase, table: &str, statement: &str) -> (i64, i64) {
    // A connection of its own, because these counts begin with the connection.
    let client = database.client().await;
    let select = "select coalesce(sum(seq_tup_read), 0)::bigint, coalesce(sum(idx_tup_fetch), 0)::bigint
        from pg_stat_xact_all_tables where schemaname = 'infra' and relname = $1";
    client.batch_execute("begin").await.unwrap();
    client.batch_execute(statement).await.unwrap();
    let row = client.query_one(select, &[&table]).await.unwrap();
    client.batch_execute("rollback").await.unwrap();
    (row.get(0), row.get(1))
}

/// ADR 0016: neither adding, claiming nor settling messages touches the ledger, and collecting does not walk the history.
#[tokio::test]
async fn the_ledger_costs_the_outbox_nothing_and_the_history_costs_collecting_nothing() {
    let database = database().await;
    let postgres = Postgres::connect(&database.url()).await.unwrap();
    let (outbox, jobs) = (Outbox::new(postgres.outbox()), Jobs::new(postgres.jobs()));
    let owner = OwnerToken::new();
    // A long history of messages that are no runs, and statistics from when there was none.
    let messages = (0..5_000).map(|_| Message::new("t", "").header("a", "b")).collect();
    outbox.enqueue_many(messages).await.unwrap();
    let claimed = outbox.claim(&ClaimRequest::new(owner).batch(5_000)).await.unwrap();
    outbox.ack(owner, &claimed.handles()).await.unwrap();
    jobs.create_or_update(JobDefinition::new("nightly", "t", "@yearly")).await.unwrap();
    for _ in 0..20 {
        jobs.trigger("nightly").await.unwrap();
    }
    jobs.dispatch(owner, 100).await.unwrap();
    let claimed = outbox.claim(&ClaimRequest::new(owner).batch(10)).await.unwrap();
    outbox.ack(owner, &claimed.handles()).await.unwrap();

    let work = "do $$ declare ids uuid[]; begin
        perform infra.outbox_enqueue('t', '');
        ids := array(select id from infra.outbox_claim(gen_random_uuid(), 30, 100));
        perform infra.outbox_settle((select owner from infra.outbox where id = ids[1]), ids, null, array_fill(0::smallint, array[cardinality(ids)]), null, null);
    end $$";
    assert_eq!(reads(&database, "jobs_ledger", work).await, (0, 0));
    let collect =
        "select count(*) from infra.jobs_collect(array(select id from infra.jobs_ended() where over))";
    for analyse in [false, true] {
        if analyse {
            database.client().await.batch_execute("analyze").await.unwrap();
        }
        let (walked, found) = reads(&database, "outbox_history", collect).await;
        assert_eq!(walked, 0, "analysed: {analyse}");
        assert!(found <= 40, "{found} rows of the history for 20 runs; analysed: {analyse}");
    }
    let ended = jobs.collect().await.unwrap();
    assert_eq!(ended.len(), 10);
    assert!(ended.iter().all(|run| run.outcome == RunState::Succeeded));

    // Retention of messages that are no runs does not look at the ledger either.
    let purge = "select infra.outbox_purge(0, null, 4000)";
    let (_, found) = reads(&database, "jobs_ledger", purge).await;
    assert_eq!(found, 0);
    let all = Retention::default().done(Some(Duration::ZERO));
    assert_eq!(outbox.purge(&all).await.unwrap(), 5_010);
}
