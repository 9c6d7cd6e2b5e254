//! Joins and transactions whose snapshot is older than what they settle.

use mainstay_core::join::{JoinState, Joins, NewJoin, Step};
use mainstay_core::outbox::Message;
use mainstay_core::queue::{ClaimHandle, ClaimRequest};
use mainstay_core::store::Provider;
use mainstay_core::{OwnerToken, WorkItemId};
use tokio_postgres::error::SqlState;

use crate::support::{DEADLINE, Fixture, somebody_waits};

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
    let request = ClaimRequest::new(owner);
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

/// The end of a join waits for no transaction that has added the id of its continuation: like one that is there, it gets another id.
#[tokio::test]
async fn an_open_transaction_with_the_id_of_a_continuation_holds_up_no_settle() {
    let fixture = Fixture::new().await;
    let joins = Joins::new(fixture.postgres.joins());
    let id = WorkItemId::new();
    let continuation = Message::new("next", "").work_item_id(id);
    let join = joins.start(NewJoin::new(1).on_completed(continuation)).await.unwrap();
    let owner = OwnerToken::new();
    fixture.outbox.enqueue(Message::new("t", "").join(join)).await.unwrap();
    let claims = claimed(&fixture, owner).await;
    let (mut client, settler) = (fixture.database.client().await, fixture.database.client().await);
    let mut elsewhere = client.transaction().await.unwrap();
    let foreign = Message::new("t", "foreign").work_item_id(id);
    fixture.outbox.enqueue_in(&mut elsewhere, foreign).await.unwrap();
    // What it changes for that ends with it.
    let settle = format!(
        "begin; set local lock_timeout = '7s'; {}; do $$ begin assert current_setting('lock_timeout') = '7s'; end $$; commit",
        ack(owner, &claims[0])
    );
    settler.batch_execute(&settle).await.expect("the settle goes on");
    elsewhere.commit().await.unwrap();
    assert_eq!(joins.get(join).await.unwrap().unwrap().state, JoinState::Completed);
    let next = claimed(&fixture, owner).await;
    assert_eq!(next.len(), 2);
    fixture.end().await;
}

/// A transaction that attaches items in two calls, and a settle of the same ones, in every order of either.
#[tokio::test]
async fn two_attaches_in_one_transaction_and_a_settle_are_no_deadlock() {
    let fixture = Fixture::new().await;
    let joins = Joins::new(fixture.postgres.joins());
    let client = fixture.database.client().await;
    let (attacher, settler) = (fixture.database.client().await, fixture.database.client().await);
    let owner = OwnerToken::new();
    // Done, failed, and each way for one of them.
    for outcomes in ["0,0", "2,2", "0,2", "2,0"] {
        for (first, second) in [(0, 1), (1, 0)] {
            let join = joins.start(NewJoin::new(9)).await.unwrap();
            for _ in 0..2 {
                fixture.enqueue("").await;
            }
            let claims = claimed(&fixture, owner).await;
            assert_eq!(claims.len(), 2);
            let attach = |n: usize| format!("select infra.joins_attach('{join}', '{{{}}}')", claims[n].id());
            attacher.batch_execute(&format!("begin; {}", attach(first))).await.unwrap();
            let settle = format!(
                "select count(*) from infra.outbox_settle('{owner}', '{{{},{}}}', '{{{},{}}}', '{{{outcomes}}}')",
                claims[0].id(),
                claims[1].id(),
                claims[0].generation(),
                claims[1].generation()
            );
            let settling = async { settler.query_one(&settle, &[]).await.map(|row| row.get::<_, i64>(0)) };
            let attaching = async {
                mainstay_tests::eventually(DEADLINE, "the settle waits", async || {
                    somebody_waits(&client).await
                })
                .await;
                attacher.batch_execute(&attach(second)).await?;
                attacher.batch_execute("commit").await
            };
            let (settled, attached) = tokio::join!(settling, attaching);
            attached.unwrap_or_else(|error| panic!("{outcomes}, {first} first: {error:?}"));
            let settled = settled.unwrap_or_else(|error| panic!("{outcomes}, {first} first: {error:?}"));
            assert_eq!(settled, 2);
            let progress = joins.get(join).await.unwrap().unwrap();
            assert_eq!(progress.completed + progress.failed, 2, "each counts once");
        }
    }
    fixture.end().await;
}

/// An attach of what has ended counts it, and so locks a place of the join; the next one of its transaction waits for an item.
#[tokio::test]
async fn an_attach_that_counts_and_one_that_waits_are_no_deadlock_with_a_settle() {
    let fixture = Fixture::new().await;
    let joins = Joins::new(fixture.postgres.joins());
    let client = fixture.database.client().await;
    let (attacher, settler) = (fixture.database.client().await, fixture.database.client().await);
    let owner = OwnerToken::new();
    let (one, other) =
        (joins.start(NewJoin::new(9)).await.unwrap(), joins.start(NewJoin::new(9)).await.unwrap());
    fixture.enqueue("").await;
    let ended = claimed(&fixture, owner).await;
    fixture.outbox.ack(owner, &ended).await.unwrap();
    fixture.outbox.enqueue(Message::new("t", "").join(one)).await.unwrap();
    let open = claimed(&fixture, owner).await;
    let attach = |join, id| format!("select infra.joins_attach('{join}', '{{{id}}}')");
    attacher.batch_execute(&format!("begin; {}", attach(one, ended[0].id()))).await.unwrap();
    let settle = ack(owner, &open[0]);
    let settling = settler.batch_execute(&settle);
    let attaching = async {
        mainstay_tests::eventually(DEADLINE, "the settle waits", async || somebody_waits(&client).await)
            .await;
        attacher.batch_execute(&attach(other, open[0].id())).await?;
        attacher.batch_execute("commit").await
    };
    let (settled, attached) = tokio::join!(settling, attaching);
    attached.unwrap();
    settled.unwrap();
    for (join, completed) in [(one, 2), (other, 1)] {
        assert_eq!(joins.get(join).await.unwrap().unwrap().completed, completed);
    }
    fixture.end().await;
}
