//! Topics that nobody claims from until they are resumed.

use jiff::Timestamp;
use serde::Serialize;

/// A topic that is paused: its messages wait, whoever asks for them. What was claimed before goes on to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PausedTopic {
    /// The topic.
    pub topic: String,
    /// Since when.
    pub since: Timestamp,
    /// Who paused it.
    pub by: String,
    /// Why, in the words of who did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl PausedTopic {
    /// A topic that somebody paused.
    pub fn new(
        topic: impl Into<String>,
        since: Timestamp,
        by: impl Into<String>,
        reason: Option<String>,
    ) -> Self {
        Self { topic: topic.into(), since, by: by.into(), reason }
    }
}
