//! The child processes: started, signalled, and started again when they have died.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child as Process, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::history::Kind;
use crate::network::Network;
use crate::options::{LEASE, RunOptions};
use crate::schedule::{Step, step};

use super::DELIVERY_LIMIT;

/// How long a child that died is left dead.
const AGAIN: Duration = Duration::from_millis(100);

/// How long a process may take to start, on a slow machine too.
const STARTING: Duration = Duration::from_secs(5);

/// How long after the last fault a process may still end of what that fault broke.
const LATE: Duration = Duration::from_secs(20);

/// How old a process is at least when it is killed or paused: one that has done nothing yet can lose nothing.
const GROWN: Duration = Duration::from_millis(300);

/// A place for a child, with the process that fills it.
pub(super) struct Slot {
    /// `worker-1`.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Its place among all.
    pub(super) place: usize,
    /// Which of the processes that had this place it is, from 1.
    pub(super) life: u64,
    process: Option<Process>,
    step: Option<Step>,
    again_at: Instant,
    started_at: Instant,
    /// Whether a SIGSTOP holds it.
    pub(super) paused: bool,
    /// The controller has killed it.
    killed: bool,
    /// It is to stay dead.
    over: bool,
}

impl Slot {
    /// The name in histories: `worker-1.17`.
    pub(super) fn process(&self) -> String {
        format!("{}.{}", self.name, self.life)
    }

    /// The system's number of the process, while it lives.
    pub(super) fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Whether the process can do its work: it has started, and no SIGSTOP holds it.
    pub(super) fn is_well(&self) -> bool {
        self.process.is_some() && !self.paused && self.started_at.elapsed() > STARTING
    }

    /// Whether the process lives, and for long enough to have begun its work.
    pub(super) fn is_grown(&self) -> bool {
        self.process.is_some() && self.started_at.elapsed() > GROWN
    }

    /// Sends a signal. The process has not been waited for, so the number is still its own.
    pub(super) fn signal(&mut self, signal: Signal) {
        let Some(pid) = self.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) else {
            return;
        };
        match signal {
            Signal::STOP => self.paused = true,
            Signal::CONT => self.paused = false,
            Signal::KILL => self.killed = true,
            _ => {}
        }
        // Fails only when the process has died meanwhile.
        let _ = kill_process(pid, signal);
    }
}

/// What a child's end tells.
pub(super) struct Ended {
    /// Which process.
    pub(super) process: String,
    /// It killed itself at the step it was given.
    pub(super) struck: bool,
    /// What is wrong with how it ended, if that is no part of the run.
    pub(super) wrong: Option<String>,
}

/// All child processes. Killed and waited for on drop.
pub(super) struct Children {
    pub(super) slots: Vec<Slot>,
    options: RunOptions,
    program: PathBuf,
    /// The network namespace of each place, if they have some.
    namespaces: Vec<String>,
    /// Since when the faults are over: no child kills itself from then on, and none ends with an error for long.
    quiet: Option<Instant>,
}

impl Children {
    /// No child yet.
    pub(super) fn new(plan: &[(Kind, u32)], options: &RunOptions, network: Option<&Network>) -> Result<Self> {
        let mut slots = Vec::new();
        for (kind, count) in plan {
            for number in 1..=*count {
                slots.push(Slot {
                    name: format!("{}-{number}", kind.as_str()),
                    kind: *kind,
                    place: slots.len(),
                    life: 0,
                    process: None,
                    step: None,
                    again_at: Instant::now(),
                    started_at: Instant::now(),
                    paused: false,
                    killed: false,
                    over: false,
                });
            }
        }
        let program = std::env::current_exe().context("this program is nowhere")?;
        let namespaces =
            network.map(|network| (0..slots.len()).map(|place| network.namespace(place)).collect());
        Ok(Self {
            slots,
            options: options.clone(),
            program,
            namespaces: namespaces.unwrap_or_default(),
            quiet: None,
        })
    }

    /// Notes that the faults are over.
    pub(super) fn quiet(&mut self) {
        self.quiet = Some(Instant::now());
    }

    /// Starts all that are dead and are to live, with the database's URL for each. Returns what has ended.
    ///
    /// Call it on the main thread only: a child dies with the thread that started it.
    pub(super) fn tend(&mut self, url: impl Fn(&Slot) -> String) -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        for index in 0..self.slots.len() {
            let quiet = self.quiet.is_some_and(|since| since.elapsed() > LATE);
            ended.extend(self.slots[index].look(quiet)?);
            let slot = &self.slots[index];
            if slot.process.is_none() && !slot.over && slot.again_at <= Instant::now() {
                self.start(index, &url)?;
            }
        }
        Ok(ended)
    }

    fn start(&mut self, index: usize, url: &impl Fn(&Slot) -> String) -> Result<()> {
        let slot = &mut self.slots[index];
        slot.life += 1;
        (slot.paused, slot.killed, slot.started_at) = (false, false, Instant::now());
        slot.step = step(&self.options, &slot.name, slot.life).filter(|_| self.quiet.is_none());
        let log = self.options.out.join("logs").join(format!("{}.log", slot.name));
        let log = File::options().create(true).append(true).open(&log).context("cannot write a log")?;
        let mut command = Command::new(&self.program);
        let kind = slot.name.rsplit_once('-').map_or(slot.name.as_str(), |(kind, _)| kind);
        command.args(["child", "--kind", kind, "--process", &slot.process()]);
        command.arg("--directory").arg(&self.options.out);
        command.args(["--database", &url(slot)]);
        command.args(["--seed", &self.options.seed.to_string()]);
        command.args(["--lease-ms", &LEASE.as_millis().to_string()]);
        command.args(["--delivery-limit", &DELIVERY_LIMIT.to_string()]);
        if let Some(namespace) = self.namespaces.get(index) {
            command.args(["--network", namespace]);
        }
        if let Some(step) = &slot.step {
            command.args(["--strike", step.pattern, "--nth", &step.nth.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        slot.process = Some(command.spawn().context("cannot start a child process")?);
        Ok(())
    }

    /// Tells all of these kinds to stop and to stay so.
    pub(super) fn request_stop(&mut self, kinds: impl Fn(Kind) -> bool) {
        for slot in self.slots.iter_mut().filter(|slot| kinds(slot.kind)) {
            slot.over = true;
            slot.signal(Signal::CONT);
            slot.signal(Signal::TERM);
        }
    }

    /// Whether all of these kinds have ended.
    pub(super) fn have_ended(&self, kinds: impl Fn(Kind) -> bool) -> bool {
        self.slots.iter().filter(|slot| kinds(slot.kind)).all(|slot| slot.process.is_none())
    }

    /// Ends the pauses of all.
    pub(super) fn resume_all(&mut self) {
        for slot in &mut self.slots {
            slot.signal(Signal::CONT);
        }
    }

    /// Kills those of these kinds that are left. Returns which.
    pub(super) fn kill(&mut self, kinds: impl Fn(Kind) -> bool) -> Vec<String> {
        let left =
            self.slots.iter_mut().filter(|slot| kinds(slot.kind) && !slot.killed && slot.id().is_some());
        left.map(|slot| {
            slot.signal(Signal::KILL);
            slot.process()
        })
        .collect()
    }

    /// Places with a process, by index. They begin with the one that a number picks: the same place for the same number, if it
    /// has a process.
    pub(super) fn alive(&self, pick: u64) -> Vec<usize> {
        let first = pick.checked_rem(self.slots.len() as u64).unwrap_or(0) as usize;
        let indices = (first..self.slots.len()).chain(0..first);
        indices.filter(|index| self.slots[*index].process.is_some()).collect()
    }
}

impl Slot {
    /// Looks whether the process has ended.
    fn look(&mut self, quiet: bool) -> Result<Option<Ended>> {
        let Some(process) = &mut self.process else { return Ok(None) };
        let Some(status) = process.try_wait().context("cannot wait for a child process")? else {
            return Ok(None);
        };
        self.process = None;
        self.paused = false;
        self.again_at = Instant::now() + AGAIN;
        let struck = !self.killed && self.step.is_some() && status.signal() == Some(Signal::KILL.as_raw());
        // While there are faults, a child whose database is down ends with an error, and is started again. A panic or another signal is a fault of ours.
        let wrong = match (status.code(), status.signal()) {
            (Some(101), _) => Some("panicked".to_owned()),
            // The worker in plain SQL ends at any error, such as a deadlock.
            (Some(code), _) if quiet && code != 0 && self.kind != Kind::SqlWorker => {
                Some(format!("ended with code {code} although the faults were over"))
            }
            // It was told to stop before it could listen.
            (_, Some(signal)) if self.over && signal == Signal::TERM.as_raw() => None,
            (_, Some(signal)) if signal != Signal::KILL.as_raw() => Some(format!("died of signal {signal}")),
            (_, Some(_)) if !struck && !self.killed => Some("was killed by another process".to_owned()),
            _ => None,
        };
        Ok(Some(Ended { process: self.process(), struck, wrong }))
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            if let Some(process) = &mut slot.process {
                // Both fail only when the process has ended.
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}
