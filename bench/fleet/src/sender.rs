//! A process that adds messages from outside: it knows the databases and nothing of the fleet's process.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use mainstay::fleet::{DatabaseEntry, DatabaseFile};
use mainstay::outbox::Outbox;
use mainstay::postgres::Postgres;
use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay_tests::PostgresUrl;

use crate::pacing;
use crate::wire::{Answer, Order, Report};

/// The name of this process at the PostgreSQL server.
pub(crate) const NAME: &str = "sender";

/// Adds what it is told to, to databases of this list.
pub(crate) async fn run(list: &str) -> Result<()> {
    let entries = DatabaseFile::new(list).read()?;
    let entries: HashMap<String, DatabaseEntry> =
        entries.into_iter().map(|entry| (entry.id.clone(), entry)).collect();
    crate::child::serve(async |order| {
        Ok(match order {
            Order::Report => Answer::Report(Report::default()),
            Order::Touch(_) | Order::Stop => Answer::Done,
            Order::Send(load) => {
                let mut providers = Vec::new();
                for id in &load.to {
                    providers.push(open(entries.get(id).context("no such database")?).await?);
                }
                let outboxes = providers.iter().map(|provider| Outbox::new(provider.outbox())).collect();
                let shots = pacing::send(&load, outboxes, Vec::new()).await;
                for provider in providers {
                    provider.close().await;
                }
                Answer::Sent(shots)
            }
        })
    })
    .await
}

/// Opens a database as any application would.
async fn open(entry: &DatabaseEntry) -> Result<Arc<dyn Provider>> {
    let target = entry.target.expose();
    Ok(match target.strip_prefix("sqlite:") {
        Some(path) => Arc::new(Sqlite::open(path).await?),
        None => {
            let url = PostgresUrl::parse(target).with_parameter("application_name", NAME).to_string();
            let postgres = Postgres::builder(&url).pool_size(2).connect().await?;
            // So that the first message is not the one that waits for a connection.
            postgres.now().await?;
            Arc::new(postgres)
        }
    })
}
