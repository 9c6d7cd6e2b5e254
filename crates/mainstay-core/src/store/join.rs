//! What joins need of a database.

use std::time::Duration;

use async_trait::async_trait;

use crate::audit::Actor;
use crate::error::Result;
use crate::id::{JoinId, WorkItemId};
use crate::join::{
    Attached, CancelledJoin, Counted, Join, JoinFilter, JoinMember, JoinPage, JoinStats, MemberPage,
    PreparedJoin, Reported, Step,
};

use super::{Capabilities, StoreCall};

/// Joins in a database. What ends in the outbox is counted there, by whatever ends it, in the same transaction.
///
/// Starting, attaching and reporting are worded as calls: [`JoinStore::run`] runs one in a transaction of its own, and the
/// adapters run it in the caller's.
#[async_trait]
pub trait JoinStore: Send + Sync + 'static {
    /// Names the store in logs and metrics: the database and the table, no secret.
    fn identifier(&self) -> &str;

    /// What the provider can do.
    fn capabilities(&self) -> Capabilities;

    /// What starts a join. With an actor it is recorded in the audit trail.
    fn starting(&self, join: &PreparedJoin, by: Option<&Actor>) -> StoreCall;

    /// What its answers say. `InvalidArgument` if the id was taken: then nothing was changed.
    fn started(&self, join: JoinId, answers: &[String]) -> Result<()>;

    /// What makes items members of a join. Those that have ended in the outbox are counted at once. Items need not be messages.
    /// With an actor those that were not members are recorded in the audit trail.
    fn attaching(&self, join: JoinId, items: &[WorkItemId], by: Option<&Actor>) -> StoreCall;

    /// What its answers say. `NotFound` if there is no such join; an error if it had ended and there was something to add.
    fn attached(&self, join: JoinId, answers: &[String]) -> Result<Attached>;

    /// What counts a step by hand. With an actor it is recorded in the audit trail, if it is counted.
    fn reporting(&self, join: JoinId, item: WorkItemId, step: Step, by: Option<&Actor>) -> StoreCall;

    /// What its answers say. `NotFound` if there is no such join, or the item is no member of it.
    fn reported(&self, join: JoinId, item: WorkItemId, answers: &[String]) -> Result<Reported>;

    /// Runs a call of this store in a transaction of its own, again where the database gave it up for something concurrent,
    /// and wakes whoever waits for what it has put into the outbox.
    async fn run(&self, call: StoreCall) -> Result<Vec<String>>;

    /// One join.
    async fn get(&self, id: JoinId) -> Result<Option<Join>>;

    /// Joins that match, newest first by id.
    async fn list(&self, filter: &JoinFilter, page: JoinPage) -> Result<Vec<Join>>;

    /// A join's members, by id.
    async fn members(&self, id: JoinId, page: MemberPage) -> Result<Vec<JoinMember>>;

    /// The joins of an item, up to 1,000.
    async fn of_item(&self, item: WorkItemId) -> Result<Vec<JoinId>>;

    /// Ends a join without a continuation, and cancels those of its messages that wait and that nobody else has in hand.
    /// `NotFound` if there is no such join. Recorded in the audit trail.
    async fn cancel(&self, id: JoinId, by: &Actor) -> Result<CancelledJoin>;

    /// Ends up to `limit` joins whose deadline has passed. Returns those.
    async fn expire(&self, limit: u32) -> Result<Vec<Counted>>;

    /// How long it is until the nearest deadline of all pending joins, by the database's clock. None if there is none.
    async fn next_deadline(&self) -> Result<Option<Duration>>;

    /// How many joins stand where.
    async fn stats(&self) -> Result<JoinStats>;

    /// Deletes up to `batch` rows of joins that ended longer than `age` ago. Returns how many rows; 0 if there are no more.
    async fn purge(&self, age: Duration, batch: u32, by: Option<&Actor>) -> Result<u64>;
}
