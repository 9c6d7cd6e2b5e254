//! What stores do in transactions of others: the application's own connections, and handlers' transactions. Neither commits nor rolls back
//! (OBX-003).

use mainstay_core::outbox::{Enqueued, PreparedMessage};
use mainstay_core::store::{Step, StoreCall};
use mainstay_core::{Error, ErrorKind, MessageId, Result, WorkItemId};

use crate::queue::SqlServerQueue;
use crate::rows::{Reader, Row};

/// What the calls of this provider's stores are known by.
#[derive(Debug, Default)]
pub(crate) struct Origin;

/// The same step, refused by the server where no transaction is open.
pub(crate) fn within(step: &Step) -> Step {
    let sql = format!("IF @@TRANCOUNT = 0 THROW 50005, N'a transaction is needed', 1;\n{}", step.sql);
    Step { sql: sql.into(), arguments: step.arguments.clone() }
}

/// What is wrong with running a call in a transaction of SQL Server, if something is.
pub(crate) fn check(call: &StoreCall) -> Result<()> {
    if call.origin.is::<Origin>() {
        return Ok(());
    }
    let message = format!(
        "this is a transaction of SQL Server, but the store is {}; use a transaction of its own database",
        call.store
    );
    Err(Error::new(ErrorKind::Unsupported, call.operation, message))
}

/// What adds messages to a queue; none if there are none.
pub(crate) fn enqueuing(queue: &SqlServerQueue, messages: &[PreparedMessage]) -> Option<Step> {
    (!messages.is_empty()).then(|| queue.enqueuing(messages))
}

/// What its rows say.
pub(crate) fn enqueued(operation: &'static str, rows: &[Row]) -> Result<Vec<Enqueued>> {
    let read = |row: &Row| {
        let row = Reader::new(operation, row);
        Ok(Enqueued {
            work_item: WorkItemId::from_uuid(row.id("id")?),
            message: MessageId::from_uuid(row.id("message_id")?),
            added: row.flag("added")?,
        })
    };
    rows.iter().filter(|row| row.has("added")).map(read).collect()
}
