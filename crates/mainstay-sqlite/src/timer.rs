//! What timers have of their own.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::audit::{Actor, PreparedAudit};
use mainstay_core::outbox::When;
use mainstay_core::store::TimerStore;
use mainstay_core::{Result, WorkItemId};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;

use crate::audit::note;
use crate::database::Database;
use crate::queue::when;
use crate::statements::{Statements, TimerStatements};
use crate::value::{moment, moment_at};

/// Timers in one SQLite database.
pub(crate) struct SqliteTimers {
    database: Arc<Database>,
    statements: Arc<TimerStatements>,
}

impl SqliteTimers {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        let statements = TimerStatements::shared(&database.names);
        Self { database, statements }
    }
}

#[async_trait]
impl TimerStore for SqliteTimers {
    async fn reschedule(&self, id: WorkItemId, due: When, by: Option<&Actor>) -> Result<bool> {
        let (timers, audit, by) =
            (Arc::clone(&self.statements), Arc::clone(&self.database.audit), by.cloned());
        let (at, within) = when(Some(due));
        let reschedule = move |connection: &Connection, sql: &Statements| {
            let (now, key) = (sql.now(connection)?, id.as_uuid());
            let due = || {
                let mut find = connection.prepare_cached(&timers.due)?;
                find.query_row([key.as_bytes()], |row| moment_at(row, 0)).optional()
            };
            let before = due()?;
            let mut change = connection.prepare_cached(&timers.reschedule)?;
            let changed = change.execute(params![key.as_bytes(), now, at, within])? > 0;
            if let Some(by) = by.as_ref().filter(|_| changed) {
                let data = json!({ "before": { "due_at": before }, "after": { "due_at": due()? } });
                let record = PreparedAudit::administrative("timers.reschedule", by, data);
                note(connection, &audit, &record.about("timers", [id.to_string()]))?;
            }
            Ok(changed)
        };
        self.database.write_and_wake("timers.reschedule", reschedule, |changed| *changed).await
    }

    async fn next_event_time(&self) -> Result<Option<Timestamp>> {
        let timers = Arc::clone(&self.statements);
        let next = self.database.read("timers.next_event_time", move |connection, sql| {
            let now = sql.now(connection)?;
            let mut statement = connection.prepare_cached(&timers.next_event_time)?;
            Ok(statement.query_row([now], |row| row.get::<_, Option<i64>>(0))?)
        });
        Ok(next.await?.map(moment))
    }
}
