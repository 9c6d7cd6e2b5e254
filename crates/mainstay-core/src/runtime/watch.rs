//! A service that does what falls due in a queue, and otherwise sleeps: until the next of it is due, or until somebody adds
//! something nearer. There is no tick; a wait is bounded only for databases that can't tell of new work.
//!
//! What is done in a turn is short transactions, so a turn may be dropped midway and nothing is lost. A stop still lets one end that has begun: what is
//! dropped here may go on in the database, and a service that has stopped should change nothing any more.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::{ErrorKind, Result};
use crate::id::OwnerToken;
use crate::renewing::{WAIT_SPARE, attempt};
use crate::store::{JobStore, QueueStore, WaitRequest, Wake};
use crate::telemetry;

use super::Lifecycle;
use super::pause::{BLOCKED, Pause, TROUBLE};

/// How long taking leave of the store may take. It is a courtesy; what it would end lapses by itself.
const LEAVE: Duration = Duration::from_secs(1);

/// How long a stop waits for a turn that has begun. Only a database that does not answer takes longer.
const TURN: Duration = Duration::from_secs(5);

/// What came of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Something was done, and there may be more of it.
    More,
    /// Something was done, all there was.
    Done,
    /// There was nothing to do.
    Nothing,
}

/// What is waited for.
#[derive(Clone, Copy)]
pub(crate) enum Waited<'a> {
    /// Items of a queue.
    Items(&'a dyn QueueStore),
    /// Jobs and their runs.
    Jobs(&'a dyn JobStore),
}

impl Waited<'_> {
    fn identifier(&self) -> &str {
        match self {
            Self::Items(queue) => queue.identifier(),
            Self::Jobs(jobs) => jobs.identifier(),
        }
    }

    async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        match self {
            Self::Items(queue) => queue.wait(request).await,
            Self::Jobs(jobs) => jobs.wait(request).await,
        }
    }

    /// Takes leave, or gives up on it when the database does not answer.
    pub(crate) async fn take_leave(&self, consumer: OwnerToken) {
        let leave = async {
            match self {
                Self::Items(queue) => queue.leave(consumer).await,
                Self::Jobs(jobs) => jobs.leave(consumer).await,
            }
        };
        // Whether it ended or was given up makes no difference to anybody here.
        let _ = tokio::time::timeout(LEAVE, leave).await;
    }
}

/// What to watch, and how.
pub(crate) struct Watch<'a> {
    /// What ends a wait.
    pub(crate) waited: Waited<'a>,
    /// The service's name, for logs.
    pub(crate) service: &'static str,
    /// What a turn does, for logs.
    pub(crate) operation: &'static str,
    /// The first and the longest wait when nothing is due.
    pub(crate) poll: (Duration, Duration),
    /// How long each statement of a wait may take.
    pub(crate) call_limit: Duration,
}

impl Watch<'_> {
    /// Takes turns until stopped. A turn that fails is tried again, after a pause that grows.
    pub(crate) async fn run<F, Fut>(&self, lifecycle: &Lifecycle, turn: F) -> Result<()>
    where
        F: Fn(OwnerToken) -> Fut + Send,
        Fut: Future<Output = Result<Turn>> + Send,
    {
        // A new owner for every run: what an earlier run left behind is not ours.
        let owner = OwnerToken::new();
        lifecycle.started();
        self.turns(owner, lifecycle.stopping(), turn).await;
        if lifecycle.stopping().is_cancelled() {
            telemetry::service(self.waited.identifier(), self.service, Some(owner), "stopping");
        }
        self.waited.take_leave(owner).await;
        Ok(())
    }

    /// Ends with the store, or when stopped.
    async fn turns<F, Fut>(&self, owner: OwnerToken, stopping: &CancellationToken, turn: F)
    where
        F: Fn(OwnerToken) -> Fut + Send,
        Fut: Future<Output = Result<Turn>> + Send,
    {
        let mut idling =
            Idling { poll: Pause::new(self.poll), blocked: Pause::new(BLOCKED), said_to_be_due: false };
        let mut trouble = Pause::new(TROUBLE);
        while !stopping.is_cancelled() {
            let Some(turn) = to_its_end(turn(owner), stopping).await else { return };
            let paused = stopping.run_until_cancelled(async {
                let done = match turn {
                    Ok(turn) => self.after(owner, turn, &mut idling).await,
                    Err(error) => Err(error),
                };
                match done {
                    Ok(()) => trouble.reset(),
                    Err(error) if error.kind() == ErrorKind::Closed => return ControlFlow::Break(()),
                    Err(error) => {
                        let delay = trouble.step();
                        telemetry::retrying(self.waited.identifier(), self.operation, &error, delay);
                        tokio::time::sleep(delay).await;
                    }
                }
                ControlFlow::Continue(())
            });
            if paused.await.is_none_or(|paused| paused.is_break()) {
                return;
            }
        }
    }

    /// Waits until it is worth another turn.
    async fn after(&self, owner: OwnerToken, turn: Turn, idling: &mut Idling) -> Result<()> {
        match turn {
            Turn::More => return Ok(()),
            Turn::Done => {
                idling.poll.reset();
                idling.blocked.reset();
            }
            // Others have it. Waiting would end at once, over and over.
            Turn::Nothing if idling.said_to_be_due => tokio::time::sleep(idling.blocked.step()).await,
            Turn::Nothing => {}
        }
        let request = WaitRequest::new(owner).timeout(idling.poll.step()).call_limit(self.call_limit);
        let limit = request.timeout + WAIT_SPARE.max(self.call_limit);
        let wake = attempt(self.operation, limit, self.waited.wait(&request)).await?;
        idling.said_to_be_due = wake == Wake::Due;
        if wake == Wake::Notified {
            idling.poll.reset();
        }
        Ok(())
    }
}

/// A turn's end; none if it was still under way some time after the stop.
async fn to_its_end<T>(turn: impl Future<Output = T>, stopping: &CancellationToken) -> Option<T> {
    tokio::pin!(turn);
    tokio::select! {
        ended = &mut turn => return Some(ended),
        () = stopping.cancelled() => {}
    }
    tokio::time::timeout(TURN, turn).await.ok()
}

/// What is remembered between turns.
struct Idling {
    /// The wait when nothing is due.
    poll: Pause,
    /// The pause while what is due is not for us.
    blocked: Pause,
    /// Whether the last wait ended because something was said to be due.
    said_to_be_due: bool,
}
