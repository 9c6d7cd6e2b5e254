//! What operations need of a database.

use std::time::Duration;

use async_trait::async_trait;

use crate::audit::Actor;
use crate::error::Result;
use crate::operation::{
    EventPage, Operation, OperationEnd, OperationEvent, OperationFilter, OperationId, OperationPage,
    PreparedEvent, PreparedOperation, Progress,
};

use super::StoreCall;

/// The operations in a database. What has ended never changes again, whoever comes first. Answers are worded as
/// [`operation::answer`](crate::operation::answer) reads them.
#[async_trait]
pub trait OperationStore: Send + Sync + 'static {
    /// Names the store in logs and metrics: the database and the table, no secret.
    fn identifier(&self) -> &str;

    /// What starts an operation, for any transaction.
    fn starting(&self, operation: &PreparedOperation) -> StoreCall;

    /// What records progress, and a sign of life, unless the operation has ended.
    fn advancing(&self, id: OperationId, progress: &Progress) -> StoreCall;

    /// What adds an event, which is a sign of life too, unless the operation has ended.
    fn noting(&self, id: OperationId, event: &PreparedEvent) -> StoreCall;

    /// What ends an operation, unless it has ended.
    fn ending(&self, id: OperationId, end: &OperationEnd) -> StoreCall;

    /// Runs one of these in a transaction of its own. The answers of all statements, in order.
    async fn run(&self, call: StoreCall) -> Result<Vec<String>>;

    /// One operation.
    async fn get(&self, id: OperationId) -> Result<Option<Operation>>;

    /// Operations that match, newest first.
    async fn list(&self, filter: &OperationFilter, page: OperationPage) -> Result<Vec<Operation>>;

    /// The events of an operation, in their order.
    async fn events(&self, id: OperationId, page: EventPage) -> Result<Vec<OperationEvent>>;

    /// Running operations without a sign of life for this long, the longest silent first.
    async fn stalled(&self, silence: Duration, limit: u32) -> Result<Vec<Operation>>;

    /// Ends up to `limit` of these as stalled. With an actor that is recorded in the audit trail.
    async fn mark_stalled(
        &self,
        silence: Duration,
        limit: u32,
        by: Option<&Actor>,
    ) -> Result<Vec<OperationId>>;

    /// Deletes up to `batch` operations that ended longer ago than `age`, with their tags and events. Returns how many. With an actor
    /// that is recorded in the audit trail.
    async fn purge(&self, age: Duration, batch: u32, by: Option<&Actor>) -> Result<u64>;
}
