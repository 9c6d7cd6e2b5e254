//! How long what is over is kept: the section `[serve.retention]`, which `mainstay serve` heeds by itself and `mainstay retention run` at once.
//!
//! What is not said stays as the library has it.

use std::fmt;
use std::time::Duration;

use mainstay::audit::AuditRetention;
use mainstay::inbox::InboxRetention;
use mainstay::job::JobOptions;
use mainstay::join::JoinRetention;
use mainstay::operation::{OperationOptions, OperationRetention};
use mainstay::outbox::Retention;
use mainstay::runtime::MainstayBuilder;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

use crate::failure::Failure;
use crate::text::parse_positive_duration;

/// The word for no end.
const FOREVER: &str = "forever";

/// Longer than that is meant as for ever, and a date so long ago may be before the calendar of a database.
const LONGEST: Duration = Duration::from_secs(36_500 * 24 * 3_600);

/// For how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept(pub(crate) Option<Duration>);

impl Kept {
    /// Reads `30d`, or `forever`. What is wrong is told without the value.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == FOREVER {
            return Ok(Self(None));
        }
        match parse_positive_duration(text).map_err(|wrong| format!("{wrong}; or {FOREVER:?}"))? {
            longer if longer > LONGEST => Err(format!("it must be at most 36500d, or {FOREVER:?}")),
            age => Ok(Self(Some(age))),
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(kept) = self.0 else { return f.pad(FOREVER) };
        // As it may be written.
        let seconds = kept.as_secs();
        let parts = [
            (seconds / 86_400, "d"),
            (seconds / 3_600 % 24, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
        ];
        let millis = (u64::from(kept.subsec_millis()), "ms");
        let parts = parts.into_iter().chain([millis]).filter(|(number, _)| *number > 0);
        f.pad(&parts.map(|(number, unit)| format!("{number}{unit}")).collect::<Vec<_>>().join(" "))
    }
}

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeptVisitor)
    }
}

struct KeptVisitor;

impl Visitor<'_> for KeptVisitor {
    type Value = Kept;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a duration in quotes, like \"30d\", or {FOREVER:?}")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Kept, E> {
        Kept::parse(text).map_err(E::custom)
    }
}

/// The section `[serve.retention]`: each age as `"30d"`, or `"forever"`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetentionFile {
    done: Option<Kept>,
    failed: Option<Kept>,
    inbox_done: Option<Kept>,
    inbox_dead: Option<Kept>,
    inbox_at_least: Option<Kept>,
    timers_done: Option<Kept>,
    timers_failed: Option<Kept>,
    runs_done: Option<Kept>,
    runs_failed: Option<Kept>,
    joins: Option<Kept>,
    operations: Option<Kept>,
    audit: Option<Kept>,
    interval: Option<Kept>,
    batch: Option<u32>,
}

impl RetentionFile {
    /// The keys that hold an age.
    pub(crate) const AGES: [&str; 12] = [
        "done",
        "failed",
        "inbox_done",
        "inbox_dead",
        "inbox_at_least",
        "timers_done",
        "timers_failed",
        "runs_done",
        "runs_failed",
        "joins",
        "operations",
        "audit",
    ];

    /// The age under that key, if there is such a key.
    pub(crate) fn age_mut(&mut self, key: &str) -> Option<&mut Option<Kept>> {
        Some(match key {
            "done" => &mut self.done,
            "failed" => &mut self.failed,
            "inbox_done" => &mut self.inbox_done,
            "inbox_dead" => &mut self.inbox_dead,
            "inbox_at_least" => &mut self.inbox_at_least,
            "timers_done" => &mut self.timers_done,
            "timers_failed" => &mut self.timers_failed,
            "runs_done" => &mut self.runs_done,
            "runs_failed" => &mut self.runs_failed,
            "joins" => &mut self.joins,
            "operations" => &mut self.operations,
            "audit" => &mut self.audit,
            _ => return None,
        })
    }

    /// With so many rows in a transaction, if that is said.
    pub(crate) fn with_batch(mut self, batch: Option<u32>) -> Self {
        self.batch = batch.or(self.batch);
        self
    }

    /// What stands in it, key by key.
    pub(crate) fn told(&self) -> Vec<(String, String)> {
        let mut file = self.clone();
        let ages =
            Self::AGES.into_iter().filter_map(|key| Some((key, file.age_mut(key)?.take()?.to_string())));
        let ages: Vec<_> = ages.collect();
        let rest = [
            ("interval", self.interval.map(|kept| kept.to_string())),
            ("batch", self.batch.map(|batch| batch.to_string())),
        ];
        let rest = rest.into_iter().filter_map(|(key, value)| Some((key, value?)));
        ages.into_iter().chain(rest).map(|(key, value)| (format!("retention.{key}"), value)).collect()
    }
}

/// How long everything is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) outbox: Retention,
    pub(crate) inbox: InboxRetention,
    pub(crate) timers: Retention,
    pub(crate) runs: Retention,
    pub(crate) joins: JoinRetention,
    pub(crate) operations: OperationRetention,
    pub(crate) audit: AuditRetention,
}

impl Policy {
    /// What the file says, and the library where it says nothing. Refuses what the library would refuse.
    pub(crate) fn collect(file: &RetentionFile) -> Result<Self, Failure> {
        let or = |given: Option<Kept>, known: Option<Duration>| given.map_or(known, |kept| kept.0);
        let queue = |known: Retention, done: Option<Kept>, failed: Option<Kept>| {
            known.done(or(done, known.done)).failed(or(failed, known.failed))
        };
        let wrong = |why: String| {
            Failure::usage("how long things are kept is not valid")
                .because(why)
                .hint("see the section [serve.retention] of the configuration file, and --keep")
        };
        let inbox = InboxRetention::default();
        let at_least = or(file.inbox_at_least, Some(inbox.at_least))
            .ok_or_else(|| wrong("inbox_at_least must be a duration".to_owned()))?;
        let joins = JoinRetention::default();
        let operations = OperationRetention::default();
        let mut policy = Self {
            outbox: queue(Retention::default(), file.done, file.failed),
            inbox: inbox
                .done(or(file.inbox_done, inbox.done))
                .dead(or(file.inbox_dead, inbox.dead))
                .at_least(at_least),
            timers: queue(Retention::default(), file.timers_done, file.timers_failed),
            runs: queue(
                JobOptions::default().retention.unwrap_or_default(),
                file.runs_done,
                file.runs_failed,
            ),
            joins: joins.ended(or(file.joins, joins.ended)),
            operations: operations.ended(or(file.operations, operations.ended)),
            audit: AuditRetention::default().age(or(file.audit, None)),
        };
        if let Some(batch) = file.batch {
            policy.outbox.batch = batch;
            policy.inbox.batch = batch;
            policy.timers.batch = batch;
            policy.runs.batch = batch;
            policy.joins.batch = batch;
            policy.operations.batch = batch;
            policy.audit.batch = batch;
        }
        if let Some(interval) = file.interval {
            let interval = interval.0.ok_or_else(|| wrong("interval must be a duration".to_owned()))?;
            policy.outbox.interval = interval;
            policy.inbox.interval = interval;
            policy.timers.interval = interval;
            policy.runs.interval = interval;
            policy.joins.interval = interval;
            policy.operations.interval = interval;
            policy.audit.interval = interval;
        }
        policy.validate().map_err(|error| {
            let told = error.message().replace("lower `at_least`", "lower `inbox_at_least`");
            let told = match error.field() {
                // Only those of the inbox have a bound of their own.
                Some("done" | "dead") => format!("inbox_{told}"),
                _ => told,
            };
            wrong(told)
        })?;
        Ok(policy)
    }

    fn validate(&self) -> mainstay::Result<()> {
        self.outbox.validate()?;
        self.inbox.validate()?;
        self.timers.validate()?;
        self.runs.validate()?;
        self.joins.validate()?;
        self.operations.validate()?;
        self.audit.validate()
    }

    /// A Mainstay that keeps to it, and marks operations as stalled that have been silent for so long.
    pub(crate) fn apply(self, mainstay: MainstayBuilder, stalled: Option<Duration>) -> MainstayBuilder {
        let operations = OperationOptions::default().retention(self.operations).stalled_after(stalled);
        mainstay
            .outbox(|outbox| outbox.retention(Some(self.outbox)))
            .inbox(|inbox| inbox.retention(Some(self.inbox)))
            .timers(|timers| timers.retention(Some(self.timers)))
            .jobs(|jobs| jobs.retention(Some(self.runs)))
            .joins(|joins| joins.retention(Some(self.joins)))
            .operations(operations)
            .audit(self.audit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3_600);

    fn collect(toml: &str) -> Result<Policy, Failure> {
        Policy::collect(&toml::from_str(toml).unwrap())
    }

    #[test]
    fn what_is_not_said_is_as_the_library_has_it() {
        let policy = collect("").unwrap();
        assert_eq!((policy.outbox, policy.inbox), (Retention::default(), InboxRetention::default()));
        assert_eq!(policy.runs, JobOptions::default().retention.unwrap());
        assert_eq!((policy.joins, policy.audit), (JoinRetention::default(), AuditRetention::default()));
        let policy = collect("done = 'forever'\nfailed = '90d'\nruns_done = '7d'\naudit = '1d 12h'\nbatch = 7\ninterval = '1m'").unwrap();
        assert_eq!((policy.outbox.done, policy.outbox.failed), (None, Some(90 * DAY)));
        assert_eq!((policy.runs.done, policy.runs.failed), (Some(7 * DAY), None));
        assert_eq!(policy.audit.age, Some(DAY + DAY / 2));
        assert_eq!((policy.joins.batch, policy.inbox.interval), (7, Duration::from_secs(60)));
    }

    #[test]
    fn each_mistake_names_its_key() {
        for (toml, says) in [
            ("inbox_done = '1d'", "inbox_done must be at least"),
            ("inbox_dead = '1d'", "`inbox_at_least`"),
            ("batch = 0", "batch must be"),
            ("interval = 'forever'", "interval must be"),
            ("inbox_at_least = 'forever'", "inbox_at_least must be"),
        ] {
            let told = collect(toml).unwrap_err().to_string();
            assert!(told.contains("[serve.retention]") && told.contains(says), "{toml}: {told}");
        }
        collect("inbox_done = '1d'\ninbox_at_least = '1d'").unwrap();
        for (text, says) in
            [("0s", "above zero"), ("30", "unit"), ("40000d", "36500d"), ("s3cret", "forever")]
        {
            let told = Kept::parse(text).unwrap_err();
            assert!(told.contains(says) && !told.contains("s3cret"), "{text}: {told}");
        }
    }

    #[test]
    fn a_number_without_quotes_says_what_is_wanted() {
        let told = toml::from_str::<RetentionFile>("failed = 90").unwrap_err();
        assert!(
            told.message().ends_with("expected a duration in quotes, like \"30d\", or \"forever\""),
            "{told}"
        );
    }

    #[test]
    fn every_key_of_an_age_is_known_and_told() {
        for key in RetentionFile::AGES {
            let file: RetentionFile = toml::from_str(&format!("{key} = '8d'")).unwrap();
            assert_eq!(file.told(), [(format!("retention.{key}"), "8d".to_owned())]);
        }
        for text in ["1d 12h", "90s", "36500d", "1h 30m", "250ms", "forever"] {
            let kept = Kept::parse(text).unwrap();
            assert_eq!(Kept::parse(&kept.to_string()), Ok(kept), "{text}: {kept}");
        }
    }
}
