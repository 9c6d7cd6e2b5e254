//! What timers rely on in PostgreSQL: moved ones keep the rule of the floors, forwarding stays cheap, and whoever forwards is woken.

use std::time::Duration;

use mainstay_core::outbox::Message;
use mainstay_core::store::{Provider, Queue, WaitRequest, Wake};
use mainstay_core::timer::{NewTimer, Timers};
use mainstay_core::{OwnerToken, WorkItemId};
use mainstay_tests::{TestDatabase, eventually};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{DEADLINE, Fixture, database};

const HOUR: Duration = Duration::from_secs(3_600);

async fn schedule(client: &Client, due_in_seconds: f64) -> Uuid {
    let sql = "select work_item_id from infra.timers_schedule('t', '', due_in_seconds => $1)";
    client.query_one(sql, &[&due_in_seconds]).await.unwrap().get(0)
}

async fn forward(client: &Client) -> Vec<Uuid> {
    let sql = "select f.id from infra.timers_forward($1, 100) f(id)";
    let rows = client.query(sql, &[&Uuid::new_v4()]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Moves a timer to a time in the past, in a transaction that began before the floors had risen, and says whether it is found.
async fn is_found_when_moved_late(database: &TestDatabase) -> bool {
    let (client, slow) = (database.client().await, database.client().await);
    // At every opportunity.
    client.batch_execute("set mainstay.floor_pace = '0'").await.unwrap();
    let far = schedule(&client, 3_600.0).await;
    slow.batch_execute("begin; select now()").await.unwrap();
    let risen = "select coalesce((select min(d) from unnest(f.due_ats) d) > a.xact_start, false)
        from (select * from infra.timers_floor order by n desc limit 1) f, pg_stat_activity a where a.state = 'idle in transaction' and a.datname = current_database()";
    eventually(DEADLINE, "the floors have risen past its beginning", async || {
        schedule(&client, 0.0).await;
        forward(&client).await;
        client.query_opt(risen, &[]).await.unwrap().is_some_and(|row| row.get(0))
    })
    .await;
    let moved = "select infra.timers_reschedule($1, due_at => '2020-01-01')";
    assert!(slow.query_one(moved, &[&far]).await.unwrap().get::<_, bool>(0));
    slow.batch_execute("commit").await.unwrap();
    forward(&client).await.contains(&far)
}

#[tokio::test]
async fn a_timer_that_is_moved_nearer_is_never_below_a_floor() {
    assert!(is_found_when_moved_late(&database().await).await);
    // The test would notice: by the time at which its transaction began, it is hidden.
    let mutant = database().await;
    let client = mutant.client().await;
    let text = "select pg_get_functiondef('infra.timers_reschedule'::regproc)";
    let text: String = client.query_one(text, &[]).await.unwrap().get(0);
    assert!(text.contains("then clock_timestamp() end"), "the function reads differently now");
    client.batch_execute(&text.replace("then clock_timestamp() end", "then now() end")).await.unwrap();
    assert!(!is_found_when_moved_late(&mutant).await);
}

/// The blocks that one forward of one timer reads.
async fn blocks(client: &Client) -> i64 {
    schedule(client, 0.0).await;
    let sql = format!(
        "explain (analyze, buffers, costs off, timing off, format json) select infra.timers_forward('{}', 100)",
        Uuid::new_v4()
    );
    let rows = client.simple_query(&sql).await.unwrap();
    let plan = rows.iter().find_map(|row| match row {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    let plan: serde_json::Value = serde_json::from_str(&plan.unwrap()).unwrap();
    let count = |name: &str| plan[0]["Plan"][name].as_i64().unwrap();
    count("Shared Hit Blocks") + count("Shared Read Blocks")
}

#[tokio::test]
async fn a_forward_costs_the_same_with_many_waiting_and_a_long_history() {
    let database = database().await;
    let client = database.client().await;
    // Plans are made now, while the tables are empty, and kept.
    for _ in 0..10 {
        blocks(&client).await;
    }
    let few = blocks(&client).await;
    client
        .batch_execute(
            "select count(*) from infra.timers_enqueue_many(null, null, array_fill('t'::text, array[20000]),
                 array_fill(''::text, array[20000]), due_in_seconds => array_fill(3600::float8, array[20000]));
             select count(*) from infra.outbox_enqueue_many(null, null, array_fill('t'::text, array[20000]), array_fill(''::text, array[20000]));
             with c as materialized (select * from infra.outbox_claim('00000000-0000-0000-0000-000000000001', 1000, 15000))
             select count(*) from infra.outbox_ack('00000000-0000-0000-0000-000000000001',
                 (select array_agg(c.id) from c), (select array_agg(c.generation) from c))",
        )
        .await
        .unwrap();
    let many = blocks(&client).await;
    assert!(many < few + 100, "{many} blocks with many rows, {few} with few");
}

#[tokio::test]
async fn more_than_a_value_can_hold_is_forwarded_in_one_batch() {
    let database = database().await;
    let client = database.client().await;
    // 18 times 60 MiB, well compressed; rows are copied as they are, so that only the first has to be. Small ones before and after.
    client
        .batch_execute(
            "select infra.timers_schedule('small', 'first', due_in_seconds => 0);
             select infra.timers_schedule('large', repeat('large ', 10485760), due_in_seconds => 0);
             insert into infra.timers (id, message_id, topic, payload, created_at, due_at)
             select gen_random_uuid(), gen_random_uuid(), t.topic, t.payload, t.created_at, t.due_at
               from infra.timers t, generate_series(1, 17) where t.topic = 'large';
             select infra.timers_schedule('small', 'last', due_in_seconds => 0)",
        )
        .await
        .unwrap();
    assert_eq!(forward(&client).await.len(), 20);
    let whole = "select count(*) from infra.outbox where topic = 'small' and payload in ('first', 'last')
        or topic = 'large' and octet_length(payload) = 62914560";
    assert_eq!(client.query_one(whole, &[]).await.unwrap().get::<_, i64>(0), 20);
    let ended = "select count(*) from infra.timers_history where status = 2 and octet_length(payload) in (4, 5, 62914560)";
    assert_eq!(client.query_one(ended, &[]).await.unwrap().get::<_, i64>(0), 20);
}

#[tokio::test]
async fn whoever_forwards_goes_on_being_notified() {
    let fixture = Fixture::new().await;
    let timers = Timers::new(&fixture.postgres);
    let (store, owner) = (fixture.postgres.queue(Queue::Timers), OwnerToken::new());
    let request = WaitRequest::new(owner).timeout(HOUR);
    let wait =
        async || tokio::time::timeout(DEADLINE, store.wait(&request)).await.expect("it is woken").unwrap();
    // When listening begins, everybody is woken once.
    assert_eq!(wait().await, Wake::Notified);
    let client = fixture.database.client().await;
    let asks = async || {
        let waiters = "select from infra.timers_waiter where until > now()";
        client.query(waiters, &[]).await.unwrap().len() == 1
    };
    // Timers that are due later end a wait too, for they may be the nearest. That is not in vain, however often it happens.
    for _ in 0..10 {
        let scheduling = async {
            eventually(DEADLINE, "it asks to be notified", asks).await;
            timers.schedule(NewTimer::new("t", "", HOUR)).await.unwrap();
        };
        let (woken, ()) = tokio::join!(wait(), scheduling);
        assert_eq!(woken, Wake::Notified);
        assert_eq!(store.forward(owner, 10).await.unwrap(), []);
    }
    // And one that is near ends a wait when it is due.
    for _ in 0..5 {
        let near =
            timers.schedule(NewTimer::new("t", "", Duration::from_millis(20))).await.unwrap().work_item;
        assert_ne!(wait().await, Wake::TimedOut);
        eventually(DEADLINE, "it is forwarded", async || {
            store.forward(owner, 10).await.unwrap();
            timers.get(near).await.unwrap().unwrap().has_fired()
        })
        .await;
    }
    fixture.end().await;
}

/// Timers whose ids an open transaction has added to the outbox are promoted once it has ended, and the others at once.
#[tokio::test]
async fn an_open_transaction_with_the_ids_of_timers_holds_up_no_other_timer() {
    const BATCH: u32 = 4;
    let fixture = Fixture::new().await;
    let timers = Timers::new(&fixture.postgres);
    let (store, owner) = (fixture.postgres.queue(Queue::Timers), OwnerToken::new());
    let due = async || {
        let timer = NewTimer::new("t", "", Duration::ZERO);
        timers.schedule(timer).await.unwrap().work_item
    };
    let promoted = async || store.forward(owner, BATCH).await.expect("the other timers go on");
    // More than one batch of them in front.
    let mut client = fixture.database.client().await;
    let elsewhere = client.transaction().await.unwrap();
    let mut blocked = Vec::new();
    for _ in 0..2 * BATCH {
        let id = due().await;
        let add = "select infra.outbox_add(array[$1::uuid], array[gen_random_uuid()], array['t'], array['foreign'])";
        elsewhere.execute(add, &[&id.as_uuid()]).await.unwrap();
        blocked.push(id);
    }
    let others = [due().await, due().await];
    let mut found = Vec::new();
    eventually(DEADLINE, "the others are promoted", async || {
        found.extend(promoted().await);
        found.len() == others.len()
    })
    .await;
    assert_eq!(found, others);
    // What is put off is no delivery, and stays what it was.
    for id in &blocked {
        let timer = timers.get(*id).await.unwrap().unwrap();
        assert!(!timer.has_fired());
    }
    let attempts = "select coalesce(sum(attempts), 0)::bigint from infra.timers";
    let observer = fixture.database.client().await;
    assert_eq!(observer.query_one(attempts, &[]).await.unwrap().get::<_, i64>(0), 0);
    elsewhere.rollback().await.unwrap();
    let mut rest: Vec<WorkItemId> = Vec::new();
    eventually(DEADLINE, "those that were put off are promoted", async || {
        rest.extend(promoted().await);
        rest.len() == blocked.len()
    })
    .await;
    rest.sort();
    blocked.sort();
    assert_eq!(rest, blocked);
    fixture.end().await;
}

/// Should the transaction commit, the timer cannot become a message: it fails and says so.
#[tokio::test]
async fn a_timer_whose_id_another_message_gets_meanwhile_fails() {
    let fixture = Fixture::new().await;
    let timers = Timers::new(&fixture.postgres);
    let (store, owner) = (fixture.postgres.queue(Queue::Timers), OwnerToken::new());
    let mut client = fixture.database.client().await;
    let mut elsewhere = client.transaction().await.unwrap();
    let taken = timers.schedule(NewTimer::new("t", "", Duration::ZERO)).await.unwrap().work_item;
    let message = Message::new("t", "foreign").work_item_id(taken);
    fixture.outbox.enqueue_in(&mut elsewhere, message).await.unwrap();
    assert_eq!(store.forward(owner, 10).await.unwrap(), []);
    elsewhere.commit().await.unwrap();
    let observer = fixture.database.client().await;
    let failed = "select count(*) from infra.timers_history where id = $1 and status = 3 and last_error ~ 'another message'";
    eventually(DEADLINE, "the timer fails", async || {
        assert_eq!(store.forward(owner, 10).await.unwrap(), []);
        observer.query_one(failed, &[&taken.as_uuid()]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    fixture.end().await;
}
