//! The clock of the database, which a run can step: libfaketime takes its offset from a file.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use mainstay_servers::find_faketime;

use crate::options::{FaultKind, ProviderName, RunOptions, leave_out};

/// Names the file with the offset, to libfaketime too.
const FILE: &str = "FAKETIME_TIMESTAMP_FILE";

/// A clock for the processes that are started with its environment. Its file is removed on drop.
#[derive(Debug)]
pub struct Clock {
    file: PathBuf,
    library: PathBuf,
}

impl Clock {
    /// A clock that is right, with its file in a directory. None without libfaketime.
    pub fn create(directory: &Path) -> Result<Option<Self>> {
        let Some(library) = find_faketime() else { return Ok(None) };
        let clock = Self { file: directory.join("clock"), library };
        clock.set(0).context("cannot write the file of the clock")?;
        Ok(Some(clock))
    }

    /// The clock of this process, if it has one that can be stepped.
    pub fn of_this_process() -> Option<Self> {
        let file = std::env::var_os(FILE)?;
        Some(Self { file: file.into(), library: find_faketime()? })
    }

    /// Sets it this far from the right time, in seconds.
    pub fn set(&self, offset: i64) -> io::Result<()> {
        // A clock that is read in the middle of a write would be another one.
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("{offset:+}"))?;
        std::fs::rename(&next, &self.file)
    }

    /// What puts a process under this clock.
    pub fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            (FILE, self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        // Whatever is left is in a directory that is removed as a whole.
        let _ = std::fs::remove_file(&self.file);
        let _ = self.file.parent().map(std::fs::remove_dir);
    }
}

/// Starts this program once more under a clock that can be stepped, if the run is to step it on SQLite: there the clock of the
/// database is that of all processes of the run, this one among them.
pub fn share(options: &mut RunOptions) -> Result<()> {
    let steps = options.provider == ProviderName::Sqlite && options.faults.contains(&FaultKind::ClockStep);
    if !steps || std::env::var_os(FILE).is_some() {
        return Ok(());
    }
    let directory = tempfile::Builder::new().prefix("mainstay-chaos-clock-").tempdir()?;
    let Some(clock) = Clock::create(directory.path())? else {
        leave_out(options, FaultKind::ClockStep, "there is no libfaketime");
        return Ok(());
    };
    let program = std::env::current_exe().context("this program is nowhere")?;
    let mut again = Command::new(program);
    again.args(std::env::args_os().skip(1)).envs(clock.environment());
    // The program that takes this one's place removes it.
    let _ = directory.keep();
    Err(again.exec()).context("cannot start this program under libfaketime")
}
