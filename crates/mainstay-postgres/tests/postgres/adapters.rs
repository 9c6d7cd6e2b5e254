//! Enqueueing in the transactions of every driver: there with the commit, gone with the rollback. Each runs as a task
//! of its own, which also shows that the futures can be sent.

use std::time::Duration;

use mainstay_core::inbox::{Inbox, Incoming, ReceivedOutcome};
use mainstay_core::join::{JoinFilter, JoinPage, JoinState, Joins, MemberPage, NewJoin, Reported, Step};
use mainstay_core::outbox::{EnqueueIn, Message, MessageFilter, Outbox, Page};
use mainstay_core::store::{CallIn, Provider};
use mainstay_core::{ErrorKind, WorkItemId};
use mainstay_postgres::Postgres;

use crate::support::Fixture;

/// What is used in the drivers' transactions.
struct Stores {
    outbox: Outbox,
    inbox: Inbox,
    joins: Joins,
}

impl Stores {
    fn of(fixture: &Fixture) -> Self {
        let (outbox, joins) = (fixture.outbox.clone(), Joins::new(fixture.postgres.joins()));
        Self { outbox, inbox: Inbox::new(&fixture.postgres), joins }
    }
}

/// What the join of the transactions is found by.
const GROUP: &str = "group \\ \" ' {NULL,}";

/// Enqueues one message alone and two together, with everything a message can have; receives two, and completes a guard. The
/// messages are steps of a join that is started in the same transaction, and so is a step that is reported in it.
async fn enqueue<Tx: EnqueueIn<Marker> + CallIn<Marker>, Marker>(stores: &Stores, tx: &mut Tx) {
    let Stores { outbox, inbox, joins } = stores;
    let join = joins.start_in(tx, NewJoin::new(4).grouping_key(GROUP)).await.unwrap();
    let odd =
        Message::new("received", "päyload \\ \" ' {NULL,}").header("h", "\\\"").due_at(jiff::Timestamp::MIN);
    let incoming =
        vec![Incoming::new("a", "m", odd), Incoming::new("b\\\"", "m", Message::new("received", ""))];
    let received = inbox.enqueue_many_in(tx, incoming).await.unwrap();
    assert!(received.iter().all(|one| one.outcome == ReceivedOutcome::Added && !one.hash_mismatch));
    // On another connection, before the transaction ends. Its own name each time: one of a rollback lapses by itself.
    let guarded = uuid::Uuid::now_v7().to_string();
    let guard = inbox.begin("guarded", &guarded).await.unwrap().into_new().unwrap();
    guard.complete_in(tx).await.unwrap();
    let full = Message::new("full", "päyload \\ \" '")
        .correlation("c")
        .ordering_key("o")
        .priority(-9)
        .header("h", "{\"x\"}")
        .due_at("2001-02-03T04:05:06.789Z".parse().unwrap())
        .expires_in(Duration::from_millis(90_500))
        .join(join);
    let one = outbox.enqueue_in(tx, full).await.unwrap();
    assert!(one.added);
    let same = Message::new("same", "").idempotency_key("k").join(join);
    let ancient = Message::new("same", "").idempotency_key("k").due_at(jiff::Timestamp::MIN);
    let two = outbox.enqueue_many_in(tx, vec![same, ancient]).await.unwrap();
    assert_eq!([two[0].added, two[1].added], [true, false]);
    assert_eq!(two[0].work_item, two[1].work_item);
    let by_hand = WorkItemId::new();
    let attached = joins.attach_in(tx, join, &[by_hand, one.work_item, two[0].work_item]).await.unwrap();
    assert_eq!((attached.added, attached.counted), (1, None), "the messages were steps already");
    let reported = joins.report_in(tx, join, by_hand, Step::Completed).await.unwrap();
    assert!(matches!(reported, Reported::Counted(_)), "{reported:?}");
}

async fn assert_there(fixture: &Fixture, there: bool) {
    let messages = fixture.outbox.list(&MessageFilter::all(), Page::default()).await.unwrap();
    assert_eq!(messages.len(), if there { 2 } else { 0 });
    let stats = Inbox::new(&fixture.postgres).stats().await.unwrap();
    assert_eq!((stats.queue.ready, stats.ledger.done), if there { (2, 1) } else { (0, 0) });
    let (joins, filter) = (Joins::new(fixture.postgres.joins()), JoinFilter::default().grouping_key(GROUP));
    let found = joins.list(&filter, JoinPage::default()).await.unwrap();
    assert_eq!(found.len(), usize::from(there));
    for join in found {
        assert_eq!((join.completed, join.failed, join.state), (1, 0, JoinState::Pending));
        let members = joins.members(join.id, MemberPage::default()).await.unwrap();
        assert!(messages.iter().all(|one| members.iter().any(|member| member.work_item == one.id)));
        assert_eq!(members.len(), 3);
    }
    let rows = fixture.database.client().await.query("select from business", &[]).await.unwrap().len();
    assert_eq!(rows, usize::from(there));
    if there {
        let full = messages.iter().find(|message| message.topic == "full").unwrap();
        assert_eq!(full.payload.as_deref(), Some("päyload \\ \" '"));
        assert_eq!(full.correlation_id.as_deref(), Some("c"));
        assert_eq!(full.ordering_key.as_deref(), Some("o"));
        assert_eq!(full.priority, -9);
        assert_eq!(full.headers["h"], "{\"x\"}");
        assert_eq!(full.due_at.unwrap().to_string(), "2001-02-03T04:05:06.789Z");
        assert_eq!(full.expires_at.unwrap().duration_since(full.created_at).as_millis(), 90_500);
    }
}

async fn fixture() -> Fixture {
    let fixture = Fixture::new().await;
    fixture.database.client().await.batch_execute("create table business (id int)").await.unwrap();
    fixture
}

const BUSINESS: &str = "insert into business values (1)";

#[tokio::test]
async fn tokio_postgres_transactions() {
    let fixture = fixture().await;
    for commit in [false, true] {
        let (outbox, mut client) = (Stores::of(&fixture), fixture.database.client().await);
        let work = async move {
            let mut tx = client.transaction().await.unwrap();
            tx.execute(BUSINESS, &[]).await.unwrap();
            enqueue(&outbox, &mut tx).await;
            if commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
        };
        tokio::spawn(work).await.unwrap();
        assert_there(&fixture, commit).await;
    }
}

#[tokio::test]
async fn tokio_postgres_clients() {
    let fixture = fixture().await;
    for end in ["rollback", "commit"] {
        let (outbox, mut client) = (Stores::of(&fixture), fixture.database.client().await);
        let work = async move {
            client.batch_execute(&format!("begin; {BUSINESS}")).await.unwrap();
            enqueue(&outbox, &mut client).await;
            client.batch_execute(end).await.unwrap();
        };
        tokio::spawn(work).await.unwrap();
        assert_there(&fixture, end == "commit").await;
    }
}

#[tokio::test]
async fn deadpool_transactions() {
    let fixture = fixture().await;
    for commit in [false, true] {
        let (outbox, pool) = (Stores::of(&fixture), fixture.postgres.pool().clone());
        let work = async move {
            let mut client = pool.get().await.unwrap();
            let mut tx = client.transaction().await.unwrap();
            tx.execute(BUSINESS, &[]).await.unwrap();
            enqueue(&outbox, &mut tx).await;
            if commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
        };
        tokio::spawn(work).await.unwrap();
        assert_there(&fixture, commit).await;
    }
}

#[tokio::test]
async fn deadpool_clients() {
    let fixture = fixture().await;
    for end in ["rollback", "commit"] {
        let (outbox, pool) = (Stores::of(&fixture), fixture.postgres.pool().clone());
        let work = async move {
            let mut client = pool.get().await.unwrap();
            client.batch_execute(&format!("begin; {BUSINESS}")).await.unwrap();
            if end == "commit" {
                enqueue(&outbox, &mut client).await;
            } else {
                enqueue(&outbox, &mut *client).await;
            }
            client.batch_execute(end).await.unwrap();
        };
        tokio::spawn(work).await.unwrap();
        assert_there(&fixture, end == "commit").await;
    }
}

#[tokio::test]
async fn handlers_transactions() {
    let fixture = fixture().await;
    for commit in [false, true] {
        let (outbox, store) = (Stores::of(&fixture), fixture.store.clone());
        let work = async move {
            let mut tx = store.begin().await.unwrap();
            let own = tx.as_any_mut().downcast_mut::<mainstay_postgres::PostgresTransaction>().unwrap();
            own.client().unwrap().batch_execute(BUSINESS).await.unwrap();
            enqueue(&outbox, own).await;
            if commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
        };
        tokio::spawn(work).await.unwrap();
        assert_there(&fixture, commit).await;
    }
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn sqlx_transactions_and_connections() {
    use sqlx::Connection;

    let fixture = fixture().await;
    for commit in [false, true] {
        let (outbox, url) = (Stores::of(&fixture), fixture.database.url());
        let work = async move {
            let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
            let mut tx = connection.begin().await.unwrap();
            sqlx::query(BUSINESS).execute(&mut *tx).await.unwrap();
            if commit {
                enqueue(&outbox, &mut tx).await;
                tx.commit().await.unwrap();
            } else {
                enqueue(&outbox, &mut *tx).await;
                tx.rollback().await.unwrap();
            }
            // What was sent left no prepared statement behind.
            let names = "select name from pg_prepared_statements where statement like '%outbox_enqueue%'";
            assert!(
                sqlx::query(names).persistent(false).fetch_all(&mut connection).await.unwrap().is_empty()
            );
        };
        tokio::spawn(work).await.unwrap();
        assert_there(&fixture, commit).await;
    }
}

#[cfg(feature = "diesel")]
#[tokio::test]
async fn diesel_transactions() {
    use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

    let fixture = fixture().await;
    for end in ["rollback", "commit"] {
        let (outbox, url) = (Stores::of(&fixture), fixture.database.url());
        let work = async move {
            let mut connection = AsyncPgConnection::establish(&url).await.unwrap();
            let result = connection
                .transaction::<(), diesel::result::Error, _>(async |connection| {
                    diesel::sql_query(BUSINESS).execute(connection).await?;
                    enqueue(&outbox, connection).await;
                    if end == "commit" { Ok(()) } else { Err(diesel::result::Error::RollbackTransaction) }
                })
                .await;
            assert_eq!(result.is_ok(), end == "commit");
            connection.batch_execute("select 1").await.unwrap();
        };
        tokio::spawn(work).await.unwrap();
        assert_there(&fixture, end == "commit").await;
    }
}

#[cfg(feature = "sea-orm")]
#[tokio::test]
async fn sea_orm_transactions() {
    use sea_orm::{ConnectionTrait, Database, TransactionTrait};

    let fixture = fixture().await;
    for commit in [false, true] {
        let (outbox, url) = (Stores::of(&fixture), fixture.database.url());
        let work = async move {
            let database = Database::connect(url).await.unwrap();
            let mut tx = database.begin().await.unwrap();
            tx.execute_unprepared(BUSINESS).await.unwrap();
            enqueue(&outbox, &mut tx).await;
            if commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
        };
        tokio::spawn(work).await.unwrap();
        assert_there(&fixture, commit).await;
    }
}

#[tokio::test]
async fn a_transaction_that_has_failed_is_told_as_such() {
    let fixture = fixture().await;
    let mut client = fixture.database.client().await;
    let mut tx = client.transaction().await.unwrap();
    tx.execute("select 1/0", &[]).await.unwrap_err();
    let error = fixture.outbox.enqueue_in(&mut tx, Message::new("t", "")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Conflict, false));
}

#[tokio::test]
async fn a_database_without_the_schema_is_told_as_such() {
    let database = mainstay_tests::TestDatabase::create(None).await;
    let postgres = Postgres::connect(&database.url()).await.unwrap();
    let outbox = Outbox::new(postgres.outbox());
    let mut client = database.client().await;
    let mut tx = client.transaction().await.unwrap();
    let error = outbox.enqueue_in(&mut tx, Message::new("t", "")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(error.to_string().contains("mainstay migrate"), "{error}");

    #[cfg(feature = "sqlx")]
    {
        use sqlx::Connection;
        let mut connection = sqlx::PgConnection::connect(&database.url()).await.unwrap();
        let error = outbox.enqueue_in(&mut connection, Message::new("t", "")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
    }
    #[cfg(feature = "diesel")]
    {
        use diesel_async::AsyncConnection;
        let mut connection = diesel_async::AsyncPgConnection::establish(&database.url()).await.unwrap();
        let error = outbox.enqueue_in(&mut connection, Message::new("t", "")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
    }
    #[cfg(feature = "sea-orm")]
    {
        use sea_orm::TransactionTrait;
        let connection = sea_orm::Database::connect(database.url()).await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        let error = outbox.enqueue_in(&mut tx, Message::new("t", "")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
    }
}
