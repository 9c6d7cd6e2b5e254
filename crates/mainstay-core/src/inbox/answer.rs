//! The ledger's answers as its stores give them: JSON texts, times in microseconds since 1970. Every provider words its answers
//! alike, so that they are read here, once.

use std::time::Duration;

use jiff::Timestamp;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{OwnerToken, WorkItemId};

use super::{
    BeginAnswer, ContentHash, EntryState, InboxEntry, InboxKey, LedgerStats, Received, ReceivedOutcome,
    Reserved, Seen,
};

/// True or false, which SQLite writes as 1 and 0.
#[derive(Debug, Clone, Copy)]
pub struct Flag(pub bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Bool(flag) => Ok(Self(flag)),
            serde_json::Value::Number(number) => Ok(Self(number.as_i64() == Some(1))),
            serde_json::Value::Null => Ok(Self(false)),
            other => Err(D::Error::custom(format_args!("{other} is neither true nor false"))),
        }
    }
}

/// Reads one answer.
pub fn read<T: DeserializeOwned>(operation: &'static str, answer: &str) -> Result<T> {
    serde_json::from_str(answer).map_err(|error| {
        // The category only: serde_json's own text may quote a value.
        let text = format!("the database's answer can't be read ({:?})", error.classify());
        Error::new(ErrorKind::Internal, operation, text)
    })
}

/// Reads the only answer.
pub fn only<T: DeserializeOwned>(operation: &'static str, answers: &[String]) -> Result<T> {
    match answers {
        [answer] => read(operation, answer),
        other => {
            let text = format!("the database gave {} answers instead of one", other.len());
            Err(Error::new(ErrorKind::Internal, operation, text))
        }
    }
}

/// `[changed]`.
pub fn changed(operation: &'static str, answers: &[String]) -> Result<bool> {
    only::<(Flag,)>(operation, answers).map(|(Flag(changed),)| changed)
}

/// `[processed, hash_mismatch]`.
pub fn seen(answers: &[String]) -> Result<Seen> {
    let (Flag(processed), Flag(hash_mismatch)) = only("inbox.seen", answers)?;
    Ok(Seen { processed, hash_mismatch })
}

/// `[outcome, generation, attempt, until, wait in microseconds, hash_mismatch]`.
pub fn begun(answers: &[String]) -> Result<BeginAnswer> {
    const BEGIN: &str = "inbox.begin";
    type Answer = (String, Option<i64>, Option<u32>, Option<i64>, Option<i64>, Flag);
    let (outcome, generation, attempt, until, wait, Flag(hash_mismatch)): Answer = only(BEGIN, answers)?;
    let odd = || Error::new(ErrorKind::Internal, BEGIN, "the database's answer lacks something");
    Ok(match outcome.as_str() {
        "new" => BeginAnswer::New(Reserved {
            generation: generation.ok_or_else(odd)?,
            attempt: attempt.ok_or_else(odd)?,
            until: moment(until.ok_or_else(odd)?),
            hash_mismatch,
        }),
        "busy" => BeginAnswer::Busy {
            until: moment(until.ok_or_else(odd)?),
            wait: Duration::from_micros(wait.unwrap_or(0).max(0).unsigned_abs()),
            hash_mismatch,
        },
        "done" => BeginAnswer::Done { hash_mismatch },
        "dead" => BeginAnswer::Dead { hash_mismatch },
        _ => return Err(odd()),
    })
}

/// `[until]`, null when the reservation no longer holds.
pub fn renewed(answers: &[String]) -> Result<Option<Timestamp>> {
    only::<(Option<i64>,)>("inbox.renew", answers).map(|(until,)| until.map(moment))
}

/// `[work item, outcome, hash_mismatch]` for each message.
pub fn received(answers: &[String]) -> Result<Vec<Received>> {
    let read = |answer: &String| {
        let (work_item, outcome, Flag(hash_mismatch)): (Option<Uuid>, ReceivedOutcome, Flag) =
            read("inbox.enqueue", answer)?;
        Ok(Received { outcome, work_item: work_item.map(WorkItemId::from_uuid), hash_mismatch })
    };
    answers.iter().map(read).collect()
}

/// `[source, message id]` of each.
pub fn keys(operation: &'static str, answers: &[String]) -> Result<Vec<InboxKey>> {
    let read = |answer: &String| {
        let (source, message_id): (String, String) = read(operation, answer)?;
        InboxKey::new(source, message_id)
    };
    answers.iter().map(read).collect()
}

/// `[seen, processing, lapsed, done, dead]`.
pub fn stats(answers: &[String]) -> Result<LedgerStats> {
    let (seen, processing, lapsed, done, dead) = only("inbox.stats", answers)?;
    Ok(LedgerStats::new(seen, processing, lapsed, done, dead))
}

#[derive(Deserialize)]
struct Entry {
    source: String,
    message_id: String,
    state: i16,
    hash: Option<String>,
    first_seen_at: i64,
    last_seen_at: i64,
    processed_at: Option<i64>,
    attempts: u32,
    generation: i64,
    owner: Option<Uuid>,
    locked_until: Option<i64>,
    last_error: Option<String>,
    work_item: Option<Uuid>,
    topic: Option<String>,
}

/// An object with the fields of [`InboxEntry`] for each.
pub fn entries(operation: &'static str, answers: &[String]) -> Result<Vec<InboxEntry>> {
    answers.iter().map(|answer| read(operation, answer).and_then(entry)).collect()
}

fn entry(row: Entry) -> Result<InboxEntry> {
    let key = InboxKey::new(row.source, row.message_id)?;
    let mut entry = InboxEntry::new(key, EntryState::from_code(row.state)?, moment(row.first_seen_at));
    entry.hash = row.hash.as_deref().and_then(ContentHash::from_hex);
    entry.last_seen_at = moment(row.last_seen_at);
    entry.processed_at = row.processed_at.map(moment);
    entry.attempts = row.attempts;
    entry.generation = row.generation;
    entry.owner = row.owner.map(OwnerToken::from_uuid);
    entry.locked_until = row.locked_until.map(moment);
    entry.last_error = row.last_error;
    entry.work_item = row.work_item.map(WorkItemId::from_uuid);
    entry.topic = row.topic;
    Ok(entry)
}

fn moment(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_either_dialect_are_read() {
        assert!(changed("t", &["[true]".to_owned()]).unwrap() && changed("t", &["[1]".to_owned()]).unwrap());
        assert!(
            !changed("t", &["[0]".to_owned()]).unwrap() && !changed("t", &["[null]".to_owned()]).unwrap()
        );
        assert!(changed("t", &[]).is_err());
        let busy = begun(&[r#"["busy",null,null,1000000,5,false]"#.to_owned()]).unwrap();
        let until = Timestamp::from_second(1).unwrap();
        let wait = Duration::from_micros(5);
        assert_eq!(busy, BeginAnswer::Busy { until, wait, hash_mismatch: false });
        assert!(begun(&[r#"["new",null,null,null,null,0]"#.to_owned()]).is_err());
        let id = Uuid::now_v7();
        for text in [id.to_string(), id.simple().to_string().to_uppercase()] {
            let answer = format!(r#"["{text}","in-progress",1]"#);
            let received = received(&[answer]).unwrap()[0];
            assert_eq!(received.work_item, Some(WorkItemId::from_uuid(id)));
            assert_eq!((received.outcome, received.hash_mismatch), (ReceivedOutcome::InProgress, true));
        }
    }
}
