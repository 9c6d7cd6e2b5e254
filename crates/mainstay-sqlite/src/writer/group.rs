//! Group commit: all waiting operations in one transaction, a savepoint each.
//!
//! An operation that fails takes back its own savepoint only. Nobody is answered before the commit, and when the
//! transaction as a whole is lost (a full disk, an I/O error), each operation is tried again alone, so that one which
//! can't succeed harms no other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mainstay_core::Error;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::error::{Fault, Place, Trouble};
use crate::limit::{self, is_interrupt, until};
use crate::wake::Signal;

use super::{ALONE, Thread, Ticket};

/// How long a transaction takes up more operations while other processes wait for their turn.
const TURN: Duration = Duration::from_millis(2);

/// An operation in the queue, whatever its result is.
pub(super) trait Task: Send {
    /// Takes it over from its caller. False when that has taken it back: it is not to be run.
    fn begin(&mut self) -> bool;
    /// It has a transaction of its own.
    fn is_large(&self) -> bool;
    /// Nobody waits for it any more, so it need not begin.
    fn is_abandoned(&self) -> bool;
    /// Its statements were interrupted at their limit, so it is not run again.
    fn is_over_limit(&self) -> bool;
    /// Runs it and keeps the result. False when it failed and its changes are to be taken back.
    fn run(&mut self, connection: &Connection, place: &Place, limit: Duration) -> bool;
    /// Tells the caller the result, which is now durable, and those who wait for work.
    fn answer(self: Box<Self>, signal: &Signal);
    /// Tells the caller that the transaction came to nothing.
    fn refuse(self: Box<Self>, trouble: &Trouble, place: &Place);
}

pub(super) struct Operation<T, F> {
    ticket: Ticket,
    /// Shared with the caller until it begins.
    waiting: Arc<Mutex<Option<F>>>,
    /// Some once it has begun.
    work: Option<F>,
    wakes: fn(&T) -> bool,
    result: Option<Result<T, Error>>,
    over_limit: bool,
    reply: oneshot::Sender<Result<T, Error>>,
}

impl<T, F> Operation<T, F> {
    pub(super) fn new(
        ticket: Ticket,
        work: F,
        wakes: fn(&T) -> bool,
        reply: oneshot::Sender<Result<T, Error>>,
    ) -> (Self, Waiting<F>) {
        let waiting = Arc::new(Mutex::new(Some(work)));
        let caller = Waiting(Arc::clone(&waiting));
        (Self { ticket, waiting, work: None, wakes, result: None, over_limit: false, reply }, caller)
    }
}

/// The caller's end of an operation: dropping it frees the operation, unless that has begun.
pub(super) struct Waiting<F>(Arc<Mutex<Option<F>>>);

impl<F> Waiting<F> {
    /// Takes the operation back. Returns false if it has begun.
    pub(super) fn withdraw(&self) -> bool {
        take(&self.0).is_some()
    }
}

impl<F> Drop for Waiting<F> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

fn take<F>(waiting: &Mutex<Option<F>>) -> Option<F> {
    // Nothing runs while it is held.
    waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl<T, F> Task for Operation<T, F>
where
    T: Send,
    F: FnMut(&Connection) -> Result<T, Fault> + Send,
{
    fn begin(&mut self) -> bool {
        self.work = self.work.take().or_else(|| take(&self.waiting));
        self.work.is_some()
    }

    fn is_large(&self) -> bool {
        self.ticket.items > ALONE
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn is_over_limit(&self) -> bool {
        self.over_limit
    }

    fn run(&mut self, connection: &Connection, place: &Place, limit: Duration) -> bool {
        let limit = self.ticket.limit.unwrap_or(limit);
        let deadline = Instant::now() + limit;
        let Some(work) = &mut self.work else { return false };
        let work = AssertUnwindSafe(|| until(connection, deadline, work)?);
        let result = match catch_unwind(work) {
            Ok(result) => result.map_err(|fault| {
                self.over_limit = is_interrupt(&fault);
                limit::error(place, self.ticket.operation, limit, fault)
            }),
            Err(_) => Err(place.panicked(self.ticket.operation)),
        };
        self.result.insert(result).is_ok()
    }

    fn answer(self: Box<Self>, signal: &Signal) {
        if let Some(result) = self.result {
            signal.tell_if(result.as_ref().is_ok_and(self.wakes));
            // The caller may have gone; the work stands all the same.
            drop(self.reply.send(result));
        }
    }

    fn refuse(self: Box<Self>, trouble: &Trouble, place: &Place) {
        let error = match self.result {
            // Its own failure says more than that of the transaction.
            Some(Err(error)) => error,
            _ => trouble.at(place, self.ticket.operation),
        };
        drop(self.reply.send(Err(error)));
    }
}

impl Thread {
    /// Commits them all together, or in several transactions if other processes wait.
    pub(super) fn commit_group(&self, connection: &Connection, mut group: Vec<Box<dyn Task>>) {
        group.retain(|task| !task.is_abandoned());
        while !group.is_empty() {
            group = self.commit_some(connection, group);
        }
    }

    /// Commits some of them, all if no other process waits. Returns the others.
    fn commit_some(&self, connection: &Connection, mut group: Vec<Box<dyn Task>>) -> Vec<Box<dyn Task>> {
        if let Err(error) = self.begin(connection) {
            let trouble = Trouble::of(&error);
            group.into_iter().for_each(|task| task.refuse(&trouble, &self.place));
            return Vec::new();
        }
        match self.run_some(connection, &mut group) {
            Ok(done) => {
                let rest = group.split_off(done);
                group.into_iter().for_each(|task| task.answer(&self.signal));
                rest
            }
            Err(error) => {
                self.roll_back(connection);
                // Run again, it would hold up the others for as long once more.
                let alone = group.len() == 1;
                let (refused, others): (Vec<_>, Vec<_>) =
                    group.into_iter().partition(|task| alone || task.is_over_limit());
                let trouble = Trouble::of(&error);
                refused.into_iter().for_each(|task| task.refuse(&trouble, &self.place));
                others.into_iter().for_each(|task| self.commit_group(connection, vec![task]));
                Vec::new()
            }
        }
    }

    /// Runs and commits operations, from the first on. Returns how many. An error means that the transaction as a whole is
    /// lost.
    fn run_some(&self, connection: &Connection, group: &mut [Box<dyn Task>]) -> rusqlite::Result<usize> {
        if let [task] = group {
            // The transaction is its savepoint.
            if task.begin() && task.run(connection, &self.place, self.times.statement) {
                self.commit(connection)?;
            } else {
                self.roll_back(connection);
            }
            return Ok(1);
        }
        let mut done = 0;
        let mut look = Instant::now() + TURN;
        for task in group.iter_mut() {
            done += 1;
            if !task.begin() {
                continue;
            }
            connection.prepare_cached("SAVEPOINT operation")?.execute([])?;
            if !task.run(connection, &self.place, self.times.statement) {
                // Fails when SQLite has rolled back everything by itself.
                connection.prepare_cached("ROLLBACK TO operation")?.execute([])?;
            }
            connection.prepare_cached("RELEASE operation")?.execute([])?;
            if Instant::now() >= look {
                if self.turns.others_wait() {
                    break;
                }
                look = Instant::now() + TURN;
            }
        }
        self.commit(connection)?;
        Ok(done)
    }
}
