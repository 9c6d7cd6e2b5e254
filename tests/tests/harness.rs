//! The harness does what it says.

// Helper functions of tests are not in a test themselves, where clippy would let them be.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use mainstay_tests::{
    ClusterOptions, FaultProxy, OwnCluster, PostgresUrl, TestDatabase, TestPostgres, connect, eventually,
    template_database,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio_postgres::{Client, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Long enough for a loaded machine; a condition that holds is seen at once.
const DEADLINE: Duration = Duration::from_secs(60);

async fn number(client: &Client, query: &str) -> i64 {
    client.query_one(query, &[]).await.unwrap().get(0)
}

async fn databases_named(name: &str) -> i64 {
    let query = "SELECT count(*) FROM pg_database WHERE datname = $1";
    let admin = TestPostgres::admin().await;
    admin.query_one(query, &[&name]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_database_is_created_and_dropped() {
    let database = TestDatabase::create(None).await;
    let name = database.name().to_owned();
    assert_eq!(databases_named(&name).await, 1);

    // A connection that is still open does not keep the database.
    let client = database.client().await;
    assert_eq!(number(&client, "SELECT 1::bigint").await, 1);
    database.drop_now().await;
    assert_eq!(databases_named(&name).await, 0);
}

#[tokio::test]
async fn a_template_is_prepared_once_and_copied() {
    // A key of this run's own: the template is not there yet.
    let key = TestDatabase::create(None).await.name().to_owned();
    let prepare = || {
        template_database("harness", &key, async |url: String| {
            let client = connect(&url).await;
            // Fails if it is done twice to the same database.
            client.batch_execute("CREATE TABLE a AS SELECT 7::bigint AS x").await.unwrap();
        })
    };
    let (one, two) = tokio::join!(prepare(), prepare());
    assert_eq!(one, two);

    let database = TestDatabase::create(Some(&one)).await;
    let client = database.client().await;
    assert_eq!(number(&client, "SELECT x FROM a").await, 7);

    let admin = TestPostgres::admin().await;
    for statement in [format!("ALTER DATABASE {one} WITH IS_TEMPLATE false"), format!("DROP DATABASE {one}")]
    {
        admin.batch_execute(&statement).await.unwrap();
    }
}

#[tokio::test]
async fn the_proxy_cuts_connections() {
    let proxy = FaultProxy::for_url(&TestPostgres::url()).await;
    let url = proxy.url(&TestPostgres::url());
    let client = connect(&url).await;
    assert_eq!(number(&client, "SELECT 1::bigint").await, 1);
    assert_eq!(proxy.connections(), 1);

    proxy.cut().await;
    assert_eq!(proxy.connections(), 0);
    eventually(DEADLINE, "the client notices", async || client.is_closed()).await;
    assert!(client.query_one("SELECT 1", &[]).await.is_err());

    // Only what was open is cut.
    let client = connect(&url).await;
    assert_eq!(number(&client, "SELECT 1::bigint").await, 1);
}

#[tokio::test]
async fn the_proxy_refuses_connections() {
    let proxy = FaultProxy::for_url(&TestPostgres::url()).await;
    let url = proxy.url(&TestPostgres::url());
    let client = connect(&url).await;

    proxy.refuse(true);
    assert!(tokio_postgres::connect(&url, NoTls).await.is_err());
    assert_eq!(number(&client, "SELECT 1::bigint").await, 1);

    proxy.refuse(false);
    assert!(tokio_postgres::connect(&url, NoTls).await.is_ok());
}

#[tokio::test]
async fn the_proxy_counts_round_trips() {
    let proxy = FaultProxy::for_url(&TestPostgres::url()).await;
    let client = connect(&proxy.url(&TestPostgres::url())).await;
    let before = proxy.round_trips();
    assert!(before > 0, "connecting takes some");
    client.batch_execute("SELECT 1").await.unwrap();
    assert_eq!(proxy.round_trips(), before + 1);
    // However much of it there is.
    let long = format!("SELECT length('{}')", "x".repeat(1 << 20));
    client.batch_execute(&format!("{long}; {long}")).await.unwrap();
    assert_eq!(proxy.round_trips(), before + 2);
}

#[tokio::test]
async fn the_proxy_stalls_connections() {
    let database = TestDatabase::create(None).await;
    let direct = database.client().await;
    direct.batch_execute("CREATE TABLE a (x bigint)").await.unwrap();
    let proxy = FaultProxy::for_url(&database.url()).await;
    let stalled = connect(&proxy.url(&database.url())).await;

    proxy.stall(true);
    let insert = tokio::spawn(async move { stalled.execute("INSERT INTO a VALUES (1)", &[]).await });
    // The statement was sent, and others get through meanwhile, but it does not arrive.
    for _ in 0..20 {
        assert_eq!(number(&direct, "SELECT count(*) FROM a").await, 0);
    }
    assert!(!insert.is_finished());
    assert_eq!(proxy.connections(), 1);

    proxy.stall(false);
    assert_eq!(insert.await.unwrap().unwrap(), 1);
    assert_eq!(number(&direct, "SELECT count(*) FROM a").await, 1);
}

#[tokio::test]
async fn the_proxy_silences_one_connection() {
    let database = TestDatabase::create(None).await;
    let direct = database.client().await;
    direct.batch_execute("CREATE TABLE a (x bigint)").await.unwrap();
    let proxy = FaultProxy::for_url(&database.url()).await;
    let (first, second) =
        (connect(&proxy.url(&database.url())).await, connect(&proxy.url(&database.url())).await);
    let insert = "INSERT INTO a VALUES (1)";
    assert_eq!(second.execute(insert, &[]).await.unwrap(), 1);

    proxy.silence("INTO a VALUES");
    // What was sent before does not count.
    assert_eq!(number(&second, "SELECT 1::bigint").await, 1);
    let silenced = tokio::spawn(async move { first.batch_execute(insert).await });
    eventually(DEADLINE, "the statement is done", async || {
        number(&direct, "SELECT count(*) FROM a").await == 2
    })
    .await;
    assert_eq!(proxy.silenced(), 1);
    assert_eq!(second.execute(insert, &[]).await.unwrap(), 1);
    assert!(!silenced.is_finished());
    silenced.abort();
}

#[tokio::test]
async fn an_own_cluster_survives_a_crash() {
    let cluster = OwnCluster::create().await;
    let client = cluster.client().await;
    client.batch_execute("CREATE TABLE a AS SELECT 7::bigint AS x").await.unwrap();
    let busy = cluster.client().await;
    // Would go on for an hour if only the first process of the server were killed.
    let busy = tokio::spawn(async move { busy.execute("SELECT pg_sleep(3600)", &[]).await });
    eventually(DEADLINE, "the statement runs", async || {
        let query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        number(&client, query).await == 1
    })
    .await;

    cluster.kill().await;
    eventually(DEADLINE, "the client notices", async || client.is_closed()).await;
    assert!(busy.await.unwrap().is_err());
    assert!(tokio_postgres::connect(cluster.url(), NoTls).await.is_err());

    cluster.start().await;
    let client = cluster.client().await;
    assert_eq!(number(&client, "SELECT x FROM a").await, 7);

    cluster.stop().await;
    assert!(tokio_postgres::connect(cluster.url(), NoTls).await.is_err());
    cluster.start().await;
    let client = cluster.client().await;
    assert_eq!(number(&client, "SELECT x FROM a").await, 7);
}

/// A cluster with a table `a` of one row, and a replica that has it.
async fn replicated() -> (OwnCluster, OwnCluster) {
    let primary = OwnCluster::create_with(ClusterOptions::default().replicated()).await;
    primary.client().await.batch_execute("CREATE TABLE a AS SELECT 1::bigint AS x").await.unwrap();
    let replica = primary.replica(ClusterOptions::default().replicated()).await;
    (primary, replica)
}

const ROWS: &str = "SELECT count(*) FROM a";

#[tokio::test]
async fn a_promoted_replica_takes_writes_and_has_what_it_received() {
    let (primary, replica) = replicated().await;
    let client = replica.client().await;
    assert_eq!(number(&client, ROWS).await, 1);
    assert!(client.batch_execute("INSERT INTO a VALUES (2)").await.is_err(), "a replica takes no writes");
    primary.client().await.batch_execute("INSERT INTO a VALUES (2)").await.unwrap();
    eventually(DEADLINE, "the replica follows", async || number(&client, ROWS).await == 2).await;

    let proxy = FaultProxy::for_url(primary.url()).await;
    let before = connect(&proxy.url(primary.url())).await;
    primary.kill().await;
    replica.promote().await;
    client.batch_execute("INSERT INTO a VALUES (3)").await.unwrap();
    eventually(DEADLINE, "the client notices", async || before.is_closed()).await;
    proxy.lead_to(replica.url());
    assert_eq!(number(&connect(&proxy.url(primary.url())).await, ROWS).await, 3);
}

#[tokio::test]
async fn a_replica_that_was_stopped_loses_the_tail() {
    let (primary, replica) = replicated().await;
    replica.stop().await;
    primary.client().await.batch_execute("INSERT INTO a VALUES (2)").await.unwrap();
    primary.kill().await;
    replica.start().await;
    replica.promote().await;
    assert_eq!(number(&replica.client().await, ROWS).await, 1);
}

#[tokio::test]
async fn a_backup_is_restored_as_it_was() {
    let (primary, _replica) = replicated().await;
    let backup = primary.backup(ClusterOptions::default()).await;
    primary.client().await.batch_execute("INSERT INTO a VALUES (2)").await.unwrap();
    backup.start().await;
    let client = backup.client().await;
    assert_eq!(number(&client, ROWS).await, 1);
    client.batch_execute("INSERT INTO a VALUES (3)").await.unwrap();
}

#[tokio::test]
async fn the_bouncer_is_in_transaction_mode() {
    let database = TestDatabase::create(None).await;
    let console = PostgresUrl::parse(&database.bouncer_url()).with_database("pgbouncer");
    let (console, connection) = tokio_postgres::connect(&console.to_string(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let settings = console.simple_query("SHOW CONFIG").await.unwrap();
    let setting = |name: &str| {
        settings.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) if row.get(0) == Some(name) => {
                row.get(1).map(str::to_owned)
            }
            _ => None,
        })
    };
    assert_eq!(setting("pool_mode").as_deref(), Some("transaction"));
    // Absent before PgBouncer knew prepared statements.
    assert_eq!(setting("max_prepared_statements").unwrap_or_else(|| "0".into()), "0");

    // Clients share a session, except while one of them is inside a transaction.
    let one = connect(&database.bouncer_url()).await;
    let two = connect(&database.bouncer_url()).await;
    let backend = async |client: &Client| {
        let rows = client.simple_query("SELECT pg_backend_pid()").await.unwrap();
        rows.iter()
            .find_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
            .unwrap()
    };
    eventually(DEADLINE, "both clients share a session", async || backend(&one).await == backend(&two).await)
        .await;
    one.batch_execute("BEGIN").await.unwrap();
    assert_ne!(backend(&one).await, backend(&two).await);
}

fn tls(roots: rustls::RootCertStore) -> MakeRustlsConnect {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    MakeRustlsConnect::new(config)
}

#[tokio::test]
async fn the_servers_certificate_can_be_verified() {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(TestPostgres::ca()).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let url = PostgresUrl::parse(&TestPostgres::url()).with_parameter("sslmode", "require");
    for host in ["localhost", "127.0.0.1"] {
        let url = url.clone().with_host(host).to_string();
        let (client, connection) = tokio_postgres::connect(&url, tls(roots.clone())).await.unwrap();
        tokio::spawn(connection);
        let query = "SELECT count(*) FROM pg_stat_ssl WHERE ssl AND pid = pg_backend_pid()";
        assert_eq!(number(&client, query).await, 1);
    }

    let nobody = tls(rustls::RootCertStore::empty());
    assert!(tokio_postgres::connect(&url.to_string(), nobody).await.is_err());
}
