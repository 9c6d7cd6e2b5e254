//! An operation for as long as a piece of code works on it.
//!
//! It relies on a Tokio runtime for what goes on in the background: the signs of life, and the end of a scope that was dropped. It
//! must never end an operation as succeeded unless it was told so. What it can't record because the process dies, or the database
//! can't be reached for long, is found stalled.

use std::fmt;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::error::{ErrorKind, Result};
use crate::telemetry;

use super::answer::is_over;
use super::{Ended, NewEvent, NewOperation, OperationEnd, OperationId, Operations, Progress};

/// The first pause before the end of a dropped scope is tried again; it doubles.
const RETRY: Duration = Duration::from_millis(100);

/// How often that is tried, which takes some 100 seconds.
const ATTEMPTS: u32 = 10;

/// How often an operation is looked for whose start may still be on its way, which takes some 3 seconds.
const LOOKS: u32 = 5;

/// An operation for as long as a piece of code works on it. It shows signs of life in the background.
///
/// End it with [`Self::succeed`], [`Self::fail`] or [`Self::cancel`]. Dropped without, because of an error, a panic or a future that
/// was dropped, it is recorded as failed. Dropped within one of these, it is recorded as that says.
#[must_use = "dropping it records a failure"]
pub struct OperationScope {
    operations: Operations,
    id: OperationId,
    /// None outside a runtime, and once there is nothing left to do.
    runtime: Option<Handle>,
    /// Whether it is known to have been started.
    started: bool,
    /// How it ends if it is dropped now.
    end: OperationEnd,
    heartbeat: Option<AbortHandle>,
    over: CancellationToken,
}

impl OperationScope {
    pub(super) fn new(operations: Operations, id: OperationId) -> Self {
        Self {
            operations,
            id,
            runtime: Handle::try_current().ok(),
            started: false,
            end: OperationEnd::failed("dropped before its start was known"),
            heartbeat: None,
            over: CancellationToken::new(),
        }
    }

    /// It was started.
    pub(super) fn live(&mut self) {
        self.started = true;
        self.end = OperationEnd::failed("dropped without an end");
        let (operations, id, over) = (self.operations.clone(), self.id, self.over.clone());
        let beat = async move { beat(&operations, id, &over).await };
        self.heartbeat = self.runtime.as_ref().map(|runtime| runtime.spawn(beat).abort_handle());
    }

    /// There is nothing to end.
    pub(super) fn disarm(&mut self) {
        self.runtime = None;
    }

    /// The operation.
    pub fn id(&self) -> OperationId {
        self.id
    }

    /// Cancelled once it is noticed that somebody else has ended the operation: called it off, or marked it as stalled. Nothing more
    /// can be recorded then, so it is time to stop. It is noticed by the next sign of life.
    pub fn over(&self) -> &CancellationToken {
        &self.over
    }

    /// Records how far it has come. Refused once the operation has ended.
    pub async fn progress(&self, progress: Progress) -> Result<()> {
        let recorded = self.operations.progress(self.id, progress).await;
        self.notice(recorded)
    }

    /// Records something that happened: its number in the operation. Refused once the operation has ended.
    pub async fn event(&self, event: NewEvent) -> Result<u64> {
        let recorded = self.operations.event(self.id, event).await;
        self.notice(recorded)
    }

    /// Starts a part of it, with a scope of its own.
    pub async fn begin(&self, new: NewOperation) -> Result<Self> {
        self.operations.begin(new.parent(self.id)).await
    }

    /// Ends it: it was done.
    pub async fn succeed(self) -> Result<Ended> {
        self.finish(OperationEnd::Succeeded).await
    }

    /// Ends it: it failed.
    pub async fn fail(self, error: impl fmt::Display) -> Result<Ended> {
        let end = OperationEnd::failed(error);
        self.finish(end).await
    }

    /// Ends it: it was called off.
    pub async fn cancel(self) -> Result<Ended> {
        self.finish(OperationEnd::Cancelled).await
    }

    /// Ends it as the work did: done, or failed with its error, which is returned.
    pub async fn conclude<T, E: fmt::Display>(self, result: Result<T, E>) -> Result<T, E> {
        let end = match &result {
            Ok(_) => OperationEnd::Succeeded,
            Err(error) => OperationEnd::failed(error),
        };
        // What could not be recorded is tried again in the background.
        let _ = self.finish(end).await;
        result
    }

    async fn finish(mut self, end: OperationEnd) -> Result<Ended> {
        // From here on that is how it ends, whether or not this future is let run to its end.
        self.end = end;
        let ended = self.operations.end(self.id, self.end.clone()).await;
        match &ended {
            Err(error) if error.is_retryable() => {}
            _ => self.disarm(),
        }
        ended
    }

    fn notice<T>(&self, recorded: Result<T>) -> Result<T> {
        if recorded.as_ref().is_err_and(is_over) {
            self.over.cancel();
        }
        recorded
    }
}

impl Drop for OperationScope {
    fn drop(&mut self) {
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.abort();
        }
        let Some(runtime) = self.runtime.take() else { return };
        let panicked = std::thread::panicking() && matches!(self.end, OperationEnd::Failed(_));
        let end = if panicked { OperationEnd::failed("panicked") } else { self.end.clone() };
        let (operations, id, started) = (self.operations.clone(), self.id, self.started);
        drop(runtime.spawn(async move { settle(&operations, id, end, started).await }));
    }
}

/// Shows signs of life until the operation is over.
async fn beat(operations: &Operations, id: OperationId, over: &CancellationToken) {
    let interval = operations.options().heartbeat;
    loop {
        tokio::time::sleep(interval).await;
        match operations.heartbeat(id).await {
            Ok(()) => {}
            Err(error) if is_over(&error) => {
                telemetry::operation_over(operations.store().identifier(), id);
                return over.cancel();
            }
            Err(error) => {
                telemetry::retrying(operations.store().identifier(), "operation heartbeat", &error, interval);
            }
        }
    }
}

/// Ends the operation of a scope that is gone, as well as that can be done.
async fn settle(operations: &Operations, id: OperationId, end: OperationEnd, started: bool) {
    let mut pause = RETRY;
    for attempt in 0..ATTEMPTS {
        match operations.end(id, end.clone()).await {
            Err(error) if error.is_retryable() => {
                telemetry::retrying(operations.store().identifier(), "operation end", &error, pause);
            }
            // Whoever dropped the beginning did not stop the database.
            Err(error) if !started && error.kind() == ErrorKind::NotFound && attempt < LOOKS => {}
            _ => return,
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

impl fmt::Debug for OperationScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over = self.over.is_cancelled();
        f.debug_struct("OperationScope").field("id", &self.id).field("over", &over).finish_non_exhaustive()
    }
}
