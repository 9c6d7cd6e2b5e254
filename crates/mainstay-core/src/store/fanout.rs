//! What fan-outs need of a database.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::audit::Actor;
use crate::error::Result;
use crate::fanout::{FanoutCursor, FanoutKey, FanoutPolicy, PlannedSlice, PreparedFanout};

use super::{StoreCall, Wake};

/// The policies and cursors of fan-outs in a database. Their slices are messages of the outbox.
#[async_trait]
pub trait FanoutStore: Send + Sync + 'static {
    /// Names the store in logs and metrics: the database and the table, no secret.
    fn identifier(&self) -> &str;

    /// Registers a fan-out. One that is there already changes only if other values are registered than the last time, so that what
    /// was changed at run time stays. If it is new or changes, coordinators are woken, and it is recorded in the audit trail.
    async fn register(&self, fanout: &PreparedFanout, by: &Actor) -> Result<FanoutPolicy>;

    /// A policy, and the database's clock. None if there is no such fan-out.
    async fn standing(&self, key: &FanoutKey) -> Result<Option<(FanoutPolicy, Timestamp)>>;

    /// Up to `limit` policies that come after `after`, by topic and work key.
    async fn list(&self, after: Option<&FanoutKey>, limit: u32) -> Result<Vec<FanoutPolicy>>;

    /// Replaces what can be set of a policy, if it is still of this version, and wakes coordinators. None if it is not.
    /// Recorded in the audit trail.
    async fn set(&self, policy: &FanoutPolicy, by: &Actor) -> Result<Option<FanoutPolicy>>;

    /// Asks for a run now, and wakes coordinators. False if there is no such fan-out. Recorded in the audit trail.
    async fn request_run(&self, key: &FanoutKey, by: &Actor) -> Result<bool>;

    /// Makes cursors for shards that have none. How many. Recorded in the audit trail, if there are any. `NotFound` if there is no such
    /// fan-out; one that is deleted at the same moment takes them along, or is no longer there.
    async fn add_shards(&self, key: &FanoutKey, shards: &[String], by: &Actor) -> Result<u64>;

    /// Deletes a shard's cursor. False if there is none. Recorded in the audit trail.
    async fn forget_shard(&self, key: &FanoutKey, shard: &str, by: &Actor) -> Result<bool>;

    /// Deletes a policy and the cursors of all its shards, and wakes coordinators. How many shards; none if there is no such fan-out.
    /// Refused while a slice of it is in flight. Recorded in the audit trail.
    async fn delete(&self, key: &FanoutKey, by: &Actor) -> Result<Option<u64>>;

    /// The cursors of those of these shards that have one.
    async fn look(&self, key: &FanoutKey, shards: &[String]) -> Result<Vec<FanoutCursor>>;

    /// Up to `limit` cursors of shards that come after `after`, in their order.
    async fn cursors(&self, key: &FanoutKey, after: Option<&str>, limit: u32) -> Result<Vec<FanoutCursor>>;

    /// Moves a shard's cursor on. Whether it moved: it never goes back.
    async fn complete(&self, key: &FanoutKey, shard: &str, at: Timestamp) -> Result<bool>;

    /// What does the same in the caller's transaction.
    fn completion(&self, key: &FanoutKey, shard: &str, at: Timestamp) -> StoreCall;

    /// What its answers say: whether the cursor moved.
    fn completed(&self, answers: &[String]) -> Result<bool>;

    /// What notes slices as planned, for a transaction that adds their messages: of each shard whose cursor is still what it was planned
    /// with and has no slice in flight, and of none if the policy is no longer of this version.
    fn claim(&self, key: &FanoutKey, version: i64, slices: &[PlannedSlice]) -> StoreCall;

    /// What its answers say: the shards whose slices were noted.
    fn claimed(&self, answers: &[String]) -> Result<Vec<String>>;

    /// What notes a run as made, for a transaction: its nominal time, and that the request of `requested`, if any, is met. Nothing if the
    /// policy is no longer of this version.
    fn ran(
        &self,
        key: &FanoutKey,
        version: i64,
        nominal: Timestamp,
        requested: Option<Timestamp>,
    ) -> StoreCall;

    /// Waits until the policy is not of this version any more (none is no policy), or `timeout` has passed. Nothing that changed between
    /// the last look and this call is missed.
    async fn wait(&self, key: &FanoutKey, version: Option<i64>, timeout: Duration) -> Result<Wake>;
}
