//! Power losses, simulated: what a SQLite database holds afterwards, whatever the disk kept.
//!
//! strace records every write and every sync of a process that uses Mainstay on a SQLite file, and
//! between them what the process asked for and what was answered. For each state, a moment of the
//! recording is drawn, and what the disk holds then: everything that was synced, and of the rest
//! any part. The database has to open, to pass SQLite's own check, and to hold every call that was
//! answered before that moment and nothing that was never asked for.
//!
//! Mainstay commits with `synchronous = FULL` in a write-ahead log, so an answered call is durable:
//! that is the promise checked here.

mod disk;
mod promise;
mod trace;
mod writer;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use serde::{Deserialize, Serialize};

use crate::verdict::{Rule, Verdict, Violation};

use crate::random::Random;
pub use disk::Syncs;
use disk::{Disk, Fate};
use promise::{Found, Promises};
use trace::Step;

/// Says in which directory this program is to work as the process that is recorded.
const WRITER: &str = "MAINSTAY_CHAOS_POWER_WRITER";
/// Its seed.
const SEED: &str = "MAINSTAY_CHAOS_POWER_SEED";

const DATABASE: &str = "app.db";
const MARKS: &str = "marks";
const TRACE: &str = "trace.txt";

/// Violations that are kept, with the files of their states.
const KEPT: usize = 20;

/// What became of the states.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PowerReport {
    /// The seed of the calls and of the states.
    pub seed: u64,
    /// Power losses that were simulated.
    pub states: u64,
    /// Calls in the recording that were answered.
    pub calls: u64,
    /// Writes in the recording.
    pub writes: u64,
    /// Syncs in the recording.
    pub syncs: u64,
    /// How long the recording took.
    pub recording_seconds: f64,
    /// How long the states took.
    pub seconds: f64,
    /// States with a violation.
    pub broken: u64,
    /// The first of them.
    pub violations: Vec<Violation>,
}

impl PowerReport {
    /// The verdict on a simulation that was made on `date` with the program of the commit `git`.
    pub fn verdict(self, date: String, git: String) -> Verdict {
        Verdict {
            seed: self.seed,
            date,
            git,
            provider: "sqlite".to_owned(),
            command: format!(
                "cargo xtask chaos power --seed {} --states {} --out <directory>",
                self.seed, self.states
            ),
            seconds: (self.recording_seconds + self.seconds).ceil() as u64,
            faults: BTreeMap::from([("power_loss".to_owned(), self.states)]),
            ops: BTreeMap::from([("recorded".to_owned(), self.calls)]),
            violations: self.violations,
            ..Verdict::default()
        }
    }

    /// States a minute.
    pub fn states_per_minute(&self) -> f64 {
        self.states as f64 * 60.0 / self.seconds.max(1e-9)
    }
}

/// Works as the process that is recorded, if this program was started as that. Belongs at the
/// beginning of `main` of every program that calls [`run`].
pub fn write_if_asked() -> Option<Result<()>> {
    let directory = PathBuf::from(std::env::var_os(WRITER)?);
    let seed = std::env::var(SEED).context("no seed").and_then(|seed| Ok(seed.parse()?));
    Some(seed.and_then(|seed| writer::run(&directory, seed)))
}

/// Records a process, and checks `states` power losses. The recording and the files of violations
/// stay in `out`.
pub fn run(seed: u64, states: u64, out: &Path) -> Result<PowerReport> {
    run_with(Command::new(std::env::current_exe()?), seed, states, out)
}

/// As [`run`], with the command that starts this program so that it gets to [`write_if_asked`].
pub fn run_with(program: Command, seed: u64, states: u64, out: &Path) -> Result<PowerReport> {
    let recording = Recording::make(program, seed, out)?;
    let report = recording.check(seed, states, Syncs::Honored, out)?;
    let file = File::create(out.join("power.json"))?;
    serde_json::to_writer_pretty(file, &report)?;
    Ok(report)
}

/// What a process did to its files.
#[derive(Debug)]
pub struct Recording {
    steps: Vec<Step>,
    seconds: f64,
}

impl Recording {
    /// Records `program`, which has to get to [`write_if_asked`].
    pub fn make(program: Command, seed: u64, out: &Path) -> Result<Self> {
        let directory = out.join("recorded");
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        fs::create_dir_all(&directory)?;
        // strace tells paths without links.
        let directory = directory.canonicalize()?;
        let recorded = out.join(TRACE);
        let started = Instant::now();
        let status = Command::new("strace")
            .args(["-f", "-y", "-xx", "-s", &trace::STRING.to_string()])
            .arg(format!("-etrace={}", trace::CALLS))
            .arg("-o")
            .arg(&recorded)
            .arg(program.get_program())
            .args(program.get_args())
            .env(WRITER, &directory)
            .env(SEED, seed.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        let status = match status {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!(
                    "strace is not installed; power losses can't be simulated without its recording: install the package `strace`"
                )
            }
            status => status.context("strace can't be started")?,
        };
        ensure!(status.success(), "the recorded process failed under strace ({status})");
        let text = fs::read(&recorded).with_context(|| format!("cannot read {}", recorded.display()))?;
        let recording = Self::read(&text, &directory, started.elapsed().as_secs_f64())?;
        ensure!(
            recording.steps.iter().any(|step| matches!(step, Step::Mark(_))),
            "the recorded process marked no call: its `main` has to begin with `power::write_if_asked`"
        );
        Ok(recording)
    }

    fn read(text: &[u8], directory: &Path, seconds: f64) -> Result<Self> {
        // The wal-index is shared memory; a power loss empties it. The queue for the writer is only
        // locked.
        let ignored = |name: &str| name.ends_with("-shm") || name.ends_with("-turn");
        Ok(Self { steps: trace::read(text, directory, MARKS, ignored)?, seconds })
    }

    /// Checks `states` power losses.
    pub fn check(&self, seed: u64, states: u64, syncs: Syncs, out: &Path) -> Result<PowerReport> {
        let count = |wanted: fn(&Step) -> bool| self.steps.iter().filter(|step| wanted(step)).count() as u64;
        let mut report = PowerReport {
            seed,
            states,
            writes: count(|step| matches!(step, Step::Write { .. })),
            syncs: count(|step| matches!(step, Step::Sync { .. })),
            recording_seconds: self.seconds,
            ..PowerReport::default()
        };
        let started = Instant::now();
        let scratch = out.join("state");
        let (mut disk, mut promises, mut marked) = (Disk::new(&self.steps, syncs), Promises::default(), 0);
        for (cut, state) in self.cuts(seed, states) {
            disk.advance(cut)?;
            for step in &self.steps[marked..cut] {
                if let Step::Mark(line) = step {
                    promises.mark(line)?;
                }
            }
            marked = cut;
            let mut random = Random::of(seed, state);
            let fate = Fate::draw(&mut random);
            let files = disk.after_loss(fate, &mut random);
            write_all(&scratch, &files)?;
            let broken = broken(&scratch, &promises);
            if broken.is_empty() {
                continue;
            }
            report.broken += 1;
            if report.broken <= KEPT as u64 {
                let name = format!("broken-{state}");
                write_all(&out.join(&name), &files)?;
                let line =
                    format!("{TRACE}: step {cut} of {}, state {state}, {fate:?}, {name}/", self.steps.len());
                let violation =
                    |(rule, text)| Violation { rule, text, ids: Vec::new(), lines: vec![line.clone()] };
                report.violations.extend(broken.into_iter().take(KEPT).map(violation));
            }
        }
        for step in &self.steps[marked..] {
            if let Step::Mark(line) = step {
                promises.mark(line)?;
            }
        }
        report.calls = promises.answered();
        report.seconds = started.elapsed().as_secs_f64();
        drop(fs::remove_dir_all(&scratch));
        Ok(report)
    }

    /// The moments of the states, in order, each with the state's number. Half of them are right
    /// after an answer, when most is at stake.
    fn cuts(&self, seed: u64, states: u64) -> Vec<(usize, u64)> {
        let mut random = Random::new(seed, "power");
        let is_answer = |step: &Step| matches!(step, Step::Mark(line) if line.contains(" ok"));
        let answers: Vec<_> =
            self.steps.iter().enumerate().filter(|(_, step)| is_answer(step)).map(|(at, _)| at).collect();
        let mut cuts: Vec<_> = (0..states)
            .map(|state| match answers.len() {
                answered @ 1.. if random.once_in(2) => {
                    let after = answers[random.below(answered)] + 1 + random.below(3);
                    (after.min(self.steps.len()), state)
                }
                _ => (random.below(self.steps.len() + 1), state),
            })
            .collect();
        cuts.sort_unstable();
        cuts
    }
}

/// Makes a directory hold these files, and no other.
fn write_all(directory: &Path, files: &std::collections::BTreeMap<String, Vec<u8>>) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    fs::create_dir_all(directory)?;
    for (name, content) in files {
        fs::write(directory.join(name), content)?;
    }
    Ok(())
}

/// What is wrong with the database in a directory.
fn broken(directory: &Path, promises: &Promises) -> Vec<(Rule, String)> {
    let path = directory.join(DATABASE);
    if !path.exists() {
        return match promises.is_deployed() {
            true => vec![(Rule::NothingLost, "the database file is missing".to_owned())],
            false => Vec::new(),
        };
    }
    match look(&path) {
        Err(error) => vec![(Rule::Integrity, format!("the database can't be read: {error}"))],
        Ok((check, _)) if check != "ok" => vec![(Rule::Integrity, check)],
        Ok((_, Some(found))) => promises.broken_by(&found),
        Ok((_, None)) if promises.is_deployed() => {
            vec![(Rule::NothingLost, "the tables are missing".to_owned())]
        }
        Ok((_, None)) => Vec::new(),
    }
}

/// What SQLite's own check says, and what is there.
fn look(path: &Path) -> rusqlite::Result<(String, Option<Found>)> {
    let connection = Connection::open(path)?;
    // A copy: nothing of it has to be kept.
    connection.execute_batch("PRAGMA synchronous = OFF")?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let check = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    Ok((check, Found::read(&connection)?))
}
