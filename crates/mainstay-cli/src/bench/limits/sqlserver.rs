//! The bare limit of SQL Server: T-SQL on plain tables, over clients of the driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mainstay::sqlserver::tiberius::{IntoRow as _, Query};
use mainstay::sqlserver::{Client, SqlServer};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::{CLAIM_BATCH, CLAIMERS, SHARED_MOST, body};
use crate::bench::BULK;
use crate::bench::clock::{Clock, rate_of};
use crate::bench::progress::{Goal, Progress};
use crate::text::count;

/// What other transactions have locked is looked for again after so long.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Plain tables in a schema of their own.
pub(in crate::bench) struct SqlServerLimits {
    server: SqlServer,
    schema: String,
    /// Keys are given in order, as an identity column would.
    next: Arc<AtomicI64>,
}

/// A row that somebody waits for.
type Waiting = (i64, oneshot::Sender<()>);

/// Runs statements that return nothing.
pub(in crate::bench) async fn batch(client: &mut Client, sql: &str) -> anyhow::Result<()> {
    client.simple_query(sql).await?.into_results().await?;
    Ok(())
}

/// Rows as one text, which the server takes apart.
async fn insert_many(client: &mut Client, table: &str, ids: impl Iterator<Item = i64>) -> anyhow::Result<()> {
    let body = body();
    let rows: Vec<Value> = ids.map(|id| json!({ "id": id, "body": body })).collect();
    let mut insert = Query::new(format!(
        "INSERT INTO {table} (id, body) SELECT j.id, j.body FROM OPENJSON(@P1) WITH (id BIGINT '$.id', body NVARCHAR(MAX) '$.body') j"
    ));
    insert.bind(Value::Array(rows).to_string());
    insert.execute(client).await?;
    Ok(())
}

impl SqlServerLimits {
    pub(super) async fn make(server: SqlServer, schema: String) -> anyhow::Result<Self> {
        let limits = Self { server, schema, next: Arc::default() };
        // Without a look at whether it is there: what is there is somebody else's.
        limits.execute(&format!("CREATE SCHEMA \"{}\"", limits.schema)).await?;
        Ok(limits)
    }

    async fn execute(&self, sql: &str) -> anyhow::Result<()> {
        batch(&mut self.server.client().await?, sql).await
    }

    /// An empty table; its quoted name.
    async fn table(&self, name: &str, columns: &str) -> anyhow::Result<String> {
        let table = format!("\"{}\".\"{name}\"", self.schema);
        self.execute(&format!("DROP TABLE IF EXISTS {table}")).await?;
        self.execute(&format!("CREATE TABLE {table} (id BIGINT NOT NULL PRIMARY KEY, {columns})")).await?;
        Ok(table)
    }

    async fn plain_table(&self) -> anyhow::Result<String> {
        self.table("plain", "body NVARCHAR(MAX) NOT NULL").await
    }

    pub(super) async fn insert(
        &self,
        progress: &mut Progress,
        title: &str,
        time: Duration,
        connections: usize,
        in_tx: bool,
    ) -> anyhow::Result<f64> {
        let insert: Arc<str> =
            format!("INSERT INTO {} (id, body) VALUES (@P1, @P2)", self.plain_table().await?).into();
        let mut clients = Vec::new();
        for _ in 0..connections {
            clients.push(self.server.client().await?);
        }
        let caller = |clock: Clock| {
            let (next, client, insert) = (Arc::clone(&self.next), clients.pop(), Arc::clone(&insert));
            async move {
                let Some(mut client) = client else { return Ok(()) };
                let body = body();
                while clock.is_running() {
                    if in_tx {
                        batch(&mut client, "BEGIN TRANSACTION").await?;
                    }
                    let mut query = Query::new(&*insert);
                    query.bind(next.fetch_add(1, Ordering::Relaxed));
                    query.bind(body.as_str());
                    query.execute(&mut client).await?;
                    if in_tx {
                        batch(&mut client, "COMMIT TRANSACTION").await?;
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
        let table = self.plain_table().await?;
        let mut client = self.server.client().await?;
        let (sender, mut receiver) = mpsc::channel::<Waiting>(SHARED_MOST);
        // Ends with the last caller, or with this future.
        let mut writer = JoinSet::new();
        writer.spawn(async move {
            let mut rows = Vec::new();
            while receiver.recv_many(&mut rows, SHARED_MOST).await > 0 {
                insert_many(&mut client, &table, rows.iter().map(|(id, _)| *id)).await?;
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

    /// By the protocol's own bulk load.
    pub(super) async fn copy(&self, progress: &mut Progress, title: &str, rows: u64) -> anyhow::Result<f64> {
        self.plain_table().await?;
        // The driver takes no quotes here, and the name needs none.
        let table = format!("{}.plain", self.schema);
        let mut client = self.server.client().await?;
        let (counter, body) = (AtomicU64::new(0), body());
        let started = Instant::now();
        let work = async {
            while counter.load(Ordering::Relaxed) < rows {
                let size = BULK.min(rows - counter.load(Ordering::Relaxed));
                let mut load = client.bulk_insert(&table).await?;
                for _ in 0..size {
                    let id = self.next.fetch_add(1, Ordering::Relaxed);
                    load.send((id, body.as_str()).into_row()).await?;
                }
                load.finalize().await?;
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
        let ready = "status = 0 AND due_at <= SYSUTCDATETIME()";
        let claim = format!(
            "UPDATE {table} SET status = 1, attempts = attempts + 1, locked_until = DATEADD(SECOND, 30, SYSUTCDATETIME())
             OUTPUT inserted.id, inserted.body
              WHERE {ready} AND id IN (SELECT TOP ({CLAIM_BATCH}) id FROM {table} WITH (UPDLOCK, READPAST, ROWLOCK) WHERE {ready} ORDER BY due_at, id)"
        );
        let settle = format!(
            "UPDATE {table} SET status = 2, locked_until = NULL WHERE id IN (SELECT j.id FROM OPENJSON(@P1) WITH (id BIGINT '$.id') j)"
        );
        let (counter, claim, settle): (_, Arc<str>, Arc<str>) =
            (Arc::new(AtomicU64::new(0)), claim.into(), settle.into());
        let mut clients = Vec::new();
        for _ in 0..CLAIMERS {
            clients.push(self.server.client().await?);
        }
        let started = Instant::now();
        let mut claimers = JoinSet::new();
        for mut client in clients {
            let (counter, claim, settle) = (Arc::clone(&counter), Arc::clone(&claim), Arc::clone(&settle));
            claimers.spawn(async move {
                while counter.load(Ordering::Relaxed) < rows {
                    let claimed = client.simple_query(&*claim).await?.into_first_result().await?;
                    if claimed.is_empty() {
                        // The last ones are somebody else's, or have been just now.
                        tokio::time::sleep(LOOK_AGAIN).await;
                        continue;
                    }
                    let ids: Vec<Value> =
                        claimed.iter().map(|row| json!({ "id": row.get::<i64, _>(0) })).collect();
                    let mut query = Query::new(&*settle);
                    query.bind(Value::Array(ids).to_string());
                    query.execute(&mut client).await?;
                    counter.fetch_add(claimed.len() as u64, Ordering::Relaxed);
                }
                anyhow::Ok(())
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
    async fn claimable(&self, rows: u64) -> anyhow::Result<String> {
        let columns = "due_at DATETIME2(6) NOT NULL DEFAULT SYSUTCDATETIME(), locked_until DATETIME2(6) NULL, attempts INT NOT NULL DEFAULT 0,
            status SMALLINT NOT NULL DEFAULT 0, body NVARCHAR(MAX) NOT NULL";
        let table = self.table("claimable", columns).await?;
        self.execute(&format!("CREATE INDEX claimable_ready ON {table} (due_at, id) WHERE status = 0"))
            .await?;
        let (mut client, rows) = (self.server.client().await?, i64::try_from(rows)?);
        for first in (0..rows).step_by(BULK as usize) {
            insert_many(&mut client, &table, first..rows.min(first + BULK as i64)).await?;
        }
        Ok(table)
    }
}
