//! The branches: three smaller shops, each with a database of its own in a temporary folder. This process works on all of them as a fleet.

use std::path::Path;

use anyhow::Context as _;
use mainstay::fleet::{DatabaseEntry, DatabaseList, Fleet, RunningFleet};
use mainstay::sqlite::SqliteConnector;
use mainstay::{Context, HandlerResult};

/// The names of the branches, by which the fleet knows their databases.
pub(crate) const BRANCHES: [&str; 3] = ["harbour", "market", "station"];

/// The topic of a count, in the branch's own outbox.
pub(crate) const COUNT: &str = "shelves.count";

/// The branches, open.
pub(crate) struct Branches {
    running: RunningFleet,
}

impl Branches {
    /// Makes their databases in this folder, and gets to work on them.
    pub(crate) async fn open(folder: &Path) -> anyhow::Result<Self> {
        let databases = BRANCHES.map(|branch| {
            let path = folder.join(format!("{branch}.db"));
            DatabaseEntry::new(branch, path.to_string_lossy())
        });
        let fleet = Fleet::builder(DatabaseList::new(databases)?, SqliteConnector::new())
            .each(|_, mainstay| mainstay.outbox(|outbox| outbox.raw_handler(COUNT, count)))
            .build()?;
        let running = fleet.start().await?;
        for deployed in fleet.deploy(BRANCHES.len()).await {
            let branch = deployed.id;
            deployed.result.with_context(|| format!("the branch {branch} can't be opened"))?;
        }
        Ok(Self { running })
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        self.running.fleet()
    }

    /// Lets go of their databases.
    pub(crate) async fn close(self) {
        self.running.stop().await;
    }
}

/// Counts the shelves of a branch.
async fn count(_context: Context) -> HandlerResult {
    Ok(())
}
