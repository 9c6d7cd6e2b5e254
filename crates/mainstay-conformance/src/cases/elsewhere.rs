//! Leases and reservations whose holder is outside this process, and keeps them with what he was given.

use std::time::Duration;

use mainstay_core::inbox::{BeginAnswer, EntryState, GuardOptions, InboxKey, Reservation, ReservationEnd};
use mainstay_core::lease::{LeaseAnswer, LeaseClaim, LeaseOptions};
use mainstay_core::{ErrorKind, OwnerToken};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::World;

use super::lease::{leases, others};

cases! { $ elsewhere_cases:
    r20_a_lease_held_elsewhere_follows_the_rules_of_one_held_here ["R20"],
    r20_a_lease_held_elsewhere_lapses ["R20", "MST-006"],
    r14_a_reservation_held_elsewhere_follows_the_rules_of_a_guard ["R14"],
    r14_a_reservation_held_elsewhere_lapses ["R14", "MST-006"],
}

fn options(owner: &str) -> LeaseOptions {
    LeaseOptions::default().owner(owner)
}

async fn r20_a_lease_held_elsewhere_follows_the_rules_of_one_held_here(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (leases, others) = (leases(&world), others(fx).await);
    let (mine, LeaseAnswer::Granted(grant)) = leases.grant("reports", &options("a")).await.unwrap() else {
        panic!("it was free");
    };
    assert_eq!((mine.owner.as_str(), mine.epoch), ("a", grant.epoch));
    let (_, LeaseAnswer::Held(holder)) = others.grant("reports", &options("b")).await.unwrap() else {
        panic!("it is held");
    };
    assert_eq!(holder.owner.as_deref(), Some("a"));
    let renewed = others.renew_claim(&mine, Duration::from_secs(60)).await.unwrap().unwrap();
    assert!(renewed.fencing_token > grant.fencing_token && renewed.epoch == grant.epoch);
    // Whoever knows a part of it has nothing.
    for wrong in [LeaseClaim { owner: "b".into(), ..mine.clone() }, LeaseClaim { epoch: 2, ..mine.clone() }] {
        assert_eq!(leases.renew_claim(&wrong, Duration::from_secs(60)).await.unwrap(), None);
        assert!(!leases.release_claim(&wrong).await.unwrap());
    }
    assert!(leases.release_claim(&mine).await.unwrap());
    assert!(!leases.release_claim(&mine).await.unwrap(), "once");
    for (wrong, field) in [
        (leases.grant("", &options("a")).await.map(drop), "name"),
        (leases.grant("reports", &options("")).await.map(drop), "owner"),
        (leases.renew_claim(&mine, Duration::ZERO).await.map(drop), "duration"),
        (leases.release_claim(&LeaseClaim { owner: "a\0".into(), ..mine.clone() }).await.map(drop), "owner"),
    ] {
        assert_eq!(wrong.unwrap_err().field(), Some(field));
    }
}

async fn r20_a_lease_held_elsewhere_lapses(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let (mine, _) = leases.grant("reports", &options("a")).await.unwrap();
    world.advance(Duration::from_secs(31)).await;
    assert_eq!(
        leases.renew_claim(&mine, Duration::from_secs(30)).await.unwrap(),
        None,
        "nobody renewed it in time"
    );
    let (next, LeaseAnswer::Granted(_)) = leases.grant("reports", &options("b")).await.unwrap() else {
        panic!("it lapsed");
    };
    assert!(next.epoch > mine.epoch);
    assert!(!leases.release_claim(&mine).await.unwrap(), "it is the next one's");
    assert!(leases.release_claim(&next).await.unwrap());
}

async fn r14_a_reservation_held_elsewhere_follows_the_rules_of_a_guard(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (inbox, options) = (&world.inbox, GuardOptions::default());
    for (id, end, state) in [
        ("done", ReservationEnd::Complete, EntryState::Done),
        ("dead", ReservationEnd::Fail(Some("no\0".repeat(2_000))), EntryState::Dead),
        ("free", ReservationEnd::Release(None), EntryState::Seen),
    ] {
        let key = InboxKey::new("billing", id).unwrap();
        let (mine, answer) = inbox.reserve(&key, OwnerToken::new(), &options).await.unwrap();
        let mine = mine.unwrap();
        assert!(matches!(answer, BeginAnswer::New(reserved) if reserved.attempt == 1), "{answer:?}");
        let (none, busy) = inbox.reserve(&key, OwnerToken::new(), &options).await.unwrap();
        assert!(none.is_none() && matches!(busy, BeginAnswer::Busy { .. }), "{busy:?}");
        assert!(inbox.renew_reservation(&mine, Duration::from_secs(60)).await.unwrap().is_some());
        let stolen = Reservation { owner: OwnerToken::new(), ..mine.clone() };
        assert!(!inbox.end_reservation(&stolen, ReservationEnd::Complete).await.unwrap());
        assert!(inbox.end_reservation(&mine, end.clone()).await.unwrap());
        assert!(!inbox.end_reservation(&mine, end).await.unwrap(), "once");
        assert_eq!(inbox.get("billing", id).await.unwrap().unwrap().state, state);
    }
    let key = InboxKey::new("billing", "other").unwrap();
    let nil = OwnerToken::from_uuid(uuid::Uuid::nil());
    let error = inbox.reserve(&key, nil, &options).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("owner")));
    assert_eq!(inbox.get("billing", "other").await.unwrap(), None, "nothing was written");
}

async fn r14_a_reservation_held_elsewhere_lapses(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (inbox, options) = (&world.inbox, GuardOptions::default());
    let key = InboxKey::new("billing", "m").unwrap();
    let (mine, _) = inbox.reserve(&key, OwnerToken::new(), &options).await.unwrap();
    world.advance(Duration::from_secs(31)).await;
    let (next, _) = inbox.reserve(&key, OwnerToken::new(), &options).await.unwrap();
    let (mine, next) = (mine.unwrap(), next.unwrap());
    assert_eq!(inbox.renew_reservation(&mine, Duration::from_secs(60)).await.unwrap(), None);
    assert!(!inbox.end_reservation(&mine, ReservationEnd::Complete).await.unwrap(), "it is the next one's");
    assert!(inbox.end_reservation(&next, ReservationEnd::Complete).await.unwrap());
}
