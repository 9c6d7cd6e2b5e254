//! Jobs a scheduler leaves alone for a while: those it can't read, and those it has just failed with.
//!
//! Kept in memory and by version, so another scheduler, or a changed job, is not concerned. That one job is in trouble must never
//! keep the others waiting, nor have the scheduler try it over and over.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::runtime::Pause;

use super::Job;

/// How long a job is left alone after an error, the first time and at most.
const FAILED: Kind = (Duration::from_millis(250), Duration::from_secs(30));
/// How long one that can't be read is left alone: only another program, or another definition, will change that.
const UNREADABLE: Kind = (Duration::from_secs(60), Duration::from_secs(60));
/// What was set aside that long ago is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(3_600);

/// What is left alone, and until when.
#[derive(Debug, Default)]
pub(super) struct Aside(Mutex<HashMap<String, Entry>>);

#[derive(Debug)]
struct Entry {
    version: i64,
    kind: Kind,
    until: Instant,
    pause: Pause,
}

/// The pause, first and longest.
type Kind = (Duration, Duration);

impl Aside {
    /// Whether this version of a job is to be left alone.
    pub(super) fn has(&self, job: &Job) -> bool {
        self.with(|entries| {
            entries
                .get(&job.name)
                .is_some_and(|entry| entry.version == job.version && entry.until > Instant::now())
        })
    }

    /// An error came of it. The next time it is left alone for longer.
    pub(super) fn failed(&self, job: &Job) -> Duration {
        self.set(job, FAILED)
    }

    /// It can't be read. Whether that is news.
    pub(super) fn unreadable(&self, job: &Job) -> bool {
        let same = |entry: &Entry| (entry.version, entry.kind) == (job.version, UNREADABLE);
        let known = self.with(|entries| entries.get(&job.name).is_some_and(same));
        self.set(job, UNREADABLE);
        !known
    }

    /// All is well with it.
    pub(super) fn fine(&self, job: &Job) {
        self.with(|entries| entries.remove(&job.name));
    }

    fn set(&self, job: &Job, kind: Kind) -> Duration {
        let now = Instant::now();
        self.with(|entries| {
            entries.retain(|_, entry| entry.until + FORGOTTEN > now);
            let fresh = || Entry { version: job.version, kind, until: now, pause: Pause::new(kind) };
            let entry = entries.entry(job.name.clone()).or_insert_with(fresh);
            if (entry.version, entry.kind) != (job.version, kind) {
                *entry = fresh();
            }
            let delay = entry.pause.step();
            entry.until = now + delay;
            delay
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<String, Entry>) -> T) -> T {
        // A map is whole whatever panicked beside it.
        work(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::job::JobDefinition;

    #[test]
    fn a_job_is_left_alone_for_a_while_and_by_its_version() {
        let mut job = Job::new(JobDefinition::new("n", "t", "@daily"), Timestamp::UNIX_EPOCH);
        let aside = Aside::default();
        assert!(!aside.has(&job));
        let first = aside.failed(&job);
        assert!(aside.has(&job));
        aside.with(|entries| entries.get_mut("n").unwrap().until -= first);
        assert!(!aside.has(&job));
        assert_eq!(aside.failed(&job), first * 2);
        aside.fine(&job);
        assert!(!aside.has(&job));
        assert_eq!(aside.failed(&job), first, "it starts anew");
        job.version += 1;
        assert!(!aside.has(&job), "it is another one now");
        assert!(aside.unreadable(&job) && !aside.unreadable(&job), "news once");
        assert!(aside.has(&job));
    }
}
