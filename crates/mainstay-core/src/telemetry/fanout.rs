//! Fan-outs.

use std::time::Duration;

use metrics::counter;

use crate::error::Error;
use crate::fanout::{FanoutKey, FanoutPolicy};

use super::names;

pub(crate) fn fanout_registered(store: &str, policy: &FanoutPolicy) {
    let FanoutPolicy { key, version, enabled, .. } = policy;
    tracing::info!(store, fanout = %key, version, enabled, "the fan-out is registered");
}

/// What somebody did to a fan-out.
pub(crate) fn fanout_administered(store: &str, action: &'static str, key: &FanoutKey) {
    tracing::info!(store, action, fanout = %key, "changed by an operator");
    counter!(names::FANOUT_ADMINISTERED, "store" => store.to_owned(), "action" => action).increment(1);
}

/// This process coordinates the fan-out from now on.
pub(crate) fn fanout_term(store: &str, key: &FanoutKey, epoch: i64) {
    tracing::info!(store, fanout = %key, epoch, "coordinating the fan-out");
}

pub(crate) fn fanout_dispatched(store: &str, key: &FanoutKey, count: u64) {
    tracing::info!(store, fanout = %key, count, "slices were put into the outbox");
    counter!(names::FANOUT_DISPATCHED, "store" => store.to_owned(), "fanout" => key.to_string())
        .increment(count);
}

pub(crate) fn fanout_completed(store: &str, key: &FanoutKey, shard: &str, moved: bool) {
    tracing::debug!(store, fanout = %key, shard, moved, "a slice is completed");
    if moved {
        counter!(names::FANOUT_COMPLETED, "store" => store.to_owned(), "fanout" => key.to_string())
            .increment(1);
    }
}

/// A slice's message is done, but its cursor could not be moved.
pub(crate) fn fanout_not_completed(store: &str, key: &FanoutKey, shard: &str, error: &Error) {
    tracing::warn!(store, fanout = %key, shard, %error, "the cursor could not be moved; the shard comes round by its cadence");
}

/// A fan-out was last run at a time that is still to come.
pub(crate) fn fanout_was_ahead(store: &str, policy: &FanoutPolicy) {
    let FanoutPolicy { key, last_run_at, since_at, .. } = policy;
    tracing::warn!(store, fanout = %key, ?last_run_at, %since_at, "the database's clock was set back; occurrences count from now on");
}

/// The application's planner has not returned for so long.
pub(crate) fn fanout_planning(store: &str, key: &FanoutKey, since: Duration) {
    tracing::warn!(store, fanout = %key, ?since, "the planner has not returned; nothing of the fan-out is dispatched until it does");
}

/// A pass of a coordinator has failed, and will be made again.
pub(crate) fn fanout_failed(store: &str, key: &FanoutKey, error: &Error, pause: Duration) {
    tracing::warn!(store, fanout = %key, %error, ?pause, "a pass of the fan-out failed");
    counter!(names::FANOUT_FAILED, "store" => store.to_owned(), "fanout" => key.to_string()).increment(1);
}

/// Which fan-outs there are, or a coordinator of one, is not as it should be.
pub(crate) fn fanouts_unknown(store: &str, error: &Error) {
    tracing::warn!(store, %error, "fan-outs of the database can't be coordinated for now; tried again later");
}

/// Slices were to be made whose messages are there already.
pub(crate) fn fanout_known(store: &str, key: &FanoutKey, count: u64) {
    tracing::warn!(store, fanout = %key, count, "slices were made before: somebody has put their cursors back");
}

/// A planner gave shard keys that are empty or too long, or have a NUL character.
pub(crate) fn fanout_refused(store: &str, key: &FanoutKey, count: u64) {
    if count > 0 {
        tracing::warn!(store, fanout = %key, count, "shard keys must be 1 to 256 characters without NUL; others are left out");
        counter!(names::FANOUT_REFUSED, "store" => store.to_owned(), "fanout" => key.to_string())
            .increment(count);
    }
}
