//! A handler's transaction: the writer's thread runs that handler's closures and nothing else, until it ends.
//!
//! It ends with a commit, a rollback, the drop of its [`Loan`] (which rolls back at once), or its time limit. The thread
//! waits no longer than that for any caller, so a handler that hangs holds the others up for a bounded time only. A statement that
//! runs at the limit is interrupted. Only a closure that blocks outside of SQLite can go on beyond it; the transaction is
//! rolled back when it returns.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use mainstay_core::{Error, ErrorKind};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::error::{Fault, Place};
use crate::limit::{is_refused_commit, until_without_commits};

use super::Thread;

pub(super) struct Request {
    pub(super) operation: &'static str,
    pub(super) limit: Duration,
    pub(super) reply: oneshot::Sender<Result<Loan, Error>>,
}

/// Why a transaction ended before its holder ended it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Over {
    TooLong(Duration),
    Panicked,
    EndedWithin,
    Broken,
    Abandoned,
}

impl Over {
    pub(crate) fn error(self, operation: &'static str) -> Error {
        let (kind, text) = match self {
            Self::TooLong(limit) => (
                ErrorKind::Unavailable,
                format!("the transaction was rolled back because it took longer than {limit:?}; keep slow work out of it, or raise `transaction_limit`"),
            ),
            Self::Panicked => (
                ErrorKind::Internal,
                "the transaction was rolled back because a closure in it panicked".to_owned(),
            ),
            Self::EndedWithin => (
                ErrorKind::InvalidArgument,
                "a statement of yours ended the transaction; use commit() and rollback() of the transaction instead".to_owned(),
            ),
            Self::Broken => (
                ErrorKind::Unavailable,
                "the transaction was rolled back by SQLite after an earlier error".to_owned(),
            ),
            Self::Abandoned => (
                ErrorKind::Conflict,
                "an earlier call was given up midway, so it is unknown what the transaction holds; it can only be rolled back".to_owned(),
            ),
        };
        Error::new(kind, operation, text)
    }
}

enum Call {
    Work(Box<dyn FnOnce(&Connection) + Send>),
    Commit(oneshot::Sender<rusqlite::Result<()>>),
    RollBack(oneshot::Sender<()>),
}

/// The holder's end of the transaction. Dropping it rolls back.
pub(crate) struct Loan {
    place: Place,
    calls: mpsc::Sender<Call>,
    over: Arc<OnceLock<Over>>,
    limit: Duration,
    deadline: Instant,
}

impl Loan {
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Runs a closure within a savepoint: if it fails, nothing of it is kept and the transaction goes on.
    pub(crate) async fn run<T, F>(&self, operation: &'static str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let (over, limit, deadline) = (Arc::clone(&self.over), self.limit, self.deadline);
        let call = move |connection: &Connection| {
            if reply.is_closed() {
                return;
            }
            let result = catch_unwind(AssertUnwindSafe(|| within_savepoint(connection, deadline, work)));
            let result = match result {
                // Without an answer the caller learns why from `over`.
                Err(_) => {
                    over.get_or_init(|| Over::Panicked);
                    return;
                }
                Ok(result) => result,
            };
            let result = match result {
                // A closure that did not return in time, whatever it did, or whose statement was interrupted.
                _ if Instant::now() >= deadline => {
                    Err(over.get_or_init(|| Over::TooLong(limit)).error(operation).into())
                }
                Err(fault) if is_refused_commit(&fault) => {
                    Err(over.get_or_init(|| Over::EndedWithin).error(operation).into())
                }
                Ok(_) if connection.is_autocommit() => {
                    Err(over.get_or_init(|| Over::EndedWithin).error(operation).into())
                }
                Err(fault) if connection.is_autocommit() => {
                    over.get_or_init(|| Over::Broken);
                    Err(fault)
                }
                result => result,
            };
            drop(reply.send(result));
        };
        self.calls.send(Call::Work(Box::new(call))).map_err(|_| self.gone(operation))?;
        let result = answer.await.map_err(|_| self.gone(operation))?;
        result.map_err(|fault| self.place.error(operation, fault))
    }

    pub(crate) async fn commit(self, operation: &'static str) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.calls.send(Call::Commit(reply)).map_err(|_| self.gone(operation))?;
        let result = answer.await.map_err(|_| self.gone(operation))?;
        result.map_err(|error| self.place.error(operation, error.into()))
    }

    pub(crate) async fn roll_back(self) {
        let (reply, answer) = oneshot::channel();
        // Where nobody answers, the transaction is over, and so rolled back already.
        if self.calls.send(Call::RollBack(reply)).is_ok() {
            drop(answer.await);
        }
    }

    fn gone(&self, operation: &'static str) -> Error {
        self.over.get().map_or_else(|| self.place.closed(operation), |over| over.error(operation))
    }
}

fn within_savepoint<T>(
    connection: &Connection,
    deadline: Instant,
    work: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    connection.execute_batch("SAVEPOINT closure")?;
    let result = until_without_commits(connection, deadline, work)?;
    // Whatever ended the transaction took the savepoint with it.
    if connection.is_autocommit() {
        return result;
    }
    if result.is_err() {
        connection.execute_batch("ROLLBACK TO closure")?;
    }
    connection.execute_batch("RELEASE closure")?;
    result
}

impl Thread {
    pub(super) fn serve_loan(&self, connection: &Connection, request: Request) {
        if request.reply.is_closed() {
            return;
        }
        if let Err(error) = self.begin(connection) {
            return drop(request.reply.send(Err(self.place.error(request.operation, error.into()))));
        }
        let (calls, queue) = mpsc::channel();
        let over = Arc::new(OnceLock::new());
        let limit = request.limit;
        let deadline = Instant::now() + limit;
        let loan = Loan { place: self.place.clone(), calls, over: Arc::clone(&over), limit, deadline };
        if request.reply.send(Ok(loan)).is_ok() {
            self.take_calls(connection, &queue, &over, deadline, limit);
        }
        if let Some(Over::TooLong(limit)) = over.get() {
            let store = self.place.store();
            tracing::warn!(store, ?limit, "a handler's transaction took too long and was rolled back");
        }
        self.roll_back(connection);
    }

    /// Returns when the transaction is over; whatever is still open then is to be rolled back.
    fn take_calls(
        &self,
        connection: &Connection,
        queue: &mpsc::Receiver<Call>,
        over: &OnceLock<Over>,
        deadline: Instant,
        limit: Duration,
    ) {
        loop {
            match queue.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Call::Work(work)) => work(connection),
                Ok(Call::Commit(reply)) => {
                    let result = self.commit(connection);
                    // Whatever it did: looking once too often is cheap.
                    self.signal.tell_if(result.is_ok());
                    return drop(reply.send(result));
                }
                Ok(Call::RollBack(reply)) => {
                    self.roll_back(connection);
                    // Nobody may be waiting for it.
                    let _ = reply.send(());
                    return;
                }
                // Its holder was dropped.
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    over.get_or_init(|| Over::TooLong(limit));
                    return;
                }
            }
            if over.get().is_some() {
                return;
            }
        }
    }
}
