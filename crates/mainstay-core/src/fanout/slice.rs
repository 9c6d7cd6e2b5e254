//! A slice: one shard's share of the work, as it travels in the outbox.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{JoinId, MessageId, WorkItemId};

use super::id::slice_ids;
use super::{FanoutCursor, FanoutKey, SliceTime};

/// A slice as it travels: the payload of a message of `fanout:{topic}:{work key}`, in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FanoutSlice {
    /// The fan-out's topic.
    pub fanout_topic: String,
    /// Its work key.
    pub work_key: String,
    /// Whose share of the work it is.
    pub shard_key: String,
    /// Up to when the work was done when this was planned; none at first.
    pub window_start: Option<Timestamp>,
    /// When it was due.
    pub due_at: Timestamp,
    /// The join of the run it belongs to, if that has a continuation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<JoinId>,
}

impl FanoutSlice {
    /// A slice of a shard, to complete by hand what no coordinator has planned.
    pub fn new(key: &FanoutKey, shard_key: impl Into<String>, due_at: Timestamp) -> Self {
        Self {
            fanout_topic: key.topic().to_owned(),
            work_key: key.work_key().to_owned(),
            shard_key: shard_key.into(),
            window_start: None,
            due_at,
            run_id: None,
        }
    }
}

/// A slice that a coordinator wants to make, and what it was planned with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedSlice {
    /// The shard.
    pub shard_key: String,
    /// Where its cursor stood.
    pub cursor: Option<Timestamp>,
    /// Which slice of it was the last one.
    pub last_slice: Option<WorkItemId>,
    /// The time it is for.
    pub nominal: Timestamp,
    /// When it may be handed out.
    pub due: Timestamp,
    /// The id of its message's row.
    pub id: WorkItemId,
    /// The id of its message.
    pub message: MessageId,
}

impl PlannedSlice {
    /// The slice of a shard at this time, by what is known of the shard.
    pub fn new(key: &FanoutKey, shard_key: &str, cursor: Option<&FanoutCursor>, time: SliceTime) -> Self {
        let completed = cursor.and_then(|cursor| cursor.last_completed_at);
        let last_slice = cursor.and_then(|cursor| cursor.slice_id);
        let (id, message) = slice_ids(key, shard_key, completed, last_slice, time.nominal);
        Self {
            shard_key: shard_key.to_owned(),
            cursor: completed,
            last_slice,
            nominal: time.nominal,
            due: time.due,
            id,
            message,
        }
    }

    pub(super) fn payload(&self, key: &FanoutKey, run_id: Option<JoinId>) -> FanoutSlice {
        let slice = FanoutSlice::new(key, self.shard_key.as_str(), self.due);
        FanoutSlice { window_start: self.cursor, run_id, ..slice }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_travels_as_the_documented_json() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let key = FanoutKey::new("etl", "payments").unwrap();
        let planned = PlannedSlice::new(&key, "7", None, at(1_800_000_000).into());
        let json = serde_json::to_string(&planned.payload(&key, None)).unwrap();
        assert_eq!(
            json,
            r#"{"fanoutTopic":"etl","workKey":"payments","shardKey":"7","windowStart":null,"dueAt":"2027-01-15T08:00:00Z"}"#
        );
        assert_eq!(serde_json::from_str::<FanoutSlice>(&json).unwrap(), planned.payload(&key, None));
        let run = JoinId::new();
        let of_a_run = planned.payload(&key, Some(run));
        let json = serde_json::to_string(&of_a_run).unwrap();
        assert!(json.ends_with(&format!(r#","runId":"{run}"}}"#)), "{json}");
        assert_eq!(serde_json::from_str::<FanoutSlice>(&json).unwrap(), of_a_run);
    }
}
