//! Messages that are received again: what becomes of them where they are known.

use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::inbox::{Begin, ContentHash, EntryState, InboxEntry, Incoming, ReceivedOutcome};
use mainstay_core::outbox::Message;
use tracing::Level;

use crate::case::cases;
use crate::fixture::Fixture;
use crate::probe::{Logs, Meter};
use crate::world::{LEASE, TOPIC, World};

use super::receive::{SOURCE, claim, incoming, outcome, payloads, receive};

cases! { $ receive_again_cases:
    ibx_028_an_enqueue_over_a_done_message_changes_nothing ["IBX-028"],
    ibx_029_an_enqueue_over_a_waiting_message_replaces_it ["IBX-029"],
    ibx_029_an_enqueue_over_a_dead_message_revives_it ["IBX-029"],
    ibx_029_an_enqueue_over_a_running_message_changes_nothing ["IBX-029", "R15"],
    ibx_029_a_message_that_was_only_seen_is_added ["IBX-029", "R15"],
    ibx_078_a_dead_message_that_comes_again_is_taken_from_the_worker_who_had_it ["IBX-078", "IBX-029"],
    r11_a_dead_message_that_comes_again_waits_for_the_worker_who_had_it ["R11", "MST-040"],
    r15_duplicates_do_not_wear_a_failing_message_out ["R15"],
    r15_a_different_content_warns_and_is_counted ["R15", "IBX-008"],
}

/// All of an entry but when it was last seen.
fn but_seen(mut entry: InboxEntry) -> InboxEntry {
    entry.last_seen_at = entry.first_seen_at;
    entry
}

async fn ibx_028_an_enqueue_over_a_done_message_changes_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let item = receive(&world, "m", "first").await.work_item;
    let owner = OwnerToken::new();
    let claims = claim(&world, owner).await;
    world.inbox.ack(owner, &[claims[0].handle]).await.unwrap();
    world.inbox.mark_processed(SOURCE, "never enqueued").await.unwrap();
    world.advance(LEASE).await;
    let before =
        (world.entry(SOURCE, "m").await, world.inbox.queue().get(item.unwrap()).await.unwrap().unwrap());
    let again = receive(&world, "m", "second").await;
    assert_eq!((outcome(again), again.work_item), ((ReceivedOutcome::Done, true), item));
    let after = world.entry(SOURCE, "m").await;
    assert!(after.last_seen_at > before.0.last_seen_at);
    assert_eq!(but_seen(after), but_seen(before.0));
    let row = world.inbox.queue().get(item.unwrap()).await.unwrap().unwrap();
    assert_eq!((row.payload, row.processed_at), (before.1.payload, before.1.processed_at));
    let received = receive(&world, "never enqueued", "").await;
    assert_eq!((received.outcome, received.work_item), (ReceivedOutcome::Done, None));
    assert_eq!(payloads(&world).await, Vec::<String>::new());
}

async fn ibx_029_an_enqueue_over_a_waiting_message_replaces_it(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let first = receive(&world, "m", "first").await;
    let due = Message::new("other.topic", "second").due_in(LEASE).correlation("c").header("h", "v");
    let again = world.inbox.enqueue(Incoming::new(SOURCE, "m", due)).await.unwrap();
    assert_eq!((outcome(again), again.work_item), ((ReceivedOutcome::Replaced, true), first.work_item));
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.topic.as_deref(), entry.hash), (Some("other.topic"), Some(ContentHash::of("second"))));
    assert_eq!(payloads(&world).await, Vec::<String>::new(), "the new due time counts");
    world.advance(LEASE + Duration::from_secs(1)).await;
    let owner = OwnerToken::new();
    let claimed = claim(&world, owner).await.remove(0);
    assert_eq!((claimed.topic.as_str(), claimed.payload.as_str()), ("other.topic", "second"));
    assert_eq!((claimed.correlation_id.as_deref(), claimed.headers["h"].as_str()), (Some("c"), "v"));
    assert_eq!((claimed.headers["mainstay-message-id"].as_str(), claimed.attempt), ("m", 1));
    // Attempts stay.
    world.inbox.abandon(owner, &[claimed.handle], None, Some("broken".to_owned())).await.unwrap();
    receive(&world, "m", "third").await;
    world.advance(LEASE).await;
    let claimed = claim(&world, owner).await.remove(0);
    assert_eq!((claimed.payload.as_str(), claimed.attempt), ("third", 2));
    assert_eq!(claimed.last_error.as_deref(), Some("broken"));
    // A due time in the future can be brought forward as long as nobody has had the message.
    world
        .inbox
        .enqueue(Incoming::new(SOURCE, "n", Message::new(TOPIC, "later").due_in(LEASE * 100)))
        .await
        .unwrap();
    receive(&world, "n", "now").await;
    assert_eq!(payloads(&world).await, ["now"]);
}

async fn ibx_029_an_enqueue_over_a_dead_message_revives_it(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let first = receive(&world, "m", "first").await;
    let owner = OwnerToken::new();
    let claimed = claim(&world, owner).await.remove(0);
    world.inbox.fail(owner, &[claimed.handle], Some("broken".to_owned())).await.unwrap();
    world.inbox.mark_dead(SOURCE, "never enqueued", None).await.unwrap();
    let again = world
        .inbox
        .enqueue(Incoming::new(SOURCE, "m", Message::new("new.topic", "second").due_in(LEASE)))
        .await
        .unwrap();
    assert_eq!(outcome(again), (ReceivedOutcome::Revived, true));
    assert_ne!(again.work_item, first.work_item, "a new row");
    assert!(
        world.inbox.queue().get(first.work_item.unwrap()).await.unwrap().is_none(),
        "in place of the old one"
    );
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.state, entry.attempts, entry.processed_at), (EntryState::Seen, 0, None));
    assert_eq!((entry.topic.as_deref(), entry.hash), (Some("new.topic"), Some(ContentHash::of("second"))));
    assert_eq!(receive(&world, "never enqueued", "x").await.outcome, ReceivedOutcome::Revived);
    assert_eq!(payloads(&world).await, ["x"]);
    world.advance(LEASE).await;
    let claimed = claim(&world, owner).await.into_iter().find(|item| item.payload == "second").unwrap();
    assert_eq!(claimed.attempt, 1);
    world.inbox.ack(owner, &[claimed.handle]).await.unwrap();
    assert_eq!(world.entry(SOURCE, "m").await.state, EntryState::Done);
}

async fn ibx_029_an_enqueue_over_a_running_message_changes_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    receive(&world, "m", "first").await;
    let owner = OwnerToken::new();
    let claimed = claim(&world, owner).await.remove(0);
    let before = world.entry(SOURCE, "m").await;
    for _ in 0..3 {
        assert_eq!(outcome(receive(&world, "m", "second").await), (ReceivedOutcome::InProgress, true));
    }
    assert_eq!(but_seen(world.entry(SOURCE, "m").await), but_seen(before));
    world.inbox.abandon(owner, &[claimed.handle], Some(Duration::from_millis(1)), None).await.unwrap();
    world.advance(LEASE).await;
    let claimed = claim(&world, owner).await.remove(0);
    assert_eq!((claimed.payload.as_str(), claimed.attempt), ("first", 2));
    world.inbox.ack(owner, &[claimed.handle]).await.unwrap();
}

async fn ibx_029_a_message_that_was_only_seen_is_added(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.inbox.already_processed(SOURCE, "m", ContentHash::of("first")).await.unwrap();
    assert_eq!(outcome(receive(&world, "m", "second").await), (ReceivedOutcome::Added, true));
    world.inbox.mark_processing(SOURCE, "n", LEASE).await.unwrap();
    assert_eq!(receive(&world, "n", "reserved").await.outcome, ReceivedOutcome::Added);
    assert_eq!(payloads(&world).await, ["second"], "what somebody is at waits");
    world.advance(LEASE + Duration::from_secs(1)).await;
    let all = payloads(&world).await;
    assert!(all.contains(&"reserved".to_owned()), "{all:?}");
}

async fn ibx_078_a_dead_message_that_comes_again_is_taken_from_the_worker_who_had_it(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    receive(&world, "m", "first").await;
    let (first, second) = (OwnerToken::new(), OwnerToken::new());
    let stale = claim(&world, first).await.remove(0).handle;
    assert!(world.inbox.mark_dead(SOURCE, "m", None).await.unwrap());
    assert_eq!(outcome(receive(&world, "m", "second").await), (ReceivedOutcome::Revived, true));
    // Whoever had it learns that at whatever he does next.
    assert_eq!(world.inbox.queue().renew(first, &[stale], LEASE).await.unwrap().changed.len(), 0);
    assert_eq!(world.inbox.ack(first, &[stale]).await.unwrap().changed.len(), 0);
    assert_eq!(world.inbox.abandon(first, &[stale], None, None).await.unwrap().changed.len(), 0);
    world.advance(LEASE + Duration::from_secs(1)).await;
    let claimed = claim(&world, second).await.remove(0);
    assert_eq!((claimed.payload.as_str(), claimed.attempt), ("second", 1));
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.state, entry.work_item), (EntryState::Processing, Some(claimed.id())));
    world.inbox.ack(second, &[claimed.handle]).await.unwrap();
    assert_eq!(world.entry(SOURCE, "m").await.state, EntryState::Done);
}

async fn r11_a_dead_message_that_comes_again_waits_for_the_worker_who_had_it(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for (id, payload) in [("m", "first"), ("n", "behind it")] {
        let message = Message::new(TOPIC, payload).ordering_key("k");
        world.inbox.enqueue(Incoming::new(SOURCE, id, message)).await.unwrap();
    }
    let claimed = claim(&world, OwnerToken::new()).await;
    assert_eq!(claimed.len(), 1, "the other waits for it");
    assert_eq!(payloads(&world).await, Vec::<String>::new(), "and a claim has met it there");
    world.inbox.mark_dead(SOURCE, "m", None).await.unwrap();
    // The worker does not know yet: until his claim would have lapsed he may be at it.
    for (content, expected) in [("second", ReceivedOutcome::Revived), ("third", ReceivedOutcome::Replaced)] {
        let again = Incoming::new(SOURCE, "m", Message::new(TOPIC, content).ordering_key("k"));
        assert_eq!(world.inbox.enqueue(again).await.unwrap().outcome, expected);
        assert_eq!(payloads(&world).await, Vec::<String>::new(), "neither it nor what was behind it");
    }
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.state, entry.attempts), (EntryState::Processing, 0));
    assert_eq!(entry.locked_until, Some(claimed[0].locked_until), "as long as that claim");
    let begun = world.inbox.begin(SOURCE, "m").await.unwrap();
    assert!(matches!(begun, Begin::Busy { .. }), "{begun:?}");
    world.advance(LEASE + Duration::from_secs(1)).await;
    let owner = OwnerToken::new();
    for payload in ["behind it", "third"] {
        let claimed = claim(&world, owner).await;
        let told: Vec<&str> = claimed.iter().map(|item| item.payload.as_str()).collect();
        assert_eq!(told, [payload], "one at a time, in order, and nothing waits for what is gone");
        world.inbox.ack(owner, &[claimed[0].handle]).await.unwrap();
    }
    assert_eq!(world.entry(SOURCE, "m").await.state, EntryState::Done);
}

async fn r15_duplicates_do_not_wear_a_failing_message_out(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    receive(&world, "m", "").await;
    let owner = OwnerToken::new();
    let claimed = claim(&world, owner).await.remove(0);
    world.inbox.abandon(owner, &[claimed.handle], Some(LEASE), Some("down".to_owned())).await.unwrap();
    for _ in 0..20 {
        assert_eq!(receive(&world, "m", "").await.outcome, ReceivedOutcome::Replaced);
        assert_eq!(
            payloads(&world).await,
            Vec::<String>::new(),
            "it waits for its next attempt all the same"
        );
    }
    assert_eq!(world.entry(SOURCE, "m").await.attempts, 1);
    world.advance(LEASE).await;
    assert_eq!(claim(&world, owner).await[0].attempt, 2);
}

async fn r15_a_different_content_warns_and_is_counted(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (logs, meter) = (Logs::capture(), Meter::new());
    let _counting = meter.install();
    receive(&world, "m", "first").await;
    receive(&world, "m", "first").await;
    receive(&world, "m", "second").await;
    let given = incoming("m", "third").hash(ContentHash::of("second"));
    assert!(!world.inbox.enqueue(given).await.unwrap().hash_mismatch, "the hash that is given counts");
    assert_eq!(logs.find(Level::WARN, "another content").len(), 1);
    let received = logs.find(Level::INFO, "received");
    assert_eq!(received.len(), 4);
    let line = received[0].to_string();
    assert!(line.contains(TOPIC) && line.contains(SOURCE), "{line}");
    let counted = meter.read();
    assert_eq!(counted["mainstay_inbox_hash_mismatches_total source=shop"], 1);
    assert_eq!(counted["mainstay_inbox_duplicates_total source=shop"], 3);
    assert_eq!(counted["mainstay_inbox_received_total source=shop outcome=added"], 1);
    assert_eq!(counted["mainstay_inbox_received_total source=shop outcome=replaced"], 3);
}
