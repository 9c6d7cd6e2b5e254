//! What the health checks look at: each method is one job of a reader, on one snapshot.
//!
//! Whoever waits for work in another process leaves no trace in the file, so only claims and ends tell that somebody works.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::health::{LaneSeen, LeasesSeen, Patience, SEEN_AT_MOST, ScheduleSeen, WorkSeen};
use mainstay_core::store::{HealthStore, Queue};
use mainstay_core::{Result, WorkItemId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::database::Database;
use crate::error::Fault;
use crate::statements::{HealthStatements, Statements};
use crate::value::{maybe_uuid_at, span, text_at};

/// Looks at an SQLite database for signs of trouble.
pub(crate) struct SqliteHealth {
    database: Arc<Database>,
}

impl SqliteHealth {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }

    async fn look<T: Send + 'static>(
        &self,
        operation: &'static str,
        queue: Queue,
        look: impl Fn(&Look<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        let statements = HealthStatements::shared(&self.database.names.of(queue));
        let work = move |connection: &Connection, clock: &Statements| {
            look(&Look { connection, sql: &statements, now: clock.now(connection)? })
        };
        self.database.read(operation, work).await
    }
}

/// One snapshot at one moment.
struct Look<'a> {
    connection: &'a Connection,
    sql: &'a HealthStatements,
    now: i64,
}

impl Look<'_> {
    /// The moment so long ago.
    fn ago(&self, duration: Duration) -> i64 {
        self.now.saturating_sub(span(duration))
    }

    fn since(&self, moment: Option<i64>) -> Option<Duration> {
        moment.map(|moment| Duration::from_micros(self.now.saturating_sub(moment).max(0).unsigned_abs()))
    }

    fn counted(&self, sql: &str, parameters: impl rusqlite::Params) -> rusqlite::Result<(u64, Option<i64>)> {
        let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?));
        self.connection.prepare_cached(sql)?.query_row(parameters, row)
    }

    fn work(&self, patience: &Patience) -> Result<WorkSeen, Fault> {
        let (now, most) = (self.now, SEEN_AT_MOST as i64);
        let (overdue, stuck) = (self.ago(patience.overdue), self.ago(patience.stuck));
        let mut seen = WorkSeen::default();
        let (mut oldest, mut lapsed) = (None, None);
        let mut owners = BTreeSet::new();
        let earlier = |a: Option<i64>, b: Option<i64>| a.into_iter().chain(b).min();
        for level in -9..=9 {
            let (count, first) = self.counted(&self.sql.due, params![now, level, overdue, most])?;
            seen.overdue += count;
            oldest = earlier(oldest, first);
            let (count, first) = self.counted(&self.sql.lapsed, params![now, level, stuck, most])?;
            seen.stuck += count;
            lapsed = earlier(lapsed, first);
            let mut busy = self.connection.prepare_cached(&self.sql.busy)?;
            let found = busy.query_map(params![now, level, most], |row| row.get::<_, Vec<u8>>(0))?;
            owners.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
        }
        seen.oldest_due = self.since(oldest);
        seen.longest_lapsed = self.since(lapsed);
        seen.busy = owners.len() as u64;
        let settled = self.connection.prepare_cached(&self.sql.settled)?.query_row([], |row| row.get(0))?;
        seen.last_settled = self.since(settled);
        Ok(seen)
    }

    fn schedule(&self, patience: &Patience) -> Result<ScheduleSeen, Fault> {
        let (now, overdue, most) = (self.now, self.ago(patience.overdue), SEEN_AT_MOST as i64);
        let mut seen = ScheduleSeen::default();
        let (count, first) = self.counted(&self.sql.jobs, params![now, overdue, most])?;
        (seen.jobs_overdue, seen.oldest_job) = (count, self.since(first));
        let mut troubled = self.connection.prepare_cached(&self.sql.troubled)?;
        (seen.jobs_in_trouble, seen.job_in_trouble) = troubled.query_row([most], |row| {
            let count = row.get::<_, i64>(0)?.unsigned_abs();
            Ok((count, if count > 0 { Some(text_at(row, 1)?) } else { None }))
        })?;
        let (count, first) = self.counted(&self.sql.joins, params![now, overdue, most])?;
        (seen.joins_overdue, seen.oldest_join) = (count, self.since(first));
        Ok(seen)
    }

    fn leases(&self, patience: &Patience) -> Result<LeasesSeen, Fault> {
        let (now, lately) = (self.now, self.ago(patience.lapsed_within));
        let mut seen = LeasesSeen::default();
        let mut counts = self.connection.prepare_cached(&self.sql.leases)?;
        let count = |row: &Row<'_>, column: usize| row.get::<_, i64>(column).map(i64::unsigned_abs);
        (seen.held, seen.lapsed, seen.lapsed_before) =
            counts.query_row([now, lately], |row| Ok((count(row, 0)?, count(row, 1)?, count(row, 2)?)))?;
        let mut last = self.connection.prepare_cached(&self.sql.lease_lapsed_last)?;
        let last = last.query_row([now, lately], |row| Ok((text_at(row, 0)?, row.get::<_, i64>(1)?)));
        seen.last_lapsed =
            last.optional()?.and_then(|(name, moment)| Some((name, self.since(Some(moment))?)));
        Ok(seen)
    }
}

impl Look<'_> {
    fn lane(&self, id: WorkItemId) -> Result<LaneSeen, Fault> {
        let id = id.as_uuid();
        let seen = |row: &Row<'_>| {
            let mut seen = LaneSeen::default();
            seen.held_by = maybe_uuid_at(row, 0)?.map(WorkItemId::from_uuid);
            seen.first = maybe_uuid_at(row, 1)?.map(WorkItemId::from_uuid);
            seen.ahead = row.get::<_, i64>(2)?.unsigned_abs();
            Ok(seen)
        };
        let mut statement = self.connection.prepare_cached(&self.sql.lane)?;
        let found = statement.query_row(params![id.as_bytes(), SEEN_AT_MOST as i64], seen);
        Ok(found.optional()?.unwrap_or_default())
    }
}

#[async_trait]
impl HealthStore for SqliteHealth {
    async fn work(&self, queue: Queue, patience: &Patience) -> Result<WorkSeen> {
        let patience = *patience;
        self.look("health.work", queue, move |look| look.work(&patience)).await
    }

    async fn schedule(&self, patience: &Patience) -> Result<ScheduleSeen> {
        let patience = *patience;
        self.look("health.schedule", Queue::Outbox, move |look| look.schedule(&patience)).await
    }

    async fn leases(&self, patience: &Patience) -> Result<LeasesSeen> {
        let patience = *patience;
        self.look("health.leases", Queue::Outbox, move |look| look.leases(&patience)).await
    }

    async fn lane(&self, queue: Queue, id: WorkItemId) -> Result<LaneSeen> {
        self.look("health.lane", queue, move |look| look.lane(id)).await
    }
}
