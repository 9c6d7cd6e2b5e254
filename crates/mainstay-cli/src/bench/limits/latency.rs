//! How soon a waiting reader has a new row, by a notification in the transaction of the insert.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::body;
use super::postgres::PostgresLimits;
use crate::bench::handle::latency_messages;
use crate::bench::progress::{Goal, Progress};
use crate::bench::{PACE, Plan};
use crate::histogram::Histogram;

/// A notification that doesn't come in this time won't come.
const LOST: Duration = Duration::from_secs(10);

/// When each row was about to be inserted.
type Sent = Arc<Mutex<HashMap<i64, Instant>>>;

pub(super) async fn measure(
    limits: &PostgresLimits,
    progress: &mut Progress,
    title: &str,
    plan: &Plan,
) -> anyhow::Result<Option<(f64, f64)>> {
    let mut tasks = JoinSet::new();
    let (sender, mut notified) = mpsc::unbounded_channel();
    // The pool's connections keep notifications to themselves, so this takes some of its own. They can do no TLS.
    let Ok(listener) = connect(&limits.url, Some(sender), &mut tasks).await else { return Ok(None) };
    let (reader, writer) =
        (connect(&limits.url, None, &mut tasks).await?, connect(&limits.url, None, &mut tasks).await?);

    let table = limits.claimable(0).await?;
    let channel = format!("\"{}\"", limits.schema);
    listener.batch_execute(&format!("listen {channel}")).await?;
    let insert = format!(
        "with new as (insert into {table} (id, body) values ($1, $2)) select pg_notify('{}', '')",
        limits.schema
    );
    let claim = format!(
        "with picked as (
             select id from {table} where status = 0 and due_at <= now()
              order by due_at, id limit 50 for update skip locked)
         update {table} t set status = 1, attempts = attempts + 1, locked_until = now() + interval '30 s'
           from picked where t.id = picked.id returning t.id, t.body"
    );
    let settle = format!("delete from {table} where id = any ($1)");
    let (insert, claim) = (writer.prepare(&insert).await?, reader.prepare(&claim).await?);
    let settle = reader.prepare(&settle).await?;

    let messages = latency_messages(plan);
    let (sent, times) = (Sent::default(), Histogram::default());
    let counter = std::sync::atomic::AtomicU64::new(0);
    let write = async {
        let (mut ticks, body) = (tokio::time::interval(Duration::from_micros(1_000_000 / PACE)), body());
        for id in 0..messages as i64 {
            ticks.tick().await;
            sent.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Instant::now());
            writer.query(&insert, &[&id, &body]).await?;
        }
        anyhow::Ok(())
    };
    let read = async {
        let mut arrived = 0;
        while arrived < messages {
            let Ok(Some(())) = tokio::time::timeout(LOST, notified.recv()).await else { return Ok(false) };
            let rows = reader.query(&claim, &[]).await?;
            let now = Instant::now();
            let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            for id in &ids {
                if let Some(sent) = sent.lock().unwrap_or_else(PoisonError::into_inner).remove(id) {
                    times.record(now - sent);
                }
            }
            reader.execute(&settle, &[&ids]).await?;
            arrived += ids.len() as u64;
            counter.store(arrived, std::sync::atomic::Ordering::Relaxed);
        }
        anyhow::Ok(true)
    };
    let work = async { tokio::try_join!(write, read) };
    let ((), all_came) = progress.watch(title, Goal::Count(messages), &counter, work).await?;
    let found = (times.percentile(0.5), times.percentile(0.99));
    let (true, (Some(p50), Some(p99))) = (all_came, found) else { return Ok(None) };
    let (p50, p99) = (p50.as_secs_f64() * 1e3, p99.as_secs_f64() * 1e3);
    progress.finish(title, &format!("p50 {p50:.2} ms, p99 {p99:.2} ms"));
    Ok(Some((p50, p99)))
}

/// A connection that tells of notifications, if somebody wants to know.
async fn connect(
    url: &str,
    notified: Option<mpsc::UnboundedSender<()>>,
    tasks: &mut JoinSet<()>,
) -> anyhow::Result<Client> {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
    tasks.spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            if let (AsyncMessage::Notification(_), Some(notified)) = (message, &notified) {
                // Nobody waits any more when the measurement is over.
                let _over = notified.send(());
            }
        }
    });
    Ok(client)
}
