//! Connections that stay open and never answer: they delay work for a while, and stop nothing.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mainstay_core::lease::LeaseOptions;
use mainstay_core::outbox::Retention;
use mainstay_core::queue::{Context, HandlerError};
use mainstay_core::runtime::{Mainstay, OutboxBuilder, RunningMainstay};
use mainstay_core::store::Provider;
use mainstay_core::timer::{NewTimer, Timers};
use mainstay_postgres::{Postgres, PostgresTransaction};
use mainstay_tests::{FaultProxy, PostgresUrl, eventually};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;

use crate::support::{DEADLINE, Fixture, somebody_waits};

const LEASE: Duration = Duration::from_secs(2);

/// What a pooler or a server between a worker and its database can be.
#[derive(Debug, Clone, Copy)]
enum Way {
    Direct,
    Bouncer,
}

const WAYS: [Way; 2] = [Way::Direct, Way::Bouncer];

/// What bounds a call that nothing else bounds as soon.
const CALL: Duration = Duration::from_secs(3);

/// A database, a proxy in front of it or of its pooler, and a provider whose connections go through that, in plain text.
async fn proxied(way: Way) -> (Fixture, FaultProxy, Arc<dyn Provider>) {
    let fixture = Fixture::new().await;
    let target = match way {
        Way::Direct => fixture.database.url(),
        Way::Bouncer => fixture.database.bouncer_url(),
    };
    let proxy = FaultProxy::for_url(&target).await;
    let url = PostgresUrl::parse(&proxy.url(&target)).with_parameter("sslmode", "disable");
    let postgres = Postgres::builder(&url.to_string()).call_timeout(CALL).connect().await.unwrap();
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
async fn goes_on_without(statement: &str, way: Way) {
    let (fixture, proxy, provider) = proxied(way).await;
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
    assert_eq!(handled, ["before", "first", "second"], "{way:?}");
    assert_eq!(fixture.open().await, 0, "{way:?}");
}

#[tokio::test]
async fn a_claim_without_an_answer_does_not_stop_the_worker() {
    for way in WAYS {
        goes_on_without("outbox_take", way).await;
    }
}

#[tokio::test]
async fn a_wait_without_an_answer_does_not_stop_the_worker() {
    for way in WAYS {
        goes_on_without("outbox_next_due", way).await;
    }
}

#[tokio::test]
async fn a_settle_without_an_answer_does_not_stop_the_worker() {
    for way in WAYS {
        goes_on_without("outbox_end", way).await;
    }
}

/// A process that does everything by the clock, as often as it can.
async fn scheduler(provider: Arc<dyn Provider>) -> RunningMainstay {
    let often = Duration::from_millis(100);
    let retention = Retention::default().interval(often);
    Mainstay::builder_over(provider)
        .leases(LeaseOptions::default().duration(LEASE))
        .outbox(|outbox| quiet(outbox).retention(Some(retention)).reap_every(Some(often)))
        .inbox(|inbox| inbox.retention(None).reap_every(None).gauges_every(None))
        .timers(|timers| {
            let timers = timers.retention(None).reap_every(None).gauges_every(None);
            timers.options(|options| (options.poll_min, options.poll_max) = (often, often))
        })
        .job("every-second", "* * * * * *", |job| job)
        .jobs(|jobs| {
            let jobs = jobs.retention(None).reap_every(None).gauges_every(None);
            jobs.options(|options| (options.poll_min, options.poll_max) = (often, often))
        })
        .build()
        .unwrap()
        .start()
        .await
        .unwrap()
}

/// Each time the connection is silenced that sends this, it is sent again over another.
async fn is_repeated_without(statement: &str, way: Way) {
    let (fixture, proxy, provider) = proxied(way).await;
    let timers = Timers::new(&fixture.postgres);
    let running = scheduler(provider).await;
    for silenced in 1..=3 {
        proxy.silence(statement);
        let what = format!("{statement} is sent for the {silenced}th time, {way:?}");
        eventually(DEADLINE, &what, async || proxy.silenced() == silenced).await;
    }
    // And a timer that is due now becomes a message.
    let timer = timers.schedule(NewTimer::new("t", "", Duration::ZERO)).await.unwrap().work_item;
    eventually(DEADLINE, "the timer fires", async || {
        timers.get(timer).await.unwrap().is_none_or(|timer| timer.has_fired())
    })
    .await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn timers_jobs_and_maintenance_go_on_without_an_answer() {
    for statement in
        ["timers_forward", "jobs_due_jobs", "jobs_dispatch", "outbox_purge", "outbox_reap_expired"]
    {
        for way in WAYS {
            is_repeated_without(statement, way).await;
        }
    }
}

#[tokio::test]
async fn a_coordinator_whose_pass_gets_no_answer_gives_way_to_another() {
    let (fixture, proxy, provider) = proxied(Way::Direct).await;
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

/// A handler's own statement fails once its connection has said nothing for the time limit of calls.
#[tokio::test]
async fn a_statement_of_a_handler_without_an_answer_fails() {
    for way in WAYS {
        let (fixture, proxy, provider) = proxied(way).await;
        let outbox = provider.outbox();
        let mut tx = outbox.begin().await.unwrap();
        let own = tx.as_any_mut().downcast_mut::<PostgresTransaction>().unwrap();
        // One that works, slowly, for longer than that is left alone.
        let began = Instant::now();
        while began.elapsed() < 2 * CALL {
            own.client().unwrap().batch_execute("select pg_sleep(0.2)").await.unwrap();
        }
        proxy.silence("of a handler");
        let statement = own.client().unwrap().batch_execute("select 'of a handler'");
        let error = timeout(DEADLINE, statement).await.expect("it does not wait for ever").unwrap_err();
        assert!(error.is_closed(), "{way:?}: {error:?}");
        assert_eq!(proxy.silenced(), 1);
        let error = own.client().expect_err("nothing more can be done on it");
        assert!(error.is_retryable(), "{error}");
        tx.rollback().await.unwrap();
        // The pool is as good as new.
        fixture.enqueue("afterwards").await;
        assert_eq!(outbox.stats().await.unwrap().open(), 1);
    }
}

/// One that waits for a lock is canceled, and so holds no backend.
#[tokio::test]
async fn a_statement_of_a_handler_that_waits_too_long_is_canceled() {
    for way in WAYS {
        let (fixture, _proxy, provider) = proxied(way).await;
        let (observer, locker) = (fixture.database.client().await, fixture.database.client().await);
        locker.batch_execute("begin; lock table infra.outbox in access exclusive mode").await.unwrap();
        let mut tx = provider.outbox().begin().await.unwrap();
        let own = tx.as_any_mut().downcast_mut::<PostgresTransaction>().unwrap();
        let statement = own.client().unwrap().batch_execute("select count(*) from infra.outbox");
        let error = timeout(DEADLINE, statement).await.expect("it does not wait for ever").unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED), "{way:?}: {error:?}");
        eventually(DEADLINE, "nobody waits", async || !somebody_waits(&observer).await).await;
        assert!(own.client().is_err());
        tx.rollback().await.unwrap();
        locker.batch_execute("commit").await.unwrap();
        fixture.enqueue("afterwards").await;
        assert_eq!(provider.outbox().stats().await.unwrap().open(), 1);
    }
}

/// As many handlers as there can be at once hang on connections without an answer; the worker handles their messages again.
#[tokio::test]
async fn handlers_without_an_answer_do_not_stop_the_worker() {
    let (fixture, proxy, provider) = proxied(Way::Direct).await;
    let handled = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&handled);
    let handler = move |context: Context| {
        let notes = Arc::clone(&notes);
        async move {
            let payload = context.message().payload.clone();
            let mut tx = context.transaction::<PostgresTransaction>().await?;
            tx.driver().client()?.batch_execute(&format!("select 'handling {payload}'")).await?;
            tx.complete().await?;
            notes.lock().unwrap().push(payload);
            Ok::<_, HandlerError>(())
        }
    };
    let worker = Mainstay::builder_over(provider)
        .outbox(|outbox| quiet(outbox).options(|options| options.concurrency = 1).raw_handler("t", handler))
        .build()
        .unwrap();
    let running = worker.start().await.unwrap();
    proxy.silence("handling first");
    fixture.enqueue("first").await;
    eventually(DEADLINE, "a connection is silenced", async || proxy.silenced() == 1).await;
    fixture.enqueue("second").await;
    eventually(DEADLINE, "both are handled", async || handled.lock().unwrap().len() == 2).await;
    running.stop().await.unwrap();
}
