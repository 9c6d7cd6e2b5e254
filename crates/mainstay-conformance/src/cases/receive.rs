//! Receiving into the inbox's queue, and how ledger and queue keep in step.

use std::time::Duration;

use futures_util::future::join_all;
use mainstay_core::inbox::{
    ContentHash, EntryState, Inbox, InboxFilter, Incoming, Received, ReceivedOutcome,
};
use mainstay_core::outbox::Message;
use mainstay_core::queue::{ClaimRequest, Claimed, Status};
use mainstay_core::store::Names;
use mainstay_core::{ErrorKind, OwnerToken};

use crate::case::{Verdict, cases};
use crate::fixture::{End, Fixture};
use crate::probe::Logs;
use crate::world::{LEASE, TOPIC, World};

cases! { $ receive_cases:
    ibx_013_a_received_message_is_there_for_everybody ["IBX-013"],
    ibx_013_many_messages_are_received_all_or_none ["IBX-013"],
    ibx_013_a_message_received_in_a_transaction_is_there_once_it_commits ["IBX-013"],
    ibx_013_a_message_received_in_a_transaction_goes_when_it_rolls_back ["IBX-013"],
    ibx_014_a_known_message_is_not_added_twice ["IBX-014", "R15"],
    ibx_014_many_callers_at_once_add_one ["IBX-014"],
    ibx_016_rejects_an_empty_source_and_id ["IBX-016", "IBX-017"],
    ibx_018_a_payload_is_required_by_the_database_too ["IBX-018"],
    ibx_025_seen_times_are_the_databases_clock ["IBX-025", "IBX-026"],
    ibx_027_a_new_message_has_no_attempts ["IBX-027"],
    ibx_044_the_ledger_follows_every_end ["IBX-044", "IBX-045", "IBX-060", "IBX-062", "IBX-083"],
    ibx_059_the_last_real_error_is_kept_in_the_ledger ["IBX-059", "IBX-061"],
    r14_a_marked_message_leaves_the_queue ["R14"],
    r14_a_message_marked_while_a_worker_has_it_does_not_come_back ["R14"],
    r16_dead_messages_are_revived ["R16"],
    r16_dead_messages_are_revived_by_filter ["R16"],
    ibx_117_a_message_goes_all_the_way_through_the_functions ["IBX-117", "IBX-123"],
    ibx_128_a_received_payload_is_never_logged ["IBX-128", "R27"],
    mst_021_any_unicode_is_received ["MST-021", "MST-022"],
    r9_a_received_message_keeps_the_rules_of_messages ["R9", "R5"],
}

pub(super) const SOURCE: &str = "shop";

pub(super) fn incoming(id: &str, payload: &str) -> Incoming {
    Incoming::new(SOURCE, id, Message::new(TOPIC, payload))
}

pub(super) async fn receive(world: &World<'_>, id: &str, payload: &str) -> Received {
    world.inbox.enqueue(incoming(id, payload)).await.unwrap()
}

pub(super) async fn claim(world: &World<'_>, owner: OwnerToken) -> Vec<Claimed> {
    world.inbox.claim(&ClaimRequest::new(owner).lease(LEASE)).await.unwrap().items
}

pub(super) async fn payloads(world: &World<'_>) -> Vec<String> {
    claim(world, OwnerToken::new()).await.into_iter().map(|item| item.payload).collect()
}

pub(super) fn outcome(received: Received) -> (ReceivedOutcome, bool) {
    (received.outcome, received.hash_mismatch)
}

async fn ibx_013_a_received_message_is_there_for_everybody(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let received = receive(&world, "m", "payload").await;
    assert_eq!(outcome(received), (ReceivedOutcome::Added, false));
    let second = Inbox::new(fx.second().await.as_ref());
    let entry = second.get(SOURCE, "m").await.unwrap().unwrap();
    assert_eq!((entry.state, entry.work_item), (EntryState::Seen, received.work_item));
    assert_eq!((entry.topic.as_deref(), entry.hash), (Some(TOPIC), Some(ContentHash::of("payload"))));
    let claimed = second.claim(&ClaimRequest::new(OwnerToken::new())).await.unwrap().items.remove(0);
    assert_eq!((Some(claimed.id()), claimed.payload.as_str()), (received.work_item, "payload"));
    assert_eq!(claimed.headers["mainstay-source"], SOURCE);
    assert_eq!(claimed.headers["mainstay-message-id"], "m");
}

async fn ibx_013_many_messages_are_received_all_or_none(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let many = (0..100).map(|n| incoming(&n.to_string(), &n.to_string())).collect();
    let received = world.inbox.enqueue_many(many).await.unwrap();
    assert!(received.iter().all(|one| one.outcome == ReceivedOutcome::Added));
    let order: Vec<_> = claim(&world, OwnerToken::new()).await.into_iter().map(|item| item.payload).collect();
    assert_eq!(order, (0..50).map(|n| n.to_string()).collect::<Vec<_>>(), "in the order they came");
    // The same message twice in one call.
    let twice = vec![incoming("twice", "first"), incoming("twice", "second"), incoming("once", "")];
    let received = world.inbox.enqueue_many(twice).await.unwrap();
    let outcomes: Vec<_> = received.iter().map(|one| one.outcome).collect();
    assert_eq!(outcomes, [ReceivedOutcome::Added, ReceivedOutcome::Replaced, ReceivedOutcome::Added]);
    assert_eq!(received[0].work_item, received[1].work_item);
    // One that can't be is none of them: it has the work item's id of another message.
    let taken = received[2].work_item.unwrap();
    let odd = Incoming::new(SOURCE, "odd", Message::new(TOPIC, "").work_item_id(taken));
    world.inbox.enqueue_many(vec![incoming("fine", ""), odd]).await.unwrap_err();
    assert!(world.inbox.get(SOURCE, "fine").await.unwrap().is_none());
    assert_eq!(world.inbox.enqueue_many(vec![]).await.unwrap(), []);
}

async fn ibx_013_a_message_received_in_a_transaction_is_there_once_it_commits(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let two = vec![incoming("a", "a"), incoming("b", "b")];
    let received = fx.receive(&world.inbox, "noted", two, End::Commit).await.unwrap();
    assert!(received.iter().all(|one| outcome(*one) == (ReceivedOutcome::Added, false)));
    assert_eq!(fx.notes().await, ["noted"]);
    assert_eq!(payloads(&world).await, ["a", "b"]);
    let again =
        fx.receive(&world.inbox, "noted too", vec![incoming("a", "other")], End::Commit).await.unwrap();
    assert_eq!(outcome(again[0]), (ReceivedOutcome::InProgress, true));
    assert_eq!(again[0].work_item, received[0].work_item);
}

async fn ibx_013_a_message_received_in_a_transaction_goes_when_it_rolls_back(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    fx.receive(&world.inbox, "never", vec![incoming("m", "")], End::Rollback).await.unwrap();
    assert_eq!(fx.notes().await, Vec::<String>::new());
    assert!(world.inbox.get(SOURCE, "m").await.unwrap().is_none());
    assert_eq!(world.inbox.queue().stats().await.unwrap().open(), 0);
    assert_eq!(receive(&world, "m", "").await.outcome, ReceivedOutcome::Added);
}

async fn ibx_014_a_known_message_is_not_added_twice(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let first = receive(&world, "m", "payload").await;
    for _ in 0..5 {
        let again = receive(&world, "m", "payload").await;
        assert_eq!(outcome(again), (ReceivedOutcome::Replaced, false));
        assert_eq!(again.work_item, first.work_item);
    }
    assert_eq!(receive(&world, "n", "payload").await.outcome, ReceivedOutcome::Added, "another message");
    assert_eq!(payloads(&world).await.len(), 2);
    // The very same value, sent again by a caller that did not hear the answer.
    let value = incoming("o", "");
    let first = world.inbox.enqueue(value.clone()).await.unwrap();
    let again = world.inbox.enqueue(value).await.unwrap();
    assert_eq!((first.outcome, again.outcome), (ReceivedOutcome::Added, ReceivedOutcome::Replaced));
}

async fn ibx_014_many_callers_at_once_add_one(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = Inbox::new(fx.second().await.as_ref());
    let calls = (0..40).map(|n| {
        let inbox = if n % 2 == 0 { &world.inbox } else { &second };
        inbox.enqueue(incoming("m", "payload"))
    });
    let received: Vec<_> = join_all(calls).await.into_iter().map(|one| one.unwrap()).collect();
    assert_eq!(received.iter().filter(|one| one.outcome == ReceivedOutcome::Added).count(), 1);
    assert!(received.iter().all(|one| one.work_item == received[0].work_item));
    assert_eq!(payloads(&world).await, ["payload"]);
}

async fn ibx_016_rejects_an_empty_source_and_id(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for (source, id, field) in
        [("", "m", "source"), (" ", "m", "source"), (SOURCE, "", "message_id"), (SOURCE, "\t", "message_id")]
    {
        let refused = Incoming::new(source, id, Message::new(TOPIC, ""));
        let error = world.inbox.enqueue(refused.clone()).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)));
        let error = fx.receive(&world.inbox, "note", vec![refused], End::Commit).await.unwrap_err();
        assert_eq!(error.field(), Some(field));
    }
    let long = Incoming::new(SOURCE, "m".repeat(513), Message::new(TOPIC, ""));
    assert_eq!(world.inbox.enqueue(long).await.unwrap_err().field(), Some("message_id"));
    assert_eq!(world.inbox.queue().stats().await.unwrap().open(), 0);
}

async fn ibx_018_a_payload_is_required_by_the_database_too(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    // In Rust a message can't be made without a payload. What is left is that none comes back without one.
    receive(&world, "m", "").await;
    assert_eq!(payloads(&world).await, [""], "empty, and not null");
    if world.provider.capabilities().functions {
        let arguments = [Some(SOURCE), Some("n"), Some(TOPIC), None];
        let error = fx.call(&Names::default(), "inbox_enqueue", &arguments).await.unwrap_err();
        assert!(error.contains("payload"), "the argument is named: {error}");
        assert!(world.inbox.get(SOURCE, "n").await.unwrap().is_none());
    }
}

async fn ibx_025_seen_times_are_the_databases_clock(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let before = world.now().await;
    receive(&world, "m", "").await;
    let after = world.now().await;
    let first = world.entry(SOURCE, "m").await;
    assert!(before <= first.first_seen_at && first.first_seen_at <= after);
    world.advance(LEASE).await;
    let before = world.now().await;
    receive(&world, "m", "").await;
    let entry = world.entry(SOURCE, "m").await;
    assert!(entry.last_seen_at >= before && entry.first_seen_at < before);
}

async fn ibx_027_a_new_message_has_no_attempts(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let item = receive(&world, "m", "").await.work_item.unwrap();
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.attempts, entry.state, entry.processed_at), (0, EntryState::Seen, None));
    let row = world.inbox.queue().get(item).await.unwrap().unwrap();
    assert_eq!((row.status, row.attempts, row.generation), (Status::Ready, 0, 0));
}

async fn ibx_044_the_ledger_follows_every_end(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let ids = ["acked", "failed", "expired", "worn out", "cancelled", "abandoned"];
    let mut items = Vec::new();
    for id in ids {
        let message = Message::new(id, id);
        let message = if id == "expired" { message.expires_in(Duration::from_secs(5)) } else { message };
        items.push(world.inbox.enqueue(Incoming::new(SOURCE, id, message)).await.unwrap().work_item.unwrap());
    }
    let owner = OwnerToken::new();
    let topics = |wanted: &[&str]| wanted.iter().map(|topic| (*topic).to_owned()).collect::<Vec<_>>();
    let request = ClaimRequest::new(owner).only_topics(topics(&["acked", "failed", "worn out", "abandoned"]));
    let claimed = world.inbox.claim(&request).await.unwrap().items;
    let handle = |id: &str| [claimed.iter().find(|item| item.payload == id).unwrap().handle];
    assert_eq!(world.entry(SOURCE, "acked").await.state, EntryState::Processing, "a worker has it");
    assert!(world.entry(SOURCE, "acked").await.locked_until.is_some());
    world.inbox.ack(owner, &handle("acked")).await.unwrap();
    world.inbox.fail(owner, &handle("failed"), Some("no".to_owned())).await.unwrap();
    world.inbox.abandon(owner, &handle("abandoned"), None, Some("later".to_owned())).await.unwrap();
    assert_eq!(world.inbox.queue().cancel(&items[4..5]).await.unwrap(), items[4..5]);
    world.advance(LEASE * 2).await;
    // Claims end what is expired, and what was delivered too often.
    let request = ClaimRequest::new(owner).delivery_limit(1).only_topics(topics(&["expired", "worn out"]));
    assert_eq!(world.inbox.claim(&request).await.unwrap().rejected.len(), 2);
    let expected = [
        ("acked", EntryState::Done, 1, None),
        ("failed", EntryState::Dead, 1, Some("no")),
        ("expired", EntryState::Dead, 0, Some("expired")),
        ("worn out", EntryState::Dead, 1, Some("deliver")),
        ("cancelled", EntryState::Dead, 0, Some("cancelled")),
        ("abandoned", EntryState::Seen, 1, Some("later")),
    ];
    for (id, state, attempts, error) in expected {
        let entry = world.entry(SOURCE, id).await;
        assert_eq!((entry.state, entry.attempts), (state, attempts), "{id}: {entry:?}");
        assert_eq!(entry.processed_at.is_some(), state != EntryState::Seen, "{id}");
        let told = entry.last_error.unwrap_or_default();
        assert!(error.is_none_or(|error| told.contains(error)), "{id}: {told}");
    }
    assert!(world.inbox.already_processed(SOURCE, "acked", None).await.unwrap().processed);
    let stats = world.inbox.stats().await.unwrap().ledger;
    assert_eq!((stats.seen, stats.processing, stats.done, stats.dead), (1, 0, 1, 4));
}

async fn ibx_059_the_last_real_error_is_kept_in_the_ledger(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    receive(&world, "m", "").await;
    let owner = OwnerToken::new();
    for (error, kept) in
        [(Some("first"), "first"), (None, "first"), (Some("second"), "second"), (None, "second")]
    {
        let claimed = claim(&world, owner).await.remove(0);
        world.inbox.abandon(owner, &[claimed.handle], None, error.map(str::to_owned)).await.unwrap();
        assert_eq!(world.entry(SOURCE, "m").await.last_error.as_deref(), Some(kept));
        world.advance(LEASE).await;
    }
    let claimed = claim(&world, owner).await.remove(0);
    world.inbox.fail(owner, &[claimed.handle], None).await.unwrap();
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.state, entry.last_error.as_deref()), (EntryState::Dead, Some("second")));
    world.inbox.revive(std::slice::from_ref(&entry.key)).await.unwrap();
    let claimed = claim(&world, owner).await.remove(0);
    world.inbox.ack(owner, &[claimed.handle]).await.unwrap();
    assert_eq!(world.entry(SOURCE, "m").await.last_error.as_deref(), Some("second"), "also once it is done");
}

async fn r14_a_marked_message_leaves_the_queue(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let done = receive(&world, "done", "").await.work_item.unwrap();
    let dead = receive(&world, "dead", "").await.work_item.unwrap();
    assert!(world.inbox.mark_processed(SOURCE, "done").await.unwrap());
    assert!(world.inbox.mark_dead(SOURCE, "dead", Some("not wanted".to_owned())).await.unwrap());
    assert_eq!(payloads(&world).await, Vec::<String>::new());
    let row = world.inbox.queue().get(done).await.unwrap().unwrap();
    assert_eq!((row.status, row.reason), (Status::Done, None));
    let row = world.inbox.queue().get(dead).await.unwrap().unwrap();
    assert_eq!((row.status, row.last_error.as_deref()), (Status::Failed, Some("not wanted")));
    // Dead, and done after all: then there is nothing to requeue.
    assert!(world.inbox.mark_processed(SOURCE, "dead").await.unwrap());
    assert_eq!(world.inbox.queue().requeue(&[dead, done]).await.unwrap(), []);
    assert_eq!(world.entry(SOURCE, "dead").await.state, EntryState::Done);
    // What stands behind one in an ordering key goes on.
    for id in ["first", "second"] {
        let keyed = Incoming::new(SOURCE, id, Message::new(TOPIC, id).ordering_key("key"));
        world.inbox.enqueue(keyed).await.unwrap();
    }
    world.inbox.mark_processed(SOURCE, "first").await.unwrap();
    assert_eq!(payloads(&world).await, ["second"]);
}

async fn r14_a_message_marked_while_a_worker_has_it_does_not_come_back(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let ids = ["acked", "abandoned", "released", "failed", "vanished"];
    for id in ids {
        receive(&world, id, id).await;
    }
    let owner = OwnerToken::new();
    let claimed = claim(&world, owner).await;
    for id in ids {
        assert!(world.inbox.mark_processed(SOURCE, id).await.unwrap());
    }
    let handle = |id: &str| [claimed.iter().find(|item| item.payload == id).unwrap().handle];
    let inbox = &world.inbox;
    assert_eq!(inbox.ack(owner, &handle("acked")).await.unwrap().changed.len(), 1, "the delivery goes on");
    assert_eq!(
        inbox.abandon(owner, &handle("abandoned"), None, Some("x".to_owned())).await.unwrap().changed.len(),
        1
    );
    assert_eq!(inbox.queue().release(owner, &handle("released"), None).await.unwrap().changed.len(), 1);
    assert_eq!(inbox.fail(owner, &handle("failed"), Some("x".to_owned())).await.unwrap().changed.len(), 1);
    world.advance(LEASE * 2).await;
    assert_eq!(inbox.reap_expired().await.unwrap(), 1);
    world.advance(LEASE * 100).await;
    assert_eq!(payloads(&world).await, Vec::<String>::new());
    for id in ids {
        assert_eq!(world.entry(SOURCE, id).await.state, EntryState::Done, "{id}");
    }
    assert_eq!(inbox.queue().stats().await.unwrap().open(), 0);
}

async fn r16_dead_messages_are_revived(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let item = receive(&world, "queued", "payload").await.work_item.unwrap();
    let owner = OwnerToken::new();
    let claimed = claim(&world, owner).await.remove(0);
    world.inbox.fail(owner, &[claimed.handle], Some("broken".to_owned())).await.unwrap();
    world.inbox.mark_dead(SOURCE, "marked", None).await.unwrap();
    world.inbox.mark_processed(SOURCE, "done").await.unwrap();
    world.inbox.already_processed(SOURCE, "seen", None).await.unwrap();
    let mut keys = Vec::new();
    for id in ["queued", "marked", "done", "seen"] {
        keys.push(world.entry(SOURCE, id).await.key);
    }
    keys.push(mainstay_core::inbox::InboxKey::new(SOURCE, "unknown").unwrap());
    keys.push(keys[0].clone());
    let mut revived = world.inbox.revive(&keys).await.unwrap();
    revived.sort();
    let mut expected = vec![keys[0].clone(), keys[1].clone()];
    expected.sort();
    assert_eq!(revived, expected, "each once");
    for id in ["queued", "marked"] {
        let entry = world.entry(SOURCE, id).await;
        assert_eq!((entry.state, entry.attempts, entry.processed_at), (EntryState::Seen, 0, None), "{id}");
    }
    let claimed = claim(&world, owner).await.remove(0);
    assert_eq!((claimed.id(), claimed.attempt), (item, 1));
    // By the engine's own requeue the ledger follows just so.
    world.inbox.fail(owner, &[claimed.handle], None).await.unwrap();
    assert_eq!(world.entry(SOURCE, "queued").await.state, EntryState::Dead);
    assert_eq!(world.inbox.queue().requeue(&[item]).await.unwrap(), [item]);
    assert_eq!(world.entry(SOURCE, "queued").await.state, EntryState::Seen);
}

async fn r16_dead_messages_are_revived_by_filter(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for source in ["a", "b"] {
        for number in 0..5 {
            world.inbox.mark_dead(source, &number.to_string(), None).await.unwrap();
        }
    }
    let filter = InboxFilter::all().source("a");
    assert_eq!(world.inbox.revive_where(&filter, 2).await.unwrap().len(), 2);
    assert_eq!(world.inbox.revive_where(&filter, 100).await.unwrap().len(), 3);
    assert_eq!(world.inbox.revive_where(&filter, 100).await.unwrap(), []);
    assert_eq!(world.inbox.stats().await.unwrap().ledger.dead, 5);
    assert_eq!(world.inbox.revive_where(&InboxFilter::all(), 0).await.unwrap_err().field(), Some("limit"));
    assert_eq!(world.inbox.revive_where(&InboxFilter::all().state(EntryState::Done), 9).await.unwrap(), []);
    assert_eq!(world.inbox.revive_where(&InboxFilter::all(), 100).await.unwrap().len(), 5);
}

async fn ibx_117_a_message_goes_all_the_way_through_the_functions(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        return Verdict::NotApplicable("functions");
    }
    let names = Names::default();
    let call = async |function: &str, arguments: &[Option<&str>]| {
        fx.call(&names, function, arguments).await.unwrap_or_else(|error| panic!("{function}: {error}"))
    };
    let owner = OwnerToken::new().to_string();
    // Asked about, reserved, renewed and completed.
    assert_eq!(call("inbox_already_processed", &[Some("s"), Some("m")]).await, ["f"]);
    assert_eq!(call("inbox_begin", &[Some("s"), Some("m"), Some(&owner)]).await, ["new"]);
    assert_eq!(
        call("inbox_begin", &[Some("s"), Some("m"), Some(&OwnerToken::new().to_string())]).await,
        ["busy"]
    );
    let held = [Some("s"), Some("m"), Some(owner.as_str()), Some("1")];
    assert_eq!(call("inbox_guard_renew", &held).await.len(), 1);
    assert_eq!(
        call("inbox_guard_complete", &[Some("s"), Some("m"), Some(&owner), Some("2")]).await,
        ["f"],
        "fenced"
    );
    assert_eq!(call("inbox_guard_complete", &held).await, ["t"]);
    assert_eq!(call("inbox_guard_release", &held).await, ["f"]);
    assert_eq!(call("inbox_already_processed", &[Some("s"), Some("m")]).await, ["t"]);
    assert_eq!(call("inbox_begin", &[Some("s"), Some("m"), Some(&owner)]).await, ["done"]);
    // Received, claimed and acked.
    let id = call("inbox_enqueue", &[Some("s"), Some("n"), Some("order.paid"), Some("{}")]).await.remove(0);
    assert_eq!(call("inbox_claim", &[Some(&owner), Some("30"), Some("10")]).await, [id.as_str()]);
    assert_eq!(call("inbox_ack", &[Some(&owner), Some(&format!("{{{id}}}"))]).await, [id.as_str()]);
    assert!(world.inbox.already_processed("s", "n", None).await.unwrap().processed);
    assert_eq!(world.entry("s", "n").await.hash, Some(ContentHash::of("{}")), "of the payload, unless given");
    // Marked and revived.
    assert_eq!(call("inbox_mark_processing", &[Some("s"), Some("o")]).await, ["t"]);
    assert_eq!(call("inbox_mark_dead", &[Some("s"), Some("o"), Some("why")]).await, ["t"]);
    assert_eq!(call("inbox_revive", &[Some("{s}"), Some("{o}")]).await, ["s"]);
    assert_eq!(call("inbox_mark_processed", &[Some("s"), Some("o")]).await, ["t"]);
    assert_eq!(call("inbox_ledger_stats", &[]).await, ["0"]);
    assert_eq!(call("inbox_forget", &[Some("0")]).await, ["3"]);
    for (function, arguments, named) in [
        ("inbox_begin", vec![Some("s"), Some("m"), None], "owner"),
        ("inbox_begin", vec![Some("s"), Some("m"), Some(owner.as_str()), Some("0")], "lease_seconds"),
        (
            "inbox_guard_renew",
            vec![Some("s"), Some("m"), Some(owner.as_str()), Some("1"), Some("0")],
            "lease_seconds",
        ),
        ("inbox_enqueue", vec![Some("s"), Some("m"), Some(""), Some("")], "topic"),
        ("inbox_enqueue_many", vec![Some("{s}"), Some("{m}"), Some("{t,t}"), Some("{p,p}")], "sources"),
        ("inbox_forget", vec![Some("-1")], "done_older_than_seconds"),
    ] {
        if !fx.can_say(function, &arguments) {
            continue;
        }
        let error = fx.call(&names, function, &arguments).await.expect_err(named);
        assert!(error.contains(named), "{function} should name {named}: {error}");
    }
    Verdict::Passed
}

/// Stands in every payload and header below, and must stand nowhere else.
const SECRET: &str = "s3cr3t-p4yl0ad";

async fn ibx_128_a_received_payload_is_never_logged(fx: &dyn Fixture) {
    let logs = Logs::capture();
    let world = World::open(fx).await;
    let secret =
        |id: &str| Incoming::new(SOURCE, id, Message::new(TOPIC, SECRET).header("authorization", SECRET));
    let received = world.inbox.enqueue(secret("a")).await.unwrap();
    world.inbox.enqueue_many(vec![secret("a"), secret("b")]).await.unwrap();
    fx.receive(&world.inbox, "note", vec![secret("c")], End::Commit).await.unwrap();
    let taken = Message::new(TOPIC, SECRET).work_item_id(received.work_item.unwrap());
    let error = world.inbox.enqueue(Incoming::new(SOURCE, "d", taken)).await.unwrap_err();
    let call = world.inbox.store().reception(&[]);
    tracing::error!(%error, debug = ?error, incoming = ?secret("e"), ?call, "as an application would log it");
    let owner = OwnerToken::new();
    let claimed = claim(&world, owner).await;
    world.inbox.fail(owner, &[claimed[0].handle], None).await.unwrap();
    let guard = world.inbox.begin(SOURCE, "guarded").await.unwrap();
    tracing::info!(?guard, entry = ?world.entry(SOURCE, "a").await, "as an application would log them");
    assert!(logs.all().len() > 5, "the capture works");
    assert!(!logs.text().contains(SECRET), "at any level, by any path");
}

async fn mst_021_any_unicode_is_received(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let owner = OwnerToken::new();
    for text in super::input::HOSTILE {
        let message = || Message::new(text, text).correlation(text).ordering_key(text).header(text, text);
        let incoming = || Incoming::new(text, text, message());
        let received = world.inbox.enqueue(incoming()).await.unwrap();
        assert_eq!(received.outcome, ReceivedOutcome::Added, "{text:?}");
        let again = fx.receive(&world.inbox, "note", vec![incoming()], End::Commit).await.unwrap();
        assert_eq!((again[0].outcome, again[0].work_item), (ReceivedOutcome::Replaced, received.work_item));
        let claimed = claim(&world, owner).await.remove(0);
        assert_eq!((claimed.topic.as_str(), claimed.payload.as_str()), (text, text));
        assert_eq!(
            (claimed.correlation_id.as_deref(), claimed.ordering_key.as_deref()),
            (Some(text), Some(text))
        );
        let header = |name: &str| claimed.headers.get(name).map(String::as_str);
        assert_eq!([header(text), header("mainstay-source"), header("mainstay-message-id")], [Some(text); 3]);
        world.inbox.fail(owner, &[claimed.handle], Some(text.to_owned())).await.unwrap();
        let entry = world.entry(text, text).await;
        assert_eq!((entry.state, entry.last_error.as_deref()), (EntryState::Dead, Some(text)));
        assert_eq!((entry.key.source(), entry.topic.as_deref()), (text, Some(text)));
        assert_eq!(world.inbox.revive(std::slice::from_ref(&entry.key)).await.unwrap(), [entry.key]);
        assert!(world.inbox.mark_processed(text, text).await.unwrap());
    }
    assert_eq!(world.inbox.stats().await.unwrap().ledger.done, super::input::HOSTILE.len() as u64);
}

async fn r9_a_received_message_keeps_the_rules_of_messages(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let refused = |message: Message| {
        let inbox = &world.inbox;
        async move { inbox.enqueue(Incoming::new(SOURCE, "m", message)).await.unwrap_err().field().unwrap() }
    };
    assert_eq!(refused(Message::new("", "")).await, "topic");
    assert_eq!(refused(Message::new("t", "").idempotency_key("k")).await, "idempotency_key");
    assert_eq!(refused(Message::new("t", "").header("mainstay-source", "forged")).await, "headers (a name)");
    assert_eq!(refused(Message::new("t", "").priority(10)).await, "priority");
    assert_eq!(refused(Message::new("t", "").ordering_key("")).await, "ordering_key");
    assert!(world.inbox.get(SOURCE, "m").await.unwrap().is_none());
    // And has their options.
    let message = Message::new("t", "p").priority(3).ordering_key("key").expires_in(LEASE).correlation("c");
    let (item, id) = (message.clone().header("h", "v"), mainstay_core::MessageId::new());
    world.inbox.enqueue(Incoming::new(SOURCE, "m", item.message_id(id))).await.unwrap();
    let claimed = claim(&world, OwnerToken::new()).await.remove(0);
    assert_eq!((claimed.priority, claimed.ordering_key.as_deref()), (3, Some("key")));
    assert_eq!((claimed.message_id, claimed.headers["h"].as_str()), (id, "v"));
    assert!(claimed.expires_at.is_some());
    assert_eq!(claimed.correlation_id.as_deref(), Some("c"));
}
