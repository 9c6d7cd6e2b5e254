//! The inbox's guard: one of many gets a message, and what he did is committed with it or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use mainstay_core::inbox::{Begin, ContentHash, EntryState, Guard, GuardOptions, Inbox, Incoming, Once};
use mainstay_core::outbox::Message;
use mainstay_core::queue::ClaimRequest;
use mainstay_core::{ErrorKind, OwnerToken};
use tokio::sync::Notify;

use crate::case::cases;
use crate::fixture::{End, Fixture};
use crate::probe::{Logs, Meter};
use crate::world::{LEASE, TOPIC, World};

cases! { $ guard_cases:
    r14_of_a_hundred_callers_one_gets_the_message ["R14"],
    r14_when_the_winner_dies_one_of_the_next_hundred_gets_it ["R14", "MST-001"],
    r14_a_guard_that_completes_leaves_it_done ["R14"],
    r14_a_guard_that_fails_leaves_it_dead ["R14"],
    r14_a_guard_that_releases_leaves_it_free ["R14"],
    r14_a_dropped_guard_gives_the_message_back ["R14"],
    r14_a_guard_is_renewed_while_work_goes_on ["R14", "R11"],
    r14_a_renewal_extends_the_reservation ["R14", "R11"],
    r14_a_lost_guard_knows_and_changes_nothing ["R14", "MST-006"],
    r14_a_guard_completes_with_the_callers_writes ["R14", "MST-030"],
    r14_a_guard_completed_in_a_rolled_back_transaction_is_free_again ["R14", "MST-030"],
    r14_a_lost_guard_commits_nothing ["R14", "MST-030"],
    r14_what_the_queue_has_is_busy ["R14", "R15"],
    r14_a_message_enqueued_while_reserved_waits_for_the_reservation ["R14", "R15"],
    r14_a_different_hash_is_reported_to_the_winner ["R14", "R15"],
    r14_ten_callers_one_runs_and_nine_learn ["R14"],
    r14_process_once_takes_over_from_a_dead_winner ["R14"],
    r14_process_once_takes_over_from_a_failed_winner ["R14"],
    r14_process_once_learns_that_it_is_dead ["R14"],
    r14_a_dropped_begin_loses_nothing ["R14", "MST-001"],
    r14_options_out_of_bounds_are_refused ["R14", "PRIM-API-003"],
}

const SOURCE: &str = "billing";

async fn winner(inbox: &Inbox, id: &str) -> Guard {
    match inbox.begin(SOURCE, id).await.unwrap() {
        Begin::New(guard) => guard,
        other => panic!("{id} must be free, got {other:?}"),
    }
}

/// A hundred callers at once, from two instances. Those that did not win were told that somebody has it.
async fn race(world: &World<'_>, id: &str) -> Vec<Guard> {
    let second = Inbox::new(world.fixture.second().await.as_ref());
    let begins =
        (0..100).map(|n| if n % 2 == 0 { world.inbox.begin(SOURCE, id) } else { second.begin(SOURCE, id) });
    let mut won = Vec::new();
    let mut busy = 0;
    for begin in join_all(begins).await {
        match begin.unwrap() {
            Begin::New(guard) => won.push(guard),
            Begin::Busy { .. } => busy += 1,
            other => panic!("{other:?} while it is in flight"),
        }
    }
    assert_eq!((won.len(), busy), (1, 99));
    won
}

async fn r14_of_a_hundred_callers_one_gets_the_message(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let guard = race(&world, "m").await.remove(0);
    assert!(!world.inbox.already_processed(SOURCE, "m", None).await.unwrap().processed, "only in flight");
    assert_eq!((guard.attempt(), guard.key().message_id()), (1, "m"));
    let Begin::Busy { until } = world.inbox.begin(SOURCE, "m").await.unwrap() else {
        panic!("it is reserved")
    };
    assert_eq!(until, guard.until());
    guard.complete().await.unwrap();
    let begins = join_all((0..20).map(|_| world.inbox.begin(SOURCE, "m"))).await;
    assert!(begins.into_iter().all(|begin| matches!(begin.unwrap(), Begin::Done)));
    assert_eq!(world.entry(SOURCE, "m").await.attempts, 1, "duplicates spend none");
}

/// As a process does that is killed: no renewal, no release.
fn kill(guard: Guard) {
    std::mem::forget(guard);
}

async fn r14_when_the_winner_dies_one_of_the_next_hundred_gets_it(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let unattended = GuardOptions::default().renew(false);
    let begin = world.inbox.begin_with(SOURCE, "m", &unattended).await.unwrap();
    kill(begin.into_new().unwrap());
    let begins = join_all((0..20).map(|_| world.inbox.begin(SOURCE, "m"))).await;
    assert!(
        begins.into_iter().all(|begin| matches!(begin.unwrap(), Begin::Busy { .. })),
        "not before it lapses"
    );
    world.advance(Duration::from_secs(31)).await;
    let guard = race(&world, "m").await.remove(0);
    assert_eq!((guard.attempt(), guard.generation()), (2, 2));
    guard.complete().await.unwrap();
    assert!(matches!(world.inbox.begin(SOURCE, "m").await.unwrap(), Begin::Done));
}

async fn r14_a_guard_that_completes_leaves_it_done(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let before = world.now().await;
    winner(&world.inbox, "m").await.complete().await.unwrap();
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.state, entry.owner, entry.locked_until), (EntryState::Done, None, None));
    assert!(entry.processed_at.unwrap() >= before);
    assert!(world.inbox.already_processed(SOURCE, "m", None).await.unwrap().processed);
}

async fn r14_a_guard_that_fails_leaves_it_dead(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    winner(&world.inbox, "m").await.fail("no such customer").await.unwrap();
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.state, entry.last_error.as_deref()), (EntryState::Dead, Some("no such customer")));
    assert!(matches!(world.inbox.begin(SOURCE, "m").await.unwrap(), Begin::Dead));
    assert_eq!(world.inbox.revive(std::slice::from_ref(&entry.key)).await.unwrap(), [entry.key]);
    let again = winner(&world.inbox, "m").await;
    assert_eq!(again.attempt(), 1, "all its attempts again");
}

async fn r14_a_guard_that_releases_leaves_it_free(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    winner(&world.inbox, "m").await.release(None).await.unwrap();
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.state, entry.attempts, entry.last_error), (EntryState::Seen, 0, None));
    let again = winner(&world.inbox, "m").await;
    assert_eq!((again.attempt(), again.generation()), (1, 2), "it was no attempt");
    again.release(Some("try later".to_owned())).await.unwrap();
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!(
        (entry.state, entry.attempts, entry.last_error.as_deref()),
        (EntryState::Seen, 1, Some("try later"))
    );
    winner(&world.inbox, "m").await.complete().await.unwrap();
    assert_eq!(
        world.entry(SOURCE, "m").await.last_error.as_deref(),
        Some("try later"),
        "the last real error is kept"
    );
}

async fn r14_a_dropped_guard_gives_the_message_back(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    drop(winner(&world.inbox, "m").await);
    world
        .until("the message is free", async |world: &World<'_>| {
            world.entry(SOURCE, "m").await.state == EntryState::Seen
        })
        .await;
    assert_eq!(world.entry(SOURCE, "m").await.attempts, 0);
    winner(&world.inbox, "m").await.complete().await.unwrap();
}

async fn r14_a_guard_is_renewed_while_work_goes_on(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let options = GuardOptions::default().lease(Duration::from_millis(400));
    let guard = world.inbox.begin_with(SOURCE, "m", &options).await.unwrap().into_new().unwrap();
    let first = guard.until();
    // Far beyond its first end, and nobody else has got it meanwhile.
    world
        .until("it was renewed thrice", async |world: &World<'_>| {
            assert!(matches!(world.inbox.begin(SOURCE, "m").await.unwrap(), Begin::Busy { .. }));
            guard.until() > first + Duration::from_millis(700)
        })
        .await;
    assert!(!guard.is_lost());
    guard.check().unwrap();
    guard.complete().await.unwrap();
    assert_eq!(world.entry(SOURCE, "m").await.attempts, 1);
}

async fn r14_a_renewal_extends_the_reservation(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let options = GuardOptions::default().renew(false);
    let guard = world.inbox.begin_with(SOURCE, "m", &options).await.unwrap().into_new().unwrap();
    world.advance(Duration::from_secs(20)).await;
    let before = world.now().await;
    assert!(guard.renew().await.unwrap());
    assert!(guard.until() >= before + Duration::from_secs(30));
    world.advance(Duration::from_secs(20)).await;
    assert!(matches!(world.inbox.begin(SOURCE, "m").await.unwrap(), Begin::Busy { .. }));
    guard.complete().await.unwrap();
}

async fn r14_a_lost_guard_knows_and_changes_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (logs, meter) = (Logs::capture(), Meter::new());
    let _counting = meter.install();
    let options = GuardOptions::default().renew(false);
    let lost = async |id: &str| {
        let guard = world.inbox.begin_with(SOURCE, id, &options).await.unwrap().into_new().unwrap();
        world.advance(Duration::from_secs(31)).await;
        let next = winner(&world.inbox, id).await;
        (guard, next)
    };
    let (guard, next) = lost("renewed").await;
    assert!(!guard.renew().await.unwrap());
    assert!(guard.is_lost() && guard.cancelled().is_cancelled());
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::ClaimLost);
    let before = world.entry(SOURCE, "renewed").await;
    assert_eq!(guard.complete().await.unwrap_err().kind(), ErrorKind::ClaimLost);
    assert_eq!(world.entry(SOURCE, "renewed").await, before);
    next.complete().await.unwrap();
    let (guard, next) = lost("failed").await;
    assert_eq!(guard.fail("late").await.unwrap_err().kind(), ErrorKind::ClaimLost);
    next.complete().await.unwrap();
    let (guard, next) = lost("released").await;
    assert_eq!(guard.release(None).await.unwrap_err().kind(), ErrorKind::ClaimLost);
    next.complete().await.unwrap();
    for id in ["renewed", "failed", "released"] {
        let entry = world.entry(SOURCE, id).await;
        assert_eq!((entry.state, entry.last_error), (EntryState::Done, None));
    }
    assert!(!logs.find(tracing::Level::WARN, "a reservation was lost").is_empty());
    assert_eq!(meter.read()["mainstay_inbox_guards_ended_total outcome=lost"], 3);
}

async fn r14_a_guard_completes_with_the_callers_writes(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let guard = winner(&world.inbox, "m").await;
    fx.complete_guard(&guard, "invoice 7 paid", End::Commit).await.unwrap();
    assert_eq!(fx.notes().await, ["invoice 7 paid"]);
    assert_eq!(world.entry(SOURCE, "m").await.state, EntryState::Done);
    assert!(!guard.is_lost());
    drop(guard);
    assert!(matches!(world.inbox.begin(SOURCE, "m").await.unwrap(), Begin::Done));
}

async fn r14_a_guard_completed_in_a_rolled_back_transaction_is_free_again(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let guard = winner(&world.inbox, "m").await;
    fx.complete_guard(&guard, "never", End::Rollback).await.unwrap();
    assert_eq!(fx.notes().await, Vec::<String>::new());
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!(entry.state, EntryState::Processing, "neither the note nor the end");
    drop(guard);
    world
        .until("the message is free", async |world: &World<'_>| {
            world.entry(SOURCE, "m").await.state == EntryState::Seen
        })
        .await;
    let guard = winner(&world.inbox, "m").await;
    fx.complete_guard(&guard, "at last", End::Commit).await.unwrap();
    assert_eq!(fx.notes().await, ["at last"]);
}

async fn r14_a_lost_guard_commits_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let options = GuardOptions::default().renew(false);
    let guard = world.inbox.begin_with(SOURCE, "m", &options).await.unwrap().into_new().unwrap();
    world.advance(Duration::from_secs(31)).await;
    let next = winner(&world.inbox, "m").await;
    let late = fx.complete_guard(&guard, "of the loser", End::Commit).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::ClaimLost, "{late}");
    assert_eq!(fx.notes().await, Vec::<String>::new());
    fx.complete_guard(&next, "of the winner", End::Commit).await.unwrap();
    assert_eq!(fx.notes().await, ["of the winner"]);
}

async fn r14_what_the_queue_has_is_busy(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.inbox.enqueue(Incoming::new(SOURCE, "m", Message::new(TOPIC, ""))).await.unwrap();
    assert!(matches!(world.inbox.begin(SOURCE, "m").await.unwrap(), Begin::Busy { .. }), "workers have it");
    let owner = OwnerToken::new();
    let claimed = world.inbox.claim(&ClaimRequest::new(owner).lease(LEASE)).await.unwrap();
    let Begin::Busy { until } = world.inbox.begin(SOURCE, "m").await.unwrap() else {
        panic!("a worker has it")
    };
    assert_eq!(until, claimed.items[0].locked_until);
    assert_eq!(world.entry(SOURCE, "m").await.state, EntryState::Processing);
    world.inbox.ack(owner, &claimed.handles()).await.unwrap();
    assert!(matches!(world.inbox.begin(SOURCE, "m").await.unwrap(), Begin::Done));
    world.inbox.enqueue(Incoming::new(SOURCE, "dead", Message::new(TOPIC, ""))).await.unwrap();
    let claimed = world.inbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    world.inbox.fail(owner, &claimed.handles(), None).await.unwrap();
    assert!(matches!(world.inbox.begin(SOURCE, "dead").await.unwrap(), Begin::Dead));
}

async fn r14_a_message_enqueued_while_reserved_waits_for_the_reservation(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let options = GuardOptions::default().renew(false);
    let begin =
        async |id: &str| world.inbox.begin_with(SOURCE, id, &options).await.unwrap().into_new().unwrap();
    let enqueue = async |id: &str| {
        let incoming = Incoming::new(SOURCE, id, Message::new(TOPIC, id));
        world.inbox.enqueue(incoming).await.unwrap().work_item.unwrap()
    };
    let claim = async || {
        // For so long that nothing claimed here comes back within the case.
        let request = ClaimRequest::new(OwnerToken::new()).lease(Duration::from_secs(3_600));
        let claimed = world.inbox.claim(&request).await.unwrap();
        claimed.items.into_iter().map(|item| item.payload).collect::<Vec<_>>()
    };
    // Durable at once, but nobody's while the guard holds; completing takes it out of the queue.
    let guard = begin("completed").await;
    let item = enqueue("completed").await;
    assert_eq!(claim().await, Vec::<String>::new());
    guard.complete().await.unwrap();
    assert!(world.inbox.queue().get(item).await.unwrap().unwrap().is_processed());
    // Giving it back lets the workers have it at once.
    let guard = begin("released").await;
    enqueue("released").await;
    guard.release(None).await.unwrap();
    assert_eq!(claim().await, ["released"]);
    // A renewal keeps them off for longer.
    let guard = begin("renewed").await;
    enqueue("renewed").await;
    world.advance(Duration::from_secs(20)).await;
    assert!(guard.renew().await.unwrap());
    world.advance(Duration::from_secs(20)).await;
    assert_eq!(claim().await, Vec::<String>::new());
    guard.fail("no").await.unwrap();
    assert_eq!(world.entry(SOURCE, "renewed").await.state, EntryState::Dead);
    // And should its holder die, the workers take over.
    kill(begin("killed").await);
    enqueue("killed").await;
    world.advance(Duration::from_secs(31)).await;
    assert_eq!(claim().await, ["killed"]);
    // From then on it is theirs, whatever the dead one does when he wakes up.
    let guard = begin("paused").await;
    enqueue("paused").await;
    world.advance(Duration::from_secs(31)).await;
    let claimed = claim().await;
    assert!(claimed.contains(&"paused".to_owned()), "{claimed:?}");
    assert!(!guard.renew().await.unwrap());
    assert_eq!(guard.complete().await.unwrap_err().kind(), ErrorKind::ClaimLost);
}

async fn r14_a_different_hash_is_reported_to_the_winner(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let logs = Logs::capture();
    let with = |text: &str| GuardOptions::default().hash(ContentHash::of(text));
    let begin = async |text: &str| world.inbox.begin_with(SOURCE, "m", &with(text)).await.unwrap();
    let guard = begin("first").await.into_new().unwrap();
    assert!(!guard.hash_mismatch());
    assert!(matches!(begin("other").await, Begin::Busy { .. }));
    guard.release(None).await.unwrap();
    let guard = begin("other").await.into_new().unwrap();
    assert!(guard.hash_mismatch(), "and it is the same message all the same");
    guard.complete().await.unwrap();
    assert!(matches!(begin("third").await, Begin::Done));
    assert_eq!(world.entry(SOURCE, "m").await.hash, Some(ContentHash::of("first")));
    assert_eq!(logs.find(tracing::Level::WARN, "another content").len(), 3);
}

async fn r14_ten_callers_one_runs_and_nine_learn(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let ran = AtomicUsize::new(0);
    let calls = (0..10).map(|number| {
        let ran = &ran;
        world.inbox.process_once(SOURCE, "m", move || async move {
            ran.fetch_add(1, Ordering::SeqCst);
            // Long enough for all others to see that it is in flight.
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok::<_, std::convert::Infallible>(number)
        })
    });
    let ends: Vec<_> = join_all(calls).await.into_iter().map(|end| end.unwrap()).collect();
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    assert_eq!(ends.iter().filter(|end| matches!(end, Once::Ran(_))).count(), 1);
    assert_eq!(ends.iter().filter(|end| matches!(end, Once::Done)).count(), 9);
    assert_eq!(world.entry(SOURCE, "m").await.attempts, 1);
}

async fn r14_process_once_takes_over_from_a_dead_winner(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let options = GuardOptions::default().lease(Duration::from_millis(300)).renew(false);
    kill(world.inbox.begin_with(SOURCE, "m", &options).await.unwrap().into_new().unwrap());
    let end = world.inbox.process_once(SOURCE, "m", async || Ok::<_, String>("taken over")).await.unwrap();
    assert_eq!(end, Once::Ran("taken over"));
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.state, entry.attempts), (EntryState::Done, 2));
}

async fn r14_process_once_takes_over_from_a_failed_winner(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (started, fail) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let first = world.inbox.process_once(SOURCE, "m", {
        let (started, fail) = (Arc::clone(&started), Arc::clone(&fail));
        move || async move {
            started.notify_one();
            fail.notified().await;
            Err::<(), _>("the first one fails")
        }
    });
    let second = async {
        started.notified().await;
        fail.notify_one();
        world.inbox.process_once(SOURCE, "m", async || Ok::<_, String>(())).await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.unwrap(), Once::Failed("the first one fails"));
    assert_eq!(second.unwrap(), Once::Ran(()));
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.state, entry.attempts), (EntryState::Done, 2));
    assert_eq!(entry.last_error.as_deref(), Some("the first one fails"));
}

async fn r14_process_once_learns_that_it_is_dead(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.inbox.mark_dead(SOURCE, "m", None).await.unwrap();
    let never = world.inbox.process_once(SOURCE, "m", async || Err::<(), _>("must not run")).await.unwrap();
    assert_eq!(never, Once::Dead);
    // Giving up waiting gives the message back.
    let endless = world.inbox.process_once(SOURCE, "n", async || {
        std::future::pending::<()>().await;
        Ok::<_, String>(())
    });
    assert!(tokio::time::timeout(Duration::from_millis(200), endless).await.is_err());
    world
        .until("the message is free", async |world: &World<'_>| {
            world.inbox.get(SOURCE, "n").await.unwrap().is_none_or(|entry| entry.state == EntryState::Seen)
        })
        .await;
}

async fn r14_a_dropped_begin_loses_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for polls in 1..30 {
        let id = polls.to_string();
        // Whatever became of it, the reservation ends by itself.
        drop(crate::world::interrupted(polls, world.inbox.begin(SOURCE, &id)).await);
    }
    world
        .until("every one can be had again", async |world: &World<'_>| {
            world.advance(Duration::from_secs(31)).await;
            for polls in 1..30 {
                match world.inbox.begin(SOURCE, &polls.to_string()).await.unwrap() {
                    Begin::New(guard) => guard.complete().await.unwrap(),
                    Begin::Done => {}
                    Begin::Busy { .. } | Begin::Dead => return false,
                }
            }
            true
        })
        .await;
    assert_eq!(world.inbox.stats().await.unwrap().ledger.done, 29);
}

async fn r14_options_out_of_bounds_are_refused(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for lease in [Duration::ZERO, Duration::from_secs(25 * 3_600)] {
        let options = GuardOptions::default().lease(lease);
        let error = world.inbox.begin_with(SOURCE, "m", &options).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("lease")));
    }
    assert!(world.inbox.get(SOURCE, "m").await.unwrap().is_none());
}
