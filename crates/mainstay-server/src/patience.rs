//! How long a request may take: as long as others, and the time that it asks to wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a request asks to wait for, once it is read. An extension of the request. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patience(Arc<AtomicU64>);

impl Patience {
    /// It waits for up to so long.
    pub(crate) fn waits(&self, wait: Duration) {
        let milliseconds = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.0.fetch_max(milliseconds, Ordering::Relaxed);
    }

    /// How long it waits.
    pub(crate) fn asked(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}
