//! How many connections there are, and how many there may be where somebody else decides it.
//!
//! For providers with a pool of connections to a server. What a connection is, is theirs to say: they count each one for as long as it is open, and close it when
//! they are told to.

use std::sync::Arc;

use tokio::sync::watch;

use super::{ConnectionGate, ConnectionPass};

/// Counts the open connections of a provider, and asks its gate.
#[derive(Debug, Clone)]
pub struct Allowance {
    gate: Option<Arc<ConnectionGate>>,
    open: watch::Sender<usize>,
    /// Counts how often all connections were to be closed at once.
    severed: watch::Sender<u64>,
}

impl Allowance {
    /// As the gate allows; without one as many as are needed.
    pub fn new(gate: Option<Arc<ConnectionGate>>) -> Self {
        Self { gate, open: watch::Sender::new(0), severed: watch::Sender::new(0) }
    }

    /// Who decides, if somebody does.
    pub fn gate(&self) -> Option<&Arc<ConnectionGate>> {
        self.gate.as_ref()
    }

    /// Whether none is allowed.
    pub fn is_empty(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.allowed() == 0)
    }

    /// Waits until a connection may be used. The pass is none where nobody decides that; all is none once closed.
    pub async fn enter(&self) -> Option<Option<ConnectionPass>> {
        match &self.gate {
            None => Some(None),
            Some(gate) => gate.enter().await.map(Some),
        }
    }

    /// Counts a connection for as long as the answer lives.
    pub fn count(&self) -> CountedConnection {
        let severed = self.severed.subscribe();
        self.open.send_modify(|open| *open += 1);
        CountedConnection { open: self.open.clone(), severed }
    }

    /// The same as soon as any is allowed.
    pub async fn count_allowed(&self) -> CountedConnection {
        loop {
            if let Some(gate) = &self.gate
                && gate.any().await.is_none()
            {
                // Closed for good: nobody counts any more.
                return self.count();
            }
            // Heard of from before it is counted: who has all of them closed must not wait for one that did not hear of it.
            let severed = self.severed.subscribe();
            // Both at once: who allows none and then sees none open must not see one opened after that.
            let allowed = self.open.send_if_modified(|open| {
                let allowed = !self.is_empty();
                *open += usize::from(allowed);
                allowed
            });
            if allowed {
                return CountedConnection { open: self.open.clone(), severed };
            }
        }
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        *self.open.borrow()
    }

    /// Has all connections closed that are open now, whoever uses them. Allow none before.
    pub fn sever(&self) {
        self.severed.send_modify(|times| *times += 1);
    }

    /// Waits until no more than so many are open.
    pub async fn at_most(&self, connections: usize) {
        // The sender lives as long as this, so there is always an answer.
        let mut open = self.open.subscribe();
        drop(open.wait_for(|open| *open <= connections).await);
    }
}

/// A connection that is open, or about to be: counted until it is dropped.
#[derive(Debug)]
pub struct CountedConnection {
    open: watch::Sender<usize>,
    severed: watch::Receiver<u64>,
}

impl CountedConnection {
    /// Ends when the connection is to be closed, whoever uses it.
    pub async fn severed(&mut self) {
        if self.severed.changed().await.is_err() {
            // Nobody is left who could ask for it.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.open.send_modify(|open| *open = open.saturating_sub(1));
    }
}
