//! The audit trail: each method is a few statements in one operation of the writer, or one look of a reader. What other stores do by
//! hand they record with [`note`], in the operation that does it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::Result;
use mainstay_core::audit::{Actor, AuditFilter, AuditId, AuditPage, AuditRecord, PreparedAudit, answer};
use mainstay_core::store::{Argument, AuditStore, Step, StoreCall};
use rusqlite::{Connection, params};
use serde_json::json;

use crate::call;
use crate::database::{Database, audit_identifier};
use crate::error::Fault;
use crate::statements::{AuditStatements, Statements};
use crate::value::{EVER, micros, span, uuid_at};
use crate::writer::Ticket;

const WRITE: &str = "audit.write";

/// The audit trail in one SQLite database.
pub struct SqliteAudit {
    identifier: String,
    database: Arc<Database>,
}

impl SqliteAudit {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        Self { identifier: audit_identifier(&database.location, &database.names), database }
    }

    async fn read(&self, operation: &'static str, step: Step) -> Result<Vec<AuditRecord>> {
        let run =
            move |connection: &Connection, _: &Statements| call::run(connection, std::slice::from_ref(&step));
        answer::records(operation, &self.database.read(operation, run).await?)
    }
}

fn bytes(id: AuditId) -> Argument {
    id.as_uuid().as_bytes().as_slice().into()
}

/// What writes a record: itself, and what it is about.
fn steps(sql: &AuditStatements, record: &PreparedAudit) -> Vec<Step> {
    steps_if(sql, record, &sql.insert, [])
}

/// The same by a statement that writes it on a condition. That takes what `insert` does, and then `condition`.
pub(crate) fn steps_if<const N: usize>(
    sql: &AuditStatements,
    record: &PreparedAudit,
    insert_if: &Arc<str>,
    condition: [Argument; N],
) -> Vec<Step> {
    let mut insert = vec![
        bytes(record.id),
        record.name.as_str().into(),
        record.actor.as_str().into(),
        i64::from(record.outcome.code()).into(),
        record.correlation_id.clone().into(),
        record.data.clone().into(),
    ];
    insert.extend(condition);
    let about = |kind: &str, value: &str| Step {
        sql: Arc::clone(&sql.anchor),
        arguments: vec![bytes(record.id), kind.into(), value.into()],
    };
    let mut steps = vec![Step { sql: Arc::clone(insert_if), arguments: insert }];
    steps.extend(record.anchors.iter().map(|anchor| about(&anchor.kind, &anchor.value)));
    steps
}

/// Records what the operation that is under way on this connection does.
pub(crate) fn note(
    connection: &Connection,
    sql: &AuditStatements,
    record: &PreparedAudit,
) -> Result<(), Fault> {
    call::run(connection, &steps(sql, record)).map(drop)
}

/// The statement for what is asked: what is given is compared without a way out, so that an index can be gone by.
pub(crate) fn narrowed(sql: &str, given: &[(usize, bool)]) -> String {
    let narrow = |sql: String, (number, given): &(usize, bool)| match given {
        true => sql.replace(&format!("(?{number} IS NULL OR "), "("),
        false => sql,
    };
    given.iter().fold(sql.to_owned(), narrow)
}

#[async_trait]
impl AuditStore for SqliteAudit {
    fn identifier(&self) -> &str {
        &self.identifier
    }

    async fn write(&self, record: &PreparedAudit) -> Result<AuditId> {
        let steps = steps(&self.database.audit, record);
        let write = move |connection: &Connection, _: &Statements| call::run(connection, &steps);
        answer::written(WRITE, &self.database.write(WRITE, write).await?)
    }

    async fn get(&self, id: AuditId) -> Result<Option<AuditRecord>> {
        let step = Step { sql: Arc::clone(&self.database.audit.get), arguments: vec![bytes(id)] };
        Ok(self.read("audit.get", step).await?.pop())
    }

    async fn list(&self, filter: &AuditFilter, page: AuditPage) -> Result<Vec<AuditRecord>> {
        let sql = &self.database.audit;
        let name = filter.name.as_ref().filter(|name| !name.is_empty());
        let mut arguments: Vec<Argument> = vec![
            name.cloned().into(),
            // Behind every name that begins so.
            name.map(|name| format!("{name}\u{10ffff}")).into(),
            filter.actor.clone().into(),
            filter.correlation_id.clone().into(),
            filter.outcome.map(|outcome| i64::from(outcome.code())).into(),
            filter.after.map_or(EVER.0, micros).into(),
            filter.before.map_or(EVER.1, micros).into(),
            page.before.map_or(Argument::Null, bytes),
            i64::from(page.limit).into(),
        ];
        let text = match &filter.anchor {
            None => &sql.list,
            Some(anchor) => {
                arguments.extend([anchor.kind.as_str().into(), anchor.value.as_str().into()]);
                &sql.list_about
            }
        };
        let given = [
            (1, name.is_some()),
            (3, filter.actor.is_some()),
            (4, filter.correlation_id.is_some()),
            (5, filter.outcome.is_some()),
        ];
        self.read("audit.list", Step { sql: narrowed(text, &given).into(), arguments }).await
    }

    async fn purge(&self, age: Duration, batch: u32, by: Option<&Actor>) -> Result<u64> {
        let (sql, by) = (Arc::clone(&self.database.audit), by.cloned());
        let purge = move |connection: &Connection, all: &Statements| {
            purge(connection, &sql, all.now(connection)?, age, batch, by.as_ref())
        };
        self.database.write(Ticket::new("audit.purge", batch as usize), purge).await
    }

    fn writing(&self, record: &PreparedAudit) -> StoreCall {
        let (store, origin) = (self.identifier.clone(), Arc::clone(&self.database));
        StoreCall { operation: WRITE, store, origin, steps: steps(&self.database.audit, record) }
    }

    fn written(&self, answers: &[String]) -> Result<AuditId> {
        answer::written(WRITE, answers)
    }
}

fn purge(
    connection: &Connection,
    sql: &AuditStatements,
    now: i64,
    age: Duration,
    batch: u32,
    by: Option<&Actor>,
) -> Result<u64, Fault> {
    let until = now.saturating_sub(span(age));
    let mut select = connection.prepare_cached(&sql.purge_select)?;
    let found =
        select.query_map(params![until, batch], |row| Ok((row.get::<_, i64>(0)?, uuid_at(row, 1)?)))?;
    let doomed = found.collect::<Result<Vec<_>, _>>()?;
    if doomed.is_empty() {
        return Ok(0);
    }
    connection.prepare_cached(&sql.purge_begin)?.execute([now])?;
    for (seq, id) in &doomed {
        connection.prepare_cached(&sql.purge_anchors)?.execute([id.as_bytes()])?;
        connection.prepare_cached(&sql.purge_record)?.execute([seq])?;
    }
    connection.prepare_cached(&sql.purge_end)?.execute([])?;
    let count = doomed.len() as u64;
    if let Some(by) = by {
        let data = json!({ "count": count, "older_than_seconds": age.as_secs() });
        note(connection, sql, &PreparedAudit::administrative("audit.purge", by, data))?;
    }
    Ok(count)
}

impl fmt::Debug for SqliteAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteAudit").field("identifier", &self.identifier).finish_non_exhaustive()
    }
}
