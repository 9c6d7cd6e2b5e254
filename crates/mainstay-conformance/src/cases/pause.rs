//! Paused topics: nobody claims their messages until they are resumed, and nothing is lost by it.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::audit::{Actor, Anchor};
use mainstay_core::health::{Explanation, Health, HealthStatus, Probe, Why};
use mainstay_core::inbox::Incoming;
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::{ClaimRequest, FailureReason, Status};
use mainstay_core::store::{Names, WaitRequest, Wake};
use mainstay_core::timer::NewTimer;
use mainstay_core::{ErrorKind, OwnerToken, WorkItemId};
use serde_json::json;

use crate::case::{Verdict, cases};
use crate::fixture::Fixture;
use crate::world::{LEASE, TOPIC, World, handles, snapshot};

use super::administration::{BY, data, only, records};

cases! { $ pause_cases:
    mst_043_nobody_claims_from_a_paused_topic ["MST-043"],
    mst_043_what_runs_when_its_topic_is_paused_goes_on ["MST-043"],
    mst_043_a_paused_topic_keeps_nobody_awake_and_a_resume_wakes ["MST-043"],
    mst_043_a_paused_message_keeps_its_place_in_its_ordering_key ["MST-043", "MST-040"],
    mst_043_paused_messages_are_found_again_behind_all_that_was_settled ["MST-043"],
    mst_043_what_expires_while_paused_fails_after_the_resume ["MST-043", "MST-042"],
    mst_043_a_claim_that_is_filled_looks_past_what_is_paused ["MST-043", "MST-041"],
    mst_043_a_timer_of_a_paused_topic_becomes_a_message_that_waits ["MST-043", "R17"],
    mst_043_the_topics_of_outbox_and_inbox_are_paused_apart ["MST-043"],
    mst_043_who_pauses_and_resumes_is_recorded ["MST-043", "R30"],
    mst_043_one_of_many_who_pause_at_once_does_it ["MST-043"],
    mst_043_names_and_reasons_are_checked_and_kept_as_they_are ["MST-043", "MST-022"],
    mst_043_a_paused_message_says_why_and_troubles_no_health ["MST-043", "R25"],
    mst_043_what_is_paused_is_not_late ["MST-043", "R26"],
    mst_043_other_languages_pause_and_obey ["MST-043"],
}

/// Much longer than any of the waits below take.
const LONG: Duration = Duration::from_secs(120);

async fn enqueued(outbox: &Outbox, topic: &str) -> WorkItemId {
    outbox.enqueue(Message::new(topic, "")).await.unwrap().work_item
}

/// The topics of what can be claimed now, which is claimed and acked.
async fn drained(outbox: &Outbox) -> Vec<String> {
    let owner = OwnerToken::new();
    let claimed = outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    assert_eq!(claimed.rejected, []);
    outbox.ack(owner, &handles(&claimed.items)).await.unwrap();
    claimed.items.into_iter().map(|item| item.topic).collect()
}

pub(super) async fn mst_043_nobody_claims_from_a_paused_topic(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = world.second().await;
    let (outbox, before) = (world.outbox.by(BY), world.now().await);
    let first = enqueued(&world.outbox, "mail").await;
    assert!(outbox.pause("mail", Some("the provider is down")).await.unwrap());
    assert!(!second.pause("mail", None).await.unwrap(), "it is paused already");
    let paused = second.paused().await.unwrap();
    assert_eq!(paused.len(), 1);
    assert_eq!((paused[0].topic.as_str(), paused[0].by.as_str()), ("mail", BY));
    assert_eq!(paused[0].reason.as_deref(), Some("the provider is down"));
    assert!(before <= paused[0].since && paused[0].since <= world.now().await, "{paused:?}");
    // Enqueueing goes on, and so does everything else.
    let later = enqueued(&second, "mail").await;
    enqueued(&second, "Mail").await;
    let rows = [snapshot(&world.row(first).await), snapshot(&world.row(later).await)];
    assert_eq!(drained(&world.outbox).await, ["Mail"]);
    assert_eq!(drained(&second).await.len(), 0);
    for request in [
        ClaimRequest::new(OwnerToken::new()).only_topics(vec!["mail".to_owned()]),
        ClaimRequest::new(OwnerToken::new()).except_topics(vec!["other".to_owned()]),
        ClaimRequest::new(OwnerToken::new()).batch(1),
    ] {
        assert!(world.claim_batch(&request).await.items.is_empty());
    }
    assert_eq!([snapshot(&world.row(first).await), snapshot(&world.row(later).await)], rows);
    assert!(second.resume("mail").await.unwrap());
    assert!(!outbox.resume("mail").await.unwrap(), "once");
    assert_eq!(world.outbox.paused().await.unwrap(), []);
    let claimed = world.claim(OwnerToken::new(), 10).await;
    assert_eq!(claimed.iter().map(|item| item.id()).collect::<Vec<_>>(), [first, later], "in their order");
    assert!(claimed.iter().all(|item| item.attempt == 1));
}

pub(super) async fn mst_043_what_runs_when_its_topic_is_paused_goes_on(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let owner = OwnerToken::new();
    let ids = world.enqueue_some(3).await;
    let claimed = world.claim(owner, 3).await;
    assert!(world.outbox.pause(TOPIC, None).await.unwrap());
    let one = |at: usize| std::slice::from_ref(&claimed[at].handle);
    assert_eq!(world.outbox.renew(owner, one(0), LEASE).await.unwrap().changed, [ids[0]]);
    assert_eq!(world.outbox.ack(owner, one(0)).await.unwrap().changed, [ids[0]]);
    let soon = Some(Duration::from_millis(1));
    assert_eq!(world.outbox.abandon(owner, one(1), soon, None).await.unwrap().changed, [ids[1]]);
    // What nobody finished is taken over after the resume, and not before.
    world.advance(LEASE * 2).await;
    world.assert_nothing_due().await;
    assert_eq!(world.row(ids[2]).await.attempts, 1);
    world.outbox.resume(TOPIC).await.unwrap();
    let mut again = world.claim(OwnerToken::new(), 3).await;
    again.sort_by_key(|item| item.id());
    assert_eq!(
        again.iter().map(|item| (item.id(), item.attempt)).collect::<Vec<_>>(),
        [(ids[1], 2), (ids[2], 2)]
    );
    assert_eq!(world.outbox.ack(owner, one(2)).await.unwrap().stale, [ids[2]]);
}

/// Waits shortly, over and over while that ends for nothing: a wake-up too many is allowed, a stream of them is not.
async fn sleeps(world: &World<'_>) -> bool {
    let request = WaitRequest::new(OwnerToken::new()).timeout(Duration::from_millis(50));
    for _ in 0..20 {
        if world.outbox.store().wait(&request).await.unwrap() == Wake::TimedOut {
            return true;
        }
    }
    false
}

pub(super) async fn mst_043_a_paused_topic_keeps_nobody_awake_and_a_resume_wakes(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue(Message::new(TOPIC, "")).await;
    world.claim_one(OwnerToken::new()).await;
    world.advance(LEASE * 2).await;
    world.enqueue(Message::new(TOPIC, "")).await;
    world.enqueue(Message::new(TOPIC, "").priority(7)).await;
    assert!(!sleeps(&world).await, "there is work");
    world.outbox.pause(TOPIC, None).await.unwrap();
    assert!(sleeps(&world).await, "what is paused ends no wait");
    let agenda = world.provider.agenda().await.unwrap();
    assert_eq!((agenda.outbox, agenda.inbox), (None, None), "nor does it wake a database that rests");

    let second = world.second().await;
    let hears = fx.hears_of_enqueues();
    let timeout = if hears { LONG } else { Duration::from_secs(1) };
    let store = Arc::clone(world.outbox.store());
    let mut waiting = tokio::spawn(async move {
        let request = WaitRequest::new(OwnerToken::new()).timeout(timeout);
        loop {
            match store.wait(&request).await.unwrap() {
                // Claims again after a while, and finds nothing yet.
                Wake::Flow => {}
                woken => return woken,
            }
        }
    });
    if hears {
        // It sleeps by now, and looks no more by itself: the resume has to wake it.
        let slept = tokio::time::timeout(Duration::from_secs(1), &mut waiting).await;
        assert!(slept.is_err(), "what is paused ended a wait: {slept:?}");
    }
    second.resume(TOPIC).await.unwrap();
    let woken = waiting.await.unwrap();
    assert!(!hears || woken != Wake::TimedOut, "it slept through");
    assert_eq!(world.claim(OwnerToken::new(), 10).await.len(), 3);
}

pub(super) async fn mst_043_what_is_paused_is_not_late(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue(Message::new("mail", "")).await;
    world.advance(Duration::from_secs(600)).await;
    world.enqueue(Message::new(TOPIC, "")).await;
    let oldest = async || world.outbox.stats().await.unwrap().oldest_ready;
    assert!(oldest().await >= Some(Duration::from_secs(600)));
    world.outbox.pause("mail", None).await.unwrap();
    let stats = world.outbox.stats().await.unwrap();
    assert!(stats.oldest_ready.is_some_and(|age| age < Duration::from_secs(600)), "{:?}", stats.oldest_ready);
    assert_eq!(stats.ready, 2, "they are counted all the same");
    world.outbox.pause(TOPIC, None).await.unwrap();
    assert_eq!(oldest().await, None);
    world.outbox.resume("mail").await.unwrap();
    assert!(oldest().await >= Some(Duration::from_secs(600)));
}

pub(super) async fn mst_043_a_paused_message_keeps_its_place_in_its_ordering_key(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let keyed = |topic: &str| Message::new(topic, "").ordering_key("customer");
    let mut ids = Vec::new();
    for topic in ["mail", "bill", "mail", "bill"] {
        ids.push(world.enqueue(keyed(topic)).await);
    }
    let free = world.enqueue(Message::new("bill", "")).await;
    world.outbox.pause("mail", None).await.unwrap();
    let owner = OwnerToken::new();
    assert_eq!(world.claim_one(owner).await.id(), free, "those behind it wait, too");
    world.assert_nothing_due().await;
    world.outbox.resume("mail").await.unwrap();
    let first = world.claim_one(owner).await;
    assert_eq!(first.id(), ids[0]);
    // Paused again while it runs: the one of another topic has its turn, the next but one has not.
    world.outbox.pause("mail", None).await.unwrap();
    world.outbox.ack(owner, &[first.handle]).await.unwrap();
    let second = world.claim_one(owner).await;
    assert_eq!(second.id(), ids[1]);
    world.outbox.ack(owner, &[second.handle]).await.unwrap();
    world.assert_nothing_due().await;
    world.outbox.resume("mail").await.unwrap();
    for id in &ids[2..] {
        let item = world.claim_one(owner).await;
        assert_eq!(item.id(), *id);
        world.outbox.ack(owner, &[item.handle]).await.unwrap();
    }
}

/// Claims may keep where there is nothing left to look for; what is paused must not fall behind that.
pub(super) async fn mst_043_paused_messages_are_found_again_behind_all_that_was_settled(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mut paused = Vec::new();
    for priority in [0, 3, -4] {
        paused.push(world.enqueue(Message::new("paused", "").priority(priority)).await);
    }
    world.outbox.pause("paused", None).await.unwrap();
    let owner = OwnerToken::new();
    let mut settled = 0;
    while settled < 600 {
        let batch = (0..60).map(|n| Message::new(TOPIC, "").priority(if n % 3 == 0 { 3 } else { 0 }));
        world.outbox.enqueue_many(batch.collect()).await.unwrap();
        // As a worker does it: full claims first, which go on where the last one ended, and then one that finds no more.
        loop {
            let claimed = world.claim(owner, 20).await;
            settled += claimed.len();
            world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
            if claimed.is_empty() {
                break;
            }
        }
        world.advance(Duration::from_secs(2)).await;
    }
    world.outbox.resume("paused").await.unwrap();
    let mut found: Vec<_> = world.claim(owner, 20).await.iter().map(|item| item.id()).collect();
    found.sort_unstable();
    paused.sort_unstable();
    assert_eq!(found, paused);
}

pub(super) async fn mst_043_what_expires_while_paused_fails_after_the_resume(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let expiring = world.enqueue(Message::new(TOPIC, "").expires_in(LEASE)).await;
    let spent = world.enqueue(Message::new("spent", "")).await;
    let only_once = ClaimRequest::new(OwnerToken::new()).delivery_limit(1);
    let once = only_once.clone().only_topics(vec!["spent".to_owned()]);
    assert_eq!(world.claim_batch(&once).await.items.len(), 1);
    for topic in [TOPIC, "spent"] {
        world.outbox.pause(topic, None).await.unwrap();
    }
    world.advance(LEASE * 2).await;
    let claimed = world.claim_batch(&only_once).await;
    assert!(claimed.items.is_empty() && claimed.rejected.is_empty(), "nobody looks at it: {claimed:?}");
    assert_eq!(world.row(expiring).await.status, Status::Ready);
    for topic in [TOPIC, "spent"] {
        world.outbox.resume(topic).await.unwrap();
    }
    let claimed = world.claim_batch(&only_once).await;
    assert!(claimed.items.is_empty(), "it is never handed to a handler");
    assert_eq!(claimed.rejected.len(), 2);
    assert_eq!(world.row(expiring).await.reason, Some(FailureReason::Expired));
    assert_eq!(world.row(spent).await.reason, Some(FailureReason::DeliveryLimit));
}

pub(super) async fn mst_043_a_claim_that_is_filled_looks_past_what_is_paused(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let many = |topic: &'static str| (0..200).map(move |_| Message::new(topic, "")).collect::<Vec<_>>();
    let urgent = many("paused").into_iter().map(|message| message.priority(9));
    world.outbox.enqueue_many(many("paused").into_iter().chain(urgent).collect()).await.unwrap();
    world.outbox.enqueue_many(many("other")).await.unwrap();
    world.outbox.pause("paused", None).await.unwrap();
    let owner = OwnerToken::new();
    for _ in 0..10 {
        let claimed = world.claim(owner, 20).await;
        assert_eq!(claimed.len(), 20, "as many as asked for, whatever stands in front of them");
        assert!(claimed.iter().all(|item| item.topic == "other"));
        world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    }
    world.assert_nothing_due().await;
    let stats = world.outbox.stats().await.unwrap();
    assert_eq!((stats.ready, stats.done), (400, 200));
    world.outbox.resume("paused").await.unwrap();
    assert_eq!(world.claim(owner, 1_000).await.len(), 400);
}

pub(super) async fn mst_043_a_timer_of_a_paused_topic_becomes_a_message_that_waits(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.outbox.pause("reminder", None).await.unwrap();
    let id = world.schedule(NewTimer::new("reminder", "x", Duration::ZERO)).await;
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [id]);
    world.assert_nothing_due().await;
    assert_eq!(world.row(id).await.status, Status::Ready);
    world.outbox.resume("reminder").await.unwrap();
    assert_eq!(world.claim_one(OwnerToken::new()).await.id(), id);
}

async fn mst_043_the_topics_of_outbox_and_inbox_are_paused_apart(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let inbox = world.inbox.by(BY);
    world.enqueue(Message::new("order", "")).await;
    world.inbox.enqueue(Incoming::new("shop", "1", Message::new("order", ""))).await.unwrap();
    assert!(inbox.pause("order", Some("a reason")).await.unwrap());
    assert_eq!(world.outbox.paused().await.unwrap(), []);
    assert_eq!(inbox.paused().await.unwrap()[0].reason.as_deref(), Some("a reason"));
    world.claim_one(OwnerToken::new()).await;
    let request = ClaimRequest::new(OwnerToken::new());
    assert!(world.inbox.claim(&request).await.unwrap().items.is_empty());
    // What does not go through the queue is not held up.
    assert!(!world.inbox.already_processed("shop", "2", None).await.unwrap().processed);
    assert!(inbox.resume("order").await.unwrap());
    assert_eq!(world.inbox.claim(&request).await.unwrap().items.len(), 1);
    only(&world, "inbox.pause").await;
    only(&world, "inbox.resume").await;
}

async fn mst_043_who_pauses_and_resumes_is_recorded(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let outbox = world.outbox.by(Actor::from(BY).correlated("TICKET-42"));
    outbox.pause("mail", Some("say \"no\"")).await.unwrap();
    let record = only(&world, "outbox.pause").await;
    assert_eq!(record.anchors, [Anchor::new("topic", "mail")]);
    assert_eq!(record.correlation_id.as_deref(), Some("TICKET-42"));
    let wanted =
        json!({ "before": { "paused": false }, "after": { "paused": true, "reason": "say \"no\"" } });
    assert_eq!(data(&record), &wanted);
    outbox.resume("mail").await.unwrap();
    let record = only(&world, "outbox.resume").await;
    assert_eq!(data(&record), &json!({ "before": { "paused": true }, "after": { "paused": false } }));
    // What changes nothing leaves no record, and what can't be recorded does not happen.
    assert!(!outbox.resume("mail").await.unwrap());
    let nobody = Actor::from("x".repeat(256));
    assert!(world.outbox.store().pause("mail", None, &nobody).await.is_err());
    assert_eq!(world.outbox.paused().await.unwrap(), []);
    outbox.pause("bill", None).await.unwrap();
    assert!(!outbox.pause("bill", None).await.unwrap());
    assert!(world.outbox.store().resume("bill", &nobody).await.is_err());
    assert_eq!(world.outbox.paused().await.unwrap().len(), 1);
    assert_eq!(records(&world, "outbox.pause").await.len(), 2);
    assert_eq!(records(&world, "outbox.resume").await.len(), 1);
}

async fn mst_043_one_of_many_who_pause_at_once_does_it(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = world.second().await;
    let several = || (0..8).map(|n| if n % 2 == 0 { world.outbox.clone() } else { second.clone() });
    let pauses = several().map(|outbox| tokio::spawn(async move { outbox.pause(TOPIC, None).await }));
    let mut changed = 0;
    for paused in pauses.collect::<Vec<_>>() {
        changed += u32::from(paused.await.unwrap().unwrap());
    }
    assert_eq!((changed, world.outbox.paused().await.unwrap().len()), (1, 1));
    let resumes = several().map(|outbox| tokio::spawn(async move { outbox.resume(TOPIC).await }));
    for resumed in resumes.collect::<Vec<_>>() {
        changed += u32::from(resumed.await.unwrap().unwrap());
    }
    assert_eq!((changed, world.outbox.paused().await.unwrap().len()), (2, 0));
    assert_eq!(records(&world, "outbox.pause").await.len(), 1);
    assert_eq!(records(&world, "outbox.resume").await.len(), 1);
}

async fn mst_043_names_and_reasons_are_checked_and_kept_as_they_are(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for (topic, reason, field) in [
        ("", None, "topic"),
        ("a\0b", None, "topic"),
        ("t", Some(""), "reason"),
        ("t", Some("a\0"), "reason"),
    ] {
        let error = world.outbox.pause(topic, reason).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)));
    }
    let long = "ü".repeat(256);
    assert_eq!(world.outbox.pause("t", Some(&long)).await.unwrap_err().field(), Some("reason"));
    assert_eq!(world.outbox.resume(&long).await.unwrap_err().field(), Some("topic"));
    let mut topics = ["'; drop table outbox; --", "\"quoted\" \\ ~0", "été 📦", "%_", &"é".repeat(255)];
    topics.sort_unstable();
    for topic in topics {
        world.enqueue(Message::new(topic, "")).await;
        assert!(world.outbox.by(BY).pause(topic, Some(topic)).await.unwrap(), "{topic}");
    }
    let paused = world.outbox.paused().await.unwrap();
    let mut found: Vec<_> =
        paused.iter().map(|paused| (paused.topic.as_str(), paused.reason.as_deref())).collect();
    found.sort_unstable();
    assert_eq!(found, topics.map(|topic| (topic, Some(topic))));
    world.assert_nothing_due().await;
    let noted = records(&world, "outbox.pause").await;
    for topic in topics {
        assert!(noted.iter().any(|record| record.anchors == [Anchor::new("topic", topic)]), "{topic}");
        assert!(noted.iter().any(|record| data(record)["after"]["reason"] == json!(topic)), "{topic}");
        assert!(world.outbox.resume(topic).await.unwrap());
    }
    assert_eq!(world.claim(OwnerToken::new(), 10).await.len(), topics.len());
}

async fn mst_043_a_paused_message_says_why_and_troubles_no_health(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let explained = async |id| Explanation::of(&*world.provider, id).await.unwrap().unwrap();
    let running = world.enqueue(Message::new("mail", "")).await;
    let owner = OwnerToken::new();
    world.claim_one(owner).await;
    let waits = world.enqueue(Message::new("mail", "")).await;
    world.outbox.by(BY).pause("mail", Some("INC-17")).await.unwrap();
    let told = explained(waits).await;
    let Why::Paused { by, reason, .. } = &told.why else { panic!("{told:?}") };
    assert_eq!((by.as_str(), reason.as_deref()), (BY, Some("INC-17")));
    assert!(told.summary.contains("\"mail\" was paused by alice"), "{told:?}");
    assert!(told.advice.as_deref().is_some_and(|advice| advice.contains("resume 'mail'")), "{told:?}");
    assert!(matches!(explained(running).await.why, Why::Claimed { .. }), "it goes on");
    world.advance(60 * LEASE).await;
    assert!(matches!(explained(running).await.why, Why::Paused { .. }), "nobody takes it over");
    for probe in [Probe::Full, Probe::Doctor] {
        let report = Health::new(Arc::clone(&world.provider)).check(probe).await;
        for name in ["overdue.outbox", "stuck", "workers"] {
            let check = report.check(name).unwrap();
            assert!(check.status <= HealthStatus::Healthy, "{check:?}");
        }
        let check = report.check("paused").unwrap();
        assert_eq!(check.status, HealthStatus::Healthy);
        assert!(check.summary.contains("1 topic paused: \"mail\" of the outbox"), "{check:?}");
        if let Some(lag) = report.check("lag.outbox") {
            assert!(lag.status <= HealthStatus::Healthy, "{lag:?}");
        }
    }
    // What waits without being paused is seen behind it as ever.
    world.enqueue(Message::new("bill", "")).await;
    world.advance(60 * LEASE).await;
    let report = Health::new(Arc::clone(&world.provider)).check(Probe::Full).await;
    assert!(report.check("overdue.outbox").unwrap().status > HealthStatus::Healthy, "{report:#?}");
}

async fn mst_043_other_languages_pause_and_obey(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        return Verdict::NotApplicable("functions");
    }
    let names = Names::default();
    let call = async |function: &str, arguments: &[Option<&str>]| fx.call(&names, function, arguments).await;
    world.enqueue(Message::new("mail", "")).await;
    assert_eq!(call("outbox_pause", &[Some("mail"), Some("why"), Some(BY)]).await.unwrap(), ["t"]);
    assert_eq!(call("outbox_pause", &[Some("mail"), None, Some(BY)]).await.unwrap(), ["f"]);
    let paused = world.outbox.paused().await.unwrap();
    assert_eq!((paused[0].by.as_str(), paused[0].reason.as_deref()), (BY, Some("why")));
    let owner = OwnerToken::new().to_string();
    let claim = [Some(owner.as_str()), Some("30"), Some("10")];
    assert_eq!(call("outbox_claim", &claim).await.unwrap(), [""; 0]);
    let complaint = call("outbox_pause", &[Some(""), None, Some(BY)]).await.unwrap_err();
    assert_eq!(complaint, "outbox_pause: topic must be 1 to 255 characters, got 0");
    assert_eq!(call("outbox_resume", &[Some("mail"), None]).await.unwrap(), ["t"]);
    let record = records(&world, "outbox.resume").await.remove(0);
    assert!(
        record.actor.starts_with("sql:"),
        "whoever does not say who acts is the one who has connected: {record:?}"
    );
    assert_eq!(call("outbox_claim", &claim).await.unwrap().len(), 1);
    Verdict::Passed
}
