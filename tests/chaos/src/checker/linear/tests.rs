use super::*;
use crate::checker::testing::Book;
use crate::checker::windows::Windows;
use crate::history::{Answer, Call, History};

const LEASE_MS: u64 = 1_000;

/// What a call was answered, and when.
type Told = (&'static str, (u64, u64), Call, Option<Answer>);

fn explained<M: Model>(told: &[Told]) -> bool {
    let mut book = Book::new();
    for (process, at, call, answer) in told {
        match answer {
            Some(answer) => book.ok(process, *at, call.clone(), answer.clone()),
            None => book.unknown(process, *at, call.clone()),
        }
    }
    let history: History = book.history();
    let operations = Operation::pair(&history, &Windows::default());
    explains::<M>(&operations.iter().collect::<Vec<_>>(), 0)
}

fn acquire(process: &'static str, at: (u64, u64), epoch: Option<i64>) -> Told {
    let call = Call::Acquire { name: "l".to_owned(), owner: process.to_owned(), lease_ms: LEASE_MS };
    let answer = epoch.map_or(Answer::Held { owner: None }, |epoch| granted(at.0, epoch, epoch * 10));
    (process, at, call, Some(answer))
}

fn granted(at: u64, epoch: i64, token: i64) -> Answer {
    // 95 % of the lease, as holders reckon.
    Answer::Granted { epoch, token, until: (at + LEASE_MS * 95 / 100) * 1_000_000 }
}

fn prolong(process: &'static str, at: (u64, u64), epoch: i64, token: Option<i64>) -> Told {
    let call = Call::Prolong { name: "l".to_owned(), epoch, lease_ms: LEASE_MS };
    let answer = token.map_or(Answer::Held { owner: None }, |token| granted(at.0, epoch, token));
    (process, at, call, Some(answer))
}

fn give_up(process: &'static str, at: (u64, u64), epoch: i64, held: bool) -> Told {
    (process, at, Call::GiveUp { name: "l".to_owned(), epoch }, Some(Answer::Flag(held)))
}

fn write(process: &'static str, at: (u64, u64), epoch: i64) -> Told {
    let call = Call::GuardedWrite { name: "l".to_owned(), epoch, value: uuid::Uuid::nil() };
    (process, at, call, Some(Answer::Done))
}

fn unknown((process, at, call, _): Told) -> Told {
    (process, at, call, None)
}

#[test]
fn a_lease_is_given_to_one_after_the_other() {
    let told = [
        acquire("a", (10, 12), Some(1)),
        acquire("b", (20, 22), None),
        prolong("a", (500, 502), 1, Some(11)),
        write("a", (600, 602), 1),
        acquire("b", (1_200, 1_202), None),
        acquire("b", (1_501, 1_503), Some(2)),
        prolong("a", (1_510, 1_512), 1, None),
        give_up("b", (1_520, 1_522), 2, true),
        acquire("a", (1_530, 1_532), Some(3)),
    ];
    assert!(explained::<Lease>(&told));
}

#[test]
fn a_lease_that_is_held_is_not_granted() {
    assert!(!explained::<Lease>(&[acquire("a", (10, 12), Some(1)), acquire("b", (500, 502), Some(2))]));
    // Answered when the lease has lapsed: it may have been granted then.
    assert!(explained::<Lease>(&[acquire("a", (10, 12), Some(1)), acquire("b", (500, 1_502), Some(2))]));
}

#[test]
fn what_one_call_needs_to_have_lapsed_has_lapsed_for_the_next() {
    // The second grant needs the lease to have lapsed, so it comes after 1010, and the third needs
    // that one to have lapsed, which is too late.
    let told = [
        acquire("a", (10, 12), Some(1)),
        acquire("b", (500, 1_500), Some(2)),
        acquire("c", (1_600, 1_700), Some(3)),
    ];
    assert!(!explained::<Lease>(&told));
}

#[test]
fn a_free_lease_is_granted() {
    assert!(!explained::<Lease>(&[acquire("a", (10, 12), None)]));
    let told =
        [acquire("a", (10, 12), Some(1)), give_up("a", (20, 22), 1, true), acquire("b", (30, 32), None)];
    assert!(!explained::<Lease>(&told));
}

#[test]
fn a_lease_counts_as_held_while_another_call_is_under_way() {
    let told = [acquire("b", (5, 20), Some(1)), acquire("a", (10, 12), None)];
    assert!(explained::<Lease>(&told));
}

#[test]
fn an_acquisition_without_an_answer_explains_what_follows() {
    let held = [unknown(acquire("a", (10, 12), Some(1))), acquire("b", (500, 502), None)];
    assert!(explained::<Lease>(&held));
    let epoch = [
        acquire("a", (10, 12), Some(1)),
        unknown(acquire("b", (1_100, 1_102), Some(2))),
        acquire("c", (2_200, 2_202), Some(3)),
    ];
    assert!(explained::<Lease>(&epoch));
}

#[test]
fn a_lost_epoch_proves_nothing() {
    for late in [prolong("a", (1_200, 1_202), 1, Some(30)), write("a", (1_200, 1_202), 1)] {
        let told = [acquire("a", (10, 12), Some(1)), acquire("b", (1_100, 1_102), Some(2)), late];
        assert!(!explained::<Lease>(&told));
    }
}

#[test]
fn a_holder_does_not_lose_its_lease_early() {
    assert!(!explained::<Lease>(&[acquire("a", (10, 12), Some(1)), prolong("a", (500, 502), 1, None)]));
    // It counts it as lost by its own deadline, a little before the database does.
    assert!(explained::<Lease>(&[acquire("a", (10, 12), Some(1)), prolong("a", (961, 963), 1, None)]));
    assert!(!explained::<Lease>(&[acquire("a", (10, 12), Some(1)), give_up("a", (500, 502), 1, false)]));
}

#[test]
fn concurrent_calls_are_put_in_the_order_that_fits() {
    let told =
        [acquire("a", (10, 60), Some(2)), acquire("b", (11, 61), Some(1)), give_up("b", (40, 50), 1, true)];
    // Epoch 1 was answered at 61, so it may have been given up at 45 only if its holder knew of it
    // before: the model does not ask how.
    assert!(explained::<Lease>(&told));
    assert!(!explained::<Lease>(&told[..2]));
}

fn begin(process: &'static str, at: (u64, u64), generation: Option<i64>) -> Told {
    let call = Call::Begin { source: "shop".to_owned(), id: "r1".to_owned(), lease_ms: LEASE_MS };
    (process, at, call, Some(Answer::Begun { generation }))
}

fn finish(process: &'static str, at: (u64, u64), generation: i64) -> Told {
    let call = Call::Finish { source: "shop".to_owned(), id: "r1".to_owned(), generation };
    (process, at, call, Some(Answer::Done))
}

#[test]
fn a_received_message_is_completed_once() {
    let told = [
        begin("a", (10, 12), Some(1)),
        begin("b", (20, 22), None),
        begin("b", (1_100, 1_102), Some(2)),
        finish("b", (1_200, 1_202), 2),
        begin("a", (1_300, 1_302), None),
    ];
    assert!(explained::<Reservation>(&told));
    let twice = [begin("a", (10, 12), Some(1)), finish("a", (20, 22), 1), finish("a", (30, 32), 1)];
    assert!(!explained::<Reservation>(&twice));
}

#[test]
fn a_lapsed_reservation_is_completed_unless_another_call_took_it() {
    let late = finish("a", (1_500, 1_502), 1);
    assert!(explained::<Reservation>(&[begin("a", (10, 12), Some(1)), late.clone()]));
    let taken = [begin("a", (10, 12), Some(1)), begin("b", (1_100, 1_102), Some(2)), late];
    assert!(!explained::<Reservation>(&taken));
}

#[test]
fn a_message_that_is_free_is_reserved() {
    assert!(!explained::<Reservation>(&[begin("a", (10, 12), None)]));
    assert!(explained::<Reservation>(&[unknown(begin("b", (5, 6), None)), begin("a", (10, 12), None)]));
    let completed_again =
        [begin("a", (10, 12), Some(1)), finish("a", (20, 22), 1), begin("b", (1_500, 1_502), Some(2))];
    assert!(!explained::<Reservation>(&completed_again));
    let perhaps_completed = [
        begin("a", (10, 12), Some(1)),
        unknown(finish("a", (20, 22), 1)),
        begin("b", (30, 32), None),
        begin("c", (500, 502), Some(2)),
    ];
    // Reserved again before the lease lapsed: so the guard was dropped, after `b` asked.
    assert!(explained::<Reservation>(&perhaps_completed));
}

#[test]
fn twelve_calls_without_answers_are_searched_in_no_time() {
    let mut told: Vec<Told> =
        (0..MOST_CALLS as u64 - 1).map(|n| unknown(acquire("a", (n, n + 1), Some(1)))).collect();
    told.push(acquire("b", (100, 200), Some(1)));
    assert!(explained::<Lease>(&told));
    told.pop();
    // No number of acquisitions makes a write under an epoch that was never given.
    told.push(write("b", (100, 200), 7));
    assert!(!explained::<Lease>(&told));
}
