//! The operations of a database that is none.

use std::time::Duration;

use async_trait::async_trait;
use mainstay::Result;
use mainstay::audit::Actor;
use mainstay::operation::{
    EventPage, Operation, OperationEnd, OperationEvent, OperationFilter, OperationId, OperationPage,
    PreparedEvent, PreparedOperation, Progress,
};
use mainstay::store::{OperationStore, StoreCall};

use super::inbox::nothing;
use super::store::unsupported;

/// Operations that are none.
pub(crate) struct NoOperations;

#[async_trait]
impl OperationStore for NoOperations {
    fn identifier(&self) -> &str {
        "nothing"
    }
    fn starting(&self, _: &PreparedOperation) -> StoreCall {
        nothing()
    }
    fn advancing(&self, _: OperationId, _: &Progress) -> StoreCall {
        nothing()
    }
    fn noting(&self, _: OperationId, _: &PreparedEvent) -> StoreCall {
        nothing()
    }
    fn ending(&self, _: OperationId, _: &OperationEnd) -> StoreCall {
        nothing()
    }
    async fn run(&self, _: StoreCall) -> Result<Vec<String>> {
        unsupported()
    }
    async fn get(&self, _: OperationId) -> Result<Option<Operation>> {
        unsupported()
    }
    async fn list(&self, _: &OperationFilter, _: OperationPage) -> Result<Vec<Operation>> {
        unsupported()
    }
    async fn events(&self, _: OperationId, _: EventPage) -> Result<Vec<OperationEvent>> {
        unsupported()
    }
    async fn stalled(&self, _: Duration, _: u32) -> Result<Vec<Operation>> {
        unsupported()
    }
    async fn mark_stalled(&self, _: Duration, _: u32, _: Option<&Actor>) -> Result<Vec<OperationId>> {
        unsupported()
    }
    async fn purge(&self, _: Duration, _: u32, _: Option<&Actor>) -> Result<u64> {
        unsupported()
    }
}
