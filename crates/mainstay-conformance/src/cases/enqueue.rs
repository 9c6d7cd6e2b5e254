//! 6.1: what an enqueue stores, refuses and promises.

use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::outbox::{Message, MessageFilter, OnFailure, Page};
use mainstay_core::queue::{ClaimRequest, Status};
use mainstay_core::store::Names;
use mainstay_core::{ErrorKind, MessageId, OwnerToken, WorkItemId};

use crate::case::cases;
use crate::fixture::{End, Fixture};
use crate::world::{TOPIC, World, handles, ids, set};

cases! { $ enqueue_cases:
    obx_001_an_enqueued_message_is_durable ["OBX-001"],
    obx_002_a_standalone_enqueue_commits_by_itself ["OBX-002"],
    obx_002_many_messages_are_enqueued_all_or_none ["OBX-002", "OBX-080"],
    obx_003_an_enqueue_in_a_transaction_is_there_once_it_commits ["OBX-003"],
    obx_003_an_enqueue_in_a_transaction_goes_when_it_rolls_back ["OBX-003"],
    obx_004_rejects_an_empty_topic ["OBX-004", "R9"],
    obx_005_a_payload_is_required_by_the_database_too ["OBX-005"],
    obx_006_accepts_an_empty_payload ["OBX-006", "R9"],
    obx_007_rejects_a_topic_above_255_characters ["OBX-007", "R9"],
    obx_008_an_empty_correlation_id_becomes_null ["OBX-008", "R9"],
    obx_009_rejects_a_correlation_id_above_255_characters ["OBX-009"],
    obx_010_topics_are_case_sensitive ["OBX-010", "R9"],
    obx_011_the_payload_format_is_not_checked ["OBX-011"],
    obx_012_a_future_due_time_is_not_claimable_before ["OBX-012", "OBX-018", "PRIM-OUTBOX-006"],
    obx_013_no_or_a_past_due_time_is_claimable_at_once ["OBX-013"],
    obx_014_each_message_gets_a_unique_id ["OBX-014", "R5"],
    obx_015_created_at_is_the_databases_clock ["OBX-015"],
    obx_016_a_new_message_has_no_retries_and_is_not_processed ["OBX-016", "R1"],
    r5_given_ids_are_kept ["R5"],
    r5_an_id_that_is_taken_is_refused_and_changes_nothing ["R5"],
    r5_the_same_idempotency_key_returns_the_first_ids ["R5"],
    r5_idempotency_holds_within_one_call_and_after_the_message_is_settled ["R5"],
    r5_concurrent_enqueues_with_one_key_add_one_message ["R5"],
    r5_every_option_round_trips ["R5"],
}

pub(super) async fn obx_001_an_enqueued_message_is_durable(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new("order.created", r#"{"order":7}"#)).await;
    // Another instance has connections of its own and sees only what is committed.
    let seen = world.second().await.get(id).await.unwrap().expect("the message is in the database");
    assert_eq!(seen.id, id);
    assert_eq!(seen.topic, "order.created");
    assert_eq!(seen.payload.as_deref(), Some(r#"{"order":7}"#));
    assert_eq!(seen.status, Status::Ready);
    assert_eq!(world.total().await, 1);
}

pub(super) async fn obx_002_a_standalone_enqueue_commits_by_itself(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let ids = world.enqueue_some(3).await;
    let other = world.second().await;
    let listed = other.list(&MessageFilter::all(), Page::default()).await.unwrap();
    let listed: Vec<WorkItemId> = listed.iter().map(|row| row.id).collect();
    assert_eq!(set(&listed), set(&ids));
}

pub(super) async fn obx_002_many_messages_are_enqueued_all_or_none(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let taken = world.enqueue(Message::new(TOPIC, "first")).await;
    let messages = (0..5).map(|number| Message::new(TOPIC, number.to_string()));
    let mut messages: Vec<Message> = messages.collect();
    // The fourth of five breaks the primary key, after three have gone in.
    messages[3] = Message::new(TOPIC, "3").work_item_id(taken);
    world.outbox.enqueue_many(messages).await.expect_err("an id that is taken must be refused");
    assert_eq!(world.total().await, 1, "a refused call must add nothing");

    let messages: Vec<Message> = (0..5).map(|number| Message::new(TOPIC, number.to_string())).collect();
    let enqueued = world.outbox.enqueue_many(messages).await.unwrap();
    assert_eq!(enqueued.len(), 5);
    for (number, enqueued) in enqueued.iter().enumerate() {
        assert!(enqueued.added);
        let row = world.row(enqueued.work_item).await;
        assert_eq!(row.payload, Some(number.to_string()), "results are in the order of the messages");
    }
    assert_eq!(world.total().await, 6);
}

pub(super) async fn obx_003_an_enqueue_in_a_transaction_is_there_once_it_commits(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let messages = vec![Message::new("a", "1"), Message::new("b", "2")];
    let enqueued = fx.transact(&world.outbox, "kept", messages, End::Commit).await.unwrap();
    // The application's own write is the proof that the enqueue did not roll back.
    assert_eq!(fx.notes().await, ["kept"]);
    assert_eq!(enqueued.len(), 2);
    assert_eq!(world.row(enqueued[0].work_item).await.topic, "a");
    assert_eq!(world.row(enqueued[1].work_item).await.topic, "b");
    assert_eq!(world.claim(OwnerToken::new(), 50).await.len(), 2);
}

pub(super) async fn obx_003_an_enqueue_in_a_transaction_goes_when_it_rolls_back(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    fx.transact(&world.outbox, "kept", vec![], End::Commit).await.unwrap();
    let gone = vec![Message::new(TOPIC, "gone").idempotency_key("gone")];
    let enqueued = fx.transact(&world.outbox, "gone", gone, End::Rollback).await.unwrap();
    assert_eq!(fx.notes().await, ["kept"], "had the enqueue committed, the note would be there");
    assert!(world.outbox.get(enqueued[0].work_item).await.unwrap().is_none());
    assert_eq!(world.total().await, 0);
    // Its idempotency key went with it.
    let again = world.outbox.enqueue(Message::new(TOPIC, "new").idempotency_key("gone")).await.unwrap();
    assert!(again.added);
    assert_ne!(again.work_item, enqueued[0].work_item);
}

pub(super) async fn obx_004_rejects_an_empty_topic(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let error = world.enqueue_error(Message::new("", "payload")).await;
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(error.field(), Some("topic"));
    assert!(error.message().contains("1 to 255"), "the bound is named: {error}");
    let many = vec![Message::new(TOPIC, ""), Message::new("", "")];
    let error = world.outbox.enqueue_many(many).await.expect_err("one bad message refuses all");
    assert_eq!(error.field(), Some("topic"));
    let error = fx.transact(&world.outbox, "n", vec![Message::new("", "")], End::Commit).await.unwrap_err();
    assert_eq!(error.field(), Some("topic"));
    assert_eq!(world.total().await, 0, "nothing is written");
}

pub(super) async fn obx_005_a_payload_is_required_by_the_database_too(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    // In Rust a message can't be made without a payload. What is left is that none comes back without one.
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    assert_eq!(world.row(id).await.payload, Some(String::new()), "empty, and not null");
    if world.provider.capabilities().functions {
        let error = fx.call(&Names::default(), "outbox_enqueue", &[Some(TOPIC), None]).await;
        let error = error.expect_err("a null payload must be refused");
        assert!(error.contains("payload"), "the argument is named: {error}");
    }
    assert_eq!(world.total().await, 1);
}

pub(super) async fn obx_006_accepts_an_empty_payload(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    assert_eq!(world.row(id).await.payload, Some(String::new()));
    let claimed = world.claim_one(OwnerToken::new()).await;
    assert_eq!((claimed.id(), claimed.payload.as_str()), (id, ""));
}

pub(super) async fn obx_007_rejects_a_topic_above_255_characters(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    // Characters, not bytes: each of these has four bytes.
    let longest = "\u{1F680}".repeat(255);
    let id = world.enqueue(Message::new(longest.clone(), "")).await;
    assert_eq!(world.row(id).await.topic, longest);
    for topic in ["t".repeat(256), "\u{1F680}".repeat(256)] {
        let error = world.enqueue_error(Message::new(topic, "")).await;
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(error.field(), Some("topic"));
        assert!(error.message().contains("256"), "what was found is named: {error}");
    }
    assert_eq!(world.total().await, 1);
}

pub(super) async fn obx_008_an_empty_correlation_id_becomes_null(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let empty = world.enqueue(Message::new("empty", "").correlation("")).await;
    let none = world.enqueue(Message::new("none", "")).await;
    let some = world.enqueue(Message::new("some", "").correlation("request-1")).await;
    assert_eq!(world.row(empty).await.correlation_id, None);
    assert_eq!(world.row(none).await.correlation_id, None);
    assert_eq!(world.row(some).await.correlation_id.as_deref(), Some("request-1"));
    let filter = MessageFilter::all().correlation_id("request-1");
    let listed = world.outbox.list(&filter, Page::default()).await.unwrap();
    assert_eq!(listed.iter().map(|row| row.id).collect::<Vec<_>>(), [some]);
    let claimed = world.claim(OwnerToken::new(), 50).await;
    for item in claimed {
        let expected = (item.id() == some).then(|| "request-1".to_owned());
        assert_eq!(item.correlation_id, expected);
    }
}

pub(super) async fn obx_009_rejects_a_correlation_id_above_255_characters(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let longest = "ü".repeat(255);
    let id = world.enqueue(Message::new(TOPIC, "").correlation(longest.clone())).await;
    assert_eq!(world.row(id).await.correlation_id, Some(longest));
    let error = world.enqueue_error(Message::new(TOPIC, "").correlation("c".repeat(256))).await;
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(error.field(), Some("correlation_id"));
    assert_eq!(world.total().await, 1);
}

pub(super) async fn obx_010_topics_are_case_sensitive(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let upper = world.enqueue(Message::new("Order.Created", "")).await;
    let lower = world.enqueue(Message::new("order.created", "")).await;
    let filter = MessageFilter::all().topic("order.created");
    let listed = world.outbox.list(&filter, Page::default()).await.unwrap();
    assert_eq!(listed.iter().map(|row| row.id).collect::<Vec<_>>(), [lower]);
    let request = ClaimRequest::new(OwnerToken::new());
    let claimed = world.claim_batch(&request.only_topics(vec!["Order.Created".to_owned()])).await;
    assert_eq!(claimed.items.iter().map(|item| item.id()).collect::<Vec<_>>(), [upper]);
    assert_eq!(claimed.items[0].topic, "Order.Created");
}

pub(super) async fn obx_011_the_payload_format_is_not_checked(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for payload in
        ["{not json", "<xml/>", "'; drop table x; --", "\u{feff}\r\n\t ", "{\"a\":1} trailing", "∅\u{10FFFF}"]
    {
        let id = world.enqueue(Message::new(TOPIC, payload)).await;
        assert_eq!(world.row(id).await.payload.as_deref(), Some(payload));
        let owner = OwnerToken::new();
        let claimed = world.claim_one(owner).await;
        assert_eq!(claimed.payload, payload);
        world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    }
}

pub(super) async fn obx_012_a_future_due_time_is_not_claimable_before(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let now = world.now().await;
    let absolute = world.enqueue(Message::new("absolute", "").due_at(now + Duration::from_secs(600))).await;
    let relative = world.enqueue(Message::new("relative", "").due_in(Duration::from_secs(600))).await;
    world.assert_nothing_due().await;
    assert!(world.row(absolute).await.due_at.is_some() && world.row(relative).await.due_at.is_some());

    world.advance(Duration::from_secs(300)).await;
    world.assert_nothing_due().await;
    world.advance(Duration::from_secs(301)).await;
    let claimed = world.claim(OwnerToken::new(), 50).await;
    assert_eq!(ids(&claimed), set(&[absolute, relative]));
}

pub(super) async fn obx_013_no_or_a_past_due_time_is_claimable_at_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let now = world.now().await;
    let none = world.enqueue(Message::new("none", "")).await;
    let past = world.enqueue(Message::new("past", "").due_at(now - Duration::from_secs(3600))).await;
    let long_past = world.enqueue(Message::new("long past", "").due_at(Timestamp::UNIX_EPOCH)).await;
    let zero = world.enqueue(Message::new("zero", "").due_in(Duration::ZERO)).await;
    let claimed = world.claim(OwnerToken::new(), 50).await;
    assert_eq!(ids(&claimed), set(&[none, past, long_past, zero]));
    assert_eq!(world.row(none).await.due_at, None, "no due time was asked for");
    assert_eq!(world.row(long_past).await.due_at, Some(Timestamp::UNIX_EPOCH));
}

pub(super) async fn obx_014_each_message_gets_a_unique_id(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let messages: Vec<Message> = (0..200).map(|_| Message::new(TOPIC, "same")).collect();
    let mut enqueued = world.outbox.enqueue_many(messages).await.unwrap();
    for _ in 0..20 {
        enqueued.push(world.outbox.enqueue(Message::new(TOPIC, "same")).await.unwrap());
    }
    let items: Vec<WorkItemId> = enqueued.iter().map(|one| one.work_item).collect();
    assert_eq!(set(&items).len(), 220);
    let messages: std::collections::BTreeSet<MessageId> = enqueued.iter().map(|one| one.message).collect();
    assert_eq!(messages.len(), 220);
    for one in &enqueued {
        assert_eq!(one.work_item.as_uuid().get_version_num(), 7);
        assert_eq!(one.message.as_uuid().get_version_num(), 7);
        assert_ne!(one.work_item.as_uuid(), one.message.as_uuid());
    }
    assert_eq!(world.total().await, 220);
}

pub(super) async fn obx_015_created_at_is_the_databases_clock(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let before = world.now().await;
    let id = world.enqueue(Message::new(TOPIC, "").due_in(Duration::from_secs(600))).await;
    let after = world.now().await;
    let row = world.row(id).await;
    assert!(before <= row.created_at && row.created_at <= after, "{before} {} {after}", row.created_at);
    // The due time counts from the same clock.
    let due = row.due_at.unwrap();
    assert_eq!(due, row.next_attempt_at);
    assert!(before + Duration::from_secs(600) <= due && due <= after + Duration::from_secs(600));
}

pub(super) async fn obx_016_a_new_message_has_no_retries_and_is_not_processed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "x")).await;
    let row = world.row(id).await;
    assert_eq!((row.status, row.reason, row.attempts, row.generation), (Status::Ready, None, 0, 0));
    assert_eq!(row.retry_count(), 0);
    assert!(!row.is_processed());
    assert_eq!((row.owner, row.locked_until, row.processed_at, row.processed_by), (None, None, None, None));
    assert_eq!((row.last_error, row.due_at, row.expires_at), (None, None, None));
    assert_eq!(row.next_attempt_at, row.created_at);
}

pub(super) async fn r5_given_ids_are_kept(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (item, message) = (WorkItemId::new(), MessageId::new());
    let given = Message::new(TOPIC, "").work_item_id(item).message_id(message);
    let enqueued = world.outbox.enqueue(given).await.unwrap();
    assert_eq!((enqueued.work_item, enqueued.message, enqueued.added), (item, message, true));
    assert_eq!(world.row(item).await.message_id, message);
    let claimed = world.claim_one(OwnerToken::new()).await;
    assert_eq!((claimed.id(), claimed.message_id), (item, message));
}

pub(super) async fn r5_an_id_that_is_taken_is_refused_and_changes_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new("first", "first")).await;
    let error = world.enqueue_error(Message::new("second", "second").work_item_id(id)).await;
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let row = world.row(id).await;
    assert_eq!((row.topic.as_str(), row.payload.as_deref()), ("first", Some("first")));
    // The connection that met the conflict still serves.
    world.enqueue(Message::new(TOPIC, "")).await;
    assert_eq!(world.total().await, 2);
}

pub(super) async fn r5_the_same_idempotency_key_returns_the_first_ids(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let keyed = |payload: &str| Message::new(TOPIC, payload).idempotency_key("order-7");
    let first = world.outbox.enqueue(keyed("first")).await.unwrap();
    let again = world.outbox.enqueue(keyed("again")).await.unwrap();
    assert!(first.added && !again.added);
    assert_eq!((again.work_item, again.message), (first.work_item, first.message));
    assert_eq!(world.row(first.work_item).await.payload.as_deref(), Some("first"), "the first one stays");
    let other = world.outbox.enqueue(Message::new(TOPIC, "").idempotency_key("ORDER-7")).await.unwrap();
    assert!(other.added, "keys are case-sensitive");
    assert_eq!(world.total().await, 2);
    for (key, bad) in [("empty", String::new()), ("long", "k".repeat(256))] {
        let error = world.enqueue_error(Message::new(TOPIC, "").idempotency_key(bad)).await;
        assert_eq!(error.field(), Some("idempotency_key"), "{key}");
    }
}

pub(super) async fn r5_idempotency_holds_within_one_call_and_after_the_message_is_settled(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let keyed = |payload: &str| Message::new(TOPIC, payload).idempotency_key("k");
    let plain = || Message::new(TOPIC, "plain");
    let enqueued = world.outbox.enqueue_many(vec![plain(), keyed("a"), plain(), keyed("b")]).await.unwrap();
    assert_eq!(enqueued.iter().map(|one| one.added).collect::<Vec<_>>(), [true, true, true, false]);
    assert_eq!(enqueued[3].work_item, enqueued[1].work_item);
    assert_eq!(enqueued[3].message, enqueued[1].message);
    assert_eq!(world.row(enqueued[1].work_item).await.payload.as_deref(), Some("a"));
    assert_eq!(world.total().await, 3);

    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 50).await;
    assert_eq!(claimed.len(), 3);
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    let late = world.outbox.enqueue(keyed("late")).await.unwrap();
    assert!(!late.added, "done is done");
    assert_eq!(late.work_item, enqueued[1].work_item);
    world.assert_nothing_due().await;
}

pub(super) async fn r5_concurrent_enqueues_with_one_key_add_one_message(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = world.second().await;
    let enqueues = (0..16).map(|number: u32| {
        let outbox = if number.is_multiple_of(2) { world.outbox.clone() } else { second.clone() };
        async move { outbox.enqueue(Message::new(TOPIC, "").idempotency_key("race")).await.unwrap() }
    });
    let enqueued = futures_util::future::join_all(enqueues).await;
    assert_eq!(enqueued.iter().filter(|one| one.added).count(), 1, "exactly one adds");
    let winner = enqueued.iter().find(|one| one.added).unwrap();
    for one in &enqueued {
        assert_eq!((one.work_item, one.message), (winner.work_item, winner.message));
    }
    assert_eq!(world.total().await, 1);
}

pub(super) async fn r5_every_option_round_trips(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let now = world.now().await;
    let message = Message::new("order.paid", "payload")
        .correlation("correlation")
        .due_at(now - Duration::from_secs(5))
        .expires_at(now + Duration::from_secs(3600))
        .idempotency_key("idempotency")
        .ordering_key("ordering")
        .on_failure(OnFailure::Hold)
        .priority(-3)
        .header("a", "1")
        .header("ünïcode \"quoted\"", "{\"nested\": \"\u{1F600}\"}")
        .header("empty", "");
    let id = world.enqueue(message).await;
    let row = world.row(id).await;
    assert_eq!(row.correlation_id.as_deref(), Some("correlation"));
    assert_eq!(row.idempotency_key.as_deref(), Some("idempotency"));
    assert_eq!(row.ordering_key.as_deref(), Some("ordering"));
    assert_eq!(row.priority, -3);
    let headers = [("a", "1"), ("empty", ""), ("ünïcode \"quoted\"", "{\"nested\": \"\u{1F600}\"}")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(row.headers, headers.clone().into());
    let claimed = world.claim_one(OwnerToken::new()).await;
    assert_eq!(claimed.topic, "order.paid");
    assert_eq!(claimed.correlation_id.as_deref(), Some("correlation"));
    assert_eq!(claimed.ordering_key.as_deref(), Some("ordering"));
    assert_eq!((claimed.priority, claimed.attempt), (-3, 1));
    assert_eq!(claimed.headers, headers.into());
    assert_eq!((claimed.created_at, claimed.expires_at), (row.created_at, row.expires_at));
    assert_eq!(claimed.due_at, row.next_attempt_at);
}
