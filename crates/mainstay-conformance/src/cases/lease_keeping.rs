//! Leases over time: renewal in the background, the deadline, contenders, and numbers that never go back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use mainstay_core::ErrorKind;
use mainstay_core::audit::Actor;
use mainstay_core::lease::{LeaseAnswer, LeaseClaim, LeaseFilter, LeaseOptions, LeaseRequest, Ran};
use mainstay_tests::eventually;

use crate::case::cases;
use crate::faulty_leases::{Fault, FaultyLeases};
use crate::fixture::Fixture;
use crate::world::World;

use super::lease::{LONG, PATIENCE, acquire, is_held, leases, others, still};

cases! { $ lease_keeping_cases:
    r20_a_lease_of_200_milliseconds_is_kept ["R20"],
    r20_without_renewal_nothing_is_renewed ["R20"],
    r20_a_renewal_by_hand_is_one_too ["R20"],
    r20_a_database_that_fails_or_hangs_loses_the_lease_in_time ["R20"],
    r20_a_database_that_fails_for_a_moment_loses_nothing ["R20"],
    r20_a_storm_of_contenders_has_one_winner_at_a_time ["R20", "PRIM-LEASE-002"],
    r20_numbers_never_go_back_over_a_thousand_random_steps ["R20", "PRIM-LEASE-005", "MST-009"],
    r20_work_under_a_lease_ends_with_it ["R20"],
}

const SHORT: Duration = Duration::from_millis(200);

async fn r20_a_lease_of_200_milliseconds_is_kept(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    // A machine that stands still for longer than the lease loses it, rightly; then once more.
    world
        .until("a lease of 200 ms is kept for five renewals", async |_| {
            let lease =
                acquire(&leases, "short", LeaseOptions::default().duration(SHORT).wait(PATIENCE)).await;
            eventually(PATIENCE, "five renewals, or the loss of it", async || {
                lease.fencing_token() - lease.epoch() >= 5 || lease.is_lost()
            })
            .await;
            let kept = lease.fencing_token() >= 6 && lease.check().is_ok();
            lease.close().await.unwrap();
            kept
        })
        .await;
}

async fn r20_without_renewal_nothing_is_renewed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let lease = acquire(&leases, "reports", LeaseOptions::default().duration(SHORT).renew(false)).await;
    tokio::time::timeout(PATIENCE, lease.cancellation().cancelled()).await.expect("the lease lapses");
    assert_eq!(lease.fencing_token(), 1);
    let next = acquire(&others(fx).await, "reports", still().wait(PATIENCE)).await;
    assert_eq!((next.epoch(), next.fencing_token()), (2, 2));
}

async fn r20_a_renewal_by_hand_is_one_too(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let second = LeaseOptions::default().duration(Duration::from_secs(2)).renew(false);
    let lease = acquire(&leases, "reports", second).await;
    let first = lease.expires_at();
    // A machine that stands still for longer than the lease loses it, rightly.
    world
        .until("it is held beyond its first time, or lost", async |_| {
            assert!(lease.renew().await.unwrap() || lease.is_lost());
            lease.is_lost() || lease.server_time() > first
        })
        .await;
}

async fn r20_a_database_that_fails_or_hangs_loses_the_lease_in_time(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for fault in [Fault::Fails, Fault::Hangs] {
        let (faulty, leases) = FaultyLeases::renewing(&leases(&world));
        faulty.set(fault);
        let second = LeaseOptions::default().duration(Duration::from_secs(1)).wait(PATIENCE);
        let lease = acquire(&leases, "reports", second).await;
        tokio::time::timeout(PATIENCE, lease.cancellation().cancelled())
            .await
            .expect("the lease counts as lost");
        assert_eq!(lease.check().unwrap_err().kind(), ErrorKind::LeaseLost);
        let tried = faulty.met();
        assert!(tried > 0, "it was tried");
        assert!(!lease.renew().await.unwrap(), "once lost, it stays lost");
        assert_eq!(faulty.met(), tried, "and nobody is asked");
    }
}

async fn r20_a_database_that_fails_for_a_moment_loses_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (faulty, leases) = FaultyLeases::renewing(&leases(&world));
    faulty.set(Fault::Fails);
    // Tried from the first second on, and lost after about a minute.
    let options = LeaseOptions::default().duration(PATIENCE).renew_at(0.1).jitter(0.09);
    let lease = acquire(&leases, "reports", options).await;
    world.until("it fails", async |_| faulty.met() >= 2).await;
    assert_eq!(lease.fencing_token(), 1);
    faulty.set(Fault::None);
    world.until("it is renewed", async |_| lease.fencing_token() >= 2).await;
    lease.check().unwrap();
    assert_eq!(lease.epoch(), 1);
}

async fn r20_a_storm_of_contenders_has_one_winner_at_a_time(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mut instances = vec![leases(&world)];
    for _ in 0..3 {
        instances.push(others(fx).await);
    }
    let inside = AtomicUsize::new(0);
    let contender = async |n: usize| {
        let leases = &instances[n % instances.len()];
        let lease =
            acquire(leases, "storm", still().owner(format!("contender-{n}")).wait(PATIENCE * 4)).await;
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold it at the same time");
        let holder = leases.get("storm").await.unwrap().unwrap().owner;
        assert_eq!(holder.as_deref(), Some(lease.owner()));
        assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two hold it at the same time");
        let numbers = (lease.epoch(), lease.fencing_token());
        assert!(lease.close().await.unwrap());
        numbers
    };
    let mut won = join_all((0..64).map(contender)).await;
    won.sort_unstable();
    assert_eq!(won, (1..=64).map(|n| (n, n)).collect::<Vec<_>>(), "each won once, under a number of its own");
}

/// Numbers that are the same on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

async fn r20_numbers_never_go_back_over_a_thousand_random_steps(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let store = leases(&world).store().clone();
    let mut random = Random(20_260_220);
    // What the model knows of a name: its numbers, who holds it, and how long still.
    let mut known: HashMap<String, (i64, i64)> = HashMap::new();
    let mut held: HashMap<String, (LeaseClaim, Duration)> = HashMap::new();
    let mut lost: Vec<LeaseClaim> = Vec::new();
    let (mut granted, mut renewed, mut lapsed) = (0, 0, 0);
    for step in 0..1_000 {
        let name = format!("lease-{}", random.below(3));
        let owner = format!("owner-{}", random.below(4));
        match random.below(10) {
            0..=3 => {
                let reentrant = random.below(4) == 0;
                let request = LeaseRequest {
                    name: name.clone(),
                    owner: owner.clone(),
                    duration: LONG,
                    context: None,
                    reentrant,
                };
                let free = held.get(&name).is_none_or(|(claim, _)| reentrant && claim.owner == owner);
                match store.acquire(&request).await.unwrap() {
                    LeaseAnswer::Held(holder) => {
                        assert!(!free, "step {step}: {name} is free");
                        assert_eq!(holder.owner, held.get(&name).map(|(claim, _)| claim.owner.clone()));
                    }
                    LeaseAnswer::Granted(grant) => {
                        assert!(free, "step {step}: {name} was given to two");
                        let (epoch, token) = known.get(&name).copied().unwrap_or((0, 0));
                        assert_eq!((grant.epoch, grant.fencing_token), (epoch + 1, token + 1), "step {step}");
                        known.insert(name.clone(), (grant.epoch, grant.fencing_token));
                        let claim = LeaseClaim { name: name.clone(), owner, epoch: grant.epoch };
                        lost.extend(held.insert(name, (claim, LONG)).map(|(claim, _)| claim));
                        granted += 1;
                    }
                }
            }
            4..=6 => {
                let Some((claim, left)) = held.get_mut(&name) else { continue };
                let grant = store.renew(claim, LONG).await.unwrap().expect("it is held");
                let (epoch, token) = known[&name];
                assert_eq!((grant.epoch, grant.fencing_token), (epoch, token + 1), "step {step}");
                known.insert(name, (epoch, token + 1));
                *left = LONG;
                renewed += 1;
            }
            7 => {
                let Some((claim, _)) = held.remove(&name) else { continue };
                assert!(store.release(&claim).await.unwrap(), "step {step}");
                lost.push(claim);
            }
            8 => {
                let owner = held.remove(&name).map(|(claim, _)| claim);
                assert_eq!(
                    store.force_release(&name, &Actor::library()).await.unwrap(),
                    owner.as_ref().map(|c| c.owner.clone())
                );
                lost.extend(owner);
            }
            _ => {
                // Whole minutes, so that the time the case itself takes does not matter.
                let by = Duration::from_secs(60 * (1 + random.below(8))) + Duration::from_secs(30);
                world.advance(by).await;
                let before = held.len();
                held.retain(|_, (claim, left)| {
                    *left = left.saturating_sub(by);
                    if left.is_zero() {
                        lost.push(claim.clone());
                    }
                    !left.is_zero()
                });
                lapsed += before - held.len();
            }
        }
        // Whoever has lost one can't do anything with it.
        if let Some(claim) = lost.get(usize::try_from(random.below(50)).unwrap()) {
            assert_eq!(store.renew(claim, LONG).await.unwrap(), None, "step {step}: {claim:?}");
            assert!(!store.release(claim).await.unwrap(), "step {step}: {claim:?}");
        }
    }
    for record in store.list(&LeaseFilter::all()).await.unwrap() {
        assert_eq!((record.epoch, record.fencing_token), known[&record.name]);
        assert_eq!(record.held, held.contains_key(&record.name));
    }
    assert!(
        granted > 50 && renewed > 50 && lapsed > 5,
        "{granted} granted, {renewed} renewed, {lapsed} lapsed"
    );
}

async fn r20_work_under_a_lease_ends_with_it(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (leases, others) = (leases(&world).with_options(still()), others(fx).await);
    let ran = leases.run_with_lease("reports", |lease| async move {
        lease.check().unwrap();
        lease.epoch()
    });
    assert_eq!(ran.await.unwrap(), Ran::Done(1));
    assert!(!is_held(&others, "reports").await, "it was given up at the end");

    let lease = acquire(&others, "reports", still()).await;
    let begun = AtomicBool::new(false);
    let ran = leases.run_with_lease("reports", |_| async { begun.store(true, Ordering::SeqCst) });
    let Ran::Held(holder) = ran.await.unwrap() else { panic!("it ran without the lease") };
    assert_eq!(holder.owner.as_deref(), Some(others.owner()));
    assert!(!begun.load(Ordering::SeqCst));
    drop(lease);

    let stopped = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stopped);
    let short = LeaseOptions::default().duration(SHORT).renew(false).wait(PATIENCE);
    let ran = leases.run_with("reports", short, |_| async move {
        let _told = Told(told);
        std::future::pending::<()>().await;
    });
    assert_eq!(ran.await.unwrap_err().kind(), ErrorKind::LeaseLost);
    assert!(stopped.load(Ordering::SeqCst), "the work was dropped");
}

/// Tells that it was dropped.
struct Told(Arc<AtomicBool>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
