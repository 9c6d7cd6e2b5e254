use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use mainstay_servers::variables;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::url::PostgresUrl;

/// The PostgreSQL server all tests share.
#[derive(Debug)]
pub struct TestPostgres;

impl TestPostgres {
    /// URL of the administrative database, as superuser.
    ///
    /// # Panics
    ///
    /// If the environment does not say where the server is.
    pub fn url() -> String {
        required(variables::POSTGRES)
    }

    /// URL of the administrative database through PgBouncer in transaction mode.
    ///
    /// # Panics
    ///
    /// If the environment does not say where the pooler is.
    pub fn bouncer_url() -> String {
        required(variables::PGBOUNCER)
    }

    /// The certificate of the authority that signed the server's certificate, which is for
    /// `localhost` and `127.0.0.1`.
    ///
    /// # Panics
    ///
    /// If the environment does not say where it is.
    pub fn ca() -> PathBuf {
        required(variables::CA).into()
    }

    /// Path of the library to preload into a program to give it another clock, where there
    /// is one.
    pub fn faketime() -> Option<PathBuf> {
        std::env::var_os(variables::FAKETIME).map(PathBuf::from)
    }

    /// A connection to the administrative database.
    pub async fn admin() -> Client {
        connect(&Self::url()).await
    }
}

fn required(variable: &str) -> String {
    match std::env::var(variable) {
        Ok(value) => value,
        Err(_) => panic!("run `cargo xtask test` (or set {variable})"),
    }
}

/// Connects without TLS; the connection is driven by a task of its own.
///
/// # Panics
///
/// If the server cannot be reached or rejects the login.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = match tokio_postgres::connect(url, NoTls).await {
        Ok(connected) => connected,
        Err(error) => panic!("cannot connect to {:?}: {error:?}", PostgresUrl::parse(url)),
    };
    // How the connection ends shows in the client's results.
    tokio::spawn(connection);
    client
}

/// A database of a test's own, dropped some time after the test.
#[derive(Debug)]
pub struct TestDatabase {
    name: String,
}

impl TestDatabase {
    /// Creates a database as a copy of `template`, or an empty one.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub async fn create(template: Option<&str>) -> Self {
        let name = format!("mainstay_test_{}", Uuid::new_v4().simple());
        // Unlike template1, nobody can be connected to template0, which would stand in the way.
        let template = template.unwrap_or("template0");
        TestPostgres::admin()
            .await
            .batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}"))
            .await
            .expect("create a database");
        Self { name }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its URL, as superuser.
    pub fn url(&self) -> String {
        PostgresUrl::parse(&TestPostgres::url()).with_database(&self.name).to_string()
    }

    /// Its URL through PgBouncer in transaction mode.
    pub fn bouncer_url(&self) -> String {
        PostgresUrl::parse(&TestPostgres::bouncer_url()).with_database(&self.name).to_string()
    }

    /// A new connection to it.
    pub async fn client(&self) -> Client {
        connect(&self.url()).await
    }

    /// Drops it at once, whoever is connected.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub async fn drop_now(self) {
        drop_database(&self.name).await.expect("drop a database");
    }
}

/// How many databases are dropped together. Dropping one waits for a checkpoint, which those that are dropped at once share.
const TOGETHER: usize = 8;

/// Databases that no test needs any more. The last few go with the server, which is the test run's own.
static UNNEEDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let names = {
            let mut unneeded = UNNEEDED.lock().unwrap_or_else(PoisonError::into_inner);
            unneeded.push(self.name.clone());
            if unneeded.len() < TOGETHER { Vec::new() } else { std::mem::take(&mut *unneeded) }
        };
        // Threads, because a runtime cannot be entered from within the test's own.
        let dropping: Vec<_> = names
            .into_iter()
            .map(|name| (name.clone(), std::thread::spawn(move || drop_on_a_runtime_of_its_own(&name))))
            .collect();
        for (name, dropped) in dropping {
            match dropped.join() {
                Ok(Ok(())) => {}
                // Failing here would abort a test that is failing already, and hide why.
                Ok(Err(error)) => eprintln!("database {name} is left behind: {error:?}"),
                Err(_) => eprintln!("database {name} is left behind"),
            }
        }
    }
}

type Dropped = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn drop_on_a_runtime_of_its_own(name: &str) -> Dropped {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(drop_database(name))
}

async fn drop_database(name: &str) -> Dropped {
    let (client, connection) = tokio_postgres::connect(&TestPostgres::url(), NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
    Ok(())
}
