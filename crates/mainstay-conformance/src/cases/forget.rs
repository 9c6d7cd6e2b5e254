//! The inbox's retention: what is forgotten, what never is, and in what portions.

use std::time::Duration;

use mainstay_core::inbox::{EntryState, InboxFilter, InboxKey, InboxPage, InboxRetention, Incoming};
use mainstay_core::outbox::Message;
use mainstay_core::queue::ClaimRequest;
use mainstay_core::{ErrorKind, OwnerToken, WorkItemId};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{LEASE, TOPIC, World};

cases! { $ forget_cases:
    ibx_098_each_transaction_forgets_one_batch ["IBX-098", "R29"],
    ibx_099_the_age_is_configurable ["IBX-099", "R29"],
    ibx_099_the_default_is_thirty_days_and_less_than_seven_must_be_asked_for ["IBX-099", "R29"],
    ibx_100_only_done_messages_past_their_age_are_forgotten ["IBX-100", "R29"],
    ibx_101_waiting_running_and_dead_messages_are_spared ["IBX-101", "R29"],
    ibx_100_a_forgotten_message_is_new_again ["IBX-100"],
    ibx_100_a_page_that_goes_on_after_a_forgotten_message_is_refused ["IBX-100"],
}

const DAY: Duration = Duration::from_secs(24 * 3_600);
const SOURCE: &str = "shop";

/// Receives and acks one message through the queue.
async fn handled(world: &World<'_>, id: &str) -> WorkItemId {
    let item = world.inbox.enqueue(Incoming::new(SOURCE, id, Message::new(TOPIC, id))).await.unwrap();
    let owner = OwnerToken::new();
    let claimed = world.inbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    assert_eq!(world.inbox.ack(owner, &claimed.handles()).await.unwrap().changed.len(), 1);
    item.work_item.unwrap()
}

async fn ibx_098_each_transaction_forgets_one_batch(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for number in 0..7 {
        world.inbox.mark_processed(SOURCE, &number.to_string()).await.unwrap();
    }
    world.advance(40 * DAY).await;
    let retention = InboxRetention::default().batch(3);
    let mut batches = Vec::new();
    for _ in 0..4 {
        batches.push(world.inbox.store().forget(&retention, None).await.unwrap());
    }
    assert_eq!(batches, [3, 3, 1, 0]);
    for number in 0..7 {
        world.inbox.mark_processed(SOURCE, &number.to_string()).await.unwrap();
    }
    world.advance(40 * DAY).await;
    assert_eq!(world.inbox.forget(&retention).await.unwrap(), 7, "the client goes on until none is left");
}

async fn ibx_099_the_age_is_configurable(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.inbox.mark_processed(SOURCE, "done").await.unwrap();
    world.inbox.mark_dead(SOURCE, "dead", None).await.unwrap();
    world.advance(10 * DAY).await;
    assert_eq!(
        world.inbox.forget(&InboxRetention::default().done(None)).await.unwrap(),
        0,
        "none is for ever"
    );
    assert_eq!(world.inbox.forget(&InboxRetention::default().done(Some(11 * DAY))).await.unwrap(), 0);
    assert_eq!(world.inbox.forget(&InboxRetention::default().done(Some(9 * DAY))).await.unwrap(), 1);
    assert_eq!(
        world.inbox.forget(&InboxRetention::default().dead(Some(9 * DAY))).await.unwrap(),
        1,
        "when told to"
    );
    assert_eq!(world.inbox.stats().await.unwrap().ledger, Default::default());
}

async fn ibx_099_the_default_is_thirty_days_and_less_than_seven_must_be_asked_for(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.inbox.mark_processed(SOURCE, "m").await.unwrap();
    world.advance(29 * DAY).await;
    assert_eq!(world.inbox.forget(&InboxRetention::default()).await.unwrap(), 0);
    assert!(world.inbox.already_processed(SOURCE, "m", None).await.unwrap().processed);
    for (field, retention) in [
        ("done", InboxRetention::default().done(Some(7 * DAY - Duration::from_secs(1)))),
        ("dead", InboxRetention::default().dead(Some(DAY))),
        ("batch", InboxRetention::default().batch(0)),
        ("batch", InboxRetention::default().batch(100_001)),
        ("interval", InboxRetention::default().interval(Duration::ZERO)),
    ] {
        let error = world.inbox.forget(&retention).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)));
    }
    assert_eq!(world.inbox.stats().await.unwrap().ledger.done, 1, "what was refused deleted nothing");
    world.advance(2 * DAY).await;
    assert_eq!(world.inbox.forget(&InboxRetention::default()).await.unwrap(), 1);
    world.inbox.mark_processed(SOURCE, "n").await.unwrap();
    world.advance(2 * DAY).await;
    let short = InboxRetention::default().done(Some(DAY)).at_least(DAY);
    assert_eq!(world.inbox.forget(&short).await.unwrap(), 1);
}

async fn ibx_100_only_done_messages_past_their_age_are_forgotten(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let old = handled(&world, "old").await;
    world.inbox.begin(SOURCE, "guarded").await.unwrap().into_new().unwrap().complete().await.unwrap();
    world.advance(20 * DAY).await;
    let recent = handled(&world, "recent").await;
    world.advance(15 * DAY).await;
    // Seen again yesterday, and still done long ago.
    world.inbox.already_processed(SOURCE, "old", None).await.unwrap();
    assert_eq!(world.inbox.forget(&InboxRetention::default()).await.unwrap(), 2);
    assert!(world.inbox.get(SOURCE, "old").await.unwrap().is_none());
    assert!(world.inbox.get(SOURCE, "guarded").await.unwrap().is_none());
    assert!(world.inbox.queue().get(old).await.unwrap().is_none(), "with what the queue has kept of it");
    assert_eq!(world.entry(SOURCE, "recent").await.state, EntryState::Done);
    assert!(world.inbox.queue().get(recent).await.unwrap().is_some());
}

async fn ibx_101_waiting_running_and_dead_messages_are_spared(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.inbox.already_processed(SOURCE, "seen", None).await.unwrap();
    world.inbox.mark_processing(SOURCE, "processing", LEASE).await.unwrap();
    world.inbox.mark_dead(SOURCE, "dead", None).await.unwrap();
    let owner = OwnerToken::new();
    for id in ["running", "marked while running"] {
        world.inbox.enqueue(Incoming::new(SOURCE, id, Message::new(TOPIC, ""))).await.unwrap();
    }
    let claimed = world.inbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    world.inbox.mark_processed(SOURCE, "marked while running").await.unwrap();
    world.inbox.enqueue(Incoming::new(SOURCE, "waiting", Message::new(TOPIC, ""))).await.unwrap();
    world
        .inbox
        .enqueue(Incoming::new(SOURCE, "later", Message::new(TOPIC, "").due_in(2_000 * DAY)))
        .await
        .unwrap();
    world.advance(1_000 * DAY).await;
    assert_eq!(world.inbox.forget(&InboxRetention::default()).await.unwrap(), 0);
    for id in ["seen", "processing", "dead", "running", "waiting", "later", "marked while running"] {
        assert!(world.inbox.get(SOURCE, id).await.unwrap().is_some(), "{id}");
    }
    assert_eq!(
        world.inbox.ack(owner, &claimed.handles()).await.unwrap().changed.len(),
        2,
        "nobody took them away"
    );
}

async fn ibx_100_a_forgotten_message_is_new_again(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    handled(&world, "m").await;
    world.advance(31 * DAY).await;
    world.inbox.forget(&InboxRetention::default()).await.unwrap();
    assert!(!world.inbox.already_processed(SOURCE, "m", None).await.unwrap().processed);
    handled(&world, "m").await;
    assert!(world.inbox.already_processed(SOURCE, "m", None).await.unwrap().processed);
}

async fn ibx_100_a_page_that_goes_on_after_a_forgotten_message_is_refused(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.inbox.mark_dead(SOURCE, "dead", None).await.unwrap();
    world.inbox.mark_processed(SOURCE, "done").await.unwrap();
    let mut page = InboxPage { limit: 1, after: None };
    let newest = world.inbox.list(&InboxFilter::default(), &page).await.unwrap().remove(0);
    page.after = Some(newest.key.clone());
    world.inbox.list(&InboxFilter::default(), &page).await.unwrap();
    world.advance(40 * DAY).await;
    assert_eq!(world.inbox.forget(&InboxRetention::default()).await.unwrap(), 1);
    page.after = Some(InboxKey::new(SOURCE, "done").unwrap());
    let error = world.inbox.list(&InboxFilter::default(), &page).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("after")), "{error}");
}
