//! Which databases there are. Whoever knows it implements [`DatabaseDiscovery`]; the fleet asks now and then.

use std::collections::BTreeSet;
use std::fmt;

use async_trait::async_trait;

use crate::error::{Error, Result};

use super::DatabaseEntry;

const DISCOVER: &str = "fleet.discover";

/// Says which databases there are.
#[async_trait]
pub trait DatabaseDiscovery: Send + Sync + 'static {
    /// All of them, in any order. An error leaves the fleet as it is.
    async fn discover(&self) -> Result<Vec<DatabaseEntry>>;

    /// Whether what it says never changes, so that there is nothing to ask again for.
    fn is_fixed(&self) -> bool {
        false
    }
}

/// A list that never changes.
#[derive(Debug, Clone)]
pub struct DatabaseList(Vec<DatabaseEntry>);

impl DatabaseList {
    /// These databases. An empty list, an empty id and one that comes twice are refused (PRIM API-002).
    pub fn new(databases: impl IntoIterator<Item = DatabaseEntry>) -> Result<Self> {
        let databases: Vec<_> = databases.into_iter().collect();
        validate(&databases, false)?;
        Ok(Self(databases))
    }
}

#[async_trait]
impl DatabaseDiscovery for DatabaseList {
    async fn discover(&self) -> Result<Vec<DatabaseEntry>> {
        Ok(self.0.clone())
    }

    fn is_fixed(&self) -> bool {
        true
    }
}

/// What a function of the application says.
pub struct DiscoverWith<F>(F);

impl<F, Fut> DiscoverWith<F>
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<DatabaseEntry>>> + Send + 'static,
{
    /// Asks `discover` each time.
    pub fn new(discover: F) -> Self {
        Self(discover)
    }
}

impl<F> fmt::Debug for DiscoverWith<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiscoverWith")
    }
}

#[async_trait]
impl<F, Fut> DatabaseDiscovery for DiscoverWith<F>
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<DatabaseEntry>>> + Send + 'static,
{
    async fn discover(&self) -> Result<Vec<DatabaseEntry>> {
        (self.0)().await
    }
}

/// Refuses ids that are not ids, or come twice, and an empty list unless it is allowed.
pub(super) fn validate(databases: &[DatabaseEntry], allow_empty: bool) -> Result<()> {
    if databases.is_empty() && !allow_empty {
        let reason =
            "must name at least one database, got none; if there may be none, allow it with `allow_empty`";
        return Err(Error::invalid(DISCOVER, "databases", reason));
    }
    let mut seen = BTreeSet::new();
    for database in databases {
        database.validate()?;
        if !seen.insert(&database.id) {
            let reason = format_args!("must be given once, got {:?} twice", database.id);
            return Err(Error::invalid(DISCOVER, "id", reason));
        }
    }
    Ok(())
}
