//! Calls that can wait for a transaction of another client.
//!
//! An insert waits for an open transaction that has inserted the same id or key, and keeps its connection meanwhile. Functions
//! that are also called in applications' transactions have no `lock_timeout`, so such a wait lasts up to the time limit of calls.
//! Two rules keep it from stalling the other calls of the process. Callers with the same key wait for each other here, and hold no
//! connection. And only a part of the pool's connections may be in calls of this kind, whatever their keys.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// What another transaction can have inserted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Id(Uuid),
    Idempotency(String),
    /// Source and message id of a received message.
    Received(String, String),
}

/// How long a statement can wait for a transaction of another client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// As long as the `lock_timeout` of its function allows.
    Brief,
    /// As long as that transaction lasts.
    Long,
}

/// The keys of calls under way. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns {
    /// Each key with the end of the call that has it.
    taken: Arc<Mutex<HashMap<Key, CancellationToken>>>,
}

impl Turns {
    /// Waits until no other call has one of the keys, and takes them all.
    pub(crate) async fn take(&self, keys: Vec<Key>) -> Turn {
        loop {
            let ended = {
                let mut taken = self.taken();
                match keys.iter().find_map(|key| taken.get(key)) {
                    Some(ended) => ended.clone(),
                    None => {
                        let ended = CancellationToken::new();
                        taken.extend(keys.iter().map(|key| (key.clone(), ended.clone())));
                        return Turn { turns: self.clone(), keys, ended };
                    }
                }
            };
            ended.cancelled().await;
        }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Key, CancellationToken>> {
        // Nothing panics while it is held.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys of a call, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    keys: Vec<Key>,
    ended: CancellationToken,
}

impl Drop for Turn {
    fn drop(&mut self) {
        {
            let mut taken = self.turns.taken();
            for key in &self.keys {
                taken.remove(key);
            }
        }
        self.ended.cancel();
    }
}

/// The right to a connection for a use that can take long. Shared by the connections of one call, one after the other.
pub(crate) type Permit = Arc<Vec<OwnedSemaphorePermit>>;

/// How many connections of the pool may be in uses that can take long. The rest is for claims, renewals and settles.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// For handlers' transactions, and for calls that can wait: three quarters.
    long: Arc<Semaphore>,
    /// For calls that can wait alone: a handler may make one beside its transaction, and must not wait for itself.
    spare: Arc<Semaphore>,
    /// Calls that can wait at once: half of the connections, so that handlers' transactions always get some.
    waiting: Arc<Semaphore>,
}

impl Places {
    /// Divides a pool of this size.
    pub(crate) fn new(size: usize) -> Self {
        let rest = size.div_ceil(4);
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self {
            long: semaphore((size - rest).max(1)),
            // The last one, in a small pool: without it, handlers of which each makes such a call would wait for each other.
            spare: semaphore((rest - 1).max(1).min(size - 1)),
            waiting: semaphore((size / 2).max(1)),
        }
    }

    /// Closes them, so that callers that wait for a place fail.
    pub(crate) fn close(&self) {
        for semaphore in [&self.long, &self.spare, &self.waiting] {
            semaphore.close();
        }
    }

    /// Takes a place for a handler's transaction.
    pub(crate) async fn for_transaction(&self) -> Result<Permit, AcquireError> {
        Ok(Arc::new(vec![Arc::clone(&self.long).acquire_owned().await?]))
    }

    /// Takes a place for a call that can wait for another transaction.
    pub(crate) async fn for_waiting(&self) -> Result<Permit, AcquireError> {
        let waiting = Arc::clone(&self.waiting).acquire_owned().await?;
        let connection = tokio::select! {
            biased;
            long = Arc::clone(&self.long).acquire_owned() => long?,
            spare = Arc::clone(&self.spare).acquire_owned() => spare?,
        };
        Ok(Arc::new(vec![waiting, connection]))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, poll};

    use super::*;

    fn keys<const N: usize>(names: [&str; N]) -> Vec<Key> {
        names.into_iter().map(|name| Key::Idempotency(name.to_owned())).collect()
    }

    #[tokio::test]
    async fn calls_with_a_common_key_take_turns() {
        let turns = Turns::default();
        let first = turns.take(keys(["a", "b"])).await;
        let mut both = Box::pin(turns.take(keys(["b", "c"])));
        assert!(poll!(&mut both).is_pending());
        // One that waits has none of its keys yet.
        let third = turns.take(keys(["c"])).await;
        drop(first);
        assert!(poll!(&mut both).is_pending());
        drop(third);
        drop(both.await);
        assert!(turns.taken().is_empty());
    }

    #[tokio::test]
    async fn a_caller_who_gives_up_leaves_the_keys_to_others() {
        let turns = Turns::default();
        // A key that comes twice in one call.
        let first = turns.take(keys(["a", "a"])).await;
        let mut second = Box::pin(turns.take(keys(["a"])));
        let mut third = Box::pin(turns.take(keys(["a"])));
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        drop(first);
        drop(second);
        drop(third.await);
        assert!(turns.taken().is_empty());
    }

    #[test]
    fn a_part_of_the_pool_is_left_to_short_calls() {
        for size in [1, 2, 3, 4, 8, 16, 100] {
            let places = Places::new(size);
            let mut waiting = Vec::new();
            while let Some(Ok(permit)) = places.for_waiting().now_or_never() {
                waiting.push(permit);
            }
            let mut handlers = Vec::new();
            while let Some(Ok(permit)) = places.for_transaction().now_or_never() {
                handlers.push(permit);
            }
            assert!(!waiting.is_empty());
            assert!(size == 1 || waiting.len() + handlers.len() < size, "{size}");
            assert!(size < 3 || !handlers.is_empty(), "{size}");
            // Beside as many handlers' transactions as there can be.
            drop(waiting);
            while let Some(Ok(permit)) = places.for_transaction().now_or_never() {
                handlers.push(permit);
            }
            assert_eq!(places.for_waiting().now_or_never().is_some(), size > 1, "{size}");
        }
    }
}
