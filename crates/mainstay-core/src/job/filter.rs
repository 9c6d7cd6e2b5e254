//! Which runs to list.

use super::{RunState, Trigger};

/// Selects runs. Every field that is set must match; an empty filter selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunFilter {
    /// Only runs of this job. Defaults to all.
    pub job: Option<String>,
    /// Only runs that stand here. Defaults to all.
    pub state: Option<RunState>,
    /// Only runs that this made. Defaults to all.
    pub trigger: Option<Trigger>,
}

impl RunFilter {
    /// All runs.
    pub fn all() -> Self {
        Self::default()
    }
    /// Only runs of this job.
    #[must_use]
    pub fn job(mut self, name: impl Into<String>) -> Self {
        self.job = Some(name.into());
        self
    }
    /// Only runs that stand here.
    #[must_use]
    pub fn state(mut self, state: RunState) -> Self {
        self.state = Some(state);
        self
    }
    /// Only runs that this made.
    #[must_use]
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.trigger = Some(trigger);
        self
    }
}
