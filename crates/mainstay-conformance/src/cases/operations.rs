//! Operations: what is recorded of them is found again, and an end is an end.

use std::time::Duration;

use futures_util::future::join_all;
use mainstay_core::ErrorKind;
use mainstay_core::audit::{Audit, AuditFilter, AuditPage};
use mainstay_core::operation::{
    Ended, EventPage, NewEvent, NewOperation, Operation, OperationEnd, OperationFilter, OperationId,
    OperationPage, OperationRetention, OperationState, Operations, Progress,
};
use serde_json::json;

use crate::case::cases;
use crate::fixture::{End, Fixture};
use crate::world::World;

cases! { $ operations_cases:
    r30_an_operation_is_found_as_it_was_started ["R30"],
    r30_progress_is_recorded_and_what_is_not_given_stays ["R30"],
    r30_events_are_numbered_and_paged ["R30"],
    r30_an_operation_ends_once ["R30"],
    r30_nothing_is_recorded_after_the_end ["R30"],
    r30_of_many_who_end_an_operation_one_does ["R30"],
    r30_an_end_and_a_stall_do_not_both_happen ["R30"],
    r30_events_of_many_are_all_counted ["R30"],
    r30_operations_are_found_by_what_they_say ["R30"],
    r30_operations_are_paged_newest_first ["R30"],
    r30_parts_name_the_whole ["R30"],
    r30_silent_operations_are_found_and_given_up ["R30"],
    r30_an_operation_out_of_bounds_is_refused_before_anything_is_written ["R30"],
    r30_operations_keep_texts_of_any_kind ["R30", "MST-022"],
    r30_an_operation_rides_on_the_applications_transaction ["R30"],
    r30_an_operation_rides_on_a_handlers_transaction ["R30", "MST-030"],
    r30_ended_operations_are_forgotten_past_their_age ["R30", "R29"],
}

fn operations(world: &World<'_>) -> Operations {
    Operations::new(world.provider.operations()).by("alice")
}

async fn get(operations: &Operations, id: OperationId) -> Operation {
    operations.get(id).await.unwrap().unwrap()
}

async fn all(operations: &Operations, filter: &OperationFilter) -> Vec<Operation> {
    operations.list(filter, OperationPage::default()).await.unwrap()
}

async fn r30_an_operation_is_found_as_it_was_started(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    let before = world.now().await;
    let new = NewOperation::new("import").total(7).message("reading").correlation_id("request-1");
    let id = operations.start(new.tag("tenant", "7").tag("file", "a.csv")).await.unwrap();
    let found = get(&operations, id).await;
    assert_eq!((found.id, found.name.as_str(), found.actor.as_str()), (id, "import", "alice"));
    assert_eq!((found.state, found.parent, found.events), (OperationState::Running, None, 0));
    assert_eq!(found.progress, Progress { done: None, ..Progress::alive().of(7).message("reading") });
    assert_eq!((found.error, found.correlation_id.as_deref()), (None, Some("request-1")));
    let tags: Vec<_> = found.tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(tags, [("file", "a.csv"), ("tenant", "7")]);
    assert!(found.started_at >= before && found.started_at <= world.now().await);
    assert_eq!((found.updated_at, found.ended_at), (found.started_at, None));
    assert_eq!(operations.get(OperationId::new()).await.unwrap(), None);
    let plain = operations.start(NewOperation::new("plain")).await.unwrap();
    assert_eq!(get(&operations, plain).await.tags.len(), 0);
}

async fn r30_progress_is_recorded_and_what_is_not_given_stays(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    let id = operations.start(NewOperation::new("import").total(7)).await.unwrap();
    operations.progress(id, Progress::done(1).message("one")).await.unwrap();
    assert_eq!(get(&operations, id).await.progress, Progress::done(1).of(7).message("one"));
    operations.progress(id, Progress::done(0).of(9)).await.unwrap();
    assert_eq!(get(&operations, id).await.progress, Progress::done(0).of(9).message("one"));
    // A sign of life is nothing but that.
    world.advance(Duration::from_secs(60)).await;
    let before = get(&operations, id).await;
    operations.heartbeat(id).await.unwrap();
    let after = get(&operations, id).await;
    assert_eq!((&after.progress, after.started_at), (&before.progress, before.started_at));
    assert!(after.updated_at > before.updated_at);
    let most = i64::MAX.unsigned_abs();
    operations.progress(id, Progress::done(most).of(most)).await.unwrap();
    assert_eq!(get(&operations, id).await.progress.done, Some(most));
    let error = operations.heartbeat(OperationId::new()).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::NotFound, Some("id")));
}

async fn r30_events_are_numbered_and_paged(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    let id = operations.start(NewOperation::new("import")).await.unwrap();
    let other = operations.start(NewOperation::new("import")).await.unwrap();
    for number in 1..=5 {
        let event = NewEvent::new("page").message(format!("page {number}")).data(json!({ "n": number }));
        assert_eq!(operations.event(id, event).await.unwrap(), number);
    }
    assert_eq!(operations.event(other, NewEvent::new("plain")).await.unwrap(), 1);
    assert_eq!(get(&operations, id).await.events, 5);
    let mut page = EventPage { limit: 2, after: 0 };
    let mut found = Vec::new();
    loop {
        let events = operations.events(id, page).await.unwrap();
        assert!(events.len() <= 2);
        let Some(last) = events.last() else { break };
        page.after = last.seq;
        found.extend(events);
    }
    assert_eq!(found.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!((found[2].kind.as_str(), found[2].message.as_deref()), ("page", Some("page 3")));
    assert_eq!(found[2].data, Some(json!({ "n": 3 })));
    let plain = operations.events(other, EventPage::default()).await.unwrap();
    assert_eq!((plain.len(), &plain[0].message, &plain[0].data), (1, &None, &None));
    assert_eq!(operations.events(OperationId::new(), EventPage::default()).await.unwrap(), []);
    let error = operations.event(OperationId::new(), NewEvent::new("page")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

async fn r30_an_operation_ends_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    let ends = [OperationEnd::Succeeded, OperationEnd::failed("no room"), OperationEnd::Cancelled];
    for first in &ends {
        let id = operations.start(NewOperation::new("import")).await.unwrap();
        assert_eq!(operations.end(id, first.clone()).await.unwrap(), Ended::Now);
        let ended = get(&operations, id).await;
        assert_eq!((ended.state, &ended.error), (first.state(), &first.error()));
        assert!(ended.ended_at.is_some_and(|at| at >= ended.started_at));
        for again in &ends {
            let told = operations.end(id, again.clone()).await.unwrap();
            assert_eq!(told, Ended::Before(first.state()), "the first end stays");
        }
        assert_eq!(get(&operations, id).await, ended);
    }
    let error = operations.succeed(OperationId::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

async fn r30_nothing_is_recorded_after_the_end(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    for end in [OperationEnd::Succeeded, OperationEnd::failed("x"), OperationEnd::Cancelled] {
        let id = operations.start(NewOperation::new("import")).await.unwrap();
        operations.event(id, NewEvent::new("page")).await.unwrap();
        let _ = operations.end(id, end).await.unwrap();
        let before = get(&operations, id).await;
        let refused = [
            operations.progress(id, Progress::done(9)).await.unwrap_err(),
            operations.heartbeat(id).await.unwrap_err(),
            operations.event(id, NewEvent::new("late")).await.unwrap_err(),
        ];
        for error in refused {
            assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("operation")));
            assert!(error.message().contains(before.state.as_str()), "{error}");
        }
        assert_eq!(get(&operations, id).await, before);
        assert_eq!(operations.events(id, EventPage::default()).await.unwrap().len(), 1);
    }
}

async fn r30_of_many_who_end_an_operation_one_does(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let first = operations(&world);
    let second = Operations::new(fx.second().await.operations());
    for _ in 0..5 {
        let id = first.start(NewOperation::new("import")).await.unwrap();
        let ends = (0..12).map(|number| {
            let operations = if number % 2 == 0 { first.clone() } else { second.clone() };
            let end = match number % 3 {
                0 => OperationEnd::Succeeded,
                1 => OperationEnd::failed(number),
                _ => OperationEnd::Cancelled,
            };
            tokio::spawn(async move { (end.clone(), operations.end(id, end).await.unwrap()) })
        });
        let told: Vec<_> = join_all(ends).await.into_iter().map(Result::unwrap).collect();
        let winners: Vec<_> = told.iter().filter(|(_, ended)| *ended == Ended::Now).collect();
        assert_eq!(winners.len(), 1, "{told:?}");
        let winner = &winners[0].0;
        let found = get(&first, id).await;
        assert_eq!((found.state, found.error), (winner.state(), winner.error()));
        for (_, ended) in told.iter().filter(|(_, ended)| *ended != Ended::Now) {
            assert_eq!(*ended, Ended::Before(winner.state()));
        }
    }
}

async fn r30_an_end_and_a_stall_do_not_both_happen(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let first = operations(&world);
    let second = Operations::new(fx.second().await.operations());
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(first.start(NewOperation::new("import")).await.unwrap());
    }
    world.advance(Duration::from_secs(600)).await;
    let marking = tokio::spawn(async move { second.mark_stalled(Duration::from_secs(300)).await.unwrap() });
    let ends = ids.iter().map(|id| {
        let (operations, id) = (first.clone(), *id);
        tokio::spawn(async move { (id, operations.succeed(id).await.unwrap()) })
    });
    let ended = join_all(ends).await;
    let marked = marking.await.unwrap();
    for (id, ended) in ended.into_iter().map(Result::unwrap) {
        let state = get(&first, id).await.state;
        match ended {
            Ended::Now => assert_eq!((state, marked.contains(&id)), (OperationState::Succeeded, false)),
            Ended::Before(before) => {
                assert_eq!((before, state), (OperationState::Stalled, OperationState::Stalled));
                assert!(marked.contains(&id));
            }
        }
    }
}

async fn r30_events_of_many_are_all_counted(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let first = operations(&world);
    let second = Operations::new(fx.second().await.operations());
    let id = first.start(NewOperation::new("import")).await.unwrap();
    let events = (0..20).map(|number| {
        let operations = if number % 2 == 0 { first.clone() } else { second.clone() };
        tokio::spawn(async move { operations.event(id, NewEvent::new("page")).await.unwrap() })
    });
    let mut numbers: Vec<_> = join_all(events).await.into_iter().map(Result::unwrap).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
    assert_eq!(get(&first, id).await.events, 20);
}

async fn r30_operations_are_found_by_what_they_say(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    let start = async |new: NewOperation| operations.start(new).await.unwrap();
    let a = start(NewOperation::new("t.a").tag("tenant", "1").correlation_id("x")).await;
    let b = start(NewOperation::new("t.b").tag("tenant", "1").tag("kind", "big")).await;
    world.advance(Duration::from_secs(3_600)).await;
    let since = world.now().await - Duration::from_secs(1_800);
    let ab = start(NewOperation::new("t.ab").tag("tenant", "2").parent(a)).await;
    let upper = start(NewOperation::new("T.a").correlation_id("x")).await;
    let _ = operations.succeed(b).await.unwrap();
    let _ = operations.fail(ab, "x").await.unwrap();

    let by = async |filter: OperationFilter| -> Vec<OperationId> {
        all(&operations, &filter).await.into_iter().map(|one| one.id).collect()
    };
    let any = OperationFilter::all;
    assert_eq!(by(any()).await, [upper, ab, b, a], "newest first");
    assert_eq!(by(any().name("t.")).await, [ab, b, a], "case matters");
    assert_eq!(by(any().name("t.a")).await, [ab, a]);
    assert_eq!(by(any().name("t.a%")).await, [], "nothing in a name is a pattern");
    assert_eq!(by(any().name("")).await.len(), 4);
    assert_eq!(by(any().state(OperationState::Running)).await, [upper, a]);
    assert_eq!(by(any().state(OperationState::Failed)).await, [ab]);
    assert_eq!(by(any().state(OperationState::Stalled)).await, []);
    assert_eq!(by(any().tag("tenant", "1")).await, [b, a]);
    assert_eq!(by(any().tag("tenant", "1").state(OperationState::Running)).await, [a]);
    assert_eq!(by(any().tag("tenant", "1").name("t.b")).await, [b]);
    assert_eq!(by(any().tag("tenant", "1").after(since)).await, []);
    assert_eq!(by(any().tag("Tenant", "1")).await, []);
    assert_eq!(by(any().tag("kind", "1")).await, []);
    assert_eq!(by(any().correlation_id("x")).await, [upper, a]);
    assert_eq!(by(any().parent(a)).await, [ab]);
    assert_eq!(by(any().after(since)).await, [upper, ab]);
    assert_eq!(by(any().before(since)).await, [b, a]);
}

async fn r30_operations_are_paged_newest_first(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    let whole = operations.start(NewOperation::new("whole")).await.unwrap();
    let mut started = Vec::new();
    for _ in 0..7 {
        let new = NewOperation::new("t.page").tag("tenant", "1").parent(whole);
        started.push(operations.start(new).await.unwrap());
    }
    started.sort();
    let any = OperationFilter::all;
    for filter in [any().name("t."), any().tag("tenant", "1"), any().parent(whole)] {
        let mut found = Vec::new();
        let mut page = OperationPage { limit: 3, before: None };
        loop {
            let some = operations.list(&filter, page).await.unwrap();
            assert!(some.len() <= 3);
            let Some(last) = some.last() else { break };
            page.before = Some(last.id);
            assert!(some.is_sorted_by(|a, b| a.started_at >= b.started_at));
            found.extend(some.iter().map(|one| one.id));
        }
        found.sort();
        assert_eq!(found, started, "none twice, none missing");
    }
    for limit in [0, 1_001] {
        let listed = operations.list(&any(), OperationPage { limit, before: None }).await.unwrap_err();
        let events = operations.events(whole, EventPage { limit, after: 0 }).await.unwrap_err();
        let stalled = operations.stalled(Duration::from_secs(1), limit).await.unwrap_err();
        for error in [listed, events, stalled] {
            assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("limit")));
        }
    }
}

async fn r30_parts_name_the_whole(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    let whole = operations.start(NewOperation::new("whole")).await.unwrap();
    let part = operations.start(NewOperation::new("part").parent(whole)).await.unwrap();
    let grandchild = operations.start(NewOperation::new("part of part").parent(part)).await.unwrap();
    assert_eq!(get(&operations, part).await.parent, Some(whole));
    let children = async |id| -> Vec<OperationId> {
        let found = operations.children(id, OperationPage::default()).await.unwrap();
        found.into_iter().map(|one| one.id).collect()
    };
    assert_eq!((children(whole).await, children(part).await), (vec![part], vec![grandchild]));
    assert_eq!(children(grandchild).await, []);
    // The end of the whole is not that of its parts, and one that has ended can get further parts.
    let _ = operations.succeed(whole).await.unwrap();
    assert_eq!(get(&operations, part).await.state, OperationState::Running);
    let late = operations.start(NewOperation::new("late").parent(whole).tag("k", "v")).await.unwrap();
    assert_eq!(children(whole).await, [late, part]);
    let nobody = NewOperation::new("orphan").parent(OperationId::new()).tag("k", "orphan");
    let error = operations.start(nobody).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::NotFound, Some("parent")));
    assert_eq!(all(&operations, &OperationFilter::all()).await.len(), 4);
    assert_eq!(all(&operations, &OperationFilter::all().tag("k", "orphan")).await, []);
}

async fn r30_silent_operations_are_found_and_given_up(fx: &dyn Fixture) {
    const MINUTE: Duration = Duration::from_secs(60);
    let world = World::open(fx).await;
    let operations = operations(&world);
    let start = async |name: &str| operations.start(NewOperation::new(name)).await.unwrap();
    let (ended, alive, told, dead) =
        (start("ended").await, start("alive").await, start("told").await, start("dead").await);
    let _ = operations.succeed(ended).await.unwrap();
    world.advance(MINUTE).await;
    let deader = start("younger").await;
    world.advance(10 * MINUTE).await;
    operations.heartbeat(alive).await.unwrap();
    operations.event(told, NewEvent::new("page")).await.unwrap();

    let silent = operations.stalled(5 * MINUTE, 10).await.unwrap();
    assert_eq!(
        silent.iter().map(|one| one.id).collect::<Vec<_>>(),
        [dead, deader],
        "the longest silent first"
    );
    assert_eq!(operations.stalled(5 * MINUTE, 1).await.unwrap().len(), 1);
    assert_eq!(operations.stalled(20 * MINUTE, 10).await.unwrap(), []);
    assert_eq!(operations.stalled(Duration::MAX, 10).await.unwrap(), []);
    assert_eq!(get(&operations, dead).await.state, OperationState::Running, "looking changes nothing");

    let marked = operations.by("bob").mark_stalled(5 * MINUTE).await.unwrap();
    assert_eq!(marked, [dead, deader]);
    let after = get(&operations, dead).await;
    assert_eq!((after.state, after.updated_at), (OperationState::Stalled, silent[0].updated_at));
    assert!(after.ended_at.is_some_and(|at| at > after.updated_at));
    assert_eq!(operations.mark_stalled(5 * MINUTE).await.unwrap(), []);
    // Whoever comes back is told, and the end stays.
    let error = operations.heartbeat(dead).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("operation")));
    assert_eq!(operations.succeed(dead).await.unwrap(), Ended::Before(OperationState::Stalled));
    assert_eq!(get(&operations, alive).await.state, OperationState::Running);

    // What was done by hand is in the trail, once, and says of what.
    let audit = Audit::new(world.provider.audit());
    let filter = AuditFilter::all().anchor("operation", dead.to_string());
    let records = audit.list(&filter, AuditPage::default()).await.unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].name.as_str(), records[0].actor.as_str()), ("operation.mark_stalled", "bob"));
    let data = records[0].data.as_ref().unwrap();
    assert_eq!((&data["count"], &data["items"][0]["id"]), (&json!(2), &json!(dead)));
    assert_eq!(data["items"][0]["before"], json!({ "state": "running" }));
    assert_eq!(data["items"][0]["after"], json!({ "state": "stalled" }));
    for error in [
        operations.stalled(Duration::ZERO, 10).await.unwrap_err(),
        operations.mark_stalled(Duration::ZERO).await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("silence")));
    }
}

async fn r30_an_operation_out_of_bounds_is_refused_before_anything_is_written(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    let new = || NewOperation::new("t");
    let many = (0..33).fold(new(), |new, n| new.tag(n.to_string(), "x"));
    for (new, field) in [
        (NewOperation::new(""), "name"),
        (NewOperation::new("ü".repeat(256)), "name"),
        (NewOperation::new("a\0b"), "name"),
        (new().correlation_id("x".repeat(256)), "correlation_id"),
        (new().total(u64::MAX), "total"),
        (new().tag("", "1"), "tag key"),
        (new().tag("x".repeat(65), "1"), "tag key"),
        (new().tag("k", ""), "tag value"),
        (new().tag("k", "a\0b"), "tag value"),
        (many, "tags"),
    ] {
        let error = operations.start(new).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)));
    }
    let error = operations.by("").start(new()).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("actor")));
    let error = operations.by("").mark_stalled(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("actor")));
    assert_eq!(all(&operations, &OperationFilter::all()).await, []);

    // Up to the bounds all is well, and texts for people are cut.
    let full = (0..31).fold(NewOperation::new("ü".repeat(255)), |new, n| new.tag(n.to_string(), "x"));
    let full = full.tag("ü".repeat(64), "ü".repeat(255)).correlation_id("ü".repeat(255));
    let id = operations.start(full.message("ü".repeat(5_000))).await.unwrap();
    let found = get(&operations, id).await;
    assert_eq!((found.tags.len(), found.progress.message), (32, Some("ü".repeat(2_048))));
    for (event, field) in [
        (NewEvent::new(""), "kind"),
        (NewEvent::new("x".repeat(65)), "kind"),
        (NewEvent::new("k").data(json!("x".repeat(NewEvent::DATA_MAX - 1))), "data"),
    ] {
        let error = operations.event(id, event).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)));
    }
    let error = operations.progress(id, Progress::done(u64::MAX)).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("done")));
    let most = json!("x".repeat(NewEvent::DATA_MAX - 2));
    let event = NewEvent::new("ü".repeat(64)).message("ü".repeat(5_000)).data(most.clone());
    assert_eq!(operations.event(id, event).await.unwrap(), 1);
    let events = operations.events(id, EventPage::default()).await.unwrap();
    assert_eq!((&events[0].message, &events[0].data), (&Some("ü".repeat(2_048)), &Some(most)));
    let _ = operations.fail(id, "ü".repeat(5_000)).await.unwrap();
    assert_eq!(get(&operations, id).await.error, Some("ü".repeat(2_048)));
}

async fn r30_operations_keep_texts_of_any_kind(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let odd = r#"'; drop table x; -- "\ {a,NULL} 📦 %_"#;
    let operations = operations(&world).by(odd);
    let new = NewOperation::new(odd).message(odd).correlation_id(odd).tag(odd, odd);
    let id = operations.start(new).await.unwrap();
    operations.progress(id, Progress::done(1).message("a\0b")).await.unwrap();
    let event = NewEvent::new(odd).message(odd).data(json!({ odd: odd, "nul": "a\0b" }));
    operations.event(id, event).await.unwrap();
    let _ = operations.fail(id, format!("{odd}\0")).await.unwrap();
    let found = get(&operations, id).await;
    assert_eq!((found.name.as_str(), found.actor.as_str()), (odd, odd));
    assert_eq!(found.progress.message.as_deref(), Some("a\u{fffd}b"));
    assert_eq!(found.error, Some(format!("{odd}\u{fffd}")));
    assert_eq!(found.tags.get(odd).map(String::as_str), Some(odd));
    let events = operations.events(id, EventPage::default()).await.unwrap();
    assert_eq!((events[0].kind.as_str(), events[0].message.as_deref()), (odd, Some(odd)));
    assert_eq!(events[0].data, Some(json!({ odd: odd, "nul": "a\0b" })));
    let any = OperationFilter::all;
    for filter in [any().name(odd), any().tag(odd, odd), any().correlation_id(odd)] {
        assert_eq!(all(&operations, &filter).await, std::slice::from_ref(&found));
    }
    for (filter, field) in [
        (any().name("a\0b"), "name"),
        (any().correlation_id("a\0b"), "correlation_id"),
        (any().tag("a\0b", "x"), "tag key"),
    ] {
        let error = operations.list(&filter, OperationPage::default()).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)));
    }
}

async fn r30_an_operation_rides_on_the_applications_transaction(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    let new = |name: &str| NewOperation::new(name).tag("tenant", "1");
    let kept = fx.track(&operations, "kept", new("kept"), End::Commit).await.unwrap();
    let lost = fx.track(&operations, "lost", new("lost"), End::Rollback).await.unwrap();
    assert_eq!(fx.notes().await, ["kept"]);
    let found = get(&operations, kept).await;
    assert_eq!((found.name.as_str(), found.state), ("kept", OperationState::Succeeded));
    assert_eq!(operations.get(lost).await.unwrap(), None);
    assert_eq!(all(&operations, &OperationFilter::all().tag("tenant", "1")).await, [found]);
}

async fn r30_an_operation_rides_on_a_handlers_transaction(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let operations = operations(&world);
    let id = operations.start(NewOperation::new("import")).await.unwrap();
    for commit in [false, true] {
        let mut transaction = world.outbox.store().begin().await.unwrap();
        assert_eq!(operations.event_in(&mut transaction, id, NewEvent::new("page")).await.unwrap(), 1);
        let end = operations.end_in(&mut transaction, id, OperationEnd::Succeeded).await.unwrap();
        assert_eq!(end, Ended::Now);
        let part = NewOperation::new("part").parent(id);
        operations.start_in(&mut transaction, part).await.unwrap();
        match commit {
            true => transaction.commit().await.unwrap(),
            false => transaction.rollback().await.unwrap(),
        }
        let found = get(&operations, id).await;
        assert_eq!((found.state.is_terminal(), found.events), (commit, u64::from(commit)));
        let parts = operations.children(id, OperationPage::default()).await.unwrap();
        assert_eq!(parts.len(), usize::from(commit));
    }
}

async fn r30_ended_operations_are_forgotten_past_their_age(fx: &dyn Fixture) {
    const DAY: Duration = Duration::from_secs(24 * 3_600);
    let world = World::open(fx).await;
    let operations = operations(&world);
    let start = async || {
        let id = operations.start(NewOperation::new("old").tag("tenant", "1")).await.unwrap();
        operations.event(id, NewEvent::new("page")).await.unwrap();
        id
    };
    let running = start().await;
    let mut old = Vec::new();
    for _ in 0..3 {
        let id = start().await;
        let _ = operations.succeed(id).await.unwrap();
        old.push(id);
    }
    world.advance(40 * DAY).await;
    let young = start().await;
    let _ = operations.fail(young, "x").await.unwrap();
    let retention = OperationRetention::default().batch(2);
    assert_eq!(operations.purge(&retention.ended(None)).await.unwrap(), 0);
    assert_eq!(operations.purge(&retention).await.unwrap(), 3);
    let left: Vec<_> =
        all(&operations, &OperationFilter::all()).await.into_iter().map(|one| one.id).collect();
    assert_eq!(left, [young, running], "what runs is never deleted");
    assert_eq!(all(&operations, &OperationFilter::all().tag("tenant", "1")).await.len(), 2);
    assert_eq!(operations.events(old[0], EventPage::default()).await.unwrap(), []);
    assert_eq!(operations.purge(&retention).await.unwrap(), 0);
    let audit = Audit::new(world.provider.audit());
    let told = audit.list(&AuditFilter::all().name("operation.purge"), AuditPage::default()).await.unwrap();
    assert_eq!(told.len(), 2, "one for each batch");
    assert!(told.iter().all(|record| record.actor == "alice"));
    let error = operations.purge(&retention.batch(0)).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("batch")));
}
