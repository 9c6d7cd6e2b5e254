//! Writing a history.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};

use super::{Answer, Call, Event, Kind, Line, Trouble};

/// Nanoseconds of `CLOCK_MONOTONIC`. Asked of the kernel, so that a clock that libfaketime steps makes no difference.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Neither is negative for this clock.
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Where a process is to kill itself: right after it wrote its n-th line of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strike {
    /// What such a line has in it, as `"invoke":{"settle"`.
    pub pattern: String,
    /// Which of these lines, from 1.
    pub nth: u64,
}

/// Appends to the history of a process.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    process: String,
    kind: Kind,
    calls: AtomicU64,
    strike: Option<Strike>,
    matched: AtomicU64,
}

impl Recorder {
    /// Opens the history of `process` in `directory`.
    pub fn open(directory: &Path, process: &str, kind: Kind, strike: Option<Strike>) -> Result<Self> {
        let path = directory.join(format!("{process}.ndjson"));
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self {
            file,
            process: process.to_owned(),
            kind,
            calls: AtomicU64::new(0),
            strike,
            matched: AtomicU64::new(0),
        })
    }

    /// Records that a call is about to be made.
    pub fn invoke(&self, call: Call) -> Invoked<'_> {
        let number = self.number();
        self.write(number, Event::Invoke(Box::new(call)));
        Invoked { recorder: self, number }
    }

    /// Records something that is not a call.
    pub fn note(&self, event: Event) {
        let number = self.number();
        self.write(number, event);
    }

    /// A number for events that belong together.
    pub fn number(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Records an event under a number.
    ///
    /// A process whose history cannot be written ends at once: the checker would misjudge a call that is not recorded.
    pub fn write(&self, number: u64, event: Event) {
        let line = Line { at: now(), process: self.process.clone(), kind: self.kind, call: number, event };
        let written = serde_json::to_string(&line).map_err(std::io::Error::from).and_then(|mut text| {
            text.push('\n');
            let count = (&self.file).write(text.as_bytes())?;
            if count == text.len() { Ok(text) } else { Err(std::io::ErrorKind::StorageFull.into()) }
        });
        match written {
            Ok(text) => self.strike(&text),
            Err(error) => {
                eprintln!("cannot write the history of {}: {error}", self.process);
                std::process::abort();
            }
        }
    }

    /// Kills this process if its line has come.
    fn strike(&self, text: &str) {
        let Some(strike) = &self.strike else { return };
        if text.contains(&strike.pattern) && self.matched.fetch_add(1, Ordering::SeqCst) + 1 == strike.nth {
            // Nothing follows a SIGKILL to oneself.
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}

/// A call that was made, and whose answer is to be recorded. Dropped without one, its outcome is unknown.
#[derive(Debug)]
#[must_use]
pub struct Invoked<'a> {
    recorder: &'a Recorder,
    number: u64,
}

impl Invoked<'_> {
    /// Records the answer.
    pub fn ok(self, answer: Answer) {
        self.recorder.write(self.number, Event::Ok(Box::new(answer)));
    }

    /// Records a failure without any effect.
    pub fn fail(self, trouble: Trouble) {
        self.recorder.write(self.number, Event::Fail(trouble));
    }

    /// Records a failure after which the effect may be there.
    pub fn unknown(self, trouble: Trouble) {
        self.recorder.write(self.number, Event::Unknown(trouble));
    }
}
