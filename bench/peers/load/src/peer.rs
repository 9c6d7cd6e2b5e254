//! What a program supplies.

use std::ops::Range;

use crate::{Request, Result};

/// What the workers are started for, so that each queue can be set up at its best for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// As many a second as it goes.
    Throughput,
    /// Each as soon as it can be.
    Latency,
}

/// A queue under measurement. Its messages are a number and a filling that makes up the size.
pub trait Peer: Clone + Send + Sync + 'static {
    /// Its name in the table.
    const NAME: &'static str;
    /// The version that is measured.
    const VERSION: &'static str;
    /// Messages per call of [`Peer::enqueue_many`]: the best that was found.
    const BULK: u64;
    /// What keeps workers running.
    type Workers: Send;

    /// Connects, and puts its schema into the empty database.
    fn connect(request: &Request) -> impl Future<Output = Result<Self>>;

    /// Enqueues one message, which is durable when this returns.
    fn enqueue(&self, id: i64) -> impl Future<Output = Result<()>> + Send;

    /// Enqueues one message per number by the fastest means the queue has.
    fn enqueue_many(&self, ids: Range<i64>) -> impl Future<Output = Result<()>> + Send;

    /// Starts workers whose handlers call [`handled`](crate::handled) and nothing else.
    fn start(&self, aim: Aim) -> impl Future<Output = Result<Self::Workers>> + Send;

    /// Messages that are not done, as the database has it.
    fn unsettled(&self) -> impl Future<Output = Result<u64>> + Send;

    /// Brings the database to rest before the clock starts: statistics, clean pages, no checkpoint due.
    fn settle_down(&self) -> impl Future<Output = Result<()>> + Send;
}
