//! The bare limit of PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use mainstay::postgres::Postgres;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};

use super::{CLAIM_BATCH, CLAIMERS, SHARED_MOST, body};
use crate::bench::BULK;
use crate::bench::clock::{Clock, rate_of};
use crate::bench::progress::{Goal, Progress};
use crate::text::count;

/// Plain tables in a schema of their own.
pub(in crate::bench) struct PostgresLimits {
    plain: Postgres,
    pub(super) url: String,
    pub(super) schema: String,
    /// Keys are given in order, as an identity column would.
    next: Arc<AtomicI64>,
}

/// A row that somebody waits for.
type Waiting = (i64, oneshot::Sender<()>);

impl PostgresLimits {
    pub(super) async fn make(plain: Postgres, url: String, schema: String) -> anyhow::Result<Self> {
        let limits = Self { plain, url, schema, next: Arc::default() };
        // Without `if not exists`: what is there is somebody else's.
        limits.execute(&format!("create schema \"{}\"", limits.schema)).await?;
        Ok(limits)
    }

    pub(super) async fn execute(&self, sql: &str) -> anyhow::Result<()> {
        let client = self.plain.pool().get().await.context("PostgreSQL can't be reached")?;
        Ok(client.batch_execute(sql).await?)
    }

    /// An empty table; its quoted name.
    async fn table(&self) -> anyhow::Result<String> {
        let name = format!("\"{}\".plain", self.schema);
        let make = format!(
            "drop table if exists {name};
             create table {name} (id bigint primary key, body text not null)"
        );
        self.execute(&make).await?;
        Ok(name)
    }

    pub(super) async fn insert(
        &self,
        progress: &mut Progress,
        title: &str,
        time: Duration,
        connections: usize,
        in_tx: bool,
    ) -> anyhow::Result<f64> {
        let insert = format!("insert into {} (id, body) values ($1, $2)", self.table().await?);
        let mut clients = Vec::new();
        for _ in 0..connections {
            let client = self.plain.pool().get().await?;
            let insert = client.prepare(&insert).await?;
            clients.push((client, insert));
        }
        let caller = |clock: Clock| {
            let (next, client) = (Arc::clone(&self.next), clients.pop());
            async move {
                let Some((mut client, insert)) = client else { return Ok(()) };
                let body = body();
                while clock.is_running() {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if in_tx {
                        let tx = client.transaction().await?;
                        tx.execute(&insert, &[&id, &body]).await?;
                        tx.commit().await?;
                    } else {
                        client.execute(&insert, &[&id, &body]).await?;
                    }
                    clock.count(1);
                }
                Ok(())
            }
        };
        rate_of(progress, title, time, caller, connections).await
    }

    pub(super) async fn shared_commit(
        &self,
        progress: &mut Progress,
        title: &str,
        time: Duration,
        callers: usize,
    ) -> anyhow::Result<f64> {
        let insert = format!(
            "insert into {} (id, body) select * from unnest($1::bigint[], $2::text[])",
            self.table().await?
        );
        let client = self.plain.pool().get().await?;
        let insert = client.prepare(&insert).await?;
        let (sender, mut receiver) = mpsc::channel::<Waiting>(SHARED_MOST);
        // Ends with the last caller, or with this future.
        let mut writer = JoinSet::new();
        writer.spawn(async move {
            let (mut rows, body) = (Vec::new(), body());
            while receiver.recv_many(&mut rows, SHARED_MOST).await > 0 {
                let ids: Vec<i64> = rows.iter().map(|(id, _)| *id).collect();
                client.execute(&insert, &[&ids, &vec![body.as_str(); ids.len()]]).await?;
                for (_, waiting) in rows.drain(..) {
                    // A caller that has gone needs no answer.
                    let _gone = waiting.send(());
                }
            }
            anyhow::Ok(())
        });
        let caller = |clock: Clock| {
            let (next, sender) = (Arc::clone(&self.next), sender.clone());
            async move {
                while clock.is_running() {
                    let (waiting, committed) = oneshot::channel();
                    sender.send((next.fetch_add(1, Ordering::Relaxed), waiting)).await?;
                    committed.await?;
                    clock.count(1);
                }
                Ok(())
            }
        };
        let rate = rate_of(progress, title, time, caller, callers).await;
        drop(sender);
        // What the writer says is the reason for what the callers say.
        while let Some(ended) = writer.join_next().await {
            ended??;
        }
        rate
    }

    pub(super) async fn copy(&self, progress: &mut Progress, title: &str, rows: u64) -> anyhow::Result<f64> {
        let copy = format!("copy {} (id, body) from stdin binary", self.table().await?);
        let client = self.plain.pool().get().await?;
        let (counter, body) = (AtomicU64::new(0), body());
        let started = Instant::now();
        let work = async {
            while counter.load(Ordering::Relaxed) < rows {
                let size = BULK.min(rows - counter.load(Ordering::Relaxed));
                let sink = client.copy_in(&copy).await?;
                let writer = BinaryCopyInWriter::new(sink, &[Type::INT8, Type::TEXT]);
                tokio::pin!(writer);
                for _ in 0..size {
                    let id = self.next.fetch_add(1, Ordering::Relaxed);
                    let row: [&(dyn ToSql + Sync); 2] = [&id, &body];
                    writer.as_mut().write(&row).await?;
                }
                writer.finish().await?;
                counter.fetch_add(size, Ordering::Relaxed);
            }
            Ok(())
        };
        progress.watch(title, Goal::Count(rows), &counter, work).await?;
        let rate = rows as f64 / started.elapsed().as_secs_f64().max(1e-9);
        progress.finish(title, &format!("{}/s", count(rate as u64)));
        Ok(rate)
    }

    pub(super) async fn claim_settle(
        &self,
        progress: &mut Progress,
        title: &str,
        rows: u64,
    ) -> anyhow::Result<f64> {
        let table = self.claimable(rows).await?;
        let counter = Arc::new(AtomicU64::new(0));
        let mut claimers = JoinSet::new();
        let claim = format!(
            "with picked as (
                 select id from {table} where status = 0 and due_at <= now()
                  order by due_at, id limit $1 for update skip locked)
             update {table} t set status = 1, attempts = attempts + 1, locked_until = now() + interval '30 s'
               from picked where t.id = picked.id returning t.id, t.body"
        );
        let settle = format!("update {table} set status = 2, locked_until = null where id = any ($1)");
        let mut clients = Vec::new();
        for _ in 0..CLAIMERS {
            let client = self.plain.pool().get().await?;
            clients.push((client.prepare(&claim).await?, client.prepare(&settle).await?, client));
        }
        let started = Instant::now();
        for (claim, settle, client) in clients {
            let counter = Arc::clone(&counter);
            claimers.spawn(async move {
                loop {
                    let rows = client.query(&claim, &[&CLAIM_BATCH]).await?;
                    if rows.is_empty() {
                        return anyhow::Ok(());
                    }
                    let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
                    client.execute(&settle, &[&ids]).await?;
                    counter.fetch_add(rows.len() as u64, Ordering::Relaxed);
                }
            });
        }
        let ended = async {
            while let Some(ended) = claimers.join_next().await {
                ended??;
            }
            Ok(())
        };
        progress.watch(title, Goal::Count(rows), &counter, ended).await?;
        let rate = rows as f64 / started.elapsed().as_secs_f64().max(1e-9);
        progress.finish(title, &format!("{}/s", count(rate as u64)));
        Ok(rate)
    }

    /// A table with an index on what is ready, and rows in it; its quoted name.
    pub(super) async fn claimable(&self, rows: u64) -> anyhow::Result<String> {
        let name = format!("\"{}\".claimable", self.schema);
        let make = format!(
            "drop table if exists {name};
             create table {name} (
                 id bigint primary key, due_at timestamptz not null default now(), locked_until timestamptz,
                 attempts integer not null default 0, status smallint not null default 0, body text not null);
             create index on {name} (due_at, id) where status = 0;
             insert into {name} (id, body) select n, '{}' from generate_series(1, {rows}) n",
            body()
        );
        self.execute(&make).await?;
        self.execute(&format!("vacuum analyze {name}")).await?;
        Ok(name)
    }
}
