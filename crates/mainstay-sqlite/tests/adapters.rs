//! Enqueueing in the application's own transaction, with the driver it already uses.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use mainstay_core::join::{Joins, MemberPage, NewJoin, Reported, Step};
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::store::{Names, Provider};
use mainstay_core::{ErrorKind, JoinId, WorkItemId};
use mainstay_sqlite::Sqlite;

use support::{Scratch, deployed};

async fn ready(scratch: &Scratch) -> u64 {
    scratch.outbox.stats().await.unwrap().ready
}

/// How many of the join's steps have completed, and how many members it has; none if there is no such join.
async fn standing(joins: &Joins, id: JoinId) -> Option<(u32, usize)> {
    let members = joins.members(id, MemberPage::default()).await.unwrap().len();
    joins.get(id).await.unwrap().map(|join| (join.completed, members))
}

#[tokio::test]
async fn rusqlite_transactions_carry_joins_and_their_steps() {
    let scratch = Scratch::new().await;
    let joins = Joins::new(scratch.sqlite.joins());
    let mut connection = scratch.connect();
    for commit in [false, true] {
        let mut transaction = connection.transaction().unwrap();
        let join = joins.start_in_blocking(&mut transaction, NewJoin::new(4)).unwrap();
        let message = || Message::new("t", "").join(join);
        let one = scratch.outbox.enqueue_in_blocking(&mut transaction, message()).unwrap();
        for added in [true, false] {
            let same = message().idempotency_key("k");
            assert_eq!(scratch.outbox.enqueue_in_blocking(&mut transaction, same).unwrap().added, added);
        }
        let by_hand = WorkItemId::new();
        let items = [by_hand, one.work_item];
        assert_eq!(joins.attach_in_blocking(&mut transaction, join, &items).unwrap().added, 1);
        let reported = joins.report_in_blocking(&mut transaction, join, by_hand, Step::Completed).unwrap();
        assert!(matches!(reported, Reported::Counted(_)), "{reported:?}");
        assert_eq!(standing(&joins, join).await, None, "not before the commit");
        if commit {
            transaction.commit().unwrap()
        } else {
            transaction.rollback().unwrap()
        }
        assert_eq!(standing(&joins, join).await, commit.then_some((1, 3)));
    }
}

#[tokio::test]
async fn rusqlite_transactions_carry_messages() {
    let scratch = Scratch::new().await;
    let mut connection = scratch.connect();
    connection.execute_batch("CREATE TABLE orders (number INTEGER)").unwrap();
    for (commit, expected) in [(false, 0), (true, 1)] {
        let mut transaction = connection.transaction().unwrap();
        transaction.execute("INSERT INTO orders VALUES (7)", []).unwrap();
        let message = Message::new("order.paid", "7").correlation("c").header("h", "v").priority(3);
        let enqueued = scratch.outbox.enqueue_in_blocking(&mut transaction, message).unwrap();
        assert_eq!(ready(&scratch).await, 0, "not before the commit");
        if commit {
            transaction.commit().unwrap()
        } else {
            transaction.rollback().unwrap()
        }
        assert_eq!(ready(&scratch).await, expected);
        let found = scratch.outbox.get(enqueued.work_item).await.unwrap();
        assert_eq!(found.is_some(), commit);
    }
    let orders: i64 = connection.query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap();
    assert_eq!(orders, 1);
}

#[tokio::test]
async fn a_bare_rusqlite_connection_commits_at_once() {
    let scratch = Scratch::new().await;
    let mut connection = scratch.connect();
    let first = || Message::new("t", "").idempotency_key("once");
    let added = scratch.outbox.enqueue_in_blocking(&mut connection, first()).unwrap();
    let again = scratch.outbox.enqueue_in_blocking(&mut connection, first()).unwrap();
    assert_eq!((added.added, again.added, added.work_item), (true, false, again.work_item));
    assert_eq!(ready(&scratch).await, 1);
    assert!(connection.is_autocommit());
}

#[tokio::test]
async fn a_refused_message_leaves_the_rest_of_the_transaction_alone() {
    let scratch = Scratch::new().await;
    let taken = scratch.outbox.enqueue(Message::new("t", "")).await.unwrap().work_item;
    let mut connection = scratch.connect();
    let mut transaction = connection.transaction().unwrap();
    scratch.outbox.enqueue_in_blocking(&mut transaction, Message::new("t", "")).unwrap();
    let twice = Message::new("t", "").work_item_id(taken).idempotency_key("k");
    let error = scratch.outbox.enqueue_in_blocking(&mut transaction, twice).unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::AlreadyExists, Some("work_item_id")));
    transaction.commit().unwrap();
    assert_eq!(ready(&scratch).await, 2);
    let free = scratch.outbox.enqueue(Message::new("t", "").idempotency_key("k")).await.unwrap();
    assert!(free.added, "nothing of the refused message was kept, not even its key");
}

#[tokio::test]
async fn names_come_from_the_store() {
    let scratch = Scratch::new().await;
    let names = Names::default().with_schema("it's \"odd\"").unwrap().with_outbox("mail").unwrap();
    let other = deployed(&scratch.sqlite.with_names(names)).await;
    let mut connection = scratch.connect();
    other.enqueue_in_blocking(&mut connection, Message::new("t", "")).unwrap();
    assert_eq!((other.stats().await.unwrap().ready, ready(&scratch).await), (1, 0));
}

#[tokio::test]
async fn a_database_without_the_tables_says_so() {
    let outbox = Outbox::new(Sqlite::memory().await.unwrap().outbox());
    let mut connection = rusqlite::Connection::open_in_memory().unwrap();
    let error = outbox.enqueue_in_blocking(&mut connection, Message::new("t", "")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
}

#[cfg(feature = "sqlx")]
mod with_sqlx {
    use super::*;
    use sqlx::{Connection, SqliteConnection};

    async fn connect(scratch: &Scratch) -> SqliteConnection {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(scratch.path());
        SqliteConnection::connect_with(&options).await.unwrap()
    }

    #[tokio::test]
    async fn transactions_carry_messages() {
        let scratch = Scratch::new().await;
        let mut connection = connect(&scratch).await;
        for (commit, expected) in [(false, 0), (true, 1)] {
            let mut transaction = connection.begin().await.unwrap();
            let message = Message::new("order.paid", "a\0b")
                .correlation("c")
                .header("h", "v")
                .ordering_key("o")
                .idempotency_key("i")
                .priority(-3)
                .due_in(std::time::Duration::ZERO)
                .expires_in(support::PATIENCE);
            let enqueued = scratch.outbox.enqueue_in(&mut transaction, message.clone()).await.unwrap();
            let again = scratch.outbox.enqueue_in(&mut transaction, message).await.unwrap();
            assert_eq!((enqueued.added, again.added, again.message), (true, false, enqueued.message));
            assert_eq!(ready(&scratch).await, 0, "not before the commit");
            if commit {
                transaction.commit().await.unwrap()
            } else {
                transaction.rollback().await.unwrap()
            }
            assert_eq!(ready(&scratch).await, expected);
            let found = scratch.outbox.get(enqueued.work_item).await.unwrap();
            assert_eq!(found.is_some(), commit);
            if let Some(found) = found {
                assert_eq!(found.payload.as_deref(), Some("a\0b"));
                assert_eq!((found.priority, found.headers["h"].as_str()), (-3, "v"));
                assert_eq!(found.due_at, Some(found.created_at));
                assert!(found.expires_at > Some(found.created_at));
            }
        }
    }

    #[tokio::test]
    async fn transactions_carry_joins_and_their_steps() {
        let scratch = Scratch::new().await;
        let joins = Joins::new(scratch.sqlite.joins());
        let mut connection = connect(&scratch).await;
        for commit in [false, true] {
            let mut transaction = connection.begin().await.unwrap();
            let join = joins.start_in(&mut transaction, NewJoin::new(4)).await.unwrap();
            let message = || Message::new("t", "").join(join);
            let one = scratch.outbox.enqueue_in(&mut transaction, message()).await.unwrap();
            let both = vec![message().idempotency_key("k"), message().idempotency_key("k")];
            scratch.outbox.enqueue_many_in(&mut transaction, both).await.unwrap();
            let by_hand = WorkItemId::new();
            let attached = joins.attach_in(&mut transaction, join, &[by_hand, one.work_item]).await;
            assert_eq!(attached.unwrap().added, 1);
            let reported = joins.report_in(&mut transaction, join, by_hand, Step::Completed).await.unwrap();
            assert!(matches!(reported, Reported::Counted(_)), "{reported:?}");
            assert_eq!(standing(&joins, join).await, None, "not before the commit");
            if commit {
                transaction.commit().await.unwrap()
            } else {
                transaction.rollback().await.unwrap()
            }
            assert_eq!(standing(&joins, join).await, commit.then_some((1, 3)));
        }
    }

    #[tokio::test]
    async fn a_bare_connection_commits_at_once_and_refuses_as_a_whole() {
        let scratch = Scratch::new().await;
        let mut connection = connect(&scratch).await;
        let taken =
            scratch.outbox.enqueue_in(&mut connection, Message::new("t", "")).await.unwrap().work_item;
        assert_eq!(ready(&scratch).await, 1);
        let batch = vec![Message::new("t", ""), Message::new("t", "").work_item_id(taken)];
        let error = scratch.outbox.enqueue_many_in(&mut connection, batch).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::AlreadyExists, Some("work_item_id")));
        assert_eq!(ready(&scratch).await, 1);
    }

    #[tokio::test]
    async fn a_database_without_the_tables_says_so() {
        let outbox = Outbox::new(Sqlite::memory().await.unwrap().outbox());
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let error = outbox.enqueue_in(&mut connection, Message::new("t", "")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    }

    #[tokio::test]
    async fn its_future_can_move_between_threads() {
        fn assert_send<T: Send>(future: T) -> T {
            future
        }
        let scratch = Scratch::new().await;
        let mut connection = connect(&scratch).await;
        assert_send(scratch.outbox.enqueue_in(&mut connection, Message::new("t", ""))).await.unwrap();
    }
}

/// A store that is not of SQLite, as far as anybody can see: it hides the one it passes calls on to.
mod disguise {
    use std::any::Any;
    use std::sync::Arc;
    use std::time::Duration;

    use async_trait::async_trait;
    use mainstay_core::audit::Actor;
    use mainstay_core::outbox::*;
    use mainstay_core::queue::*;
    use mainstay_core::store::*;
    use mainstay_core::{OwnerToken, Result, WorkItemId};

    pub(crate) struct Disguise(pub(crate) Arc<dyn OutboxStore>);

    #[async_trait]
    impl QueueStore for Disguise {
        fn identifier(&self) -> &str {
            "elsewhere"
        }
        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }
        async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch> {
            self.0.claim(request).await
        }
        async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled> {
            self.0.settle(owner, settlements).await
        }
        async fn renew(&self, owner: OwnerToken, claims: &[ClaimHandle], lease: Duration) -> Result<Settled> {
            self.0.renew(owner, claims, lease).await
        }
        async fn reap_expired(&self) -> Result<u64> {
            self.0.reap_expired().await
        }
        async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
            self.0.wait(request).await
        }
        async fn leave(&self, consumer: OwnerToken) {
            self.0.leave(consumer).await;
        }
        async fn begin(&self) -> Result<Box<dyn StoreTransaction>> {
            self.0.begin().await
        }
    }

    #[async_trait]
    impl OutboxStore for Disguise {
        async fn enqueue(&self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
            self.0.enqueue(messages).await
        }
        async fn get(&self, id: WorkItemId) -> Result<Option<OutboxMessage>> {
            self.0.get(id).await
        }
        async fn list(&self, filter: &MessageFilter, page: Page) -> Result<Vec<OutboxMessage>> {
            self.0.list(filter, page).await
        }
        async fn export(&self, filter: &MessageFilter) -> Result<Box<dyn MessageExport>> {
            self.0.export(filter).await
        }
        async fn cancel(&self, ids: &[WorkItemId], by: Option<&Actor>) -> Result<Vec<WorkItemId>> {
            self.0.cancel(ids, by).await
        }
        async fn requeue(&self, ids: &[WorkItemId], by: &Actor) -> Result<Vec<WorkItemId>> {
            self.0.requeue(ids, by).await
        }
        async fn requeue_where(
            &self,
            filter: &MessageFilter,
            limit: u32,
            by: &Actor,
        ) -> Result<Vec<WorkItemId>> {
            self.0.requeue_where(filter, limit, by).await
        }
        async fn release_key(&self, key: &str, by: &Actor) -> Result<bool> {
            self.0.release_key(key, by).await
        }
        async fn pause(&self, topic: &str, reason: Option<&str>, by: &Actor) -> Result<bool> {
            self.0.pause(topic, reason, by).await
        }
        async fn resume(&self, topic: &str, by: &Actor) -> Result<bool> {
            self.0.resume(topic, by).await
        }
        async fn paused(&self) -> Result<Vec<PausedTopic>> {
            self.0.paused().await
        }
        async fn stats(&self) -> Result<OutboxStats> {
            self.0.stats().await
        }
        async fn backlog(&self) -> Result<OutboxStats> {
            self.0.backlog().await
        }
        async fn purge(&self, retention: &Retention, by: Option<&Actor>) -> Result<u64> {
            self.0.purge(retention, by).await
        }
        async fn forward(&self, _: OwnerToken, _: u32) -> Result<Vec<WorkItemId>> {
            unreachable!()
        }
        fn as_any(&self) -> &dyn Any {
            self
        }
    }
}

#[tokio::test]
async fn a_store_of_another_kind_is_refused() {
    let scratch = Scratch::new().await;
    let outbox = Outbox::new(std::sync::Arc::new(disguise::Disguise(scratch.sqlite.outbox())));
    let error = outbox.enqueue_in_blocking(&mut scratch.connect(), Message::new("t", "")).unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("store")));
    assert!(error.message().contains("elsewhere"), "{error}");
}
