//! Counts connections and memory many times a second, and keeps the most there were.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::child::{Usage, connections};
use crate::sender;
use crate::tenants::PREFIX;

const EVERY: Duration = Duration::from_millis(100);

/// The most there were of everything.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Most {
    /// Files of SQLite and connections to servers that the process had open, together.
    pub(crate) open: usize,
    /// Connections of the process that the server counted.
    pub(crate) at_server: i64,
    pub(crate) rss: u64,
    pub(crate) threads: u64,
    pub(crate) descriptors: usize,
    /// How often was looked.
    pub(crate) looks: u64,
}

/// Watches a process until it is dropped.
pub(crate) struct Watcher {
    most: Arc<Mutex<Most>>,
    task: JoinHandle<()>,
}

impl Watcher {
    pub(crate) fn start(process: u32, server: Client) -> Self {
        let most = Arc::new(Mutex::new(Most::default()));
        let seen = Arc::clone(&most);
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            loop {
                ticks.tick().await;
                // The process may have ended.
                let Ok(now) = look(process, &server).await else { return };
                let mut most = seen.lock().unwrap_or_else(PoisonError::into_inner);
                most.open = most.open.max(now.open);
                most.at_server = most.at_server.max(now.at_server);
                most.rss = most.rss.max(now.rss);
                most.threads = most.threads.max(now.threads);
                most.descriptors = most.descriptors.max(now.descriptors);
                most.looks += 1;
            }
        });
        Self { most, task }
    }

    /// The most there were since this was last asked.
    pub(crate) fn take(&self) -> Most {
        std::mem::take(&mut *self.most.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn look(process: u32, server: &Client) -> Result<Most> {
    let open = connections(process)?;
    let usage = Usage::of(process)?;
    let sql =
        "select count(*) from pg_stat_activity where starts_with(datname, $1) and application_name <> $2";
    let at_server = server.query_one(sql, &[&PREFIX, &sender::NAME]).await?.get(0);
    Ok(Most {
        open,
        at_server,
        rss: usage.rss,
        threads: usage.threads,
        descriptors: usage.descriptors,
        looks: 1,
    })
}
