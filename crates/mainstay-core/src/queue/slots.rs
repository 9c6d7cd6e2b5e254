//! How many handlers run at once over several dispatchers, and how much one store has in hand.
//!
//! A dispatcher that shares its slots waits for one in the order in which all ask, so no store can keep the others from theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Where the dispatchers of a store get leave to run a handler. By default from nobody: each has only its own bound.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots {
    shared: Option<Arc<Semaphore>>,
    in_hand: Arc<AtomicUsize>,
}

/// Leave to run one handler. Dropping it gives it to the next.
#[derive(Debug)]
pub(crate) struct Slot(#[allow(dead_code, reason = "held for its end")] Option<OwnedSemaphorePermit>);

impl Slots {
    /// Slots of a number that is shared with others.
    pub(crate) fn of(shared: Arc<Semaphore>) -> Self {
        Self { shared: Some(shared), in_hand: Arc::default() }
    }

    /// A slot, if one is free.
    pub(crate) fn try_take(&self) -> Option<Slot> {
        match &self.shared {
            None => Some(Slot(None)),
            Some(shared) => Arc::clone(shared).try_acquire_owned().ok().map(|permit| Slot(Some(permit))),
        }
    }

    /// Waits for a slot.
    pub(crate) async fn take(self) -> Slot {
        match self.shared {
            None => Slot(None),
            // It is never closed; if it were, its bound would be gone with it.
            Some(shared) => Slot(shared.acquire_owned().await.ok()),
        }
    }

    /// Counts what a dispatcher has in hand.
    pub(crate) fn count(&self) -> InHand {
        InHand { all: Arc::clone(&self.in_hand), own: 0 }
    }

    /// How many messages the dispatchers of the store have in hand: claimed and not settled.
    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand.load(Ordering::Relaxed)
    }
}

/// What one dispatcher has in hand.
#[derive(Debug)]
pub(crate) struct InHand {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl InHand {
    pub(crate) fn set(&mut self, now: usize) {
        self.all.fetch_add(now, Ordering::Relaxed);
        self.all.fetch_sub(self.own, Ordering::Relaxed);
        self.own = now;
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}
