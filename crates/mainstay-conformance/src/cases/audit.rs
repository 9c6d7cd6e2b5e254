//! The audit trail itself: what is written is found again, as it was, and stays.

use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::audit::{
    Actor, Anchor, Audit, AuditEvent, AuditFilter, AuditId, AuditOutcome, AuditPage, AuditRecord,
    AuditRetention,
};
use serde_json::json;

use crate::case::cases;
use crate::fixture::{End, Fixture};
use crate::world::World;

cases! { $ audit_cases:
    r30_a_record_is_found_as_it_was_written ["R30"],
    r30_an_event_out_of_bounds_is_refused_before_anything_is_written ["R30"],
    r30_records_are_found_by_what_they_say ["R30"],
    r30_records_are_paged_newest_first ["R30"],
    r30_a_record_rides_on_the_applications_transaction ["R30"],
    r30_a_record_rides_on_a_handlers_transaction ["R30", "MST-030"],
    r30_records_are_never_changed_nor_deleted ["R30"],
    r30_the_trail_is_kept_for_ever_unless_told_otherwise ["R30", "R29"],
    r30_names_and_texts_of_any_kind_are_kept ["R30", "MST-022"],
    r30_time_is_the_databases ["R30", "MST-008"],
}

fn audit(world: &World<'_>) -> Audit {
    Audit::new(world.provider.audit()).by("alice")
}

async fn all(audit: &Audit, filter: &AuditFilter) -> Vec<AuditRecord> {
    audit.list(filter, AuditPage::default()).await.unwrap()
}

fn names(records: &[AuditRecord]) -> Vec<&str> {
    records.iter().map(|record| record.name.as_str()).collect()
}

/// The deployment has told of itself.
fn own() -> AuditFilter {
    AuditFilter::all().name("t.")
}

async fn r30_a_record_is_found_as_it_was_written(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let audit = audit(&world);
    let event = AuditEvent::new("order.refund")
        .anchor("order", "42")
        .anchor("customer", "7")
        .anchor("order", "42")
        .outcome(AuditOutcome::Failed)
        .correlation_id("request-1")
        .data(json!({ "before": { "amount": 1 }, "after": null, "z": [1, 2.5, "ü"] }));
    let before = world.now().await;
    let id = audit.write(event).await.unwrap();
    let record = audit.get(id).await.unwrap().unwrap();
    assert_eq!((record.id, record.name.as_str(), record.actor.as_str()), (id, "order.refund", "alice"));
    assert_eq!((record.outcome, record.correlation_id.as_deref()), (AuditOutcome::Failed, Some("request-1")));
    assert_eq!(record.data, Some(json!({ "before": { "amount": 1 }, "after": null, "z": [1, 2.5, "ü"] })));
    assert_eq!(record.anchors, [Anchor::new("customer", "7"), Anchor::new("order", "42")]);
    assert!(record.recorded_at >= before && record.recorded_at <= world.now().await);
    assert_eq!(all(&audit, &AuditFilter::all().name("order.")).await, [record]);
    assert_eq!(audit.get(AuditId::new()).await.unwrap(), None);

    let plain = Audit::new(world.provider.audit()).write(AuditEvent::new("plain")).await.unwrap();
    let plain = audit.get(plain).await.unwrap().unwrap();
    assert_eq!((plain.outcome, plain.correlation_id, plain.data), (AuditOutcome::Succeeded, None, None));
    assert_eq!((plain.actor.as_str(), plain.anchors), (Actor::library().as_str(), vec![]));
}

async fn r30_an_event_out_of_bounds_is_refused_before_anything_is_written(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let audit = audit(&world);
    let event = || AuditEvent::new("t.event");
    let most = AuditEvent::DATA_MAX - 2;
    for (event, field) in [
        (AuditEvent::new(""), "name"),
        (AuditEvent::new("ü".repeat(256)), "name"),
        (event().correlation_id("x".repeat(256)), "correlation_id"),
        (event().data(json!("x".repeat(most + 1))), "data"),
        (event().anchor("x".repeat(65), "1"), "anchor kind"),
        (event().anchor("order", "x".repeat(513)), "anchor value"),
    ] {
        let error = audit.write(event).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)));
    }
    for actor in ["", &"x".repeat(256)] {
        let error = audit.by(actor).write(event()).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("actor")));
    }
    assert_eq!(all(&audit, &own()).await, []);
    // Up to the bounds all is well.
    let full = AuditEvent::new(format!("t.{}", "ü".repeat(253)))
        .correlation_id("ü".repeat(255))
        .data(json!("x".repeat(most)))
        .anchor("ü".repeat(64), "ü".repeat(512));
    audit.by("ü".repeat(255)).write(full).await.unwrap();
    let record = all(&audit, &own()).await.remove(0);
    assert_eq!(record.data, Some(json!("x".repeat(most))));
    assert_eq!(record.anchors, [Anchor::new("ü".repeat(64), "ü".repeat(512))]);
}

async fn r30_records_are_found_by_what_they_say(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let audit = audit(&world);
    let write = async |by: &str, event: AuditEvent| audit.by(by).write(event).await.unwrap();
    write("alice", AuditEvent::new("t.a").anchor("order", "1").correlation_id("x")).await;
    write("bob", AuditEvent::new("t.b").anchor("order", "1").anchor("order", "2")).await;
    world.advance(Duration::from_secs(3600)).await;
    let since = world.now().await - Duration::from_secs(1800);
    write("alice", AuditEvent::new("t.ab").outcome(AuditOutcome::Refused)).await;
    write("alice", AuditEvent::new("T.a").anchor("invoice", "1").correlation_id("x")).await;

    let by = async |filter: AuditFilter| -> Vec<String> {
        all(&audit, &filter).await.into_iter().map(|record| record.name).collect()
    };
    assert_eq!(by(own()).await, ["t.ab", "t.b", "t.a"], "newest first, and case matters");
    assert_eq!(by(own().name("t.a")).await, ["t.ab", "t.a"]);
    assert_eq!(by(AuditFilter::all().actor("bob")).await, ["t.b"]);
    assert_eq!(by(own().actor("alice")).await, ["t.ab", "t.a"]);
    assert_eq!(by(AuditFilter::all().anchor("order", "1")).await, ["t.b", "t.a"]);
    assert_eq!(by(AuditFilter::all().anchor("order", "2")).await, ["t.b"]);
    assert_eq!(by(AuditFilter::all().anchor("order", "1").actor("alice")).await, ["t.a"]);
    assert_eq!(by(AuditFilter::all().anchor("Order", "1")).await, [""; 0]);
    assert_eq!(by(AuditFilter::all().correlation_id("x")).await, ["T.a", "t.a"]);
    assert_eq!(by(AuditFilter::all().outcome(AuditOutcome::Refused)).await, ["t.ab"]);
    assert_eq!(by(own().outcome(AuditOutcome::Succeeded)).await, ["t.b", "t.a"]);
    assert_eq!(by(own().after(since)).await, ["t.ab"]);
    assert_eq!(by(own().before(since)).await, ["t.b", "t.a"]);
    assert_eq!(by(AuditFilter::all().anchor("order", "1").after(since)).await, [""; 0]);
    assert_eq!(by(AuditFilter::all().name("t.a%")).await, [""; 0], "nothing in a name is a pattern");
    assert_eq!(by(AuditFilter::all().actor("nobody")).await, [""; 0]);
    let wrong = AuditFilter::all().anchor("", "1");
    assert_eq!(audit.list(&wrong, AuditPage::default()).await.unwrap_err().field(), Some("anchor kind"));
}

async fn r30_records_are_paged_newest_first(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let audit = audit(&world);
    let mut written = Vec::new();
    for number in 0..7 {
        let event = AuditEvent::new("t.page").anchor("order", "1").data(json!(number));
        written.push(audit.write(event).await.unwrap());
    }
    for filter in [own(), AuditFilter::all().anchor("order", "1"), own().actor("alice")] {
        let mut found = Vec::new();
        let mut page = AuditPage { limit: 3, before: None };
        loop {
            let records = audit.list(&filter, page).await.unwrap();
            assert!(records.len() <= 3);
            let Some(last) = records.last() else { break };
            page.before = Some(last.id);
            assert!(records.is_sorted_by(|a, b| a.recorded_at >= b.recorded_at));
            found.extend(records.iter().map(|record| record.id));
        }
        let (mut found, mut wanted) = (found, written.clone());
        assert_eq!(found.len(), wanted.len(), "none twice, none missing");
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted);
    }
    for limit in [0, 1_001] {
        let error = audit.list(&own(), AuditPage { limit, before: None }).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("limit")));
    }
    // One that is gone has no place to go on from; no page must look like the last.
    let gone = AuditPage { limit: 3, before: Some(AuditId::new()) };
    let error = audit.list(&own(), gone).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("before")));
}

async fn r30_a_record_rides_on_the_applications_transaction(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let audit = audit(&world);
    let event = |name: &str| AuditEvent::new(name).anchor("order", "1").data(json!({ "a": 1 }));
    let id = fx.record(&audit, "kept", event("t.kept"), End::Commit).await.unwrap();
    let lost = fx.record(&audit, "lost", event("t.lost"), End::Rollback).await.unwrap();
    assert_eq!(fx.notes().await, ["kept"]);
    let records = all(&audit, &own()).await;
    assert_eq!(names(&records), ["t.kept"]);
    assert_eq!((records[0].id, records[0].actor.as_str()), (id, "alice"));
    assert_eq!(records[0].anchors, [Anchor::new("order", "1")]);
    assert_eq!(audit.get(lost).await.unwrap(), None);
    assert_eq!(all(&audit, &AuditFilter::all().anchor("order", "1")).await, records, "and no anchor is left");
}

async fn r30_a_record_rides_on_a_handlers_transaction(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let audit = audit(&world);
    for (name, commit) in [("t.kept", true), ("t.lost", false)] {
        let mut transaction = world.outbox.store().begin().await.unwrap();
        audit.write_in(&mut transaction, AuditEvent::new(name)).await.unwrap();
        match commit {
            true => transaction.commit().await.unwrap(),
            false => transaction.rollback().await.unwrap(),
        }
    }
    assert_eq!(names(&all(&audit, &own()).await), ["t.kept"]);
}

async fn r30_records_are_never_changed_nor_deleted(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let audit = audit(&world);
    audit.write(AuditEvent::new("t.kept").anchor("order", "1")).await.unwrap();
    let before = all(&audit, &AuditFilter::all()).await;
    let told = fx.tamper_with_audit(&mainstay_core::store::Names::default()).await;
    assert!(told.len() >= 4, "{told:?}");
    for attempt in &told {
        assert!(attempt.as_ref().is_some_and(|text| text.contains("append-only")), "{told:?}");
    }
    assert_eq!(all(&audit, &AuditFilter::all()).await, before);
    // Nor is one that is there already written over.
    let mut again = AuditEvent::new("t.again").prepare(&Actor::from("mallory")).unwrap();
    again.id = before[0].id;
    assert!(audit.store().write(&again).await.is_err());
    assert_eq!(all(&audit, &AuditFilter::all()).await, before);
}

async fn r30_the_trail_is_kept_for_ever_unless_told_otherwise(fx: &dyn Fixture) {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let world = World::open(fx).await;
    let audit = audit(&world);
    for _ in 0..3 {
        audit.write(AuditEvent::new("t.old").anchor("order", "1")).await.unwrap();
    }
    world.advance(400 * DAY).await;
    audit.write(AuditEvent::new("t.new").anchor("order", "1")).await.unwrap();
    assert_eq!(audit.purge(&AuditRetention::default()).await.unwrap(), 0);
    assert_eq!(all(&audit, &own()).await.len(), 4);
    let year = AuditRetention::default().age(Some(365 * DAY)).batch(2);
    // The deployment's own record is as old.
    assert_eq!(audit.purge(&year).await.unwrap(), 4);
    assert_eq!(names(&all(&audit, &own()).await), ["t.new"]);
    assert_eq!(all(&audit, &AuditFilter::all().anchor("order", "1")).await.len(), 1);
    // Whoever shortens the trail is in it.
    let told = all(&audit, &AuditFilter::all().name("audit.purge")).await;
    assert_eq!(told.len(), 2, "one for each batch");
    assert!(told.iter().all(|record| record.actor == "alice"));
    assert_eq!(told[0].data.as_ref().unwrap()["count"], json!(2));
    assert_eq!(audit.purge(&year).await.unwrap(), 0);
    let error = audit.purge(&year.batch(0)).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("batch")));
    // The door is shut again behind the purge.
    let told = fx.tamper_with_audit(&mainstay_core::store::Names::default()).await;
    assert!(told.iter().all(Option::is_some), "{told:?}");
}

async fn r30_names_and_texts_of_any_kind_are_kept(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let odd = r#"'; drop table x; -- "\ {a,NULL} 📦 %_"#;
    let audit = audit(&world).by(odd);
    let event =
        AuditEvent::new(odd).anchor(odd, odd).correlation_id(odd).data(json!({ odd: odd, "nul": "a\0b" }));
    let id = audit.write(event).await.unwrap();
    let record = audit.get(id).await.unwrap().unwrap();
    assert_eq!((record.name.as_str(), record.actor.as_str()), (odd, odd));
    assert_eq!(record.anchors, [Anchor::new(odd, odd)]);
    assert_eq!(record.data, Some(json!({ odd: odd, "nul": "a\0b" })));
    for filter in [
        AuditFilter::all().name(odd),
        AuditFilter::all().actor(odd),
        AuditFilter::all().anchor(odd, odd),
        AuditFilter::all().correlation_id(odd),
    ] {
        assert_eq!(all(&audit, &filter).await, std::slice::from_ref(&record));
    }
}

async fn r30_time_is_the_databases(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let audit = audit(&world);
    let before = world.now().await;
    audit.write(AuditEvent::new("t.one")).await.unwrap();
    audit.write(AuditEvent::new("t.two")).await.unwrap();
    let after = world.now().await;
    let records = all(&audit, &own()).await;
    assert_eq!(names(&records), ["t.two", "t.one"]);
    assert!(records.iter().all(|record| record.recorded_at >= before && record.recorded_at <= after));
}
