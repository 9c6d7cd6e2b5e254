//! How the fleet gets from an entry to a database.

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Result;
use crate::store::{ConnectionGate, Provider};

use super::{DatabaseEntry, Watch};

/// Makes the provider of a database. It must open no connection: those are opened as the gate allows.
#[async_trait]
pub trait Connect: Send + Sync + 'static {
    /// The provider of `entry`, under these terms.
    async fn connect(&self, entry: &DatabaseEntry, terms: ConnectTerms) -> Result<Arc<dyn Provider>>;

    /// The server it is on, as `host:port`, if several databases can be on one. Their connections are counted together.
    fn server(&self, entry: &DatabaseEntry) -> Option<String>;

    /// What sees from outside that this database is written to, if there is such a thing. Of those that name the same place, one is used
    /// for all databases there. Defaults to none: then work that others add is found by looking.
    fn watch(&self, entry: &DatabaseEntry) -> Option<Box<dyn Watch>> {
        let _ = entry;
        None
    }
}

#[async_trait]
impl Connect for Arc<dyn Connect> {
    async fn connect(&self, entry: &DatabaseEntry, terms: ConnectTerms) -> Result<Arc<dyn Provider>> {
        self.as_ref().connect(entry, terms).await
    }

    fn server(&self, entry: &DatabaseEntry) -> Option<String> {
        self.as_ref().server(entry)
    }

    fn watch(&self, entry: &DatabaseEntry) -> Option<Box<dyn Watch>> {
        self.as_ref().watch(entry)
    }
}

/// Under which terms a provider has connections.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectTerms {
    /// Says how many there may be at a time. To be given to the provider's builder.
    pub gate: Arc<ConnectionGate>,
    /// How many there are at most, of all kinds.
    pub connections: usize,
}
