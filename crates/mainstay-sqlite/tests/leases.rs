//! Guarding a lease in the application's own transaction, with the driver it already uses.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::lease::{Lease, LeaseOptions, Leases};
use mainstay_core::store::Provider;
use mainstay_sqlite::Sqlite;
use rusqlite::TransactionBehavior;

use support::{Scratch, own};

fn still() -> LeaseOptions {
    LeaseOptions::default().duration(Duration::from_secs(600)).renew(false)
}

async fn acquire(leases: &Leases) -> Lease {
    leases.acquire_with("guarded", still()).await.unwrap().lease().unwrap()
}

/// Gives the lease to somebody else, without its holder having noticed.
async fn take_away(leases: &Leases) -> Lease {
    leases.force_release("guarded").await.unwrap();
    acquire(leases).await
}

fn table(scratch: &Scratch) {
    scratch.connect().execute_batch("CREATE TABLE orders (number INTEGER)").unwrap();
}

fn orders(scratch: &Scratch) -> i64 {
    scratch.connect().query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn rusqlite_transactions_guard() {
    let scratch = Scratch::new().await;
    table(&scratch);
    let leases = Leases::new(scratch.sqlite.leases());
    let lease = acquire(&leases).await;
    let mut connection = scratch.connect();
    for behavior in [TransactionBehavior::Deferred, TransactionBehavior::Immediate] {
        let mut transaction = connection.transaction_with_behavior(behavior).unwrap();
        lease.guard_blocking(&mut transaction).unwrap();
        transaction.execute("INSERT INTO orders VALUES (7)", []).unwrap();
        transaction.commit().unwrap();
    }
    assert_eq!(orders(&scratch), 2);

    let next = take_away(&leases).await;
    let mut transaction = connection.transaction().unwrap();
    let error = lease.guard_blocking(&mut transaction).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    drop(transaction);
    assert!(lease.is_lost());
    connection.execute_batch("BEGIN").unwrap();
    next.guard_blocking(&mut connection).unwrap();
    connection.execute_batch("COMMIT").unwrap();
}

#[tokio::test]
async fn a_connection_without_a_transaction_is_refused() {
    let scratch = Scratch::new().await;
    let lease = acquire(&Leases::new(scratch.sqlite.leases())).await;
    let error = lease.guard_blocking(&mut scratch.connect()).unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("tx")), "{error}");
    lease.check().unwrap();
}

/// Two files with the same tables: one's lease is nothing to the other's transactions, even if it is held there by the same owner
/// under the same epoch.
#[tokio::test]
async fn a_transaction_of_another_file_says_nothing_of_the_lease() {
    let (ours, theirs) = (Scratch::new().await, Scratch::new().await);
    let same = || still().owner("same");
    let lease =
        Leases::new(ours.sqlite.leases()).acquire_with("guarded", same()).await.unwrap().lease().unwrap();
    let memory = Sqlite::memory().await.unwrap();
    memory.schema().deploy().await.unwrap();
    let in_memory =
        Leases::new(memory.leases()).acquire_with("guarded", same()).await.unwrap().lease().unwrap();
    for is_there in [false, true] {
        let leases = Leases::new(theirs.sqlite.leases());
        let _theirs =
            if is_there { leases.acquire_with("guarded", same()).await.unwrap().lease() } else { None };
        for lease in [&lease, &in_memory] {
            let mut connection = theirs.connect();
            let mut transaction = connection.transaction().unwrap();
            let error = lease.guard_blocking(&mut transaction).unwrap_err();
            assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("tx")), "{error}");
            assert!(error.message().contains("of the lease's own database"), "{error}");
            drop(transaction);
            #[cfg(feature = "sqlx")]
            {
                use sqlx::Connection;
                let url = format!("sqlite:{}", theirs.path().display());
                let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
                let mut transaction = connection.begin().await.unwrap();
                assert_eq!(lease.guard(&mut transaction).await.unwrap_err().field(), Some("tx"));
                transaction.rollback().await.unwrap();
            }
            lease.check().unwrap();
        }
    }
    // Ours, attached to a connection of something else, is ours.
    let mut connection = rusqlite::Connection::open_in_memory().unwrap();
    connection.execute("ATTACH ?1 AS mainstay", [ours.path().to_str().unwrap()]).unwrap();
    let mut transaction = connection.transaction().unwrap();
    lease.guard_blocking(&mut transaction).unwrap();
}

#[tokio::test]
async fn a_guard_makes_the_transaction_one_that_writes() {
    let scratch = Scratch::new().await;
    table(&scratch);
    let leases = Leases::new(scratch.sqlite.leases());
    let lease = acquire(&leases).await;
    let mut connection = scratch.connect();
    let mut transaction = connection.transaction().unwrap();
    lease.guard_blocking(&mut transaction).unwrap();
    let mut other = scratch.connect();
    other.busy_timeout(Duration::ZERO).unwrap();
    assert!(
        other.transaction_with_behavior(TransactionBehavior::Immediate).is_err(),
        "nobody else can write, and so nobody can take the lease"
    );
    transaction.commit().unwrap();

    // What it has seen is old: it must not be taken for how things stand.
    let mut transaction = connection.transaction().unwrap();
    let _: i64 = transaction.query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap();
    let next = take_away(&leases).await;
    let error = lease.guard_blocking(&mut transaction).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    drop(transaction);
    assert!(next.renew().await.unwrap());
}

#[tokio::test]
async fn handlers_transactions_guard() {
    let scratch = Scratch::new().await;
    table(&scratch);
    let leases = Leases::new(scratch.sqlite.leases());
    let lease = acquire(&leases).await;
    let mut transaction = scratch.outbox.store().begin().await.unwrap();
    lease.guard(own(&mut transaction)).await.unwrap();
    let insert = |connection: &rusqlite::Connection| connection.execute("INSERT INTO orders VALUES (7)", []);
    own(&mut transaction).run(insert).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(orders(&scratch), 1);

    let other = Sqlite::memory().await.unwrap();
    other.schema().deploy().await.unwrap();
    let mut transaction = other.outbox().begin().await.unwrap();
    let error = lease.guard(&mut transaction).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("store")), "{error}");
    lease.check().unwrap();
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn sqlx_transactions_guard() {
    use sqlx::Connection;

    let scratch = Scratch::new().await;
    table(&scratch);
    let leases = Leases::new(scratch.sqlite.leases());
    let lease = acquire(&leases).await;
    let url = format!("sqlite:{}", scratch.path().display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let error = lease.guard(&mut connection).await.unwrap_err();
    assert_eq!(error.field(), Some("tx"), "{error}");

    let mut transaction = connection.begin().await.unwrap();
    lease.guard(&mut transaction).await.unwrap();
    lease.guard(&mut *transaction).await.unwrap();
    sqlx::query("INSERT INTO orders VALUES (7)").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(orders(&scratch), 1);

    let _next = take_away(&leases).await;
    let mut transaction = connection.begin().await.unwrap();
    assert_eq!(lease.guard(&mut transaction).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    transaction.rollback().await.unwrap();
}

#[tokio::test]
async fn numbers_do_not_go_back_whoever_writes() {
    let scratch = Scratch::new().await;
    let leases = Leases::new(scratch.sqlite.leases());
    let lease = acquire(&leases).await;
    assert!(lease.renew().await.unwrap());
    let connection = scratch.connect();
    for wrong in [
        "UPDATE infra_lease SET epoch = 0",
        "UPDATE infra_lease SET fencing_token = 1",
        "UPDATE infra_lease SET fencing_token = 'x'",
        "UPDATE infra_lease SET owner = ''",
        "UPDATE infra_lease SET name = 'other'",
        "DELETE FROM infra_lease",
    ] {
        assert!(connection.execute_batch(wrong).is_err(), "{wrong}");
    }
    assert_eq!(lease.fencing_token(), 2);
    assert!(lease.renew().await.unwrap());
}
