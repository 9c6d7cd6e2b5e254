//! Texts of every kind, wherever a text is taken.

use mainstay_core::outbox::{Message, MessageFilter, OnFailure, Page};
use mainstay_core::queue::ClaimRequest;
use mainstay_core::store::Names;
use mainstay_core::{ErrorKind, OwnerToken};

use crate::case::cases;
use crate::fixture::{Fixture, Lacking};
use crate::world::{LEASE, TOPIC, World};

cases! { $ input_cases:
    mst_021_any_unicode_round_trips_everywhere ["MST-021"],
    mst_021_a_nul_in_a_payload_is_stored_or_clearly_refused ["MST-021"],
    mst_021_a_nul_in_a_name_is_refused_before_anything_is_written ["MST-021"],
    mst_022_hostile_texts_never_change_a_statement ["MST-022"],
    mst_022_hostile_schema_and_table_names_work ["MST-022", "R28"],
}

/// What breaks naive SQL, naive quoting, naive JSON and naive Unicode.
pub(super) const HOSTILE: [&str; 14] = [
    "'; drop table outbox; --",
    "\"; drop schema infra cascade; --",
    "' or '1'='1",
    "$mainstay$; select 1; $mainstay$",
    "\\'; \\\\",
    "{{schema}} {{outbox:literal}}",
    "{a,b,\"c\"}",
    "NULL",
    "%s %d ? $1 :name @name",
    "\u{1F680}\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}",
    "עברית \u{202E}txet\u{202C} 漢字 ﷽",
    "e\u{301} vs é",
    " leading and trailing \t\r\n",
    "\u{1}\u{7f}\u{80}\u{feff}\u{ffff}\u{10ffff}",
];

pub(super) async fn mst_021_any_unicode_round_trips_everywhere(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let owner = OwnerToken::new();
    for text in HOSTILE {
        let message = Message::new(text, text)
            .correlation(text)
            .idempotency_key(text)
            .ordering_key(text)
            .header(text, text);
        let id = world.enqueue(message).await;
        let row = world.row(id).await;
        assert_eq!((row.topic.as_str(), row.payload.as_deref()), (text, Some(text)));
        assert_eq!(row.correlation_id.as_deref(), Some(text));
        assert_eq!(row.idempotency_key.as_deref(), Some(text));
        assert_eq!(row.ordering_key.as_deref(), Some(text));
        assert_eq!(row.headers.get(text).map(String::as_str), Some(text));
        let claimed = world.claim_one(owner).await;
        assert_eq!((claimed.topic.as_str(), claimed.payload.as_str()), (text, text));
        assert_eq!(claimed.correlation_id.as_deref(), Some(text));
        assert_eq!(claimed.ordering_key.as_deref(), Some(text));
        assert_eq!(claimed.headers.get(text).map(String::as_str), Some(text));
        world.outbox.fail(owner, &[claimed.handle], Some(text.to_owned())).await.unwrap();
        assert_eq!(world.row(id).await.last_error.as_deref(), Some(text));
    }
    // A lone surrogate can't be in a Rust text, and every other character is covered by its range.
    let every: String = (1..=0x10_FFFF).step_by(97).filter_map(char::from_u32).collect();
    let id = world.enqueue(Message::new(TOPIC, every.clone())).await;
    assert!(world.row(id).await.payload == Some(every));
}

pub(super) async fn mst_021_a_nul_in_a_payload_is_stored_or_clearly_refused(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let message = || Message::new(TOPIC, "before\0after");
    if world.provider.capabilities().nul_in_payload {
        let id = world.enqueue(message()).await;
        assert_eq!(world.row(id).await.payload.as_deref(), Some("before\0after"));
        let claimed = world.claim_one(OwnerToken::new()).await;
        assert_eq!(claimed.payload, "before\0after");
        return;
    }
    let error = world.enqueue_error(message()).await;
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("payload")));
    assert!(error.message().contains("NUL") && error.message().contains('6'), "what and where: {error}");
    let many = vec![Message::new(TOPIC, "fine"), message()];
    let error = world.outbox.enqueue_many(many).await.unwrap_err();
    assert_eq!(error.field(), Some("payload"));
    assert_eq!(world.total().await, 0, "nothing was written");
}

pub(super) async fn mst_021_a_nul_in_a_name_is_refused_before_anything_is_written(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fine = || Message::new(TOPIC, "");
    let bad = [
        (Message::new("a\0b", ""), "topic"),
        (fine().correlation("a\0b"), "correlation_id"),
        (fine().idempotency_key("a\0b"), "idempotency_key"),
        (fine().ordering_key("a\0b"), "ordering_key"),
        (fine().header("a\0b", ""), "headers (a name)"),
        (fine().header("a", "a\0b"), "headers (a value)"),
    ];
    for (message, field) in bad {
        let error = world.enqueue_error(message).await;
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)));
    }
    assert_eq!(world.total().await, 0);
}

pub(super) async fn mst_022_hostile_texts_never_change_a_statement(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let bystander = world.enqueue(Message::new("bystander", "kept").due_in(LEASE * 100)).await;
    let owner = OwnerToken::new();
    for text in HOSTILE {
        let held = Message::new(text, "").ordering_key(text).on_failure(OnFailure::Hold);
        let id = world.enqueue(held.correlation(text)).await;
        let request = ClaimRequest::new(owner).only_topics(vec![text.to_owned()]);
        let claimed = world.claim_batch(&request).await.items;
        assert_eq!(claimed.iter().map(|item| item.id()).collect::<Vec<_>>(), [id]);
        let outbox = &world.outbox;
        outbox.fail(owner, &[claimed[0].handle], Some(text.to_owned())).await.unwrap();
        let filter = MessageFilter::all().topic(text).correlation_id(text);
        let listed = outbox.list(&filter, Page::default()).await.unwrap();
        assert_eq!(listed.iter().map(|row| row.id).collect::<Vec<_>>(), [id]);
        assert_eq!(outbox.requeue_where(&filter, 10).await.unwrap(), [id]);
        let request = ClaimRequest::new(owner).except_topics(vec![text.to_owned()]);
        assert!(world.claim_batch(&request).await.items.is_empty());
        let claim = [world.claim_one(owner).await.handle];
        outbox.fail(owner, &claim, None).await.unwrap();
        assert!(outbox.release_key(text).await.unwrap());
        let topics = outbox.stats().await.unwrap().topics;
        assert!(topics.iter().any(|topic| topic.topic == text && topic.failed == 1));
    }
    assert_eq!(world.row(bystander).await.payload.as_deref(), Some("kept"));
    assert_eq!(world.total().await, 1 + HOSTILE.len() as u64);
}

pub(super) async fn mst_022_hostile_schema_and_table_names_work(fx: &dyn Fixture) -> Result<(), Lacking> {
    fx.takes_any_name().await?;
    let reference = World::open(fx).await;
    let kept = reference.enqueue(Message::new(TOPIC, "kept")).await;
    let pairs = [
        ("a\"; drop schema infra; --", "o'x\"; --"),
        ("\u{1F680} sch ema", "select"),
        ("CamelCase", "Out.Box"),
        ("user", "ta%s`ble[]"),
    ];
    for (schema, table) in pairs {
        let names = Names::default().with_schema(schema).unwrap().with_outbox(table).unwrap();
        let world = World::named(fx, names).await;
        let owner = OwnerToken::new();
        let keyed =
            || Message::new(TOPIC, "x").idempotency_key("k").ordering_key("o").on_failure(OnFailure::Hold);
        let id = world.enqueue(keyed()).await;
        assert!(!world.outbox.enqueue(keyed()).await.unwrap().added);
        let claimed = world.claim_one(owner).await;
        assert_eq!(claimed.id(), id);
        assert_eq!(world.outbox.renew(owner, &[claimed.handle], LEASE).await.unwrap().changed, [id]);
        assert_eq!(world.outbox.fail(owner, &[claimed.handle], None).await.unwrap().changed, [id]);
        assert!(world.outbox.release_key("o").await.unwrap());
        assert_eq!(world.outbox.requeue(&[id]).await.unwrap(), [id]);
        world.claim_one(owner).await;
        world.advance(LEASE * 2).await;
        assert_eq!(world.outbox.reap_expired().await.unwrap(), 1);
        assert_eq!(world.outbox.cancel(&[id]).await.unwrap(), [id]);
        let retention = mainstay_core::outbox::Retention::default().failed(Some(LEASE));
        world.advance(LEASE * 2).await;
        assert_eq!(world.outbox.purge(&retention).await.unwrap(), 1);
    }
    assert_eq!(reference.row(kept).await.payload.as_deref(), Some("kept"));
    Ok(())
}
