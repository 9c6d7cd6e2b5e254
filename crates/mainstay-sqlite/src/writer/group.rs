//! Group commit: all waiting operations in one transaction, a savepoint each.
//!
//! An operation that fails takes back its own savepoint only. Nobody is answered before the commit, and when the
//! transaction as a whole is lost (a full disk, an I/O error), each operation is tried again alone, so that one which
//! can't succeed harms no other.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mainstay_core::Error;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::error::{Fault, Place, Trouble};
use crate::wake::Signal;

use super::{ALONE, Thread, Ticket};

/// An operation in the queue, whatever its result is.
pub(super) trait Task: Send {
    /// It has a transaction of its own.
    fn is_large(&self) -> bool;
    /// Nobody waits for it any more, so it need not begin.
    fn is_abandoned(&self) -> bool;
    /// Runs it and keeps the result. False when it failed and its changes are to be taken back.
    fn run(&mut self, connection: &Connection, place: &Place) -> bool;
    /// Tells the caller the result, which is now durable, and those who wait for work.
    fn answer(self: Box<Self>, signal: &Signal);
    /// Tells the caller that the transaction came to nothing.
    fn refuse(self: Box<Self>, trouble: &Trouble, place: &Place);
}

pub(super) struct Operation<T, F> {
    ticket: Ticket,
    work: F,
    wakes: fn(&T) -> bool,
    result: Option<Result<T, Error>>,
    reply: oneshot::Sender<Result<T, Error>>,
}

impl<T, F> Operation<T, F> {
    pub(super) fn new(
        ticket: Ticket,
        work: F,
        wakes: fn(&T) -> bool,
        reply: oneshot::Sender<Result<T, Error>>,
    ) -> Self {
        Self { ticket, work, wakes, result: None, reply }
    }
}

impl<T, F> Task for Operation<T, F>
where
    T: Send,
    F: FnMut(&Connection) -> Result<T, Fault> + Send,
{
    fn is_large(&self) -> bool {
        self.ticket.items > ALONE
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn run(&mut self, connection: &Connection, place: &Place) -> bool {
        let result = catch_unwind(AssertUnwindSafe(|| (self.work)(connection)));
        let result = match result {
            Ok(result) => result.map_err(|fault| place.error(self.ticket.operation, fault)),
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
    pub(super) fn commit_group(&self, connection: &Connection, mut group: Vec<Box<dyn Task>>) {
        group.retain(|task| !task.is_abandoned());
        if group.is_empty() {
            return;
        }
        if let Err(error) = self.begin(connection) {
            let trouble = Trouble::of(&error);
            return group.into_iter().for_each(|task| task.refuse(&trouble, &self.place));
        }
        match self.run_all(connection, &mut group) {
            Ok(()) => group.into_iter().for_each(|task| task.answer(&self.signal)),
            Err(error) => {
                self.roll_back(connection);
                if group.len() == 1 {
                    let trouble = Trouble::of(&error);
                    return group.into_iter().for_each(|task| task.refuse(&trouble, &self.place));
                }
                for task in group {
                    self.commit_group(connection, vec![task]);
                }
            }
        }
    }

    /// An error means that the transaction as a whole is lost.
    fn run_all(&self, connection: &Connection, group: &mut [Box<dyn Task>]) -> rusqlite::Result<()> {
        if let [task] = group {
            // The transaction is its savepoint.
            if task.run(connection, &self.place) {
                return self.commit(connection);
            }
            self.roll_back(connection);
            return Ok(());
        }
        for task in group.iter_mut() {
            connection.prepare_cached("SAVEPOINT operation")?.execute([])?;
            if !task.run(connection, &self.place) {
                // Fails when SQLite has rolled back everything by itself.
                connection.prepare_cached("ROLLBACK TO operation")?.execute([])?;
            }
            connection.prepare_cached("RELEASE operation")?.execute([])?;
        }
        self.commit(connection)
    }
}
