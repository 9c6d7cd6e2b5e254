//! How many connections a provider may have open, where somebody else decides it: one of many databases under one budget.
//!
//! The provider asks the gate before it opens or uses a connection; whoever keeps the budget says how many are allowed and is told
//! when somebody waits. A gate never decides anything itself.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// How many connections a provider may have open. Begins with none.
pub struct ConnectionGate {
    slots: Arc<Semaphore>,
    account: Mutex<Account>,
    /// None once closed.
    allowed: watch::Sender<Option<usize>>,
    wanted: Box<dyn Fn() + Send + Sync>,
}

#[derive(Debug, Default)]
struct Account {
    allowed: usize,
    /// Passes that are out although they are no longer allowed. They are not handed on.
    debt: usize,
    /// How many wait to get in.
    waiting: usize,
}

impl ConnectionGate {
    /// A gate that calls `wanted` whenever somebody finds no connection allowed. The call must not block.
    pub fn new(wanted: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            slots: Arc::new(Semaphore::new(0)),
            account: Mutex::default(),
            allowed: watch::Sender::new(Some(0)),
            wanted: Box::new(wanted),
        })
    }

    /// Allows so many from now on. What is in use beyond that ends by itself.
    pub fn allow(&self, connections: usize) {
        let mut account = self.account();
        if connections > account.allowed {
            let more = connections - account.allowed;
            let paid = more.min(account.debt);
            account.debt -= paid;
            self.slots.add_permits(more - paid);
        } else {
            let fewer = account.allowed - connections;
            let free = self.slots.forget_permits(fewer);
            account.debt += fewer - free;
        }
        account.allowed = connections;
        let left_waiting = connections == 0 && account.waiting > 0;
        drop(account);
        self.allowed.send_if_modified(|allowed| {
            let changed = allowed.is_some_and(|was| was != connections);
            if changed {
                *allowed = Some(connections);
            }
            changed
        });
        if left_waiting {
            (self.wanted)();
        }
    }

    /// How many are allowed.
    pub fn allowed(&self) -> usize {
        self.account().allowed
    }

    /// Waits until some are allowed, and says how many. None once closed.
    pub async fn any(&self) -> Option<usize> {
        let mut allowed = self.allowed.subscribe();
        if *allowed.borrow_and_update() == Some(0) {
            (self.wanted)();
        }
        *allowed.wait_for(|allowed| *allowed != Some(0)).await.ok()?
    }

    /// Waits until one more may be used. None once closed.
    pub async fn enter(self: &Arc<Self>) -> Option<ConnectionPass> {
        let slots = Arc::clone(&self.slots);
        let permit = match Arc::clone(&slots).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = Waiting::new(self);
                if self.allowed() == 0 {
                    (self.wanted)();
                }
                slots.acquire_owned().await.ok()?
            }
        };
        Some(ConnectionPass { permit: Some(permit), gate: Arc::clone(self) })
    }

    /// Nobody gets through any more.
    pub fn close(&self) {
        self.slots.close();
        self.allowed.send_replace(None);
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        // Two numbers are whole whatever panicked beside them.
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ConnectionGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionGate").field("account", &*self.account()).finish_non_exhaustive()
    }
}

/// Somebody who waits to get in, however the wait ends.
struct Waiting<'a>(&'a ConnectionGate);

impl<'a> Waiting<'a> {
    fn new(gate: &'a ConnectionGate) -> Self {
        gate.account().waiting += 1;
        Self(gate)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.account().waiting -= 1;
    }
}

/// The use of one connection. Dropping it lets the next one in.
#[derive(Debug)]
pub struct ConnectionPass {
    permit: Option<OwnedSemaphorePermit>,
    gate: Arc<ConnectionGate>,
}

impl Drop for ConnectionPass {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        let mut account = self.gate.account();
        if account.debt > 0 {
            account.debt -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn as_many_get_in_as_are_allowed_and_the_rest_is_told_of() {
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        let gate = ConnectionGate::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        assert!(gate.enter().now_or_never().is_none());
        assert_eq!(told.load(Ordering::SeqCst), 1);

        gate.allow(2);
        let (one, two) = (gate.enter().await.unwrap(), gate.enter().await.unwrap());
        assert!(gate.enter().now_or_never().is_none());
        gate.allow(1);
        drop(one);
        assert!(gate.enter().now_or_never().is_none(), "one is still out, and one is allowed");
        drop(two);
        let _three = gate.enter().now_or_never().expect("one is allowed").unwrap();
    }

    #[tokio::test]
    async fn what_was_taken_away_and_is_still_out_counts_when_it_is_given_again() {
        let gate = ConnectionGate::new(|| ());
        gate.allow(2);
        let (_one, _two) = (gate.enter().await.unwrap(), gate.enter().await.unwrap());
        gate.allow(0);
        gate.allow(3);
        let _three = gate.enter().now_or_never().expect("the third").unwrap();
        assert!(gate.enter().now_or_never().is_none(), "no more than three at once");
    }

    #[tokio::test]
    async fn a_closed_gate_lets_nobody_wait() {
        let gate = ConnectionGate::new(|| ());
        gate.close();
        assert!(gate.enter().await.is_none());
        assert_eq!(gate.any().await, None);
    }
}
