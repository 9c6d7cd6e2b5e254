use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio_postgres::Client;

use crate::postgres::TestPostgres;
use crate::url::PostgresUrl;
use crate::wait::eventually;

/// Separates the locks of templates from other advisory locks on the administrative
/// database.
const LOCK_SPACE: i32 = 0x6d61_696e;

/// The name of a template database for [`TestDatabase::create`], prepared by `init` the first
/// time any test process asks for it.
///
/// `init` gets the URL of an empty database. `version_key` stands for what `init` makes of
/// it, the text of a schema for example: with another key it is another template.
///
/// # Panics
///
/// If `name` is not a short identifier, or the database cannot be created.
///
/// [`TestDatabase::create`]: crate::TestDatabase::create
pub async fn template_database<F>(name: &str, version_key: &str, init: impl FnOnce(String) -> F) -> String
where
    F: Future<Output = ()>,
{
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    assert!(
        !name.is_empty() && name.len() <= 24 && name.chars().all(plain),
        "{name:?} is no short lower-case identifier"
    );
    let mut hasher = DefaultHasher::new();
    version_key.hash(&mut hasher);
    let hash = hasher.finish();
    let database = format!("mainstay_template_{name}_{hash:016x}");

    let admin = TestPostgres::admin().await;
    if is_template(&admin, &database).await == Some(true) {
        return database;
    }
    // Two halves of the hash would do as well; a collision only makes one wait for the other.
    let lock = hash as i32;
    // Given back with the connection, also when this process dies.
    admin.execute("SELECT pg_advisory_lock($1, $2)", &[&LOCK_SPACE, &lock]).await.expect("lock the template");
    match is_template(&admin, &database).await {
        Some(true) => return database,
        // Whoever was preparing it did not finish.
        Some(false) => {
            run(&admin, &format!("DROP DATABASE {database} WITH (FORCE)")).await;
        }
        None => {}
    }
    run(&admin, &format!("CREATE DATABASE {database} TEMPLATE template0")).await;
    let url = PostgresUrl::parse(&TestPostgres::url()).with_database(&database);
    init(url.to_string()).await;
    seal(&admin, &database).await;
    database
}

/// Whether the database is a template; none if it does not exist.
async fn is_template(admin: &Client, database: &str) -> Option<bool> {
    admin
        .query_opt("SELECT datistemplate FROM pg_database WHERE datname = $1", &[&database])
        .await
        .expect("look for the template")
        .map(|row| row.get(0))
}

/// Makes the database a template nobody is connected to: a connection would keep it from
/// being copied.
async fn seal(admin: &Client, database: &str) {
    run(admin, &format!("ALTER DATABASE {database} WITH ALLOW_CONNECTIONS false")).await;
    eventually(Duration::from_secs(30), "the template is left by all", async || {
        admin
            .query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", &[&database])
            .await
            .expect("disconnect from the template")
            .is_empty()
    })
    .await;
    // The mark of completeness, so it comes last.
    run(admin, &format!("ALTER DATABASE {database} WITH IS_TEMPLATE true")).await;
}

async fn run(admin: &Client, statement: &str) {
    if let Err(error) = admin.batch_execute(statement).await {
        panic!("{statement}: {error:?}");
    }
}
