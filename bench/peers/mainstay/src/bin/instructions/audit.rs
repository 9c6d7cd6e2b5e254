//! The audit trail of a database that is none.

use std::time::Duration;

use async_trait::async_trait;
use mainstay::Result;
use mainstay::audit::{Actor, AuditFilter, AuditId, AuditPage, AuditRecord, PreparedAudit};
use mainstay::store::{AuditStore, StoreCall};

use super::inbox::nothing;
use super::store::unsupported;

/// An audit trail that has no records and takes none.
pub(crate) struct NoAudit;

#[async_trait]
impl AuditStore for NoAudit {
    fn identifier(&self) -> &str {
        "nothing"
    }
    async fn write(&self, _: &PreparedAudit) -> Result<AuditId> {
        unsupported()
    }
    async fn get(&self, _: AuditId) -> Result<Option<AuditRecord>> {
        unsupported()
    }
    async fn list(&self, _: &AuditFilter, _: AuditPage) -> Result<Vec<AuditRecord>> {
        unsupported()
    }
    async fn purge(&self, _: Duration, _: u32, _: Option<&Actor>) -> Result<u64> {
        unsupported()
    }
    fn writing(&self, _: &PreparedAudit) -> StoreCall {
        nothing()
    }
    fn written(&self, _: &[String]) -> Result<AuditId> {
        unsupported()
    }
}
