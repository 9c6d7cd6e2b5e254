//! Rows of the database, without the driver, and as Mainstay's types. Columns are read by their labels, which the procedures set; an engine
//! may change the case of labels, so they are compared in lower case.

use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::join::{Counted, answer};
use mainstay_core::outbox::{Headers, OutboxMessage, OutboxStats, PausedTopic, TopicStats};
use mainstay_core::queue::{ClaimBatch, ClaimHandle, Claimed, FailureReason, Rejected, Status};
use mainstay_core::{Error, ErrorKind, MessageId, OwnerToken, Result, WorkItemId};
use serde_json::{Map, Value};
use uuid::Uuid;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Id(Uuid),
    Moment(Timestamp),
    Bytes(Vec<u8>),
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    labels: Vec<String>,
    cells: Vec<Cell>,
}

impl Row {
    pub(crate) fn new(labels: Vec<String>, cells: Vec<Cell>) -> Self {
        Self { labels, cells }
    }

    fn cell(&self, label: &str) -> Option<&Cell> {
        let place = self.labels.iter().position(|found| found == label)?;
        self.cells.get(place)
    }

    /// Its columns with their labels, in order.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&str, &Cell)> {
        self.labels.iter().map(String::as_str).zip(&self.cells)
    }

    /// Whether it is one of a result with this column.
    pub(crate) fn has(&self, label: &str) -> bool {
        self.labels.iter().any(|found| found == label)
    }

    /// As a JSON text, for the answers of calls: a list of all columns if it begins with one of those that do, or else an object of them. Times are microseconds since
    /// 1970; what is in a column whose label ends with `_json` is JSON already, and with `_pairs` a list of objects that are to be lists.
    pub(crate) fn answer(&self) -> String {
        if self.labels.first().is_some_and(|label| LISTS.contains(&label.as_str())) {
            return Value::Array(self.cells.iter().map(value).collect()).to_string();
        }
        let object: Map<String, Value> =
            self.labels.iter().zip(&self.cells).map(|(label, cell)| named(label, cell)).collect();
        Value::Object(object).to_string()
    }
}

/// What answers begin with that are read by their places. Their columns have names all the same, for other languages.
const LISTS: [&str; 24] = [
    "added",
    "attached",
    "audit_id",
    "changed",
    "claimed_shard",
    "forgotten",
    "held_until",
    "join_id",
    "left_microseconds",
    "moved",
    "number",
    "operation_id",
    "outcome",
    "pending",
    "processed",
    "purged",
    "reported",
    "requested",
    "revived_source",
    "seen",
    "slice_in_flight",
    "state",
    "version",
    "work_item_id",
];

fn named(label: &str, cell: &Cell) -> (String, Value) {
    if let (Some(label), Cell::Text(text)) = (label.strip_suffix("_pairs"), cell) {
        return (label.to_owned(), pairs(text));
    }
    if let (Some(label), Cell::Text(text)) = (label.strip_suffix("_map"), cell) {
        return (label.to_owned(), map(text));
    }
    match (label.strip_suffix("_json"), cell) {
        // What is not JSON is a text.
        (Some(label), Cell::Text(text)) => {
            (label.to_owned(), serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone())))
        }
        (Some(label), Cell::Null) => (label.to_owned(), Value::Null),
        _ => (label.to_owned(), value(cell)),
    }
}

/// A list of objects as a list of lists: of each the values, in the order of their names.
fn pairs(text: &str) -> Value {
    let objects: Vec<std::collections::BTreeMap<String, Value>> =
        serde_json::from_str(text).unwrap_or_default();
    Value::Array(objects.into_iter().map(|object| Value::Array(object.into_values().collect())).collect())
}

/// A list of objects with a key and a value as one object.
fn map(text: &str) -> Value {
    let objects: Vec<Map<String, Value>> = serde_json::from_str(text).unwrap_or_default();
    let entry = |mut object: Map<String, Value>| {
        let key = object.get("key").and_then(Value::as_str).map(str::to_owned)?;
        Some((key, object.remove("value").unwrap_or_default()))
    };
    Value::Object(objects.into_iter().filter_map(entry).collect())
}

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Integer(number) => Value::from(*number),
        Cell::Real(number) => Value::from(*number),
        Cell::Text(text) => Value::from(text.as_str()),
        Cell::Id(id) => Value::from(id.to_string()),
        Cell::Moment(moment) => Value::from(moment.as_microsecond()),
        Cell::Bytes(bytes) => Value::from(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

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

    fn odd(&self, label: &str) -> Error {
        let message = format!("a row has no readable column `{label}`; is the schema of another version?");
        Error::new(ErrorKind::Internal, self.operation, message)
    }

    pub(crate) fn maybe_text(&self, label: &str) -> Result<Option<String>> {
        match self.row.cell(label) {
            Some(Cell::Text(text)) => Ok(Some(text.clone())),
            Some(Cell::Null) => Ok(None),
            _ => Err(self.odd(label)),
        }
    }

    pub(crate) fn text(&self, label: &str) -> Result<String> {
        self.maybe_text(label)?.ok_or_else(|| self.odd(label))
    }

    pub(crate) fn maybe_integer(&self, label: &str) -> Result<Option<i64>> {
        match self.row.cell(label) {
            Some(Cell::Integer(number)) => Ok(Some(*number)),
            // Sums and averages of some engines.
            Some(Cell::Real(number)) => Ok(Some(*number as i64)),
            Some(Cell::Null) => Ok(None),
            _ => Err(self.odd(label)),
        }
    }

    pub(crate) fn integer(&self, label: &str) -> Result<i64> {
        self.maybe_integer(label)?.ok_or_else(|| self.odd(label))
    }

    /// A count; none counts as nothing.
    pub(crate) fn count(&self, label: &str) -> Result<u64> {
        Ok(self.maybe_integer(label)?.unwrap_or(0).max(0).unsigned_abs())
    }

    pub(crate) fn flag(&self, label: &str) -> Result<bool> {
        self.integer(label).map(|number| number != 0)
    }

    pub(crate) fn maybe_id(&self, label: &str) -> Result<Option<Uuid>> {
        match self.row.cell(label) {
            Some(Cell::Id(id)) => Ok(Some(*id)),
            Some(Cell::Text(text)) => text.parse().map(Some).map_err(|_| self.odd(label)),
            Some(Cell::Null) => Ok(None),
            _ => Err(self.odd(label)),
        }
    }

    pub(crate) fn id(&self, label: &str) -> Result<Uuid> {
        self.maybe_id(label)?.ok_or_else(|| self.odd(label))
    }

    pub(crate) fn maybe_moment(&self, label: &str) -> Result<Option<Timestamp>> {
        match self.row.cell(label) {
            Some(Cell::Moment(moment)) => Ok(Some(*moment)),
            Some(Cell::Null) => Ok(None),
            _ => Err(self.odd(label)),
        }
    }

    pub(crate) fn moment(&self, label: &str) -> Result<Timestamp> {
        self.maybe_moment(label)?.ok_or_else(|| self.odd(label))
    }

    pub(crate) fn small<T: TryFrom<i64>>(&self, label: &str) -> Result<T> {
        T::try_from(self.integer(label)?).map_err(|_| self.odd(label))
    }

    fn headers(&self, label: &str) -> Result<Headers> {
        Ok(self.maybe_text(label)?.map(|json| headers(&json)).unwrap_or_default())
    }
}

/// Other languages write headers too: what is no object of texts is read as well as possible.
fn headers(json: &str) -> Headers {
    let Ok(Value::Object(map)) = serde_json::from_str(json) else { return Headers::new() };
    let text = |value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    map.into_iter().map(|(name, value)| (name, text(value))).collect()
}

/// The first row, of an answer that always has one.
pub(crate) fn only<'a>(operation: &'static str, rows: &'a [Row]) -> Result<Reader<'a>> {
    let row = rows
        .last()
        .ok_or_else(|| Error::new(ErrorKind::Internal, operation, "the database's answer is empty"))?;
    Ok(Reader::new(operation, row))
}

/// The column `id` of all rows that have one.
pub(crate) fn ids(operation: &'static str, rows: &[Row]) -> Result<Vec<WorkItemId>> {
    let with = rows.iter().filter(|row| row.has("id"));
    with.map(|row| Reader::new(operation, row).id("id").map(WorkItemId::from_uuid)).collect()
}

/// What was counted for joins: results of their own among others.
pub(crate) fn counted(operation: &'static str, rows: &[Row]) -> Result<Vec<Counted>> {
    let mut all = Vec::new();
    for row in rows.iter().filter(|row| row.has("counted")) {
        if let Some(list) = Reader::new(operation, row).maybe_text("counted")? {
            all.extend(answer::counted(operation, &list)?);
        }
    }
    Ok(all)
}

/// What a claim brought.
pub(crate) fn claim_batch(operation: &'static str, rows: &[Row]) -> Result<ClaimBatch> {
    let mut batch = ClaimBatch::default();
    for row in rows.iter().filter(|row| row.has("verdict")) {
        let row = Reader::new(operation, row);
        let id = WorkItemId::from_uuid(row.id("id")?);
        match row.integer("verdict")? {
            1 => batch.items.push(claimed(row, id)?),
            verdict => batch.rejected.push(Rejected {
                id,
                topic: row.text("topic")?,
                reason: if verdict == 2 { FailureReason::Expired } else { FailureReason::DeliveryLimit },
            }),
        }
    }
    Ok(batch)
}

fn claimed(row: Reader<'_>, id: WorkItemId) -> Result<Claimed> {
    let handle = ClaimHandle::new(id, row.integer("generation")?);
    let message_id = MessageId::from_uuid(row.id("message_id")?);
    let (topic, payload) = (row.text("topic")?, row.text("payload")?);
    let (claimed_at, locked_until) = (row.moment("claimed_at")?, row.moment("locked_until")?);
    let mut item =
        Claimed::new(handle, message_id, topic, payload, row.small("attempts")?, claimed_at, locked_until);
    item.correlation_id = row.maybe_text("correlation_id")?;
    item.created_at = row.moment("created_at")?;
    item.due_at = row.moment("due_at")?;
    item.expires_at = row.maybe_moment("expires_at")?;
    item.last_error = row.maybe_text("last_error")?;
    item.priority = row.small("priority")?;
    item.ordering_key = row.maybe_text("ordering_key")?;
    item.headers = row.headers("headers")?;
    Ok(item)
}

/// A message as people see it.
pub(crate) fn message(operation: &'static str, row: &Row) -> Result<OutboxMessage> {
    let row = Reader::new(operation, row);
    let id = WorkItemId::from_uuid(row.id("id")?);
    let message_id = MessageId::from_uuid(row.id("message_id")?);
    let mut message = OutboxMessage::new(id, message_id, row.text("topic")?, row.moment("created_at")?);
    message.status = Status::from_code(row.small("status")?)?;
    message.payload = row.maybe_text("payload")?;
    message.correlation_id = row.maybe_text("correlation_id")?;
    message.reason = row.maybe_text("reason")?.map(|reason| reason.parse()).transpose()?;
    message.attempts = row.small("attempts")?;
    message.due_at = row.maybe_moment("requested_due_at")?;
    message.next_attempt_at = row.moment("due_at")?;
    message.expires_at = row.maybe_moment("expires_at")?;
    message.owner = row.maybe_id("owner_token")?.map(OwnerToken::from_uuid);
    message.locked_until = row.maybe_moment("locked_until")?;
    message.generation = row.integer("generation")?;
    message.processed_at = row.maybe_moment("processed_at")?;
    message.processed_by = row.maybe_id("processed_by")?.map(OwnerToken::from_uuid);
    message.last_error = row.maybe_text("last_error")?;
    message.priority = row.small("priority")?;
    message.ordering_key = row.maybe_text("ordering_key")?;
    message.idempotency_key = row.maybe_text("idempotency_key")?;
    message.headers = row.headers("headers")?;
    Ok(message)
}

/// A topic that somebody has paused.
pub(crate) fn paused(operation: &'static str, row: &Row) -> Result<PausedTopic> {
    let row = Reader::new(operation, row);
    let (topic, by) = (row.text("topic")?, row.text("paused_by")?);
    Ok(PausedTopic::new(topic, row.moment("paused_at")?, by, row.maybe_text("reason")?))
}

/// How many messages stand where: totals and topics are told apart by their columns.
pub(crate) fn stats(operation: &'static str, rows: &[Row]) -> Result<OutboxStats> {
    let mut stats = OutboxStats::default();
    for row in rows {
        let read = Reader::new(operation, row);
        if row.has("topic") {
            let mut topic = TopicStats::default();
            topic.topic = read.text("topic")?;
            topic.ready = read.count("ready")?;
            topic.scheduled = read.count("scheduled")?;
            topic.in_progress = read.count("in_progress")?;
            topic.failed = read.count("failed")?;
            topic.oldest_ready = read.maybe_integer("oldest_ready")?.map(micros);
            stats.topics.push(topic);
        } else {
            stats.ready = read.count("ready")?;
            stats.scheduled = read.count("scheduled")?;
            stats.in_progress = read.count("in_progress")?;
            stats.lapsed = read.count("lapsed")?;
            stats.done = read.count("done")?;
            stats.failed = read.count("failed")?;
            stats.held_keys = read.count("held_keys")?;
            stats.oldest_ready = read.maybe_integer("oldest_ready")?.map(micros);
        }
    }
    Ok(stats)
}

/// A number of microseconds as a duration; never negative.
pub(crate) fn micros(micros: i64) -> Duration {
    Duration::from_micros(micros.max(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_an_object_of_its_columns() {
        let labels = ["id", "at", "n", "list_json", "none"].map(str::to_owned).to_vec();
        let second = Timestamp::from_second(1).unwrap();
        let cells = vec![
            Cell::Id(Uuid::nil()),
            Cell::Moment(second),
            Cell::Integer(7),
            Cell::Text("[1, 2]".into()),
            Cell::Null,
        ];
        let answer: Value = serde_json::from_str(&Row::new(labels, cells).answer()).unwrap();
        let wanted =
            r#"{"id":"00000000-0000-0000-0000-000000000000","at":1000000,"n":7,"list":[1,2],"none":null}"#;
        assert_eq!(answer, serde_json::from_str::<Value>(wanted).unwrap());
        let list =
            Row::new(vec!["outcome".into(), "other".into()], vec![Cell::Text("new".into()), Cell::Null]);
        assert_eq!(list.answer(), r#"["new",null]"#);
    }

    #[test]
    fn odd_headers_are_read_as_well_as_possible() {
        assert_eq!(
            headers(r#"{"a":"b","n":1}"#),
            Headers::from([("a".into(), "b".into()), ("n".into(), "1".into())])
        );
        assert_eq!(headers("[1]"), Headers::new());
        assert_eq!(headers("not JSON"), Headers::new());
    }
}
