//! An answer that is shared for a moment, so that nobody makes the database work by asking.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::problem::{Kind, Problem};

/// How long an answer is shared.
const FRESH: Duration = Duration::from_secs(1);

/// When an answer was made, and what it is.
type Made<T> = (Instant, Arc<T>);

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
    /// up: otherwise anybody could make the database work without an answer ever being kept.
    pub(crate) async fn get(
        &self,
        look: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<Arc<T>, Problem> {
        let mut kept = Arc::clone(&self.0).lock_owned().await;
        if let Some((_, found)) = kept.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Ok(Arc::clone(found));
        }
        let looking = tokio::spawn(async move {
            let found = Arc::new(look.await?);
            *kept = Some((Instant::now(), Arc::clone(&found)));
            Ok(found)
        });
        let broken = |_| Problem::new(Kind::Internal, "the look was broken off");
        looking.await.map_err(broken)?
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
}
