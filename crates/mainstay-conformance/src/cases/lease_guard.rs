//! Leases where it counts: guarding the application's own writes; and what operators, roles and other languages see of them.

use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::lease::{LeaseClaim, LeaseFilter, LeaseOptions, Leases, LeasesRequest};
use mainstay_core::queue::Context;
use mainstay_core::store::Names;
use tracing::Level;

use crate::case::{Verdict, cases};
use crate::crew::Reports;
use crate::fixture::{End, Fixture, Lacking};
use crate::probe::{Logs, Meter};
use crate::world::{TOPIC, World};

use super::lease::{LONG, PATIENCE, acquire, is_held, leases, others, still};

cases! { $ lease_guard_cases:
    r20_a_guarded_transaction_commits_while_the_lease_is_held ["R20"],
    r20_a_guard_fails_once_the_epoch_has_moved_on ["R20"],
    r20_a_guard_fails_once_the_lease_has_lapsed_or_was_taken_away ["R20"],
    r20_nobody_gets_the_lease_while_a_guarded_transaction_is_open ["R20"],
    r20_a_guard_does_not_hold_up_renewals_longer_than_its_transaction ["R20"],
    r20_a_handler_guards_its_own_transaction ["R20", "MST-030"],
    r20_leases_are_listed_and_taken_away_by_operators ["R20", "R30"],
    r20_the_functions_are_there_for_every_language ["R20"],
    r20_the_documented_rights_are_enough ["R20"],
    r26_leases_are_logged_and_counted ["R26", "R27", "R20"],
}

async fn r20_a_guarded_transaction_commits_while_the_lease_is_held(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let lease = acquire(&leases(&world), "reports", still()).await;
    fx.guarded(&lease, "one", End::Commit).await.unwrap();
    fx.guarded(&lease, "undone", End::Rollback).await.unwrap();
    assert!(lease.renew().await.unwrap());
    fx.guarded(&lease, "two", End::Commit).await.unwrap();
    assert_eq!(fx.notes().await, ["one", "two"]);
    assert_eq!((lease.epoch(), lease.fencing_token()), (1, 2), "a guard changes no number");
    lease.close().await.unwrap();
    assert!(!is_held(&others(fx).await, "reports").await);
}

async fn r20_a_guard_fails_once_the_epoch_has_moved_on(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (leases, others) = (leases(&world), others(fx).await);
    let first = acquire(&leases, "reports", still().owner("same")).await;
    world.advance(LONG).await;
    // By the same owner, even: it is the epoch that counts.
    let second = acquire(&others, "reports", still().owner("same")).await;
    assert!(!first.is_lost(), "the first one has not noticed");
    let error = fx.guarded(&first, "late", End::Commit).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");
    assert!(!error.is_retryable());
    assert!(first.is_lost() && first.cancellation().is_cancelled(), "now it has");
    fx.guarded(&second, "in time", End::Commit).await.unwrap();
    assert_eq!(fx.notes().await, ["in time"]);
    let error = fx.guarded(&first, "later", End::Commit).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
}

async fn r20_a_guard_fails_once_the_lease_has_lapsed_or_was_taken_away(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let lapsed = acquire(&leases, "lapsed", still()).await;
    world.advance(LONG).await;
    let taken = acquire(&leases, "taken", still()).await;
    leases.force_release("taken").await.unwrap();
    for lease in [&lapsed, &taken] {
        let error = fx.guarded(lease, "late", End::Commit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error}");
    }
    assert!(fx.notes().await.is_empty());
}

async fn r20_nobody_gets_the_lease_while_a_guarded_transaction_is_open(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (leases, others) = (leases(&world), others(fx).await);
    // All of it within what a provider grants a handler's transaction at least: 5 s.
    let short = LeaseOptions::default().duration(Duration::from_secs(2)).renew(false);
    let lease = acquire(&leases, "reports", short).await;
    let mut transaction = world.outbox.store().begin().await.unwrap();
    lease.guard(&mut transaction).await.unwrap();
    fx.write_note(transaction.as_mut(), "in time").await;
    // As a process would be that is paused here until its lease has lapsed.
    tokio::time::timeout(PATIENCE, lease.cancellation().cancelled()).await.expect("the lease lapses");
    // On SQLite it waits for the transaction; elsewhere it is told that the lease is not to be had yet.
    let asked = tokio::time::timeout(Duration::from_secs(1), others.acquire_with("reports", still())).await;
    if let Ok(Ok(answer)) = asked {
        assert!(answer.lease().is_none(), "it was given to another before the first one's writes were in");
    }
    transaction.commit().await.unwrap();
    assert_eq!(fx.notes().await, ["in time"]);
    let next = acquire(&others, "reports", still().wait(PATIENCE)).await;
    let mut transaction = world.outbox.store().begin().await.unwrap();
    assert_eq!(lease.guard(&mut transaction).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    transaction.rollback().await.unwrap();
    assert!(next.renew().await.unwrap());
}

async fn r20_a_guard_does_not_hold_up_renewals_longer_than_its_transaction(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let lease = acquire(&leases, "reports", still()).await;
    let mut transaction = world.outbox.store().begin().await.unwrap();
    lease.guard(&mut transaction).await.unwrap();
    // One writer at a time: there the renewal waits for the transaction.
    if world.provider.capabilities().functions {
        assert!(lease.renew().await.unwrap(), "while the transaction is open");
        assert!(lease.release().await.unwrap(), "even that");
        assert!(is_held(&others(fx).await, "reports").await, "but nobody else gets it");
    }
    transaction.commit().await.unwrap();
    assert_eq!(is_held(&others(fx).await, "reports").await, !world.provider.capabilities().functions);
}

async fn r20_a_handler_guards_its_own_transaction(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    let lease = acquire(&leases, "reports", still()).await;
    let (reporter, mut reports) = Reports::<Context>::new();
    let worker = world
        .work(|outbox| {
            outbox.raw_handler(TOPIC, move |context: Context| {
                // Until it is acked, or the worker stops: the one whose guard fails is not kept for its grace period.
                let stopping = context.stopping().clone();
                let _ = reporter.send(context);
                async move { stopping.cancelled().await }
            })
        })
        .await;
    world.enqueue(mainstay_core::outbox::Message::new(TOPIC, "")).await;
    let context = reports.next().await;
    fx.complete_guarded(&context, &lease, "shipped").await.unwrap();
    assert_eq!(fx.notes().await, ["shipped"]);
    leases.force_release("reports").await.unwrap();
    world.enqueue(mainstay_core::outbox::Message::new(TOPIC, "")).await;
    let context = reports.next().await;
    let error = fx.complete_guarded(&context, &lease, "late").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    assert_eq!(fx.notes().await, ["shipped"]);
    worker.stop().await.unwrap();
}

async fn r20_leases_are_listed_and_taken_away_by_operators(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    assert_eq!(leases.list(&LeaseFilter::all()).await.unwrap(), []);
    let mut held = Vec::new();
    for name in ["b", "a", "Z", "ä", "c"] {
        held.push(acquire(&leases, name, still()).await);
    }
    held.pop().unwrap().close().await.unwrap();
    let names = async |filter: LeaseFilter| {
        let found = leases.list(&filter).await.unwrap();
        found.into_iter().map(|lease| lease.name).collect::<Vec<_>>()
    };
    assert_eq!(names(LeaseFilter::all()).await, ["Z", "a", "b", "c", "ä"]);
    assert_eq!(names(LeaseFilter::all().held_only(true)).await, ["Z", "a", "b", "ä"]);
    assert_eq!(names(LeaseFilter::all().limit(2)).await, ["Z", "a"]);
    assert_eq!(names(LeaseFilter::all().limit(2).after(Some("a".to_owned()))).await, ["b", "c"]);
    assert_eq!(leases.active().await.unwrap(), 4);
    for limit in [0, 1_001] {
        assert_eq!(leases.list(&LeaseFilter::all().limit(limit)).await.unwrap_err().field(), Some("limit"));
    }

    assert_eq!(leases.force_release("a").await.unwrap().as_deref(), Some(leases.owner()));
    assert_eq!(leases.force_release("a").await.unwrap(), None, "once");
    assert_eq!(leases.force_release("never").await.unwrap(), None);
    assert_eq!(leases.active().await.unwrap(), 3);
    let lease = held.iter().find(|lease| lease.name() == "a").unwrap();
    assert!(!lease.renew().await.unwrap());
    let next = acquire(&others(fx).await, "a", still()).await;
    assert_eq!(next.epoch(), 2);
    world.advance(LONG).await;
    assert_eq!(leases.active().await.unwrap(), 0, "a lapsed one is not held");
    assert_eq!(leases.force_release("b").await.unwrap(), None, "nor taken away from anybody");
    let record = leases.get("b").await.unwrap().unwrap();
    assert_eq!((record.held, record.owner.as_deref()), (false, Some(leases.owner())), "who it was");
}

async fn r20_the_functions_are_there_for_every_language(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        return Verdict::NotApplicable("functions");
    }
    let names = Names::default();
    let call = async |function: &str, arguments: &[Option<&str>]| fx.call(&names, function, arguments).await;
    assert_eq!(call("lease_acquire", &[Some("x"), Some("me"), Some("60"), Some("")]).await.unwrap(), ["t"]);
    assert_eq!(call("lease_acquire", &[Some("x"), Some("you")]).await.unwrap(), ["f"]);
    assert_eq!(call("lease_renew", &[Some("x"), Some("me"), Some("1")]).await.unwrap(), ["t"]);
    assert_eq!(call("lease_renew", &[Some("x"), Some("you"), Some("1")]).await.unwrap(), ["f"]);
    assert_eq!(call("lease_guard", &[Some("x"), Some("me"), Some("1")]).await.unwrap().len(), 1);
    let lost = call("lease_guard", &[Some("x"), Some("me"), Some("2")]).await.unwrap_err();
    assert!(lost.contains("the lease is lost"), "{lost}");
    assert_eq!(call("lease_list", &[]).await.unwrap(), ["x"]);
    assert_eq!(call("lease_active", &[]).await.unwrap(), ["1"]);
    assert_eq!(call("lease_release", &[Some("x"), Some("me"), Some("1")]).await.unwrap(), ["t"]);
    assert_eq!(call("lease_acquire", &[Some("x"), Some("you")]).await.unwrap(), ["t"]);
    assert_eq!(call("lease_force_release", &[Some("x")]).await.unwrap(), ["you"]);
    let long = "x".repeat(256);
    for (function, arguments, says) in [
        ("lease_acquire", vec![None, Some("me")], "name"),
        ("lease_acquire", vec![Some(""), Some("me")], "name"),
        ("lease_acquire", vec![Some(long.as_str()), Some("me")], "got 256"),
        ("lease_acquire", vec![Some("x"), None], "owner"),
        ("lease_acquire", vec![Some("x"), Some("me"), Some("0")], "duration_seconds"),
        ("lease_acquire", vec![Some("x"), Some("me"), Some("NaN")], "duration_seconds"),
        ("lease_renew", vec![Some("x"), Some("me"), None], "epoch"),
        ("lease_renew", vec![Some("x"), Some("me"), Some("1"), Some("-1")], "duration_seconds"),
        ("lease_release", vec![Some("x"), None, Some("1")], "owner"),
        ("lease_guard", vec![None, Some("me"), Some("1")], "name"),
        ("lease_force_release", vec![None], "name"),
    ] {
        if !fx.can_say(function, &arguments) {
            continue;
        }
        let told = call(function, &arguments).await.unwrap_err();
        assert!(told.starts_with(function) && told.contains(says), "{function}: {told}");
    }
    Verdict::Passed
}

async fn r20_the_documented_rights_are_enough(fx: &dyn Fixture) -> Result<(), Lacking> {
    let provider = fx.least_privilege().await?;
    let leases = Leases::new(provider.leases());
    let lease = acquire(&leases, "reports", still()).await;
    assert!(lease.renew().await.unwrap());
    let mut transaction = provider.outbox().begin().await.unwrap();
    lease.guard(&mut transaction).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(leases.active().await.unwrap(), 1);
    assert_eq!(leases.list(&LeaseFilter::all()).await.unwrap().len(), 1);
    assert!(lease.close().await.unwrap());
    let many = LeasesRequest {
        names: vec!["a".to_owned(), "b".to_owned()],
        owner: "me".to_owned(),
        duration: Duration::from_secs(30),
        context: None,
        reentrant: false,
    };
    let store = leases.store();
    assert!(store.acquire_many(&many).await.unwrap().iter().all(Option::is_some));
    let claim = LeaseClaim { name: "a".to_owned(), owner: "me".to_owned(), epoch: 1 };
    assert!(store.renew_many(std::slice::from_ref(&claim), many.duration).await.unwrap()[0].is_some());
    assert_eq!(store.release_many(&[claim]).await.unwrap(), [true]);
    assert_eq!(leases.list(&LeaseFilter::all().prefix("b")).await.unwrap().len(), 1);
    let _lease = acquire(&leases, "reports", still()).await;
    assert!(leases.force_release("reports").await.unwrap().is_some());
    Ok(())
}

async fn r26_leases_are_logged_and_counted(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (meter, logs) = (Meter::new(), Logs::capture());
    let _recording = meter.install();
    let leases = leases(&world);
    let lease = acquire(&leases, "reports", still().context("a secret of the context")).await;
    assert!(is_held(&leases, "reports").await);
    assert!(lease.renew().await.unwrap());
    assert!(lease.close().await.unwrap());
    let lease = acquire(&leases, "reports", still()).await;
    leases.force_release("reports").await.unwrap();
    assert!(!lease.renew().await.unwrap());
    assert!(lease.is_lost() && !lease.renew().await.unwrap());
    drop(lease);
    let counted = meter.read();
    for (name, count) in [
        ("mainstay_lease_acquired_total", 2),
        ("mainstay_lease_contended_total", 1),
        ("mainstay_lease_renewed_total", 1),
        ("mainstay_lease_lost_total reason=taken", 1),
        ("mainstay_lease_released_total by=holder", 1),
        ("mainstay_lease_released_total by=operator", 1),
    ] {
        assert_eq!(counted.get(name), Some(&count), "{name} of {counted:?}");
    }
    for (level, text, count) in [
        (Level::INFO, "acquired a lease", 2),
        (Level::DEBUG, "renewed a lease", 1),
        (Level::INFO, "released a lease", 1),
        (Level::WARN, "a lease was lost; what runs under it must stop", 1),
        (Level::INFO, "changed by an operator", 1),
    ] {
        assert_eq!(logs.find(level, text).len(), count, "{text}");
    }
    assert!(!logs.text().contains("a secret of the context"));

    // The gauge of the source's list, published by the service.
    let _held = acquire(&leases, "reports", still()).await;
    let mainstay = world.mainstay(|outbox| outbox.gauges_every(Some(LONG)));
    let running = mainstay.start().await.unwrap();
    world.until("the gauge is published", async |_| meter.read().get("active_leases") == Some(&1)).await;
    running.stop().await.unwrap();
    assert!(mainstay.leases().options().renew);
}
