//! 6.14: deployment of the schema.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use mainstay_core::ErrorKind;
use mainstay_core::OwnerToken;
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::{ClaimRequest, Outcome, Settled, Settlement};
use mainstay_core::store::{Names, Queue, SchemaStatus};

use crate::case::{Verdict, cases};
use crate::fixture::{Fixture, Lacking};
use crate::world::{LEASE, TOPIC, World};

cases! { $ schema_cases:
    obx_091_deployment_creates_what_is_missing ["OBX-091", "R28"],
    obx_092_without_deployment_nothing_is_created ["OBX-092", "R28"],
    obx_093_deployment_is_idempotent_and_keeps_the_rows ["OBX-093", "PRIM-SCHEMA-001"],
    obx_094_the_table_and_its_indexes_exist ["OBX-094", "PRIM-SCHEMA-003", "OBX-100"],
    obx_100_a_claim_reads_what_it_takes_and_not_the_table ["OBX-100"],
    obx_095_the_functions_exist ["OBX-095", "PRIM-SCHEMA-003"],
    obx_101_a_claim_and_a_settle_are_one_round_trip_each ["OBX-101"],
    prim_schema_002_custom_names_place_everything_there ["PRIM-SCHEMA-002", "R28"],
    r28_many_instances_deploy_at_once ["R28", "PRIM-SCHEMA-001"],
    r28_the_script_is_the_whole_schema ["R28"],
    r28_outboxes_of_two_names_are_apart ["R28"],
    r28_a_newer_schema_is_left_alone ["R28", "OBX-092"],
    r28_a_newer_schema_that_allows_this_program_is_used_as_it_is ["R28"],
    r28_an_edited_step_is_noticed ["R28", "OBX-092"],
}

fn schema_of(name: &str) -> Names {
    Names::default().with_schema(name).unwrap()
}

pub(super) async fn obx_091_deployment_creates_what_is_missing(fx: &dyn Fixture) {
    let names = schema_of("fresh");
    let provider = fx.with_names(names.clone()).await;
    let schema = provider.schema();
    let SchemaStatus::Missing { wanted } = schema.status().await.unwrap() else {
        panic!("nothing is deployed under these names yet");
    };
    assert_eq!(schema.deploy().await.unwrap(), SchemaStatus::Current { version: wanted });
    assert_eq!(schema.status().await.unwrap(), SchemaStatus::Current { version: wanted });
    schema.require().await.unwrap();
    let world = World::over(fx, provider, names);
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    assert_eq!(world.claim_one(OwnerToken::new()).await.id(), id);
}

pub(super) async fn obx_092_without_deployment_nothing_is_created(fx: &dyn Fixture) {
    let names = schema_of("untouched");
    let provider = fx.with_names(names.clone()).await;
    let error = provider.schema().require().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(!error.is_retryable());
    assert!(error.message().contains("mainstay migrate"), "it says what to do: {error}");
    let outbox = Outbox::new(provider.outbox());
    let refused = [
        outbox.enqueue(Message::new(TOPIC, "")).await.map(drop).unwrap_err(),
        outbox.claim(&ClaimRequest::new(OwnerToken::new())).await.map(drop).unwrap_err(),
        outbox.reap_expired().await.map(drop).unwrap_err(),
        outbox.stats().await.map(drop).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    }
    assert_eq!(fx.objects(&names).await, BTreeSet::new(), "nothing was created on the way");

    let elsewhere = fx.undeployed().await;
    assert!(matches!(elsewhere.schema().status().await.unwrap(), SchemaStatus::Missing { .. }));
    let error = Outbox::new(elsewhere.outbox()).enqueue(Message::new(TOPIC, "")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    assert!(matches!(elsewhere.schema().status().await.unwrap(), SchemaStatus::Missing { .. }));
}

pub(super) async fn obx_093_deployment_is_idempotent_and_keeps_the_rows(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let ids = world.enqueue_some(3).await;
    let before = fx.objects(&Names::default()).await;
    let status = world.provider.schema().status().await.unwrap();
    for _ in 0..3 {
        assert_eq!(world.provider.schema().deploy().await.unwrap(), status);
    }
    assert!(matches!(status, SchemaStatus::Current { version } if version > 0));
    assert_eq!(fx.objects(&Names::default()).await, before);
    assert_eq!(world.rows(&ids).await.len(), 3);
    assert_eq!(world.total().await, 3);
}

pub(super) async fn obx_094_the_table_and_its_indexes_exist(fx: &dyn Fixture) {
    World::open(fx).await;
    let objects = fx.objects(&Names::default()).await;
    for table in ["table outbox", "table outbox_history", "table mainstay_migration"] {
        assert!(objects.contains(table), "{table} is missing in {objects:?}");
    }
    // By which claims find due work without a scan.
    let indexes = objects.iter().filter(|object| object.starts_with("index outbox"));
    assert!(indexes.count() >= 2, "the indexes of the outbox are missing in {objects:?}");
}

pub(super) async fn obx_100_a_claim_reads_what_it_takes_and_not_the_table(
    fx: &dyn Fixture,
) -> Result<(), Lacking> {
    let world = World::open(fx).await;
    let names = Names::default();
    // Due and not due, of several priorities, and with ordering keys that have few messages each.
    let message = |number: u32| {
        let message = Message::new(TOPIC, "").priority(i16::try_from(number % 3).unwrap());
        match number % 4 {
            0 => message.due_in(LEASE * 99),
            1 => message.ordering_key(format!("key {number}")),
            _ => message,
        }
    };
    for _ in 0..4 {
        world.outbox.enqueue_many((0..1_000).map(message).collect()).await.unwrap();
    }
    // And others' work, with a lease that holds; a claim may have to pass it, since it is never much.
    assert_eq!(world.claim(OwnerToken::new(), 50).await.len(), 50);
    assert_eq!(fx.scans_of_a_claim(&names, Queue::Outbox).await?, Vec::<String>::new());
    assert_eq!(world.outbox.stats().await.unwrap().in_progress, 50, "looking changed nothing");
    Ok(())
}

/// What any language can do with the items of every queue.
const QUEUE_VERBS: [&str; 8] =
    ["claim", "ack", "abandon", "fail", "reap_expired", "renew", "release", "requeue"];

pub(super) async fn obx_095_the_functions_exist(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        let objects = fx.objects(&Names::default()).await;
        let has = |kind: &str| objects.iter().any(|object| object.starts_with(kind));
        assert!(!has("function ") && !has("procedure "), "then declare the capability");
        return Verdict::NotApplicable("functions");
    }
    let names = Names::default();
    let objects = fx.objects(&names).await;
    let queues = ["outbox", "inbox", "timers", "job_runs"];
    let ways = queues.iter().flat_map(|queue| QUEUE_VERBS.map(|verb| format!("{queue}_{verb}")));
    // Runs are made by jobs.
    let entrances = ["outbox", "inbox", "timers"].map(|queue| format!("{queue}_enqueue"));
    for function in ways.chain(entrances) {
        assert!(objects.contains(&fx.object_of(&function)), "{function} is missing");
    }
    // Any language can take part: a message goes all the way through the functions alone.
    let call = async |function: &str, arguments: &[Option<&str>]| {
        fx.call(&names, function, arguments).await.unwrap_or_else(|error| panic!("{function}: {error}"))
    };
    let owner = OwnerToken::new().to_string();
    let id = call("outbox_enqueue", &[Some("order.paid"), Some("{}")]).await.remove(0);
    let claimed = call("outbox_claim", &[Some(&owner), Some("30"), Some("10")]).await;
    assert_eq!(claimed, std::slice::from_ref(&id));
    let list = format!("{{{id}}}");
    assert!(call("outbox_ack", &[Some(&OwnerToken::new().to_string()), Some(&list)]).await.is_empty());
    assert_eq!(call("outbox_renew", &[Some(&owner), Some(&list)]).await, std::slice::from_ref(&id));
    assert_eq!(call("outbox_ack", &[Some(&owner), Some(&list)]).await, std::slice::from_ref(&id));
    assert!(world.row(id.parse().unwrap()).await.is_processed());
    // Arguments outside the contract are refused there too, by name.
    for (function, arguments, named) in [
        ("outbox_enqueue", vec![Some(""), Some("")], "topic"),
        ("outbox_claim", vec![Some(owner.as_str()), Some("0"), Some("10")], "lease"),
        ("outbox_claim", vec![Some(owner.as_str()), Some("30"), Some("0")], "batch"),
        ("outbox_claim", vec![Some("00000000-0000-0000-0000-000000000000"), Some("30"), Some("1")], "owner"),
        ("outbox_ack", vec![None, Some(list.as_str())], "owner"),
    ] {
        let error = fx.call(&names, function, &arguments).await.expect_err(named);
        assert!(error.contains(named), "{function} should name {named}: {error}");
    }
    Verdict::Passed
}

pub(super) async fn obx_101_a_claim_and_a_settle_are_one_round_trip_each(fx: &dyn Fixture) {
    World::open(fx).await;
    let metered = fx.metered().await;
    let world = World::over(fx, metered.provider, Names::default());
    let outbox = &world.outbox;
    world.enqueue_some(40).await;
    let owner = OwnerToken::new();
    let request = ClaimRequest::new(owner).batch(20).lease(LEASE);
    // What happens once, such as connecting, has happened now.
    let first = outbox.claim(&request).await.unwrap().handles();
    assert_eq!(outbox.ack(owner, &first).await.unwrap().changed.len(), 20);

    let mut before = (metered.visits)();
    let mut assert_one = |what: &str| {
        let after = (metered.visits)();
        assert_eq!(after - before, 1, "visits to the database for {what}");
        before = after;
    };
    let claims = outbox.claim(&request).await.unwrap().handles();
    assert_one("a claim of 20");
    assert_eq!(claims.len(), 20);
    let changed = |settled: Settled| assert!(settled.stale.is_empty() && !settled.changed.is_empty());
    changed(outbox.renew(owner, &claims, LEASE).await.unwrap());
    assert_one("a renewal of 20");
    changed(outbox.ack(owner, &claims[..4]).await.unwrap());
    assert_one("4 acks");
    changed(outbox.abandon(owner, &claims[4..8], None, Some("later".to_owned())).await.unwrap());
    assert_one("4 abandons");
    changed(outbox.fail(owner, &claims[8..12], Some("no".to_owned())).await.unwrap());
    assert_one("4 fails");
    changed(outbox.release(owner, &claims[12..16], None).await.unwrap());
    assert_one("4 releases");
    let outcomes = [
        Outcome::Ack,
        Outcome::Abandon { delay: None, error: None },
        Outcome::fail("no"),
        Outcome::Release { delay: None, error: None },
    ];
    let mixed: Vec<_> = claims[16..]
        .iter()
        .zip(outcomes)
        .map(|(claim, outcome)| Settlement { claim: *claim, outcome })
        .collect();
    changed(outbox.settle(owner, &mixed).await.unwrap());
    assert_one("4 outcomes at once");
    outbox.claim(&ClaimRequest::new(owner).only_topics(vec!["nobody's".to_owned()])).await.unwrap();
    assert_one("a claim of nothing");
}

pub(super) async fn prim_schema_002_custom_names_place_everything_there(fx: &dyn Fixture) {
    // Short, since some servers cut the names of indexes.
    let names = Names::default().with_schema("billing").unwrap().with_outbox("box").unwrap();
    let reference = World::open(fx).await;
    let default_before = fx.objects(&Names::default()).await;
    let world = World::named(fx, names.clone()).await;
    let made = fx.objects(&names).await;
    // As tables are called where nobody says otherwise, with capitals on some servers, and as they are called then.
    let usual = [("outbox", "box"), ("lease", "box_leases"), ("jobruns", "box_job_runs")];
    let renamed = default_before.iter().map(|object| match object.split_once(' ').unwrap() {
        (_, "mainstay_migration" | "mainstay_migration_pkey") => object.clone(),
        (kind, name) => {
            let own = usual.iter().find_map(|(plain, own)| Some((name.strip_prefix(plain)?, own)));
            own.map_or_else(|| format!("{kind} box_{name}"), |(rest, own)| format!("{kind} {own}{rest}"))
        }
    });
    assert_eq!(made, renamed.collect(), "the same things, under the names");
    assert_eq!(fx.objects(&Names::default()).await, default_before, "and nothing elsewhere");
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    assert!(reference.outbox.get(id).await.unwrap().is_none());
}

pub(super) async fn r28_many_instances_deploy_at_once(fx: &dyn Fixture) {
    let names = schema_of("crowd");
    let mut instances = Vec::new();
    for _ in 0..8 {
        instances.push(fx.with_names(names.clone()).await);
    }
    let deployments = instances.iter().map(|instance| {
        let schema = instance.schema();
        async move { schema.deploy().await.unwrap() }
    });
    for status in join_all(deployments).await {
        assert!(matches!(status, SchemaStatus::Current { .. }), "{status}");
    }
    let world = World::over(fx, instances.remove(0), names);
    world.enqueue(Message::new(TOPIC, "")).await;
    world.claim_one(OwnerToken::new()).await;
}

pub(super) async fn r28_the_script_is_the_whole_schema(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let script = world.provider.schema().script();
    // Not every database keeps the case in which a name was written.
    let lowered = script.to_lowercase();
    for object in fx.objects(&Names::default()).await {
        let name = object.split_once(' ').unwrap().1;
        // The index of a primary key comes with its table and need not be named.
        if name.ends_with("_pkey") {
            continue;
        }
        assert!(lowered.contains(&name.to_lowercase()), "{object} is not in the script");
    }
    let other = fx.with_names(schema_of("q\"uoted")).await.schema().script();
    assert!(other.contains("q\"\"uoted"), "names are quoted in the script too");
    assert!(!script.contains("{{") && !other.contains("{{"), "no placeholder is left");
}

pub(super) async fn r28_outboxes_of_two_names_are_apart(fx: &dyn Fixture) {
    let first = World::named(fx, schema_of("first")).await;
    let second =
        World::named(fx, Names::default().with_schema("first").unwrap().with_outbox("other").unwrap());
    let second = second.await;
    let keyed = || Message::new(TOPIC, "").idempotency_key("same");
    let one = first.enqueue(keyed()).await;
    second.assert_nothing_due().await;
    let two = second.enqueue(keyed()).await;
    assert_ne!(one, two);
    assert_eq!(first.claim_one(OwnerToken::new()).await.id(), one);
    assert_eq!(second.claim_one(OwnerToken::new()).await.id(), two);
    assert_eq!((first.total().await, second.total().await), (1, 1));
}

/// Neither starting nor deploying goes on, and the messages stay as they are.
async fn assert_refused(world: &World<'_>, told: &str) {
    let schema = world.provider.schema();
    for error in [schema.require().await.unwrap_err(), schema.deploy().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
        assert!(error.message().contains(told) && !error.is_retryable(), "{error}");
    }
    assert_eq!(world.total().await, 1);
}

pub(super) async fn r28_a_newer_schema_is_left_alone(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue(Message::new(TOPIC, "")).await;
    fx.record_step(&Names::default(), 999, "of a later version", 998).await;
    let status = world.provider.schema().status().await.unwrap();
    assert!(matches!(status, SchemaStatus::Newer { found: 999, oldest_program: 998, .. }), "{status:?}");
    assert_refused(&world, "update this program").await;
}

/// Restarting an old program during an upgrade, and rolling back to it, both mean working on a newer schema.
pub(super) async fn r28_a_newer_schema_that_allows_this_program_is_used_as_it_is(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let schema = world.provider.schema();
    let SchemaStatus::Current { version: wanted } = schema.status().await.unwrap() else {
        panic!("the schema is deployed");
    };
    fx.record_step(&Names::default(), wanted + 1, "of the next version", wanted).await;
    let compatible = SchemaStatus::Compatible { found: wanted + 1, wanted };
    assert_eq!(schema.status().await.unwrap(), compatible);
    schema.require().await.unwrap();
    assert_eq!(schema.deploy().await.unwrap(), compatible);
    assert_eq!(schema.status().await.unwrap(), compatible);

    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let item = world.claim_one(owner).await;
    assert_eq!(item.id(), id);
    assert_eq!(world.outbox.ack(owner, &[item.handle]).await.unwrap().changed.len(), 1);

    // A later step that this program cannot bear ends it, whatever the steps before said.
    fx.record_step(&Names::default(), wanted + 2, "of the version after it", wanted + 1).await;
    let status = schema.status().await.unwrap();
    let newer = SchemaStatus::Newer { found: wanted + 2, wanted, oldest_program: wanted + 1 };
    assert_eq!(status, newer);
    assert!(schema.require().await.unwrap_err().message().contains("update this program"));
}

pub(super) async fn r28_an_edited_step_is_noticed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue(Message::new(TOPIC, "")).await;
    fx.record_step(&Names::default(), 1, "of another text", 1).await;
    let status = world.provider.schema().status().await.unwrap();
    assert!(matches!(status, SchemaStatus::Drifted { version: 1, .. }), "{status:?}");
    assert_refused(&world, "step 1").await;
}
