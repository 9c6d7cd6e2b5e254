//! What timers have of their own.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::outbox::When;
use mainstay_core::store::TimerStore;
use mainstay_core::{Result, WorkItemId};
use rusqlite::{Connection, params};

use crate::database::Database;
use crate::queue::when;
use crate::statements::{Statements, TimerStatements};
use crate::value::moment;

/// Timers in one SQLite database.
pub(crate) struct SqliteTimers {
    database: Arc<Database>,
    statements: Arc<TimerStatements>,
}

impl SqliteTimers {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        let statements = Arc::new(TimerStatements::new(&database.names));
        Self { database, statements }
    }
}

#[async_trait]
impl TimerStore for SqliteTimers {
    async fn reschedule(&self, id: WorkItemId, due: When) -> Result<bool> {
        let timers = Arc::clone(&self.statements);
        let (at, within) = when(Some(due));
        let reschedule = move |connection: &Connection, sql: &Statements| {
            let now = sql.now(connection)?;
            let (key, mut change) = (id.as_uuid(), connection.prepare_cached(&timers.reschedule)?);
            Ok(change.execute(params![key.as_bytes(), now, at, within])? > 0)
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
