//! Joins: starting them, their members, and counting steps by hand and by the end of messages.

use std::time::Duration;

use mainstay_core::join::{
    Join, JoinFilter, JoinMode, JoinPage, JoinState, Joins, MemberPage, MemberState, NewJoin, Step,
};
use mainstay_core::outbox::{Message, MessageFilter, Page};
use mainstay_core::store::Names;
use mainstay_core::{ErrorKind, JoinId, OwnerToken, WorkItemId};
use tracing::Level;

use crate::case::{Verdict, cases};
use crate::fixture::{End, Fixture, Lacking};
use crate::probe::Logs;
use crate::world::{TOPIC, World, handles};

cases! { $ joins_cases:
    join_001_a_start_inserts_zero_counters ["JOIN-001", "JOIN-005", "JOIN-006"],
    join_002_expected_steps_of_none_are_refused ["JOIN-002"],
    join_003_an_empty_grouping_key_is_none ["JOIN-003"],
    join_004_a_grouping_key_has_at_most_255_characters ["JOIN-004"],
    join_005_an_id_can_be_given_and_is_used_once ["JOIN-005", "JOIN-006"],
    join_006_a_start_in_the_caller_s_transaction_shares_its_fate ["JOIN-006", "OBX-003"],
    join_010_an_attach_adds_pending_members ["JOIN-010", "JOIN-013"],
    join_011_an_attach_can_be_repeated ["JOIN-011", "JOIN-061"],
    join_012_an_unknown_join_is_an_error ["JOIN-012"],
    join_013_an_enqueue_attaches_in_its_own_transaction ["JOIN-013", "JOIN-010", "R5"],
    join_010_an_idempotency_key_attaches_the_message_it_finds ["JOIN-010", "R5"],
    join_014_the_outbox_has_no_join_columns ["JOIN-014", "JOIN-033"],
    join_070_starts_attaches_counts_and_ends_are_logged ["JOIN-070", "JOIN-071", "JOIN-072", "JOIN-073"],
    join_082_joins_are_listed_by_grouping_key ["JOIN-082"],
    join_090_deployment_creates_the_join_tables ["JOIN-090", "JOIN-082"],
    join_091_deployment_can_be_repeated_and_keeps_joins ["JOIN-091", "JOIN-092"],
    join_090_joins_live_under_any_name ["JOIN-090", "R28"],
    join_001_joins_are_made_through_the_public_functions ["JOIN-001", "JOIN-002", "JOIN-010", "JOIN-020"],
}

/// Completed and failed steps, and how the join stands.
pub(super) fn counts(join: &Join) -> (u32, u32, JoinState) {
    (join.completed, join.failed, join.state)
}

pub(super) async fn of(joins: &Joins, id: JoinId) -> Join {
    joins.get(id).await.unwrap().unwrap_or_else(|| panic!("{id} must be a join"))
}

/// How the members stand, by id.
pub(super) async fn members(joins: &Joins, id: JoinId) -> Vec<(WorkItemId, MemberState)> {
    let members = joins.members(id, MemberPage::first(10_000)).await.unwrap();
    members.into_iter().map(|member| (member.work_item, member.state)).collect()
}

/// A join of messages that are enqueued as its steps.
pub(super) async fn joined(world: &World<'_>, join: NewJoin, messages: usize) -> (JoinId, Vec<WorkItemId>) {
    let id = world.joins().start(join).await.unwrap();
    let steps = (0..messages).map(|n| Message::new(TOPIC, n.to_string()).join(id)).collect();
    let enqueued = world.outbox.enqueue_many(steps).await.unwrap();
    (id, enqueued.into_iter().map(|one| one.work_item).collect())
}

/// Messages of this topic, wherever they are.
pub(super) async fn of_topic(world: &World<'_>, topic: &str) -> Vec<mainstay_core::outbox::OutboxMessage> {
    world.outbox.list(&MessageFilter::default().topic(topic), Page::default()).await.unwrap()
}

async fn join_001_a_start_inserts_zero_counters(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let before = world.now().await;
    let id = joins
        .start(NewJoin::new(3).grouping_key("order-7").deadline_in(Duration::from_secs(60)))
        .await
        .unwrap();
    let after = world.now().await;
    let join = of(&joins, id).await;
    assert_eq!((join.id, join.expected, join.mode), (id, 3, JoinMode::All));
    assert_eq!(counts(&join), (0, 0, JoinState::Pending));
    assert_eq!((join.grouping_key.as_deref(), join.reason, join.ended_at), (Some("order-7"), None, None));
    assert!(before <= join.created_at && join.created_at <= after, "stamped by the database's clock");
    assert_eq!(join.updated_at, join.created_at);
    let deadline = join.deadline_at.unwrap();
    assert_eq!(deadline.as_microsecond() - join.created_at.as_microsecond(), 60_000_000);
    assert_eq!((join.remaining(), join.has_ended()), (3, false));
    assert_eq!(members(&joins, id).await, []);
    for mode in [JoinMode::Any, JoinMode::Quorum(2)] {
        let id = joins.start(NewJoin::new(3).mode(mode)).await.unwrap();
        assert_eq!(of(&joins, id).await.mode, mode);
    }
    assert_eq!(joins.get(JoinId::new()).await.unwrap(), None);
}

async fn join_002_expected_steps_of_none_are_refused(fx: &dyn Fixture) {
    let joins = World::open(fx).await.joins();
    for (join, field) in [
        (NewJoin::new(0), "expected_steps"),
        (NewJoin::new(u32::MAX), "expected_steps"),
        (NewJoin::new(2).mode(JoinMode::Quorum(3)), "quorum"),
        (NewJoin::new(2).mode(JoinMode::Deadline), "deadline"),
    ] {
        let error = joins.start(join).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)), "{error}");
    }
    assert_eq!(joins.list(&JoinFilter::default(), JoinPage::default()).await.unwrap(), []);
}

async fn join_003_an_empty_grouping_key_is_none(fx: &dyn Fixture) {
    let joins = World::open(fx).await.joins();
    let id = joins.start(NewJoin::new(1).grouping_key("")).await.unwrap();
    assert_eq!(of(&joins, id).await.grouping_key, None);
}

async fn join_004_a_grouping_key_has_at_most_255_characters(fx: &dyn Fixture) {
    let joins = World::open(fx).await.joins();
    let longest = "ü".repeat(255);
    let id = joins.start(NewJoin::new(1).grouping_key(longest.clone())).await.unwrap();
    assert_eq!(of(&joins, id).await.grouping_key, Some(longest.clone()));
    let error = joins.start(NewJoin::new(1).grouping_key(longest + "x")).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("grouping_key")));
}

async fn join_005_an_id_can_be_given_and_is_used_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let id = JoinId::new();
    assert_eq!(joins.start(NewJoin::new(1).id(id).grouping_key("first")).await.unwrap(), id);
    let error = joins.start(NewJoin::new(2).id(id)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("must be new") && error.message().contains(&id.to_string()), "{error}");
    assert_eq!(of(&joins, id).await.grouping_key.as_deref(), Some("first"));
    // And it has got nothing of the one that was refused.
    let follows = || Message::new("follows", "");
    let refused = joins.start(NewJoin::new(1).id(id).on_completed(follows()).on_failed(follows())).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let step = WorkItemId::new();
    joins.attach(id, &[step]).await.unwrap();
    joins.report(id, step, Step::Completed).await.unwrap();
    assert_eq!(counts(&of(&joins, id).await), (1, 0, JoinState::Completed));
    assert_eq!(world.total().await, 0);
}

async fn join_006_a_start_in_the_caller_s_transaction_shares_its_fate(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let steps = || vec![Message::new(TOPIC, "1"), Message::new(TOPIC, "2")];
    let join = || NewJoin::new(2).on_completed(Message::new("all-done", ""));
    let gone = fx.start_joined(&joins, &world.outbox, join(), steps(), End::Rollback).await.unwrap();
    assert_eq!((joins.get(gone).await.unwrap(), world.total().await), (None, 0));
    let kept = fx.start_joined(&joins, &world.outbox, join(), steps(), End::Commit).await.unwrap();
    assert_eq!(members(&joins, kept).await.len(), 2);
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 10).await;
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    assert_eq!(counts(&of(&joins, kept).await), (2, 0, JoinState::Completed));
    assert_eq!(of_topic(&world, "all-done").await.len(), 1);
    // A step of a join that is not there takes the whole transaction with it.
    let before = world.total().await;
    let stray = Message::new(TOPIC, "").join(JoinId::new());
    let error = fx.transact(&world.outbox, "note", vec![stray], End::Commit).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!((world.total().await, fx.notes().await.contains(&"note".to_owned())), (before, false));
}

async fn join_010_an_attach_adds_pending_members(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let id = joins.start(NewJoin::new(3)).await.unwrap();
    let mut items = world.enqueue_some(2).await;
    // A step need not be a message.
    items.push(WorkItemId::new());
    let attached = joins.attach(id, &items).await.unwrap();
    assert_eq!((attached.added, attached.counted), (3, None));
    items.sort();
    let expected: Vec<_> = items.iter().map(|item| (*item, MemberState::Pending)).collect();
    assert_eq!(members(&joins, id).await, expected);
    assert_eq!(
        counts(&of(&joins, id).await),
        (0, 0, JoinState::Pending),
        "an attach leaves the counters alone"
    );
    assert_eq!(joins.of_item(items[0]).await.unwrap(), [id]);
    // By pages.
    let first = joins.members(id, MemberPage::first(2)).await.unwrap();
    let rest = joins.members(id, MemberPage::first(2).after(first[1].work_item)).await.unwrap();
    assert_eq!((first.len(), rest.len(), rest[0].work_item), (2, 1, items[2]));
    assert_eq!(joins.attach(id, &[]).await.unwrap().added, 0);
}

async fn join_011_an_attach_can_be_repeated(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let id = joins.start(NewJoin::new(2)).await.unwrap();
    let items = world.enqueue_some(2).await;
    assert_eq!(joins.attach(id, &[items[0], items[0]]).await.unwrap().added, 1);
    assert_eq!(joins.attach(id, &items).await.unwrap().added, 1);
    assert_eq!(joins.attach(id, &items).await.unwrap().added, 0);
    assert_eq!(members(&joins, id).await.len(), 2);
    // Also when the join has ended meanwhile: nothing is to be added.
    for item in &items {
        joins.report(id, *item, Step::Completed).await.unwrap();
    }
    assert_eq!(joins.attach(id, &items).await.unwrap().added, 0);
    let error = joins.attach(id, &[items[0], WorkItemId::new()]).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("join")), "{error}");
    assert!(error.message().contains("ended"), "{error}");
    let late = world.outbox.enqueue(Message::new(TOPIC, "").join(id)).await.unwrap_err();
    assert_eq!((late.kind(), late.field()), (ErrorKind::InvalidArgument, Some("join")), "{late}");
    assert_eq!(world.total().await, 2, "the message was not enqueued either");
}

async fn join_012_an_unknown_join_is_an_error(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let (unknown, item) = (JoinId::new(), world.enqueue_some(1).await[0]);
    let errors = [
        joins.attach(unknown, &[item]).await.unwrap_err(),
        joins.attach(unknown, &[]).await.unwrap_err(),
        joins.report(unknown, item, Step::Completed).await.unwrap_err(),
        joins.cancel(unknown).await.unwrap_err(),
        world.outbox.enqueue(Message::new(TOPIC, "").join(unknown)).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.message().contains(&unknown.to_string()), "{error}");
    }
    assert_eq!(world.total().await, 1);
    let id = joins.start(NewJoin::new(1)).await.unwrap();
    let error = joins.report(id, item, Step::Completed).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.message().contains("no member"), "{error}");
}

async fn join_013_an_enqueue_attaches_in_its_own_transaction(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let first = joins.start(NewJoin::new(3)).await.unwrap();
    let second = joins.start(NewJoin::new(1)).await.unwrap();
    let both =
        world.enqueue(Message::new(TOPIC, "both").join(first).join(second).join(first).priority(3)).await;
    let plain = world.enqueue(Message::new(TOPIC, "plain")).await;
    let many = vec![
        Message::new(TOPIC, "a").join(first),
        Message::new(TOPIC, "b"),
        Message::new(TOPIC, "c").join(first),
    ];
    let many = world.outbox.enqueue_many(many).await.unwrap();
    let mut expected = vec![both, many[0].work_item, many[2].work_item];
    expected.sort();
    assert_eq!(members(&joins, first).await.iter().map(|member| member.0).collect::<Vec<_>>(), expected);
    assert_eq!(members(&joins, second).await, [(both, MemberState::Pending)]);
    assert_eq!(joins.of_item(plain).await.unwrap(), []);
    assert_eq!(world.row(both).await.priority, 3);
    assert_eq!(world.row(many[1].work_item).await.payload.as_deref(), Some("b"));
    // All or none: one of them is a step of a join that is not there.
    let torn = vec![Message::new(TOPIC, "x").join(first), Message::new(TOPIC, "y").join(JoinId::new())];
    world.outbox.enqueue_many(torn).await.expect_err("there is no such join");
    assert_eq!((world.total().await, members(&joins, first).await.len()), (5, 3));
}

async fn join_010_an_idempotency_key_attaches_the_message_it_finds(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let message = || Message::new(TOPIC, "").idempotency_key("once");
    let first = world.enqueue(message()).await;
    let id = joins.start(NewJoin::new(2)).await.unwrap();
    for _ in 0..2 {
        let again = world.outbox.enqueue(message().join(id)).await.unwrap();
        assert_eq!((again.work_item, again.added), (first, false));
    }
    assert_eq!(members(&joins, id).await, [(first, MemberState::Pending)]);
    // One that has ended is counted at once.
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 1).await;
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    let late = joins.start(NewJoin::new(2)).await.unwrap();
    world.outbox.enqueue(message().join(late)).await.unwrap();
    assert_eq!(counts(&of(&joins, late).await), (1, 0, JoinState::Pending));
}

async fn join_014_the_outbox_has_no_join_columns(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let columns = fx.columns(&Names::default(), "outbox").await;
    assert!(columns.contains("topic"), "{columns:?}");
    let joined: Vec<_> = columns.iter().filter(|column| column.contains("join")).collect();
    assert_eq!(joined, Vec::<&String>::new());
    // What is a step of what stands in the member table alone: an attach there is all it takes.
    let joins = world.joins();
    let item = world.enqueue_some(1).await[0];
    let before = world.row(item).await;
    let id = joins.start(NewJoin::new(1)).await.unwrap();
    joins.attach(id, &[item]).await.unwrap();
    assert_eq!(crate::world::snapshot(&world.row(item).await), crate::world::snapshot(&before));
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 1).await;
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    assert_eq!(counts(&of(&joins, id).await), (1, 0, JoinState::Completed));
}

async fn join_070_starts_attaches_counts_and_ends_are_logged(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let logs = Logs::capture();
    let secret = Message::new("next", "secret-payload").header("h", "secret-header");
    let id = joins
        .start(NewJoin::new(2).grouping_key("group").on_completed(secret.clone()).on_failed(secret))
        .await
        .unwrap();
    let started = logs.find(Level::INFO, "a join was started");
    assert_eq!((started.len(), started[0].field("join")), (1, id.to_string().as_str()));
    assert_eq!(started[0].field("expected_steps"), "2");
    let items = world.enqueue_some(2).await;
    joins.attach(id, &items).await.unwrap();
    let attached = logs.find(Level::DEBUG, "members were attached to a join");
    assert_eq!((attached.len(), attached[0].field("added")), (1, "2"));
    // By hand and by an ack alike.
    joins.report(id, items[0], Step::Completed).await.unwrap();
    let counted = logs.find(Level::DEBUG, "steps of a join were counted");
    assert_eq!((counted.len(), counted[0].field("outcome")), (1, "completed"));
    assert!(logs.find(Level::INFO, "a join has completed").is_empty());
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 2).await;
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    let counted = logs.find(Level::DEBUG, "steps of a join were counted");
    assert_eq!((counted.len(), counted[1].field("join")), (2, id.to_string().as_str()));
    let completed = logs.find(Level::INFO, "a join has completed");
    assert_eq!((completed.len(), completed[0].field("join")), (1, id.to_string().as_str()));
    // One that fails: by the end of a message that has expired.
    let (failing, _) = joined(&world, NewJoin::new(1), 0).await;
    world.enqueue(Message::new("expiring", "").expires_in(Duration::from_millis(1)).join(failing)).await;
    world.advance(Duration::from_secs(1)).await;
    world.claim_batch(&mainstay_core::queue::ClaimRequest::new(owner)).await;
    let failed = logs.find(Level::WARN, "a join has failed");
    assert_eq!((failed.len(), failed[0].field("reason")), (1, "steps"));
    assert!(!logs.text().contains("secret"), "a payload or a header was logged");
}

async fn join_082_joins_are_listed_by_grouping_key(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let mut ids = Vec::new();
    for n in 0..6 {
        let key = if n % 2 == 0 { "even" } else { "odd" };
        ids.push(joins.start(NewJoin::new(1).grouping_key(key)).await.unwrap());
    }
    let listed = async |filter: JoinFilter, page| {
        let joins = joins.list(&filter, page).await.unwrap();
        joins.into_iter().map(|join| join.id).collect::<Vec<_>>()
    };
    let even = JoinFilter::default().grouping_key("even");
    assert_eq!(listed(even.clone(), JoinPage::default()).await, [ids[4], ids[2], ids[0]]);
    let page = JoinPage::first(2);
    assert_eq!(listed(even.clone(), page).await, [ids[4], ids[2]]);
    assert_eq!(listed(even.clone(), page.after(ids[2])).await, [ids[0]]);
    assert_eq!(listed(JoinFilter::default(), JoinPage::default()).await.len(), 6);
    assert_eq!(listed(JoinFilter::default().grouping_key("Even"), JoinPage::default()).await, []);
    joins.cancel(ids[2]).await.unwrap();
    assert_eq!(listed(even.clone().state(JoinState::Cancelled), JoinPage::default()).await, [ids[2]]);
    assert_eq!(listed(even.state(JoinState::Pending), JoinPage::default()).await, [ids[4], ids[0]]);
    let error = joins.list(&JoinFilter::default(), JoinPage::first(0)).await.unwrap_err();
    assert_eq!(error.field(), Some("limit"));
}

async fn join_090_deployment_creates_the_join_tables(fx: &dyn Fixture) {
    World::open(fx).await;
    let objects = fx.objects(&Names::default()).await;
    for table in ["table joins", "table joins_member", "table joins_continuation", "index joins_grouping"] {
        assert!(objects.contains(table), "{table} is missing from {objects:?}");
    }
}

async fn join_091_deployment_can_be_repeated_and_keeps_joins(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (id, items) = joined(&world, NewJoin::new(2).grouping_key("kept"), 2).await;
    let joins = world.joins();
    joins.report(id, items[0], Step::Completed).await.unwrap();
    let (before, objects) = (of(&joins, id).await, fx.objects(&Names::default()).await);
    for _ in 0..2 {
        world.provider.schema().deploy().await.unwrap();
    }
    assert_eq!(fx.objects(&Names::default()).await, objects);
    assert_eq!(of(&joins, id).await, before);
    assert_eq!(members(&joins, id).await.len(), 2);
}

async fn join_090_joins_live_under_any_name(fx: &dyn Fixture) -> Result<(), Lacking> {
    fx.takes_any_name().await?;
    let names = Names::default().with_schema("o'er \"it\"").unwrap().with_outbox("mail; --").unwrap();
    let world = World::named(fx, names.with_joins("zu sammen 🤝").unwrap()).await;
    let (id, _) = joined(&world, NewJoin::new(2).on_completed(Message::new("after", "")), 2).await;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 2).await;
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    assert_eq!(counts(&of(&world.joins(), id).await), (2, 0, JoinState::Completed));
    assert_eq!(of_topic(&world, "after").await.len(), 1);
    Ok(())
}

async fn join_001_joins_are_made_through_the_public_functions(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        return Verdict::NotApplicable("functions: there are none, other languages write to the tables");
    }
    let names = Names::default();
    let call = async |function: &str, arguments: &[Option<&str>]| fx.call(&names, function, arguments).await;
    let joins = world.joins();
    for refused in [Some("0"), Some("-1"), None] {
        let error = call("joins_start", &[refused]).await.unwrap_err();
        assert!(error.contains("expected_steps"), "{error}");
    }
    let long = "k".repeat(256);
    let error = call("joins_start", &[Some("1"), Some(&long)]).await.unwrap_err();
    assert!(error.contains("grouping_key"), "{error}");
    let id = call("joins_start", &[Some("2"), Some("")]).await.unwrap().remove(0);
    let join = of(&joins, id.parse().unwrap()).await;
    assert_eq!((join.expected, join.grouping_key, join.state), (2, None, JoinState::Pending));
    let items = world.enqueue_some(2).await;
    let list = format!("{{{},{}}}", items[0], items[1]);
    assert_eq!(call("joins_attach", &[Some(&id), Some(&list)]).await.unwrap().len(), 2);
    let item = items[0].to_string();
    let report = [Some(id.as_str()), Some(item.as_str()), Some("failed")];
    assert_eq!(call("joins_report", &report).await.unwrap(), ["counted"]);
    assert_eq!(call("joins_report", &report).await.unwrap(), ["already"]);
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 2).await;
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    assert_eq!(counts(&of(&joins, id.parse().unwrap()).await), (1, 1, JoinState::Failed));
    let unknown = JoinId::new().to_string();
    let error = call("joins_attach", &[Some(&unknown), Some("{}")]).await.unwrap_err();
    assert!(error.contains("there is no join"), "{error}");
    Verdict::Passed
}
