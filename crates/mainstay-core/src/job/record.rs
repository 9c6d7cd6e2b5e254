//! A job as it stands in the database.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::error::Result;
use crate::text::NAME_MAX;

use super::{JobDefinition, Misfire, Overlap, Schedule, jitter};

/// One job, as it stands in the database.
///
/// Expression and zone are texts here, so that one job which can't be read, because somebody changed its row by hand,
/// keeps nobody from listing or running the others; [`Job::schedule`] tells.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Job {
    /// The name.
    pub name: String,
    /// The topic of its runs.
    pub topic: String,
    /// The payload of its runs.
    pub payload: String,
    /// The cron expression.
    pub cron: String,
    /// The name of its zone.
    pub time_zone: String,
    /// Whether it runs.
    pub enabled: bool,
    /// What becomes of late occurrences.
    pub misfire: Misfire,
    /// What happens while an earlier run is not over.
    pub overlap: Overlap,
    /// The widest jitter, in whole seconds.
    #[serde(rename = "jitter_seconds", serialize_with = "seconds")]
    pub jitter: Duration,
    /// -9 to 9.
    pub priority: i16,
    /// Grows with every change of the definition.
    pub version: i64,
    /// When it was registered, by the database's clock.
    pub created_at: Timestamp,
    /// When its definition was changed last.
    pub updated_at: Timestamp,
    /// The nominal time that is looked at next; none while it is disabled, and until it has been calculated.
    pub next_nominal_at: Option<Timestamp>,
    /// The last nominal time that was looked at.
    pub last_nominal_at: Option<Timestamp>,
    /// Why a scheduler can't work with it, if one can't: its expression or zone can't be read. A change clears it, and so does a
    /// scheduler that can.
    pub problem: Option<String>,
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(duration.as_secs())
}

impl Job {
    /// A record of this definition at its start; providers fill in the rest.
    pub fn new(definition: JobDefinition, created_at: Timestamp) -> Self {
        Self {
            name: definition.name,
            topic: definition.topic,
            payload: definition.payload,
            cron: definition.cron,
            time_zone: definition.time_zone,
            enabled: definition.enabled.unwrap_or(true),
            misfire: definition.misfire,
            overlap: definition.overlap,
            jitter: definition.jitter,
            priority: definition.priority,
            version: 1,
            created_at,
            updated_at: created_at,
            next_nominal_at: None,
            last_nominal_at: None,
            problem: None,
        }
    }

    /// When it fires. An error if its expression or zone can't be read.
    pub fn schedule(&self) -> Result<Schedule> {
        Schedule::parse(&self.cron, &self.time_zone)
    }

    /// When the run of a nominal time is due: that time and the job's jitter.
    pub fn due_at(&self, nominal: Timestamp) -> Timestamp {
        let delay = jitter(&self.name, nominal, self.jitter);
        nominal.saturating_add(delay).unwrap_or(nominal)
    }

    /// The ordering key of its runs, if they wait for each other: `job:` and its name, or where that is too long, the
    /// name's SHA-256.
    pub fn ordering_key(&self) -> Option<String> {
        (self.overlap == Overlap::Queue).then(|| {
            const PREFIX: &str = "job:";
            if self.name.chars().count() + PREFIX.len() <= NAME_MAX {
                return format!("{PREFIX}{}", self.name);
            }
            let digest = Sha256::digest(self.name.as_bytes());
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{PREFIX}{hex}")
        })
    }

    /// Its definition, to change and register anew.
    pub fn definition(&self) -> JobDefinition {
        JobDefinition::new(&self.name, &self.topic, &self.cron)
            .payload(&self.payload)
            .time_zone(&self.time_zone)
            .enabled(self.enabled)
            .misfire(self.misfire)
            .overlap(self.overlap)
            .jitter(self.jitter)
            .priority(self.priority)
    }
}

/// No payload: it doesn't belong in a log (R27).
impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("name", &self.name)
            .field("topic", &self.topic)
            .field("cron", &self.cron)
            .field("time_zone", &self.time_zone)
            .field("enabled", &self.enabled)
            .field("version", &self.version)
            .field("next_nominal_at", &self.next_nominal_at)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_comes_back_as_it_was() {
        let definition = JobDefinition::new("n", "t", "@daily")
            .payload("p")
            .time_zone("Asia/Tokyo")
            .enabled(false)
            .misfire(Misfire::Skip)
            .overlap(Overlap::Queue)
            .jitter(Duration::from_secs(5))
            .priority(-3);
        let job = Job::new(definition.clone(), Timestamp::UNIX_EPOCH);
        assert_eq!(job.definition(), definition);
    }

    #[test]
    fn a_due_time_is_within_the_jitter() {
        let mut job = Job::new(JobDefinition::new("n", "t", "@daily"), Timestamp::UNIX_EPOCH);
        assert_eq!(job.due_at(Timestamp::UNIX_EPOCH), Timestamp::UNIX_EPOCH);
        job.jitter = Duration::from_secs(30);
        let delay = job.due_at(Timestamp::UNIX_EPOCH).duration_since(Timestamp::UNIX_EPOCH);
        assert!(!delay.is_negative() && delay.as_secs() < 30, "{delay}");
        assert_eq!(job.due_at(Timestamp::MAX), Timestamp::MAX);
    }

    #[test]
    fn every_name_has_an_ordering_key_that_fits() {
        let key = |name: &str| {
            let definition = JobDefinition::new(name, "t", "@daily").overlap(Overlap::Queue);
            Job::new(definition, Timestamp::UNIX_EPOCH).ordering_key().unwrap()
        };
        assert_eq!(key("report"), "job:report");
        assert_eq!(key(&"ü".repeat(251)).chars().count(), 255);
        assert_eq!(key(&"x".repeat(252)).len(), 4 + 64);
        let allowed = Job::new(JobDefinition::new("n", "t", "@daily"), Timestamp::UNIX_EPOCH);
        assert_eq!(allowed.ordering_key(), None);
    }

    #[test]
    fn a_job_that_cannot_be_read_says_so_itself() {
        let job = Job::new(JobDefinition::new("n", "t", "nonsense"), Timestamp::UNIX_EPOCH);
        assert_eq!(job.schedule().unwrap_err().field(), Some("cron"));
    }

    #[test]
    fn durations_are_seconds_in_json_and_debug_shows_no_payload() {
        let misfire = Misfire::All { cap: 3, window: Duration::from_secs(90) };
        let definition = JobDefinition::new("n", "t", "@daily").payload("secret").misfire(misfire);
        let job = Job::new(definition.jitter(Duration::from_secs(7)), Timestamp::UNIX_EPOCH);
        let json = serde_json::to_value(&job).unwrap();
        assert_eq!(json["jitter_seconds"], 7);
        assert_eq!(json["misfire"]["policy"], "all");
        assert_eq!(json["misfire"]["window_seconds"], 90);
        assert_eq!(json["overlap"], "allow");
        assert!(!format!("{job:?}").contains("secret"));
    }
}
