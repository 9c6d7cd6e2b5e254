//! Sees from outside that databases of a server are written to: by what the server counts of each of them.
//!
//! The server adds up what was inserted and updated in a database when a transaction has ended, so a look that follows sees it. A
//! connection that counted within the last second adds the rest with a later one, or when it ends. Anybody who may connect may read the
//! counts, and reading them, as all that looks do, is not counted.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::fleet::{DatabaseEntry, Mark, Watch};
use mainstay_core::{Error, ErrorKind, Result};
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tokio_util::task::AbortOnDropHandle;

use crate::allowance::Allowance;
use crate::error::from_driver;
use crate::fleet::Change;
use crate::provider::connector;
use crate::url::Target;

const WATCH: &str = "postgres.watch";

/// How many databases of a server are tried at a time, until one can be connected to.
const ATTEMPTS: usize = 3;

/// How long the server has to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

const COUNTS: &str = "select datname::text, coalesce(tup_inserted, 0) + coalesce(tup_updated, 0), \
     current_setting('track_counts') = 'on' \
     from pg_catalog.pg_stat_database where datname = any($1)";

/// Watches the databases of one server, through a connection to any of them.
pub(crate) struct ServerWatch {
    address: String,
    change: Option<Change>,
    link: Option<Link>,
    /// Which of the databases is connected to next.
    next: usize,
}

/// The connection.
struct Link {
    client: Client,
    driver: AbortOnDropHandle<()>,
    /// The database it is to.
    entry: DatabaseEntry,
}

impl ServerWatch {
    pub(crate) fn new(target: &Target, change: Option<Change>) -> Self {
        Self { address: target.address(), change, link: None, next: 0 }
    }

    /// The connection there is, if it is still of use.
    async fn current(&mut self, entries: &[&DatabaseEntry]) -> Option<Link> {
        let link = self.link.take()?;
        if !link.client.is_closed() && entries.contains(&&link.entry) {
            return Some(link);
        }
        // Its database has left the fleet, and must not be kept from being dropped.
        link.close().await;
        None
    }

    async fn connect(&mut self, entries: &[&DatabaseEntry]) -> Result<Link> {
        let mut failed = Error::new(ErrorKind::Internal, WATCH, "there is no database to connect to");
        for _ in 0..ATTEMPTS.min(entries.len()) {
            let at = self.next % entries.len();
            // Should nobody wait for the answer any more, it is the next one's turn.
            self.next = at + 1;
            match self.connect_to(entries[at]).await {
                Ok(link) => {
                    self.next = at;
                    return Ok(link);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    async fn connect_to(&self, entry: &DatabaseEntry) -> Result<Link> {
        let builder = crate::fleet::builder(entry, self.change.as_ref());
        let (_, connector) = connector(&builder, Allowance::new(None))?;
        let (client, connection) = connector.connect(WATCH).await?;
        let driver = AbortOnDropHandle::new(tokio::spawn(async move {
            // Whoever uses it is told, too.
            drop(connection.await);
        }));
        Ok(Link { client, driver, entry: entry.clone() })
    }
}

impl Link {
    async fn close(self) {
        let Self { client, mut driver, .. } = self;
        drop(client);
        if tokio::time::timeout(GOODBYE, &mut driver).await.is_err() {
            driver.abort();
            drop(driver.await);
        }
    }
}

#[async_trait]
impl Watch for ServerWatch {
    fn place(&self) -> &str {
        &self.address
    }

    fn connects(&self) -> bool {
        true
    }

    async fn read(&mut self, entries: &[&DatabaseEntry]) -> Result<Vec<Option<Mark>>> {
        let name = |entry: &&DatabaseEntry| {
            Target::parse(entry.target.expose())
                .map_or_else(|_| String::new(), |target| target.database().to_owned())
        };
        let names: Vec<String> = entries.iter().map(name).collect();
        let link = match self.current(entries).await {
            Some(link) => link,
            None => self.connect(entries).await?,
        };
        let rows = link.client.query_typed(COUNTS, &[(&names, Type::TEXT_ARRAY)]).await;
        let rows = rows.map_err(|error| from_driver(WATCH, error))?;
        let counts = rows.iter().map(|row| -> Result<(&str, u64, bool), tokio_postgres::Error> {
            Ok((row.try_get(0)?, row.try_get::<_, i64>(1)? as u64, row.try_get(2)?))
        });
        let counts = counts.collect::<Result<Vec<_>, _>>().map_err(|error| from_driver(WATCH, error))?;
        self.link = Some(link);
        if counts.iter().any(|(_, _, counting)| !counting) {
            let text = "the server's setting track_counts is off, so it does not count what is written";
            return Err(Error::new(ErrorKind::Config, WATCH, text));
        }
        let counts: HashMap<_, _> = counts.into_iter().map(|(name, count, _)| (name, count)).collect();
        let mark = |name: &String| counts.get(name.as_str()).map(|count| Mark::new([*count, 0, 0, 0]));
        Ok(names.iter().map(mark).collect())
    }

    async fn let_go(&mut self) {
        if let Some(link) = self.link.take() {
            link.close().await;
        }
    }
}

impl std::fmt::Debug for ServerWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerWatch").field("address", &self.address).finish_non_exhaustive()
    }
}
