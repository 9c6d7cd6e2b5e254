//! Mainstay's types as arguments of the procedures.
//!
//! A procedure gets only those arguments that there are: the driver sends a null without a type, which not every engine takes. Lists go as one
//! JSON text, which the procedures read with OPENJSON.

use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::OwnerToken;
use mainstay_core::WorkItemId;
use mainstay_core::audit::Actor;
use mainstay_core::outbox::{PreparedMessage, When};
use mainstay_core::queue::{ClaimHandle, Settlement};
use mainstay_core::store::{Argument, Names, Step};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// The name of a procedure, or of anything else that is named after a table: `"schema"."table_Ending"`.
pub(crate) fn named(names: &Names, table: &str, ending: &str) -> String {
    let quoted = |name: &str| name.replace('"', "\"\"");
    format!("\"{}\".\"{}_{ending}\"", quoted(names.schema()), quoted(table))
}

/// A call of a procedure, in the making.
pub(crate) struct Call {
    sql: String,
    arguments: Vec<Argument>,
}

impl Call {
    pub(crate) fn new(procedure: &str) -> Self {
        Self { sql: format!("EXEC {procedure}"), arguments: Vec::new() }
    }

    fn with(mut self, name: &str, argument: Argument) -> Self {
        let separator = if self.arguments.is_empty() { " " } else { ", " };
        self.arguments.push(argument);
        // Writing into a text can't fail.
        let _ = write!(self.sql, "{separator}@{name} = @P{}", self.arguments.len());
        self
    }

    pub(crate) fn text(self, name: &str, text: impl Into<String>) -> Self {
        self.with(name, Argument::Text(text.into()))
    }

    pub(crate) fn maybe_text(self, name: &str, text: Option<impl Into<String>>) -> Self {
        match text {
            Some(text) => self.text(name, text),
            None => self,
        }
    }

    pub(crate) fn integer(self, name: &str, number: impl Into<i64>) -> Self {
        self.with(name, Argument::Integer(number.into()))
    }

    pub(crate) fn maybe_integer(self, name: &str, number: Option<impl Into<i64>>) -> Self {
        match number {
            Some(number) => self.integer(name, number),
            None => self,
        }
    }

    pub(crate) fn id(self, name: &str, id: Uuid) -> Self {
        self.text(name, id.to_string())
    }

    pub(crate) fn maybe_id(self, name: &str, id: Option<Uuid>) -> Self {
        self.maybe_text(name, id.map(|id| id.to_string()))
    }

    pub(crate) fn owner(self, owner: OwnerToken) -> Self {
        self.id("OwnerToken", owner.as_uuid())
    }

    /// Seconds with their fractions.
    pub(crate) fn seconds(self, name: &str, duration: Duration) -> Self {
        self.text(name, duration.as_secs_f64().to_string())
    }

    pub(crate) fn maybe_seconds(self, name: &str, duration: Option<Duration>) -> Self {
        match duration {
            Some(duration) => self.seconds(name, duration),
            None => self,
        }
    }

    pub(crate) fn maybe_moment(self, name: &str, moment: Option<Timestamp>) -> Self {
        self.maybe_text(name, moment.map(written))
    }

    pub(crate) fn flag(self, name: &str, flag: bool) -> Self {
        self.integer(name, i64::from(flag))
    }

    /// Topics; an empty list is none.
    pub(crate) fn topics(self, name: &str, topics: &[String]) -> Self {
        self.maybe_text(
            name,
            Some(topics).filter(|topics| !topics.is_empty()).map(|topics| topics.join(SEPARATOR)),
        )
    }

    /// Who does it by hand, if somebody does.
    pub(crate) fn actor(self, by: Option<&Actor>) -> Self {
        self.maybe_text("Actor", by.map(Actor::as_str))
            .maybe_text("ActorCorrelationId", by.and_then(Actor::correlation_id))
    }

    /// With what was counted for joins, in results of its own.
    pub(crate) fn telling_of_joins(self) -> Self {
        self.flag("TellJoins", true)
    }

    pub(crate) fn step(self) -> Step {
        Step { sql: self.sql.into(), arguments: self.arguments }
    }
}

/// A time as the server reads it, whatever its language: in UTC, without saying so.
pub(crate) fn written(moment: Timestamp) -> String {
    // The server has no years before the first and none after the last.
    let moment = moment.clamp(FIRST, LAST);
    jiff::tz::TimeZone::UTC.to_datetime(moment).strftime("%Y-%m-%dT%H:%M:%S.%6f").to_string()
}

/// The first of the year 1, and nearly the end of the year 9999.
const FIRST: Timestamp = Timestamp::constant(-62_135_596_800, 0);
const LAST: Timestamp = Timestamp::constant(253_402_128_000, 0);

/// A duration in microseconds, rounded up: a lease or delay is never shorter than asked for.
pub(crate) fn span(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}

fn when(object: &mut Map<String, Value>, at: &str, within: &str, when: Option<When>) {
    match when {
        Some(When::At(moment)) => drop(object.insert(at.to_owned(), written(moment).into())),
        Some(When::In(duration)) => drop(object.insert(within.to_owned(), span(duration).into())),
        None => {}
    }
}

/// A text for a list, which the procedures undo. JSON has escapes of its own for what is replaced here, but not every engine undoes those.
pub(crate) fn listed(text: &str) -> Value {
    if !text.contains(|c: char| c < ' ' || matches!(c, '~' | '"' | '\\')) {
        return Value::from(text);
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '~' => plain.push_str("~0"),
            '"' => plain.push_str("~1"),
            '\\' => plain.push_str("~2"),
            // Each has a sign of its own, from `A` on.
            c if c < ' ' => plain.extend(['~', char::from(b'@' + c as u8)]),
            c => plain.push(c),
        }
    }
    Value::from(plain)
}

/// What stands between the texts of a list that has nothing but texts.
pub(crate) const SEPARATOR: &str = "\u{1f}";

/// A message as an object, at its place from 1.
pub(crate) fn message(place: usize, message: &PreparedMessage) -> Map<String, Value> {
    let mut object = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            object.insert(name.to_owned(), value);
        }
    };
    set("n", Some(place.into()));
    set("id", Some(message.work_item().to_string().into()));
    set("new_id", (!message.has_own_id()).then(|| 1.into()));
    set("message_id", Some(message.message().to_string().into()));
    set("topic", Some(listed(message.topic())));
    set("correlation_id", message.correlation_id().map(listed));
    set("idempotency_key", message.idempotency_key().map(listed));
    set("ordering_key", message.ordering_key().map(listed));
    set("hold", message.hold_on_failure().then(|| 1.into()));
    set("priority", Some(message.priority()).filter(|level| *level != 0).map(Into::into));
    let joins: Vec<Value> = message.joins().iter().map(|join| join.to_string().into()).collect();
    set("joins", Some(joins).filter(|joins| !joins.is_empty()).map(Into::into));
    when(&mut object, "due_at", "due_in", message.due());
    when(&mut object, "expires_at", "expires_in", message.expires());
    object
}

/// Messages as a list of objects, and their bodies.
pub(crate) fn messages(messages: &[PreparedMessage]) -> (String, String) {
    let list = messages.iter().zip(1..).map(|(each, place)| Value::Object(message(place, each)));
    let bodies = bodies(messages.iter().map(|each| (each.payload(), each.headers_json())));
    (Value::Array(list.collect()).to_string(), bodies)
}

/// The payload and the headers of each, one after the other, in a list of their own: within objects not every engine reads texts of any length.
pub(crate) fn bodies<'a>(all: impl Iterator<Item = (&'a str, Option<String>)>) -> String {
    let pair = |(payload, headers): (&str, Option<String>)| {
        [listed(payload), headers.map_or(Value::Null, |headers| listed(&headers))]
    };
    Value::Array(all.flat_map(pair).collect()).to_string()
}

/// Settlements as a list of objects.
pub(crate) fn settlements(settlements: &[Settlement]) -> String {
    let object = |settlement: &Settlement| {
        let mut object = json!({
            "id": settlement.claim.id(),
            "generation": settlement.claim.generation(),
            "outcome": settlement.outcome.code(),
        });
        if let Some(delay) = settlement.outcome.delay() {
            object["delay"] = span(delay).into();
        }
        if let Some(error) = settlement.outcome.error() {
            object["error"] = listed(error);
        }
        object
    };
    Value::Array(settlements.iter().map(object).collect()).to_string()
}

/// Claims as a list of objects.
pub(crate) fn claims(claims: &[ClaimHandle]) -> String {
    let object = |claim: &ClaimHandle| json!({ "id": claim.id(), "generation": claim.generation() });
    Value::Array(claims.iter().map(object).collect()).to_string()
}

/// Ids as a list of objects.
pub(crate) fn ids(ids: &[WorkItemId]) -> String {
    Value::Array(ids.iter().map(|id| json!({ "id": id })).collect()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_arguments_that_are_there_are_sent() {
        let names = Names::default().with_schema("a\"b").unwrap();
        let call = Call::new(&named(&names, "Outbox", "Claim"))
            .integer("A", 1)
            .maybe_text("B", None::<&str>)
            .text("C", "c");
        let step = call.step();
        assert_eq!(&*step.sql, r#"EXEC "a""b"."Outbox_Claim" @A = @P1, @C = @P2"#);
        assert!(step.arguments == [Argument::Integer(1), Argument::Text("c".into())]);
    }

    #[test]
    fn texts_of_lists_need_no_escapes_of_json() {
        let odd = "a~b\"c\\d\ne\u{1f}f\u{1}😀/";
        assert_eq!(listed(odd), Value::from("a~0b~1c~2d~Je~_f~A😀/"));
        assert_eq!(listed(odd).to_string(), "\"a~0b~1c~2d~Je~_f~A😀/\"");
        assert_eq!(listed("plain"), Value::from("plain"));
    }

    #[test]
    fn times_are_written_in_utc_and_within_the_calendar() {
        assert_eq!(
            written("2026-11-16T12:00:00.1234567+01:00".parse().unwrap()),
            "2026-11-16T11:00:00.123456"
        );
        assert_eq!(written(Timestamp::MIN), "0001-01-01T00:00:00.000000");
        assert_eq!(written(Timestamp::MAX), "9999-12-30T00:00:00.000000");
        assert_eq!(span(Duration::from_nanos(1)), 1);
    }
}
