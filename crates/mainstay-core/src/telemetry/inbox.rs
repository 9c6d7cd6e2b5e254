//! Received messages.

use metrics::counter;

use crate::error::Error;
use crate::inbox::{BeginAnswer, InboxKey, PreparedIncoming, Received, ReservationEnd, Seen};

use super::labels::SOURCES;
use super::names;

pub(crate) fn received(store: &str, messages: &[PreparedIncoming], results: &[Received]) {
    for (incoming, received) in messages.iter().zip(results) {
        let (key, message, outcome) = (incoming.key(), incoming.message(), received.outcome);
        tracing::info!(
            store,
            source = key.source(),
            message_id = key.message_id(),
            topic = message.topic(),
            correlation_id = message.correlation_id(),
            work_item = received.work_item.map(tracing::field::display),
            %outcome,
            "received"
        );
        let source = || SOURCES.value(key.source());
        counter!(names::RECEIVED, "store" => store.to_owned(), "source" => source(), "outcome" => outcome.as_str())
            .increment(1);
        duplicate(store, key, outcome.is_duplicate(), received.hash_mismatch);
    }
}

fn duplicate(store: &str, key: &InboxKey, is_duplicate: bool, hash_mismatch: bool) {
    let source = || SOURCES.value(key.source());
    if is_duplicate {
        counter!(names::DUPLICATES, "store" => store.to_owned(), "source" => source()).increment(1);
    }
    if hash_mismatch {
        let message_id = key.message_id();
        tracing::warn!(store, source = key.source(), message_id, "a known message came with another content");
        counter!(names::HASH_MISMATCHES, "store" => store.to_owned(), "source" => source()).increment(1);
    }
}

/// A message that is done already is a duplicate for sure; any other may be on its first way.
pub(crate) fn seen(store: &str, key: &InboxKey, seen: &Seen) {
    let (source, message_id) = (key.source(), key.message_id());
    tracing::debug!(store, source, message_id, processed = seen.processed, "asked whether it is processed");
    duplicate(store, key, seen.processed, seen.hash_mismatch);
}

pub(crate) fn begun(store: &str, key: &InboxKey, answer: &BeginAnswer) {
    let outcome = match answer {
        BeginAnswer::New(_) => "new",
        BeginAnswer::Busy { .. } => "busy",
        BeginAnswer::Done { .. } => "done",
        BeginAnswer::Dead { .. } => "dead",
    };
    tracing::debug!(store, source = key.source(), message_id = key.message_id(), outcome, "began");
    counter!(names::BEGUN, "store" => store.to_owned(), "outcome" => outcome).increment(1);
    duplicate(store, key, matches!(answer, BeginAnswer::Done { .. }), answer.hash_mismatch());
}

pub(crate) fn guard_ended(store: &str, key: &InboxKey, end: &ReservationEnd) {
    let (source, message_id) = (key.source(), key.message_id());
    let outcome = match end {
        ReservationEnd::Complete => {
            tracing::debug!(store, source, message_id, "completed");
            "complete"
        }
        ReservationEnd::Fail(error) => {
            tracing::error!(store, source, message_id, error, "given up");
            "fail"
        }
        ReservationEnd::Release(Some(error)) => {
            tracing::error!(store, source, message_id, error, "an attempt failed; given back");
            "release"
        }
        ReservationEnd::Release(None) => {
            tracing::debug!(store, source, message_id, "given back");
            "release"
        }
    };
    counter!(names::GUARDS_ENDED, "store" => store.to_owned(), "outcome" => outcome).increment(1);
}

pub(crate) fn guard_lost(store: &str, key: &InboxKey) {
    let (source, message_id) = (key.source(), key.message_id());
    tracing::warn!(store, source, message_id, "a reservation was lost; what runs under it must stop");
    counter!(names::GUARDS_ENDED, "store" => store.to_owned(), "outcome" => "lost").increment(1);
}

/// A reservation could not be given back at its end.
pub(crate) fn guard_unreleased(store: &str, key: &InboxKey, error: &Error) {
    let (source, message_id) = (key.source(), key.message_id());
    tracing::warn!(store, source, message_id, %error, "a reservation could not be given back; it lapses by itself");
}

pub(crate) fn marked(store: &str, key: &InboxKey, mark: &'static str, changed: bool) {
    let (source, message_id) = (key.source(), key.message_id());
    tracing::debug!(store, source, message_id, mark, changed, "marked");
    if changed {
        counter!(names::MARKED, "store" => store.to_owned(), "mark" => mark).increment(1);
    }
}

/// What an operator did to dead messages, each of them by its key.
pub(crate) fn revived(store: &str, keys: &[InboxKey]) {
    for key in keys {
        let (source, message_id) = (key.source(), key.message_id());
        tracing::info!(store, action = "revive", source, message_id, "changed by an operator");
    }
    if !keys.is_empty() {
        counter!(names::REVIVED, "store" => store.to_owned()).increment(keys.len() as u64);
    }
}

pub(crate) fn forgotten(store: &str, count: u64) {
    if count > 0 {
        tracing::info!(store, count, "forgot settled messages past their retention");
        counter!(names::FORGOTTEN, "store" => store.to_owned()).increment(count);
    }
}
