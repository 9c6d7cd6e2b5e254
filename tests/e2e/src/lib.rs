//! What the end-to-end tests and their worker process share: the databases, and the effects a handler leaves behind.

// Test support reports what goes wrong in it by failing the test.
#![allow(clippy::expect_used)]

mod missed;
mod stall;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use mainstay::postgres::{Postgres, PostgresTransaction};
use mainstay::sqlite::{Sqlite, SqliteTransaction};
use mainstay::store::{Provider, StoreTransaction};
use mainstay::{Context, HandlerError};

pub use missed::miss;
pub use stall::Stall;

/// The table handlers write their effects to, one row per message handled.
const EFFECT_TABLE: &str =
    "create table if not exists effect (message text not null, attempt integer not null)";

/// Opens `sqlite:path` or `postgres://…`.
pub async fn open(url: &str) -> Result<Arc<dyn Provider>> {
    match url.strip_prefix("sqlite:") {
        Some(path) => Ok(Arc::new(Sqlite::open(path).await?)),
        None => Ok(Arc::new(Postgres::connect(url).await?)),
    }
}

/// Writes an effect and acks, in one transaction.
pub async fn effect(context: &Context) -> Result<(), HandlerError> {
    let (message, attempt) = (context.message_id().to_string(), context.attempt());
    if context.outbox().store().capabilities().functions {
        let mut tx = context.transaction::<PostgresTransaction>().await?;
        let insert = format!("insert into effect values ('{message}', {attempt})");
        tx.driver().client()?.batch_execute(&insert).await?;
        tx.complete().await?;
    } else {
        let mut tx = context.transaction::<SqliteTransaction>().await?;
        let insert = move |connection: &rusqlite::Connection| {
            connection.execute("insert into effect values (?1, ?2)", (message, attempt)).map(drop)
        };
        tx.driver().run(insert).await?;
        tx.complete().await?;
    }
    Ok(())
}

/// Writes an effect in a transaction of any provider.
pub async fn write_effect(tx: &mut dyn StoreTransaction, what: &str) -> Result<()> {
    let what = what.to_owned();
    let tx = tx.as_any_mut();
    if let Some(tx) = tx.downcast_mut::<PostgresTransaction>() {
        tx.client()?.batch_execute(&format!("insert into effect values ('{what}', 1)")).await?;
    } else if let Some(tx) = tx.downcast_mut::<SqliteTransaction>() {
        let insert = move |connection: &rusqlite::Connection| {
            connection.execute("insert into effect values (?1, 1)", [what]).map(drop)
        };
        tx.run(insert).await?;
    } else {
        anyhow::bail!("a transaction of an unknown provider");
    }
    Ok(())
}

/// Creates the table of effects.
pub async fn create_effects(url: &str) -> Result<()> {
    match url.strip_prefix("sqlite:") {
        Some(path) => rusqlite::Connection::open(path)?.execute_batch(EFFECT_TABLE)?,
        None => client(url).await?.batch_execute(EFFECT_TABLE).await?,
    }
    Ok(())
}

/// The messages that left an effect, one entry per effect.
pub async fn effects(url: &str) -> Result<Vec<String>> {
    let select = "select message from effect order by message";
    match url.strip_prefix("sqlite:") {
        Some(path) => {
            let connection = rusqlite::Connection::open(path)?;
            let mut statement = connection.prepare(select)?;
            let rows = statement.query_map([], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        }
        None => {
            // In one round trip: behind a pooler the next may be answered by another connection of the server, on which nothing is prepared.
            let rows = client(url).await?.query_typed(select, &[]).await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        }
    }
}

async fn client(url: &str) -> Result<tokio_postgres::Client> {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.context("connect")?;
    tokio::spawn(connection);
    Ok(client)
}
