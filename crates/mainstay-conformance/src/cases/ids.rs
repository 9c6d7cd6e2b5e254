//! An id is used once, and its claims never repeat.

use std::time::Duration;

use futures_util::future::join_all;
use mainstay_core::outbox::{Enqueued, Message, Retention};
use mainstay_core::queue::{ClaimHandle, Status};
use mainstay_core::store::Names;
use mainstay_core::timer::NewTimer;
use mainstay_core::{Error, ErrorKind, OwnerToken, Result, WorkItemId};

use crate::case::cases;
use crate::fixture::{End, Fixture};
use crate::world::{TOPIC, World, set};

cases! { $ id_cases:
    r5_a_known_id_is_refused_with_its_status_by_every_way_in ["R5"],
    r5_an_id_twice_in_one_call_is_refused ["R5"],
    r5_of_concurrent_enqueues_with_one_id_one_is_added ["R5"],
    r5_an_idempotency_key_answers_before_the_id ["R5"],
    r5_a_timer_s_id_is_used_once ["R5"],
    r5_what_retention_deleted_is_not_known ["R5", "R29"],
    r10_generations_never_repeat_for_an_id ["R10"],
    r10_a_requeue_repeats_no_generation ["R10"],
}

/// Whether it is the error for an id that an item of this status has.
fn assert_known(error: &Error, id: WorkItemId, status: Status) {
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::AlreadyExists, false), "{error}");
    assert_eq!(error.field(), Some("work_item_id"), "{error}");
    assert_eq!(error.existing().map(|item| (item.id, item.status)), Some((id, status)), "{error}");
    let text = error.message();
    assert!(text.contains(&id.to_string()) && text.contains(&status.to_string()), "{text}");
}

/// One message of each status: ready, in progress, done, failed by its worker, and failed by an operator.
async fn one_of_each(world: &World<'_>) -> Vec<(WorkItemId, Status)> {
    let owner = OwnerToken::new();
    let mut ids = Vec::new();
    for status in [Status::Done, Status::Failed, Status::InProgress] {
        let id = world.enqueue(Message::new(TOPIC, "").work_item_id(WorkItemId::new())).await;
        let claim = [world.claim_one(owner).await.handle];
        match status {
            Status::Done => drop(world.outbox.ack(owner, &claim).await.unwrap()),
            Status::Failed => drop(world.outbox.fail(owner, &claim, None).await.unwrap()),
            _ => {}
        }
        ids.push((id, status));
    }
    let cancelled = world.enqueue(Message::new(TOPIC, "").work_item_id(WorkItemId::new())).await;
    assert_eq!(world.outbox.cancel(&[cancelled]).await.unwrap(), [cancelled]);
    ids.push((cancelled, Status::Failed));
    ids.push((world.enqueue(Message::new(TOPIC, "").work_item_id(WorkItemId::new())).await, Status::Ready));
    // Ids that the client makes are as good to be used again.
    ids.push((world.enqueue(Message::new(TOPIC, "")).await, Status::Ready));
    ids
}

async fn r5_a_known_id_is_refused_with_its_status_by_every_way_in(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = world.second().await;
    let known = one_of_each(&world).await;
    for (id, status) in known.iter().copied() {
        let before = world.row(id).await;
        let again = || Message::new("again", "again").work_item_id(id);
        let beside = || vec![Message::new("beside", ""), again(), Message::new("beside", "")];

        assert_known(&world.enqueue_error(again()).await, id, status);
        assert_known(&second.enqueue(again()).await.unwrap_err(), id, status);
        assert_known(&world.outbox.enqueue_many(vec![again()]).await.unwrap_err(), id, status);
        assert_known(&world.outbox.enqueue_many(beside()).await.unwrap_err(), id, status);
        let in_transaction = fx.transact(&world.outbox, "refused", beside(), End::Commit).await;
        assert_known(&in_transaction.unwrap_err(), id, status);
        let prepared = again().prepare(&Default::default()).unwrap();
        let mut transaction = world.outbox.store().begin().await.unwrap();
        assert_known(&transaction.enqueue(&[prepared]).await.unwrap_err(), id, status);
        drop(transaction);
        if world.provider.capabilities().functions {
            let text = id.to_string();
            let mut arguments = [None; 11];
            (arguments[0], arguments[1], arguments[10]) = (Some("again"), Some(""), Some(text.as_str()));
            (arguments[6], arguments[9]) = (Some("0"), Some("false"));
            let error = fx.call(&Names::default(), "outbox_enqueue", &arguments).await.unwrap_err();
            assert_known(
                &Error::already_exists_from_text("outbox.enqueue", &error).expect(&error),
                id,
                status,
            );
        }

        let after = world.row(id).await;
        assert_eq!(
            (&after.topic, after.status, after.generation),
            (&before.topic, status, before.generation)
        );
        assert_eq!(after.message_id, before.message_id);
    }
    assert_eq!(fx.notes().await, Vec::<String>::new(), "a refused enqueue takes its transaction along");
    assert_eq!(world.total().await, known.len() as u64, "nothing was added");
    // Of several that are known the first is named.
    let all = known.iter().map(|(id, _)| Message::new(TOPIC, "").work_item_id(*id)).collect();
    assert_known(&world.outbox.enqueue_many(all).await.unwrap_err(), known[0].0, known[0].1);
}

async fn r5_an_id_twice_in_one_call_is_refused(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = WorkItemId::new();
    let twice = || {
        let mine = |payload: &str| Message::new(TOPIC, payload).work_item_id(id);
        vec![mine("first"), Message::new(TOPIC, "other"), mine("second")]
    };
    assert_known(&world.outbox.enqueue_many(twice()).await.unwrap_err(), id, Status::Ready);
    let in_transaction = fx.transact(&world.outbox, "refused", twice(), End::Commit).await;
    assert_known(&in_transaction.unwrap_err(), id, Status::Ready);
    assert_eq!(world.total().await, 0);
    world.enqueue(Message::new(TOPIC, "").work_item_id(id)).await;
}

async fn r5_of_concurrent_enqueues_with_one_id_one_is_added(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = world.second().await;
    for round in 0..5 {
        let id = WorkItemId::new();
        let message = || Message::new(TOPIC, "").work_item_id(id);
        let calls = (0..8).map(|n| if n % 2 == 0 { &world.outbox } else { &second });
        let answers: Vec<Result<Enqueued>> = join_all(calls.map(|outbox| outbox.enqueue(message()))).await;
        let (added, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        assert_eq!(added.len(), 1, "round {round}");
        for error in refused {
            assert_known(&error.unwrap_err(), id, Status::Ready);
        }
        assert_eq!(world.total().await, round + 1);
    }
}

async fn r5_an_idempotency_key_answers_before_the_id(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let owner = OwnerToken::new();
    let message = Message::new(TOPIC, "").work_item_id(WorkItemId::new()).idempotency_key("order-7");
    let first = world.outbox.enqueue(message.clone()).await.unwrap();
    assert!(first.added);
    for _ in 0..2 {
        // The same message again: what the key is for, while it is open and when it is done.
        let again = world.outbox.enqueue(message.clone()).await.unwrap();
        assert_eq!((again.work_item, again.message, again.added), (first.work_item, first.message, false));
        let within = fx.transact(&world.outbox, "kept", vec![message.clone()], End::Commit).await.unwrap();
        assert_eq!((within[0].work_item, within[0].added), (first.work_item, false));
        if world.row(first.work_item).await.status == Status::Ready {
            let claim = [world.claim_one(owner).await.handle];
            world.outbox.ack(owner, &claim).await.unwrap();
        }
    }
    // Another key does not help a known id, and is not used up by it.
    let other = Message::new(TOPIC, "").idempotency_key("order-8");
    let error = world.enqueue_error(other.clone().work_item_id(first.work_item)).await;
    assert_known(&error, first.work_item, Status::Done);
    assert!(world.outbox.enqueue(other).await.unwrap().added);
    assert_eq!(world.total().await, 2);
}

async fn r5_a_timer_s_id_is_used_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = WorkItemId::new();
    let timer = |topic: &str| NewTimer::new(topic, "", Duration::from_secs(60)).id(id);
    world.schedule(timer("first")).await;
    assert_known(&world.timers.schedule(timer("second")).await.unwrap_err(), id, Status::Ready);
    world.advance(Duration::from_secs(61)).await;
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [id]);
    assert_known(&world.timers.schedule(timer("third")).await.unwrap_err(), id, Status::Done);
    let in_transaction = fx.schedule(&world.timers, "refused", timer("fourth"), End::Commit).await;
    assert_known(&in_transaction.unwrap_err(), id, Status::Done);
    // The message has the timer's id.
    assert_known(&world.enqueue_error(Message::new(TOPIC, "").work_item_id(id)).await, id, Status::Ready);
    assert_eq!(world.row(id).await.topic, "first");
    assert_eq!(world.total().await, 1);
}

/// Deletes all that is settled.
async fn purge(world: &World<'_>) {
    world.advance(Duration::from_secs(2)).await;
    let second = Some(Duration::from_secs(1));
    world.outbox.purge(&Retention::default().done(second).failed(second)).await.unwrap();
}

async fn r5_what_retention_deleted_is_not_known(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let known = one_of_each(&world).await;
    purge(&world).await;
    let mut added = Vec::new();
    for (id, status) in known {
        let again = Message::new(TOPIC, "again").work_item_id(id);
        if status.is_terminal() {
            world.enqueue(again).await;
            added.push(id);
        } else {
            assert_known(&world.enqueue_error(again).await, id, status);
        }
    }
    assert_eq!(added.len(), 3);
    let rows = world.rows(&added).await;
    assert!(rows.iter().all(|row| row.status == Status::Ready && row.payload.as_deref() == Some("again")));
    assert_eq!(set(&added).len(), 3);
}

/// Enqueues this id and claims it.
async fn live(world: &World<'_>, id: WorkItemId, owner: OwnerToken) -> ClaimHandle {
    world.enqueue(Message::new(TOPIC, "").work_item_id(id)).await;
    world.claim_one(owner).await.handle
}

async fn r10_generations_never_repeat_for_an_id(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (id, owner) = (WorkItemId::new(), OwnerToken::new());
    let mut claims: Vec<ClaimHandle> = Vec::new();
    for life in 0..4 {
        let claim = live(&world, id, owner).await;
        let generations: Vec<i64> = claims.iter().map(ClaimHandle::generation).collect();
        assert!(generations.iter().all(|one| *one < claim.generation()), "{generations:?} and {claim:?}");
        // Late calls of the lives before, by the very owner of this one.
        let late = world.outbox.ack(owner, &claims).await.unwrap();
        assert!(late.changed.is_empty(), "life {life}: {late:?}");
        let late = world.outbox.fail(owner, &claims, None).await.unwrap();
        assert!(late.changed.is_empty(), "life {life}: {late:?}");
        let late = world.outbox.renew(owner, &claims, Duration::from_secs(3600)).await.unwrap();
        assert!(late.changed.is_empty(), "life {life}: {late:?}");
        let row = world.row(id).await;
        assert_eq!((row.status, row.generation), (Status::InProgress, claim.generation()));

        let ended = match life % 2 {
            0 => world.outbox.ack(owner, &[claim]).await.unwrap(),
            _ => world.outbox.fail(owner, &[claim], None).await.unwrap(),
        };
        assert_eq!(ended.changed, [id]);
        claims.push(claim);
        purge(&world).await;
        assert!(world.outbox.get(id).await.unwrap().is_none(), "retention has deleted it");
    }
    // A cancelled message was never claimed; its id begins anew all the same.
    world.enqueue(Message::new(TOPIC, "").work_item_id(id)).await;
    world.outbox.cancel(&[id]).await.unwrap();
    purge(&world).await;
    let claim = live(&world, id, owner).await;
    assert!(claims.iter().all(|one| one.generation() < claim.generation()));
}

async fn r10_a_requeue_repeats_no_generation(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let owner = OwnerToken::new();
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let mut claims = Vec::new();
    for _ in 0..4 {
        let claim = world.claim_one(owner).await.handle;
        assert!(
            !claims.contains(&claim)
                && claims.last().is_none_or(|last: &ClaimHandle| last.generation() < claim.generation())
        );
        let late = world.outbox.ack(owner, &claims).await.unwrap();
        assert!(late.changed.is_empty(), "{late:?}");
        world.outbox.fail(owner, &[claim], None).await.unwrap();
        assert_eq!(world.outbox.requeue(&[id]).await.unwrap(), [id]);
        claims.push(claim);
    }
}
