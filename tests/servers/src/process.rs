use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Context, Error, Result};

/// The process group of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The group of whoever starts it: a Ctrl-C in the terminal stops the server as well, so
    /// that nothing is left behind when a test is interrupted.
    Inherited,
    /// Its own: it goes on through a Ctrl-C until whoever started it stops it.
    Own,
}

/// A server process this program started, and its log.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    log_start: u64,
}

impl Process {
    pub(crate) fn spawn(mut command: Command, log: &Path, group: Group) -> Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .context(|| format!("cannot open {}", log.display()))?;
        let log_start = file.metadata().context(|| format!("cannot read {}", log.display()))?.len();
        let stderr = file.try_clone().context(|| format!("cannot open {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file).stderr(stderr);
        if group == Group::Own {
            command.process_group(0);
        }
        let child = command.spawn().context(|| format!("cannot run {}", command.get_program().display()))?;
        Ok(Self { child, log: log.to_owned(), log_start })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// What the process has written so far.
    pub(crate) fn output(&self) -> String {
        let mut text = Vec::new();
        let read = File::open(&self.log).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.log_start))?;
            file.read_to_end(&mut text)
        });
        match read {
            Ok(_) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => format!("(its log cannot be read: {error})"),
        }
    }

    /// Sends `signal`, unless the process has ended: its number may belong to another then.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if self.exited().is_none() {
            signal_process(self.child.id(), signal);
        }
    }

    /// Sends `signal` and waits for the end; a process that ignores it is killed.
    pub(crate) fn end(&mut self, signal: Signal, patience: Duration) {
        self.signal(signal);
        let deadline = Instant::now() + patience;
        while self.exited().is_none() {
            if Instant::now() > deadline {
                self.kill();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the process and waits for its end.
    pub(crate) fn kill(&mut self) {
        // Both fail only when the process has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Signals a process known by its number.
pub(crate) fn signal_process(id: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // Fails when the process is gone, which is no concern of the sender.
        let _ = kill_process(pid, signal);
    }
}

/// The numbers of the processes `parent` started; empty where there is no `/proc`.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|id| parent_of(*id) == Some(parent))
        .collect()
}

fn parent_of(id: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // "id (name) state parent …", and the name may hold anything, parentheses too.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Runs a command to its end; on failure the error holds what it wrote.
pub(crate) fn complete(mut command: Command) -> Result<()> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().context(|| format!("cannot run {name}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::new(format!(
        "{name} failed ({}):\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )))
}
