//! What the tests of this provider begin with.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mainstay_core::outbox::{Limits, Message, Outbox, PreparedMessage};
use mainstay_core::store::{Provider, StoreTransaction};
use mainstay_sqlite::{Sqlite, SqliteTransaction};

/// Longer than anything here takes, however busy the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A database in a file, deployed.
pub(crate) struct Scratch {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) sqlite: Sqlite,
    pub(crate) outbox: Outbox,
}

impl Scratch {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = Sqlite::open(directory.path().join("app.db")).await.unwrap();
        let outbox = deployed(&sqlite).await;
        Self { directory, sqlite, outbox }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("app.db")
    }

    /// Another instance with connections of its own.
    pub(crate) async fn second(&self) -> Outbox {
        Outbox::new(Sqlite::open(self.path()).await.unwrap().outbox())
    }

    /// A connection of the application's own.
    pub(crate) fn connect(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.path()).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection
    }
}

pub(crate) async fn deployed(sqlite: &Sqlite) -> Outbox {
    sqlite.schema().deploy().await.unwrap();
    Outbox::new(sqlite.outbox())
}

pub(crate) fn prepared(message: Message) -> PreparedMessage {
    message.prepare(&Limits::default()).unwrap()
}

pub(crate) fn own(transaction: &mut Box<dyn StoreTransaction>) -> &mut SqliteTransaction {
    transaction.as_any_mut().downcast_mut().unwrap()
}

/// Lets a future go as far as it gets by itself.
pub(crate) fn start<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// A small file system of its own, unmounted when dropped. None (with a notice) where this user may not mount; in a full
/// run as root that is a failure, so that the tests can't all be passed over unnoticed.
pub(crate) struct SmallDisk {
    directory: tempfile::TempDir,
}

impl SmallDisk {
    pub(crate) fn mount(bytes: usize) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        if run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs"], directory.path()) {
            return Some(Self { directory });
        }
        let full_run = std::env::var_os("MAINSTAY_TEST_POSTGRES").is_some();
        assert!(!(full_run && is_root()), "root could not mount a small file system; a full run needs it");
        eprintln!("skipped: mounting a small file system takes root");
        None
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn make_read_only(&self) {
        assert!(run("mount", &["-o", "remount,ro"], self.path()), "remount read-only");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Threads that are still closing their files can be in the way of a plain one.
        if !run("umount", &[], self.path()) {
            run("umount", &["-l"], self.path());
        }
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn run(program: &str, arguments: &[&str], path: &Path) -> bool {
    let output = Command::new(program).args(arguments).arg(path).output();
    output.is_ok_and(|output| output.status.success())
}
