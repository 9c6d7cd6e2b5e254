//! Which databases are this node's.

use std::fmt;
use std::sync::Arc;

/// Which databases this node works on. The others it only routes to. Cheap to clone.
#[derive(Clone)]
pub struct Owned(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl Owned {
    /// All of them.
    pub fn all() -> Self {
        Self::by(|_| true)
    }

    /// None of them.
    pub fn none() -> Self {
        Self::by(|_| false)
    }

    /// Those whose id `owned` says yes to. It must not block.
    pub fn by(owned: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(owned))
    }

    /// Whether the database of this id is among them.
    pub fn contains(&self, id: &str) -> bool {
        (self.0)(id)
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owned(…)")
    }
}
