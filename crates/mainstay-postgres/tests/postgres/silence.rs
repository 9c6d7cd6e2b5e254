//! Connections that stay open and never answer: they delay work for a while, and stop nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_core::lease::LeaseOptions;
use mainstay_core::queue::Context;
use mainstay_core::runtime::{Mainstay, OutboxBuilder, RunningMainstay};
use mainstay_core::store::Provider;
use mainstay_postgres::Postgres;
use mainstay_tests::{FaultProxy, PostgresUrl, eventually};

use crate::support::{DEADLINE, Fixture};

const LEASE: Duration = Duration::from_secs(2);

/// A database, a proxy in front of it, and a provider whose connections go through that, in plain text.
async fn proxied() -> (Fixture, FaultProxy, Arc<dyn Provider>) {
    let fixture = Fixture::new().await;
    let proxy = FaultProxy::for_url(&fixture.database.url()).await;
    let url = PostgresUrl::parse(&proxy.url(&fixture.database.url())).with_parameter("sslmode", "disable");
    let postgres = Postgres::connect(&url.to_string()).await.unwrap();
    (fixture, proxy, Arc::new(postgres))
}

/// Only what a test is about runs beside its handlers.
fn quiet(outbox: OutboxBuilder) -> OutboxBuilder {
    outbox.retention(None).reap_every(None).gauges_every(None).options(|options| {
        options.lease = LEASE;
        options.poll_min = Duration::from_millis(10);
        options.poll_max = Duration::from_millis(200);
    })
}

/// A worker that notes the payloads it handles.
async fn worker(provider: Arc<dyn Provider>) -> (RunningMainstay, Arc<Mutex<Vec<String>>>) {
    let handled = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&handled);
    let handler = move |context: Context| {
        notes.lock().unwrap().push(context.message().payload.clone());
        std::future::ready(())
    };
    let worker = Mainstay::builder_over(provider)
        .outbox(|outbox| quiet(outbox).raw_handler("t", handler))
        .inbox(|inbox| inbox.retention(None).reap_every(None).gauges_every(None))
        .build()
        .unwrap();
    (worker.start().await.unwrap(), handled)
}

/// Once the connection is silenced that sends this, the worker goes on over another.
async fn goes_on_without(statement: &str) {
    let (fixture, proxy, provider) = proxied().await;
    let (running, handled) = worker(provider).await;
    let is_handled = |payload: &'static str| {
        let handled = Arc::clone(&handled);
        async move || handled.lock().unwrap().iter().any(|one| one == payload)
    };
    fixture.enqueue("before").await;
    eventually(DEADLINE, "the worker works", is_handled("before")).await;

    proxy.silence(statement);
    fixture.enqueue("first").await;
    eventually(DEADLINE, "a connection is silenced", async || proxy.silenced() == 1).await;
    fixture.enqueue("second").await;
    eventually(DEADLINE, "both are handled", async || {
        is_handled("first")().await && is_handled("second")().await
    })
    .await;
    running.stop().await.unwrap();
    // What the claim without an answer took has come back when its lease had lapsed, and no other way.
    let mut handled = handled.lock().unwrap().clone();
    handled.sort();
    assert_eq!(handled, ["before", "first", "second"]);
}

#[tokio::test]
async fn a_claim_without_an_answer_does_not_stop_the_worker() {
    goes_on_without("outbox_take").await;
}

#[tokio::test]
async fn a_wait_without_an_answer_does_not_stop_the_worker() {
    goes_on_without("outbox_next_due").await;
}

#[tokio::test]
async fn a_coordinator_whose_pass_gets_no_answer_gives_way_to_another() {
    let (fixture, proxy, provider) = proxied().await;
    let coordinator = async |provider: Arc<dyn Provider>| {
        Mainstay::builder_over(provider)
            .leases(LeaseOptions::default().duration(LEASE))
            .outbox(quiet)
            .inbox(|inbox| inbox.retention(None).reap_every(None).gauges_every(None))
            .fanout("etl", |etl| {
                etl.options(|options| options.poll_max = Duration::from_millis(500))
                    .work_key("payments", |work| {
                        work.every(Duration::from_secs(1)).shards(["a"]).handler(async |_, _| {})
                    })
            })
            .build()
            .unwrap()
            .start()
            .await
            .unwrap()
    };
    let hung = coordinator(provider).await;
    let done = async || fixture.outbox.stats().await.unwrap().done;
    eventually(DEADLINE, "slices are made", async || done().await >= 1).await;

    // The next pass begins with it.
    proxy.silence("'run_requested_at'");
    eventually(DEADLINE, "a connection is silenced", async || proxy.silenced() == 1).await;
    let before = done().await;
    let direct = Postgres::connect(&fixture.database.url()).await.unwrap();
    let other = coordinator(Arc::new(direct)).await;
    eventually(DEADLINE, "the other one takes over", async || done().await >= before + 2).await;
    other.stop().await.unwrap();
    hung.stop().await.unwrap();
}
