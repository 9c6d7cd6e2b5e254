//! What is done by hand leaves a record: who, what, to what, before and after, in the transaction that does it.

use std::time::Duration;

use mainstay_core::audit::{Actor, Anchor, Audit, AuditFilter, AuditOutcome, AuditPage, AuditRecord};
use mainstay_core::inbox::{EntryState, Inbox, InboxFilter, InboxKey, InboxRetention, Incoming};
use mainstay_core::job::JobDefinition;
use mainstay_core::lease::{LeaseOptions, Leases};
use mainstay_core::outbox::{Message, MessageFilter, OnFailure, Outbox, Retention};
use mainstay_core::queue::{ClaimRequest, Status};
use mainstay_core::store::{Names, Queue};
use mainstay_core::timer::NewTimer;
use mainstay_core::{ErrorKind, OwnerToken, WorkItemId};
use serde_json::{Value, json};

use crate::case::{Verdict, cases};
use crate::fixture::Fixture;
use crate::world::{TOPIC, World, interrupted};

cases! { $ administration_cases:
    r30_a_cancelled_message_leaves_a_record ["R30"],
    r16_a_requeue_leaves_a_record ["R16", "R30"],
    r16_a_requeue_by_filter_leaves_a_record_with_the_filter ["R16", "R30"],
    r30_a_released_key_leaves_a_record ["R30"],
    r16_a_revived_message_of_the_inbox_leaves_a_record ["R16", "R30"],
    r30_marks_by_hand_leave_a_record_and_those_of_the_application_do_not ["R30"],
    r30_timers_changed_by_hand_leave_a_record_and_those_of_the_application_do_not ["R30"],
    r30_a_registered_and_a_changed_job_leave_a_record ["R30"],
    r30_enabling_and_disabling_a_job_leave_a_record ["R30"],
    r30_a_deleted_job_leaves_a_record ["R30"],
    r30_a_triggered_run_leaves_a_record ["R30"],
    r30_a_lease_taken_away_leaves_a_record ["R30"],
    r30_a_purge_by_hand_leaves_a_record_and_retention_does_not ["R30", "R29"],
    r30_a_deployment_leaves_a_record ["R30", "R28"],
    r30_what_changes_nothing_leaves_no_record ["R30"],
    r30_an_action_whose_record_is_refused_does_not_happen ["R30"],
    r30_an_action_that_is_given_up_midway_and_its_record_are_both_there_or_neither ["R30"],
    r30_a_record_of_very_many_is_bounded_and_finds_each ["R30"],
    r30_no_record_holds_a_payload ["R30", "R27"],
    r30_the_library_is_the_actor_unless_told_otherwise ["R30"],
    r30_functions_record_what_other_languages_do ["R30"],
}

pub(super) const BY: &str = "alice";

pub(super) async fn records(world: &World<'_>, name: &str) -> Vec<AuditRecord> {
    let filter = AuditFilter::all().name(name);
    Audit::new(world.provider.audit()).list(&filter, AuditPage::default()).await.unwrap()
}

/// The only record of that name, by the one who did it.
pub(super) async fn only(world: &World<'_>, name: &str) -> AuditRecord {
    let mut found = records(world, name).await;
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    let record = found.remove(0);
    assert_eq!((record.name.as_str(), record.actor.as_str()), (name, BY));
    assert_eq!(record.outcome, AuditOutcome::Succeeded);
    record
}

pub(super) fn data(record: &AuditRecord) -> &Value {
    record.data.as_ref().expect("the record has data")
}

fn anchors<'a>(kind: &str, values: impl IntoIterator<Item = &'a WorkItemId>) -> Vec<Anchor> {
    let mut anchors: Vec<_> = values.into_iter().map(|id| Anchor::new(kind, id.to_string())).collect();
    anchors.sort();
    anchors
}

pub(super) fn item(id: WorkItemId, topic: &str, before: Value, after: Value) -> Value {
    json!({ "id": id, "topic": topic, "before": before, "after": after })
}

async fn failed(outbox: &Outbox, message: Message) -> WorkItemId {
    let id = outbox.enqueue(message).await.unwrap().work_item;
    let owner = OwnerToken::new();
    let claims = outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    let claims: Vec<_> = claims.items.iter().map(|item| item.handle).collect();
    assert_eq!(outbox.fail(owner, &claims, None).await.unwrap().changed, [id]);
    id
}

fn was_failed() -> Value {
    json!({ "status": "failed", "reason": "handler", "attempts": 1 })
}

fn is_ready() -> Value {
    json!({ "status": "ready", "attempts": 0 })
}

async fn r30_a_cancelled_message_leaves_a_record(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let ids = world.enqueue_some(2).await;
    let asked = [ids[0], ids[1], WorkItemId::new()];
    assert_eq!(world.outbox.by(BY).cancel(&asked).await.unwrap().len(), 2);
    let record = only(&world, "outbox.cancel").await;
    assert_eq!(record.anchors, anchors("outbox", &ids));
    let told = data(&record);
    assert_eq!(told["count"], json!(2));
    let after = json!({ "status": "failed", "reason": "cancelled" });
    let wanted = |id| item(id, TOPIC, json!({ "status": "ready" }), after.clone());
    let items = told["items"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    assert!(ids.iter().all(|id| items.contains(&wanted(*id))), "{told}");
    // And it is found by each of them.
    let audit = Audit::new(world.provider.audit());
    for id in ids {
        let about = AuditFilter::all().anchor("outbox", id.to_string());
        assert_eq!(audit.list(&about, AuditPage::default()).await.unwrap(), std::slice::from_ref(&record));
    }
}

async fn r16_a_requeue_leaves_a_record(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = failed(&world.outbox, Message::new("order", "x")).await;
    assert_eq!(world.outbox.by(BY).requeue(&[id, id]).await.unwrap(), [id]);
    let record = only(&world, "outbox.requeue").await;
    assert_eq!(record.anchors, anchors("outbox", [&id]));
    let wanted = json!({ "count": 1, "items": [item(id, "order", was_failed(), is_ready())] });
    assert_eq!(data(&record), &wanted);
}

async fn r16_a_requeue_by_filter_leaves_a_record_with_the_filter(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = failed(&world.outbox, Message::new("order", "x")).await;
    failed(&world.outbox, Message::new("other", "x")).await;
    let filter = MessageFilter::all().topic("order");
    assert_eq!(world.outbox.by(BY).requeue_where(&filter, 10).await.unwrap(), [id]);
    let record = only(&world, "outbox.requeue").await;
    assert_eq!(record.anchors, anchors("outbox", [&id]));
    let told = data(&record);
    assert_eq!(told["items"], json!([item(id, "order", was_failed(), is_ready())]));
    assert_eq!((&told["filter"]["topic"], &told["filter"]["max_rows"]), (&json!("order"), &json!(10)));
    assert_eq!(told["filter"]["reason"], Value::Null);
}

async fn r30_a_released_key_leaves_a_record(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let message = || Message::new(TOPIC, "").ordering_key("customer").on_failure(OnFailure::Hold);
    failed(&world.outbox, message()).await;
    assert!(world.outbox.by(BY).release_key("customer").await.unwrap());
    let record = only(&world, "outbox.release_key").await;
    assert_eq!(record.anchors, [Anchor::new("ordering_key", "customer")]);
    assert_eq!(data(&record), &json!({ "before": { "held": true }, "after": { "held": false } }));
}

async fn r16_a_revived_message_of_the_inbox_leaves_a_record(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let inbox = world.inbox.by(BY);
    world.inbox.enqueue(Incoming::new("shop", "1", Message::new(TOPIC, "x"))).await.unwrap();
    world.inbox.mark_dead("shop", "1", None).await.unwrap();
    world.inbox.mark_dead("shop", "2", None).await.unwrap();
    let keys: Vec<_> = ["1", "2", "3"].map(|id| InboxKey::new("shop", id).unwrap()).into();
    assert_eq!(inbox.revive(&keys).await.unwrap(), keys[..2]);
    let record = only(&world, "inbox.requeue").await;
    let wanted = [Anchor::new("inbox", "1"), Anchor::new("inbox", "2"), Anchor::new("source", "shop")];
    assert_eq!(record.anchors, wanted);
    let item = |id: &str| {
        let (before, after) = (json!({ "state": "dead" }), json!({ "state": "seen" }));
        json!({ "source": "shop", "message_id": id, "before": before, "after": after })
    };
    assert_eq!(data(&record), &json!({ "count": 2, "items": [item("1"), item("2")] }));
    for id in ["1", "2"] {
        assert_eq!(world.entry("shop", id).await.state, EntryState::Seen, "as the record says");
    }
    // By filter it is recorded too, and so is what is done through the queue.
    world.inbox.mark_dead("shop", "2", None).await.unwrap();
    assert_eq!(inbox.revive_where(&InboxFilter::all(), 10).await.unwrap().len(), 1);
    assert_eq!(records(&world, "inbox.requeue").await.len(), 2);
    let queue = world.inbox.by(BY).queue().clone();
    let item = world.entry("shop", "1").await.work_item.unwrap();
    assert_eq!(queue.cancel(&[item]).await.unwrap(), [item]);
    assert_eq!(only(&world, "inbox.cancel").await.anchors, anchors("inbox", [&item]));
}

async fn r30_marks_by_hand_leave_a_record_and_those_of_the_application_do_not(fx: &dyn Fixture) {
    const LEASE: Duration = Duration::from_secs(30);
    let world = World::open(fx).await;
    let marks = async |inbox: &Inbox, id: &str| {
        assert!(inbox.mark_processing("shop", id, LEASE).await.unwrap());
        assert!(inbox.mark_dead("shop", id, Some("no good".to_owned())).await.unwrap());
        assert!(inbox.mark_processed("shop", id).await.unwrap());
        assert!(!inbox.mark_processed("shop", id).await.unwrap(), "it is so already");
    };
    marks(&world.inbox, "1").await;
    assert_eq!(records(&world, "inbox.").await, []);
    marks(&world.inbox.by(BY), "2").await;
    for (name, before, after) in [
        ("inbox.mark_processing", Value::Null, "processing"),
        ("inbox.mark_dead", json!("processing"), "dead"),
        ("inbox.mark_processed", json!("dead"), "done"),
    ] {
        let record = only(&world, name).await;
        assert_eq!(record.anchors, [Anchor::new("inbox", "2"), Anchor::new("source", "shop")]);
        assert_eq!(data(&record), &json!({ "before": { "state": before }, "after": { "state": after } }));
    }
}

async fn r30_timers_changed_by_hand_leave_a_record_and_those_of_the_application_do_not(fx: &dyn Fixture) {
    const HOUR: Duration = Duration::from_secs(3600);
    let world = World::open(fx).await;
    let id = world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
    let other = world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
    assert!(world.timers.reschedule(id, HOUR).await.unwrap());
    assert!(world.timers.cancel(other).await.unwrap());
    assert_eq!(records(&world, "timers.").await, []);
    let before = world.timer(id).await.due_at();
    assert!(world.timers.by(BY).reschedule(id, 2 * HOUR).await.unwrap());
    let after = world.timer(id).await.due_at();
    let record = only(&world, "timers.reschedule").await;
    assert_eq!(record.anchors, anchors("timers", [&id]));
    let time =
        |part: &str| data(&record)[part]["due_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!((time("before"), time("after")), (before, after));
    assert!(world.timers.by(BY).cancel(id).await.unwrap());
    let record = only(&world, "timers.cancel").await;
    assert_eq!((&record.anchors, &data(&record)["count"]), (&anchors("timers", [&id]), &json!(1)));
}

fn nightly() -> JobDefinition {
    JobDefinition::new("nightly", "report", "0 3 * * *").payload("SECRET")
}

async fn r30_a_registered_and_a_changed_job_leave_a_record(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs().by(BY);
    jobs.create_or_update(nightly()).await.unwrap();
    let record = only(&world, "job.create_or_update").await;
    assert_eq!(record.anchors, [Anchor::new("job", "nightly")]);
    let told = data(&record).clone();
    let first = json!({
        "topic": "report", "cron": "0 3 * * *", "time_zone": "UTC", "enabled": true, "misfire": "once", "misfire_cap": null,
        "misfire_window_seconds": null, "overlap": "allow", "jitter_seconds": 0, "priority": 0, "version": 1,
    });
    assert_eq!(told, json!({ "before": null, "after": first, "payload_changed": true }));
    // As it is: every start of a program does that.
    jobs.create_or_update(nightly()).await.unwrap();
    assert_eq!(records(&world, "job.").await.len(), 1);
    jobs.create_or_update(nightly().time_zone("Europe/Vienna")).await.unwrap();
    let told = records(&world, "job.").await;
    assert_eq!(told.len(), 2);
    let mut second = first.clone();
    (second["time_zone"], second["version"]) = (json!("Europe/Vienna"), json!(2));
    assert_eq!(data(&told[0]), &json!({ "before": first, "after": second, "payload_changed": false }));
}

async fn r30_enabling_and_disabling_a_job_leave_a_record(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    jobs.create_or_update(nightly()).await.unwrap();
    let jobs = jobs.by(BY);
    assert!(jobs.disable("nightly").await.unwrap());
    assert!(!jobs.disable("nightly").await.unwrap());
    assert!(jobs.enable("nightly").await.unwrap());
    for (name, before) in [("job.disable", true), ("job.enable", false)] {
        let record = only(&world, name).await;
        assert_eq!(record.anchors, [Anchor::new("job", "nightly")]);
        assert_eq!(
            data(&record),
            &json!({ "before": { "enabled": before }, "after": { "enabled": !before } })
        );
    }
}

async fn r30_a_deleted_job_leaves_a_record(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    jobs.create_or_update(nightly()).await.unwrap();
    jobs.trigger("nightly").await.unwrap();
    assert_eq!(jobs.by(BY).delete("nightly").await.unwrap(), Some(1));
    let record = only(&world, "job.delete").await;
    assert_eq!(record.anchors, [Anchor::new("job", "nightly")]);
    let told = data(&record);
    assert_eq!((&told["before"]["cron"], &told["before"]["version"]), (&json!("0 3 * * *"), &json!(1)));
    assert_eq!((&told["after"], &told["cancelled_runs"]), (&Value::Null, &json!(1)));
    assert_eq!(records(&world, "job_runs.").await, [], "one action, one record");
}

async fn r30_a_triggered_run_leaves_a_record(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.jobs().create_or_update(nightly()).await.unwrap();
    let run = world.jobs().by(BY).trigger("nightly").await.unwrap();
    let record = only(&world, "job.trigger").await;
    assert_eq!(record.anchors, [Anchor::new("job", "nightly"), Anchor::new("run", run.id.to_string())]);
    let after = &data(&record)["after"];
    assert_eq!((&after["run"], &after["state"]), (&json!(run.id), &json!("pending")));
    let nominal: jiff::Timestamp = after["nominal_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(nominal, run.nominal_at);
}

async fn r30_a_lease_taken_away_leaves_a_record(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = Leases::new(world.provider.leases());
    let options = LeaseOptions::default().owner("worker").duration(Duration::from_secs(60));
    let lease = leases.acquire_with("reports", options).await.unwrap().lease().unwrap();
    assert_eq!(leases.by(BY).force_release("reports").await.unwrap().as_deref(), Some("worker"));
    let record = only(&world, "lease.force_release").await;
    assert_eq!(record.anchors, [Anchor::new("lease", "reports")]);
    let told = data(&record);
    assert_eq!(
        (&told["before"]["owner"], &told["before"]["epoch"]),
        (&json!("worker"), &json!(lease.epoch()))
    );
    assert_eq!(told["after"], json!({ "owner": null }));
    assert_eq!(leases.by(BY).force_release("reports").await.unwrap(), None);
    assert_eq!(records(&world, "lease.").await.len(), 1);
}

async fn r30_a_purge_by_hand_leaves_a_record_and_retention_does_not(fx: &dyn Fixture) {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let world = World::open(fx).await;
    let at_once = Retention::default().done(Some(DAY)).failed(Some(DAY)).batch(2);
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(failed(&world.outbox, Message::new(TOPIC, "")).await);
    }
    world.inbox.mark_processed("shop", "1").await.unwrap();
    world.jobs().create_or_update(nightly()).await.unwrap();
    let run = world.jobs().trigger("nightly").await.unwrap();
    world.run_queue().cancel(&[run.id]).await.unwrap();
    world.jobs().collect().await.unwrap();
    world.advance(30 * DAY).await;
    // What a store does without an actor is what retention does.
    assert_eq!(world.outbox.store().purge(&at_once.batch(1), None).await.unwrap(), 1);
    assert_eq!(records(&world, "outbox.purge").await, []);
    assert_eq!(world.outbox.by(BY).purge(&at_once).await.unwrap(), 2);
    let told = data(&only(&world, "outbox.purge").await).clone();
    let day = json!(24 * 3600);
    assert_eq!(told, json!({ "count": 2, "older_than_seconds": day, "failed_older_than_seconds": day }));
    let retention = InboxRetention::default().done(Some(7 * DAY));
    assert_eq!(world.inbox.by(BY).forget(&retention).await.unwrap(), 1);
    assert_eq!(data(&only(&world, "inbox.forget").await)["count"], json!(1));
    assert_eq!(world.jobs().by(BY).purge(&at_once).await.unwrap(), 1);
    assert_eq!(data(&only(&world, "job.purge").await)["count"], json!(1));
    // With nothing to delete there is nothing to tell.
    assert_eq!(world.outbox.by(BY).purge(&at_once).await.unwrap(), 0);
    assert_eq!(records(&world, "outbox.purge").await.len(), 1);
}

async fn r30_a_deployment_leaves_a_record(fx: &dyn Fixture) {
    let names = Names::default().with_schema("other").unwrap();
    let provider = fx.with_names(names.clone()).await;
    provider.schema().deploy_by(&Actor::from(BY)).await.unwrap();
    provider.schema().deploy_by(&Actor::from("bob")).await.unwrap();
    let world = World::over(fx, provider, names);
    let record = only(&world, "schema.deploy").await;
    assert_eq!(record.anchors, [Anchor::new("schema", "other")]);
    let told = data(&record);
    assert_eq!(told["before"], json!({ "version": null }));
    assert!(told["after"]["version"].as_i64().is_some_and(|version| version > 0), "{told}");
    assert!(told["steps"].as_array().unwrap().contains(&json!("baseline")), "{told}");
}

async fn r30_what_changes_nothing_leaves_no_record(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (outbox, jobs) = (world.outbox.by(BY), world.jobs().by(BY));
    let unknown = [WorkItemId::new()];
    assert_eq!(outbox.cancel(&unknown).await.unwrap(), []);
    assert_eq!(outbox.requeue(&unknown).await.unwrap(), []);
    assert_eq!(outbox.requeue_where(&MessageFilter::all(), 5).await.unwrap(), []);
    assert!(!outbox.release_key("nobody").await.unwrap());
    assert_eq!(world.inbox.by(BY).revive(&[InboxKey::new("a", "b").unwrap()]).await.unwrap(), []);
    assert!(!world.timers.by(BY).reschedule(unknown[0], Duration::ZERO).await.unwrap());
    assert!(!world.timers.by(BY).cancel(unknown[0]).await.unwrap());
    assert_eq!(jobs.delete("unknown").await.unwrap(), None);
    assert_eq!(jobs.enable("unknown").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(jobs.trigger("unknown").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(Leases::new(world.provider.leases()).by(BY).force_release("x").await.unwrap(), None);
    let by = AuditFilter::all().actor(BY);
    let audit = Audit::new(world.provider.audit());
    assert_eq!(audit.list(&by, AuditPage::default()).await.unwrap(), []);
}

async fn r30_an_action_whose_record_is_refused_does_not_happen(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    // A client refuses such a name before anything is asked of the database; here the database has to.
    let nobody = Actor::from("x".repeat(256));
    let ready = world.enqueue(Message::new("ready", "").due_in(Duration::from_secs(3600))).await;
    let lost =
        failed(&world.outbox, Message::new(TOPIC, "").ordering_key("k").on_failure(OnFailure::Hold)).await;
    let timer = world.schedule(NewTimer::new(TOPIC, "", Duration::from_secs(3600))).await;
    world.inbox.mark_dead("shop", "1", None).await.unwrap();
    world.jobs().create_or_update(nightly()).await.unwrap();
    let leases = Leases::new(world.provider.leases());
    let _lease = leases.acquire("reports").await.unwrap();
    let (outbox, inbox) = (world.outbox.store(), world.inbox.store());
    let (timers, jobs) = (world.provider.timers(), world.provider.jobs());
    let key = InboxKey::new("shop", "1").unwrap();
    let due = world.timer(timer).await.due_at();
    let before = records(&world, "").await;

    assert!(outbox.cancel(&[ready], Some(&nobody)).await.is_err());
    assert!(outbox.requeue(&[lost], &nobody).await.is_err());
    assert!(outbox.requeue_where(&MessageFilter::all(), 5, &nobody).await.is_err());
    assert!(outbox.release_key("k", &nobody).await.is_err());
    assert!(inbox.revive(std::slice::from_ref(&key), &nobody).await.is_err());
    assert!(inbox.mark(&key, &mainstay_core::inbox::Mark::Processed, Some(&nobody)).await.is_err());
    assert!(timers.reschedule(timer, Duration::ZERO.into(), Some(&nobody)).await.is_err());
    assert!(world.provider.queue(Queue::Timers).cancel(&[timer], Some(&nobody)).await.is_err());
    assert!(jobs.set_enabled("nightly", false, &nobody).await.is_err());
    assert!(jobs.trigger("nightly", &nobody).await.is_err());
    assert!(jobs.delete("nightly", &nobody).await.is_err());
    assert!(leases.store().force_release("reports", &nobody).await.is_err());

    assert_eq!(world.row(ready).await.status, Status::Ready);
    assert_eq!(world.row(lost).await.status, Status::Failed);
    assert!(world.outbox.stats().await.unwrap().held_keys == 1);
    assert_eq!(world.entry("shop", "1").await.state, EntryState::Dead);
    assert_eq!(world.timer(timer).await.due_at(), due);
    let job = world.jobs().get("nightly").await.unwrap().unwrap();
    assert!(job.enabled);
    assert_eq!(world.run_queue().stats().await.unwrap().open(), 0);
    assert!(leases.get("reports").await.unwrap().unwrap().held);
    assert_eq!(records(&world, "").await, before);
    // And the client says it at once, in its own words.
    let error = world.outbox.by(nobody).cancel(&[ready]).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("actor")));
}

async fn r30_an_action_that_is_given_up_midway_and_its_record_are_both_there_or_neither(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = fx.second().await;
    let outbox = Outbox::new(second.outbox()).by(BY);
    let ids = world.enqueue_some(12).await;
    for (polls, id) in ids.iter().enumerate() {
        let _ = interrupted(polls, outbox.cancel(&[*id])).await;
    }
    // What was given up may still be under way, so it is looked at until it has stood still for a moment.
    let audit = Audit::new(world.provider.audit());
    for id in ids {
        let about = AuditFilter::all().anchor("outbox", id.to_string());
        let (cancelled, told) = loop {
            let before = world.row(id).await.status;
            let told = audit.list(&about, AuditPage::default()).await.unwrap().len();
            if world.row(id).await.status == before {
                break (before == Status::Failed, told);
            }
        };
        assert_eq!(told, usize::from(cancelled), "{id}");
    }
}

async fn r30_a_record_of_very_many_is_bounded_and_finds_each(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let messages = (0..500).map(|n| Message::new(format!("{n}{}", "ü".repeat(250)), "")).collect();
    let enqueued = world.outbox.enqueue_many(messages).await.unwrap();
    let ids: Vec<_> = enqueued.iter().map(|message| message.work_item).collect();
    assert_eq!(world.outbox.by(BY).cancel(&ids).await.unwrap().len(), 500);
    let record = only(&world, "outbox.cancel").await;
    let told = data(&record);
    assert_eq!(told["count"], json!(500));
    assert!(told["items"].as_array().is_none_or(|items| items.len() == 20), "the first twenty, if they fit");
    assert!(told.to_string().len() <= 16 << 10);
    assert_eq!(record.anchors.len(), AuditRecord::ANCHORS_SHOWN);
    let audit = Audit::new(world.provider.audit());
    for id in [ids[0], ids[250], ids[499]] {
        let about = AuditFilter::all().anchor("outbox", id.to_string());
        assert_eq!(audit.list(&about, AuditPage::default()).await.unwrap().len(), 1, "{id}");
    }
}

async fn r30_no_record_holds_a_payload(fx: &dyn Fixture) {
    const SECRET: &str = "SECRET";
    let world = World::open(fx).await;
    let secret = || Message::new(TOPIC, SECRET).header("authorization", SECRET);
    let id = world.enqueue(secret()).await;
    world.outbox.cancel(&[id]).await.unwrap();
    world.outbox.requeue(&[id]).await.unwrap();
    world.inbox.enqueue(Incoming::new("shop", "1", Message::new(TOPIC, SECRET))).await.unwrap();
    world.inbox.by(BY).mark_dead("shop", "1", None).await.unwrap();
    world.inbox.revive(&[InboxKey::new("shop", "1").unwrap()]).await.unwrap();
    let timer = world.schedule(NewTimer::new(TOPIC, SECRET, Duration::from_secs(60))).await;
    world.timers.by(BY).reschedule(timer, Duration::from_secs(90)).await.unwrap();
    world.timers.by(BY).cancel(timer).await.unwrap();
    let jobs = world.jobs();
    jobs.create_or_update(nightly()).await.unwrap();
    jobs.create_or_update(nightly().payload("another SECRET")).await.unwrap();
    jobs.trigger("nightly").await.unwrap();
    jobs.delete("nightly").await.unwrap();
    let told = records(&world, "").await;
    assert!(told.len() >= 10, "{}", told.len());
    for record in told {
        let text = serde_json::to_string(&record).unwrap();
        assert!(!text.contains(SECRET), "{text}");
    }
}

async fn r30_the_library_is_the_actor_unless_told_otherwise(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let ids = world.enqueue_some(2).await;
    world.outbox.cancel(&ids[..1]).await.unwrap();
    world.outbox.by("bob").cancel(&ids[1..]).await.unwrap();
    let actors: Vec<_> = records(&world, "outbox.").await.into_iter().map(|record| record.actor).collect();
    assert_eq!(actors, ["bob", Actor::library().as_str()]);
}

async fn r30_functions_record_what_other_languages_do(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        return Verdict::NotApplicable("functions");
    }
    let names = Names::default();
    let ids = world.enqueue_some(2).await;
    let list = |id: WorkItemId| format!("{{{id}}}");
    fx.call(&names, "outbox_cancel", &[Some(&list(ids[0])), Some(BY)]).await.unwrap();
    only(&world, "outbox.cancel").await;
    // Whoever does not say who acts is the one who has connected.
    fx.call(&names, "outbox_cancel", &[Some(&list(ids[1]))]).await.unwrap();
    let told = records(&world, "outbox.cancel").await;
    assert_eq!(told.len(), 2);
    assert!(told[0].actor.starts_with("sql:"), "{}", told[0].actor);
    let written = fx.call(&names, "audit_write", &[Some("t.own"), Some(BY)]).await.unwrap();
    assert_eq!(only(&world, "t.own").await.id.to_string(), written[0]);
    let refused = fx.call(&names, "audit_write", &[Some(""), Some(BY)]).await.unwrap_err();
    assert_eq!(refused, "audit_write: name must be 1 to 255 characters, got 0");
    Verdict::Passed
}
