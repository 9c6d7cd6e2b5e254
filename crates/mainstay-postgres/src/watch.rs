//! Sees from outside that databases of a server are written to: by what the server counts of each of them, and when their sessions last
//! did something.
//!
//! The server adds up what was inserted and updated in a database when a transaction has ended, so a look that follows sees it. Anybody
//! who may connect may read the counts, and reading them, as all that looks do, is not counted. But a session that has counted within the
//! last second, be it for a read, adds the rest later: with its next transaction, when it ends, or from PostgreSQL 15 on after 10 s. So the
//! sessions themselves are looked at as well. Those of roles that one may not see have no times, and are known by the counts alone; those
//! of a fleet are left out, since looks are among them.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::fleet::{DatabaseEntry, Mark, Watch};
use mainstay_core::store::Allowance;
use mainstay_core::{Error, ErrorKind, Result};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use tokio_util::task::AbortOnDropHandle;

use crate::error::from_driver;
use crate::fleet::Change;
use crate::pool::Parameter;
use crate::provider::{FLEET, connector};
use crate::url::Target;

const WATCH: &str = "postgres.watch";

/// How many databases of a server are tried at a time, until one can be connected to.
const ATTEMPTS: usize = 3;

/// How long the server has to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// The first version in which a session that does nothing any more counts what it has written.
const COUNTS_IN_THE_END: i32 = 150_000;

const COUNTS: &str = "\
select d.datname::text, coalesce(d.tup_inserted, 0) + coalesce(d.tup_updated, 0),
       coalesce((extract(epoch from max(a.state_change)) * 1000000)::int8, 0),
       current_setting('track_counts') = 'on', current_setting('server_version_num')::int4
  from pg_catalog.pg_stat_database d
  left join pg_catalog.pg_stat_activity a
    on a.datid = d.datid and a.backend_type = 'client backend' and a.application_name <> all($2)
 where d.datname = any($1)
 group by d.datname, d.tup_inserted, d.tup_updated";

/// Watches the databases of one server, through a connection to any of them.
pub(crate) struct ServerWatch {
    address: String,
    change: Option<Change>,
    link: Option<Link>,
    /// Which of the databases is connected to next.
    next: usize,
    /// When a session of each database last did something. The session may be gone since.
    active: HashMap<String, i64>,
    is_complete: bool,
}

/// The connection.
struct Link {
    client: Client,
    driver: AbortOnDropHandle<()>,
    /// The database it is to.
    entry: DatabaseEntry,
}

/// What the server says of a database.
struct Counted {
    database: String,
    written: i64,
    active: i64,
    counts: bool,
    version: i32,
}

impl Counted {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            database: row.try_get(0)?,
            written: row.try_get(1)?,
            active: row.try_get(2)?,
            counts: row.try_get(3)?,
            version: row.try_get(4)?,
        })
    }
}

impl ServerWatch {
    pub(crate) fn new(target: &Target, change: Option<Change>) -> Self {
        Self {
            address: target.address(),
            change,
            link: None,
            next: 0,
            active: HashMap::new(),
            is_complete: false,
        }
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
        let (_, connector) = connector(&builder, FLEET, Allowance::new(None))?;
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
        let target = |entry: &&DatabaseEntry| Target::parse(entry.target.expose()).ok();
        let targets: Vec<_> = entries.iter().map(target).collect();
        let name = |target: &Option<Target>| target.as_ref().map_or("", Target::database).to_owned();
        let names: Vec<String> = targets.iter().map(name).collect();
        let called = targets.iter().flatten().filter_map(|target| target.config.get_application_name());
        let ours: BTreeSet<&str> = called.chain([FLEET]).collect();
        let ours: Vec<&str> = ours.into_iter().collect();
        let link = match self.current(entries).await {
            Some(link) => link,
            None => self.connect(entries).await?,
        };
        let parameters: [Parameter<'_>; 2] = [(&names, Type::TEXT_ARRAY), (&ours, Type::TEXT_ARRAY)];
        let rows = link.client.query_typed(COUNTS, &parameters).await;
        let counted = rows.and_then(|rows| rows.iter().map(Counted::read).collect::<Result<Vec<_>, _>>());
        let counted = counted.map_err(|error| from_driver(WATCH, error))?;
        self.link = Some(link);
        if counted.iter().any(|counted| !counted.counts) {
            let text = "the server's setting track_counts is off, so it does not count what is written";
            return Err(Error::new(ErrorKind::Config, WATCH, text));
        }
        self.is_complete = counted.iter().all(|counted| counted.version >= COUNTS_IN_THE_END);
        let mut marks = HashMap::new();
        for counted in counted {
            // A session that ends takes its time with it, which is no news.
            let before = self.active.remove(&counted.database).unwrap_or_default();
            let active = counted.active.max(before);
            marks.insert(counted.database, (counted.written, active));
        }
        self.active = marks.iter().map(|(database, (_, active))| (database.clone(), *active)).collect();
        let mark = |(written, active): &(i64, i64)| Mark::new([*written as u64, *active as u64, 0, 0]);
        Ok(names.iter().map(|name| marks.get(name).map(mark)).collect())
    }

    fn is_complete(&self) -> bool {
        self.is_complete
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
