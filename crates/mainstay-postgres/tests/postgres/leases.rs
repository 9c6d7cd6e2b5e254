//! Guarding a lease in the transactions of every driver, and what is particular to it on PostgreSQL. Each runs as a task of its
//! own, which also shows that the futures can be sent.

use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::lease::{GuardIn, Lease, LeaseOptions, Leases};
use mainstay_core::store::Provider;
use mainstay_postgres::{Postgres, PostgresTransaction};
use mainstay_tests::{FaultProxy, TestDatabase, eventually};

use crate::support::{DEADLINE, database};

const BUSINESS: &str = "insert into business values (1)";

/// A database with a table of the application's.
async fn scene() -> (TestDatabase, Postgres, Leases) {
    let database = database().await;
    database.client().await.batch_execute("create table business (id int)").await.unwrap();
    let postgres = Postgres::connect(&database.url()).await.unwrap();
    let leases = Leases::new(postgres.leases());
    (database, postgres, leases)
}

fn still() -> LeaseOptions {
    LeaseOptions::default().duration(Duration::from_secs(600)).renew(false)
}

/// A lease that is held, or one that was taken by somebody else without its holder having noticed.
async fn lease(leases: &Leases, held: bool) -> Lease {
    let lease = leases.acquire_with("guarded", still()).await.unwrap().lease().unwrap();
    if !held {
        leases.force_release("guarded").await.unwrap();
        let next = leases.acquire_with("guarded", still()).await.unwrap().lease().unwrap();
        // Still held at the end of the test.
        std::mem::forget(next);
    }
    lease
}

async fn guard<Tx: GuardIn<Marker>, Marker>(lease: &Lease, tx: &mut Tx, held: bool) {
    match lease.guard(tx).await {
        Ok(()) => assert!(held, "the lease is somebody else's"),
        Err(error) => assert_eq!((error.kind(), held), (ErrorKind::LeaseLost, false), "{error}"),
    }
}

async fn assert_written(database: &TestDatabase, written: bool) {
    let rows = database.client().await.query("select from business", &[]).await.unwrap();
    assert_eq!(rows.len(), usize::from(written));
}

/// One test: the same with a lease that is held and with one that is lost. Whoever commits all the same commits nothing.
macro_rules! guards {
    ($name:ident, |$url:ident, $postgres:ident, $lease:ident, $held:ident| $body:block) => {
        #[tokio::test]
        async fn $name() {
            for $held in [true, false] {
                let (database, postgres, leases) = scene().await;
                let $lease = lease(&leases, $held).await;
                let ($url, $postgres) = (database.url(), postgres.clone());
                // Not every driver needs both.
                let _ = (&$url, &$postgres);
                tokio::spawn(async move { $body }).await.unwrap();
                assert_written(&database, $held).await;
                postgres.close().await;
            }
        }
    };
}

guards!(tokio_postgres_transactions_guard, |url, postgres, lease, held| {
    let mut client = mainstay_tests::connect(&url).await;
    let mut tx = client.transaction().await.unwrap();
    tx.execute(BUSINESS, &[]).await.unwrap();
    guard(&lease, &mut tx, held).await;
    tx.commit().await.unwrap();
});

guards!(tokio_postgres_clients_guard, |url, postgres, lease, held| {
    let mut client = mainstay_tests::connect(&url).await;
    client.batch_execute(&format!("begin; {BUSINESS}")).await.unwrap();
    guard(&lease, &mut client, held).await;
    client.batch_execute("commit").await.unwrap();
});

guards!(deadpool_transactions_guard, |url, postgres, lease, held| {
    let mut client = postgres.pool().get().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    tx.execute(BUSINESS, &[]).await.unwrap();
    guard(&lease, &mut tx, held).await;
    tx.commit().await.unwrap();
});

guards!(deadpool_clients_guard, |url, postgres, lease, held| {
    let mut client = postgres.pool().get().await.unwrap();
    client.batch_execute(&format!("begin; {BUSINESS}")).await.unwrap();
    guard(&lease, &mut client, held).await;
    guard(&lease, &mut *client, held).await;
    client.batch_execute("commit").await.unwrap();
});

guards!(handlers_transactions_guard, |url, postgres, lease, held| {
    let mut tx = postgres.outbox().begin().await.unwrap();
    let own = tx.as_any_mut().downcast_mut::<PostgresTransaction>().unwrap();
    own.client().unwrap().batch_execute(BUSINESS).await.unwrap();
    guard(&lease, own, held).await;
    assert_eq!(tx.commit().await.is_ok(), held);
});

#[cfg(feature = "sqlx")]
guards!(sqlx_transactions_guard, |url, postgres, lease, held| {
    use sqlx::Connection;
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    sqlx::query(BUSINESS).execute(&mut *tx).await.unwrap();
    guard(&lease, &mut tx, held).await;
    guard(&lease, &mut *tx, held).await;
    tx.commit().await.unwrap();
});

#[cfg(feature = "diesel")]
guards!(diesel_transactions_guard, |url, postgres, lease, held| {
    use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
    let mut connection = AsyncPgConnection::establish(&url).await.unwrap();
    // The driver takes the server's answer to a commit for one, whatever it was.
    let _answer = connection
        .transaction::<(), diesel::result::Error, _>(async |connection| {
            diesel::sql_query(BUSINESS).execute(connection).await?;
            guard(&lease, connection, held).await;
            Ok(())
        })
        .await;
});

#[cfg(feature = "sea-orm")]
guards!(sea_orm_transactions_guard, |url, postgres, lease, held| {
    use sea_orm::{ConnectionTrait, TransactionTrait};
    let database = sea_orm::Database::connect(url).await.unwrap();
    let mut tx = database.begin().await.unwrap();
    tx.execute_unprepared(BUSINESS).await.unwrap();
    guard(&lease, &mut tx, held).await;
    tx.commit().await.unwrap();
    database.close().await.unwrap();
});

/// What a transaction with an old view of the database would say of a lease is worth nothing, neither yes nor no.
#[tokio::test]
async fn a_transaction_with_an_old_snapshot_is_refused_and_the_lease_stays_held() {
    for isolation in ["repeatable read", "serializable"] {
        let (database, postgres, leases) = scene().await;
        let lease = lease(&leases, true).await;
        let mut client = database.client().await;
        let begin = format!("begin isolation level {isolation}; {BUSINESS}; select 1");
        client.batch_execute(&begin).await.unwrap();
        // Renewed in between, so that the snapshot shows another end than there is.
        assert!(lease.renew().await.unwrap());
        let error = lease.guard(&mut client).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.message().contains("READ COMMITTED") && !error.is_retryable(), "{error}");
        lease.check().unwrap();
        client.batch_execute("commit").await.unwrap();

        // Taken away in between: the snapshot would say yes.
        client.batch_execute(&begin).await.unwrap();
        leases.force_release("guarded").await.unwrap();
        assert_eq!(lease.guard(&mut client).await.unwrap_err().kind(), ErrorKind::Config);
        client.batch_execute("commit").await.unwrap();
        assert_written(&database, false).await;

        client.batch_execute("begin").await.unwrap();
        assert_eq!(lease.guard(&mut client).await.unwrap_err().kind(), ErrorKind::LeaseLost);
        postgres.close().await;
    }
}

/// One that is not in a transaction is refused: the guard would be over before anything is written.
async fn assert_refused_outside<Tx: GuardIn<Marker>, Marker>(lease: &Lease, tx: &mut Tx) {
    let error = lease.guard(tx).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("tx")), "{error}");
    assert!(error.message().contains("must be a transaction; begin one first"), "{error}");
    lease.check().unwrap();
}

#[tokio::test]
async fn a_bare_connection_of_any_driver_can_not_guard() {
    let (database, postgres, leases) = scene().await;
    let lease = lease(&leases, true).await;
    for url in [database.url(), database.bouncer_url()] {
        let mut client = mainstay_tests::connect(&url).await;
        assert_refused_outside(&lease, &mut client).await;
        // It is as good as before.
        client.batch_execute("begin").await.unwrap();
        lease.guard(&mut client).await.unwrap();
        client.batch_execute("commit").await.unwrap();
        assert_refused_outside(&lease, &mut client).await;

        let other = Postgres::connect(&url).await.unwrap();
        let mut client = other.pool().get().await.unwrap();
        assert_refused_outside(&lease, &mut client).await;
        assert_refused_outside(&lease, &mut *client).await;
        drop(client);
        other.close().await;

        #[cfg(feature = "sqlx")]
        {
            use sqlx::Connection;
            let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
            assert_refused_outside(&lease, &mut connection).await;
            sqlx::raw_sql("begin").execute(&mut connection).await.unwrap();
            lease.guard(&mut connection).await.unwrap();
            sqlx::raw_sql("rollback").execute(&mut connection).await.unwrap();
        }
        #[cfg(feature = "diesel")]
        {
            use diesel_async::{AsyncConnection, AsyncPgConnection};
            let mut connection = AsyncPgConnection::establish(&url).await.unwrap();
            assert_refused_outside(&lease, &mut connection).await;
        }
    }
    postgres.close().await;
}

/// Two databases with the same names in them, as with a database per tenant: one's lease is nothing to the other's transactions,
/// whether there is a lease of that name or not, and even if it is held by the same owner under the same epoch.
#[tokio::test]
async fn a_transaction_of_another_database_says_nothing_of_the_lease() {
    let (_ours, postgres, leases) = scene().await;
    let (theirs, other, others) = scene().await;
    let same = || still().owner("same");
    let lease = leases.acquire_with("guarded", same()).await.unwrap().lease().unwrap();
    for is_there in [false, true] {
        let _theirs =
            if is_there { others.acquire_with("guarded", same()).await.unwrap().lease() } else { None };
        let mut client = theirs.client().await;
        client.batch_execute("begin").await.unwrap();
        let error = lease.guard(&mut client).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("tx")), "{error}");
        assert!(error.message().contains("of the lease's own database"), "{error}");
        lease.check().unwrap();
        client.batch_execute("rollback").await.unwrap();
        #[cfg(feature = "sqlx")]
        {
            use sqlx::Connection;
            let mut connection = sqlx::PgConnection::connect(&theirs.url()).await.unwrap();
            let mut tx = connection.begin().await.unwrap();
            assert_eq!(lease.guard(&mut tx).await.unwrap_err().field(), Some("tx"));
            lease.check().unwrap();
        }
    }
    assert!(lease.renew().await.unwrap());
    postgres.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_transaction_that_only_reads_can_not_be_guarded() {
    let (database, postgres, leases) = scene().await;
    let lease = lease(&leases, true).await;
    let mut client = database.client().await;
    client.batch_execute("begin read only").await.unwrap();
    assert_eq!(lease.guard(&mut client).await.unwrap_err().kind(), ErrorKind::ReadOnly);
    lease.check().unwrap();
    postgres.close().await;
}

#[tokio::test]
async fn a_row_can_not_be_made_to_lie() {
    let (database, postgres, leases) = scene().await;
    let lease = lease(&leases, true).await;
    let client = database.client().await;
    for wrong in ["epoch = 0", "fencing_token = 0", "name = ''", "owner = ''", "expires_at = 'infinity'"] {
        let update = format!("update infra.lease set {wrong}");
        assert!(client.batch_execute(&update).await.is_err(), "{wrong}");
    }
    assert!(lease.renew().await.unwrap());
    postgres.close().await;
}

/// R20: the database is down past the end of the lease, and nobody has to be asked to know that it is lost.
#[tokio::test]
async fn a_database_that_is_gone_past_the_end_loses_the_lease_here() {
    let database = database().await;
    for stalled in [false, true] {
        let proxy = FaultProxy::for_url(&database.url()).await;
        let postgres = Postgres::connect(&proxy.url(&database.url())).await.unwrap();
        let options = LeaseOptions::default().duration(Duration::from_secs(2)).wait(DEADLINE);
        let leases = Leases::new(postgres.leases());
        let lease = leases.acquire_with("reports", options.clone()).await.unwrap().lease().unwrap();
        eventually(DEADLINE, "it is renewed", async || {
            lease.is_lost() || lease.fencing_token() > lease.epoch()
        })
        .await;
        if stalled {
            proxy.stall(true);
        } else {
            proxy.refuse(true);
            proxy.cut().await;
        }
        tokio::time::timeout(DEADLINE, lease.cancellation().cancelled()).await.expect("the lease is lost");
        assert_eq!(lease.check().unwrap_err().kind(), ErrorKind::LeaseLost);
        // Somebody whose way to the database is free gets it, and not before the holder knew.
        let direct = Postgres::connect(&database.url()).await.unwrap();
        let next =
            Leases::new(direct.leases()).acquire_with("reports", options).await.unwrap().lease().unwrap();
        assert!(lease.is_lost());
        assert!(next.epoch() > lease.epoch());
        next.close().await.unwrap();
        drop(lease);
        direct.close().await;
        postgres.close().await;
    }
}
