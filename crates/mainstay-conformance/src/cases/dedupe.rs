//! The inbox's ledger: what is known of a message, and marking it by hand.

use std::time::Duration;

use futures_util::future::join_all;
use mainstay_core::inbox::{ContentHash, EntryState, InboxFilter, InboxPage, Incoming, Seen};
use mainstay_core::outbox::Message;
use mainstay_core::{ErrorKind, OwnerToken};
use tracing::Level;

use crate::case::{Verdict, cases};
use crate::fixture::Fixture;
use crate::probe::{Logs, Meter};
use crate::world::{GRAIN, LEASE, TOPIC, World};

cases! { $ dedupe_cases:
    ibx_001_the_key_is_source_and_message_id ["IBX-001", "R13"],
    ibx_001_long_and_odd_keys_are_told_apart ["IBX-001", "R13", "MST-021", "MST-022"],
    ibx_002_only_a_done_message_is_processed ["IBX-002", "R14"],
    ibx_003_a_done_message_is_processed ["IBX-003"],
    ibx_004_an_unknown_message_is_noted_as_seen ["IBX-004"],
    ibx_005_a_known_message_is_seen_again ["IBX-005", "IBX-026"],
    ibx_006_many_callers_at_once_make_one_entry ["IBX-006"],
    ibx_007_a_given_hash_is_stored ["IBX-007", "IBX-130"],
    ibx_008_a_different_hash_warns_and_does_not_fail ["IBX-008", "R15"],
    ibx_009_rejects_an_empty_message_id ["IBX-009", "IBX-010", "PRIM-INBOX-001"],
    ibx_011_rejects_an_empty_source ["IBX-011", "IBX-012", "PRIM-INBOX-001"],
    ibx_009_the_functions_refuse_the_same ["IBX-009", "IBX-010", "IBX-011", "IBX-012", "PRIM-INBOX-001"],
    prim_inbox_002_marking_as_processing_moves_the_state ["PRIM-INBOX-002"],
    prim_inbox_003_marking_as_processed_moves_the_state ["PRIM-INBOX-003"],
    prim_inbox_004_marking_as_dead_moves_the_state ["PRIM-INBOX-004"],
    r15_asking_spends_no_attempts ["R15"],
    r15_what_was_only_seen_is_never_claimed ["R15"],
    r14_done_stays_done ["R14"],
    r16_the_ledger_can_be_listed ["R16"],
    ibx_117_the_table_its_indexes_and_functions_exist ["IBX-117"],
}

const SOURCE: &str = "orders";

async fn ask(world: &World<'_>, source: &str, id: &str) -> Seen {
    world.inbox.already_processed(source, id, None).await.unwrap()
}

async fn ibx_001_the_key_is_source_and_message_id(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.inbox.mark_processed("orders", "7").await.unwrap();
    assert!(ask(&world, "orders", "7").await.processed);
    for (source, id) in
        [("billing", "7"), ("orders", "8"), ("Orders", "7"), ("order", "s7"), ("orders7", "7")]
    {
        assert!(!ask(&world, source, id).await.processed, "{source}/{id} is another message");
    }
    assert_eq!(world.inbox.stats().await.unwrap().ledger.seen, 5);
}

async fn ibx_001_long_and_odd_keys_are_told_apart(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let source = "🦀".repeat(255);
    let long = |end: &str| format!("{}{end}", "é𝕊".repeat(255));
    let mut ids = vec![long("a"), long("b"), long("🦀🦀")];
    let odd = [
        r"\",
        r"\\",
        r"\x41",
        "A",
        r"\101",
        "'; drop table infra.inbox_entry; --",
        "a/b",
        "\"",
        "{}",
        " a",
        "a",
    ];
    ids.extend(odd.map(str::to_owned));
    for id in &ids {
        assert!(!ask(&world, &source, id).await.processed);
        world.inbox.mark_processed(&source, id).await.unwrap();
    }
    for id in &ids {
        assert!(ask(&world, &source, id).await.processed, "{id:?}");
        assert_eq!(world.entry(&source, id).await.key.message_id(), id);
    }
    assert_eq!(world.inbox.stats().await.unwrap().ledger.done, ids.len() as u64);
    for (number, id) in ids.iter().enumerate() {
        let incoming = Incoming::new("again", id, Message::new(TOPIC, number.to_string()));
        world.inbox.enqueue(incoming).await.unwrap();
    }
    let mut claimed =
        world.inbox.claim(&mainstay_core::queue::ClaimRequest::new(OwnerToken::new())).await.unwrap().items;
    claimed.sort_by_key(|item| item.payload.parse::<usize>().unwrap());
    let told: Vec<_> = claimed.iter().map(|item| &item.headers["mainstay-message-id"]).collect();
    assert_eq!(told, ids.iter().collect::<Vec<_>>());
}

async fn ibx_002_only_a_done_message_is_processed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    assert!(!ask(&world, SOURCE, "m").await.processed, "seen");
    assert!(world.inbox.mark_processing(SOURCE, "m", LEASE).await.unwrap());
    assert!(!ask(&world, SOURCE, "m").await.processed, "in flight is not processed");
    world.advance(LEASE * 2).await;
    assert!(!ask(&world, SOURCE, "m").await.processed, "nor is what lapsed");
    assert!(world.inbox.mark_dead(SOURCE, "m", None).await.unwrap());
    assert!(!ask(&world, SOURCE, "m").await.processed, "nor what was given up");
    assert!(world.inbox.mark_processed(SOURCE, "m").await.unwrap());
    assert!(ask(&world, SOURCE, "m").await.processed);
}

async fn ibx_003_a_done_message_is_processed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    ask(&world, SOURCE, "m").await;
    world.inbox.mark_processed(SOURCE, "m").await.unwrap();
    for _ in 0..3 {
        assert_eq!(ask(&world, SOURCE, "m").await, Seen { processed: true, hash_mismatch: false });
    }
    let second = mainstay_core::inbox::Inbox::new(fx.second().await.as_ref());
    assert!(second.already_processed(SOURCE, "m", None).await.unwrap().processed, "for everybody");
}

async fn ibx_004_an_unknown_message_is_noted_as_seen(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    assert!(world.inbox.get(SOURCE, "m").await.unwrap().is_none());
    let before = world.now().await;
    assert_eq!(ask(&world, SOURCE, "m").await, Seen { processed: false, hash_mismatch: false });
    let after = world.now().await;
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.state, entry.attempts, entry.generation), (EntryState::Seen, 0, 0));
    assert!(before <= entry.first_seen_at && entry.first_seen_at <= after);
    assert_eq!(entry.first_seen_at, entry.last_seen_at);
    assert_eq!((entry.processed_at, entry.owner, entry.locked_until), (None, None, None));
    assert_eq!((entry.hash, entry.last_error, entry.work_item), (None, None, None));
}

async fn ibx_005_a_known_message_is_seen_again(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    ask(&world, SOURCE, "m").await;
    world.advance(LEASE).await;
    let first = world.entry(SOURCE, "m").await;
    let before = world.now().await;
    assert!(!ask(&world, SOURCE, "m").await.processed);
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!(entry.first_seen_at, first.first_seen_at);
    assert!(entry.last_seen_at >= before, "by the database's clock");
    assert_eq!((entry.state, entry.attempts), (EntryState::Seen, 0));
}

async fn ibx_006_many_callers_at_once_make_one_entry(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = mainstay_core::inbox::Inbox::new(fx.second().await.as_ref());
    let asks = (0..50).map(|n| {
        let inbox = if n % 2 == 0 { &world.inbox } else { &second };
        inbox.already_processed(SOURCE, "m", ContentHash::of("content"))
    });
    for seen in join_all(asks).await {
        assert_eq!(seen.unwrap(), Seen { processed: false, hash_mismatch: false });
    }
    let stats = world.inbox.stats().await.unwrap().ledger;
    assert_eq!((stats.seen, stats.processing, stats.done, stats.dead), (1, 0, 0, 0));
}

async fn ibx_007_a_given_hash_is_stored(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let hash = ContentHash::of(r#"{"order":7}"#);
    world.inbox.already_processed(SOURCE, "with", hash).await.unwrap();
    assert_eq!(world.entry(SOURCE, "with").await.hash, Some(hash));
    // One that came without is known by the first that is given.
    ask(&world, SOURCE, "without").await;
    assert_eq!(world.entry(SOURCE, "without").await.hash, None);
    assert!(!world.inbox.already_processed(SOURCE, "without", hash).await.unwrap().hash_mismatch);
    assert_eq!(world.entry(SOURCE, "without").await.hash, Some(hash));
    let abc = ContentHash::of("abc").to_string();
    assert_eq!(abc, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "SHA-256");
}

async fn ibx_008_a_different_hash_warns_and_does_not_fail(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (logs, meter) = (Logs::capture(), Meter::new());
    let _counting = meter.install();
    let (first, other) = (ContentHash::of("first"), ContentHash::of("other"));
    world.inbox.already_processed(SOURCE, "m", first).await.unwrap();
    assert!(!world.inbox.already_processed(SOURCE, "m", first).await.unwrap().hash_mismatch);
    assert!(!ask(&world, SOURCE, "m").await.hash_mismatch, "nothing to compare with");
    assert_eq!(logs.find(Level::WARN, "another content").len(), 0);
    let seen = world.inbox.already_processed(SOURCE, "m", other).await.unwrap();
    assert_eq!(seen, Seen { processed: false, hash_mismatch: true });
    world.inbox.mark_processed(SOURCE, "m").await.unwrap();
    let seen = world.inbox.already_processed(SOURCE, "m", other).await.unwrap();
    assert_eq!(seen, Seen { processed: true, hash_mismatch: true }, "it is the same message all the same");
    assert_eq!(world.entry(SOURCE, "m").await.hash, Some(first), "the first one counts");
    let warnings = logs.find(Level::WARN, "another content");
    assert_eq!(warnings.len(), 2);
    assert!(warnings[0].to_string().contains(SOURCE), "{}", warnings[0]);
    let counted = meter.read();
    assert_eq!(counted["mainstay_inbox_hash_mismatches_total source=orders"], 2);
    assert_eq!(counted["mainstay_inbox_duplicates_total source=orders"], 1, "the one that was done");
}

/// Every operation with a key refuses this one, and names the field.
async fn assert_refused(world: &World<'_>, source: &str, id: &str, field: &'static str) {
    let inbox = &world.inbox;
    let incoming = Incoming::new(source, id, Message::new(TOPIC, ""));
    let refused = [
        inbox.already_processed(source, id, None).await.map(drop).unwrap_err(),
        inbox.mark_processing(source, id, LEASE).await.map(drop).unwrap_err(),
        inbox.mark_processed(source, id).await.map(drop).unwrap_err(),
        inbox.mark_dead(source, id, None).await.map(drop).unwrap_err(),
        inbox.begin(source, id).await.map(drop).unwrap_err(),
        inbox.enqueue(incoming).await.map(drop).unwrap_err(),
        inbox.get(source, id).await.map(drop).unwrap_err(),
    ];
    for error in refused {
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)), "{error}");
    }
}

async fn ibx_009_rejects_an_empty_message_id(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for id in ["", " ", "\t\n", "a\0b", &"é".repeat(513)] {
        assert_refused(&world, SOURCE, id, "message_id").await;
    }
    ask(&world, SOURCE, &"é".repeat(512)).await;
    assert_eq!(world.inbox.stats().await.unwrap().ledger.seen, 1, "what was refused was not written");
}

async fn ibx_011_rejects_an_empty_source(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for source in ["", "  ", "\r\n", "\0", &"é".repeat(256)] {
        assert_refused(&world, source, "m", "source").await;
    }
    ask(&world, &"é".repeat(255), "m").await;
    assert_eq!(world.inbox.stats().await.unwrap().ledger.seen, 1, "what was refused was not written");
}

async fn ibx_009_the_functions_refuse_the_same(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        return Verdict::NotApplicable("functions");
    }
    let names = mainstay_core::store::Names::default();
    let (long_id, long_source) = ("m".repeat(513), "s".repeat(256));
    let owner = OwnerToken::new().to_string();
    let cases = [
        (None, Some("m"), "source"),
        (Some(""), Some("m"), "source"),
        (Some(" \t"), Some("m"), "source"),
        (Some(long_source.as_str()), Some("m"), "source"),
        (Some("s"), None, "message_id"),
        (Some("s"), Some(" "), "message_id"),
        (Some("s"), Some(long_id.as_str()), "message_id"),
    ];
    for (source, id, named) in cases {
        for function in
            ["inbox_already_processed", "inbox_mark_processing", "inbox_mark_processed", "inbox_mark_dead"]
        {
            let error = fx.call(&names, function, &[source, id]).await.expect_err(named);
            assert!(error.contains(named), "{function} should name {named}: {error}");
        }
        let error = fx.call(&names, "inbox_begin", &[source, id, Some(&owner)]).await.expect_err(named);
        assert!(error.contains(named), "{error}");
        let error =
            fx.call(&names, "inbox_enqueue", &[source, id, Some("t"), Some("")]).await.expect_err(named);
        assert!(error.contains(named), "{error}");
    }
    let short = fx.call(&names, "inbox_already_processed", &[Some("s"), Some("m"), Some("\\x00")]).await;
    assert!(short.unwrap_err().contains("hash"), "a hash is 32 bytes");
    assert_eq!(world.inbox.stats().await.unwrap().ledger.seen, 0);
    Verdict::Passed
}

async fn prim_inbox_002_marking_as_processing_moves_the_state(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    ask(&world, SOURCE, "m").await;
    let before = world.now().await;
    assert!(world.inbox.mark_processing(SOURCE, "m", LEASE).await.unwrap());
    let after = world.now().await;
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.state, entry.attempts), (EntryState::Processing, 1));
    let until = entry.locked_until.unwrap();
    assert!(before + LEASE <= until && until <= after + LEASE + GRAIN, "by the database's clock");
    // Again, as somebody does who tries once more: another attempt.
    assert!(world.inbox.mark_processing(SOURCE, "m", LEASE).await.unwrap());
    assert_eq!(world.entry(SOURCE, "m").await.attempts, 2);
    // One that nobody asked about before.
    assert!(world.inbox.mark_processing(SOURCE, "new", LEASE).await.unwrap());
    assert_eq!(world.entry(SOURCE, "new").await.state, EntryState::Processing);
    for lease in [Duration::ZERO, Duration::from_secs(25 * 3_600)] {
        let error = world.inbox.mark_processing(SOURCE, "m", lease).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("lease")));
    }
}

async fn prim_inbox_003_marking_as_processed_moves_the_state(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.inbox.mark_processing(SOURCE, "m", LEASE).await.unwrap();
    let before = world.now().await;
    assert!(world.inbox.mark_processed(SOURCE, "m").await.unwrap());
    let after = world.now().await;
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.state, entry.owner, entry.locked_until), (EntryState::Done, None, None));
    let when = entry.processed_at.unwrap();
    assert!(before <= when && when <= after);
    assert!(!world.inbox.mark_processed(SOURCE, "m").await.unwrap(), "once");
    assert_eq!(world.entry(SOURCE, "m").await.processed_at, Some(when));
    assert!(world.inbox.mark_processed(SOURCE, "new").await.unwrap(), "also one that is not known");
    assert!(ask(&world, SOURCE, "new").await.processed);
}

async fn prim_inbox_004_marking_as_dead_moves_the_state(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.inbox.mark_processing(SOURCE, "m", LEASE).await.unwrap();
    assert!(world.inbox.mark_dead(SOURCE, "m", Some("no such order".to_owned())).await.unwrap());
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!((entry.state, entry.last_error.as_deref()), (EntryState::Dead, Some("no such order")));
    assert_eq!((entry.owner, entry.locked_until), (None, None));
    assert!(entry.processed_at.is_some());
    assert!(!world.inbox.mark_dead(SOURCE, "m", None).await.unwrap(), "once");
    assert_eq!(
        world.entry(SOURCE, "m").await.last_error.as_deref(),
        Some("no such order"),
        "the last real error is kept"
    );
    assert!(!world.inbox.mark_processing(SOURCE, "m", LEASE).await.unwrap(), "dead until it is revived");
    assert!(world.inbox.mark_dead(SOURCE, "new", None).await.unwrap(), "also one that is not known");
    assert_eq!(world.inbox.stats().await.unwrap().ledger.dead, 2);
}

async fn r15_asking_spends_no_attempts(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.inbox.mark_processing(SOURCE, "m", LEASE).await.unwrap();
    for _ in 0..20 {
        ask(&world, SOURCE, "m").await;
        assert!(matches!(
            world.inbox.begin(SOURCE, "m").await.unwrap(),
            mainstay_core::inbox::Begin::Busy { .. }
        ));
    }
    assert_eq!(world.entry(SOURCE, "m").await.attempts, 1);
}

async fn r15_what_was_only_seen_is_never_claimed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    ask(&world, SOURCE, "seen").await;
    world.inbox.mark_processing(SOURCE, "processing", LEASE).await.unwrap();
    world.inbox.mark_processed(SOURCE, "done").await.unwrap();
    world.inbox.mark_dead(SOURCE, "dead", None).await.unwrap();
    let _guard = world.inbox.begin(SOURCE, "guarded").await.unwrap().into_new().unwrap();
    for _ in 0..2 {
        let request = mainstay_core::queue::ClaimRequest::new(OwnerToken::new());
        assert!(world.inbox.claim(&request).await.unwrap().items.is_empty());
        assert_eq!(world.inbox.reap_expired().await.unwrap(), 0);
        world.advance(LEASE * 100).await;
    }
    assert_eq!(world.inbox.queue().stats().await.unwrap().open(), 0);
}

async fn r14_done_stays_done(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.inbox.mark_processed(SOURCE, "m").await.unwrap();
    let done = world.entry(SOURCE, "m").await;
    assert!(!world.inbox.mark_processing(SOURCE, "m", LEASE).await.unwrap());
    assert!(!world.inbox.mark_dead(SOURCE, "m", Some("too late".to_owned())).await.unwrap());
    assert!(matches!(world.inbox.begin(SOURCE, "m").await.unwrap(), mainstay_core::inbox::Begin::Done));
    assert_eq!(world.inbox.revive(std::slice::from_ref(&done.key)).await.unwrap(), []);
    let entry = world.entry(SOURCE, "m").await;
    assert_eq!(
        (entry.state, entry.processed_at, entry.last_error),
        (EntryState::Done, done.processed_at, None)
    );
}

async fn r16_the_ledger_can_be_listed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for number in 0..5 {
        ask(&world, "a", &number.to_string()).await;
        world.advance(Duration::from_secs(1)).await;
    }
    world.inbox.mark_dead("b", "dead", Some("why".to_owned())).await.unwrap();
    world.inbox.mark_processed("b", "done").await.unwrap();
    world.inbox.mark_processing("b", "processing", LEASE).await.unwrap();
    let list = async |filter: InboxFilter, page: InboxPage| {
        let entries = world.inbox.list(&filter, &page).await.unwrap();
        entries.into_iter().map(|entry| entry.key.message_id().to_owned()).collect::<Vec<_>>()
    };
    let all = InboxPage::default;
    assert_eq!(list(InboxFilter::all().source("a"), all()).await, ["4", "3", "2", "1", "0"], "newest first");
    assert_eq!(list(InboxFilter::all(), all()).await.len(), 8);
    for (state, id) in
        [(EntryState::Dead, "dead"), (EntryState::Done, "done"), (EntryState::Processing, "processing")]
    {
        assert_eq!(list(InboxFilter::all().state(state), all()).await, [id]);
        assert_eq!(list(InboxFilter::all().state(state).source("a"), all()).await, Vec::<String>::new());
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = InboxPage { limit: 3, after };
        let entries = world.inbox.list(&InboxFilter::all(), &page).await.unwrap();
        after = entries.last().map(|entry| entry.key.clone());
        seen.extend(entries.iter().map(|entry| entry.key.to_string()));
        if entries.len() < 3 {
            break;
        }
    }
    let once: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!((seen.len(), once.len()), (8, 8), "each on one page");
    for limit in [0, 1_001] {
        let page = InboxPage { limit, after: None };
        assert_eq!(world.inbox.list(&InboxFilter::all(), &page).await.unwrap_err().field(), Some("limit"));
    }
}

async fn ibx_117_the_table_its_indexes_and_functions_exist(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let objects = fx.objects(&mainstay_core::store::Names::default()).await;
    for object in [
        "table inbox",
        "table inbox_history",
        "table inbox_entry",
        "view inbox_ledger",
        "index inbox_entry_settled",
    ] {
        assert!(objects.contains(object), "{object} is missing in {objects:?}");
    }
    let functions = [
        "already_processed",
        "mark_processing",
        "mark_processed",
        "mark_dead",
        "begin",
        "guard_complete",
        "guard_fail",
        "guard_release",
        "guard_renew",
        "enqueue",
        "enqueue_many",
        "revive",
        "forget",
        "claim",
        "ack",
        "abandon",
        "fail",
        "reap_expired",
        "renew",
        "release",
    ];
    for verb in functions {
        let there = objects.contains(&fx.object_of(&format!("inbox_{verb}")));
        assert_eq!(there, world.provider.capabilities().functions, "inbox_{verb}");
    }
}
