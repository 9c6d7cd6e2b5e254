//! What is done by hand to joins and fan-outs leaves a record, and every record belongs to what its actor says.

use std::time::Duration;

use mainstay_core::audit::{Actor, Anchor, Audit, AuditFilter, AuditPage};
use mainstay_core::fanout::FanoutChange;
use mainstay_core::inbox::{Inbox, InboxKey, InboxRetention, Incoming};
use mainstay_core::job::JobDefinition;
use mainstay_core::join::{JoinMode, JoinRetention, JoinState, MemberState, NewJoin, Reported, Step};
use mainstay_core::lease::Leases;
use mainstay_core::operation::{NewOperation, OperationRetention, Operations};
use mainstay_core::outbox::{Limits, Message, MessageFilter, OnFailure, Retention};
use mainstay_core::queue::Status;
use mainstay_core::store::Names;
use mainstay_core::timer::NewTimer;
use mainstay_core::{ErrorKind, JoinId, OwnerToken, WorkItemId};
use serde_json::{Value, json};

use crate::case::{Verdict, cases};
use crate::fixture::Fixture;
use crate::world::{TOPIC, World, handles};

use super::administration::{BY, data, item, only, records};
use super::fanout::{definition, end_slices, fanout, pass, shards};
use super::joins::of;

cases! { $ recording_cases:
    r30_a_cancelled_join_leaves_a_record ["R30"],
    r30_a_step_reported_by_hand_leaves_a_record_and_one_of_the_application_does_not ["R30"],
    r30_a_join_started_by_hand_leaves_a_record_and_one_of_the_application_does_not ["R30"],
    r30_steps_attached_by_hand_leave_a_record_and_those_of_the_application_do_not ["R30"],
    r30_a_join_started_by_hand_in_a_transaction_is_recorded_with_it ["R30"],
    r30_a_registered_fan_out_leaves_a_record_when_it_is_new_or_changes ["R30"],
    r30_two_who_register_a_fan_out_at_once_are_recorded_in_turn ["R30"],
    r30_a_changed_fan_out_leaves_a_record ["R30"],
    r30_a_run_of_a_fan_out_that_is_asked_for_leaves_a_record ["R30"],
    r30_added_and_forgotten_shards_leave_a_record_and_planned_ones_do_not ["R30"],
    r30_joins_and_fan_outs_that_do_not_change_leave_no_record ["R30"],
    r30_joins_and_fan_outs_whose_record_is_refused_do_not_change ["R30"],
    r30_functions_of_joins_and_fan_outs_record_what_other_languages_do ["R30"],
    r30_every_record_belongs_to_what_its_actor_says ["R30"],
    r30_a_correlation_id_is_the_transaction_s_in_other_languages ["R30"],
    join_013_only_messages_of_the_outbox_are_steps_of_joins ["JOIN-013"],
}

async fn r30_a_cancelled_join_leaves_a_record(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let join = joins.start(NewJoin::new(3)).await.unwrap();
    let reported = WorkItemId::new();
    joins.attach(join, &[reported]).await.unwrap();
    joins.report(join, reported, Step::Failed).await.unwrap();
    let waits = world.enqueue(Message::new(TOPIC, "SECRET").join(join)).await;
    assert!(joins.by(BY).cancel(join).await.unwrap().changed);
    let record = only(&world, "join.cancel").await;
    assert_eq!(
        record.anchors,
        [Anchor::new("join", join.to_string()), Anchor::new("outbox", waits.to_string())]
    );
    let after = json!({ "status": "failed", "reason": "cancelled" });
    let wanted = json!({
        "before": { "state": "pending", "completed": 0, "failed": 1 },
        "after": { "state": "cancelled" },
        "count": 1,
        "items": [item(waits, TOPIC, json!({ "status": "ready" }), after)],
    });
    assert_eq!(*data(&record), wanted);
    // Its messages are part of that, and not cancelled by somebody once more.
    assert!(records(&world, "outbox.").await.is_empty());
    // Without steps, and by nobody in particular.
    let other = joins.start(NewJoin::new(1)).await.unwrap();
    joins.cancel(other).await.unwrap();
    let told = records(&world, "join.cancel").await;
    assert_eq!((told.len(), told[0].actor.as_str()), (2, Actor::library().as_str()));
    assert_eq!((&data(&told[0])["count"], &data(&told[0])["items"]), (&json!(0), &json!([])));
}

async fn r30_a_step_reported_by_hand_leaves_a_record_and_one_of_the_application_does_not(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let join = joins.start(NewJoin::new(3)).await.unwrap();
    let steps = [WorkItemId::new(), WorkItemId::new(), WorkItemId::new()];
    joins.attach(join, &steps).await.unwrap();
    joins.report(join, steps[0], Step::Completed).await.unwrap();
    assert!(records(&world, "join.").await.is_empty());
    let by_hand = joins.by(BY);
    assert!(matches!(by_hand.report(join, steps[1], Step::Failed).await.unwrap(), Reported::Counted(_)));
    let record = only(&world, "join.report").await;
    assert_eq!(
        record.anchors,
        [Anchor::new("join", join.to_string()), Anchor::new("step", steps[1].to_string())]
    );
    let wanted = json!({
        "step": steps[1], "before": { "state": "pending" }, "after": { "state": "failed" },
    });
    assert_eq!(*data(&record), wanted);
    // What is not counted is not told.
    for step in [steps[0], steps[1]] {
        assert_eq!(by_hand.report(join, step, Step::Completed).await.unwrap(), Reported::Already);
    }
    let unknown = by_hand.report(join, WorkItemId::new(), Step::Completed).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    joins.cancel(join).await.unwrap();
    let late = by_hand.report(join, steps[2], Step::Completed).await.unwrap();
    assert_eq!(late, Reported::Ended(JoinState::Cancelled));
    only(&world, "join.report").await;
}

async fn r30_a_join_started_by_hand_leaves_a_record_and_one_of_the_application_does_not(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let of_application = joins.start(NewJoin::new(3).on_completed(Message::new(TOPIC, ""))).await.unwrap();
    assert!(records(&world, "join.").await.is_empty());
    let by_hand = joins.by(BY);
    let order = || {
        NewJoin::new(5)
            .mode(JoinMode::Quorum(3))
            .grouping_key("order-7")
            .deadline_in(Duration::from_secs(60))
            .on_completed(Message::new("ready", "SECRET"))
            .on_failed(Message::new("stuck", "SECRET"))
    };
    let join = by_hand.start(order()).await.unwrap();
    let record = only(&world, "join.start").await;
    assert_eq!(record.anchors, [Anchor::new("join", join.to_string())]);
    let wanted = json!({
        "before": null,
        "after": {
            "expected": 5, "needed": 3, "mode": "quorum", "grouping_key": "order-7", "deadline_at": null, "deadline_in_seconds": 60.0,
            "on_completed": "ready", "on_failed": "stuck",
        },
    });
    let told = data(&record);
    assert_eq!(told["after"]["deadline_in_seconds"].as_f64(), Some(60.0));
    let plain = |told: &Value| told.to_string().replace("60.0", "60");
    assert_eq!(plain(told), plain(&wanted));
    // One that is not started is not told, with or without something to follow.
    for taken in [order().id(of_application), NewJoin::new(1).id(join)] {
        assert_eq!(by_hand.start(taken).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    only(&world, "join.start").await;
}

async fn r30_steps_attached_by_hand_leave_a_record_and_those_of_the_application_do_not(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let join = joins.start(NewJoin::new(100)).await.unwrap();
    let mut steps: Vec<_> = (0..30).map(|_| WorkItemId::new()).collect();
    joins.attach(join, &steps[..5]).await.unwrap();
    assert!(records(&world, "join.").await.is_empty());
    let by_hand = joins.by(BY);
    // Some of them are members already, and one is named twice.
    steps.push(steps[7]);
    assert_eq!(by_hand.attach(join, &steps).await.unwrap().added, 25);
    let record = only(&world, "join.attach").await;
    let told = data(&record);
    assert_eq!(told["count"], json!(25));
    let items = told["items"].as_array().unwrap();
    assert_eq!(items.len(), 20);
    let text = |step: &WorkItemId| step.to_string();
    assert!(items.iter().all(|item| steps[5..30].iter().map(text).any(|step| item == &json!(step))));
    // Each of them finds it, and nothing else does.
    assert_eq!(record.anchors[0], Anchor::new("join", join.to_string()));
    let mut wanted: Vec<_> = steps[5..30].iter().map(|step| Anchor::new("step", text(step))).collect();
    wanted.sort();
    assert_eq!(record.anchors[1..], wanted);
    // What is not attached is not told.
    assert_eq!(by_hand.attach(join, &steps).await.unwrap().added, 0);
    assert_eq!(by_hand.attach(join, &[]).await.unwrap().added, 0);
    assert_eq!(by_hand.attach(JoinId::new(), &steps).await.unwrap_err().kind(), ErrorKind::NotFound);
    joins.cancel(join).await.unwrap();
    assert!(by_hand.attach(join, &[WorkItemId::new()]).await.is_err());
    only(&world, "join.attach").await;
}

async fn r30_a_join_started_by_hand_in_a_transaction_is_recorded_with_it(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins().by(BY);
    let step = WorkItemId::new();
    for commit in [false, true] {
        let mut tx = world.outbox.store().begin().await.unwrap();
        let join = joins.start_in(&mut tx, NewJoin::new(2).on_failed(Message::new(TOPIC, ""))).await.unwrap();
        assert_eq!(joins.attach_in(&mut tx, join, &[step]).await.unwrap().added, 1);
        if commit {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
        assert_eq!(records(&world, "join.").await.len(), if commit { 2 } else { 0 });
    }
}

async fn r30_a_registered_fan_out_leaves_a_record_when_it_is_new_or_changes(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    let told = async || records(&world, "fanout.register").await;
    fanout.register(definition()).await.unwrap();
    let first = told().await;
    assert_eq!((first.len(), first[0].actor.as_str()), (1, Actor::library().as_str()));
    assert_eq!(first[0].anchors, [Anchor::new("fanout", "etl:payments")]);
    assert_eq!(data(&first[0])["before"], json!(null));
    let of_first = data(&first[0])["after"].clone();
    assert_eq!(of_first["enabled"], json!(true));
    // As every start of a program does, also where somebody has changed it since.
    fanout.set("etl", "payments", &FanoutChange::default().enabled(false)).await.unwrap();
    fanout.by(BY).register(definition()).await.unwrap();
    assert_eq!(told().await, first);
    fanout.by(BY).register(definition().cron("0 2 * * *").time_zone("Europe/Berlin")).await.unwrap();
    let record = told().await.into_iter().find(|record| record.actor == BY).unwrap();
    let mut before = of_first.clone();
    before["enabled"] = json!(false);
    let mut after = of_first;
    (after["cron"], after["time_zone"]) = (json!("0 2 * * *"), json!("Europe/Berlin"));
    assert_eq!(*data(&record), json!({ "before": before, "after": after }));
}

async fn r30_two_who_register_a_fan_out_at_once_are_recorded_in_turn(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let register = |seconds: u64| {
        let fanout = fanout(&world);
        async move { fanout.register(definition().every(Duration::from_secs(seconds))).await.unwrap() }
    };
    tokio::join!(register(60), register(120), register(180), register(60), register(120));
    // Each one's before is another's after.
    let mut told = records(&world, "fanout.register").await;
    told.reverse();
    assert_eq!(data(&told[0])["before"], json!(null));
    for pair in told.windows(2) {
        assert_eq!(data(&pair[1])["before"], data(&pair[0])["after"]);
    }
    let policy = fanout(&world).get("etl", "payments").await.unwrap().unwrap();
    assert_eq!(data(told.last().unwrap())["after"]["every_seconds"], json!(policy.every.as_secs()));
    assert_eq!(policy.version, told.len() as i64);
}

async fn r30_a_changed_fan_out_leaves_a_record(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world).by(BY);
    let before = fanout.register(definition()).await.unwrap();
    let change = FanoutChange::default()
        .every(Duration::from_secs(300))
        .jitter(Duration::from_secs(30))
        .cron(Some("0 2 * * *".to_owned()))
        .time_zone("Europe/Berlin")
        .enabled(false);
    fanout.set("etl", "payments", &change).await.unwrap();
    let record = only(&world, "fanout.set").await;
    assert_eq!(record.anchors, [Anchor::new("fanout", "etl:payments")]);
    let wanted = json!({
        "before": {
            "every_seconds": before.every.as_secs(), "jitter_seconds": before.jitter.as_secs(), "cron": before.cron,
            "time_zone": before.time_zone, "enabled": true,
        },
        "after": {
            "every_seconds": 300, "jitter_seconds": 30, "cron": "0 2 * * *", "time_zone": "Europe/Berlin", "enabled": false,
        },
    });
    assert_eq!(*data(&record), wanted);
}

async fn r30_a_run_of_a_fan_out_that_is_asked_for_leaves_a_record(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world).by(BY);
    fanout.register(definition()).await.unwrap();
    fanout.run_now("etl", "payments").await.unwrap();
    let record = only(&world, "fanout.run").await;
    assert_eq!(record.anchors, [Anchor::new("fanout", "etl:payments")]);
    let told = data(&record);
    assert_eq!(told["before"], json!({ "run_requested_at": null }));
    assert!(told["after"]["run_requested_at"].is_string(), "{told}");
}

async fn r30_added_and_forgotten_shards_leave_a_record_and_planned_ones_do_not(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world).by(BY);
    fanout.register(definition()).await.unwrap();
    // A coordinator meets shards all the time.
    assert_eq!(pass(&world, &shards(["a", "b"])).await.dispatched.len(), 2);
    assert_eq!(records(&world, "fanout.").await.len(), 1, "that it was registered");
    assert_eq!(fanout.add_shards("etl", "payments", ["b", "d", "c", "d"]).await.unwrap(), 2);
    let record = only(&world, "fanout.add_shards").await;
    let about = |shard: &str| Anchor::new("shard", format!("etl:payments:{shard}"));
    assert_eq!(record.anchors, [Anchor::new("fanout", "etl:payments"), about("c"), about("d")]);
    let told = data(&record);
    assert_eq!(told["count"], json!(2));
    let mut items: Vec<_> =
        told["items"].as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect();
    items.sort_unstable();
    assert_eq!(items, ["c", "d"]);
    // What is refused leaves none.
    assert!(fanout.forget_shard("etl", "payments", "a").await.is_err());
    assert!(records(&world, "fanout.forget_shard").await.is_empty());
    assert_eq!(end_slices(&world, false).await, 2);
    assert!(fanout.forget_shard("etl", "payments", "a").await.unwrap());
    let record = only(&world, "fanout.forget_shard").await;
    assert_eq!(record.anchors, [Anchor::new("fanout", "etl:payments"), about("a")]);
    let told = data(&record);
    assert_eq!((&told["shard"], &told["after"]), (&json!("a"), &json!(null)));
    assert_eq!(told["before"]["last_completed_at"], json!(null));
    assert!(told["before"]["slice_due_at"].is_string(), "{told}");
    // Of very many the first are told, and each is found.
    let many: Vec<_> = (0..100).map(|n| format!("{n:03}")).collect();
    assert_eq!(fanout.add_shards("etl", "payments", many).await.unwrap(), 100);
    let audit = Audit::new(world.provider.audit());
    let found = AuditFilter::all().anchor("shard", "etl:payments:099");
    let found = audit.list(&found, AuditPage::default()).await.unwrap();
    assert_eq!(data(&found[0])["count"], json!(100));
    assert_eq!(data(&found[0])["items"].as_array().unwrap().len(), 20);
}

async fn r30_joins_and_fan_outs_that_do_not_change_leave_no_record(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (joins, fanout) = (world.joins(), fanout(&world));
    let join = joins.start(NewJoin::new(1)).await.unwrap();
    joins.cancel(join).await.unwrap();
    fanout.register(definition()).await.unwrap();
    fanout.add_shards("etl", "payments", ["a"]).await.unwrap();
    let (joins, fanout) = (joins.by(BY), fanout.by(BY));
    assert!(!joins.cancel(join).await.unwrap().changed);
    assert_eq!(joins.attach(join, &[]).await.unwrap().added, 0);
    fanout.register(definition()).await.unwrap();
    assert_eq!(joins.cancel(JoinId::new()).await.unwrap_err().kind(), ErrorKind::NotFound);
    let same = FanoutChange::default().enabled(true);
    fanout.set("etl", "payments", &same).await.unwrap();
    assert_eq!(fanout.set("etl", "nobody", &same).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fanout.run_now("etl", "nobody").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fanout.add_shards("etl", "payments", ["a"]).await.unwrap(), 0);
    assert!(!fanout.forget_shard("etl", "payments", "nobody").await.unwrap());
    // Somebody else was faster.
    let mut policy = fanout.get("etl", "payments").await.unwrap().unwrap();
    policy.version -= 1;
    policy.enabled = false;
    assert_eq!(fanout.store().set(&policy, &Actor::from(BY)).await.unwrap(), None);
    let audit = Audit::new(world.provider.audit());
    assert_eq!(audit.list(&AuditFilter::all().actor(BY), AuditPage::default()).await.unwrap(), []);
}

async fn r30_joins_and_fan_outs_whose_record_is_refused_do_not_change(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (joins, fanout) = (world.joins(), fanout(&world));
    let join = joins.start(NewJoin::new(2)).await.unwrap();
    let step = WorkItemId::new();
    joins.attach(join, &[step]).await.unwrap();
    let waits = world.enqueue(Message::new(TOPIC, "").join(join)).await;
    fanout.register(definition()).await.unwrap();
    fanout.add_shards("etl", "payments", ["a"]).await.unwrap();
    let policy = fanout.get("etl", "payments").await.unwrap().unwrap();
    let before = records(&world, "").await;

    // A client refuses such a name before anything is asked of the database; here the database has to.
    let nobody = Actor::from("x".repeat(256));
    let (store, key) = (joins.store(), policy.key.clone());
    assert!(store.cancel(join, &nobody).await.is_err());
    assert!(store.run(store.reporting(join, step, Step::Completed, Some(&nobody))).await.is_err());
    let started = NewJoin::new(1).prepare(&Limits::default()).unwrap();
    assert!(store.run(store.starting(&started, Some(&nobody))).await.is_err());
    let attached = WorkItemId::new();
    assert!(store.run(store.attaching(join, &[attached], Some(&nobody))).await.is_err());
    let registered = definition().jitter(Duration::from_secs(1)).prepare().unwrap();
    assert!(fanout.store().register(&registered, &nobody).await.is_err());
    let mut other = policy.clone();
    other.enabled = false;
    assert!(fanout.store().set(&other, &nobody).await.is_err());
    assert!(fanout.store().request_run(&key, &nobody).await.is_err());
    assert!(fanout.store().add_shards(&key, &["b".to_owned()], &nobody).await.is_err());
    assert!(fanout.store().forget_shard(&key, "a", &nobody).await.is_err());

    assert_eq!(of(&joins, join).await.state, JoinState::Pending);
    assert_eq!(world.row(waits).await.status, Status::Ready);
    let members = joins.members(join, mainstay_core::join::MemberPage::default()).await.unwrap();
    assert!(
        members.iter().all(|member| member.state == MemberState::Pending && member.work_item != attached)
    );
    assert_eq!(joins.get(started.id()).await.unwrap(), None);
    assert_eq!(fanout.get("etl", "payments").await.unwrap(), Some(policy));
    assert!(fanout.cursor("etl", "payments", "a").await.unwrap().is_some());
    assert!(fanout.cursor("etl", "payments", "b").await.unwrap().is_none());
    assert_eq!(records(&world, "").await, before);
    // And the clients say it at once, in their own words.
    let error = joins.by(&nobody).cancel(join).await.unwrap_err();
    assert_eq!(error.field(), Some("actor"));
    let error = joins.by(&nobody).report(join, step, Step::Completed).await.unwrap_err();
    assert_eq!(error.field(), Some("actor"));
    let error = joins.by(&nobody).start(NewJoin::new(1)).await.unwrap_err();
    assert_eq!(error.field(), Some("actor"));
    let error = joins.by(&nobody).attach(join, &[attached]).await.unwrap_err();
    assert_eq!(error.field(), Some("actor"));
    let error = fanout.by(&nobody).register(definition()).await.unwrap_err();
    assert_eq!(error.field(), Some("actor"));
    let error = fanout.by(&nobody).run_now("etl", "payments").await.unwrap_err();
    assert_eq!(error.field(), Some("actor"));
    let lost = Actor::from(BY).correlated("x".repeat(256));
    let error = fanout.by(lost).forget_shard("etl", "payments", "a").await.unwrap_err();
    assert_eq!(error.field(), Some("correlation_id"));
}

async fn r30_functions_of_joins_and_fan_outs_record_what_other_languages_do(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        return Verdict::NotApplicable("functions");
    }
    let names = Names::default();
    let joins = world.joins();
    let nulls = [None; 14];
    let start = [&[Some("2"), None, Some("all")], nulls.as_slice()].concat();
    fx.call(&names, "joins_start", &start).await.unwrap();
    let started = fx.call(&names, "joins_start", &[start.as_slice(), &[Some(BY)]].concat()).await;
    let told = only(&world, "join.start").await;
    assert_eq!(told.anchors, [Anchor::new("join", started.unwrap().remove(0))]);
    let join = joins.start(NewJoin::new(2)).await.unwrap();
    let steps = [WorkItemId::new(), WorkItemId::new()];
    joins.attach(join, &steps).await.unwrap();
    let join = join.to_string();
    let texts = steps.map(|step| step.to_string());
    let report = |step: usize, actor: Option<&'static str>| {
        let mut arguments = vec![Some(join.as_str()), Some(texts[step].as_str()), Some("completed")];
        arguments.extend(actor.map(Some));
        arguments
    };
    fx.call(&names, "joins_report", &report(0, None)).await.unwrap();
    assert_eq!(records(&world, "join.").await.len(), 1);
    let step = format!("{{{}}}", WorkItemId::new());
    fx.call(&names, "joins_attach", &[Some(&join), Some(&step), Some(BY)]).await.unwrap();
    only(&world, "join.attach").await;
    fx.call(&names, "joins_report", &report(1, Some(BY))).await.unwrap();
    only(&world, "join.report").await;
    let other = joins.start(NewJoin::new(2)).await.unwrap().to_string();
    fx.call(&names, "joins_cancel", &[Some(&other), Some(BY)]).await.unwrap();
    only(&world, "join.cancel").await;

    let (topic, work_key) = (Some("etl"), Some("payments"));
    let register = [topic, work_key, Some("600"), Some("0"), None, Some("UTC"), Some("true"), Some(BY)];
    fx.call(&names, "fanout_register", &register).await.unwrap();
    let told = only(&world, "fanout.register").await;
    assert_eq!((&data(&told)["before"], &data(&told)["after"]["every_seconds"]), (&json!(null), &json!(600)));
    fx.call(&names, "fanout_run", &[topic, work_key, Some(BY)]).await.unwrap();
    only(&world, "fanout.run").await;
    fx.call(&names, "fanout_add_shards", &[topic, work_key, Some("{a}"), Some(BY)]).await.unwrap();
    only(&world, "fanout.add_shards").await;
    fx.call(&names, "fanout_forget_shard", &[topic, work_key, Some("a"), Some(BY)]).await.unwrap();
    only(&world, "fanout.forget_shard").await;
    let nulls = [None; 3];
    let set = [&[topic, work_key, Some("120")], nulls.as_slice(), &[Some("false"), None, Some(BY)]].concat();
    fx.call(&names, "fanout_set", &set).await.unwrap();
    let told = only(&world, "fanout.set").await;
    assert_eq!(data(&told)["after"]["every_seconds"], json!(120));
    Verdict::Passed
}

async fn r30_every_record_belongs_to_what_its_actor_says(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let by = Actor::from(BY).correlated("TICKET-42");
    let later = Duration::from_secs(3600);
    let outbox = world.outbox.by(&by);
    let first = world.enqueue(Message::new("first", "").due_in(later)).await;
    outbox.cancel(&[first]).await.unwrap();
    outbox.requeue(&[first]).await.unwrap();
    outbox.cancel(&[first]).await.unwrap();
    outbox.requeue_where(&MessageFilter::all(), 5).await.unwrap();
    outbox.cancel(&[first]).await.unwrap();
    let held = Message::new(TOPIC, "").ordering_key("k").on_failure(OnFailure::Hold);
    world.enqueue(held).await;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 1).await;
    world.outbox.fail(owner, &handles(&claimed), None).await.unwrap();
    assert!(outbox.release_key("k").await.unwrap());
    let at_once = Retention::default().done(Some(Duration::ZERO)).failed(Some(Duration::ZERO));
    assert!(outbox.purge(&at_once).await.unwrap() > 0);
    let inbox: Inbox = world.inbox.by(&by);
    world.inbox.enqueue(Incoming::new("shop", "1", Message::new(TOPIC, ""))).await.unwrap();
    inbox.mark_dead("shop", "1", None).await.unwrap();
    inbox.revive(&[InboxKey::new("shop", "1").unwrap()]).await.unwrap();
    inbox.mark_processed("shop", "1").await.unwrap();
    world.advance(8 * 24 * later).await;
    assert!(inbox.forget(&InboxRetention::default().done(Some(7 * 24 * later))).await.unwrap() > 0);
    let timer = world.schedule(NewTimer::new(TOPIC, "", later)).await;
    world.timers.by(&by).reschedule(timer, 2 * later).await.unwrap();
    world.timers.by(&by).cancel(timer).await.unwrap();
    let jobs = world.jobs().by(&by);
    jobs.create_or_update(JobDefinition::new("nightly", TOPIC, "0 2 * * *")).await.unwrap();
    jobs.disable("nightly").await.unwrap();
    jobs.trigger("nightly").await.unwrap();
    jobs.delete("nightly").await.unwrap();
    let leases = Leases::new(world.provider.leases());
    let _lease = leases.acquire("reports").await.unwrap();
    leases.by(&by).force_release("reports").await.unwrap();
    let joins = world.joins().by(&by);
    let join = joins.start(NewJoin::new(2)).await.unwrap();
    let step = WorkItemId::new();
    joins.attach(join, &[step]).await.unwrap();
    joins.report(join, step, Step::Completed).await.unwrap();
    joins.cancel(join).await.unwrap();
    let fanout = fanout(&world).by(&by);
    fanout.register(definition()).await.unwrap();
    fanout.set("etl", "payments", &FanoutChange::default().enabled(false)).await.unwrap();
    fanout.run_now("etl", "payments").await.unwrap();
    fanout.add_shards("etl", "payments", ["a"]).await.unwrap();
    fanout.forget_shard("etl", "payments", "a").await.unwrap();
    let operations = Operations::new(world.provider.operations());
    operations.start(NewOperation::new("import")).await.unwrap();
    world.advance(later).await;
    let operations = operations.by(&by);
    assert_eq!(operations.mark_stalled(later).await.unwrap().len(), 1);
    world.advance(40 * 24 * later).await;
    assert!(operations.purge(&OperationRetention::default()).await.unwrap() > 0);
    assert!(joins.purge(&JoinRetention::default()).await.unwrap() > 0);

    let audit = Audit::new(world.provider.audit());
    let of = async |filter: AuditFilter| {
        let page = AuditPage { limit: 1_000, before: None };
        audit.list(&filter, page).await.unwrap()
    };
    let told = of(AuditFilter::all().actor(BY)).await;
    for record in &told {
        assert_eq!(record.correlation_id.as_deref(), Some("TICKET-42"), "{}", record.name);
    }
    assert_eq!(of(AuditFilter::all().correlation_id("TICKET-42")).await, told);
    let mut names: Vec<_> = told.iter().map(|record| record.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let wanted = [
        "fanout.add_shards",
        "fanout.forget_shard",
        "fanout.register",
        "fanout.run",
        "fanout.set",
        "inbox.forget",
        "inbox.mark_dead",
        "inbox.mark_processed",
        "inbox.requeue",
        "job.create_or_update",
        "job.delete",
        "job.disable",
        "job.trigger",
        "join.attach",
        "join.cancel",
        "join.purge",
        "join.report",
        "join.start",
        "operation.mark_stalled",
        "operation.purge",
        "lease.force_release",
        "outbox.cancel",
        "outbox.purge",
        "outbox.release_key",
        "outbox.requeue",
        "timers.cancel",
        "timers.reschedule",
    ];
    for name in wanted {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    // What comes after without one belongs to nothing, on the same connection too.
    leases.by("bob").force_release("reports").await.unwrap();
    let other = world.enqueue(Message::new(TOPIC, "").due_in(later)).await;
    world.outbox.by("bob").cancel(&[other]).await.unwrap();
    let told = of(AuditFilter::all().actor("bob")).await;
    assert_eq!((told.len(), told[0].correlation_id.as_deref()), (1, None));
}

async fn r30_a_correlation_id_is_the_transaction_s_in_other_languages(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        return Verdict::NotApplicable("functions");
    }
    if !fx.can_say("audit_as", &[]) {
        return Verdict::NotApplicable("a correlation id of the transaction: each call is told it");
    }
    let names = Names::default();
    let answer = fx.call(&names, "audit_as", &[Some(BY), Some("TICKET-42")]).await.unwrap();
    assert_eq!(answer, [BY]);
    // That transaction is over.
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    fx.call(&names, "outbox_cancel", &[Some(&format!("{{{id}}}")), Some(BY)]).await.unwrap();
    assert_eq!(only(&world, "outbox.cancel").await.correlation_id, None);
    let refused = fx.call(&names, "audit_as", &[Some(BY), Some(&"x".repeat(256))]).await.unwrap_err();
    assert_eq!(refused, "audit_as: correlation_id must be 1 to 255 characters, or null, got 256");
    Verdict::Passed
}

async fn join_013_only_messages_of_the_outbox_are_steps_of_joins(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let join = world.joins().start(NewJoin::new(1)).await.unwrap();
    let step = || Message::new(TOPIC, "").join(join);
    let error = world.inbox.enqueue(Incoming::new("shop", "1", step())).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("joins")));
    let timer = NewTimer::from_message(step(), Duration::from_secs(60));
    let error = world.timers.schedule(timer).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("joins")));
    assert_eq!(world.timers.queue().stats().await.unwrap().open(), 0);
    assert!(world.inbox.store().get(&InboxKey::new("shop", "1").unwrap()).await.unwrap().is_none());
}
