//! The database server is killed, restarted, or not there yet. Workers come back by themselves.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay::backoff::Backoff;
use mainstay::id::{OwnerToken, WorkItemId};
use mainstay::outbox::{Message, Outbox};
use mainstay::postgres::Postgres;
use mainstay::queue::{ClaimRequest, Status};
use mainstay::store::Provider;
use mainstay::{Context, Mainstay, TopicPolicy};
use mainstay_tests::{OwnCluster, eventually};
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(120);

async fn on_postgres(case: &str, test: impl Future<Output = ()>) {
    const IDS: &[&str] = &["MST-003"];
    support::not_applicable(case, IDS, &["sqlite-file", "sqlite-memory"], "no server");
    support::not_applicable(case, IDS, &["postgres-pgbouncer"], "the server is killed, not the pooler");
    support::recorded(case, IDS, "postgres", test).await;
}

/// How often each message was handed to the handler.
#[derive(Default)]
struct Deliveries {
    count: HashMap<WorkItemId, u32>,
}

fn mainstay(provider: Postgres, deliveries: &Arc<Mutex<Deliveries>>, deploy: bool) -> Mainstay {
    let deliveries = Arc::clone(deliveries);
    let handler = move |context: Context| {
        *deliveries.lock().unwrap().count.entry(context.id()).or_default() += 1;
        std::future::ready(())
    };
    let policy = TopicPolicy::default().backoff(Backoff::fixed(Duration::from_millis(20)));
    Mainstay::builder(provider)
        .deploy_schema(deploy)
        .outbox(|outbox| {
            outbox.raw_handler_with("t", policy, handler).reap_every(None).gauges_every(None).options(
                |options| {
                    options.lease = Duration::from_secs(2);
                    options.poll_max = Duration::from_millis(250);
                    options.delivery_limit = 1_000;
                },
            )
        })
        .build()
        .unwrap()
}

/// MST-003: the server is killed and restarted under load; workers reconnect, nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn mst_003_a_killed_server_loses_nothing() {
    on_postgres("mst_003_a_killed_server_loses_nothing", killed_under_load()).await;
}

async fn killed_under_load() {
    let cluster = OwnCluster::create().await;
    let provider = Postgres::connect(cluster.url()).await.unwrap();
    provider.schema().deploy().await.unwrap();
    let deliveries = Arc::default();
    let mainstay = mainstay(provider, &deliveries, false);
    let running = mainstay.start().await.unwrap();

    // A producer that goes on through the crashes and notes what it was promised.
    let promised: Arc<Mutex<Vec<WorkItemId>>> = Arc::default();
    let stop = CancellationToken::new();
    let producer = {
        let (outbox, promised, stop) = (mainstay.outbox().clone(), Arc::clone(&promised), stop.clone());
        tokio::spawn(async move {
            while !stop.is_cancelled() {
                if let Ok(enqueued) = outbox.enqueue(Message::new("t", "")).await {
                    promised.lock().unwrap().push(enqueued.work_item);
                }
            }
        })
    };
    for round in 1..=3 {
        eventually(DEADLINE, "messages flow", async || promised.lock().unwrap().len() >= round * 200).await;
        cluster.kill().await;
        cluster.start().await;
    }
    stop.cancel();
    producer.await.unwrap();

    let outbox = mainstay.outbox();
    eventually(DEADLINE, "everything is settled", async || {
        outbox.stats().await.is_ok_and(|stats| stats.open() == 0)
    })
    .await;
    let promised = promised.lock().unwrap().clone();
    for id in &promised {
        let found = outbox.get(*id).await.unwrap();
        assert_eq!(found.map(|message| message.status), Some(Status::Done), "{id} was lost");
    }
    running.stop().await.unwrap();
    let deliveries = deliveries.lock().unwrap();
    assert!(promised.iter().all(|id| deliveries.count.contains_key(id)));
}

/// MST-003, the other half: what was acked before the crash is never handed out again.
#[tokio::test(flavor = "multi_thread")]
async fn mst_003_nothing_acked_is_delivered_again() {
    on_postgres("mst_003_nothing_acked_is_delivered_again", killed_between_acks()).await;
}

async fn killed_between_acks() {
    let cluster = OwnCluster::create().await;
    let provider = Postgres::connect(cluster.url()).await.unwrap();
    provider.schema().deploy().await.unwrap();
    let outbox = Outbox::new(provider.outbox());
    let messages = (0..300).map(|n| Message::new("t", n.to_string())).collect();
    outbox.enqueue_many(messages).await.unwrap();

    let mut acked: Vec<WorkItemId> = Vec::new();
    let request =
        ClaimRequest::new(OwnerToken::new()).batch(10).lease(Duration::from_secs(1)).delivery_limit(1_000);
    let mut crashes = 0;
    while acked.len() < 300 {
        if acked.len() / 100 > crashes {
            crashes += 1;
            cluster.kill().await;
            cluster.start().await;
        }
        // While the server is away both calls fail; what they did is then unknown, and found out by claiming again.
        let Ok(batch) = outbox.claim(&request).await else { continue };
        for item in &batch.items {
            assert!(!acked.contains(&item.id()), "{} was acked and came again", item.id());
        }
        if let Ok(settled) = outbox.ack(request.owner, &batch.handles()).await {
            acked.extend(settled.changed);
        }
    }
    assert_eq!(crashes, 2);
    assert_eq!(outbox.stats().await.unwrap().done, 300);
}

/// A database that is down at the start and comes up later is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_down_at_the_start_is_waited_for() {
    let cluster = OwnCluster::create().await;
    cluster.stop().await;
    let provider = Postgres::connect(cluster.url()).await.unwrap();
    let deliveries = Arc::default();
    let mainstay = mainstay(provider, &deliveries, true);
    let outbox = mainstay.outbox().clone();
    let error = outbox.enqueue(Message::new("t", "")).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    let starting = tokio::spawn(async move { mainstay.start().await });
    cluster.start().await;
    let running = tokio::time::timeout(DEADLINE, starting).await.unwrap().unwrap().unwrap();
    outbox.enqueue(Message::new("t", "")).await.unwrap();
    eventually(DEADLINE, "the message is done", async || {
        outbox.stats().await.is_ok_and(|stats| stats.done == 1)
    })
    .await;
    running.stop().await.unwrap();
}
