//! Reading all messages with one statement, whose rows come as they are asked for. There is no index in the order of their enqueueing, and so
//! the server sorts them, once; what it sends has one snapshot, and neither side holds all of it.

use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use mainstay_core::outbox::{ExportedMessage, MessageExport, MessageFilter};
use mainstay_core::{Error, ErrorKind, Result};
use tokio::time::timeout;
use tokio_postgres::{Row, RowStream};

use crate::error::from_driver;
use crate::parameters::Conditions;
use crate::pool::{Connections, Lease};
use crate::rows::{self, Reader};
use crate::statements::QueueStatements;

const EXPORT: &str = "outbox.export";

/// Rows that are handed on at once, and the bytes of payload from which on there are fewer.
const ROWS: usize = 500;
const BYTES: usize = 4 << 20;

/// How long the server may take for the first rows, and for each further part. It sorts all messages before it sends the first, which
/// rightly takes longer than a call may.
const PART: Duration = Duration::from_secs(600);

pub(crate) struct PostgresExport {
    /// None once all is read. A connection whose answer was not read to its end is not used again.
    under_way: Option<(Lease, Pin<Box<RowStream>>)>,
    /// After an error the stream has an end like any other, and what came before it is not all.
    broken: bool,
}

impl PostgresExport {
    pub(crate) async fn begin(
        connections: &Connections,
        statements: &QueueStatements,
        filter: &MessageFilter,
    ) -> Result<Self> {
        let conditions = Conditions::new(filter);
        let lease = connections.lease(EXPORT).await?;
        let rows = lease.client()?.query_typed_raw(&statements.export, conditions.parameters());
        let rows = timeout(PART, rows).await.map_err(|_| silent())?;
        let rows = rows.map_err(|error| from_driver(EXPORT, error))?;
        Ok(Self { under_way: Some((lease, Box::pin(rows))), broken: false })
    }
}

#[async_trait]
impl MessageExport for PostgresExport {
    async fn next(&mut self) -> Result<Vec<ExportedMessage>> {
        if self.broken {
            let text = "it has failed before its end; begin again";
            return Err(Error::new(ErrorKind::Unavailable, EXPORT, text));
        }
        let part = timeout(PART, self.part()).await;
        part.unwrap_or_else(|_| {
            (self.under_way, self.broken) = (None, true);
            Err(silent())
        })
    }
}

impl PostgresExport {
    /// The next rows. Dropped midway, it leaves out those that it has read.
    async fn part(&mut self) -> Result<Vec<ExportedMessage>> {
        let (mut read, mut bytes) = (Vec::new(), 0);
        while let Some((_, rows)) = &mut self.under_way
            && read.len() < ROWS
            && bytes < BYTES
        {
            match rows.next().await.transpose() {
                Ok(Some(row)) => {
                    let message = exported(&row)?;
                    bytes += message.message.payload.as_ref().map_or(0, String::len);
                    read.push(message);
                }
                Ok(None) => {
                    if let Some((lease, _)) = self.under_way.take() {
                        lease.give_back();
                    }
                }
                Err(error) => {
                    (self.under_way, self.broken) = (None, true);
                    return Err(from_driver(EXPORT, error));
                }
            }
        }
        Ok(read)
    }
}

fn silent() -> Error {
    Error::new(ErrorKind::Unavailable, EXPORT, format!("the database sent nothing for {PART:?}"))
}

fn exported(row: &Row) -> Result<ExportedMessage> {
    let reader = Reader::new(EXPORT, row);
    Ok(ExportedMessage::new(reader.get(23)?, rows::message(EXPORT, row)?, reader.get(22)?))
}
