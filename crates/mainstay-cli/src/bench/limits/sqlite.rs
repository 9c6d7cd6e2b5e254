//! The bare limit of SQLite: one connection that writes, with the settings that Mainstay has.

use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior, params};

use super::{CLAIM_BATCH, body};
use crate::bench::clock::{Clock, rate_of};
use crate::bench::progress::{Goal, Progress};
use crate::text::count;

/// Plain tables whose names begin with a prefix of their own.
pub(in crate::bench) struct SqliteLimits {
    connection: Arc<Mutex<Connection>>,
    prefix: String,
    next: Arc<AtomicI64>,
}

/// A connection as durable as Mainstay's.
pub(in crate::bench) fn open(path: &Path) -> anyhow::Result<Connection> {
    let connection = Connection::open(path)?;
    set_up(&connection)?;
    Ok(connection)
}

fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(30))?;
    connection.execute_batch("pragma journal_mode = wal; pragma synchronous = full")
}

/// The connection, for one caller at a time.
pub(in crate::bench) fn lock(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    // A caller that panicked has rolled back.
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SqliteLimits {
    pub(super) fn make(path: Option<&Path>, prefix: String) -> anyhow::Result<Self> {
        let connection = match path {
            Some(path) => open(path)?,
            None => Connection::open_in_memory()?,
        };
        Ok(Self { connection: Arc::new(Mutex::new(connection)), prefix, next: Arc::default() })
    }

    /// Rows a second, `rows` to a transaction, by callers that take turns.
    pub(super) async fn insert(
        &self,
        progress: &mut Progress,
        title: &str,
        time: Duration,
        callers: usize,
        rows: u64,
    ) -> anyhow::Result<f64> {
        let name = format!("\"{}_plain\"", self.prefix);
        lock(&self.connection).execute_batch(&format!(
            "drop table if exists {name}; create table {name} (id integer primary key, body text not null)"
        ))?;
        let insert: Arc<str> = format!("insert into {name} (id, body) values (?1, ?2)").into();
        let caller = |clock: Clock| {
            let (connection, next, insert) =
                (Arc::clone(&self.connection), Arc::clone(&self.next), Arc::clone(&insert));
            let work = move || -> anyhow::Result<()> {
                let body = body();
                while clock.is_running() {
                    let mut connection = lock(&connection);
                    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                    {
                        let mut insert = tx.prepare_cached(&insert)?;
                        for _ in 0..rows {
                            insert.execute(params![next.fetch_add(1, Ordering::Relaxed), body])?;
                        }
                    }
                    tx.commit()?;
                    clock.count(rows);
                }
                Ok(())
            };
            async move { tokio::task::spawn_blocking(work).await? }
        };
        rate_of(progress, title, time, caller, callers).await
    }

    pub(super) async fn claim_settle(
        &self,
        progress: &mut Progress,
        title: &str,
        rows: u64,
    ) -> anyhow::Result<f64> {
        let (connection, name) = (Arc::clone(&self.connection), format!("\"{}_claimable\"", self.prefix));
        let counter = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&counter);
        let work = tokio::task::spawn_blocking(move || -> anyhow::Result<Duration> {
            let mut connection = lock(&connection);
            fill(&mut connection, &name, rows)?;
            let started = Instant::now();
            while let claimed @ 1.. = claim_and_settle(&mut connection, &name)? {
                counted.fetch_add(claimed, Ordering::Relaxed);
                // Whoever was interested has gone.
                if Arc::strong_count(&counted) == 1 {
                    break;
                }
            }
            Ok(started.elapsed())
        });
        let took = progress.watch(title, Goal::Count(rows), &counter, async { work.await? }).await?;
        let rate = rows as f64 / took.as_secs_f64().max(1e-9);
        progress.finish(title, &format!("{}/s", count(rate as u64)));
        Ok(rate)
    }
}

fn fill(connection: &mut Connection, name: &str, rows: u64) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "drop table if exists {name};
         create table {name} (
             id integer primary key, due_at integer not null, locked_until integer,
             attempts integer not null default 0, status integer not null default 0, body text not null);
         create index {} on {name} (due_at, id) where status = 0",
        name.replace("claimable", "claimable_ready")
    ))?;
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    {
        let body = body();
        let mut insert = tx.prepare(&format!("insert into {name} (id, due_at, body) values (?1, 0, ?2)"))?;
        for id in 0..rows {
            insert.execute(params![id as i64, body])?;
        }
    }
    tx.commit()
}

/// One batch, in two transactions; how many.
fn claim_and_settle(connection: &mut Connection, name: &str) -> rusqlite::Result<u64> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let ids: Vec<i64> = {
        let mut claim = tx.prepare_cached(&format!(
            "update {name} set status = 1, attempts = attempts + 1, locked_until = 30
              where id in (select id from {name} where status = 0 and due_at <= 1 order by due_at, id limit ?1)
             returning id, body"
        ))?;
        let read = |row: &rusqlite::Row<'_>| row.get::<_, String>(1).and_then(|_body| row.get(0));
        claim.query_map([CLAIM_BATCH], read)?.collect::<Result<_, _>>()?
    };
    tx.commit()?;
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    {
        let settle = format!("update {name} set status = 2, locked_until = null where id = ?1");
        let mut settle = tx.prepare_cached(&settle)?;
        for id in &ids {
            settle.execute([id])?;
        }
    }
    tx.commit()?;
    Ok(ids.len() as u64)
}
