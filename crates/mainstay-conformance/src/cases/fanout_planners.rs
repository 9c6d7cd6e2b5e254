//! What planners may say, and what is made of it.

use std::collections::BTreeSet;
use std::convert::Infallible;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::OwnerToken;
use mainstay_core::fanout::{
    Candidate, FanoutDefinition, FanoutKey, FanoutSlice, KnownShards, Occasion, PlannedSlice, Planner,
    PlannerError, SliceTime, shards_from,
};
use mainstay_core::lease::Leases;
use mainstay_core::outbox::Message;

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::World;

use super::lease::{acquire, still};

use super::fanout::{MINUTE, definition, end_slices, fanout, key, made, messages, pass, pass_of};

cases! { $ fanout_planners_cases:
    r23_many_shards_are_planned_page_by_page ["R23"],
    r23_a_planner_may_say_itself_what_is_due ["R23"],
    r23_a_slice_that_is_there_already_counts_as_made ["R23"],
    r23_bad_keys_of_a_planner_harm_no_other_shard ["R23", "MST-022"],
    r23_hostile_keys_never_change_a_statement ["R23", "MST-022"],
}

/// Gives numbers from 0 on, a page at a time.
struct Numbers(usize);

#[async_trait]
impl Planner for Numbers {
    async fn candidates(
        &self,
        _key: &FanoutKey,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, PlannerError> {
        let from = after.map_or(Ok(0), |after| after.parse::<usize>().map(|last| last + 1))?;
        Ok((from..self.0).take(limit).map(|number| format!("{number:05}")).collect())
    }
}

async fn r23_many_shards_are_planned_page_by_page(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition()).await.unwrap();
    assert_eq!(pass(&world, &Numbers(1_234)).await.dispatched.len(), 1_234);
    assert_eq!(messages(&world).await.len(), 1_234);
    let again = pass(&world, &Numbers(1_235)).await;
    assert_eq!((again.dispatched.len(), again.in_flight), (1, 1_234));
    // Whoever gives all of them each time comes to an end as well. So does the planner where there is no other.
    let all = shards_from(|| {
        std::future::ready(Ok::<_, Infallible>((0..2_000).map(|n| format!("{n:05}")).collect()))
    });
    assert_eq!(pass(&world, &all).await.dispatched.len(), 2_000 - 1_235);
    let known = KnownShards::new(world.provider.fanout());
    assert_eq!(pass(&world, &known).await.in_flight, 2_000);
    assert_eq!(fanout.add_shards("etl", "payments", ["zzz", "zzz", "00000"]).await.unwrap(), 1);
    assert_eq!(made(&pass(&world, &known).await), BTreeSet::from(["zzz"]));
    let page = fanout.cursors("etl", "payments", Some("01998"), 10).await.unwrap();
    assert_eq!(page.iter().map(|cursor| cursor.shard_key.as_str()).collect::<Vec<_>>(), ["01999", "zzz"]);
    while end_slices(&world, false).await > 0 {}
    assert!(fanout.forget_shard("etl", "payments", "zzz").await.unwrap());
    assert!(!fanout.forget_shard("etl", "payments", "zzz").await.unwrap());
}

/// Due every time, whatever the cadence says; the shard `never` is not.
pub(super) struct Always;

#[async_trait]
impl Planner for Always {
    async fn candidates(
        &self,
        _key: &FanoutKey,
        _after: Option<&str>,
        _limit: usize,
    ) -> Result<Vec<String>, PlannerError> {
        Ok(["always", "fixed", "never"].map(str::to_owned).into())
    }

    fn due(&self, candidate: &Candidate<'_>) -> Option<SliceTime> {
        assert_eq!(candidate.occasion, Occasion::Cadence);
        match candidate.shard_key {
            "always" => Some(candidate.now.into()),
            // Always the same: two slices must not have the same id for that.
            "fixed" => Some(Timestamp::UNIX_EPOCH.into()),
            _ => None,
        }
    }
}

async fn r23_a_planner_may_say_itself_what_is_due(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    fanout(&world).register(definition()).await.unwrap();
    for round in 1..=3 {
        assert_eq!(made(&pass(&world, &Always).await), BTreeSet::from(["always", "fixed"]));
        assert_eq!(end_slices(&world, false).await, 2);
        assert_eq!(messages(&world).await.len(), 2 * round);
    }
}

async fn r23_a_slice_that_is_there_already_counts_as_made(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition()).await.unwrap();
    // As if the table of cursors came back from a copy that is older than the outbox.
    let planned = PlannedSlice::new(&key(), "fixed", None, Timestamp::UNIX_EPOCH.into());
    let message = Message::new("left over", "").work_item_id(planned.id);
    world.enqueue(message).await;
    assert_eq!(made(&pass(&world, &Always).await), BTreeSet::from(["always", "fixed"]), "the others go on");
    assert_eq!(messages(&world).await.len(), 1);
    let cursor = fanout.cursor("etl", "payments", "fixed").await.unwrap().unwrap();
    assert!(cursor.slice_id == Some(planned.id) && cursor.in_flight);
    assert_eq!(end_slices(&world, false).await, 2);
    pass(&world, &Always).await;
    assert_eq!(messages(&world).await.len(), 3, "and so does the shard, with the next one");
}

async fn r23_bad_keys_of_a_planner_harm_no_other_shard(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition()).await.unwrap();
    let keys = || {
        ["a".to_owned(), String::new(), "x".repeat(257), "n\0ul".to_owned(), "a".to_owned(), "b".to_owned()]
    };
    let planner = shards_from(move || std::future::ready(Ok::<_, Infallible>(keys().to_vec())));
    let pass = pass(&world, &planner).await;
    assert_eq!((made(&pass), pass.refused), (BTreeSet::from(["a", "b"]), 3));
    let fails =
        shards_from(|| std::future::ready(Err::<Vec<String>, _>(std::io::Error::other("no tenants today"))));
    let lease = acquire(&Leases::new(world.provider.leases()), &key().lease_name(), still()).await;
    let error = fanout.coordinate(&key(), &fails, &lease).await.unwrap_err();
    assert!(error.message().contains("no tenants today"), "{error}");
}

async fn r23_hostile_keys_never_change_a_statement(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    let hostile =
        ["'; drop table x; --", "\"$mainstay$", "a\\'b", "ключ:🔑", "%_\n\t", "{\"a\":[1]}", "null"];
    for (number, text) in hostile.into_iter().enumerate() {
        let key = FanoutKey::new(text.replace(':', "."), text).unwrap();
        let definition = FanoutDefinition::new(key.topic(), key.work_key()).every(MINUTE);
        let policy = fanout.register(definition).await.unwrap();
        assert_eq!(policy.key, key);
        let planner = shards_from(move || std::future::ready(Ok::<_, Infallible>(vec![text])));
        let pass = pass_of(&world, &key, &planner).await;
        assert_eq!(made(&pass), BTreeSet::from([text]));
        let claimed = world.claim_one(OwnerToken::new()).await;
        assert_eq!(claimed.topic, key.message_topic());
        let slice: FanoutSlice = serde_json::from_str(&claimed.payload).unwrap();
        assert!(fanout.complete(&slice, world.now().await).await.unwrap());
        let cursor = fanout.cursor(key.topic(), key.work_key(), text).await.unwrap().unwrap();
        assert!(cursor.last_completed_at.is_some() && cursor.shard_key == text);
        assert_eq!(fanout.list(None, 100).await.unwrap().len(), number + 1);
    }
    // The longest there are.
    let longest = FanoutKey::new("ü".repeat(100), "ü".repeat(100)).unwrap();
    fanout.register(FanoutDefinition::new(longest.topic(), longest.work_key()).every(MINUTE)).await.unwrap();
    let shard = "ü".repeat(256);
    let planner = {
        let shard = shard.clone();
        shards_from(move || std::future::ready(Ok::<_, Infallible>(vec![shard.clone()])))
    };
    assert_eq!(made(&pass_of(&world, &longest, &planner).await), BTreeSet::from([shard.as_str()]));
}
