//! Joins and transactions whose snapshot is older than what they settle.

use mainstay_core::join::{JoinState, Joins, NewJoin, Step};
use mainstay_core::outbox::Message;
use mainstay_core::queue::ClaimHandle;
use mainstay_core::store::Provider;
use mainstay_core::{OwnerToken, WorkItemId};
use tokio_postgres::error::SqlState;

use crate::support::{DEADLINE, Fixture};

const LEVELS: [&str; 2] = ["repeatable read", "serializable"];

/// A transaction of an application that has looked at something already.
fn begin(level: &str) -> String {
    format!("begin isolation level {level}; select count(*) from infra.outbox")
}

fn ack(owner: OwnerToken, claim: &ClaimHandle) -> String {
    let (id, generation) = (claim.id(), claim.generation());
    format!("select * from infra.outbox_ack('{owner}', '{{{id}}}', '{{{generation}}}')")
}

async fn claimed(fixture: &Fixture, owner: OwnerToken) -> Vec<ClaimHandle> {
    let request = mainstay_core::queue::ClaimRequest::new(owner);
    fixture.outbox.claim(&request).await.unwrap().handles()
}

#[tokio::test]
async fn the_end_of_a_step_behind_an_old_snapshot_is_refused() {
    let fixture = Fixture::new().await;
    let joins = Joins::new(fixture.postgres.joins());
    let client = fixture.database.client().await;
    for level in LEVELS {
        let owner = OwnerToken::new();
        let join = joins.start(NewJoin::new(2)).await.unwrap();
        let item = fixture.outbox.enqueue(Message::new("t", "")).await.unwrap().work_item;
        let claims = claimed(&fixture, owner).await;
        joins.attach(join, &[item]).await.unwrap();
        client.batch_execute(&begin(level)).await.unwrap();
        let refused = client.batch_execute(&ack(owner, &claims[0])).await.unwrap_err();
        let refused = refused.as_db_error().unwrap();
        assert_eq!(refused.code(), &SqlState::ACTIVE_SQL_TRANSACTION, "{refused}");
        assert!(refused.message().contains(&level.to_uppercase()), "{refused}");
        assert!(refused.hint().unwrap().contains("Nothing has ended"), "{refused:?}");
        client.batch_execute("rollback").await.unwrap();

        // Whether the join has all its steps makes no difference.
        joins.attach(join, &[WorkItemId::new()]).await.unwrap();
        client.batch_execute(&begin(level)).await.unwrap();
        let refused = client.batch_execute(&ack(owner, &claims[0])).await.unwrap_err();
        assert_eq!(refused.code(), Some(&SqlState::ACTIVE_SQL_TRANSACTION));
        client.batch_execute("rollback").await.unwrap();
        // Nothing has happened, and it is counted where it can be.
        assert_eq!(joins.get(join).await.unwrap().unwrap().completed, 0);
        client.batch_execute(&format!("begin; {}; commit", ack(owner, &claims[0]))).await.unwrap();
        assert_eq!(joins.get(join).await.unwrap().unwrap().completed, 1);
        joins.cancel(join).await.unwrap();
    }
    fixture.end().await;
}

#[tokio::test]
async fn cancelling_a_step_behind_an_old_snapshot_is_refused() {
    let fixture = Fixture::new().await;
    let joins = Joins::new(fixture.postgres.joins());
    let join = joins.start(NewJoin::new(1)).await.unwrap();
    let step = fixture.outbox.enqueue(Message::new("t", "").join(join)).await.unwrap().work_item;
    let client = fixture.database.client().await;
    client.batch_execute(&begin("repeatable read")).await.unwrap();
    let refused =
        client.batch_execute(&format!("select infra.outbox_cancel('{{{step}}}')")).await.unwrap_err();
    assert_eq!(refused.code(), Some(&SqlState::ACTIVE_SQL_TRANSACTION));
    client.batch_execute("rollback").await.unwrap();
    assert_eq!(joins.get(join).await.unwrap().unwrap().state, JoinState::Pending);
    fixture.end().await;
}

#[tokio::test]
async fn what_no_join_waits_for_ends_behind_an_old_snapshot_too() {
    let fixture = Fixture::new().await;
    let joins = Joins::new(fixture.postgres.joins());
    let client = fixture.database.client().await;
    let settles = async |level: &str, message: Message| {
        let owner = OwnerToken::new();
        fixture.outbox.enqueue(message).await.unwrap();
        let claims = claimed(&fixture, owner).await;
        let (begin, ack) = (begin(level), ack(owner, &claims[0]));
        client.batch_execute(&format!("{begin}; {ack}; commit")).await.unwrap();
        assert_eq!(fixture.open().await, 0, "{level}");
    };
    for level in LEVELS {
        // No join at all; one that waits for more steps; one that has all of them; one that has ended.
        settles(level, Message::new("t", "")).await;
        let open = joins.start(NewJoin::new(9)).await.unwrap();
        settles(level, Message::new("t", "")).await;
        joins.cancel(open).await.unwrap();
        let join = joins.start(NewJoin::new(1)).await.unwrap();
        let by_hand = WorkItemId::new();
        joins.attach(join, &[by_hand]).await.unwrap();
        settles(level, Message::new("t", "")).await;
        // Steps that are reported are not looked for behind anything.
        let report = format!("select infra.joins_report('{join}', '{by_hand}', 'completed')");
        client.batch_execute(&format!("{}; {report}; commit", begin(level))).await.unwrap();
        assert_eq!(joins.get(join).await.unwrap().unwrap().state, JoinState::Completed);
        settles(level, Message::new("t", "")).await;
        let reported = joins.report(join, by_hand, Step::Failed).await.unwrap();
        assert_eq!(reported, mainstay_core::join::Reported::Already);
    }
    fixture.end().await;
}

#[tokio::test]
async fn attaching_items_while_they_are_settled_is_no_deadlock() {
    const MANY: usize = 40;
    let fixture = Fixture::new().await;
    let joins = Joins::new(fixture.postgres.joins());
    let client = fixture.database.client().await;
    // They lie in the table in the reverse order of their ids. A settle goes by the one and others go by the other.
    let add = format!(
        "select infra.outbox_add(array_agg(u.id order by u.n desc), array_agg(u.id order by u.n desc), array_agg('t'::text), array_agg(''::text))
           from (select n, format('00000000-0000-4000-8000-%s', lpad(n::text, 12, '0'))::uuid as id from generate_series(1, {MANY}) n) u"
    );
    client.batch_execute(&add).await.unwrap();
    let owner = OwnerToken::new();
    let claims = claimed(&fixture, owner).await;
    let ids: Vec<WorkItemId> = claims.iter().map(ClaimHandle::id).collect();
    assert_eq!(ids.len(), MANY);
    let join = joins.start(NewJoin::new(MANY as u32)).await.unwrap();
    // Another transaction holds one in the middle until both are under way.
    let holder = fixture.database.client().await;
    let middle = ids[MANY / 2];
    let hold = format!("begin; select from infra.outbox where id = '{middle}' for update");
    holder.batch_execute(&hold).await.unwrap();
    let settle = fixture.outbox.ack(owner, &claims);
    let attach = joins.attach(join, &ids);
    let let_go = async {
        mainstay_tests::eventually(DEADLINE, "both wait", async || {
            let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
            client.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 2
        })
        .await;
        holder.batch_execute("commit").await.unwrap();
    };
    let (settled, attached, ()) = tokio::join!(settle, attach, let_go);
    assert_eq!(settled.unwrap().changed.len(), MANY);
    assert_eq!(attached.unwrap().added, MANY as u64);
    let progress = joins.get(join).await.unwrap().unwrap();
    assert_eq!((progress.state, progress.completed), (JoinState::Completed, MANY as u32), "each counts once");
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(client.query_one(deadlocks, &[]).await.unwrap().get::<_, i64>(0), 0);
    fixture.end().await;
}
