//! The audit trail: each method is one call of one public SQL function, or one reading, in one round trip. What is done by hand the
//! functions that do it record themselves.
//!
//! Arguments and answers are texts, so that the same statements run on the program's own connections and in the transactions of
//! every driver (see `texts`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::Result;
use mainstay_core::audit::{Actor, AuditFilter, AuditId, AuditPage, AuditRecord, PreparedAudit, answer};
use mainstay_core::inbox::answer::only;
use mainstay_core::store::{AuditStore, Names, StoreCall};

use crate::moment::Moment;
use crate::parameters::array;
use crate::pool::Connections;
use crate::statements::AuditStatements;
use crate::texts::Texts;

const WRITE: &str = "audit.write";

/// The audit trail in PostgreSQL.
pub struct PostgresAudit {
    texts: Texts,
    statements: Arc<AuditStatements>,
}

impl PostgresAudit {
    pub(crate) fn new(connections: Connections, names: &Names) -> Result<Self> {
        Ok(Self {
            texts: Texts::new(connections, names, names.audit()),
            statements: AuditStatements::shared(names)?,
        })
    }
}

/// An actor and what its doing belongs to, as the two arguments of the statements that take one.
pub(crate) fn actor(by: Option<&Actor>) -> [Option<String>; 2] {
    [by.map(Actor::to_string), by.and_then(Actor::correlation_id).map(str::to_owned)]
}

fn written(record: &PreparedAudit) -> [Option<String>; 8] {
    let anchors = |part: fn(&mainstay_core::audit::Anchor) -> &String| {
        array(Some(record.anchors.iter().map(|anchor| Some(part(anchor).clone())).collect()))
    };
    [
        Some(record.id.to_string()),
        Some(record.name.clone()),
        Some(record.actor.to_string()),
        Some(record.outcome.to_string()),
        record.correlation_id.clone(),
        record.data.clone(),
        anchors(|anchor| &anchor.kind),
        anchors(|anchor| &anchor.value),
    ]
}

#[async_trait]
impl AuditStore for PostgresAudit {
    fn identifier(&self) -> &str {
        self.texts.identifier()
    }

    async fn write(&self, record: &PreparedAudit) -> Result<AuditId> {
        answer::written(WRITE, &self.texts.ask(WRITE, &self.statements.write, &written(record)).await?)
    }

    async fn get(&self, id: AuditId) -> Result<Option<AuditRecord>> {
        const GET: &str = "audit.get";
        let answers = self.texts.ask(GET, &self.statements.get, &[Some(id.to_string())]).await?;
        Ok(answer::records(GET, &answers)?.pop())
    }

    async fn list(&self, filter: &AuditFilter, page: AuditPage) -> Result<Vec<AuditRecord>> {
        const LIST: &str = "audit.list";
        let name = filter.name.as_ref().filter(|name| !name.is_empty());
        let time = |moment: Option<jiff::Timestamp>| moment.map(|moment| Moment(moment).to_text());
        let mut arguments = vec![
            name.cloned(),
            // Behind every name that begins so.
            name.map(|name| format!("{name}\u{10ffff}")),
            filter.actor.clone(),
            filter.correlation_id.clone(),
            filter.outcome.map(|outcome| outcome.code().to_string()),
            time(filter.after),
            time(filter.before),
            page.before.map(|id| id.to_string()),
            Some(page.limit.to_string()),
        ];
        let sql = match &filter.anchor {
            None => &self.statements.list,
            Some(anchor) => {
                arguments.extend([Some(anchor.kind.clone()), Some(anchor.value.clone())]);
                &self.statements.list_about
            }
        };
        answer::records(LIST, &self.texts.ask(LIST, sql, &arguments).await?)
    }

    async fn purge(&self, age: Duration, batch: u32, by: Option<&Actor>) -> Result<u64> {
        const PURGE: &str = "audit.purge";
        let arguments =
            [vec![Some(age.as_secs_f64().to_string()), Some(batch.to_string())], actor(by).to_vec()].concat();
        let (purged,): (u64,) =
            only(PURGE, &self.texts.ask(PURGE, &self.statements.purge, &arguments).await?)?;
        Ok(purged)
    }

    fn writing(&self, record: &PreparedAudit) -> StoreCall {
        self.texts.call(WRITE, &self.statements.write, written(record))
    }

    fn written(&self, answers: &[String]) -> Result<AuditId> {
        answer::written(WRITE, answers)
    }
}

impl std::fmt::Debug for PostgresAudit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresAudit").field("identifier", &self.texts.identifier()).finish_non_exhaustive()
    }
}
