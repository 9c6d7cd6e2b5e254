//! An answer that is shared for a moment, so that nobody makes the database work by asking.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use mainstay_core::{Error, Result};

use crate::problem::{Kind, Problem};

/// How long an answer is shared.
const FRESH: Duration = Duration::from_secs(1);

/// When an answer was made, and what it is.
type Made<T> = (Instant, Shared<T>);

type Shared<T> = Result<Arc<T>, Arc<Error>>;

/// The latest answer. Cheap to clone.
pub(crate) struct Fresh<T>(Arc<Mutex<Option<Made<T>>>>);

impl<T> Clone for Fresh<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Fresh<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Send + Sync + 'static> Fresh<T> {
    /// An answer that is not older than a moment. Of many who ask at once, one looks; and to the end, also when whoever asked has hung
    /// up: otherwise anybody could make the database work without an answer ever being kept. A failure is shared with those who asked before it was
    /// known, and kept for nobody else. It becomes a problem here, of the request that it is told to.
    pub(crate) async fn get(
        &self,
        look: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<Arc<T>, Problem> {
        let asked = Instant::now();
        let mut kept = Arc::clone(&self.0).lock_owned().await;
        let shared = kept.as_ref().filter(|(at, found)| match found {
            Ok(_) => at.elapsed() < FRESH,
            Err(_) => *at >= asked,
        });
        if let Some((_, found)) = shared {
            return found.clone().map_err(|error| Problem::from(error.as_ref()));
        }
        let looking = tokio::spawn(async move {
            let found = look.await.map(Arc::new).map_err(Arc::new);
            *kept = Some((Instant::now(), found.clone()));
            found
        });
        let broken = |_| Problem::new(Kind::Internal, "the look was broken off");
        looking.await.map_err(broken)?.map_err(|error| Problem::from(error.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_many_who_ask_one_looks() {
        let (fresh, looks) = (Fresh::default(), Arc::new(AtomicU32::new(0)));
        let look = || {
            let looks = Arc::clone(&looks);
            fresh.get(async move { Ok(looks.fetch_add(1, Ordering::SeqCst)) })
        };
        // Those who have hung up before it was there leave it for the others.
        drop(futures_util::poll!(std::pin::pin!(look())));
        for answer in futures_util::future::join_all((0..20).map(|_| look())).await {
            assert_eq!(*answer.unwrap(), 0);
        }
        assert_eq!(looks.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_shared_with_those_who_wait_for_it_and_kept_for_nobody() {
        let (fresh, looks) = (Fresh::<()>::default(), Arc::new(AtomicU32::new(0)));
        let look = || {
            let looks = Arc::clone(&looks);
            fresh.get(async move {
                looks.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
                Err(Error::new(mainstay_core::ErrorKind::Unavailable, "t", "down"))
            })
        };
        for answer in futures_util::future::join_all((0..20).map(|_| look())).await {
            assert_eq!(answer.unwrap_err().status().as_u16(), 503);
        }
        assert_eq!(looks.load(Ordering::SeqCst), 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(look().await.is_err());
        assert_eq!(looks.load(Ordering::SeqCst), 2, "somebody else looks again");
    }
}
