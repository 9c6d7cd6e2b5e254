//! Replay: failed messages made ready again, singly or by filter.

use std::time::Duration;

use mainstay_core::outbox::{Message, MessageFilter, OutboxMessage, Page};
use mainstay_core::queue::{ClaimRequest, FailureReason, Status};
use mainstay_core::{ErrorKind, OwnerToken, WorkItemId};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{LEASE, TOPIC, World, handles, ids, set, snapshot};

cases! { $ replay_cases:
    r16_a_failed_message_can_be_requeued ["R16"],
    r16_only_failed_messages_are_requeued ["R16"],
    r16_a_requeued_message_has_all_its_attempts_again ["R16", "R3"],
    r16_an_expired_message_loses_its_expiry ["R16", "MST-042"],
    r16_messages_are_requeued_by_filter ["R16"],
    r16_a_requeue_by_filter_is_bounded_and_oldest_first ["R16"],
    r16_listings_filter_and_page ["R16"],
}

/// Enqueues one message of `topic` and fails it.
async fn failed(world: &World<'_>, topic: &str) -> WorkItemId {
    let id = world.enqueue(Message::new(topic, topic).correlation(topic)).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    assert_eq!(world.outbox.fail(owner, &claim, Some("broken".to_owned())).await.unwrap().changed, [id]);
    id
}

pub(super) async fn r16_a_failed_message_can_be_requeued(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = failed(&world, "order").await;
    let before = world.row(id).await;
    let requeued = world.outbox.requeue(&[id, id, WorkItemId::new()]).await.unwrap();
    assert_eq!(requeued, [id], "once, and the unknown one not");
    let row = world.row(id).await;
    assert_eq!((row.status, row.reason, row.attempts), (Status::Ready, None, 0));
    assert_eq!((row.processed_at, row.processed_by, row.owner), (None, None, None));
    assert_eq!((row.id, row.message_id), (before.id, before.message_id), "it is the same message");
    assert_eq!((row.payload, row.correlation_id), (before.payload, before.correlation_id));
    assert_eq!(row.created_at, before.created_at);
    assert_eq!(row.last_error.as_deref(), Some("broken"), "why it failed stays readable");
    let claimed = world.claim_one(OwnerToken::new()).await;
    assert_eq!((claimed.id(), claimed.attempt, claimed.payload.as_str()), (id, 1, "order"));
    assert_eq!(world.total().await, 1);
}

pub(super) async fn r16_only_failed_messages_are_requeued(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let owner = OwnerToken::new();
    let done = world.enqueue(Message::new("done", "")).await;
    let claim = [world.claim_one(owner).await.handle];
    world.outbox.ack(owner, &claim).await.unwrap();
    let running = world.enqueue(Message::new("running", "")).await;
    world.claim_one(owner).await;
    let ready = world.enqueue(Message::new("ready", "")).await;
    let all = [done, running, ready];
    let before: Vec<_> = world.rows(&all).await.iter().map(snapshot).collect();
    assert_eq!(world.outbox.requeue(&all).await.unwrap(), []);
    assert_eq!(world.outbox.requeue_where(&MessageFilter::all(), 100).await.unwrap(), []);
    let after: Vec<_> = world.rows(&all).await.iter().map(snapshot).collect();
    assert_eq!(before, after);
}

pub(super) async fn r16_a_requeued_message_has_all_its_attempts_again(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let request = ClaimRequest::new(OwnerToken::new()).delivery_limit(2).lease(LEASE);
    for round in 0..2 {
        for attempt in 1..=2 {
            let batch = world.claim_batch(&request).await;
            assert_eq!(batch.items.len(), 1, "round {round}");
            assert_eq!(batch.items[0].attempt, attempt);
            world.advance(LEASE * 2).await;
        }
        let batch = world.claim_batch(&request).await;
        assert_eq!((batch.items.len(), batch.rejected.len()), (0, 1));
        assert_eq!(world.outbox.requeue(&[id]).await.unwrap(), [id]);
    }
}

pub(super) async fn r16_an_expired_message_loses_its_expiry(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "").expires_in(LEASE)).await;
    world.advance(LEASE * 2).await;
    assert_eq!(world.claim_batch(&ClaimRequest::new(OwnerToken::new())).await.rejected.len(), 1);
    assert_eq!(world.outbox.requeue(&[id]).await.unwrap(), [id]);
    assert_eq!(world.row(id).await.expires_at, None, "or it would expire again at once");
    assert_eq!(world.claim_one(OwnerToken::new()).await.id(), id);
}

pub(super) async fn r16_messages_are_requeued_by_filter(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let a = failed(&world, "a").await;
    let b = failed(&world, "b").await;
    let cancelled = world.enqueue(Message::new("a", "")).await;
    world.outbox.cancel(&[cancelled]).await.unwrap();
    world.advance(Duration::from_secs(3600)).await;
    let since = world.now().await - Duration::from_secs(1800);
    let recent = failed(&world, "a").await;

    let outbox = &world.outbox;
    let by = async |filter: MessageFilter| outbox.requeue_where(&filter, 100).await.unwrap();
    assert_eq!(by(MessageFilter::all().topic("A")).await, []);
    assert_eq!(by(MessageFilter::all().topic("a").status(Status::Done)).await, []);
    assert_eq!(by(MessageFilter::all().correlation_id("b")).await, [b]);
    assert_eq!(by(MessageFilter::all().reason(FailureReason::Cancelled)).await, [cancelled]);
    assert_eq!(by(MessageFilter::all().topic("a").settled_after(since)).await, [recent]);
    assert_eq!(by(MessageFilter::all().settled_before(since).topic("a")).await, [a]);
    assert_eq!(by(MessageFilter::all()).await, []);
    let claimed = world.claim(OwnerToken::new(), 50).await;
    assert_eq!(ids(&claimed), set(&[a, b, cancelled, recent]));
}

pub(super) async fn r16_a_requeue_by_filter_is_bounded_and_oldest_first(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(failed(&world, "t").await);
        world.advance(Duration::from_secs(60)).await;
    }
    let filter = MessageFilter::all().topic("t");
    let first = world.outbox.requeue_where(&filter, 3).await.unwrap();
    assert_eq!(set(&first), set(&all[..3]));
    assert_eq!(world.outbox.requeue_where(&filter, 3).await.unwrap(), all[3..]);
    let error = world.outbox.requeue_where(&filter, 0).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("limit")));
}

pub(super) async fn r16_listings_filter_and_page(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mut all = world.enqueue_some(7).await;
    let owner = OwnerToken::new();
    let claims = handles(&world.claim(owner, 4).await);
    world.outbox.ack(owner, &claims[..2]).await.unwrap();
    world.outbox.fail(owner, &claims[2..3], None).await.unwrap();
    all.sort();
    all.reverse();

    // Open and settled ones in one order, page by page.
    let mut listed = Vec::new();
    let mut page = Page { limit: 3, before: None };
    loop {
        let rows = world.outbox.list(&MessageFilter::all(), page).await.unwrap();
        assert!(rows.len() <= 3);
        let Some(last) = rows.last() else { break };
        page.before = Some(last.id);
        listed.extend(rows.iter().map(|row| row.id));
    }
    assert_eq!(listed, all, "newest first, none twice, none missing");

    let status = async |status: Status| -> Vec<OutboxMessage> {
        world.outbox.list(&MessageFilter::all().status(status), Page::default()).await.unwrap()
    };
    for (wanted, count) in
        [(Status::Ready, 3), (Status::InProgress, 1), (Status::Done, 2), (Status::Failed, 1)]
    {
        let rows = status(wanted).await;
        assert_eq!(rows.len(), count, "{wanted}");
        assert!(rows.iter().all(|row| row.status == wanted));
    }
    let none = world.outbox.list(&MessageFilter::all().topic("no such"), Page::default()).await.unwrap();
    assert!(none.is_empty());
    let bare = MessageFilter::all().without_payloads();
    let bare = world.outbox.list(&bare, Page::default()).await.unwrap();
    assert_eq!(bare.iter().map(|row| row.id).collect::<Vec<_>>(), all);
    assert!(bare.iter().all(|row| row.payload.is_none()), "payloads stay in the database");
    let ready = status(Status::Ready).await;
    assert!(ready.iter().all(|row| row.payload.is_some()), "and come where nobody says otherwise");
    for limit in [0, 1_001] {
        let page = Page { limit, before: None };
        let error = world.outbox.list(&MessageFilter::all(), page).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("limit")));
    }
}
