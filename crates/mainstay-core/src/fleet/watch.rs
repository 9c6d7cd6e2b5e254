//! The seam through which a fleet learns from outside that a database was written to, without a connection to each.
//!
//! A watch only ever makes things faster: what it does not see is found by looking. So it may miss a write, and may tell of one that
//! adds no work.

use async_trait::async_trait;

use crate::error::Result;

use super::DatabaseEntry;

/// Sees from outside which of the databases of one place are written to: by one query about all of a server's, by the times of files.
#[async_trait]
pub trait Watch: Send + 'static {
    /// The place: one watch is used for all databases whose watches name the same one.
    fn place(&self) -> &str;

    /// Whether it needs a connection to see anything. It has at most one, and opens it when it reads.
    fn connects(&self) -> bool;

    /// The marks of these databases, in their order. None for one that can't be seen from here. Must change nothing in any of them, must not
    /// see what a look does, and may be dropped at any time.
    async fn read(&mut self, entries: &[&DatabaseEntry]) -> Result<Vec<Option<Mark>>>;

    /// Whether what it read last shows every write sooner or later. Otherwise it only brings looks forward, and they stay as frequent as
    /// without it. Defaults to true.
    fn is_complete(&self) -> bool {
        true
    }

    /// Closes its connection, if one is open, and returns once it is closed.
    async fn let_go(&mut self);
}

/// How a database looked from outside. Two that differ mean that something was written between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark([u64; 4]);

impl Mark {
    /// A mark made of these numbers: counters, lengths, times.
    pub fn new(numbers: [u64; 4]) -> Self {
        Self(numbers)
    }
}
