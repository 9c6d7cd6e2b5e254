//! Reading all messages, page by page: a reader that stays open for minutes would keep the log from beginning again.

use std::sync::Arc;

use async_trait::async_trait;
use mainstay_core::Result;
use mainstay_core::outbox::{ExportPace, ExportedMessage, MessageExport, MessageFilter};
use mainstay_core::queue::{FailureReason, Status};
use rusqlite::{Connection, params};

use crate::database::Database;
use crate::error::Fault;
use crate::statements::Statements;
use crate::value::micros;

use super::read::message_from;

pub(super) struct SqliteExport {
    database: Arc<Database>,
    filter: MessageFilter,
    pace: ExportPace,
    /// The place of the last one that was read.
    last: i64,
}

impl SqliteExport {
    pub(super) fn new(database: &Arc<Database>, filter: &MessageFilter) -> Self {
        let (database, filter) = (Arc::clone(database), filter.clone());
        Self { database, filter, pace: ExportPace::default(), last: i64::MIN }
    }
}

#[async_trait]
impl MessageExport for SqliteExport {
    async fn next(&mut self) -> Result<Vec<ExportedMessage>> {
        let (filter, last, rows) = (self.filter.clone(), self.last, self.pace.rows());
        let read = move |connection: &_, sql: &_| page(connection, sql, &filter, last, rows);
        let read = self.database.read("outbox.export", read).await?;
        self.pace.learn(&read);
        self.last = read.last().map_or(last, |message| message.seq);
        Ok(read)
    }
}

fn page(
    connection: &Connection,
    sql: &Statements,
    filter: &MessageFilter,
    last: i64,
    rows: u32,
) -> Result<Vec<ExportedMessage>, Fault> {
    let mut statement = connection.prepare_cached(&sql.export)?;
    let found = statement.query_map(
        params![
            last,
            filter.topic,
            filter.status.map(Status::code),
            filter.reason.map(FailureReason::as_str),
            filter.correlation_id,
            filter.settled_after.map(micros),
            filter.settled_before.map(micros),
            rows,
        ],
        |row| Ok(ExportedMessage::new(row.get(23)?, message_from(row)?, row.get(22)?)),
    )?;
    Ok(found.collect::<Result<_, _>>()?)
}
