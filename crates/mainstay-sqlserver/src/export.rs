//! Reading all messages, page by page.

use std::sync::Arc;

use async_trait::async_trait;
use mainstay_core::Result;
use mainstay_core::outbox::{ExportedMessage, MessageExport, MessageFilter};

use crate::pool::Connections;
use crate::procedures::QueueProcedures;
use crate::rows::{self, Reader, Row};

const EXPORT: &str = "outbox.export";

/// Messages at a time, while they are small: the procedure ends a page that has become large.
const ROWS: u32 = 1_000;

pub(crate) struct SqlServerExport {
    connections: Connections,
    procedures: Arc<QueueProcedures>,
    filter: MessageFilter,
    /// The place of the last one that was read.
    last: Option<i64>,
}

impl SqlServerExport {
    pub(crate) fn new(
        connections: &Connections,
        procedures: &Arc<QueueProcedures>,
        filter: &MessageFilter,
    ) -> Self {
        let (connections, procedures) = (connections.clone(), Arc::clone(procedures));
        Self { connections, procedures, filter: filter.clone(), last: None }
    }
}

#[async_trait]
impl MessageExport for SqlServerExport {
    async fn next(&mut self) -> Result<Vec<ExportedMessage>> {
        let step = self.procedures.export(&self.filter, self.last, ROWS);
        let rows = self.connections.run(EXPORT, &step).await?;
        let read = rows.iter().map(exported).collect::<Result<Vec<_>>>()?;
        self.last = read.last().map(|message| message.seq).or(self.last);
        Ok(read)
    }
}

fn exported(row: &Row) -> Result<ExportedMessage> {
    let reader = Reader::new(EXPORT, row);
    let hold = reader.flag("hold_on_failure")?;
    Ok(ExportedMessage::new(reader.integer("seq")?, rows::message(EXPORT, row)?, hold))
}
