//! A fresh SQLite database for one case, as a file or in memory.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_conformance::{End, Fixture, Lacking};
use mainstay_core::Result;
use mainstay_core::outbox::{Enqueued, Message, Outbox};
use mainstay_core::store::{Names, Provider, StoreTransaction, render};
use mainstay_sqlite::{Sqlite, SqliteTransaction};
use rusqlite::Connection;

const NOTES: &str = "CREATE TABLE IF NOT EXISTS note (text TEXT NOT NULL)";

pub(crate) struct SqliteFixture {
    sqlite: Sqlite,
    /// None in memory.
    file: Option<(tempfile::TempDir, PathBuf)>,
}

impl SqliteFixture {
    pub(crate) async fn file() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.db");
        let sqlite = Sqlite::open(&path).await.unwrap();
        sqlite.schema().deploy().await.unwrap();
        Self { sqlite, file: Some((directory, path)) }
    }

    pub(crate) async fn memory() -> Self {
        let sqlite = Sqlite::memory().await.unwrap();
        sqlite.schema().deploy().await.unwrap();
        Self { sqlite, file: None }
    }

    /// The application's own access: its own connection to the file, or a transaction on the one there is in memory.
    async fn on_own_connection<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> T {
        match &self.file {
            Some((_, path)) => work(&open(path)).unwrap(),
            None => {
                let mut transaction = self.sqlite.outbox().begin().await.unwrap();
                let result = own(transaction.as_mut()).run(work).await.unwrap();
                transaction.commit().await.unwrap();
                result
            }
        }
    }
}

fn open(path: &PathBuf) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection
}

fn own(transaction: &mut dyn StoreTransaction) -> &mut SqliteTransaction {
    transaction.as_any_mut().downcast_mut().unwrap()
}

#[async_trait]
impl Fixture for SqliteFixture {
    fn provider_name(&self) -> &'static str {
        if self.file.is_some() { "sqlite-file" } else { "sqlite-memory" }
    }

    async fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(self.sqlite.clone())
    }

    async fn second(&self) -> Arc<dyn Provider> {
        match &self.file {
            Some((_, path)) => Arc::new(Sqlite::open(path).await.unwrap()),
            None => Arc::new(self.sqlite.clone()),
        }
    }

    async fn undeployed(&self) -> Arc<dyn Provider> {
        match &self.file {
            Some((directory, _)) => Arc::new(Sqlite::open(directory.path().join("other.db")).await.unwrap()),
            None => Arc::new(Sqlite::memory().await.unwrap()),
        }
    }

    async fn with_names(&self, names: Names) -> Arc<dyn Provider> {
        match &self.file {
            Some((_, path)) => Arc::new(Sqlite::builder(path).names(names).open().await.unwrap()),
            None => Arc::new(self.sqlite.with_names(names)),
        }
    }

    async fn advance(&self, names: &Names, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap();
        let template = r#"
            UPDATE "{{schema}}_{{outbox}}" SET created_at = created_at - BY, due_at = due_at - BY,
                requested_due_at = requested_due_at - BY, expires_at = expires_at - BY, locked_until = locked_until - BY;
            UPDATE "{{schema}}_{{outbox}}_history" SET created_at = created_at - BY, due_at = due_at - BY,
                requested_due_at = requested_due_at - BY, expires_at = expires_at - BY, processed_at = processed_at - BY;
            UPDATE "{{schema}}_{{outbox}}_hold" SET held_at = held_at - BY;"#;
        let script = render(template, names).replace("BY", &micros.to_string());
        self.on_own_connection(move |connection| connection.execute_batch(&script)).await;
    }

    async fn objects(&self, names: &Names) -> BTreeSet<String> {
        let prefix = format!("{}_", names.schema());
        self.on_own_connection(move |connection| {
            let mut statement =
                connection.prepare("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")?;
            let all = statement
                .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?
                .collect::<rusqlite::Result<Vec<_>>>()?;
            let ours = all
                .into_iter()
                .filter_map(|(kind, name)| name.strip_prefix(&prefix).map(|rest| format!("{kind} {rest}")));
            Ok(ours.collect())
        })
        .await
    }

    async fn transact(
        &self,
        outbox: &Outbox,
        note: &str,
        messages: Vec<Message>,
        end: End,
    ) -> Result<Vec<Enqueued>> {
        let Some((_, path)) = &self.file else {
            let mut boxed = outbox.store().begin().await?;
            self.write_note(boxed.as_mut(), note).await;
            let enqueued = outbox.enqueue_many_in(own(boxed.as_mut()), messages).await?;
            match end {
                End::Commit => boxed.commit().await?,
                End::Rollback => boxed.rollback().await?,
            }
            return Ok(enqueued);
        };
        let mut connection = open(path);
        let mut transaction = connection.transaction().unwrap();
        transaction.execute_batch(NOTES).unwrap();
        transaction.execute("INSERT INTO note VALUES (?1)", [note]).unwrap();
        let mut enqueued = Vec::new();
        for message in messages {
            enqueued.push(outbox.enqueue_in_blocking(&mut transaction, message)?);
        }
        match end {
            End::Commit => transaction.commit().unwrap(),
            End::Rollback => transaction.rollback().unwrap(),
        }
        Ok(enqueued)
    }

    async fn write_note(&self, transaction: &mut dyn StoreTransaction, note: &str) {
        let note = note.to_owned();
        let write = move |connection: &Connection| {
            connection.execute_batch(NOTES)?;
            connection.execute("INSERT INTO note VALUES (?1)", [note]).map(drop)
        };
        own(transaction).run(write).await.unwrap();
    }

    async fn notes(&self) -> Vec<String> {
        self.on_own_connection(|connection| {
            connection.execute_batch(NOTES)?;
            let mut statement = connection.prepare("SELECT text FROM note ORDER BY text")?;
            statement.query_map([], |row| row.get(0))?.collect()
        })
        .await
    }

    async fn least_privilege(&self) -> Result<Arc<dyn Provider>, Lacking> {
        Err(Lacking("roles: a file has an owner and no roles"))
    }

    async fn without_rights(&self) -> Result<Arc<dyn Provider>, Lacking> {
        Err(Lacking("roles: a file has an owner and no roles"))
    }

    async fn encrypted(&self) -> Result<(Arc<dyn Provider>, bool), Lacking> {
        Err(Lacking("connections: a file is opened, not connected to"))
    }

    async fn call(&self, _: &Names, _: &str, _: &[Option<&str>]) -> Result<Vec<String>, String> {
        Err("SQLite has no stored functions".to_owned())
    }
}
