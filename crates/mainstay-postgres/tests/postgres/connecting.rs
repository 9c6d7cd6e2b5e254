//! Getting to a server: later, by another way, encrypted, or not at all.

use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::store::Provider;
use mainstay_postgres::Postgres;
use mainstay_tests::{FaultProxy, OwnCluster, PostgresUrl, TestDatabase, TestPostgres};
use tokio::net::TcpListener;

use crate::schema::all_operations;
use crate::support::{Fixture, database};

/// What connecting by this URL ends in.
async fn error_of(url: &str) -> mainstay_core::Error {
    let postgres = match Postgres::connect(url).await {
        Ok(postgres) => postgres,
        Err(error) => return error,
    };
    postgres.now().await.unwrap_err()
}

fn shared() -> PostgresUrl {
    PostgresUrl::parse(&TestPostgres::url())
}

/// Whether the pool's connections are encrypted.
async fn is_encrypted(postgres: &Postgres) -> bool {
    let client = postgres.pool().get().await.unwrap();
    let ssl = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
    client.query_one(ssl, &[]).await.unwrap().get(0)
}

/// A port on which nobody listens.
async fn dead_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn a_wrong_url_is_refused_without_a_server() {
    let error = Postgres::connect("postgres://u:s3cret@h:port/d").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("port"), "{error}");
    for builder in [
        Postgres::builder("postgres://h").pool_size(0),
        Postgres::builder("postgres://h").connect_timeout(Duration::ZERO),
        Postgres::builder("postgres://h").acquire_timeout(Duration::ZERO),
        Postgres::builder("postgres://h").call_timeout(Duration::ZERO),
        Postgres::builder("postgres://h").ca_certificate("/nowhere/ca.pem"),
        Postgres::builder("postgres://h").ca_certificate_pem("not a certificate"),
        Postgres::builder("postgres://h?sslrootcert=/nowhere/ca.pem"),
    ] {
        assert_eq!(builder.connect().await.unwrap_err().kind(), ErrorKind::Config);
    }
}

#[tokio::test]
async fn nothing_shows_the_password() {
    let builder = Postgres::builder("postgres://u:s3cret@localhost:1/d?connect_timeout=1");
    assert!(!format!("{builder:?}").contains("s3cret"));
    let postgres = builder.connect().await.unwrap();
    let store = postgres.outbox();
    let error = postgres.now().await.unwrap_err();
    let shown =
        format!("{postgres:?} {} {error} {error:?} {:?}", store.identifier(), postgres.schema().script());
    assert!(!shown.contains("s3cret"));
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    assert_eq!(store.identifier(), "localhost:1/d/infra.outbox");
}

#[tokio::test]
async fn what_the_server_refuses_says_what_to_do() {
    let error = error_of(&shared().with_credentials("postgres", "wrong").to_string()).await;
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Denied, false));
    assert!(error.message().contains("password"), "{error}");
    let error = error_of(&shared().with_credentials("nobody", "wrong").to_string()).await;
    assert_eq!(error.kind(), ErrorKind::Denied);
    let error =
        error_of(&shared().with_database("there is none".replace(' ', "%20").as_str()).to_string()).await;
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Config, false));
    assert!(error.message().contains("there is none"), "{error}");
    let no_password = format!("postgres://postgres@{}/postgres", shared().address());
    assert_eq!(error_of(&no_password).await.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn the_server_may_come_up_later() {
    let cluster = OwnCluster::create().await;
    cluster.stop().await;
    let postgres = Postgres::connect(cluster.url()).await.unwrap();
    let outbox = Outbox::new(postgres.outbox());
    let error = outbox.enqueue(Message::new("t", "")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    cluster.start().await;
    postgres.schema().deploy().await.unwrap();
    outbox.enqueue(Message::new("t", "")).await.unwrap();
}

#[tokio::test]
async fn connections_are_encrypted_and_checked_as_asked() {
    let ca = TestPostgres::ca();
    let mode = |mode: &str| shared().with_parameter("sslmode", mode);
    let with_ca = |url: PostgresUrl| url.with_parameter("sslrootcert", ca.to_str().unwrap()).to_string();
    for (url, encrypted) in [
        (mode("disable").to_string(), false),
        (shared().to_string(), true),
        (mode("prefer").to_string(), true),
        (mode("require").to_string(), true),
        (with_ca(mode("require")), true),
        (with_ca(mode("verify-ca")), true),
        (with_ca(mode("verify-full")), true),
        (with_ca(mode("verify-full").with_host("localhost")), true),
        (with_ca(shared()), true),
        // The name is wrong, but is not looked at.
        (with_ca(mode("verify-ca").with_host("0.0.0.0")), true),
    ] {
        let postgres = Postgres::connect(&url).await.unwrap();
        assert_eq!(is_encrypted(&postgres).await, encrypted, "{:?}", PostgresUrl::parse(&url));
    }
    let builder = Postgres::builder(&TestPostgres::url()).ca_certificate(&ca);
    assert!(is_encrypted(&builder.connect().await.unwrap()).await);
    let pem = std::fs::read(&ca).unwrap();
    let builder = Postgres::builder(&TestPostgres::url()).ca_certificate_pem(pem);
    assert!(is_encrypted(&builder.connect().await.unwrap()).await);
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_refused() {
    let ca = TestPostgres::ca();
    let another = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/postgres/another-authority.pem");
    let mode = |mode: &str| shared().with_parameter("sslmode", mode);
    for url in [
        mode("require").with_parameter("sslrootcert", another),
        mode("verify-ca").with_parameter("sslrootcert", another),
        mode("verify-full").with_parameter("sslrootcert", another),
        mode("prefer").with_parameter("sslrootcert", another),
        // The certificate is not for this name.
        mode("verify-full").with_parameter("sslrootcert", ca.to_str().unwrap()).with_host("0.0.0.0"),
        // The operating system knows nothing of the tests' authority.
        mode("verify-full"),
        mode("verify-ca").with_parameter("sslrootcert", "system"),
    ] {
        let error = error_of(&url.to_string()).await;
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Config, false), "{url:?}: {error}");
        assert!(error.message().contains("sslrootcert"), "{url:?}: {error}");
    }
}

#[tokio::test]
async fn of_several_servers_the_one_that_answers_is_taken() {
    let good = database().await;
    let dead = dead_port().await;
    let silent = FaultProxy::for_url(&good.url()).await;
    silent.stall(true);
    let url = good.url();
    let (front, rest) = url.split_once("127.0.0.1").unwrap();
    for before in [
        format!("127.0.0.1:{dead},"),
        format!("{},", silent.address()),
        format!("localhost:{dead},{},", silent.address()),
    ] {
        let url = format!("{front}{before}127.0.0.1{rest}?target_session_attrs=read-write");
        let builder = Postgres::builder(&url).connect_timeout(Duration::from_millis(500));
        builder.connect().await.unwrap().schema().require().await.unwrap();
    }
    let none = format!("{front}127.0.0.1:{dead},{}/x", silent.address());
    let postgres =
        Postgres::builder(&none).connect_timeout(Duration::from_millis(200)).connect().await.unwrap();
    assert_eq!(postgres.now().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let none = format!("{front}{}/x", silent.address());
    let postgres =
        Postgres::builder(&none).connect_timeout(Duration::from_millis(200)).connect().await.unwrap();
    assert_eq!(postgres.now().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_server_that_has_become_read_only_is_left() {
    let fixture = Fixture::new().await;
    let admin = TestPostgres::admin().await;
    let alter = |what: &str| format!("alter database {} {what}", fixture.database.name());
    admin.batch_execute(&alter("set default_transaction_read_only = on")).await.unwrap();
    let error = fixture.outbox.enqueue(Message::new("t", "")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::ReadOnly, true));
    // A connection that was kept would go on as it began.
    admin.batch_execute(&alter("reset default_transaction_read_only")).await.unwrap();
    fixture.enqueue("now it works").await;
}

#[tokio::test]
async fn everything_works_through_a_pooler_in_transaction_mode() {
    let database = database().await;
    let postgres = Postgres::connect(&database.bouncer_url()).await.unwrap();
    let fixture = Fixture::with(database, postgres);
    all_operations(&fixture).await;
    fixture.postgres.schema().deploy().await.unwrap();
    fixture.end().await;

    let empty = TestDatabase::create(None).await;
    let postgres = Postgres::connect(&empty.bouncer_url()).await.unwrap();
    postgres.schema().deploy().await.unwrap();
    // Many at once share the pooler's sessions in any order.
    let outbox = Outbox::new(postgres.outbox());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let outbox = outbox.clone();
        tasks.spawn(async move { outbox.enqueue(Message::new("t", "")).await.unwrap() });
    }
    assert_eq!(tasks.join_all().await.len(), 200);
    assert_eq!(outbox.stats().await.unwrap().ready, 200);
}

#[tokio::test]
async fn a_pool_that_is_used_up_says_so() {
    let database = database().await;
    let builder = Postgres::builder(&database.url()).pool_size(1).acquire_timeout(Duration::from_millis(50));
    let postgres = builder.connect().await.unwrap();
    let only = postgres.pool().get().await.unwrap();
    let error = postgres.now().await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    assert!(error.message().contains("pool_size"), "{error}");
    drop(only);
    postgres.now().await.unwrap();
}

#[tokio::test]
async fn handlers_transactions_leave_connections_to_the_engine() {
    let database = database().await;
    let builder = Postgres::builder(&database.url()).pool_size(4).acquire_timeout(Duration::from_millis(200));
    let fixture = Fixture::with(database, builder.connect().await.unwrap());
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(fixture.store.begin().await.unwrap());
    }
    let error = fixture.store.begin().await.err().unwrap();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    fixture.enqueue("goes on").await;
    open.pop().unwrap().rollback().await.unwrap();
    drop(open.pop());
    for _ in 0..2 {
        open.push(fixture.store.begin().await.unwrap());
    }
}

#[tokio::test]
async fn any_default_isolation_will_do() {
    for level in ["repeatable read", "serializable"] {
        let fixture = Fixture::new().await;
        let set = format!(
            "alter database {} set default_transaction_isolation = '{level}'",
            fixture.database.name()
        );
        TestPostgres::admin().await.batch_execute(&set).await.unwrap();
        all_operations(&fixture).await;
        fixture.end().await;
    }
}
