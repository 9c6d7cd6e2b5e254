//! What PostgreSQL itself counts: transactions, changed rows, bytes of its log. SQLite counts nothing of the kind, and SQL Server nothing that everybody may see.
//!
//! The counts of rows are those of the benchmark's own tables. The bytes and the transactions are those of the whole server
//! and the whole database: they tell something where nobody else is at work.

use std::sync::Arc;
use std::time::Duration;

use mainstay::postgres::Postgres;
use mainstay::store::Provider;

use super::handle::{Handlers, stop};
use super::progress::{Goal, Progress};
use super::{Plan, Scratch};

/// How long the last backends have to end and to hand in their counts.
const HAND_IN: Duration = Duration::from_millis(500);

/// Where the server's log ends, in bytes. None where that is not told.
pub(super) async fn log_end(plain: &Postgres) -> anyhow::Result<Option<f64>> {
    let end = "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::double precision";
    let client = plain.pool().get().await?;
    // Refused by managed services that keep it to themselves.
    Ok(client.query_one(end, &[]).await.ok().map(|row| row.get(0)))
}

/// Row versions that were left behind in the tables of a schema: each update and each delete leaves one. The connections
/// that did it must have been closed.
pub(super) async fn dead_tuples(plain: &Postgres, schema: &str) -> anyhow::Result<f64> {
    tokio::time::sleep(HAND_IN).await;
    let sum = "select coalesce(sum(n_tup_upd + n_tup_del), 0)::double precision
                 from pg_stat_all_tables where schemaname = $1";
    Ok(plain.pool().get().await?.query_one(sum, &[&schema]).await?.get(0))
}

async fn transactions(plain: &Postgres) -> anyhow::Result<f64> {
    tokio::time::sleep(HAND_IN).await;
    let sum = "select (xact_commit + xact_rollback)::double precision
                 from pg_stat_database where datname = current_database()";
    Ok(plain.pool().get().await?.query_one(sum, &[]).await?.get(0))
}

/// Transactions a second of a process whose dispatcher has nothing to do. Connections hand in their counts when they end, so
/// it runs twice, and the longer run has so many more than the shorter one: what starting and stopping takes is not counted.
pub(super) async fn idle(
    progress: &mut Progress,
    scratch: &Scratch,
    plain: &Postgres,
    plan: &Plan,
) -> anyhow::Result<f64> {
    const NAME: &str = "queries when idle";
    let (short, long) = (plan.time, plan.time * 3);
    let nothing = std::sync::atomic::AtomicU64::new(0);
    let work = async {
        let before = transactions(plain).await?;
        be_idle(scratch, short).await?;
        let between = transactions(plain).await?;
        be_idle(scratch, long).await?;
        let after = transactions(plain).await?;
        anyhow::Ok((after - between) - (between - before))
    };
    let more = progress.watch(NAME, Goal::Time(short + long), &nothing, work).await?;
    let rate = (more / (long - short).as_secs_f64()).max(0.0);
    progress.finish(NAME, &format!("{rate:.2}/s"));
    Ok(rate)
}

/// The same where the server does not count them: what the process itself has asked.
pub(super) async fn idle_by_round_trips(
    progress: &mut Progress,
    scratch: &Scratch,
    plan: &Plan,
) -> anyhow::Result<f64> {
    const NAME: &str = "queries when idle";
    let time = plan.time * 3;
    let nothing = std::sync::atomic::AtomicU64::new(0);
    let work = async {
        let server = scratch.connect_sqlserver().await?;
        let provider: Arc<dyn Provider> = Arc::new(server.clone());
        let running = Handlers::new().start(&provider, 1, false).await?;
        tokio::time::sleep(plan.time).await;
        let before = server.round_trips();
        tokio::time::sleep(time).await;
        let asked = server.round_trips() - before;
        stop(running).await?;
        provider.close().await;
        anyhow::Ok(asked)
    };
    let asked = progress.watch(NAME, Goal::Time(plan.time + time), &nothing, work).await?;
    let rate = asked as f64 / time.as_secs_f64();
    progress.finish(NAME, &format!("{rate:.2}/s"));
    Ok(rate)
}

async fn be_idle(scratch: &Scratch, time: Duration) -> anyhow::Result<()> {
    let provider = scratch.connect().await?;
    let running = Handlers::new().start(&provider, 1, false).await?;
    tokio::time::sleep(time).await;
    stop(running).await?;
    provider.close().await;
    Ok(())
}
