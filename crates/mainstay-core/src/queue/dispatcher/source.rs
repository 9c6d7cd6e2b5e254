//! Where the dispatcher's work comes from: a claim, a wait for something to claim, or a pause after trouble.

use std::time::Instant;

use tokio::task::{JoinError, JoinHandle};
use tokio_util::task::AbortOnDropHandle;

use crate::error::Result;
use crate::queue::ClaimBatch;
use crate::store::Wake;

/// A claim's answer, with the moment before it was asked.
pub(super) type ClaimAnswer = (Instant, u32, Result<ClaimBatch>);

/// What the dispatcher is doing to get work.
#[derive(Debug)]
pub(super) enum Source {
    /// Nothing; a claim may start.
    Idle,
    /// A claim is under way, for as long as its lease at most. It is not dropped before: rows that it takes would be stuck
    /// until their lease lapses.
    Claiming(JoinHandle<ClaimAnswer>),
    /// Waiting for something to become claimable. Safe to drop.
    Waiting(AbortOnDropHandle<Result<Wake>>),
    /// Doing nothing until then.
    Paused(Instant),
}

/// What came of it.
#[derive(Debug)]
pub(super) enum SourceEvent {
    Claimed(Result<ClaimAnswer, JoinError>),
    Woken(Result<Result<Wake>, JoinError>),
    Resumed,
}

impl Source {
    /// Waits for what is under way; for ever when nothing is. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> SourceEvent {
        match self {
            Self::Idle => std::future::pending().await,
            Self::Claiming(task) => SourceEvent::Claimed(task.await),
            Self::Waiting(task) => SourceEvent::Woken(task.await),
            Self::Paused(until) => {
                tokio::time::sleep_until((*until).into()).await;
                SourceEvent::Resumed
            }
        }
    }
}
