//! Timers that somebody claims instead of letting them fire, beside those who fire them.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use mainstay_core::queue::{ClaimRequest, FailureReason, Status};
use mainstay_core::timer::{NewTimer, Timers};
use mainstay_core::{ErrorKind, OwnerToken, WorkItemId};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{LEASE, TOPIC, World, handles, ids, set};

cases! { $ timer_claims_cases:
    prim_sched_001_a_timer_is_not_claimed_before_it_is_due ["PRIM-SCHED-001"],
    prim_sched_002_a_claim_of_timers_keeps_to_the_batch ["PRIM-SCHED-002"],
    prim_sched_003_an_ack_by_the_owner_ends_a_timer ["PRIM-SCHED-003", "R4"],
    prim_sched_004_an_abandoned_timer_is_ready_again ["PRIM-SCHED-004", "R4"],
    r17_a_claimed_timer_can_fail_for_good ["R17"],
    r17_a_lapsed_claim_of_a_timer_is_taken_over ["R17", "R2"],
    mst_005_a_timer_that_kills_whoever_claims_it_stops_at_the_limit ["MST-005", "R3"],
    r17_claims_and_firing_never_share_a_timer ["R17", "PRIM-SCHED-003"],
}

const HOUR: Duration = Duration::from_secs(3_600);

async fn prim_sched_001_a_timer_is_not_claimed_before_it_is_due(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.schedule(NewTimer::new(TOPIC, "later", HOUR).ordering_key("k").header("h", "v")).await;
    let request = ClaimRequest::new(OwnerToken::new()).lease(LEASE);
    assert!(world.timers.claim(&request).await.unwrap().items.is_empty());
    world.advance(HOUR / 2).await;
    assert!(world.timers.claim(&request).await.unwrap().items.is_empty());
    world.advance(HOUR).await;
    let claimed = world.timers.claim(&request).await.unwrap().items;
    assert_eq!(ids(&claimed), set(&[id]));
    assert_eq!((claimed[0].topic.as_str(), claimed[0].payload.as_str()), (TOPIC, "later"));
    assert_eq!(claimed[0].ordering_key.as_deref(), Some("k"));
    assert_eq!(claimed[0].headers.keys().collect::<Vec<_>>(), ["h"]);
    world.assert_nothing_due().await;
}

async fn prim_sched_002_a_claim_of_timers_keeps_to_the_batch(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.schedule_some(10).await;
    let owner = OwnerToken::new();
    let mut had = BTreeSet::new();
    for expected in [4, 4, 2, 0] {
        let claimed =
            world.timers.claim(&ClaimRequest::new(owner).lease(LEASE).batch(4)).await.unwrap().items;
        assert_eq!(claimed.len(), expected);
        had.extend(ids(&claimed));
    }
    assert_eq!(had, set(&all));
    let error = world.timers.claim(&ClaimRequest::new(owner).batch(0)).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("batch")));
}

async fn prim_sched_003_an_ack_by_the_owner_ends_a_timer(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.schedule_some(1).await[0];
    let owner = OwnerToken::new();
    let claims = handles(&world.timers.claim(&ClaimRequest::new(owner).lease(LEASE)).await.unwrap().items);
    let other = world.timers.ack(OwnerToken::new(), &claims).await.unwrap();
    assert_eq!((other.changed.as_slice(), other.stale.as_slice()), (&[][..], &[id][..]));
    assert_eq!(world.timers.ack(owner, &claims).await.unwrap().changed, [id]);
    assert!(world.timer(id).await.has_fired());
    world.advance(2 * HOUR).await;
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [], "it is over, and becomes no message");
    assert_eq!(world.total().await, 0);
}

async fn prim_sched_004_an_abandoned_timer_is_ready_again(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.schedule_some(1).await[0];
    let owner = OwnerToken::new();
    let claims = handles(&world.timers.claim(&ClaimRequest::new(owner).lease(LEASE)).await.unwrap().items);
    let not_his = world.timers.abandon(OwnerToken::new(), &claims, None, None).await.unwrap();
    assert_eq!(not_his.stale, [id]);
    let error = Some("not now".to_owned());
    assert_eq!(world.timers.abandon(owner, &claims, Some(HOUR), error).await.unwrap().changed, [id]);
    let timer = world.timer(id).await;
    assert_eq!((timer.status(), timer.record().last_error.as_deref()), (Status::Ready, Some("not now")));
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [], "not before its delay is over");
    world.advance(2 * HOUR).await;
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [id]);
    assert_eq!(world.timers.ack(owner, &claims).await.unwrap().stale, [id], "the old claim is over");
}

async fn r17_a_claimed_timer_can_fail_for_good(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.schedule_some(1).await[0];
    let owner = OwnerToken::new();
    let claims = handles(&world.timers.claim(&ClaimRequest::new(owner).lease(LEASE)).await.unwrap().items);
    assert_eq!(world.timers.renew(owner, &claims, LEASE).await.unwrap().changed, [id]);
    let failed = world.timers.fail(owner, &claims, Some("no such thing".to_owned())).await.unwrap();
    assert_eq!(failed.changed, [id]);
    let timer = world.timer(id).await;
    assert_eq!((timer.status(), timer.reason()), (Status::Failed, Some(FailureReason::Handler)));
    assert_eq!(timer.record().last_error.as_deref(), Some("no such thing"));
    world.advance(2 * HOUR).await;
    assert_eq!(world.forward(OwnerToken::new(), 10).await, []);
    // An operator may change his mind: then it fires.
    assert_eq!(world.timers.queue().requeue(&[id]).await.unwrap(), [id]);
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [id]);
}

async fn r17_a_lapsed_claim_of_a_timer_is_taken_over(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.schedule_some(3).await;
    let gone = OwnerToken::new();
    let request = ClaimRequest::new(gone).lease(LEASE).batch(3);
    let claims = handles(&world.timers.claim(&request).await.unwrap().items);
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [], "they are somebody's");
    assert_eq!(world.timers.reap_expired().await.unwrap(), 0);
    world.advance(LEASE * 2).await;
    assert_eq!(world.timers.reap_expired().await.unwrap(), 3);
    assert_eq!(world.timer(all[0]).await.status(), Status::Ready);
    world.timers.claim(&request).await.unwrap();
    world.advance(LEASE * 2).await;
    // Without a reap as well.
    assert_eq!(set(&world.forward(OwnerToken::new(), 10).await), set(&all));
    assert_eq!(world.timers.ack(gone, &claims).await.unwrap().stale.len(), 3);
    assert_eq!(world.total().await, 3);
}

async fn mst_005_a_timer_that_kills_whoever_claims_it_stops_at_the_limit(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let killer = world.schedule_some(1).await[0];
    let mut deliveries = 0;
    for _ in 0..6 {
        let request = ClaimRequest::new(OwnerToken::new()).lease(LEASE).delivery_limit(5);
        deliveries += world.timers.claim(&request).await.unwrap().items.len();
        world.advance(LEASE * 2).await;
    }
    assert_eq!(deliveries, 5);
    assert_eq!(world.timer(killer).await.reason(), Some(FailureReason::DeliveryLimit));
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [], "nor does it fire");
}

/// Claims and acks, or fires, until nothing is left; returns what it had.
async fn have(timers: Timers, fires: bool) -> Vec<WorkItemId> {
    let owner = OwnerToken::new();
    let mut had = Vec::new();
    loop {
        let some = if fires {
            timers.queue().store().forward(owner, 7).await.unwrap()
        } else {
            let claimed = timers.claim(&ClaimRequest::new(owner).lease(LEASE).batch(7)).await.unwrap().items;
            timers.ack(owner, &handles(&claimed)).await.unwrap().changed
        };
        if some.is_empty() {
            return had;
        }
        had.extend(some);
    }
}

async fn r17_claims_and_firing_never_share_a_timer(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = fx.second().await;
    let many = (0..400).map(|n| NewTimer::new(TOPIC, n.to_string(), Duration::ZERO)).collect();
    let scheduled = world.timers.schedule_many(many).await.unwrap();
    let all: Vec<_> = scheduled.iter().map(|one| one.work_item).collect();
    let crew = (0..8).map(|n| {
        let timers = if n % 2 == 0 { world.timers.clone() } else { Timers::new(second.as_ref()) };
        tokio::spawn(have(timers, n < 4))
    });
    let had: Vec<Vec<_>> = join_all(crew).await.into_iter().map(Result::unwrap).collect();
    // No id twice, and none is missing but what was still locked by another when the last looked: nothing, in the end.
    let left = have(world.timers.clone(), true).await;
    let fired: Vec<_> = had[..4].concat().into_iter().chain(left).collect();
    let acked = had[4..].concat();
    assert_eq!(set(&[fired.clone(), acked].concat()), set(&all));
    assert_eq!(world.total().await, fired.len() as u64, "what was claimed became no message");
}
