//! No fan-outs.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay::Result;
use mainstay::audit::Actor;
use mainstay::fanout::{FanoutCursor, FanoutKey, FanoutPolicy, PlannedSlice, PreparedFanout};
use mainstay::store::{FanoutStore, StoreCall, Wake};

use super::store::unsupported;

pub(crate) struct NoFanout;

fn nothing() -> StoreCall {
    StoreCall {
        operation: "nothing",
        store: "nothing".to_owned(),
        origin: std::sync::Arc::new(()),
        steps: Vec::new(),
    }
}

#[async_trait]
impl FanoutStore for NoFanout {
    fn identifier(&self) -> &str {
        "nothing"
    }
    async fn register(&self, _: &PreparedFanout, _: &Actor) -> Result<FanoutPolicy> {
        unsupported()
    }
    async fn standing(&self, _: &FanoutKey) -> Result<Option<(FanoutPolicy, Timestamp)>> {
        unsupported()
    }
    async fn list(&self, _: Option<&FanoutKey>, _: u32) -> Result<Vec<FanoutPolicy>> {
        unsupported()
    }
    async fn set(&self, _: &FanoutPolicy, _: &Actor) -> Result<Option<FanoutPolicy>> {
        unsupported()
    }
    async fn request_run(&self, _: &FanoutKey, _: &Actor) -> Result<bool> {
        unsupported()
    }
    async fn add_shards(&self, _: &FanoutKey, _: &[String], _: &Actor) -> Result<u64> {
        unsupported()
    }
    async fn forget_shard(&self, _: &FanoutKey, _: &str, _: &Actor) -> Result<bool> {
        unsupported()
    }
    async fn delete(&self, _: &FanoutKey, _: &Actor) -> Result<Option<u64>> {
        unsupported()
    }
    async fn look(&self, _: &FanoutKey, _: &[String]) -> Result<Vec<FanoutCursor>> {
        unsupported()
    }
    async fn cursors(&self, _: &FanoutKey, _: Option<&str>, _: u32) -> Result<Vec<FanoutCursor>> {
        unsupported()
    }
    async fn complete(&self, _: &FanoutKey, _: &str, _: Timestamp) -> Result<bool> {
        unsupported()
    }
    fn completion(&self, _: &FanoutKey, _: &str, _: Timestamp) -> StoreCall {
        nothing()
    }
    fn completed(&self, _: &[String]) -> Result<bool> {
        unsupported()
    }
    fn claim(&self, _: &FanoutKey, _: i64, _: &[PlannedSlice]) -> StoreCall {
        nothing()
    }
    fn claimed(&self, _: &[String]) -> Result<Vec<String>> {
        unsupported()
    }
    fn ran(&self, _: &FanoutKey, _: i64, _: Timestamp, _: Option<Timestamp>) -> StoreCall {
        nothing()
    }
    async fn wait(&self, _: &FanoutKey, _: Option<i64>, _: Duration) -> Result<Wake> {
        std::future::pending().await
    }
}
