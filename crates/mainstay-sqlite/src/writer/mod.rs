//! The one thread that writes.
//!
//! Operations queue up; all that wait go into one transaction (see [`group`]), so the cost of making a commit durable is
//! shared. There is no timer: what arrives while one commit is under way goes into the next. A handler's transaction has
//! the thread to itself for as long as it lasts (see [`lend`]).

mod group;
mod lend;
mod queue;
#[cfg(test)]
mod tests;
mod turns;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use mainstay_core::Error;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::connection::{Location, Times};
use crate::error::{Fault, Place};
use crate::wake::Signal;

use group::{Operation, Task};
pub(crate) use lend::{Loan, Over};
use turns::Turns;

/// Operations that may wait in the queue; further callers wait to get in.
const QUEUE: usize = 1_024;

/// Operations in one transaction at most, so that none waits long for the commit that carries it.
const GROUP: usize = 512;

/// Operations on more items than this have a transaction of their own. They gain nothing by sharing one, and SQLite's
/// bookkeeping for a savepoint makes every statement within it slower the more it holds.
const ALONE: usize = 100;

/// What an operation is called in errors, and how many items it is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    operation: &'static str,
    items: usize,
    /// How long its statements may run, if not as long as those of others.
    limit: Option<Duration>,
}

impl Ticket {
    pub(crate) fn new(operation: &'static str, items: usize) -> Self {
        Self { operation, items, limit: None }
    }

    /// Lets its statements run for so long.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    pub(crate) fn operation(self) -> &'static str {
        self.operation
    }
}

impl From<&'static str> for Ticket {
    fn from(operation: &'static str) -> Self {
        Self::new(operation, 1)
    }
}

enum Job {
    Run(Box<dyn Task>),
    Lend(lend::Request),
}

/// The way to the thread. Dropping it lets the thread finish what is queued and end.
pub(crate) struct Writer {
    place: Place,
    call_timeout: Duration,
    jobs: RwLock<Option<mpsc::Sender<Job>>>,
    ended: watch::Receiver<()>,
}

impl Writer {
    /// Opens the connection on a thread of its own. `creates` says whether the file may be made.
    pub(crate) async fn start(
        location: Location,
        times: Times,
        signal: Arc<Signal>,
        commits: Arc<AtomicU64>,
        creates: bool,
    ) -> Result<Self, Error> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (opened, open) = oneshot::channel();
        let (alive, ended) = watch::channel(());
        let place = location.place().clone();
        let log = Cell::new(false);
        let turns = Turns::new(&location);
        let thread =
            Thread { place: place.clone(), location: location.clone(), commits, signal, log, times, turns };
        let body = move || {
            // Dropped when the thread ends, however it ends.
            let _alive = alive;
            match location.open_writer(times.busy, creates) {
                Err(error) => drop(opened.send(Err(error))),
                Ok(connection) => {
                    if opened.send(Ok(())).is_ok() {
                        thread.serve(&connection, queue);
                    }
                }
            }
        };
        spawn("mainstay-sqlite-writer", body)?;
        open.await.map_err(|_| place.panicked("sqlite.open"))??;
        Ok(Self { place, call_timeout: times.call, jobs: RwLock::new(Some(jobs)), ended })
    }

    /// Runs an operation in a transaction. It is durable when this returns. `work` may be run again, when the
    /// transaction it shared with others failed because of one of them. `wakes` tells from the result whether there may
    /// be work now; waiters learn it after the commit, even if the caller has gone. A caller that goes before the operation
    /// has begun takes `work` along.
    pub(crate) async fn run<T, F>(&self, ticket: Ticket, work: F, wakes: fn(&T) -> bool) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let (task, waiting) = Operation::new(ticket, work, wakes, reply);
        let answer = async {
            self.send(ticket.operation, Job::Run(Box::new(task))).await?;
            // No answer: the thread has ended, because it panicked outside of any operation.
            answer.await.map_err(|_| self.place.closed(ticket.operation))?
        };
        tokio::pin!(answer);
        // A deployment takes as long as it needs.
        let limit = if ticket.limit.is_some() { Duration::MAX } else { self.call_timeout };
        match timeout(limit, &mut answer).await {
            Ok(answer) => answer,
            Err(_) if waiting.withdraw() => Err(self.place.unanswered(ticket.operation, limit)),
            // It has begun, and its statements are interrupted at their limit.
            Err(_) => answer.await,
        }
    }

    /// Lends the thread to a handler's transaction, for `limit` at most.
    pub(crate) async fn lend(&self, operation: &'static str, limit: Duration) -> Result<Loan, Error> {
        let (reply, answer) = oneshot::channel();
        let answer = async {
            self.send(operation, Job::Lend(lend::Request { operation, limit, reply })).await?;
            answer.await.map_err(|_| self.place.closed(operation))?
        };
        let unanswered = |_| Err(self.place.unanswered(operation, self.call_timeout));
        timeout(self.call_timeout, answer).await.unwrap_or_else(unanswered)
    }

    async fn send(&self, operation: &'static str, job: Job) -> Result<(), Error> {
        let jobs = self.jobs.read().unwrap_or_else(PoisonError::into_inner).clone();
        let jobs = jobs.ok_or_else(|| self.place.closed(operation))?;
        jobs.send(job).await.map_err(|_| self.place.closed(operation))
    }

    /// Lets the thread finish what is queued and end, and waits for that.
    pub(crate) async fn close(&self) {
        drop(self.jobs.write().unwrap_or_else(PoisonError::into_inner).take());
        let mut ended = self.ended.clone();
        // An error is the sender's end, and so the thread's.
        while ended.changed().await.is_ok() {}
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.jobs.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

/// The thread's side.
struct Thread {
    place: Place,
    location: Location,
    commits: Arc<AtomicU64>,
    signal: Arc<Signal>,
    /// Whether the database is known to have its write-ahead log.
    log: Cell<bool>,
    times: Times,
    turns: Turns,
}

impl Thread {
    fn serve(&self, connection: &Connection, mut queue: mpsc::Receiver<Job>) {
        while let Some(job) = queue.blocking_recv() {
            let mut next = Some(job);
            let mut group = Vec::new();
            let mut alone = None;
            while let Some(job) = next {
                match job {
                    Job::Run(task) if !task.is_large() => group.push(task),
                    large_or_loan => alone = Some(large_or_loan),
                }
                // What queues behind one that goes alone waits for its end.
                next = if alone.is_none() && group.len() < GROUP { queue.try_recv().ok() } else { None };
            }
            self.commit_group(connection, group);
            match alone {
                None => {}
                Some(Job::Run(task)) => self.commit_group(connection, vec![task]),
                Some(Job::Lend(request)) => self.serve_loan(connection, request),
            }
        }
    }

    fn begin(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.turns.begin(connection, self.times.busy, self.log.get())
    }

    fn commit(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.execute_batch("COMMIT")?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        if !self.log.get() {
            self.keep_log(connection);
        }
        Ok(())
    }

    /// Gives a database that has just become ours its log. If somebody else is reading just now, the next commit tries again.
    fn keep_log(&self, connection: &Connection) {
        match self.location.keep_log(connection) {
            Ok(ours) => self.log.set(ours),
            Err(error) => tracing::debug!(store = self.place.store(), %error, "no write-ahead log yet"),
        }
    }

    /// Ends a transaction without keeping anything of it.
    fn roll_back(&self, connection: &Connection) {
        // SQLite has rolled back by itself after some errors.
        if connection.is_autocommit() {
            return;
        }
        if let Err(error) = connection.execute_batch("ROLLBACK") {
            tracing::error!(store = self.place.store(), %error, "a transaction could not be rolled back");
        }
    }
}

/// Starts a named thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    started.map(drop).map_err(|error| {
        let text = "no thread could be started; check the process's limits";
        Error::new(mainstay_core::ErrorKind::Internal, "sqlite.open", text).with_source(error)
    })
}
