//! Policies of fan-outs: how they are registered, changed and switched off.

use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::ErrorKind;
use mainstay_core::fanout::{FanoutChange, FanoutDefinition, FanoutKey, FanoutPolicy, FanoutSlice};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::World;

use super::fanout::{MINUTE, definition, end_slices, fanout, key, other, pass, shards};

cases! { $ fanout_policy_cases:
    r23_the_cadence_is_stored_when_it_is_registered ["R23"],
    r23_the_same_registration_does_not_undo_a_change ["R23"],
    r23_a_policy_is_changed_at_run_time ["R23"],
    r23_a_disabled_fan_out_plans_nothing_but_what_is_asked_for ["R23"],
    r23_what_breaks_a_rule_is_refused ["R23"],
}

async fn r23_the_cadence_is_stored_when_it_is_registered(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (fanout, other) = (fanout(&world), other(fx).await);
    let before = world.now().await;
    let full = definition().jitter(MINUTE).cron("*/10 * * * *").time_zone("Europe/Berlin");
    let policy = fanout.register(full).await.unwrap();
    let after = world.now().await;
    assert_eq!((policy.every, policy.jitter), (10 * MINUTE, MINUTE));
    assert_eq!((policy.cron.as_deref(), policy.time_zone.as_str()), (Some("*/10 * * * *"), "Europe/Berlin"));
    assert!(policy.enabled && policy.version == 1 && policy.last_run_at.is_none());
    assert!((before..=after).contains(&policy.created_at), "by the database's clock");
    assert_eq!((policy.updated_at, policy.since_at), (policy.created_at, policy.created_at));
    assert_eq!(other.get("etl", "payments").await.unwrap(), Some(policy));
    assert_eq!(other.get("etl", "vendors").await.unwrap(), None);

    for (topic, work_key) in [("etl", "vendors"), ("reports", "daily"), ("etl", "")] {
        let definition = FanoutDefinition::new(topic, work_key).every(MINUTE);
        assert_eq!(fanout.register(definition).await.is_ok(), !work_key.is_empty());
    }
    let keys = |policies: &[FanoutPolicy]| -> Vec<String> {
        policies.iter().map(|policy| policy.key.to_string()).collect()
    };
    assert_eq!(keys(&fanout.list(None, 10).await.unwrap()), ["etl:payments", "etl:vendors", "reports:daily"]);
    let after = FanoutKey::new("etl", "vendors").unwrap();
    assert_eq!(keys(&fanout.list(Some(&after), 10).await.unwrap()), ["reports:daily"]);
    assert_eq!(keys(&fanout.list(None, 1).await.unwrap()), ["etl:payments"]);
}

async fn r23_the_same_registration_does_not_undo_a_change(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (fanout, other) = (fanout(&world), other(fx).await);
    fanout.register(definition()).await.unwrap();
    let change = FanoutChange::default().every(5 * MINUTE).enabled(false);
    let changed = other.set("etl", "payments", &change).await.unwrap();
    assert_eq!((changed.every, changed.enabled, changed.version), (5 * MINUTE, false, 2));
    // As every start of the program does.
    let registered = fanout.register(definition()).await.unwrap();
    assert_eq!(registered, changed);
    // A new release has other values.
    let registered = fanout.register(definition().every(20 * MINUTE)).await.unwrap();
    assert_eq!((registered.every, registered.enabled, registered.version), (20 * MINUTE, true, 3));
    let registered = fanout.register(definition().every(20 * MINUTE)).await.unwrap();
    assert_eq!(registered.version, 3);
}

async fn r23_a_policy_is_changed_at_run_time(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    let registered = fanout.register(definition().jitter(MINUTE)).await.unwrap();
    let set = async |change: FanoutChange| fanout.set("etl", "payments", &change).await;
    let unchanged = set(FanoutChange::default().every(10 * MINUTE)).await.unwrap();
    assert_eq!(unchanged, registered, "what is so already changes nothing");
    let policy =
        set(FanoutChange::default().cron(Some("@hourly".into())).time_zone("Asia/Tokyo")).await.unwrap();
    assert_eq!((policy.cron.as_deref(), policy.time_zone.as_str()), (Some("@hourly"), "Asia/Tokyo"));
    assert_eq!((policy.every, policy.jitter), (10 * MINUTE, MINUTE), "the rest stays");
    let policy = set(FanoutChange::default().cron(None).jitter(Duration::ZERO)).await.unwrap();
    assert_eq!((policy.cron, policy.jitter), (None, Duration::ZERO));
    for (change, field) in [
        (FanoutChange::default().every(Duration::ZERO), "every"),
        (FanoutChange::default().cron(Some("nonsense".into())), "cron"),
        (FanoutChange::default().time_zone("Nowhere"), "time_zone"),
        (FanoutChange::default().jitter(Duration::from_millis(1)), "jitter"),
    ] {
        assert_eq!(set(change).await.unwrap_err().field(), Some(field));
    }
    let unknown = fanout.set("etl", "vendors", &FanoutChange::default().enabled(false)).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    assert_eq!(fanout.run_now("etl", "vendors").await.unwrap_err().kind(), ErrorKind::NotFound);
    // Changes of two at once are both made.
    let (one, two) = (FanoutChange::default().every(3 * MINUTE), FanoutChange::default().jitter(2 * MINUTE));
    let other = other(fx).await;
    let (one, two) = tokio::join!(fanout.set("etl", "payments", &one), other.set("etl", "payments", &two));
    one.unwrap();
    two.unwrap();
    let policy = fanout.get("etl", "payments").await.unwrap().unwrap();
    assert_eq!((policy.every, policy.jitter, policy.version), (3 * MINUTE, 2 * MINUTE, 5));
}

async fn r23_a_disabled_fan_out_plans_nothing_but_what_is_asked_for(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition().enabled(false)).await.unwrap();
    let planner = shards(["a", "b"]);
    let idle = pass(&world, &planner).await;
    assert_eq!((idle.dispatched.len(), idle.next), (0, None), "and waits for a change alone");
    world.advance(60 * MINUTE).await;
    assert_eq!(pass(&world, &planner).await.dispatched.len(), 0);
    fanout.run_now("etl", "payments").await.unwrap();
    assert!(fanout.get("etl", "payments").await.unwrap().unwrap().run_requested_at.is_some());
    assert_eq!(pass(&world, &planner).await.dispatched.len(), 2);
    let policy = fanout.get("etl", "payments").await.unwrap().unwrap();
    assert_eq!((policy.run_requested_at, policy.enabled), (None, false));
    assert_eq!(end_slices(&world, true).await, 2);
    assert_eq!(pass(&world, &planner).await.dispatched.len(), 0, "asked for once, made once");

    // Whatever the cadence says.
    fanout.set("etl", "payments", &FanoutChange::default().enabled(true)).await.unwrap();
    assert_eq!(pass(&world, &planner).await.dispatched.len(), 0);
    fanout.run_now("etl", "payments").await.unwrap();
    assert_eq!(pass(&world, &planner).await.dispatched.len(), 2);
    assert_eq!(pass(&world, &planner).await.dispatched.len(), 0);
}

async fn r23_what_breaks_a_rule_is_refused(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    for (definition, field) in [
        (FanoutDefinition::new("", "w").every(MINUTE), "topic"),
        (FanoutDefinition::new("a:b", "w").every(MINUTE), "topic"),
        (FanoutDefinition::new("t".repeat(101), "w").every(MINUTE), "topic"),
        (FanoutDefinition::new("t", "w".repeat(101)).every(MINUTE), "work_key"),
        (FanoutDefinition::new("t", "w\0").every(MINUTE), "work_key"),
        (FanoutDefinition::new("t", "w"), "every"),
        (definition().cron("61 * * * *"), "cron"),
    ] {
        let error = fanout.register(definition).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)));
    }
    assert_eq!(fanout.list(None, 10).await.unwrap(), []);
    assert_eq!(fanout.list(None, 0).await.unwrap_err().field(), Some("limit"));
    let slice = FanoutSlice::new(&key(), "x".repeat(257), Timestamp::UNIX_EPOCH);
    let error = fanout.complete(&slice, Timestamp::UNIX_EPOCH).await.unwrap_err();
    assert_eq!(error.field(), Some("shard_key"));
    let error = fanout.add_shards("etl", "payments", ["fine", ""]).await.unwrap_err();
    assert_eq!(error.field(), Some("shard_key"));
}
