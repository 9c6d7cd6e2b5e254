//! The audit trail: each method is one call of one procedure. What other stores do by hand they record within their own procedures.

use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::Result;
use mainstay_core::audit::{Actor, AuditFilter, AuditId, AuditPage, AuditRecord, PreparedAudit, answer};
use mainstay_core::store::{AuditStore, Names, StoreCall};
use serde_json::{Value, json};

use crate::parameters::{Call, listed};
use crate::pool::Connections;
use crate::rows;
use crate::texts::Texts;

const WRITE: &str = "audit.write";

/// The audit trail in SQL Server.
pub struct SqlServerAudit {
    texts: Texts,
}

impl SqlServerAudit {
    pub(crate) fn new(connections: Connections, names: &Names) -> Self {
        Self { texts: Texts::new(connections, names, names.audit()) }
    }

    /// What writes a record.
    fn write_call(&self, record: &PreparedAudit) -> Call {
        let anchors = record
            .anchors
            .iter()
            .map(|anchor| json!({ "kind": listed(&anchor.kind), "value": listed(&anchor.value) }));
        let anchors = Value::Array(anchors.collect()).to_string();
        let call =
            self.texts.procedure("Write").text("Name", &record.name).text("Actor", record.actor.as_str());
        let call = call
            .text("Outcome", record.outcome.as_str())
            .maybe_text("CorrelationId", record.correlation_id.as_deref());
        call.maybe_text("Data", record.data.as_deref()).text("Anchors", anchors).id("Id", record.id.as_uuid())
    }
}

#[async_trait]
impl AuditStore for SqlServerAudit {
    fn identifier(&self) -> &str {
        self.texts.identifier()
    }

    async fn write(&self, record: &PreparedAudit) -> Result<AuditId> {
        answer::written(WRITE, &self.texts.ask(WRITE, self.write_call(record)).await?)
    }

    async fn get(&self, id: AuditId) -> Result<Option<AuditRecord>> {
        const GET: &str = "audit.get";
        let answers = self.texts.ask(GET, self.texts.procedure("List").id("Id", id.as_uuid())).await?;
        Ok(answer::records(GET, &answers)?.pop())
    }

    async fn list(&self, filter: &AuditFilter, page: AuditPage) -> Result<Vec<AuditRecord>> {
        const LIST: &str = "audit.list";
        let name = filter.name.as_deref().filter(|name| !name.is_empty());
        let call = self
            .texts
            .procedure("List")
            .maybe_text("Name", name)
            .maybe_text("Actor", filter.actor.as_deref());
        let call = call.maybe_text("CorrelationId", filter.correlation_id.as_deref());
        let call = call.maybe_integer("Outcome", filter.outcome.map(|outcome| outcome.code()));
        let call = call.maybe_moment("After", filter.after).maybe_moment("BeforeTime", filter.before);
        let call = call.maybe_id("Before", page.before.map(|id| id.as_uuid())).integer("MaxRows", page.limit);
        let anchor = filter.anchor.as_ref();
        let call = call.maybe_text("AnchorKind", anchor.map(|anchor| anchor.kind.as_str()));
        let call = call.maybe_text("AnchorValue", anchor.map(|anchor| anchor.value.as_str()));
        answer::records(LIST, &self.texts.ask(LIST, call).await?)
    }

    async fn purge(&self, age: Duration, batch: u32, by: Option<&Actor>) -> Result<u64> {
        const PURGE: &str = "audit.purge";
        let call = self
            .texts
            .procedure("Purge")
            .seconds("OlderThanSeconds", age)
            .integer("MaxRows", batch)
            .actor(by);
        rows::only(PURGE, &self.texts.rows(PURGE, call).await?)?.count("purged")
    }

    fn writing(&self, record: &PreparedAudit) -> StoreCall {
        self.texts.call(WRITE, self.write_call(record))
    }

    fn written(&self, answers: &[String]) -> Result<AuditId> {
        answer::written(WRITE, answers)
    }
}

impl std::fmt::Debug for SqlServerAudit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlServerAudit").field("identifier", &self.texts.identifier()).finish_non_exhaustive()
    }
}
