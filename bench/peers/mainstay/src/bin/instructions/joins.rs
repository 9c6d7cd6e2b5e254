//! No joins.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay::audit::Actor;
use mainstay::join::{
    Attached, CancelledJoin, Counted, Join, JoinFilter, JoinMember, JoinPage, JoinStats, MemberPage,
    PreparedJoin, Reported, Step,
};
use mainstay::store::{Capabilities, JoinStore, StoreCall};
use mainstay::{JoinId, Result, WorkItemId};

use super::store::unsupported;

pub(crate) struct NoJoins;

fn no_call() -> StoreCall {
    StoreCall { operation: "nothing", store: String::new(), origin: Arc::new(()), steps: Vec::new() }
}

#[async_trait]
impl JoinStore for NoJoins {
    fn identifier(&self) -> &str {
        "nothing"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }
    fn starting(&self, _: &PreparedJoin, _: Option<&Actor>) -> StoreCall {
        no_call()
    }
    fn started(&self, _: JoinId, _: &[String]) -> Result<()> {
        unsupported()
    }
    fn attaching(&self, _: JoinId, _: &[WorkItemId], _: Option<&Actor>) -> StoreCall {
        no_call()
    }
    fn attached(&self, _: JoinId, _: &[String]) -> Result<Attached> {
        unsupported()
    }
    fn reporting(&self, _: JoinId, _: WorkItemId, _: Step, _: Option<&Actor>) -> StoreCall {
        no_call()
    }
    fn reported(&self, _: JoinId, _: WorkItemId, _: &[String]) -> Result<Reported> {
        unsupported()
    }
    async fn run(&self, _: StoreCall) -> Result<Vec<String>> {
        unsupported()
    }
    async fn get(&self, _: JoinId) -> Result<Option<Join>> {
        unsupported()
    }
    async fn list(&self, _: &JoinFilter, _: JoinPage) -> Result<Vec<Join>> {
        unsupported()
    }
    async fn members(&self, _: JoinId, _: MemberPage) -> Result<Vec<JoinMember>> {
        unsupported()
    }
    async fn of_item(&self, _: WorkItemId) -> Result<Vec<JoinId>> {
        unsupported()
    }
    async fn cancel(&self, _: JoinId, _: &Actor) -> Result<CancelledJoin> {
        unsupported()
    }
    async fn expire(&self, _: u32) -> Result<Vec<Counted>> {
        unsupported()
    }
    async fn next_deadline(&self) -> Result<Option<Duration>> {
        unsupported()
    }
    async fn stats(&self) -> Result<JoinStats> {
        unsupported()
    }
    async fn purge(&self, _: Duration, _: u32, _: Option<&Actor>) -> Result<u64> {
        unsupported()
    }
}
