//! Opening connections, each with the settings that durability and sharing depend on.
//!
//! WAL lets readers go on while the writer writes; `synchronous=FULL` makes a commit durable when it returns. The mode of the
//! journal is kept in the file, so only a file with our tables in it is given another: one that is merely looked at may be
//! somebody else's, or empty, and stays as it is, byte by byte.

use std::ops::Deref;
use std::time::Duration;

use mainstay_core::{Error, ErrorKind};
use rusqlite::{Connection, OpenFlags};
use tokio::sync::watch;

use crate::error::{Fault, Place, is_busy};

const OPEN: &str = "sqlite.open";

/// Every statement of the outbox stays prepared, with room for the handlers' own.
const PREPARED: usize = 128;

/// After a checkpoint the log is cut back to this, so that one burst does not occupy the disk for ever.
const LOG_BYTES: i64 = 64 << 20;

/// On macOS `fsync` leaves what was written in the drive's cache; `fullfsync` empties that too. It changes nothing elsewhere.
const SETTINGS: &str = "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; \
                        PRAGMA temp_store = MEMORY;";

/// The oldest SQLite that is used. Those before it can damage a database that several connections write to, when one begins
/// the log anew (<https://sqlite.org/wal.html#walresetbug>).
const OLDEST: (i32, &str) = (3_051_003, "3.51.3");

/// Refuses a SQLite that is too old.
pub(crate) fn check_version(number: i32, version: &str) -> Result<(), Error> {
    let (oldest, name) = OLDEST;
    if number >= oldest {
        return Ok(());
    }
    let text = format!(
        "this program is linked with SQLite {version}, which can damage a database that several connections write to; it \
         needs SQLite {name} or later: build it with the `bundled` feature of rusqlite 0.39 or later, or update the SQLite \
         library of this system"
    );
    Err(Error::new(ErrorKind::Unsupported, OPEN, text))
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// The wait for another process that writes.
    pub(crate) busy: Duration,
    /// The statements of one operation, before they are interrupted.
    pub(crate) statement: Duration,
    /// The wait for the answer to a call.
    pub(crate) call: Duration,
}

/// Where a database is.
#[derive(Debug, Clone)]
pub(crate) enum Location {
    /// With the number of connections that are open.
    File(Place, watch::Sender<usize>),
    Memory(Place),
}

/// An open connection, counted for as long as it lives.
pub(crate) struct Opened {
    connection: Connection,
    /// Let go of last.
    _counted: Counted,
}

impl Deref for Opened {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

struct Counted(Option<watch::Sender<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(open) = &self.0 {
            open.send_modify(|open| *open = open.saturating_sub(1));
        }
    }
}

impl Location {
    pub(crate) fn place(&self) -> &Place {
        match self {
            Self::File(place, _) | Self::Memory(place) => place,
        }
    }

    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// How many connections are open. One in memory is not counted: it is never let go of.
    pub(crate) fn open(&self) -> usize {
        match self {
            Self::File(_, open) => *open.borrow(),
            Self::Memory(_) => 0,
        }
    }

    /// Waits until no more than so many are open.
    pub(crate) async fn at_most(&self, connections: usize) {
        if let Self::File(_, open) = self {
            // The sender lives as long as this, so there is always an answer.
            drop(open.subscribe().wait_for(|open| *open <= connections).await);
        }
    }

    fn count(&self) -> Counted {
        match self {
            Self::File(_, open) => {
                open.send_modify(|open| *open += 1);
                Counted(Some(open.clone()))
            }
            Self::Memory(_) => Counted(None),
        }
    }

    /// The one connection that writes. If `creates`, it makes the file where there is none.
    pub(crate) fn open_writer(&self, busy_timeout: Duration, creates: bool) -> Result<Opened, Error> {
        let counted = self.count();
        let open = || -> Result<Opened, Fault> {
            let connection = match self {
                Self::File(place, _) => {
                    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                    let create = if creates { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
                    Connection::open_with_flags(place.path(), flags | create)?
                }
                Self::Memory(_) => Connection::open_in_memory()?,
            };
            configure(&connection, busy_timeout)?;
            self.keep_log(&connection)?;
            writable(&connection)?;
            Ok(Opened { connection, _counted: counted })
        };
        open().map_err(|fault| self.place().error(OPEN, fault))
    }

    /// Gives a database with our tables in it a write-ahead log. Whether it is such a one.
    pub(crate) fn keep_log(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let ours = is_ours(connection)?;
        if ours {
            journal(connection, self)?;
        }
        Ok(ours)
    }

    /// A connection that only reads.
    pub(crate) fn open_reader(&self, busy_timeout: Duration) -> Result<Opened, Error> {
        let counted = self.count();
        let open = || -> Result<Opened, Fault> {
            // Not opened read-only: a reader may be the one that has to recover the log after a crash.
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(self.place().path(), flags)?;
            configure(&connection, busy_timeout)?;
            connection.execute_batch("PRAGMA query_only = ON")?;
            Ok(Opened { connection, _counted: counted })
        };
        open().map_err(|fault| self.place().error(OPEN, fault))
    }
}

fn configure(connection: &Connection, busy_timeout: Duration) -> rusqlite::Result<()> {
    connection.busy_timeout(busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(PREPARED);
    connection.execute_batch(SETTINGS)
}

/// Whether there has been a deployment, under whatever names.
fn is_ours(connection: &Connection) -> rusqlite::Result<bool> {
    let ledger = r"SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name LIKE '%\_mainstay\_migration' ESCAPE '\')";
    connection.query_row(ledger, [], |row| row.get(0))
}

fn journal(connection: &Connection, location: &Location) -> rusqlite::Result<()> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if !location.is_memory() && mode != "wal" {
        let store = location.place().store();
        tracing::warn!(
            store,
            mode,
            "the file system can't hold a write-ahead log; readers and the writer will wait for each other"
        );
    }
    connection.query_row(&format!("PRAGMA journal_size_limit = {LOG_BYTES}"), [], |_| Ok(()))
}

/// SQLite opens a file that it may only read without a word, and fails at the first write. Better now.
fn writable(connection: &Connection) -> rusqlite::Result<()> {
    match connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK") {
        // Somebody else is writing, so it can be written to.
        Err(error) if is_busy(&error) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sqlite_that_is_too_old_is_refused() {
        for (number, version) in [(3_007_000, "3.7.0"), (3_050_004, "3.50.4"), (3_051_002, "3.51.2")] {
            let error = check_version(number, version).unwrap_err();
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unsupported, false));
            let says = |text: &str| error.message().contains(text);
            assert!(says(version) && says("3.51.3 or later") && says("`bundled`"), "{error}");
        }
        for (number, version) in [(3_051_003, "3.51.3"), (3_052_000, "3.52.0"), (4_000_000, "4.0.0")] {
            check_version(number, version).unwrap();
        }
    }

    #[test]
    fn the_sqlite_of_this_program_is_not_too_old() {
        check_version(rusqlite::version_number(), rusqlite::version()).unwrap();
    }

    #[test]
    fn a_connection_flushes_the_caches_of_drives() {
        let place = Place::new(":memory:");
        let connection = Location::Memory(place).open_writer(Duration::ZERO, true).unwrap();
        let number =
            |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!((number("fullfsync"), number("checkpoint_fullfsync"), number("synchronous")), (1, 1, 2));
    }
}
