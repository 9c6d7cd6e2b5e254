//! The way to one database of the fleet, by its key (OBX-072 to OBX-074).
//!
//! Clients are made once per database and handed out again and again (OBX-102). What they enqueue is worked on at once in this process, even
//! if the database was resting.

use std::sync::Arc;

use crate::audit::Audit;
use crate::error::{Error, ErrorKind, Result};
use crate::fanout::Fanout;
use crate::inbox::Inbox;
use crate::job::Jobs;
use crate::join::Joins;
use crate::lease::Leases;
use crate::operation::Operations;
use crate::outbox::Outbox;
use crate::runtime::Mainstay;
use crate::store::Provider;
use crate::timer::Timers;

use super::store::Store;
use super::{Fleet, StoreKey};

impl Fleet {
    /// The outbox of a database. `NotFound` if there is none of this key.
    pub fn outbox(&self, key: impl Into<StoreKey>) -> Result<Outbox> {
        Ok(self.route("fleet.outbox", key)?.mainstay.outbox().clone())
    }

    /// The inbox of a database. `NotFound` if there is none of this key.
    pub fn inbox(&self, key: impl Into<StoreKey>) -> Result<Inbox> {
        Ok(self.route("fleet.inbox", key)?.mainstay.inbox().clone())
    }

    /// The timers of a database. `NotFound` if there is none of this key.
    pub fn timers(&self, key: impl Into<StoreKey>) -> Result<Timers> {
        Ok(self.route("fleet.timers", key)?.mainstay.timers().clone())
    }

    /// The jobs of a database. `NotFound` if there is none of this key.
    pub fn jobs(&self, key: impl Into<StoreKey>) -> Result<Jobs> {
        Ok(self.route("fleet.jobs", key)?.mainstay.jobs().clone())
    }

    /// The leases of a database. `NotFound` if there is none of this key. A lease is held in one database (R21): always ask the same.
    pub fn leases(&self, key: impl Into<StoreKey>) -> Result<Leases> {
        Ok(self.route("fleet.leases", key)?.mainstay.leases().clone())
    }

    /// The joins of a database. `NotFound` if there is none of this key. A join is in the database of its steps: always ask the same.
    pub fn joins(&self, key: impl Into<StoreKey>) -> Result<Joins> {
        Ok(self.route("fleet.joins", key)?.mainstay.joins().clone())
    }

    /// The fan-outs of a database. `NotFound` if there is none of this key.
    pub fn fanout(&self, key: impl Into<StoreKey>) -> Result<Fanout> {
        Ok(self.route("fleet.fanout", key)?.mainstay.fanout().clone())
    }

    /// The audit trail of a database. `NotFound` if there is none of this key.
    pub fn audit(&self, key: impl Into<StoreKey>) -> Result<Audit> {
        Ok(self.route("fleet.audit", key)?.mainstay.audit().clone())
    }

    /// The operations of a database. `NotFound` if there is none of this key.
    pub fn operations(&self, key: impl Into<StoreKey>) -> Result<Operations> {
        Ok(self.route("fleet.operations", key)?.mainstay.operations().clone())
    }

    /// All that one database has. It is the fleet's to start and stop. `NotFound` if there is none of this key.
    pub fn mainstay(&self, key: impl Into<StoreKey>) -> Result<Mainstay> {
        Ok(self.route("fleet.mainstay", key)?.mainstay.clone())
    }

    /// The database itself. `NotFound` if there is none of this key.
    pub fn provider(&self, key: impl Into<StoreKey>) -> Result<Arc<dyn Provider>> {
        Ok(Arc::clone(&self.route("fleet.provider", key)?.provider))
    }

    pub(super) fn route(&self, operation: &'static str, key: impl Into<StoreKey>) -> Result<Arc<Store>> {
        let key = key.into();
        let registry = self.0.registry();
        if let Some(kept) = registry.stores.get(key.as_str()) {
            return Ok(Arc::clone(&kept.store));
        }
        let key = key.as_str();
        Err(match registry.refused.get(key) {
            Some(refusal) => {
                Error::new(refusal.kind, operation, format!("the database {key:?} can't be used: {}", refusal.error))
            }
            None => {
                let text = format!(
                    "there is no database {key:?} among the {} of the fleet; is it known to discovery, and has the fleet been refreshed since?",
                    registry.stores.len()
                );
                Error::new(ErrorKind::NotFound, operation, text)
            }
        }
        .with_field("key"))
    }
}
