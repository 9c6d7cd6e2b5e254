//! The application's handle on the audit trail.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::runtime::{SweepClock, purge_pages};
use crate::store::{AuditStore, CallIn, CallInBlocking};
use crate::telemetry;

use super::{Actor, AuditEvent, AuditFilter, AuditId, AuditPage, AuditRecord, AuditRetention, PreparedAudit};

/// The application's handle on the audit trail. Cheap to clone.
///
/// All rules are checked here, once, before any provider sees a call. Dropping any of the futures is harmless.
#[derive(Clone)]
pub struct Audit {
    store: Arc<dyn AuditStore>,
    actor: Actor,
}

impl Audit {
    /// The audit trail of a provider's store.
    pub fn new(store: Arc<dyn AuditStore>) -> Self {
        Self { store, actor: Actor::library() }
    }

    /// The same handle for somebody: what it writes is recorded as theirs. Defaults to [`Actor::library`].
    #[must_use]
    pub fn by(&self, actor: impl Into<Actor>) -> Self {
        Self { store: Arc::clone(&self.store), actor: actor.into() }
    }

    /// The provider's store.
    pub fn store(&self) -> &Arc<dyn AuditStore> {
        &self.store
    }

    /// Records an event in a transaction of its own. It is durable when this returns.
    pub async fn write(&self, event: AuditEvent) -> Result<AuditId> {
        let prepared = event.prepare(&self.actor)?;
        let id = self.store.write(&prepared).await?;
        self.told(&prepared);
        Ok(id)
    }

    /// Records an event in the caller's transaction: the record is there if and only if the caller commits, so it can't be told
    /// apart from what it tells of.
    pub async fn write_in<Tx, Marker>(&self, tx: &mut Tx, event: AuditEvent) -> Result<AuditId>
    where
        Tx: CallIn<Marker> + ?Sized,
    {
        let prepared = event.prepare(&self.actor)?;
        let answers = tx.call_in(&self.store.writing(&prepared)).await?;
        let id = self.store.written(&answers)?;
        self.told(&prepared);
        Ok(id)
    }

    /// Records an event in the caller's transaction on a driver that blocks.
    pub fn write_in_blocking<Tx, Marker>(&self, tx: &mut Tx, event: AuditEvent) -> Result<AuditId>
    where
        Tx: CallInBlocking<Marker> + ?Sized,
    {
        let prepared = event.prepare(&self.actor)?;
        let answers = tx.call_in(&self.store.writing(&prepared))?;
        let id = self.store.written(&answers)?;
        self.told(&prepared);
        Ok(id)
    }

    /// One record.
    pub async fn get(&self, id: AuditId) -> Result<Option<AuditRecord>> {
        self.store.get(id).await
    }

    /// Records that match, newest first.
    pub async fn list(&self, filter: &AuditFilter, page: AuditPage) -> Result<Vec<AuditRecord>> {
        page.validate()?;
        if let Some(anchor) = &filter.anchor {
            anchor.validate("audit.list")?;
        }
        let found = self.store.list(filter, page).await?;
        if let Some(last) = page.before
            && found.is_empty()
            && self.store.get(last).await?.is_none()
        {
            return Err(Error::page_lost("audit.list", "before"));
        }
        Ok(found)
    }

    /// Deletes records past their age, batch by batch, until none is left, and records that. Returns how many. With a retention
    /// that keeps them for ever, which is the default, it does nothing.
    pub async fn purge(&self, retention: &AuditRetention) -> Result<u64> {
        self.actor.validate("audit.purge")?;
        self.purge_by(*retention, Some(&self.actor), None).await
    }

    /// Deletes as retention does by itself: without a record of it.
    pub(crate) async fn sweep(&self, retention: AuditRetention, clock: &SweepClock) -> Result<u64> {
        self.purge_by(retention, None, Some(clock)).await
    }

    async fn purge_by(
        &self,
        retention: AuditRetention,
        by: Option<&Actor>,
        clock: Option<&SweepClock>,
    ) -> Result<u64> {
        retention.validate()?;
        let page = |retention: AuditRetention| async move {
            let Some(age) = retention.age else { return Ok(0) };
            self.store.purge(age, retention.batch, by).await
        };
        let purged = purge_pages("audit.purge", retention, clock, page).await?;
        telemetry::audit_purged(self.store.identifier(), purged);
        Ok(purged)
    }

    fn told(&self, prepared: &PreparedAudit) {
        telemetry::audited(self.store.identifier(), prepared);
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.store.identifier();
        f.debug_struct("Audit").field("store", &store).field("actor", &self.actor).finish_non_exhaustive()
    }
}
