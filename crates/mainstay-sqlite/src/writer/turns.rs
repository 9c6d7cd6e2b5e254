//! Turns: processes that write to one file take the writer one after the other.
//!
//! SQLite alone lets the process win that asks most often: one that commits without a pause leaves
//! gaps of some microseconds, and another looks for one every 100 ms. So a writer first takes the
//! lock of an empty file beside the database, holds it only until its transaction has begun, and
//! looks for the gap much more often meanwhile. A process that has just committed finds that lock
//! taken and waits behind.
//!
//! The lock decides who is next, and nothing else: a transaction needs SQLite's own lock as ever.
//! So a program that knows nothing of it does no harm, a process that dies gives the lock up, and
//! one that is stopped with it is passed by.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::connection::Location;
use crate::error::is_busy;

use super::queue::{Place, Queue};

/// How often to ask for the write lock, each time for as long as the busy timeout.
const LOCK_ATTEMPTS: u32 = 3;

/// A process that is next for longer than this is passed by: it may have been stopped.
const STUCK: Duration = Duration::from_millis(100);

/// The same for one that was passed by already: several times as long as it waits between two looks, so
/// that one that is not stopped gets its turn.
const STILL_STUCK: Duration = Duration::from_millis(10);

/// How long to wait between two looks: at first, and after a while.
const SHORTEST: Duration = Duration::from_micros(100);
const LONGEST: Duration = Duration::from_millis(2);

pub(super) struct Turns {
    queue: Queue,
    /// The last transaction began although another process was next.
    passed_by: Cell<bool>,
}

impl Turns {
    pub(super) fn new(location: &Location) -> Self {
        Self { queue: Queue::beside(location), passed_by: Cell::new(false) }
    }

    /// Begins a transaction that writes, when it is its turn. A database that is not known to be
    /// `ours` has no queue.
    pub(super) fn begin(
        &self,
        connection: &Connection,
        busy_timeout: Duration,
        ours: bool,
    ) -> rusqlite::Result<()> {
        // SQLite's own waits grow to 100 ms.
        connection.busy_timeout(Duration::ZERO)?;
        let begun = self.wait_and_begin(connection, busy_timeout * LOCK_ATTEMPTS, ours);
        connection.busy_timeout(busy_timeout)?;
        begun
    }

    fn wait_and_begin(
        &self,
        connection: &Connection,
        patience: Duration,
        ours: bool,
    ) -> rusqlite::Result<()> {
        let stuck = if self.passed_by.get() { STILL_STUCK } else { STUCK }.min(patience);
        let enter = || if ours { self.queue.enter() } else { Place::Nowhere };
        let started = Instant::now();
        let mut place = enter();
        loop {
            let waited = started.elapsed();
            let behind = matches!(place, Place::Behind);
            if !behind || waited >= stuck {
                match connection.execute_batch("BEGIN IMMEDIATE") {
                    Err(error) if is_busy(&error) && waited < patience => {}
                    begun => {
                        self.passed_by.set(behind);
                        return begun;
                    }
                }
            }
            std::thread::sleep((waited / 16).clamp(SHORTEST, LONGEST));
            if behind {
                place = enter();
            }
        }
    }

    /// Returns whether another process waits for its turn. To be asked only while a transaction is
    /// open.
    pub(super) fn others_wait(&self) -> bool {
        matches!(self.queue.enter(), Place::Behind)
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::connection::Opened;
    use crate::error::Place as File;

    const BUSY: Duration = Duration::from_secs(30);

    fn process(path: &Path) -> (Turns, Opened) {
        let location = Location::File(File::new(path), tokio::sync::watch::Sender::new(0));
        let connection = location.open_writer(BUSY, true).unwrap();
        (Turns::new(&location), connection)
    }

    #[test]
    fn a_process_that_has_committed_waits_behind_one_that_waits() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.db");
        let ((busy, busy_connection), (other, other_connection)) = (process(&path), process(&path));
        busy.begin(&busy_connection, BUSY, true).unwrap();
        assert!(!busy.others_wait());

        let next = other.queue.enter();
        assert!(matches!(next, Place::Next(_)));
        assert!(busy.others_wait());
        busy_connection.execute_batch("COMMIT").unwrap();
        assert!(matches!(busy.queue.enter(), Place::Behind));

        other_connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        drop(next);
        assert!(matches!(busy.queue.enter(), Place::Next(_)));
    }

    #[test]
    fn a_process_that_was_stopped_while_it_was_next_is_passed_by() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.db");
        let ((turns, connection), (stopped, _)) = (process(&path), process(&path));
        let next = stopped.queue.enter();
        for _ in 0..3 {
            turns.begin(&connection, BUSY, true).unwrap();
            connection.execute_batch("COMMIT").unwrap();
            assert!(turns.passed_by.get());
        }
        drop(next);
        turns.begin(&connection, BUSY, true).unwrap();
        assert!(!turns.passed_by.get());
    }

    #[test]
    fn the_file_goes_with_the_last_and_comes_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.db");
        let file = directory.path().join("app.db-turn");
        let ((one, connection), (other, _)) = (process(&path), process(&path));
        assert!(!file.exists(), "it is made by the first who writes");
        one.begin(&connection, BUSY, true).unwrap();
        connection.execute_batch("COMMIT").unwrap();
        assert!(file.exists());
        drop(other.queue.enter());
        drop(one);
        assert!(!file.exists());
        // The other one still has the removed file open.
        let next = other.queue.enter();
        assert!(file.exists());
        let (third, _) = process(&path);
        assert!(matches!(third.queue.enter(), Place::Behind));
        drop(third);
        assert!(file.exists(), "it is left to the process that holds it");
        drop(next);
        drop(other);
        assert!(!file.exists());
    }

    #[test]
    fn a_database_that_is_not_ours_has_nothing_made_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.db");
        let (turns, connection) = process(&path);
        turns.begin(&connection, BUSY, false).unwrap();
        drop((turns, connection));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
