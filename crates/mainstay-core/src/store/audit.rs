//! What the audit trail needs of a database.

use std::time::Duration;

use async_trait::async_trait;

use crate::audit::{Actor, AuditFilter, AuditId, AuditPage, AuditRecord, PreparedAudit};
use crate::error::Result;

use super::StoreCall;

/// The audit trail in a database. Records are never changed. What other stores do by hand they record themselves, each in the
/// transaction that does it.
#[async_trait]
pub trait AuditStore: Send + Sync + 'static {
    /// Names the store in logs and metrics: the database and the table, no secret.
    fn identifier(&self) -> &str;

    /// Writes a record, durably, under the database's clock.
    async fn write(&self, record: &PreparedAudit) -> Result<AuditId>;

    /// One record.
    async fn get(&self, id: AuditId) -> Result<Option<AuditRecord>>;

    /// Records that match, newest first.
    async fn list(&self, filter: &AuditFilter, page: AuditPage) -> Result<Vec<AuditRecord>>;

    /// Deletes up to `batch` of the oldest records that are older than `age`. Returns how many. With an actor that is recorded.
    async fn purge(&self, age: Duration, batch: u32, by: Option<&Actor>) -> Result<u64>;

    /// What writes a record, for the caller's transaction.
    fn writing(&self, record: &PreparedAudit) -> StoreCall;

    /// What its answers say.
    fn written(&self, answers: &[String]) -> Result<AuditId>;
}
