//! What a doctor asks of a database, beyond its health.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::health::{RightsSeen, RunsSeen, SessionsSeen, StorageSeen, TransactionsSeen};
use crate::outbox::TopicStats;

use super::Queue;

/// Looks at what surrounds the work: rights, transactions, storage, the way notifications take. Nothing of it writes to a table. An
/// answer may take longer than a probe has time for: what is asked here is asked by people. None is the answer of a database that has
/// nothing of the kind.
#[async_trait]
pub trait DiagnosisStore: Send + Sync + 'static {
    /// What this user may not do and would have to.
    async fn rights(&self) -> Result<RightsSeen>;

    /// Whether a connection keeps its session from one transaction to the next.
    async fn sessions(&self) -> Result<Option<SessionsSeen>>;

    /// The transactions that have been open for longest.
    async fn transactions(&self) -> Result<Option<TransactionsSeen>>;

    /// What the tables and indexes take, and what of it is waste.
    async fn storage(&self) -> Result<StorageSeen>;

    /// How long a notification took to come back; an empty answer if none came.
    async fn notifications(&self) -> Result<Option<Option<Duration>>>;

    /// What stands where, by topic, without what is done.
    async fn topics(&self, queue: Queue) -> Result<Vec<TopicStats>>;

    /// The runs of jobs within the last so long, of which those count as late that were made so long after their time.
    async fn runs(&self, within: Duration, late: Duration) -> Result<RunsSeen>;
}
