//! One run of a job.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::id::WorkItemId;

/// What made a run. The texts are those in the tables and in the header `mainstay-trigger`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// Its schedule.
    Cron,
    /// Somebody who asked for it.
    Manual,
}

impl Trigger {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Cron, Self::Manual];

    /// The text in the tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cron => "cron",
            Self::Manual => "manual",
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Trigger {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|trigger| trigger.as_str() == text).ok_or_else(|| {
            Error::invalid("job.trigger", "trigger", format_args!("must be cron or manual, got {text:?}"))
        })
    }
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// Waiting for its due time, or to be dispatched.
    Pending,
    /// Held by a scheduler that is about to dispatch it.
    Claimed,
    /// Its message is in the outbox and waits for a worker.
    Dispatched,
    /// A worker has its message.
    Running,
    /// Its message was handled.
    Succeeded,
    /// Its message failed for good.
    Failed,
    /// It was passed over, because an earlier run was not over.
    Skipped,
    /// It was cancelled before it was dispatched.
    Cancelled,
}

impl RunState {
    /// All of them, in the order of a run's life.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Claimed,
        Self::Dispatched,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Skipped,
        Self::Cancelled,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Claimed => "claimed",
            Self::Dispatched => "dispatched",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    /// The number its end has in the tables; none while it has not ended.
    pub const fn outcome(self) -> Option<i16> {
        match self {
            Self::Succeeded => Some(1),
            Self::Failed => Some(2),
            Self::Skipped => Some(3),
            Self::Cancelled => Some(4),
            Self::Pending | Self::Claimed | Self::Dispatched | Self::Running => None,
        }
    }

    /// The end with this number.
    pub fn from_outcome(code: i16) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.outcome() == Some(code)).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "job.run", format!("{code} is no outcome of a run (1 to 4)"))
        })
    }

    /// Whether the run is over.
    pub const fn is_over(self) -> bool {
        self.outcome().is_some()
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for RunState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            Error::invalid("job.run", "state", format_args!("must be one of {names}, got {text:?}"))
        })
    }
}

/// One run of a job, under way or over.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JobRun {
    /// Its id: that of its work item, among the job runs and in the outbox.
    pub id: WorkItemId,
    /// The job's name.
    pub job: String,
    /// The time it is for.
    pub nominal_at: Timestamp,
    /// When it may start: the nominal time and the job's jitter.
    pub due_at: Timestamp,
    /// What made it.
    pub trigger: Trigger,
    /// Where it stands.
    pub state: RunState,
    /// When it was planned, by the database's clock.
    pub created_at: Timestamp,
    /// When its message was put into the outbox.
    pub dispatched_at: Option<Timestamp>,
    /// When a handler first began with it.
    pub started_at: Option<Timestamp>,
    /// When it was over.
    pub ended_at: Option<Timestamp>,
    /// Deliveries of its message so far that count.
    pub attempts: u32,
    /// The last error.
    pub error: Option<String>,
    /// What its handler left to be read.
    pub output: Option<String>,
}

impl JobRun {
    /// A run at its start, pending; providers fill in the rest.
    pub fn new(
        id: WorkItemId,
        job: String,
        trigger: Trigger,
        nominal_at: Timestamp,
        due_at: Timestamp,
        created_at: Timestamp,
    ) -> Self {
        Self {
            id,
            job,
            nominal_at,
            due_at,
            trigger,
            state: RunState::Pending,
            created_at,
            dispatched_at: None,
            started_at: None,
            ended_at: None,
            attempts: 0,
            error: None,
            output: None,
        }
    }

    /// How long it ran, from its start to its end. None unless it has both.
    pub fn duration(&self) -> Option<Duration> {
        let (started, ended) = (self.started_at?, self.ended_at?);
        // Somebody may have set the database's clock back meanwhile.
        Some(Duration::try_from(ended.duration_since(started)).unwrap_or_default())
    }
}

/// No output: what a handler leaves there is the application's, like a payload (R27).
impl fmt::Debug for JobRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobRun")
            .field("id", &self.id)
            .field("job", &self.job)
            .field("nominal_at", &self.nominal_at)
            .field("trigger", &self.trigger)
            .field("state", &self.state)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_outcomes_go_there_and_back() {
        for state in RunState::ALL {
            assert_eq!(state.to_string().parse::<RunState>().unwrap(), state);
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
            if let Some(code) = state.outcome() {
                assert_eq!(RunState::from_outcome(code).unwrap(), state);
            }
        }
        for trigger in Trigger::ALL {
            assert_eq!(trigger.to_string().parse::<Trigger>().unwrap(), trigger);
        }
        assert_eq!(RunState::ALL.iter().filter(|state| state.is_over()).count(), 4);
        assert!(RunState::from_outcome(0).is_err() && "done".parse::<RunState>().is_err());
    }

    #[test]
    fn a_run_lasts_from_its_start_to_its_end() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut run = JobRun::new(WorkItemId::new(), "n".to_owned(), Trigger::Cron, at(0), at(0), at(0));
        assert_eq!(run.duration(), None);
        run.started_at = Some(at(5));
        assert_eq!(run.duration(), None);
        run.ended_at = Some(at(12));
        assert_eq!(run.duration(), Some(Duration::from_secs(7)));
        run.ended_at = Some(at(4));
        assert_eq!(run.duration(), Some(Duration::ZERO), "a clock was ahead");
    }
}
