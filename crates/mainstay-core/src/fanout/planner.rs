//! Who says which shards there are.

use std::sync::Arc;

use async_trait::async_trait;

use crate::renewing::{TURN_LIMIT, attempt};
use crate::store::FanoutStore;

use super::{Candidate, FanoutKey, SliceTime};

/// What a planner may fail with.
pub type PlannerError = Box<dyn std::error::Error + Send + Sync>;

/// Says which shards a fan-out has, and, if it wants, which of them are due.
///
/// It is asked by one coordinator at a time, in every process that has it.
#[async_trait]
pub trait Planner: Send + Sync + 'static {
    /// The shard keys that come after `after`, about `limit` of them; all from the start if `after` is none. Any order will do, as long
    /// as it stays the same from page to page. A page without a key that was not there before is the end, so a planner that has all keys
    /// at hand may return them all each time.
    async fn candidates(
        &self,
        key: &FanoutKey,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, PlannerError>;

    /// When the shard's next slice is due: it is made if that is now or earlier, and looked at again when it is later. None if there is to
    /// be none on this occasion. Defaults to the cadence; see [`Candidate::due`].
    fn due(&self, candidate: &Candidate<'_>) -> Option<SliceTime> {
        candidate.due()
    }
}

/// A planner that asks a function for all shard keys; see [`shards_from`].
#[derive(Debug, Clone)]
pub struct ShardsFrom<F>(F);

/// A planner of a function that returns all shard keys.
///
/// ```
/// # use mainstay_core::fanout::shards_from;
/// let planner = shards_from(async || Ok::<_, std::io::Error>(vec!["tenant-1", "tenant-2"]));
/// # let _ = planner;
/// ```
pub fn shards_from<F>(shards: F) -> ShardsFrom<F> {
    ShardsFrom(shards)
}

#[async_trait]
impl<F, Fut, S, E> Planner for ShardsFrom<F>
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<S>, E>> + Send,
    S: Into<String> + Send,
    E: Into<PlannerError>,
{
    async fn candidates(
        &self,
        _key: &FanoutKey,
        after: Option<&str>,
        _limit: usize,
    ) -> Result<Vec<String>, PlannerError> {
        if after.is_some() {
            return Ok(Vec::new());
        }
        let shards = (self.0)().await.map_err(Into::into)?;
        Ok(shards.into_iter().map(Into::into).collect())
    }
}

/// The planner where there is no other: all shards that have a cursor. They get one by [`Fanout::add_shards`](super::Fanout::add_shards).
pub struct KnownShards(Arc<dyn FanoutStore>);

impl KnownShards {
    /// Of this store.
    pub fn new(store: Arc<dyn FanoutStore>) -> Self {
        Self(store)
    }
}

impl std::fmt::Debug for KnownShards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KnownShards").field(&self.0.identifier()).finish()
    }
}

#[async_trait]
impl Planner for KnownShards {
    async fn candidates(
        &self,
        key: &FanoutKey,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, PlannerError> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        // A call of ours, unlike an application's planner.
        let cursors = attempt("fanout.plan", TURN_LIMIT, self.0.cursors(key, after, limit)).await?;
        Ok(cursors.into_iter().map(|cursor| cursor.shard_key).collect())
    }
}
