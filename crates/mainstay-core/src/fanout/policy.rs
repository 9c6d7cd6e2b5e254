//! A fan-out's policy as it stands in the database.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::error::Result;
use crate::job::Schedule;

use super::FanoutKey;

/// How a fan-out is planned, as it stands in the database.
///
/// Expression and zone are texts here, so that one policy which can't be read, because somebody changed its row by hand, keeps nobody
/// from listing the others; [`FanoutPolicy::schedule`] tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FanoutPolicy {
    /// What it is known by.
    #[serde(flatten)]
    pub key: FanoutKey,
    /// The cadence; with a cron expression, the least distance between two slices of a shard.
    #[serde(rename = "every_seconds", serialize_with = "seconds")]
    pub every: Duration,
    /// The widest jitter.
    #[serde(rename = "jitter_seconds", serialize_with = "seconds")]
    pub jitter: Duration,
    /// The cron expression.
    pub cron: Option<String>,
    /// Its zone.
    pub time_zone: String,
    /// Whether anything is planned.
    pub enabled: bool,
    /// Grows with every change, and when somebody asks for a run.
    pub version: i64,
    /// The nominal time of the last run.
    pub last_run_at: Option<Timestamp>,
    /// When somebody asked for a run that has not been made yet.
    pub run_requested_at: Option<Timestamp>,
    /// From when on the cron expression's occurrences count: since it was changed, or enabled.
    pub since_at: Timestamp,
    /// When it was registered, by the database's clock.
    pub created_at: Timestamp,
    /// When it was changed last.
    pub updated_at: Timestamp,
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(duration.as_secs())
}

impl FanoutPolicy {
    /// One that was registered at `created_at` and is otherwise at its default.
    pub fn new(key: FanoutKey, created_at: Timestamp) -> Self {
        Self {
            key,
            every: Duration::ZERO,
            jitter: Duration::ZERO,
            cron: None,
            time_zone: "UTC".to_owned(),
            enabled: true,
            version: 1,
            last_run_at: None,
            run_requested_at: None,
            since_at: created_at,
            created_at,
            updated_at: created_at,
        }
    }

    /// The cron expression in its zone, if there is one. An error if it can't be read.
    pub fn schedule(&self) -> Result<Option<Schedule>> {
        self.cron.as_deref().map(|cron| Schedule::parse(cron, &self.time_zone)).transpose()
    }

    /// Whether the times that occurrences count from are still to come.
    pub(super) fn is_ahead_of(&self, now: Timestamp) -> bool {
        let counted_from = self.last_run_at.map_or(self.since_at, |last| last.max(self.since_at));
        self.enabled && self.cron.is_some() && counted_from > now
    }
}
