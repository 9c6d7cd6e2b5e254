//! What is done by hand through the functions, and its record, are one transaction; and the trail is kept by rights too.

use std::time::Duration;

use mainstay_core::audit::{Audit, AuditEvent, AuditFilter, AuditPage};
use mainstay_core::fanout::{Fanout, FanoutDefinition};
use mainstay_core::inbox::Inbox;
use mainstay_core::job::{JobDefinition, Jobs};
use mainstay_core::join::{Joins, NewJoin};
use mainstay_core::lease::Leases;
use mainstay_core::outbox::{Message, OnFailure};
use mainstay_core::queue::ClaimRequest;
use mainstay_core::store::Provider;
use mainstay_core::timer::{NewTimer, Timers};
use mainstay_core::{OwnerToken, WorkItemId};

use crate::support::Fixture;

async fn told(audit: &Audit) -> Vec<String> {
    let records = audit.list(&AuditFilter::all(), AuditPage::default()).await.unwrap();
    records.into_iter().map(|record| record.name).filter(|name| name != "schema.deploy").collect()
}

#[tokio::test]
async fn an_action_that_is_rolled_back_leaves_no_record() {
    let fixture = Fixture::new().await;
    let postgres = &fixture.postgres;
    let owner = OwnerToken::new();
    let held = Message::new("t", "").ordering_key("k").on_failure(OnFailure::Hold);
    let failed = fixture.outbox.enqueue(held).await.unwrap().work_item;
    let claims = fixture.outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    let claims: Vec<_> = claims.items.iter().map(|item| item.handle).collect();
    fixture.outbox.fail(owner, &claims, None).await.unwrap();
    let ready = fixture.outbox.enqueue(Message::new("t", "")).await.unwrap().work_item;
    let hour = Duration::from_secs(3_600);
    let timer = Timers::new(postgres).schedule(NewTimer::new("t", "", hour)).await.unwrap().work_item;
    Inbox::new(postgres).mark_dead("shop", "1", None).await.unwrap();
    let _lease = Leases::new(postgres.leases()).acquire("reports").await.unwrap();
    let audit = Audit::new(postgres.audit());
    Jobs::new(postgres.jobs()).create_or_update(JobDefinition::new("old", "t", "0 3 * * *")).await.unwrap();
    let joins = Joins::new(postgres.joins());
    let (join, step) = (joins.start(NewJoin::new(2)).await.unwrap(), WorkItemId::new());
    joins.attach(join, &[step, ready]).await.unwrap();
    Fanout::new(postgres).register(FanoutDefinition::new("etl", "a").every(hour)).await.unwrap();
    let mut client = fixture.database.client().await;
    let shard = "insert into infra.fanout_cursor (topic, work_key, shard_key) values ('etl', 'a', 's')";
    client.batch_execute(shard).await.unwrap();
    let before = told(&audit).await;
    assert_eq!(before, ["fanout.register", "job.create_or_update"]);

    let array = |id: WorkItemId| format!("array['{id}']::uuid[]");
    let actions = [
        (format!("infra.outbox_cancel({}, 'alice')", array(ready)), "outbox.cancel"),
        (format!("infra.outbox_requeue({}, 'alice')", array(failed)), "outbox.requeue"),
        ("infra.outbox_requeue_where(actor => 'alice')".to_owned(), "outbox.requeue"),
        ("infra.outbox_release_key('k', 'alice')".to_owned(), "outbox.release_key"),
        ("infra.outbox_purge(0, 0, actor => 'alice')".to_owned(), "outbox.purge"),
        (format!("infra.timers_cancel({}, 'alice')", array(timer)), "timers.cancel"),
        (
            format!("infra.timers_reschedule('{timer}', due_in_seconds => 5, actor => 'alice')"),
            "timers.reschedule",
        ),
        ("infra.inbox_revive('{shop}', '{1}', 'alice')".to_owned(), "inbox.requeue"),
        ("infra.inbox_mark_processed('shop', '1', 'alice')".to_owned(), "inbox.mark_processed"),
        ("infra.inbox_mark_dead('shop', '2', actor => 'alice')".to_owned(), "inbox.mark_dead"),
        ("infra.inbox_mark_processing('shop', '3', actor => 'alice')".to_owned(), "inbox.mark_processing"),
        ("infra.inbox_forget(0, 0, actor => 'alice')".to_owned(), "inbox.forget"),
        (
            "infra.jobs_create_or_update('new', 't', '0 3 * * *', actor => 'alice')".to_owned(),
            "job.create_or_update",
        ),
        ("infra.jobs_disable('old', 'alice')".to_owned(), "job.disable"),
        ("infra.jobs_trigger('old', 'alice')".to_owned(), "job.trigger"),
        ("infra.jobs_delete('old', 'alice')".to_owned(), "job.delete"),
        ("infra.lease_force_release('reports', 'alice')".to_owned(), "lease.force_release"),
        (format!("infra.joins_report('{join}', '{step}', 'failed', 'alice')"), "join.report"),
        (format!("infra.joins_cancel('{join}', 'alice')"), "join.cancel"),
        ("infra.joins_start(2, actor => 'alice')".to_owned(), "join.start"),
        (
            format!("infra.joins_attach('{join}', '{{00000000-0000-7000-8000-000000000007}}', 'alice')"),
            "join.attach",
        ),
        ("infra.fanout_register('etl', 'b', 60, actor => 'alice')".to_owned(), "fanout.register"),
        ("infra.fanout_register('etl', 'a', 61, actor => 'alice')".to_owned(), "fanout.register"),
        ("infra.fanout_set('etl', 'a', enabled => false, actor => 'alice')".to_owned(), "fanout.set"),
        ("infra.fanout_run('etl', 'a', 'alice')".to_owned(), "fanout.run"),
        ("infra.fanout_add_shards('etl', 'a', '{t}', 'alice')".to_owned(), "fanout.add_shards"),
        ("infra.fanout_forget_shard('etl', 'a', 's', 'alice')".to_owned(), "fanout.forget_shard"),
        ("infra.audit_purge(0, actor => 'alice')".to_owned(), "audit.purge"),
    ];
    for (action, name) in &actions {
        let transaction = client.transaction().await.unwrap();
        transaction.batch_execute(&format!("select {action}")).await.unwrap();
        let own = "select name, actor from infra.audit where actor = 'alice'";
        let rows = transaction.query(own, &[]).await.unwrap();
        assert_eq!(rows.len(), 1, "{action}");
        assert_eq!((rows[0].get::<_, &str>(0), rows[0].get::<_, &str>(1)), (*name, "alice"), "{action}");
        transaction.rollback().await.unwrap();
        assert_eq!(told(&audit).await, before, "{action}");
    }
    // Committed, each of them is recorded once.
    for (number, (action, _)) in actions.iter().take(2).enumerate() {
        client.batch_execute(&format!("select {action}")).await.unwrap();
        assert_eq!(told(&audit).await.len(), before.len() + number + 1);
    }
    fixture.end().await;
}

#[tokio::test]
async fn an_actor_says_what_belongs_to_what_until_the_transaction_ends() {
    let fixture = Fixture::new().await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(fixture.outbox.enqueue(Message::new("t", "")).await.unwrap().work_item);
    }
    let cancel = |id: WorkItemId, actor: &str| format!("select infra.outbox_cancel('{{{id}}}', {actor})");
    let mut client = fixture.database.client().await;
    let transaction = client.transaction().await.unwrap();
    for (id, actor) in [
        (ids[0], "infra.audit_as('alice', 'TICKET-42')"),
        // It goes on, and ends when it is taken away.
        (ids[1], "'bob'"),
        (ids[2], "infra.audit_as('carol')"),
    ] {
        transaction.batch_execute(&cancel(id, actor)).await.unwrap();
    }
    transaction.batch_execute("select infra.audit_as('alice', 'TICKET-43')").await.unwrap();
    transaction.commit().await.unwrap();
    client.batch_execute(&cancel(ids[3], "'dave'")).await.unwrap();
    let audit = Audit::new(fixture.postgres.audit());
    let of_outbox = AuditFilter::all().name("outbox.");
    let told = audit.list(&of_outbox, AuditPage::default()).await.unwrap();
    let told: Vec<_> =
        told.iter().rev().map(|record| (record.actor.as_str(), record.correlation_id.as_deref())).collect();
    let ticket = Some("TICKET-42");
    assert_eq!(told, [("alice", ticket), ("bob", ticket), ("carol", None), ("dave", None)]);
    fixture.end().await;
}

#[tokio::test]
async fn two_who_register_a_job_at_once_are_both_recorded() {
    let fixture = Fixture::new().await;
    let define = |topic: &'static str| {
        let jobs = Jobs::new(fixture.postgres.jobs()).by(topic);
        async move { jobs.create_or_update(JobDefinition::new("j", topic, "0 3 * * *")).await.unwrap() }
    };
    let mut topics = Vec::new();
    for _ in 0..10 {
        let (one, other) = tokio::join!(define("one"), define("other"));
        topics.extend([one, other]);
    }
    let versions = Jobs::new(fixture.postgres.jobs()).get("j").await.unwrap().unwrap().version;
    let audit = Audit::new(fixture.postgres.audit());
    let records = audit.list(&AuditFilter::all().anchor("job", "j"), AuditPage::default()).await.unwrap();
    assert_eq!(records.len() as i64, versions, "as many records as changes");
    let mut seen: Vec<_> =
        records.iter().map(|record| record.data.as_ref().unwrap()["after"]["version"].as_i64()).collect();
    seen.sort();
    assert_eq!(seen, (1..=versions).map(Some).collect::<Vec<_>>());
    fixture.end().await;
}

#[tokio::test]
async fn an_application_can_add_to_the_trail_and_not_change_it() {
    let fixture = Fixture::new().await;
    let role = format!("writer_{}", uuid::Uuid::new_v4().simple());
    let client = fixture.database.client().await;
    client.batch_execute(&format!("create role {role}")).await.unwrap();
    client.batch_execute(&fixture.postgres.grants_script(&role)).await.unwrap();
    client.batch_execute(&format!("set role {role}")).await.unwrap();
    client
        .batch_execute(
            "select infra.audit_write('t.own', 'alice', anchor_kinds => '{a}', anchor_values => '{b}')",
        )
        .await
        .unwrap();
    for refused in [
        "update infra.audit set name = 'x'",
        "delete from infra.audit_anchor",
        "truncate infra.audit",
        "select infra.audit_purge(0)",
    ] {
        let error = client.batch_execute(refused).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{refused}: {error}");
    }
    // And a setting does not open the door for whoever has the rights: only what ends with the function does.
    client.batch_execute("reset role").await.unwrap();
    client.batch_execute("select infra.audit_purge(1e9)").await.unwrap();
    assert!(client.batch_execute("delete from infra.audit").await.is_err());
    let audit = Audit::new(fixture.postgres.audit());
    assert_eq!(told(&audit).await, ["t.own"]);
    audit.write(AuditEvent::new("t.more")).await.unwrap();
    client.batch_execute(&format!("drop owned by {role}; drop role {role}")).await.unwrap();
    fixture.end().await;
}
