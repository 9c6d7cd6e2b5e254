//! How values stand in the tables: ids as 16-byte blobs, moments as microseconds, headers as a JSON object.
//!
//! Other languages write to these tables too. What they can get past the constraints (a text that is not UTF-8, headers that
//! are not an object of texts) is read as well as possible and never refused: one odd row must not stop a whole claim.

use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::outbox::Headers;
use rusqlite::Row;
use rusqlite::types::ValueRef;
use uuid::Uuid;

/// The first and the last moment there is, for open ends of ranges.
pub(crate) const EVER: (i64, i64) = (i64::MIN, i64::MAX);

pub(crate) fn micros(moment: Timestamp) -> i64 {
    moment.as_microsecond()
}

/// A duration in microseconds, rounded up: a lease or delay is never shorter than asked for.
pub(crate) fn span(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}

/// `now` and `duration` later, within what the tables can hold.
pub(crate) fn after(now: i64, duration: Duration) -> i64 {
    now.saturating_add(span(duration)).min(LAST)
}

/// The end of a lease that is granted at `now`.
pub(crate) fn lease_end(now: i64, lease: Duration) -> i64 {
    now.saturating_add(lease_span(lease)).min(LAST)
}

/// A lease in microseconds, to be added to SQLite's clock. That counts whole milliseconds and cuts the rest off, so a lease that is
/// granted late in one would lapse too early without these microseconds.
pub(crate) fn lease_span(lease: Duration) -> i64 {
    span(lease).saturating_add(999)
}

/// The end of the last day that a calendar has; the tables hold nothing later.
const LAST: i64 = 253_402_207_200_000_000;

pub(crate) fn moment(micros: i64) -> Timestamp {
    // The constraints keep moments within a calendar's years; history rows edited by hand may say anything.
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

pub(crate) fn moment_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(moment)
}

pub(crate) fn maybe_moment_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(moment))
}

pub(crate) fn uuid_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Uuid> {
    row.get(column).map(Uuid::from_bytes)
}

pub(crate) fn maybe_uuid_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Uuid>> {
    Ok(row.get::<_, Option<[u8; 16]>>(column)?.map(Uuid::from_bytes))
}

pub(crate) fn text_at(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(maybe_text_at(row, column)?.unwrap_or_default())
}

pub(crate) fn maybe_text_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Null => None,
    })
}

pub(crate) fn headers_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Headers> {
    Ok(maybe_text_at(row, column)?.map(|json| headers(&json)).unwrap_or_default())
}

fn headers(json: &str) -> Headers {
    let Ok(serde_json::Value::Object(map)) = serde_json::from_str(json) else { return Headers::new() };
    let text = |value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    map.into_iter().map(|(name, value)| (name, text(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_never_shorter_than_asked_for_by_a_clock_of_whole_milliseconds() {
        // By SQLite's clock at a moment in microseconds.
        let clock = |moment: i64| moment / 1_000 * 1_000;
        for asked_at in [0, 1, 499, 500, 999, 1_000, 1_234_567] {
            for micros in [1, 999, 1_000, 1_001, 30_000_000] {
                let end = lease_end(clock(asked_at), Duration::from_micros(micros));
                let held_until = asked_at + i64::try_from(micros).unwrap();
                let lapses = (asked_at..).find(|moment| clock(*moment).ge(&end)).unwrap();
                assert!(lapses >= held_until, "asked at {asked_at} for {micros}");
                assert!(lapses <= held_until + 2_000, "asked at {asked_at} for {micros}");
            }
        }
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

    #[test]
    fn durations_are_rounded_up_and_bounded() {
        assert_eq!(span(Duration::from_nanos(1)), 1);
        assert_eq!(span(Duration::MAX), i64::MAX);
        assert_eq!(after(5, Duration::MAX), LAST);
        assert_eq!(moment(i64::MAX), Timestamp::MAX);
    }
}
