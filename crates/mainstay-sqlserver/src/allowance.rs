//! How many connections there are, and how many there may be where somebody else decides it.
//!
//! All of them are the pool's: SQL Server has no notifications that one could be for.

use std::sync::Arc;

use mainstay_core::store::{ConnectionGate, ConnectionPass};
use tokio::sync::watch;

/// Counts the open connections of a provider, and asks its gate.
#[derive(Clone)]
pub(crate) struct Allowance {
    gate: Option<Arc<ConnectionGate>>,
    open: watch::Sender<usize>,
}

impl Allowance {
    pub(crate) fn new(gate: Option<Arc<ConnectionGate>>) -> Self {
        Self { gate, open: watch::Sender::new(0) }
    }

    pub(crate) fn gate(&self) -> Option<&Arc<ConnectionGate>> {
        self.gate.as_ref()
    }

    /// Whether none is allowed.
    pub(crate) fn is_empty(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.allowed() == 0)
    }

    /// Waits until a connection may be used. The pass is none where nobody decides that; all is none once closed.
    pub(crate) async fn enter(&self) -> Option<Option<ConnectionPass>> {
        match &self.gate {
            None => Some(None),
            Some(gate) => gate.enter().await.map(Some),
        }
    }

    /// Counts a connection for as long as the answer lives.
    pub(crate) fn count(&self) -> Counted {
        self.open.send_modify(|open| *open += 1);
        Counted(self.open.clone())
    }

    /// The same as soon as any is allowed.
    pub(crate) async fn count_allowed(&self) -> Counted {
        loop {
            if let Some(gate) = &self.gate
                && gate.any().await.is_none()
            {
                // Closed for good: nobody counts any more.
                return self.count();
            }
            // Both at once: who allows none and then sees none open must not see one opened after that.
            let counted = self.open.send_if_modified(|open| {
                let allowed = !self.is_empty();
                *open += usize::from(allowed);
                allowed
            });
            if counted {
                return Counted(self.open.clone());
            }
        }
    }

    /// How many are open.
    pub(crate) fn open(&self) -> usize {
        *self.open.borrow()
    }

    /// Waits until no more than so many are open.
    pub(crate) async fn at_most(&self, connections: usize) {
        // The sender lives as long as this, so there is always an answer.
        let mut open = self.open.subscribe();
        drop(open.wait_for(|open| *open <= connections).await);
    }
}

/// A connection that is open.
pub(crate) struct Counted(watch::Sender<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open = open.saturating_sub(1));
    }
}
