//! Mainstay's types as parameters of statements, in the order of `queries/queue.sql`.

use mainstay_core::OwnerToken;
use mainstay_core::inbox::PreparedIncoming;
use mainstay_core::outbox::{MessageFilter, PreparedMessage, When};
use mainstay_core::queue::{ClaimHandle, Settlement, Status};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::moment::Moment;
use crate::place::Place;
use crate::pool::Parameter;

/// A due time or an expiry: absolute, or seconds from the database's now.
fn moment(when: Option<When>) -> Option<Moment> {
    match when {
        Some(When::At(time)) => Some(Moment(time)),
        _ => None,
    }
}

fn seconds(when: Option<When>) -> Option<f64> {
    match when {
        Some(When::In(duration)) => Some(duration.as_secs_f64()),
        _ => None,
    }
}

/// What a filter asks for.
pub(crate) struct Conditions<'a> {
    filter: &'a MessageFilter,
    status: Option<i16>,
    reason: Option<&'static str>,
    settled_after: Option<Moment>,
    settled_before: Option<Moment>,
}

impl<'a> Conditions<'a> {
    pub(crate) fn new(filter: &'a MessageFilter) -> Self {
        Self {
            filter,
            status: filter.status.map(Status::code),
            reason: filter.reason.map(|reason| reason.as_str()),
            settled_after: filter.settled_after.map(Moment),
            settled_before: filter.settled_before.map(Moment),
        }
    }

    pub(crate) fn parameters(&self) -> [Parameter<'_>; 6] {
        [
            (&self.filter.topic, Type::TEXT),
            (&self.status, Type::INT2),
            (&self.reason, Type::TEXT),
            (&self.filter.correlation_id, Type::TEXT),
            (&self.settled_after, Type::TIMESTAMPTZ),
            (&self.settled_before, Type::TIMESTAMPTZ),
        ]
    }
}

/// None when no message has the thing, so that nothing is sent for it, nor room made.
fn column<'a, M, T>(messages: &'a [M], value: impl Fn(&'a M) -> Option<T>) -> Option<Vec<Option<T>>> {
    let first = messages.iter().position(|message| value(message).is_some())?;
    let before = std::iter::repeat_with(|| None).take(first);
    Some(before.chain(messages[first..].iter().map(value)).collect())
}

/// One message without an idempotency key.
pub(crate) struct One<'a> {
    work_item: Uuid,
    message_id: Uuid,
    topic: &'a str,
    payload: &'a str,
    correlation_id: Option<&'a str>,
    headers: Option<String>,
    due_at: Option<Moment>,
    due_in: Option<f64>,
    ordering_key: Option<&'a str>,
    hold: bool,
    priority: i16,
    expires_at: Option<Moment>,
    expires_in: Option<f64>,
}

impl<'a> One<'a> {
    pub(crate) fn new(message: &'a PreparedMessage) -> Self {
        Self {
            work_item: message.work_item().as_uuid(),
            message_id: message.message().as_uuid(),
            topic: message.topic(),
            payload: message.payload(),
            correlation_id: message.correlation_id(),
            headers: message.headers_json(),
            due_at: moment(message.due()),
            due_in: seconds(message.due()),
            ordering_key: message.ordering_key(),
            hold: message.hold_on_failure(),
            priority: message.priority(),
            expires_at: moment(message.expires()),
            expires_in: seconds(message.expires()),
        }
    }

    /// How many parameters a message needs that has nothing but these.
    pub(crate) const PLAIN: usize = 6;

    pub(crate) fn parameters(&self) -> [Parameter<'_>; 13] {
        [
            (&self.work_item, Type::UUID),
            (&self.message_id, Type::UUID),
            (&self.topic, Type::TEXT),
            (&self.payload, Type::TEXT),
            (&self.correlation_id, Type::TEXT),
            (&self.headers, Type::TEXT),
            (&self.due_at, Type::TIMESTAMPTZ),
            (&self.due_in, Type::FLOAT8),
            (&self.ordering_key, Type::TEXT),
            (&self.hold, Type::BOOL),
            (&self.priority, Type::INT2),
            (&self.expires_at, Type::TIMESTAMPTZ),
            (&self.expires_in, Type::FLOAT8),
        ]
    }
}

/// Many messages, as arrays.
pub(crate) struct Many<'a> {
    work_items: Vec<Uuid>,
    messages: Vec<Uuid>,
    topics: Vec<&'a str>,
    payloads: Vec<&'a str>,
    correlation_ids: Option<Vec<Option<&'a str>>>,
    headers: Option<Vec<Option<String>>>,
    due_ats: Option<Vec<Option<Moment>>>,
    due_ins: Option<Vec<Option<f64>>>,
    ordering_keys: Option<Vec<Option<&'a str>>>,
    holds: Option<Vec<Option<bool>>>,
    priorities: Option<Vec<Option<i16>>>,
    expires_ats: Option<Vec<Option<Moment>>>,
    expires_ins: Option<Vec<Option<f64>>>,
    idempotency_keys: Option<Vec<Option<&'a str>>>,
    new_ids: Vec<bool>,
    own_ids: Vec<Uuid>,
    joins: Vec<Uuid>,
    places: Vec<i32>,
}

/// The joins of messages: pairs of a join and the place of a message, from 1.
fn pairs(messages: &[PreparedMessage]) -> impl Iterator<Item = (Uuid, i32)> {
    let places = messages.iter().zip(1..);
    places.flat_map(|(message, place)| message.joins().iter().map(move |join| (join.as_uuid(), place)))
}

impl<'a> Many<'a> {
    pub(crate) fn new(messages: &'a [PreparedMessage]) -> Self {
        let (joins, places) = pairs(messages).unzip();
        let item = |message: &PreparedMessage| message.work_item().as_uuid();
        Self {
            joins,
            places,
            work_items: messages.iter().map(item).collect(),
            messages: messages.iter().map(|message| message.message().as_uuid()).collect(),
            topics: messages.iter().map(PreparedMessage::topic).collect(),
            payloads: messages.iter().map(PreparedMessage::payload).collect(),
            correlation_ids: column(messages, PreparedMessage::correlation_id),
            headers: column(messages, PreparedMessage::headers_json),
            due_ats: column(messages, |message| moment(message.due())),
            due_ins: column(messages, |message| seconds(message.due())),
            ordering_keys: column(messages, PreparedMessage::ordering_key),
            holds: column(messages, |message| Some(message.hold_on_failure()).filter(|hold| *hold)),
            priorities: column(messages, |message| Some(message.priority()).filter(|level| *level != 0)),
            expires_ats: column(messages, |message| moment(message.expires())),
            expires_ins: column(messages, |message| seconds(message.expires())),
            idempotency_keys: column(messages, PreparedMessage::idempotency_key),
            new_ids: messages.iter().map(|message| !message.has_own_id()).collect(),
            own_ids: messages.iter().filter(|message| message.has_own_id()).map(item).collect(),
        }
    }

    pub(crate) fn has_keys(&self) -> bool {
        self.idempotency_keys.is_some()
    }

    pub(crate) fn has_own_ids(&self) -> bool {
        !self.own_ids.is_empty()
    }

    pub(crate) fn has_joins(&self) -> bool {
        !self.joins.is_empty()
    }

    /// What messages with joins need after all others.
    pub(crate) fn joined(&self) -> [Parameter<'_>; 2] {
        [(&self.joins, Type::UUID_ARRAY), (&self.places, Type::INT4_ARRAY)]
    }

    /// What messages with ids of the caller's own need after what plain ones do.
    pub(crate) fn own(&self) -> Parameter<'_> {
        (&self.own_ids, Type::UUID_ARRAY)
    }

    /// How many parameters messages need that have neither idempotency keys nor ids of the caller's own.
    pub(crate) const PLAIN: usize = 13;

    pub(crate) fn parameters(&self) -> [Parameter<'_>; 15] {
        [
            (&self.work_items, Type::UUID_ARRAY),
            (&self.messages, Type::UUID_ARRAY),
            (&self.topics, Type::TEXT_ARRAY),
            (&self.payloads, Type::TEXT_ARRAY),
            (&self.correlation_ids, Type::TEXT_ARRAY),
            (&self.headers, Type::TEXT_ARRAY),
            (&self.due_ats, Type::TIMESTAMPTZ_ARRAY),
            (&self.due_ins, Type::FLOAT8_ARRAY),
            (&self.ordering_keys, Type::TEXT_ARRAY),
            (&self.holds, Type::BOOL_ARRAY),
            (&self.priorities, Type::INT2_ARRAY),
            (&self.expires_ats, Type::TIMESTAMPTZ_ARRAY),
            (&self.expires_ins, Type::FLOAT8_ARRAY),
            (&self.idempotency_keys, Type::TEXT_ARRAY),
            (&self.new_ids, Type::BOOL_ARRAY),
        ]
    }
}

/// The same with every value as text, for drivers with types of their own.
#[cfg(any(feature = "sqlx", feature = "diesel", feature = "sea-orm"))]
fn many_as_text(messages: &[PreparedMessage]) -> [Option<Vec<Option<String>>>; 15] {
    type Read<'a> = Box<dyn Fn(&PreparedMessage) -> Option<String> + 'a>;
    let columns: [Read<'_>; 15] = [
        Box::new(|message| Some(message.work_item().to_string())),
        Box::new(|message| Some(message.message().to_string())),
        Box::new(|message| Some(message.topic().to_owned())),
        Box::new(|message| Some(message.payload().to_owned())),
        Box::new(|message| message.correlation_id().map(str::to_owned)),
        Box::new(|message| moment(message.due()).map(Moment::to_text)),
        Box::new(|message| message.idempotency_key().map(str::to_owned)),
        Box::new(|message| message.ordering_key().map(str::to_owned)),
        Box::new(|message| Some(message.priority().to_string())),
        Box::new(|message| moment(message.expires()).map(Moment::to_text)),
        Box::new(PreparedMessage::headers_json),
        Box::new(|message| Some(message.hold_on_failure().to_string())),
        Box::new(|message| seconds(message.due()).map(|seconds| seconds.to_string())),
        Box::new(|message| seconds(message.expires()).map(|seconds| seconds.to_string())),
        Box::new(|message| Some((!message.has_own_id()).to_string())),
    ];
    columns.map(|read| column(messages, read))
}

/// What adds messages by texts alone: the statement, and the columns.
#[cfg(any(feature = "sqlx", feature = "diesel", feature = "sea-orm"))]
pub(crate) fn addition_as_text<'s>(
    statements: &'s crate::statements::QueueStatements,
    messages: &[PreparedMessage],
) -> (&'s str, Vec<Option<Vec<Option<String>>>>) {
    let mut columns: Vec<_> = many_as_text(messages).into();
    let (joins, places): (Vec<_>, Vec<_>) =
        pairs(messages).map(|(join, place)| (Some(join.to_string()), Some(place.to_string()))).unzip();
    if joins.is_empty() {
        return (&statements.enqueue_many_as_text, columns);
    }
    columns.extend([Some(joins), Some(places)]);
    (&statements.enqueue_joined_as_text, columns)
}

/// A column of texts as PostgreSQL writes arrays, for drivers and statements that send texts alone.
pub(crate) fn array(column: Option<Vec<Option<String>>>) -> Option<String> {
    let element = |text: Option<String>| match text {
        None => "NULL".to_owned(),
        Some(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
    };
    let elements = |texts: Vec<_>| texts.into_iter().map(element).collect::<Vec<_>>().join(",");
    column.map(|texts| format!("{{{}}}", elements(texts)))
}

/// Received messages as arrays in texts, in the order of `enqueue` in `queries/inbox.sql`.
pub(crate) fn incoming_as_text(messages: &[PreparedIncoming]) -> [Option<String>; 16] {
    type Read<'a> = Box<dyn Fn(&PreparedIncoming) -> Option<String> + 'a>;
    let columns: [Read<'_>; 16] = [
        Box::new(|incoming| Some(incoming.key().source().to_owned())),
        Box::new(|incoming| Some(incoming.key().message_id().to_owned())),
        Box::new(|incoming| Some(incoming.message().topic().to_owned())),
        Box::new(|incoming| Some(incoming.message().payload().to_owned())),
        Box::new(|incoming| Some(incoming.hash().to_string())),
        Box::new(|incoming| incoming.message().correlation_id().map(str::to_owned)),
        Box::new(|incoming| moment(incoming.message().due()).map(Moment::to_text)),
        Box::new(|incoming| incoming.message().ordering_key().map(str::to_owned)),
        Box::new(|incoming| Some(incoming.message().priority().to_string())),
        Box::new(|incoming| moment(incoming.message().expires()).map(Moment::to_text)),
        Box::new(|incoming| incoming.message().headers_json()),
        Box::new(|incoming| Some(incoming.message().hold_on_failure().to_string())),
        Box::new(|incoming| seconds(incoming.message().due()).map(|seconds| seconds.to_string())),
        Box::new(|incoming| seconds(incoming.message().expires()).map(|seconds| seconds.to_string())),
        Box::new(|incoming| Some(incoming.message().work_item().to_string())),
        Box::new(|incoming| Some(incoming.message().message().to_string())),
    ];
    columns.map(|read| array(column(messages, read)))
}

/// Settlements, as arrays.
pub(crate) struct Settlements<'a> {
    owner: Uuid,
    ids: Vec<Uuid>,
    generations: Vec<i64>,
    outcomes: Vec<i16>,
    delays: Option<Vec<Option<f64>>>,
    errors: Option<Vec<Option<&'a str>>>,
    keep_payload: bool,
    places: Vec<Option<Place>>,
}

impl<'a> Settlements<'a> {
    pub(crate) fn new(owner: OwnerToken, settlements: &'a [Settlement], keep_payload: bool) -> Self {
        let delays: Vec<_> =
            settlements.iter().map(|s| s.outcome.delay().map(|delay| delay.as_secs_f64())).collect();
        let errors: Vec<_> = settlements.iter().map(|s| s.outcome.error()).collect();
        Self {
            owner: owner.as_uuid(),
            ids: settlements.iter().map(|s| s.claim.id().as_uuid()).collect(),
            generations: settlements.iter().map(|s| s.claim.generation()).collect(),
            outcomes: settlements.iter().map(|s| s.outcome.code()).collect(),
            delays: delays.iter().any(Option::is_some).then_some(delays),
            errors: errors.iter().any(Option::is_some).then_some(errors),
            keep_payload,
            places: settlements.iter().map(|s| s.claim.place().map(Place)).collect(),
        }
    }

    pub(crate) fn parameters(&self) -> [Parameter<'_>; 8] {
        [
            (&self.owner, Type::UUID),
            (&self.ids, Type::UUID_ARRAY),
            (&self.generations, Type::INT8_ARRAY),
            (&self.outcomes, Type::INT2_ARRAY),
            (&self.delays, Type::FLOAT8_ARRAY),
            (&self.errors, Type::TEXT_ARRAY),
            (&self.keep_payload, Type::BOOL),
            (&self.places, Type::TID_ARRAY),
        ]
    }
}

/// Claims as two arrays.
pub(crate) fn claims(claims: &[ClaimHandle]) -> (Vec<Uuid>, Vec<i64>) {
    claims.iter().map(|claim| (claim.id().as_uuid(), claim.generation())).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_written_as_postgresql_reads_them() {
        let column = vec![Some("a,b".to_owned()), None, Some(r#"\ " NULL"#.to_owned()), Some(String::new())];
        assert_eq!(array(Some(column)).as_deref(), Some(r#"{"a,b",NULL,"\\ \" NULL",""}"#));
        assert_eq!(array(None), None);
    }
}
