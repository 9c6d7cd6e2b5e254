//! Sees from outside that database files are written to: by the lengths and times of each file and its log, without opening any.
//!
//! A commit appends to the log, or writes to its beginning anew; a checkpoint writes to the file. So every write changes one of them, at
//! latest when it commits. A look only reads, and leaves both as they are.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use mainstay_core::fleet::{DatabaseEntry, Mark, Watch};
use mainstay_core::{Error, ErrorKind, Result};
use tokio::task::JoinHandle;

const WATCH: &str = "sqlite.watch";

/// Watches files of this machine.
#[derive(Default)]
pub(crate) struct FileWatch {
    /// A reading that nobody waited for any more. There is only one at a time, so that a disk that has stopped holds one thread.
    reading: Option<JoinHandle<Vec<Option<Mark>>>>,
}

#[async_trait]
impl Watch for FileWatch {
    fn place(&self) -> &str {
        "files"
    }

    fn connects(&self) -> bool {
        false
    }

    async fn read(&mut self, entries: &[&DatabaseEntry]) -> Result<Vec<Option<Mark>>> {
        let paths: Vec<_> =
            entries.iter().map(|entry| PathBuf::from(crate::fleet::path(entry.target.expose()))).collect();
        if let Some(reading) = &mut self.reading {
            drop(reading.await);
        }
        let read = move || paths.iter().map(|path| mark(path)).collect();
        let marks = self.reading.insert(tokio::task::spawn_blocking(read)).await;
        self.reading = None;
        marks.map_err(|error| {
            Error::new(ErrorKind::Internal, WATCH, "the files could not be looked at").with_source(error)
        })
    }

    async fn let_go(&mut self) {}
}

/// How a database looks; none if it is not there.
fn mark(path: &Path) -> Option<Mark> {
    let (length, changed) = seen(path).filter(|(length, _)| *length > 0)?;
    // The log is beside the file itself.
    let real = if path.is_symlink() { std::fs::canonicalize(path).ok()? } else { path.to_owned() };
    let mut log = real.into_os_string();
    log.push("-wal");
    // Whoever opens the database makes an empty log: that is as good as none.
    let log = seen(Path::new(&log)).filter(|(length, _)| *length > 0);
    let (log_length, log_changed) = log.unwrap_or_default();
    Some(Mark::new([length, changed, log_length, log_changed]))
}

/// Length, and time of the last change.
fn seen(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some((metadata.len(), changed.as_nanos() as u64))
}
