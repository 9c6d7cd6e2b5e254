//! Who gets connections, who waits for them, and who makes room.

use futures_util::FutureExt;

use super::*;

fn budget(connections: usize, per_server: Option<usize>) -> Budget {
    let options = FleetOptions { connections, connections_per_server: per_server, ..FleetOptions::default() };
    options.validate().unwrap();
    Budget::new(&options)
}

/// What can be had at once.
fn now(share: impl Future<Output = Share>) -> Option<Share> {
    share.now_or_never()
}

#[test]
fn those_that_work_leave_some_for_looks() {
    let budget = budget(10, None);
    let working = [now(budget.for_work(None, 3)).unwrap(), now(budget.for_work(None, 3)).unwrap()];
    assert!(now(budget.for_work(None, 3)).is_none(), "two are kept back");
    let looks: Vec<_> = (0..4).filter_map(|_| now(budget.one(None))).collect();
    assert_eq!(looks.len(), 4);
    assert!(now(budget.one(None)).is_none(), "that is all there is");
    assert_eq!(budget.status(), ConnectionStatus { budget: 10, used: 10, peak: 10, waiting: 0 });
    drop(working);
    drop(looks);
    assert_eq!(budget.status().used, 0);
}

#[test]
fn who_asks_first_is_served_first() {
    let budget = budget(4, None);
    let first = now(budget.for_work(None, 3)).unwrap();
    let mut second = Box::pin(budget.for_work(None, 3));
    assert!(now(&mut second).is_none());
    let mut third = Box::pin(budget.for_work(None, 2));
    assert!(now(&mut third).is_none());
    assert_eq!(budget.status().waiting, 2);
    drop(first);
    assert!(now(&mut third).is_none(), "it asked for less, but later");
    drop(now(&mut second).expect("the second is next"));
    assert!(now(&mut third).is_some());
}

#[test]
fn who_leaves_the_line_keeps_nobody_waiting() {
    let budget = budget(4, None);
    let first = now(budget.for_work(None, 3)).unwrap();
    let mut second = Box::pin(budget.for_work(None, 3));
    let mut third = Box::pin(budget.for_work(None, 3));
    assert!(now(&mut second).is_none());
    assert!(now(&mut third).is_none());
    drop(first);
    // It was its turn, and it never knew.
    drop(second);
    drop(now(&mut third).expect("the third is next"));
    assert_eq!((budget.status().used, budget.status().waiting), (0, 0));
}

#[test]
fn looks_do_not_keep_work_from_its_room() {
    let budget = budget(4, None);
    let mut looks: Vec<_> = (0..4).filter_map(|_| now(budget.one(None))).collect();
    let mut work = Box::pin(budget.for_work(None, 3));
    assert!(now(&mut work).is_none());
    let mut late = Box::pin(budget.one(None));
    assert!(now(&mut late).is_none());
    for _ in 0..3 {
        looks.pop();
        if looks.len() > 1 {
            assert!(now(&mut late).is_none(), "who came before waits for the room");
        }
    }
    let work = now(&mut work).expect("the room is there");
    assert!(now(&mut late).is_none());
    looks.pop();
    assert!(now(&mut late).is_some(), "one is always kept");
    drop(work);
}

#[test]
fn who_watches_leaves_room_for_looks() {
    let standing = |connections, per_server| {
        let budget = budget(connections, per_server);
        std::iter::from_fn(|| budget.standing()).collect::<Vec<_>>().len()
    };
    assert_eq!(standing(50, None), 5);
    assert_eq!(standing(4, None), 0, "the only one that is kept back is for looks");
    assert_eq!(standing(50, Some(4)), 0, "a look would wait for it for ever");
    assert_eq!(standing(50, Some(5)), 5);
    assert_eq!(standing(50, Some(7)), 0, "two databases and one look");
}

#[test]
fn each_server_has_its_own_bound() {
    let budget = budget(50, Some(4));
    let _first = now(budget.for_work(Some("a:1"), 3)).unwrap();
    let _look = now(budget.one(Some("a:1"))).expect("one is kept on each server");
    assert!(now(budget.one(Some("a:1"))).is_none());
    assert!(now(budget.for_work(Some("b:1"), 3)).is_some());
}

#[test]
fn who_waits_for_a_server_keeps_nobody_else_waiting() {
    let budget = budget(50, Some(6));
    let first = now(budget.for_work(Some("a:1"), 3)).unwrap();
    let mut second = Box::pin(budget.for_work(Some("a:1"), 3));
    assert!(now(&mut second).is_none());
    assert!(now(budget.one(Some("a:1"))).is_some(), "looks have a line of their own");
    let elsewhere = now(budget.for_work(Some("b:1"), 3)).expect("the other server has room");
    let line = budget.line();
    assert!(line.borrow().wants(Some("a:1")));
    assert!(!line.borrow().wants(Some("b:1")), "to give up its connections there would help nobody");
    assert!(!line.borrow().wants(None));
    drop(first);
    assert!(now(&mut second).is_some());
    drop(elsewhere);
}

#[test]
fn who_waits_holds_nothing() {
    // Room for one database at work on each of two servers, and for one in all.
    let budget = budget(5, Some(4));
    let first = now(budget.for_work(Some("b:1"), 3)).unwrap();
    let mut second = Box::pin(budget.for_work(Some("a:1"), 3));
    assert!(now(&mut second).is_none());
    assert!(budget.line().borrow().wants(Some("b:1")), "the process has no more for it");
    let calls: Vec<_> = (0..2).filter_map(|_| now(budget.one(Some("a:1")))).collect();
    assert_eq!(calls.len(), 2, "a call to the database that waits gets through");
    drop((first, calls));
    assert!(now(&mut second).is_some());
}

#[test]
fn databases_that_are_not_well_leave_the_others_their_looks() {
    let budget = budget(20, None);
    let trials: Vec<_> = (0..4).filter_map(|_| now(budget.trial(None))).collect();
    assert_eq!(trials.len(), 2, "half of what is kept");
    let mut next = Box::pin(budget.trial(None));
    assert!(now(&mut next).is_none());
    assert!(now(budget.one(None)).is_some());
    drop(trials);
    assert!(now(&mut next).is_some());
    assert_eq!(budget.ledger.book().trials.1, 0);
}

#[test]
fn shares_are_put_together_and_given_back_in_parts() {
    let budget = budget(10, Some(5));
    let mut share = now(budget.trial(Some("a:1"))).unwrap();
    share.absorb(now(budget.for_work(Some("a:1"), 3)).unwrap());
    assert_eq!((share.count(), budget.status().used), (4, 4));
    share.shrink_to(3);
    assert_eq!(budget.ledger.book().trials.1, 0, "what lasts a moment goes first");
    share.shrink_to(1);
    assert_eq!((share.count(), budget.status().used), (1, 1));
    share.shrink_to(2);
    assert_eq!(share.count(), 1);
    drop(share);
    assert_eq!(budget.status().used, 0);
    assert!(budget.ledger.book().servers.is_empty());
}

/// Whether it is to make room, asked after some time.
fn leaves(share: &Share, later: Duration) -> bool {
    let mut book = share.ledger.book();
    let line = share.ledger.line.borrow();
    share.turn.is_some_and(|turn| book.is_to_leave(turn, &line, Duration::ZERO, Instant::now() + later))
}

#[test]
fn as_many_make_room_as_wait_and_those_that_came_first() {
    let budget = budget(12, None);
    let works: Vec<_> = (0..3).filter_map(|_| now(budget.for_work(None, 3))).collect();
    assert_eq!(works.len(), 3);
    let leaving = |later| works.iter().map(|share| leaves(share, later)).collect::<Vec<_>>();
    let at_once = Duration::ZERO;
    assert_eq!(leaving(at_once), [false; 3], "nobody waits");
    let mut first = std::pin::pin!(budget.for_work(None, 3));
    assert!(first.as_mut().now_or_never().is_none());
    assert_eq!(leaving(at_once), [true, false, false]);
    assert!(!works[0].is_to_leave(Duration::from_secs(60)), "it has not had its share");
    let mut second = std::pin::pin!(budget.for_work(None, 3));
    assert!(second.as_mut().now_or_never().is_none());
    assert_eq!(leaving(at_once), [true, true, false]);
    drop(works);
    assert!(first.now_or_never().is_some() && second.now_or_never().is_some());
}

#[test]
fn who_does_not_make_room_keeps_nobody_from_it_for_long() {
    let budget = budget(12, None);
    let works: Vec<_> = (0..3).filter_map(|_| now(budget.for_work(None, 3))).collect();
    let mut waits = std::pin::pin!(budget.for_work(None, 3));
    assert!(waits.as_mut().now_or_never().is_none());
    assert!(leaves(&works[0], Duration::ZERO) && !leaves(&works[1], Duration::ZERO));
    assert!(leaves(&works[1], ASKS), "the first has not asked for some time");
    works[0].leaves();
    assert!(!leaves(&works[1], ASKS), "it is on its way");
    assert!(leaves(&works[1], LEAVES), "something holds it up");
}

#[test]
fn what_is_left_of_a_turn_becomes_a_part_of_the_next() {
    let budget = budget(20, None);
    // Some connections could not be closed when the turn was over.
    let mut held = now(budget.for_work(None, 3)).unwrap();
    held.leaves();
    held.shrink_to(1);
    for _ in 0..2 {
        held.absorb(now(budget.for_work(None, 3)).unwrap());
        held.shrink_to(3);
        assert_eq!(budget.ledger.book().turns.len(), 1);
    }
    assert_eq!((held.count(), budget.status().used), (3, 3));
    let mut works: Vec<_> = (0..4).filter_map(|_| now(budget.for_work(None, 3))).collect();
    let mut waits = std::pin::pin!(budget.for_work(None, 3));
    assert!(waits.as_mut().now_or_never().is_none());
    assert!(leaves(&held, Duration::ZERO), "it is one of those that can be asked");
    drop((held, works.drain(..)));
    assert!(waits.now_or_never().is_some());
    assert!(budget.ledger.book().turns.is_empty());
}

#[test]
fn room_is_kept_for_a_proof_until_there_is_enough() {
    let budget = budget(50, None);
    let mut calls: Vec<_> = (0..49).filter_map(|_| now(budget.one(None))).collect();
    let mut proof = std::pin::pin!(budget.for_proof(None, 3));
    assert!(proof.as_mut().now_or_never().is_none());
    calls.pop();
    let mut call = std::pin::pin!(budget.one(None));
    assert!(call.as_mut().now_or_never().is_none(), "it comes after the proof");
    calls.pop();
    let mut proof = proof.now_or_never().unwrap();
    calls.pop();
    assert!(call.now_or_never().is_some());
    // One that is well again is none of those that are not.
    let mut next = std::pin::pin!(budget.for_proof(None, 3));
    drop(calls);
    assert!(next.as_mut().now_or_never().is_none(), "five for all that are not well");
    proof.is_of_one_that_is_well();
    assert!(next.now_or_never().is_some());
}

#[test]
fn who_waits_for_a_server_is_helped_by_those_on_it() {
    let budget = budget(20, Some(4));
    let works = [now(budget.for_work(Some("a"), 3)).unwrap(), now(budget.for_work(Some("b"), 3)).unwrap()];
    let mut waits = std::pin::pin!(budget.for_work(Some("b"), 3));
    assert!(waits.as_mut().now_or_never().is_none());
    assert!(!leaves(&works[0], Duration::ZERO) && leaves(&works[1], Duration::ZERO));
}

#[test]
fn proofs_take_nothing_from_those_that_are_well() {
    let budget = budget(50, None);
    let works: Vec<_> = (0..13).filter_map(|_| now(budget.for_work(None, 3))).collect();
    assert_eq!(works.len(), 13);
    let proof = now(budget.for_proof(None, 3)).unwrap();
    assert!(!proof.is_to_leave(Duration::ZERO));
    let mut next = std::pin::pin!(budget.for_proof(None, 3));
    assert!(next.as_mut().now_or_never().is_none(), "five for all that are not well");
    let mut look = std::pin::pin!(budget.trial(None));
    assert!(look.as_mut().now_or_never().is_none(), "nobody overtakes it with less");
    assert!(now(budget.one(None)).is_some());
    drop(proof);
    assert!(next.now_or_never().is_some() && look.now_or_never().is_some());
}

#[test]
fn where_little_is_kept_a_proof_waits_in_line() {
    let budget = budget(5, None);
    let proof = now(budget.for_proof(None, 3)).unwrap();
    assert!(now(budget.for_work(None, 3)).is_none());
    drop(proof);
    assert!(now(budget.for_work(None, 3)).is_some());
}
