//! The trail's answers as its stores give them: JSON texts, times in microseconds since 1970. Every provider words its answers
//! alike, so that they are read here, once.

use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use crate::error::Result;
use crate::inbox::answer::{only, read};

use super::{Anchor, AuditId, AuditOutcome, AuditRecord};

#[derive(Deserialize)]
struct Row {
    id: Uuid,
    recorded_at: i64,
    name: String,
    actor: String,
    outcome: i16,
    correlation_id: Option<String>,
    data: Option<String>,
    anchors: Vec<(String, String)>,
}

/// `[id]`.
pub fn written(operation: &'static str, answers: &[String]) -> Result<AuditId> {
    only::<(Uuid,)>(operation, answers).map(|(id,)| AuditId::from_uuid(id))
}

/// An object with the fields of [`AuditRecord`] for each.
pub fn records(operation: &'static str, answers: &[String]) -> Result<Vec<AuditRecord>> {
    answers.iter().map(|answer| read(operation, answer).and_then(|row| record(operation, row))).collect()
}

fn record(operation: &'static str, row: Row) -> Result<AuditRecord> {
    let (id, recorded_at) = (AuditId::from_uuid(row.id), moment(row.recorded_at));
    let mut record = AuditRecord::new(id, recorded_at, row.name, row.actor);
    record.outcome = AuditOutcome::from_code(row.outcome)?;
    record.correlation_id = row.correlation_id;
    record.data = row.data.map(|data| read(operation, &data)).transpose()?;
    record.anchors = row.anchors.into_iter().map(|(kind, value)| Anchor { kind, value }).collect();
    Ok(record)
}

fn moment(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 { Timestamp::MIN } else { Timestamp::MAX })
}
