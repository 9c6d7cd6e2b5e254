//! Sweeps after a clock has jumped, or after a time in which none ran.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::audit::AuditRetention;
use mainstay_core::lease::{LeaseAnswer, LeaseRequest, Leases};
use mainstay_core::operation::OperationOptions;
use mainstay_core::outbox::{Message, Retention};
use mainstay_core::runtime::Mainstay;
use mainstay_core::store::Provider;
use mainstay_core::{OwnerToken, WorkItemId};
use mainstay_tests::eventually;
use serde_json::{Value, json};
use tracing::Level;

use crate::case::cases;
use crate::crew::PATIENCE;
use crate::fixture::Fixture;
use crate::overheard::Overheard;
use crate::probe::Logs;
use crate::world::{TOPIC, World};

cases! { $ sweep_cases:
    r29_a_clock_that_jumps_ahead_deletes_only_a_part ["R29"],
    r29_a_clock_that_jumps_ahead_between_two_pages_deletes_only_a_part ["R29"],
    r29_after_a_time_without_sweeps_all_is_deleted_in_the_end ["R29"],
    r29_each_sweep_notes_the_clock_it_saw ["R29"],
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The lease in which sweeps keep their state.
const STATE: &str = "mainstay:retention";

/// A message that is done.
async fn finish(world: &World<'_>) -> WorkItemId {
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claim = world.claim_one(owner).await.handle;
    world.outbox.ack(owner, &[claim]).await.unwrap();
    id
}

async fn exists(world: &World<'_>, id: WorkItemId) -> bool {
    world.outbox.get(id).await.unwrap().is_some()
}

async fn state(leases: &Leases) -> Option<Value> {
    let record = leases.get(STATE).await.unwrap()?;
    Some(serde_json::from_str(record.context.as_deref()?).unwrap())
}

/// At least one sweep of the outbox, by a process that does nothing else for it.
async fn sweep(world: &World<'_>) {
    let leases = Leases::new(world.provider.leases());
    let mut before = state(&leases).await;
    let builder = Mainstay::builder_over(world.provider.clone());
    let often = Retention::default().interval(Duration::from_millis(10));
    let builder = builder
        .outbox(|outbox| outbox.retention(Some(often)).reap_every(None).gauges_every(None))
        .inbox(|inbox| inbox.retention(None).reap_every(None).gauges_every(None));
    let running = builder.build().unwrap().start().await.unwrap();
    // When the second begins, the first one has ended.
    for what in ["a sweep has begun", "another has begun"] {
        eventually(PATIENCE, what, async || state(&leases).await != before).await;
        before = state(&leases).await;
    }
    running.stop().await.unwrap();
}

/// The clock is set to so many days later, or earlier: what was written before stays behind, what sweeps have noted as well.
async fn jump(world: &World<'_>, days: i64) {
    let by = Duration::from_secs(24 * 3_600 * days.unsigned_abs());
    match days {
        1.. => world.advance(by).await,
        _ => world.set_back(by).await,
    }
    let leases = Leases::new(world.provider.leases());
    let mut state = state(&leases).await.expect("a sweep before");
    for moment in state["outbox"].as_object_mut().unwrap().values_mut() {
        let then: Timestamp = moment.as_str().unwrap().parse().unwrap();
        *moment = json!(if days > 0 { then - by } else { then + by });
    }
    let request = LeaseRequest {
        name: STATE.to_owned(),
        owner: STATE.to_owned(),
        duration: DAY,
        context: Some(state.to_string()),
        reentrant: true,
    };
    let answer = leases.store().acquire(&request).await.unwrap();
    assert!(matches!(answer, LeaseAnswer::Granted(_)), "{answer:?}");
}

async fn r29_a_clock_that_jumps_ahead_deletes_only_a_part(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let old = finish(&world).await;
    world.advance(29 * DAY).await;
    let recent = finish(&world).await;
    sweep(&world).await;
    assert!(exists(&world, old).await, "not old enough");
    let logs = Logs::capture();
    let told = || logs.find(Level::WARN, "far ahead of the last sweep").len();
    jump(&world, 1_000).await;
    for round in 1..=3 {
        sweep(&world).await;
        assert!(told() >= round, "each sweep says so");
    }
    assert!(exists(&world, recent).await, "by the clock before the jump it was done a moment ago");
    assert!(!exists(&world, old).await, "a part of the jump is believed");
    // The clock is right again, and nothing is left of it.
    jump(&world, -1_000).await;
    let before = told();
    sweep(&world).await;
    assert_eq!(told(), before);
    assert!(exists(&world, recent).await);
    // What an operator asks for does not wait.
    jump(&world, 1_000).await;
    sweep(&world).await;
    assert!(exists(&world, recent).await);
    assert_eq!(world.outbox.purge(&Retention::default()).await.unwrap(), 1);
    assert!(!exists(&world, recent).await);
}

async fn r29_a_clock_that_jumps_ahead_between_two_pages_deletes_only_a_part(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let old = [finish(&world).await, finish(&world).await];
    world.advance(31 * DAY).await;
    let recent = finish(&world).await;
    let overheard = Arc::new(Overheard::new(world.provider.clone()));
    let provider: Arc<dyn Provider> = Arc::<Overheard>::clone(&overheard);
    let retention = Retention::default().interval(Duration::from_millis(10)).batch(1);
    let builder = Mainstay::builder_over(provider);
    let builder = builder
        .outbox(|outbox| outbox.retention(Some(retention)).reap_every(None).gauges_every(None))
        .inbox(|inbox| inbox.retention(None).reap_every(None).gauges_every(None));
    let running = builder.build().unwrap();
    let leases = Leases::new(world.provider.leases());
    let ((), running) = tokio::join!(overheard.page_deleted(), running.start());
    let running = running.unwrap();
    // The sweep has begun, and its first page is deleted.
    jump(&world, 31).await;
    let before = state(&leases).await;
    overheard.delete_the_rest();
    for id in old {
        eventually(PATIENCE, "the old ones are deleted", async || !exists(&world, id).await).await;
    }
    eventually(PATIENCE, "it has looked at the clock", async || state(&leases).await != before).await;
    // By now another sweep has begun, so this one has ended.
    running.stop().await.unwrap();
    sweep(&world).await;
    assert!(exists(&world, recent).await, "by the clock before the jump it was done a moment ago");
}

async fn r29_after_a_time_without_sweeps_all_is_deleted_in_the_end(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    sweep(&world).await;
    let message = finish(&world).await;
    // Nothing ran for two months.
    jump(&world, 60).await;
    sweep(&world).await;
    assert!(exists(&world, message).await);
    // Processes sweep again; it takes as long as the gap was at most.
    let mut days = 0;
    while exists(&world, message).await {
        assert!(days < 60, "it is never deleted");
        jump(&world, 3).await;
        sweep(&world).await;
        days += 3;
    }
    assert!(days > 0);
}

async fn r29_each_sweep_notes_the_clock_it_saw(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = Leases::new(world.provider.leases());
    let builder = Mainstay::builder_over(world.provider.clone());
    let builder = builder
        .audit(AuditRetention::default().age(Some(30 * DAY)))
        .timers(|timers| timers)
        .joins(|joins| joins)
        .jobs(|jobs| jobs)
        .operations(OperationOptions::default())
        .job("nightly", "0 3 * * *", |job| job.topic(TOPIC).payload(""));
    let running = builder.build().unwrap().start().await.unwrap();
    let all = ["audit", "inbox", "job_run_queue", "job_runs", "joins", "operations", "outbox", "timers"];
    eventually(PATIENCE, "all sweeps have run", async || {
        let state = state(&leases).await;
        state.is_some_and(|state| state.as_object().unwrap().keys().eq(all))
    })
    .await;
    assert_eq!(leases.active().await.unwrap(), 1, "one lease for all of them");
    running.stop().await.unwrap();
}
