//! What a doctor looks at. What the procedures tell, they tell everybody who may execute them; what takes rights over the server is told to whoever has them, and the others are
//! told which right it takes.
//!
//! A connection has a session of its own here, and nobody tells of new rows.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::health::{
    IndexSeen, OpenTransaction, RightsSeen, RunsSeen, SEEN_AT_MOST, SessionsSeen, StorageSeen,
    TransactionsSeen,
};
use mainstay_core::outbox::TopicStats;
use mainstay_core::store::{Argument, DiagnosisStore, Names, Queue, Step};
use mainstay_core::{Error, ErrorKind, Result};

use crate::parameters::{Call, SEPARATOR, named};
use crate::pool::Connections;
use crate::rows::{self, Reader};
use crate::schema::{granted_names, table_names};

const RIGHTS: &str = include_str!("../queries/rights.sql");
const TRANSACTIONS: &str = include_str!("../queries/transactions.sql");
const INDEX_USE: &str = include_str!("../queries/index_use.sql");

/// Looks at what surrounds the work in a SQL Server database.
pub(crate) struct SqlServerDiagnosis {
    connections: Connections,
    names: Names,
}

impl SqlServerDiagnosis {
    pub(crate) fn new(connections: Connections, names: &Names) -> Self {
        Self { connections, names: names.clone() }
    }

    /// How often each index was used, by the numbers of its table and its own; or why that is not told.
    async fn index_use(&self) -> Result<BTreeMap<(i64, i64), u64>> {
        const USE: &str = "diagnosis.storage";
        let rows = self.connections.run(USE, &plain(INDEX_USE)).await.map_err(hidden)?;
        let read = |row| {
            let row = Reader::new(USE, row);
            Ok(((row.integer("object_id")?, row.integer("index_id")?), row.count("scans")?))
        };
        rows.iter().map(read).collect()
    }
}

fn plain(sql: &str) -> Step {
    Step { sql: sql.into(), arguments: Vec::new() }
}

/// What the server keeps to itself: why, and what would change it.
fn hidden(error: Error) -> Error {
    let message = match error.kind() {
        ErrorKind::Denied => {
            "this login may not see it; an administrator lets it by `GRANT VIEW SERVER STATE TO <login>` in master, or on Azure SQL by `GRANT VIEW DATABASE STATE TO <user>`"
        }
        // No such view or function: not every server that speaks the protocol has all of them.
        ErrorKind::Schema => "this server does not tell",
        _ => return error,
    };
    Error::new(error.kind(), error.operation(), message).with_source(error)
}

#[async_trait]
impl DiagnosisStore for SqlServerDiagnosis {
    async fn rights(&self) -> Result<RightsSeen> {
        const OPERATION: &str = "diagnosis.rights";
        let names = granted_names(&self.names).join(SEPARATOR);
        let step = Step { sql: RIGHTS.into(), arguments: vec![Argument::Text(names)] };
        let rows = self.connections.run(OPERATION, &step).await.map_err(hidden)?;
        let mut seen = RightsSeen::default();
        for row in &rows {
            let read = Reader::new(OPERATION, row);
            match row.has("missing") {
                true => seen.missing.push(format!("EXECUTE on {}", read.text("missing")?)),
                false => seen.user = read.maybe_text("user_name")?,
            }
        }
        Ok(seen)
    }

    async fn sessions(&self) -> Result<Option<SessionsSeen>> {
        Ok(None)
    }

    async fn transactions(&self) -> Result<Option<TransactionsSeen>> {
        const OPERATION: &str = "diagnosis.transactions";
        let rows = self.connections.run(OPERATION, &plain(TRANSACTIONS)).await.map_err(hidden)?;
        let mut seen = TransactionsSeen::default();
        for row in &rows {
            let row = Reader::new(OPERATION, row);
            let age = Duration::from_millis(row.count("age")?);
            seen.oldest.push(OpenTransaction::new(age, row.text("holder")?));
        }
        Ok(Some(seen))
    }

    async fn storage(&self) -> Result<StorageSeen> {
        const OPERATION: &str = "diagnosis.storage";
        let tables = table_names(&self.names).join(SEPARATOR);
        let call = Call::new(&named(&self.names, self.names.outbox(), "Storage")).text("Tables", tables);
        let rows = self.connections.run(OPERATION, &call.step()).await.map_err(hidden)?;
        let used = self.index_use().await;
        let mut seen = StorageSeen::default();
        seen.use_hidden = used.as_ref().err().map(|error| error.message().to_owned());
        let used = used.ok();
        let mut tables = BTreeMap::new();
        for row in &rows {
            let row = Reader::new(OPERATION, row);
            let (table, number) = (row.integer("object_id")?, row.integer("index_id")?);
            let bytes = row.count("bytes")?;
            seen.bytes += bytes;
            // The rows themselves come first.
            if number < 2 {
                tables.insert(table, bytes);
            }
            let Some(name) = row.maybe_text("index_name")? else { continue };
            let mut index = IndexSeen::default();
            (index.name, index.valid) = (name, !row.flag("disabled")?);
            (index.bytes, index.table_bytes) = (bytes, tables.get(&table).copied().unwrap_or(bytes));
            // One that was never used has no row.
            index.scans = used.as_ref().map_or(0, |used| used.get(&(table, number)).copied().unwrap_or(0));
            seen.indexes.push(index);
        }
        Ok(seen)
    }

    async fn notifications(&self) -> Result<Option<Option<Duration>>> {
        Ok(None)
    }

    async fn topics(&self, queue: Queue) -> Result<Vec<TopicStats>> {
        const OPERATION: &str = "diagnosis.topics";
        let names = self.names.of(queue);
        let call = Call::new(&named(&names, &names.queue(), "Topics"));
        Ok(rows::stats(OPERATION, &self.connections.run(OPERATION, &call.step()).await?)?.topics)
    }

    async fn runs(&self, within: Duration, late: Duration) -> Result<RunsSeen> {
        const OPERATION: &str = "diagnosis.runs";
        let call = Call::new(&named(&self.names, &self.names.jobs(), "Lately"));
        let call = call.seconds("WithinSeconds", within).seconds("LateSeconds", late);
        let rows =
            self.connections.run(OPERATION, &call.integer("MaxRows", SEEN_AT_MOST as i64).step()).await?;
        let row = rows::only(OPERATION, &rows)?;
        let mut seen = RunsSeen::default();
        (seen.runs, seen.late) = (row.count("runs")?, row.count("late")?);
        (seen.skipped, seen.failed) = (row.count("skipped")?, row.count("failed")?);
        seen.latest = row.maybe_integer("latest")?.map(rows::micros);
        seen.latest_job = row.maybe_text("latest_job")?;
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Fault, from_fault};

    fn told(number: u32, message: &str) -> Error {
        hidden(from_fault("test", Fault::Server { number, class: 14, message: message.to_owned() }))
    }

    #[test]
    fn what_the_server_keeps_to_itself_is_told_with_the_grant_that_shows_it() {
        for number in [229, 262, 297, 300] {
            let error = told(number, "permission was denied");
            assert!(error.message().contains("GRANT VIEW SERVER STATE"), "{error}");
            assert!(error.message().contains("GRANT VIEW DATABASE STATE"), "{error}");
        }
        // A view that a server does not have has nothing to do with our schema.
        let lacking = told(208, "Invalid object name 'sys.dm_tran_active_transactions'.");
        assert_eq!(lacking.message(), "this server does not tell");
        assert_eq!(told(1205, "deadlocked").kind(), ErrorKind::Conflict);
    }

    #[test]
    fn only_what_an_application_calls_has_to_be_granted() {
        let names = granted_names(&Names::default().with_outbox("Mail").unwrap());
        assert!(names.contains(&"\"infra\".\"Mail_Claim\"".to_owned()), "{names:?}");
        assert!(names.contains(&"\"infra\".\"Mail_Storage\"".to_owned()), "{names:?}");
        assert!(
            !names.iter().any(|name| name.ends_with("_Lock\"") || name.ends_with("_LetGo\"")),
            "{names:?}"
        );
    }
}
