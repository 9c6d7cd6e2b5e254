//! What a doctor looks at, as far as a file has it.
//!
//! There are no users, no sessions and no notifications here, and who else has the file open is not to be seen.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::health::{
    RightsSeen, RunsSeen, SEEN_AT_MOST, SessionsSeen, StorageSeen, TransactionsSeen,
};
use mainstay_core::outbox::TopicStats;
use mainstay_core::store::{DiagnosisStore, Queue};
use mainstay_core::{ErrorKind, Result};
use rusqlite::{Connection, MAIN_DB, OptionalExtension, params};

use crate::database::Database;
use crate::error::Fault;
use crate::queue::read;
use crate::statements::DiagnosisStatements;
use crate::value::{span, text_at};

/// Looks at what surrounds the work in an SQLite database.
pub(crate) struct SqliteDiagnosis {
    database: Arc<Database>,
}

impl SqliteDiagnosis {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl DiagnosisStore for SqliteDiagnosis {
    async fn rights(&self) -> Result<RightsSeen> {
        let mut seen = RightsSeen::default();
        // An empty transaction. Opening the file beside SQLite would end SQLite's own locks on it.
        let read_only = |connection: &Connection, _: &_| Ok(connection.is_readonly(MAIN_DB)?);
        match self.database.write("diagnosis.rights", read_only).await {
            Ok(false) => {}
            Ok(true) => seen.missing.push("the right to write the file".to_owned()),
            Err(error) if error.kind() == ErrorKind::Denied => seen.missing.push(error.message().to_owned()),
            Err(error) => return Err(error),
        }
        Ok(seen)
    }

    async fn sessions(&self) -> Result<Option<SessionsSeen>> {
        Ok(None)
    }

    async fn transactions(&self) -> Result<Option<TransactionsSeen>> {
        Ok(None)
    }

    async fn storage(&self) -> Result<StorageSeen> {
        self.database.read("diagnosis.storage", |connection, _| storage(connection)).await
    }

    async fn notifications(&self) -> Result<Option<Option<Duration>>> {
        Ok(None)
    }

    async fn topics(&self, queue: Queue) -> Result<Vec<TopicStats>> {
        let database = self.database.of(queue);
        let backlog = database.read("diagnosis.topics", read::backlog).await?;
        Ok(backlog.topics)
    }

    async fn runs(&self, within: Duration, late: Duration) -> Result<RunsSeen> {
        let statements = DiagnosisStatements::shared(&self.database.names);
        let (within, late) = (span(within), span(late));
        let look = move |connection: &Connection, clock: &crate::statements::Statements| {
            let since = clock.now(connection)?.saturating_sub(within);
            runs(connection, &statements, since, late)
        };
        self.database.read("diagnosis.runs", look).await
    }
}

fn storage(connection: &Connection) -> Result<StorageSeen, Fault> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let page = number("page_size")?.unsigned_abs();
    let mut seen = StorageSeen::default();
    seen.engine = Some(format!("SQLite version {}", rusqlite::version()));
    seen.bytes = number("page_count")?.unsigned_abs() * page;
    seen.free_bytes = Some(number("freelist_count")?.unsigned_abs() * page);
    let log = connection.path().filter(|path| !path.is_empty()).map(|path| format!("{path}-wal"));
    // There is none while nobody writes, or in memory.
    seen.log_bytes = log.and_then(|log| std::fs::metadata(log).ok()).map(|log| log.len());
    Ok(seen)
}

fn runs(
    connection: &Connection,
    sql: &DiagnosisStatements,
    since: i64,
    late: i64,
) -> Result<RunsSeen, Fault> {
    let asked = params![since, late, SEEN_AT_MOST as i64];
    let mut seen = RunsSeen::default();
    (seen.runs, seen.late, seen.skipped, seen.failed) =
        connection.prepare_cached(&sql.runs)?.query_row(asked, |row| {
            let count = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
            Ok((count(0)?, count(1)?, count(2)?, count(3)?))
        })?;
    let mut latest = connection.prepare_cached(&sql.latest_run)?;
    let latest = latest.query_row(asked, |row| Ok((row.get::<_, i64>(0)?, text_at(row, 1)?))).optional()?;
    (seen.latest, seen.latest_job) =
        latest.map(|(late, job)| (Duration::from_micros(late.unsigned_abs()), job)).unzip();
    Ok(seen)
}
