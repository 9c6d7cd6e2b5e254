//! Reading all messages, page by page: a reader that stays open for minutes would keep the log from beginning again.

use std::sync::Arc;

use async_trait::async_trait;
use mainstay_core::Result;
use mainstay_core::outbox::{ExportedMessage, MessageExport, MessageFilter};
use rusqlite::{Connection, params_from_iter};

use crate::database::Database;
use crate::error::Fault;
use crate::statements::Statements;

use super::read::{conditions, message_from};

/// Messages at a time, while they are small.
const ROWS: i64 = 1_000;
/// A page ends with the message that makes it larger.
const BYTES: usize = 4 << 20;

pub(super) struct SqliteExport {
    database: Arc<Database>,
    filter: MessageFilter,
    /// The place of the last one that was read.
    last: i64,
}

impl SqliteExport {
    pub(super) fn new(database: &Arc<Database>, filter: &MessageFilter) -> Self {
        let (database, filter) = (Arc::clone(database), filter.clone());
        Self { database, filter, last: i64::MIN }
    }
}

#[async_trait]
impl MessageExport for SqliteExport {
    async fn next(&mut self) -> Result<Vec<ExportedMessage>> {
        let (filter, last) = (self.filter.clone(), self.last);
        let read = move |connection: &_, sql: &_| page(connection, sql, &filter, last);
        let read = self.database.read("outbox.export", read).await?;
        self.last = read.last().map_or(last, |message| message.seq);
        Ok(read)
    }
}

fn page(
    connection: &Connection,
    sql: &Statements,
    filter: &MessageFilter,
    last: i64,
) -> Result<Vec<ExportedMessage>, Fault> {
    let mut statement = connection.prepare_cached(&sql.export)?;
    let arguments = [last.into()].into_iter().chain(conditions(filter)).chain([ROWS.into()]);
    let mut found = statement.query(params_from_iter(arguments))?;
    let (mut read, mut bytes) = (Vec::new(), 0);
    while bytes < BYTES
        && let Some(row) = found.next()?
    {
        let message = message_from(row)?;
        bytes += message.payload.as_ref().map_or(0, String::len);
        read.push(ExportedMessage::new(row.get(23)?, message, row.get(22)?));
    }
    Ok(read)
}
