//! Leases: acquiring, renewing, losing and giving up.

use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::lease::{Acquired, Lease, LeaseAnswer, LeaseClaim, LeaseOptions, LeaseRequest, Leases};
use mainstay_core::store::Names;

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{GRAIN, World, interrupted};

cases! { $ lease_cases:
    prim_lease_001_a_free_lease_is_acquired_with_a_token ["PRIM-LEASE-001", "R20"],
    prim_lease_002_a_held_lease_is_not_acquired_by_another ["PRIM-LEASE-002"],
    prim_lease_003_a_renewal_extends_the_lease ["PRIM-LEASE-003"],
    prim_lease_004_a_renewal_by_another_changes_nothing ["PRIM-LEASE-004"],
    prim_lease_005_a_renewal_increments_the_token ["PRIM-LEASE-005", "R20"],
    prim_lease_006_a_lapsed_lease_cancels_its_token ["PRIM-LEASE-006", "R20"],
    prim_lease_006_a_renewal_that_finds_it_lapsed_cancels_the_token ["PRIM-LEASE-006"],
    prim_lease_007_a_check_after_the_loss_is_an_error ["PRIM-LEASE-007"],
    prim_lease_008_a_renewal_after_the_loss_is_false ["PRIM-LEASE-008"],
    prim_lease_009_a_closed_lease_can_be_acquired_again ["PRIM-LEASE-009", "R20"],
    prim_lease_009_a_dropped_lease_can_be_acquired_again ["PRIM-LEASE-009", "R20"],
    prim_lease_010_a_lapsed_lease_can_be_acquired_by_another ["PRIM-LEASE-010", "R20"],
    r20_an_acquisition_given_up_midway_leaves_nothing_held ["R20"],
    r20_the_same_owner_gets_it_again_only_when_told_to ["R20"],
    r20_a_wait_ends_with_the_lease_or_with_its_time ["R20"],
    r20_arguments_out_of_bounds_are_refused ["R20", "PRIM-API-003"],
    r21_a_name_is_held_in_one_place ["R21"],
    mst_022_names_of_leases_never_change_a_statement ["MST-022", "R20"],
}

/// Long enough that nothing lapses within a case unless time is moved.
pub(super) const LONG: Duration = Duration::from_secs(600);

/// How long a case waits for something that should happen soon.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn leases(world: &World<'_>) -> Leases {
    Leases::new(world.provider.leases())
}

/// Another process, in effect.
pub(super) async fn others(fx: &dyn Fixture) -> Leases {
    Leases::new(fx.second().await.leases())
}

/// Held for long, and not renewed behind the case's back.
pub(super) fn still() -> LeaseOptions {
    LeaseOptions::default().duration(LONG).renew(false)
}

pub(super) async fn acquire(leases: &Leases, name: &str, options: LeaseOptions) -> Lease {
    match leases.acquire_with(name, options).await.unwrap() {
        Acquired::Lease(lease) => lease,
        Acquired::Held(holder) => panic!("{name} was to be free, but is {holder}"),
    }
}

pub(super) async fn is_held(leases: &Leases, name: &str) -> bool {
    leases.acquire_with(name, still()).await.unwrap().lease().is_none()
}

async fn prim_lease_001_a_free_lease_is_acquired_with_a_token(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let before = world.now().await;
    let lease = acquire(&leases, "reports", still().context("nightly run")).await;
    let after = world.now().await;
    assert_eq!((lease.name(), lease.owner()), ("reports", leases.owner()));
    assert_eq!((lease.epoch(), lease.fencing_token()), (1, 1));
    assert_eq!(lease.context(), Some("nightly run"));
    assert!(!lease.is_lost() && !lease.cancellation().is_cancelled());
    lease.check().unwrap();
    assert!((before..=after).contains(&lease.server_time()), "the answer has the database's time");
    let end = lease.server_time() + LONG;
    assert!((end..end + GRAIN).contains(&lease.expires_at()), "{end}: {}", lease.expires_at());
    assert!(lease.remaining() <= LONG);

    let record = leases.get("reports").await.unwrap().unwrap();
    assert!(record.held);
    assert_eq!((record.epoch, record.fencing_token), (1, 1));
    assert_eq!(record.owner.as_deref(), Some(leases.owner()));
    assert_eq!(record.context.as_deref(), Some("nightly run"));
    assert_eq!((record.acquired_at, record.renewed_at), (lease.server_time(), lease.server_time()));
    assert_eq!(record.expires_at, lease.expires_at());
    assert_eq!(leases.get("others").await.unwrap(), None);
}

async fn prim_lease_002_a_held_lease_is_not_acquired_by_another(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (leases, others) = (leases(&world), others(fx).await);
    let lease = acquire(&leases, "reports", still().context("here")).await;
    let before = leases.get("reports").await.unwrap();
    let Acquired::Held(holder) = others.acquire("reports").await.unwrap() else {
        panic!("it was given to two");
    };
    assert_eq!((holder.owner.as_deref(), holder.epoch), (Some(leases.owner()), 1));
    assert_eq!((holder.until, holder.context.as_deref()), (lease.expires_at(), Some("here")));
    assert!(holder.remaining() <= LONG + GRAIN && holder.remaining() > LONG / 2);
    assert!(holder.to_string().contains(leases.owner()), "{holder}");
    assert_eq!(leases.get("reports").await.unwrap(), before, "asking changes nothing");
    let _another = acquire(&others, "another", still()).await;
}

async fn prim_lease_003_a_renewal_extends_the_lease(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let lease = acquire(&leases, "reports", still()).await;
    world.advance(LONG / 2).await;
    assert!(lease.renew().await.unwrap());
    let end = lease.server_time() + LONG;
    assert!((end..end + GRAIN).contains(&lease.expires_at()), "{end}: {}", lease.expires_at());
    let record = leases.get("reports").await.unwrap().unwrap();
    assert_eq!((record.expires_at, record.renewed_at), (lease.expires_at(), lease.server_time()));
    assert!(record.acquired_at < record.renewed_at);
    world.advance(LONG * 3 / 4).await;
    assert!(is_held(&others(fx).await, "reports").await, "it is held beyond its first time");
    assert_eq!(lease.epoch(), 1);
}

async fn prim_lease_004_a_renewal_by_another_changes_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let lease = acquire(&leases, "reports", still().owner("me")).await;
    let before = leases.get("reports").await.unwrap();
    let claim = |name: &str, owner: &str, epoch| LeaseClaim { name: name.into(), owner: owner.into(), epoch };
    for foreign in [
        claim("reports", "somebody", 1),
        claim("reports", "me", 0),
        claim("reports", "me", 2),
        claim("reports", "ME", 1),
        claim("Reports", "me", 1),
        claim("none", "me", 1),
    ] {
        assert_eq!(leases.store().renew(&foreign, LONG).await.unwrap(), None, "{foreign:?}");
        assert!(!leases.store().release(&foreign).await.unwrap(), "{foreign:?}");
    }
    assert_eq!(leases.get("reports").await.unwrap(), before);
    assert!(lease.renew().await.unwrap());
}

async fn prim_lease_005_a_renewal_increments_the_token(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let lease = acquire(&leases, "reports", still()).await;
    for token in 2..=5 {
        assert!(lease.renew().await.unwrap());
        assert_eq!((lease.epoch(), lease.fencing_token()), (1, token));
    }
    lease.close().await.unwrap();
    let record = leases.get("reports").await.unwrap().unwrap();
    assert_eq!((record.epoch, record.fencing_token), (1, 5), "a release takes nothing back");
    let lease = acquire(&leases, "reports", still()).await;
    assert_eq!((lease.epoch(), lease.fencing_token()), (2, 6));
}

async fn prim_lease_006_a_lapsed_lease_cancels_its_token(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let short = LeaseOptions::default().duration(Duration::from_millis(200)).renew(false);
    let lease = acquire(&leases, "reports", short).await;
    // Nobody asks for it, and nothing renews it.
    tokio::time::timeout(PATIENCE, lease.cancellation().cancelled())
        .await
        .expect("the token to be cancelled");
    assert!(lease.is_lost());
    assert_eq!(lease.remaining(), Duration::ZERO);
}

async fn prim_lease_006_a_renewal_that_finds_it_lapsed_cancels_the_token(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    // Long enough not to lapse by this process's clock, and renewed soon.
    let options = LeaseOptions::default().duration(Duration::from_secs(10)).renew_at(0.1).jitter(0.05);
    let lease = acquire(&leases, "reports", options).await;
    world.advance(LONG).await;
    tokio::time::timeout(PATIENCE, lease.cancellation().cancelled())
        .await
        .expect("the token to be cancelled");
    assert!(lease.is_lost());
}

async fn prim_lease_007_a_check_after_the_loss_is_an_error(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let lease = acquire(&leases, "reports", still()).await;
    lease.check().unwrap();
    leases.force_release("reports").await.unwrap();
    assert!(!lease.renew().await.unwrap());
    let error = lease.check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    assert!(error.message().contains("\"reports\""), "it says which: {error}");
    assert!(!error.is_retryable());

    let lease = acquire(&leases, "reports", still()).await;
    assert!(lease.release().await.unwrap());
    assert_eq!(lease.check().unwrap_err().kind(), ErrorKind::LeaseLost);
    assert!(lease.cancellation().is_cancelled());
}

async fn prim_lease_008_a_renewal_after_the_loss_is_false(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let lease = acquire(&leases, "reports", still()).await;
    world.advance(LONG).await;
    // Nobody has taken it; lapsed is lost all the same.
    assert!(!lease.renew().await.unwrap());
    assert!(lease.is_lost());
    assert!(!lease.renew().await.unwrap(), "and stays so");
    let record = leases.get("reports").await.unwrap().unwrap();
    assert_eq!((record.held, record.fencing_token), (false, 1));
    assert!(!lease.release().await.unwrap(), "there is nothing to give up");
}

async fn prim_lease_009_a_closed_lease_can_be_acquired_again(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (leases, others) = (leases(&world), others(fx).await);
    let lease = acquire(&leases, "reports", still().context("me")).await;
    assert!(is_held(&others, "reports").await);
    assert!(lease.close().await.unwrap());
    let record = leases.get("reports").await.unwrap().unwrap();
    assert_eq!((record.held, record.owner, record.context), (false, None, None));
    let next = acquire(&others, "reports", still()).await;
    assert_eq!((next.epoch(), next.fencing_token()), (2, 2));
}

async fn prim_lease_009_a_dropped_lease_can_be_acquired_again(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (leases, others) = (leases(&world), others(fx).await);
    let lease = acquire(&leases, "reports", still()).await;
    let token = lease.cancellation().clone();
    drop(lease);
    assert!(token.is_cancelled(), "what runs under it is told");
    world.until("the lease is free", async |_| !is_held(&others, "reports").await).await;
}

async fn prim_lease_010_a_lapsed_lease_can_be_acquired_by_another(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (leases, others) = (leases(&world), others(fx).await);
    let first = acquire(&leases, "reports", still()).await;
    world.advance(LONG - Duration::from_secs(60)).await;
    assert!(is_held(&others, "reports").await, "not before its time");
    world.advance(Duration::from_secs(60)).await;
    let second = acquire(&others, "reports", still()).await;
    assert_eq!((second.epoch(), second.fencing_token()), (2, 2));
    assert!(!first.renew().await.unwrap());
    assert!(first.is_lost());
    drop(first);
    assert!(second.renew().await.unwrap(), "the first one's end takes nothing from the second");
}

async fn r20_an_acquisition_given_up_midway_leaves_nothing_held(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (leases, others) = (leases(&world), others(fx).await);
    for polls in 0..6 {
        drop(interrupted(polls, leases.acquire_with("reports", still())).await);
        world.until("the lease is free", async |_| !is_held(&others, "reports").await).await;
    }
}

async fn r20_the_same_owner_gets_it_again_only_when_told_to(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let first = acquire(&leases, "reports", still().owner("pod-0")).await;
    let again = leases.acquire_with("reports", still().owner("pod-0")).await.unwrap();
    let Acquired::Held(holder) = again else { panic!("two instances share a lease") };
    assert_eq!(holder.owner.as_deref(), Some("pod-0"));

    let stranger = leases.acquire_with("reports", still().owner("pod-1").reentrant(true)).await.unwrap();
    assert!(stranger.lease().is_none(), "it is for the same owner only");
    let second = acquire(&leases, "reports", still().owner("pod-0").reentrant(true)).await;
    assert_eq!((second.epoch(), second.fencing_token()), (2, 2), "a new acquisition");
    assert!(!first.renew().await.unwrap(), "the earlier instance has lost it");
    drop(first);
    assert!(second.renew().await.unwrap());
}

async fn r20_a_wait_ends_with_the_lease_or_with_its_time(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (leases, others) = (leases(&world), others(fx).await);
    let lease = acquire(&leases, "reports", still()).await;
    let impatient = others.acquire_with("reports", still().wait(Duration::from_millis(50))).await.unwrap();
    assert!(impatient.lease().is_none());
    let (waited, released) =
        tokio::join!(others.acquire_with("reports", still().wait(PATIENCE)), lease.release());
    assert!(released.unwrap());
    assert_eq!(waited.unwrap().lease().expect("the lease was given up").epoch(), 2);
}

async fn r20_arguments_out_of_bounds_are_refused(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let long = "ü".repeat(256);
    for name in ["", "a\0b", &long] {
        let fields = [
            leases.acquire(name).await.map(drop).unwrap_err(),
            leases.get(name).await.map(drop).unwrap_err(),
            leases.force_release(name).await.map(drop).unwrap_err(),
        ];
        for error in fields {
            assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("name")), "{error}");
        }
    }
    let error = leases.acquire_with("reports", still().duration(Duration::ZERO)).await.map(drop).unwrap_err();
    assert_eq!(error.field(), Some("duration"));
    assert_eq!(leases.get("reports").await.unwrap(), None, "nothing was written");
    // The longest of each.
    let name = "ü".repeat(255);
    let lease = acquire(&leases, &name, still().owner("é".repeat(255)).context("ß".repeat(4_096))).await;
    let record = leases.get(&name).await.unwrap().unwrap();
    assert_eq!((record.owner.as_deref(), record.context.as_deref()), (Some(lease.owner()), lease.context()));
}

async fn r21_a_name_is_held_in_one_place(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let other = World::named(fx, Names::default().with_outbox("other").unwrap()).await;
    let (here, there) = (leases(&world), leases(&other));
    let first = acquire(&here, "reports", still()).await;
    // Another home is another lease; nothing goes looking for one that answers.
    let second = acquire(&there, "reports", still()).await;
    assert_ne!(here.store().identifier(), there.store().identifier());
    first.close().await.unwrap();
    assert!(is_held(&there, "reports").await);
    assert!(second.renew().await.unwrap());
}

async fn mst_022_names_of_leases_never_change_a_statement(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    for name in ["it's", "\"; drop table lease; --", "📦", "a\\b%_", "{{lease}}", "$1", " "] {
        let request = LeaseRequest {
            name: name.to_owned(),
            owner: name.to_owned(),
            duration: LONG,
            context: Some(name.to_owned()),
            reentrant: false,
        };
        let LeaseAnswer::Granted(grant) = leases.store().acquire(&request).await.unwrap() else {
            panic!("{name:?} is free");
        };
        let record = leases.get(name).await.unwrap().unwrap();
        assert_eq!((record.name.as_str(), record.owner.as_deref()), (name, Some(name)));
        let claim = LeaseClaim { name: name.to_owned(), owner: name.to_owned(), epoch: grant.epoch };
        assert!(leases.store().renew(&claim, LONG).await.unwrap().is_some());
        assert!(leases.store().release(&claim).await.unwrap());
    }
}
