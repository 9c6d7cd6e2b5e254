//! Rows of the database as Mainstay's types. Columns are read by position, in the order of `queries/queue.sql`.

use std::cmp::Reverse;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::join::{Counted, answer};
use mainstay_core::outbox::{Enqueued, Headers, OutboxMessage, OutboxStats, PausedTopic, TopicStats};
use mainstay_core::queue::{
    ClaimBatch, ClaimHandle, Claimed, FailureReason, Rejected, Settled, Settlement, Status,
};
use mainstay_core::{Error, ErrorKind, MessageId, OwnerToken, Result, WorkItemId};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use crate::cursor::Position;
use crate::error::unreadable;
use crate::moment::Moment;
use crate::place::Place;

/// A row, with the operation it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    row: &'a Row,
    operation: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(operation: &'static str, row: &'a Row) -> Self {
        Self { row, operation }
    }

    pub(crate) fn get<T: FromSql<'a>>(&self, column: usize) -> Result<T> {
        self.row.try_get(column).map_err(|error| unreadable(self.operation, error))
    }

    pub(crate) fn time(&self, column: usize) -> Result<Timestamp> {
        Ok(self.get::<Moment>(column)?.0)
    }

    pub(crate) fn optional_time(&self, column: usize) -> Result<Option<Timestamp>> {
        Ok(self.get::<Option<Moment>>(column)?.map(|moment| moment.0))
    }

    pub(crate) fn count(&self, column: usize) -> Result<u64> {
        // Null where the database was told not to count.
        Ok(self.get::<Option<i64>>(column)?.unwrap_or(0).max(0).unsigned_abs())
    }

    pub(crate) fn small_count(&self, column: usize) -> Result<u32> {
        Ok(self.get::<i32>(column)?.max(0).unsigned_abs())
    }

    fn reason(&self, column: usize) -> Result<Option<FailureReason>> {
        self.get::<Option<&str>>(column)?.map(str::parse).transpose()
    }

    fn headers(&self, column: usize) -> Result<Headers> {
        match self.get::<Option<&str>>(column)? {
            None => Ok(Headers::new()),
            Some(text) => headers(text).ok_or_else(|| {
                let message = "the headers of a message are not a JSON object";
                Error::new(ErrorKind::Internal, self.operation, message)
            }),
        }
    }
}

/// Headers from their JSON object. Other languages may have put in values that are not texts; those are kept as JSON.
fn headers(text: &str) -> Option<Headers> {
    if let Ok(headers) = serde_json::from_str(text) {
        return Some(headers);
    }
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).ok()?;
    let entry = |(name, value)| match value {
        serde_json::Value::String(text) => (name, text),
        other => (name, other.to_string()),
    };
    Some(object.into_iter().map(entry).collect())
}

pub(crate) fn enqueued(rows: &[Row]) -> Result<Vec<Enqueued>> {
    let read = |row| {
        let row = Reader::new("outbox.enqueue", row);
        Ok(Enqueued {
            work_item: WorkItemId::from_uuid(row.get(0)?),
            message: MessageId::from_uuid(row.get(1)?),
            added: row.get(2)?,
        })
    };
    rows.iter().map(read).collect()
}

/// The ids of a result with one column.
pub(crate) fn ids(operation: &'static str, rows: &[Row]) -> Result<Vec<WorkItemId>> {
    let read = |row| Reader::new(operation, row).get(0).map(WorkItemId::from_uuid);
    rows.iter().map(read).collect()
}

/// The claims that a renewal found held, and whether it extended them.
pub(crate) fn renewed(operation: &'static str, rows: &[Row]) -> Result<Vec<(WorkItemId, bool)>> {
    let read = |row| {
        let row = Reader::new(operation, row);
        Ok((WorkItemId::from_uuid(row.get(0)?), row.get(1)?))
    };
    rows.iter().map(read).collect()
}

/// The answers of a call: one text in each row.
pub(crate) fn answers(operation: &'static str, rows: &[Row]) -> Result<Vec<String>> {
    rows.iter().map(|row| Reader::new(operation, row).get(0)).collect()
}

/// The one value of a result.
pub(crate) fn value<'a, T: FromSql<'a>>(operation: &'static str, rows: &'a [Row]) -> Result<T> {
    let nothing = || Error::new(ErrorKind::Internal, operation, "the database returned no row");
    Reader::new(operation, rows.first().ok_or_else(nothing)?).get(0)
}

/// What a settle has changed: all that was asked for, unless the database says otherwise.
pub(crate) fn settled(operation: &'static str, rows: &[Row], settlements: &[Settlement]) -> Result<Settled> {
    let asked = || settlements.iter().map(|settlement| settlement.claim.id());
    Ok(match value::<Option<Vec<Uuid>>>(operation, rows)? {
        None => Settled { changed: asked().collect(), stale: Vec::new() },
        Some(changed) => {
            Settled::from_changed(asked(), changed.into_iter().map(WorkItemId::from_uuid).collect())
        }
    })
}

/// What was counted for joins on the way, if anything was.
pub(crate) fn counted(operation: &'static str, rows: &[Row], column: usize) -> Result<Vec<Counted>> {
    for row in rows {
        if let Some(text) = Reader::new(operation, row).get::<Option<&str>>(column)? {
            return answer::counted(operation, text);
        }
    }
    Ok(Vec::new())
}

/// What was claimed, and the last place of it if all of it is of one priority.
pub(crate) fn claim_batch(rows: &[Row]) -> Result<(ClaimBatch, Option<Position>)> {
    let mut batch = ClaimBatch::default();
    batch.items.reserve(rows.len());
    let mut last: Option<Position> = None;
    for row in rows {
        let row = Reader::new("outbox.claim", row);
        let id = WorkItemId::from_uuid(row.get(2)?);
        match row.reason(1)? {
            None => {
                let claimed = claimed(row, id)?;
                let place = Position { due_at: Moment(claimed.due_at), seq: row.get(19)? };
                last = Some(last.map_or(place, |last| last.max(place)));
                batch.items.push(claimed);
            }
            Some(reason) => batch.rejected.push(Rejected { id, topic: row.get(4)?, reason }),
        }
    }
    // The database sends them as they lie, which is nearly always the order.
    let order = |claimed: &Claimed| (Reverse(claimed.priority), claimed.due_at);
    if !batch.items.is_sorted_by_key(order) {
        batch.items.sort_by_key(order);
    }
    let uniform = batch.items.windows(2).all(|pair| pair[0].priority == pair[1].priority);
    Ok((batch, last.filter(|_| uniform)))
}

fn claimed(row: Reader<'_>, id: WorkItemId) -> Result<Claimed> {
    let place: Option<Place> = row.get(18)?;
    let handle = ClaimHandle::new(id, row.get(8)?).at(place.map(|place| place.0));
    let message_id = MessageId::from_uuid(row.get(3)?);
    let (claimed_at, locked_until) = (row.time(16)?, row.time(15)?);
    let mut claimed = Claimed::new(
        handle,
        message_id,
        row.get(4)?,
        row.get(5)?,
        row.small_count(7)?,
        claimed_at,
        locked_until,
    );
    claimed.correlation_id = row.get(6)?;
    claimed.created_at = row.time(9)?;
    claimed.due_at = row.time(10)?;
    claimed.expires_at = row.optional_time(11)?;
    claimed.ordering_key = row.get(12)?;
    claimed.priority = row.get(13)?;
    claimed.headers = row.headers(14)?;
    claimed.last_error = row.get(17)?;
    Ok(claimed)
}

pub(crate) fn message(operation: &'static str, row: &Row) -> Result<OutboxMessage> {
    let row = Reader::new(operation, row);
    let owner = |column| Ok::<_, Error>(row.get::<Option<Uuid>>(column)?.map(OwnerToken::from_uuid));
    let id = WorkItemId::from_uuid(row.get(0)?);
    let message_id = MessageId::from_uuid(row.get(1)?);
    let mut message = OutboxMessage::new(id, message_id, row.get(2)?, row.time(8)?);
    message.payload = row.get(3)?;
    message.correlation_id = row.get(4)?;
    message.status = Status::from_code(row.get(5)?)?;
    message.reason = row.reason(6)?;
    message.attempts = row.small_count(7)?;
    message.due_at = row.optional_time(9)?;
    message.next_attempt_at = row.time(10)?;
    message.expires_at = row.optional_time(11)?;
    message.owner = owner(12)?;
    message.locked_until = row.optional_time(13)?;
    message.generation = row.get(14)?;
    message.processed_at = row.optional_time(15)?;
    message.processed_by = owner(16)?;
    message.last_error = row.get(17)?;
    message.priority = row.get(18)?;
    message.ordering_key = row.get(19)?;
    message.idempotency_key = row.get(20)?;
    message.headers = row.headers(21)?;
    Ok(message)
}

pub(crate) fn paused(operation: &'static str, row: &Row) -> Result<PausedTopic> {
    let row = Reader::new(operation, row);
    Ok(PausedTopic::new(row.get::<&str>(0)?, row.time(1)?, row.get::<&str>(2)?, row.get(3)?))
}

pub(crate) fn stats(totals: &[Row], topics: &[Row]) -> Result<OutboxStats> {
    const STATS: &str = "outbox.stats";
    let nothing = || Error::new(ErrorKind::Internal, STATS, "the database returned no row");
    let row = Reader::new(STATS, totals.first().ok_or_else(nothing)?);
    let mut stats = OutboxStats::default();
    stats.ready = row.count(0)?;
    stats.scheduled = row.count(1)?;
    stats.in_progress = row.count(2)?;
    stats.lapsed = row.count(3)?;
    stats.done = row.count(4)?;
    stats.failed = row.count(5)?;
    stats.held_keys = row.count(6)?;
    stats.oldest_ready = row.get::<Option<f64>>(7)?.and_then(seconds);
    stats.topics = self::topics(STATS, topics)?;
    Ok(stats)
}

pub(crate) fn topics(operation: &'static str, rows: &[Row]) -> Result<Vec<TopicStats>> {
    let read = |row| {
        let row = Reader::new(operation, row);
        let mut topic = TopicStats::default();
        topic.topic = row.get(0)?;
        topic.ready = row.count(1)?;
        topic.scheduled = row.count(2)?;
        topic.in_progress = row.count(3)?;
        topic.failed = row.count(4)?;
        topic.oldest_ready = row.get::<Option<f64>>(5)?.and_then(seconds);
        Ok(topic)
    };
    rows.iter().map(read).collect()
}

/// A number of seconds from the database as a duration; none when it is none.
pub(crate) fn seconds(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds.max(0.0)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_other_languages_are_kept() {
        let kept = headers(r#"{"a":"x","b":1,"c":{"d":null}}"#).unwrap();
        let kept: Vec<_> = kept.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(kept, [("a", "x"), ("b", "1"), ("c", r#"{"d":null}"#)]);
        assert!(headers("[1]").is_none());
    }

    #[test]
    fn seconds_are_never_negative() {
        assert_eq!(seconds(-1.0), Some(Duration::ZERO));
        assert_eq!(seconds(f64::NAN), Some(Duration::ZERO));
        assert_eq!(seconds(1.5), Some(Duration::from_millis(1_500)));
        assert_eq!(seconds(f64::INFINITY), None);
    }
}
