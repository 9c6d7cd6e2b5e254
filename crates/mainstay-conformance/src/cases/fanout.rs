//! Fan-outs: how policies are kept, and what a coordinator makes of them.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use jiff::SignedDuration;
use mainstay_core::fanout::{
    Fanout, FanoutChange, FanoutDefinition, FanoutKey, FanoutSlice, Pass, PlannedSlice, Planner,
    PlannerError, jitter, shards_from,
};
use mainstay_core::lease::Leases;
use mainstay_core::outbox::{MessageFilter, Outbox, OutboxMessage, Page};
use mainstay_core::store::Names;
use mainstay_core::{ErrorKind, OwnerToken};

use crate::case::{Verdict, cases};
use crate::fixture::{Fixture, Lacking};
use crate::world::{World, interrupted};

use super::lease::{acquire, still};

cases! { $ fanout_cases:
    r23_slices_go_to_the_outbox_with_ids_anybody_can_tell ["R23"],
    r23_jitter_is_the_same_for_the_same_window_and_within_its_bound ["R23"],
    r23_a_slice_in_flight_is_not_planned_again ["R23"],
    r23_a_failed_slice_is_planned_again_after_its_cadence ["R23"],
    r23_what_was_missed_is_one_slice ["R23"],
    r23_two_coordinators_make_one_slice ["R23"],
    r23_a_coordinator_that_lost_its_lease_dispatches_nothing ["R23", "R20"],
    r23_what_was_planned_by_an_old_policy_is_not_dispatched ["R23"],
    r23_a_coordinator_may_die_anywhere ["R23"],
    r23_cron_runs_at_its_occurrences_and_catches_up_once ["R23"],
    r23_the_functions_of_fan_outs_are_there_for_every_language ["R23"],
    r23_the_documented_rights_are_enough_for_fan_outs ["R23"],
}

pub(super) const MINUTE: Duration = Duration::from_secs(60);

pub(super) fn key() -> FanoutKey {
    FanoutKey::new("etl", "payments").unwrap()
}

pub(super) fn definition() -> FanoutDefinition {
    FanoutDefinition::new("etl", "payments").every(10 * MINUTE)
}

pub(super) fn fanout(world: &World<'_>) -> Fanout {
    Fanout::new(world.provider.as_ref())
}

/// Another process, in effect.
pub(super) async fn other(fx: &dyn Fixture) -> Fanout {
    Fanout::new(fx.second().await.as_ref())
}

/// A planner of these shards.
pub(super) fn shards<const N: usize>(shards: [&'static str; N]) -> impl Planner {
    shards_from(move || std::future::ready(Ok::<_, Infallible>(shards.to_vec())))
}

/// One pass of a coordinator that has the lease for no longer than that.
pub(super) async fn pass(world: &World<'_>, planner: &dyn Planner) -> Pass {
    pass_of(world, &key(), planner).await
}

pub(super) async fn pass_of(world: &World<'_>, key: &FanoutKey, planner: &dyn Planner) -> Pass {
    let leases = Leases::new(world.provider.leases());
    let lease = acquire(&leases, &key.lease_name(), still()).await;
    let pass = fanout(world).coordinate(key, planner, &lease).await.unwrap();
    assert!(lease.close().await.unwrap(), "the lease was held to the end");
    pass
}

pub(super) fn made(pass: &Pass) -> BTreeSet<&str> {
    pass.dispatched.iter().map(|slice| slice.shard_key.as_str()).collect()
}

pub(super) async fn messages(world: &World<'_>) -> Vec<OutboxMessage> {
    let filter = MessageFilter::default().topic(key().message_topic());
    let mut all: Vec<OutboxMessage> = Vec::new();
    loop {
        let page = Page { limit: 1_000, before: all.last().map(|message| message.id) };
        let more = world.outbox.list(&filter, page).await.unwrap();
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

/// Ends all slices that are under way, without moving a cursor.
pub(super) async fn end_slices(world: &World<'_>, fail: bool) -> usize {
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 1_000).await;
    let handles = claimed.iter().map(|item| item.handle).collect::<Vec<_>>();
    let settled = match fail {
        true => world.outbox.fail(owner, &handles, None).await,
        false => world.outbox.ack(owner, &handles).await,
    };
    assert_eq!(settled.unwrap().changed.len(), claimed.len());
    claimed.len()
}

pub(super) fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

async fn r23_slices_go_to_the_outbox_with_ids_anybody_can_tell(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition()).await.unwrap();
    let completed = world.now().await - seconds(3_600);
    fanout.complete(&FanoutSlice::new(&key(), "known", completed), completed).await.unwrap();
    let known = fanout.cursor("etl", "payments", "known").await.unwrap().unwrap();
    let completed = known.last_completed_at.unwrap();

    let pass = pass(&world, &shards(["known", "new"])).await;
    assert_eq!(made(&pass), BTreeSet::from(["known", "new"]));
    let messages = messages(&world).await;
    assert_eq!(messages.len(), 2);
    for message in messages {
        let slice: FanoutSlice = serde_json::from_str(message.payload.as_deref().unwrap()).unwrap();
        assert_eq!((slice.fanout_topic.as_str(), slice.work_key.as_str()), ("etl", "payments"));
        assert!(pass.dispatched.contains(&slice));
        let (before, window) = match slice.shard_key.as_str() {
            "known" => (Some(&known), Some(completed)),
            _ => (None, None),
        };
        assert_eq!(slice.window_start, window);
        let planned = PlannedSlice::new(&key(), &slice.shard_key, before, slice.due_at.into());
        assert_eq!((message.id, message.message_id), (planned.id, planned.message));
        let cursor = fanout.cursor("etl", "payments", &slice.shard_key).await.unwrap().unwrap();
        assert_eq!((cursor.slice_id, cursor.slice_due_at), (Some(message.id), Some(slice.due_at)));
        assert!(cursor.in_flight && cursor.last_completed_at == window && cursor.slice_cursor_at == window);
        assert!(slice.due_at <= world.now().await);
    }
    let policy = fanout.get("etl", "payments").await.unwrap().unwrap();
    assert!(policy.last_run_at.is_some() && policy.version == 1, "a run is no change");
}

async fn r23_jitter_is_the_same_for_the_same_window_and_within_its_bound(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition().jitter(10 * MINUTE)).await.unwrap();
    let planner = shards(["a", "b", "c", "d", "e", "f"]);
    let completed = world.now().await;
    for shard in ["a", "b", "c", "d", "e", "f"] {
        fanout.complete(&FanoutSlice::new(&key(), shard, completed), completed).await.unwrap();
    }
    // Before the cadence has passed, none is due; the next look is for the first of them.
    world.advance(9 * MINUTE).await;
    let early = pass(&world, &planner).await;
    assert!(early.dispatched.is_empty());
    assert!(early.next.unwrap() <= seconds(600), "{:?}", early.next);
    let mut seen = BTreeSet::new();
    for _ in 0..11 {
        world.advance(MINUTE).await;
        let now = world.now().await;
        for slice in pass(&world, &planner).await.dispatched {
            let window = slice.window_start.unwrap();
            let nominal = window + seconds(600);
            assert_eq!(slice.due_at, nominal + jitter(&key(), &slice.shard_key, window, 10 * MINUTE));
            assert!(slice.due_at >= nominal && slice.due_at < nominal + seconds(600), "{slice:?}");
            assert!(slice.due_at <= now + seconds(60), "not before it is due");
            assert!(seen.insert(slice.shard_key.clone()), "{} was made twice", slice.shard_key);
        }
    }
    assert_eq!(seen.len(), 6, "all are due once the jitter has passed");
}

async fn r23_a_slice_in_flight_is_not_planned_again(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    fanout(&world).register(definition()).await.unwrap();
    let planner = shards(["a", "b"]);
    assert_eq!(pass(&world, &planner).await.dispatched.len(), 2);
    let again = pass(&world, &planner).await;
    assert_eq!((again.dispatched.len(), again.in_flight), (0, 2), "waiting");
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 10).await;
    assert_eq!(claimed.len(), 2);
    // However many cadences pass, and also when it is asked for.
    world.advance(60 * MINUTE).await;
    assert_eq!(pass(&world, &planner).await.in_flight, 2, "being worked on");
    fanout(&world).run_now("etl", "payments").await.unwrap();
    assert_eq!(pass(&world, &planner).await.in_flight, 2, "asked for");
    assert_eq!(messages(&world).await.len(), 2);
}

async fn r23_a_failed_slice_is_planned_again_after_its_cadence(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition()).await.unwrap();
    let planner = shards(["a"]);
    let mut ids = BTreeSet::new();
    for round in 0..3 {
        // Whether it failed, or was done without a completion.
        assert_eq!(pass(&world, &planner).await.dispatched.len(), 1, "round {round}");
        ids.insert(fanout.cursor("etl", "payments", "a").await.unwrap().unwrap().slice_id);
        assert_eq!(end_slices(&world, round != 1).await, 1);
        let soon = pass(&world, &planner).await;
        assert_eq!((soon.dispatched.len(), soon.in_flight), (0, 0), "not before its cadence");
        assert!(soon.next.unwrap() > seconds(60), "{:?}", soon.next);
        world.advance(9 * MINUTE).await;
        assert_eq!(pass(&world, &planner).await.dispatched.len(), 0);
        world.advance(MINUTE).await;
    }
    assert_eq!(ids.len(), 3, "each has an id of its own");
    let cursor = fanout.cursor("etl", "payments", "a").await.unwrap().unwrap();
    assert_eq!(cursor.last_completed_at, None);
}

async fn r23_what_was_missed_is_one_slice(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition()).await.unwrap();
    let now = world.now().await;
    fanout.complete(&FanoutSlice::new(&key(), "a", now), now).await.unwrap();
    world.advance(24 * 60 * MINUTE).await;
    let slices = pass(&world, &shards(["a"])).await.dispatched;
    assert_eq!(slices.len(), 1);
    let now = world.now().await;
    assert!(slices[0].due_at > now - seconds(601), "the last of the windows that were missed");
    assert_eq!(end_slices(&world, true).await, 1);
    assert_eq!(
        pass(&world, &shards(["a"])).await.dispatched.len(),
        0,
        "failing, it does not come for each of them"
    );
}

async fn r23_two_coordinators_make_one_slice(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = fx.second().await;
    let (fanout, other) = (fanout(&world), Fanout::new(second.as_ref()));
    let other_outbox = Outbox::new(second.outbox());
    let version = fanout.register(definition()).await.unwrap().version;
    let now = world.now().await;
    fanout.complete(&FanoutSlice::new(&key(), "old", now), now).await.unwrap();
    // Both have planned the same, and no lease keeps them apart.
    for round in 0..10 {
        let mut planned = Vec::new();
        for shard in ["old", "new"] {
            let cursor = fanout.cursor("etl", "payments", shard).await.unwrap();
            planned.push(PlannedSlice::new(
                &key(),
                shard,
                cursor.as_ref(),
                (now + seconds(600 * (round + 1))).into(),
            ));
        }
        let claim = async |fanout: &Fanout, outbox: &Outbox| {
            let mut transaction = outbox.store().begin().await.unwrap();
            let call = fanout.store().claim(&key(), version, &planned);
            let claimed = fanout.store().claimed(&transaction.call(&call).await.unwrap()).unwrap();
            transaction.commit().await.unwrap();
            claimed.len()
        };
        let (one, two) = tokio::join!(claim(&fanout, &world.outbox), claim(&other, &other_outbox));
        assert!((one, two) == (2, 0) || (one, two) == (0, 2), "round {round}: {one} and {two}");
    }
}

/// A planner of the shards a and b, during whose first answer something happens.
struct Meanwhile(Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>);

impl Meanwhile {
    fn new<Fut: Future<Output = ()> + Send + 'static>(
        happens: impl Fn() -> Fut + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(move || Box::pin(happens())))
    }
}

#[async_trait]
impl Planner for Meanwhile {
    async fn candidates(
        &self,
        _key: &FanoutKey,
        after: Option<&str>,
        _limit: usize,
    ) -> Result<Vec<String>, PlannerError> {
        if after.is_none() {
            (self.0)().await;
        }
        Ok(vec!["a".to_owned(), "b".to_owned()])
    }
}

async fn r23_a_coordinator_that_lost_its_lease_dispatches_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition()).await.unwrap();
    let (leases, others) = (Leases::new(world.provider.leases()), Leases::new(fx.second().await.leases()));
    let lease = acquire(&leases, &key().lease_name(), still()).await;
    // As if it was paused while it planned, for so long that another took over.
    let takes_over = Meanwhile::new(move || {
        let others = others.clone();
        async move {
            others.force_release(&key().lease_name()).await.unwrap();
            let next = acquire(&others, &key().lease_name(), still()).await;
            std::mem::forget(next);
        }
    });
    let error = fanout.coordinate(&key(), &takes_over, &lease).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");
    assert!(lease.is_lost());
    assert_eq!(messages(&world).await.len(), 0);
    assert_eq!(fanout.cursors("etl", "payments", None, 10).await.unwrap(), [], "nothing at all was written");
    // Nor does one that has somebody else's lease.
    let wrong = acquire(&leases, "fanout:etl:vendors", still()).await;
    let error = fanout.coordinate(&key(), &shards(["a"]), &wrong).await.unwrap_err();
    assert_eq!(error.field(), Some("lease"));
}

async fn r23_what_was_planned_by_an_old_policy_is_not_dispatched(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition()).await.unwrap();
    let other = other(fx).await;
    let disables = Meanwhile::new(move || {
        let other = other.clone();
        async move {
            let change = FanoutChange::default().enabled(false);
            other.set("etl", "payments", &change).await.unwrap();
        }
    });
    assert_eq!(pass(&world, &disables).await.dispatched, []);
    assert_eq!(messages(&world).await.len(), 0);
}

async fn r23_a_coordinator_may_die_anywhere(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition().cron("@hourly").every(Duration::ZERO)).await.unwrap();
    world.advance(60 * MINUTE).await;
    let planner = shards(["a", "b", "c"]);
    for polls in 1..40 {
        let leases = Leases::new(world.provider.leases());
        let lease = acquire(&leases, &key().lease_name(), still().wait(MINUTE)).await;
        interrupted(polls, fanout.coordinate(&key(), &planner, &lease)).await;
        lease.close().await.unwrap();
    }
    pass(&world, &planner).await;
    let messages = messages(&world).await;
    assert_eq!(messages.len(), 3, "each shard has one slice, however often somebody began to make them");
    for cursor in fanout.cursors("etl", "payments", None, 10).await.unwrap() {
        assert!(cursor.in_flight, "a cursor knows of no slice that is not there: {cursor:?}");
    }
}

async fn r23_cron_runs_at_its_occurrences_and_catches_up_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition().every(Duration::ZERO).cron("0 0 1 1 *").jitter(MINUTE)).await.unwrap();
    let planner = shards(["a", "b"]);
    let idle = pass(&world, &planner).await;
    assert_eq!(idle.dispatched.len(), 0, "no occurrence has come since it was registered");
    assert!(idle.next.unwrap() > SignedDuration::ZERO);
    // Nobody was there for three years.
    world.advance(Duration::from_secs(3 * 366 * 24 * 3_600)).await;
    let slices = pass(&world, &planner).await.dispatched;
    assert_eq!(slices.len(), 2, "one run stands for three");
    let ran = fanout.get("etl", "payments").await.unwrap().unwrap().last_run_at.unwrap();
    assert_eq!(ran.strftime("%m-%d %H:%M:%S").to_string(), "01-01 00:00:00");
    for slice in &slices {
        assert!(slice.due_at >= ran && slice.due_at < ran + seconds(60), "jitter counts from the occurrence");
    }
    assert_eq!(end_slices(&world, false).await, 2);
    // Another coordinator begins anew, and finds nothing to catch up with.
    assert_eq!(pass(&world, &planner).await.dispatched.len(), 0);
    assert_eq!(messages(&world).await.len(), 2);

    // Another expression counts from now: what it would have missed is not made up for.
    let change = FanoutChange::default().cron(Some("0 0 * * *".into()));
    fanout.set("etl", "payments", &change).await.unwrap();
    assert_eq!(pass(&world, &planner).await.dispatched.len(), 0);
    world.advance(24 * 60 * MINUTE).await;
    assert_eq!(pass(&world, &planner).await.dispatched.len(), 2);
}

async fn r23_the_functions_of_fan_outs_are_there_for_every_language(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        return Verdict::NotApplicable("functions");
    }
    let fanout = fanout(&world);
    let names = Names::default();
    let call = async |function: &str, arguments: &[Option<&str>]| fx.call(&names, function, arguments).await;
    assert_eq!(
        call("fanout_register", &[Some("etl"), Some("payments"), Some("600")]).await.unwrap().len(),
        1
    );
    assert_eq!(fanout.get("etl", "payments").await.unwrap().unwrap().every, 10 * MINUTE);
    // What a program registers with the same values is the same, whoever registered it.
    assert_eq!(fanout.register(definition()).await.unwrap().version, 1);
    let set = [Some("etl"), Some("payments"), None, Some("5"), Some("@hourly")];
    assert_eq!(call("fanout_set", &set).await.unwrap().len(), 1);
    let policy = fanout.get("etl", "payments").await.unwrap().unwrap();
    assert_eq!((policy.every, policy.cron.as_deref()), (10 * MINUTE, Some("@hourly")));
    assert_eq!(call("fanout_set", &[Some("no"), Some("such")]).await.unwrap().len(), 0);
    assert_eq!(call("fanout_run", &[Some("etl"), Some("payments")]).await.unwrap(), ["t"]);
    assert_eq!(call("fanout_run", &[Some("no"), Some("such")]).await.unwrap(), ["f"]);
    assert_eq!(
        call("fanout_add_shards", &[Some("etl"), Some("payments"), Some("{a,b,a}")]).await.unwrap(),
        ["2"]
    );
    let complete = async |at| call("fanout_complete", &[Some("etl"), Some("payments"), Some("a"), at]).await;
    assert_eq!(complete(Some("2027-01-01 10:00+00")).await.unwrap(), ["t"]);
    assert_eq!(complete(Some("2027-01-01 09:00+00")).await.unwrap(), ["f"]);
    let cursor = fanout.cursor("etl", "payments", "a").await.unwrap().unwrap();
    assert_eq!(cursor.last_completed_at.unwrap().to_string(), "2027-01-01T10:00:00Z");
    assert_eq!(
        call("fanout_forget_shard", &[Some("etl"), Some("payments"), Some("b")]).await.unwrap(),
        ["t"]
    );
    for (function, arguments, says) in [
        ("fanout_register", vec![None, Some("w"), Some("1")], "topic"),
        ("fanout_register", vec![Some("a:b"), Some("w"), Some("1")], "colon"),
        ("fanout_register", vec![Some("t"), Some(""), Some("1")], "work_key"),
        ("fanout_register", vec![Some("t"), Some("w")], "every_seconds"),
        ("fanout_register", vec![Some("t"), Some("w"), Some("1"), Some("-1")], "jitter_seconds"),
        ("fanout_set", vec![Some("etl"), Some("payments"), Some("-1")], "every_seconds"),
        ("fanout_complete", vec![Some("etl"), Some("payments"), Some("a"), Some("infinity")], "at"),
        ("fanout_complete", vec![Some("etl"), Some("payments"), Some("a"), None], "at"),
    ] {
        if !fx.can_say(function, &arguments) {
            continue;
        }
        let told = call(function, &arguments).await.unwrap_err();
        assert!(told.starts_with(function) && told.contains(says), "{function}: {told}");
    }
    Verdict::Passed
}

async fn r23_the_documented_rights_are_enough_for_fan_outs(fx: &dyn Fixture) -> Result<(), Lacking> {
    let provider = fx.least_privilege().await?;
    let world = World::over(fx, provider, Names::default());
    let fanout = fanout(&world);
    fanout.register(definition()).await.unwrap();
    let slices = pass(&world, &shards(["a"])).await.dispatched;
    assert!(fanout.complete(&slices[0], world.now().await).await.unwrap());
    fanout.set("etl", "payments", &FanoutChange::default().every(MINUTE)).await.unwrap();
    fanout.run_now("etl", "payments").await.unwrap();
    assert_eq!(end_slices(&world, false).await, 1);
    assert!(fanout.forget_shard("etl", "payments", "a").await.unwrap());
    Ok(())
}
