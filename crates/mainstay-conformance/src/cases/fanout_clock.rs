//! Fan-outs on a database whose clock is set back.

use std::time::Duration;

use mainstay_core::fanout::{FanoutChange, FanoutSlice, Pass};
use mainstay_core::outbox::MessageFilter;

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::World;

use super::fanout::{definition, end_slices, fanout, key, made, pass, shards};

cases! { $ fanout_clock_cases:
    r23_cron_goes_on_where_the_clock_was_far_ahead ["R23"],
    r23_a_cadence_goes_on_where_the_clock_was_far_ahead ["R23"],
    r23_a_run_can_be_asked_for_where_the_clock_was_far_ahead ["R23"],
    r23_a_clock_that_is_set_back_by_little_repeats_nothing ["R23"],
    r23_a_policy_that_is_set_anew_forgets_a_run_that_is_still_to_come ["R23"],
}

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// A pass, all of whose slices are worked on at once.
async fn worked(world: &World<'_>) -> Pass {
    let pass = pass(world, &shards(["a", "b"])).await;
    complete(world, &pass.dispatched).await;
    assert_eq!(end_slices(world, false).await, pass.dispatched.len());
    pass
}

async fn complete(world: &World<'_>, slices: &[FanoutSlice]) {
    for slice in slices {
        fanout(world).complete(slice, slice.due_at).await.unwrap();
    }
}

/// One that has been run a year from now.
async fn daily_and_ahead(world: &World<'_>) {
    let daily = definition().every(Duration::ZERO).cron("@daily");
    fanout(world).register(daily).await.unwrap();
    world.advance(DAY + HOUR).await;
    assert_eq!(made(&worked(world).await), ["a", "b"].into());
    world.set_back(YEAR).await;
    let policy = fanout(world).get("etl", "payments").await.unwrap().unwrap();
    assert!(policy.last_run_at.unwrap() > world.now().await);
}

async fn r23_cron_goes_on_where_the_clock_was_far_ahead(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    daily_and_ahead(&world).await;
    // Not at once: nobody knows what was missed, if anything. From now on.
    let first = worked(&world).await;
    assert!(first.dispatched.is_empty());
    assert!(first.next.unwrap().as_secs() <= 24 * 3_600, "{:?}", first.next);
    let policy = fanout(&world).get("etl", "payments").await.unwrap().unwrap();
    assert!(policy.last_run_at.unwrap() <= world.now().await && policy.since_at <= world.now().await);
    // And from then on as ever, although the cursors, which never go back, are ahead still.
    for _ in 0..2 {
        world.advance(DAY).await;
        assert_eq!(made(&worked(&world).await), ["a", "b"].into());
        assert!(worked(&world).await.dispatched.is_empty());
        let cursor = fanout(&world).cursor("etl", "payments", "a").await.unwrap().unwrap();
        assert!(cursor.last_completed_at.unwrap() > world.now().await);
    }
}

async fn r23_a_cadence_goes_on_where_the_clock_was_far_ahead(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    fanout(&world).register(definition()).await.unwrap();
    assert_eq!(made(&worked(&world).await), ["a", "b"].into());
    world.set_back(YEAR).await;
    for _ in 0..2 {
        assert_eq!(made(&worked(&world).await), ["a", "b"].into());
        assert!(worked(&world).await.dispatched.is_empty(), "once in a cadence");
        world.advance(DAY).await;
    }
}

async fn r23_a_run_can_be_asked_for_where_the_clock_was_far_ahead(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    daily_and_ahead(&world).await;
    fanout(&world).set("etl", "payments", &FanoutChange::default().enabled(false)).await.unwrap();
    fanout(&world).run_now("etl", "payments").await.unwrap();
    assert_eq!(made(&worked(&world).await), ["a", "b"].into());
    let policy = fanout(&world).get("etl", "payments").await.unwrap().unwrap();
    assert!(policy.last_run_at.unwrap() <= world.now().await && policy.run_requested_at.is_none());
}

async fn r23_a_clock_that_is_set_back_by_little_repeats_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    fanout(&world).register(definition().every(Duration::ZERO).cron("@daily")).await.unwrap();
    world.advance(DAY + HOUR).await;
    assert_eq!(worked(&world).await.dispatched.len(), 2);
    world.set_back(HOUR).await;
    assert!(worked(&world).await.dispatched.is_empty());
    // The same moment comes again.
    world.advance(HOUR).await;
    assert!(worked(&world).await.dispatched.is_empty());
    let all = MessageFilter::default().topic(key().message_topic());
    assert_eq!(world.outbox.list(&all, Default::default()).await.unwrap().len(), 2);
    world.advance(DAY).await;
    assert_eq!(worked(&world).await.dispatched.len(), 2);
}

async fn r23_a_policy_that_is_set_anew_forgets_a_run_that_is_still_to_come(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    daily_and_ahead(&world).await;
    let fanout = fanout(&world);
    let hourly = FanoutChange::default().cron(Some("@hourly".to_owned()));
    let policy = fanout.set("etl", "payments", &hourly).await.unwrap();
    assert_eq!(policy.last_run_at, None);
    assert!(policy.since_at <= world.now().await);
    // Registering other values does the same.
    world.advance(2 * HOUR).await;
    assert_eq!(worked(&world).await.dispatched.len(), 2);
    world.set_back(YEAR).await;
    let policy = fanout.register(definition().every(Duration::ZERO).cron("@weekly")).await.unwrap();
    assert_eq!(policy.last_run_at, None);
    // What is not ahead is kept: it tells when there was a run.
    world.advance(2 * YEAR + 8 * DAY).await;
    let ran = worked(&world).await.dispatched[0].due_at;
    let policy = fanout.set("etl", "payments", &hourly).await.unwrap();
    assert_eq!(policy.last_run_at, Some(ran));
}
