//! Many databases, and nodes that share them.

use std::time::Duration;

use metrics::{counter, gauge};

use crate::error::Error;
use crate::fleet::{BreakerState, FleetStatus, Refreshed, StoreState};

use super::names;

/// A node has become a member of a fleet.
pub(crate) fn assignment_joined(store: &str, fleet: &str, owner: &str, seat: u32) {
    tracing::info!(store, fleet, owner, seat, "joined the fleet");
}

/// A node may not join a fleet, because a member puts databases into other buckets.
pub(crate) fn assignment_refused(store: &str, fleet: &str, agreement: &str, seat: u32, says: &str) {
    tracing::warn!(
        store,
        fleet,
        here = agreement,
        there = says,
        seat,
        "not joining the fleet: a member counts buckets otherwise, and both would work on the same database"
    );
}

/// Buckets changed hands, by this node's own decision.
pub(crate) fn assignment_changed(store: &str, fleet: &str, taken: usize, given: usize) {
    tracing::info!(store, fleet, taken, given, "shares of the fleet have changed");
}

pub(crate) fn assignment_owned(store: &str, fleet: &str, buckets: usize) {
    tracing::debug!(store, fleet, buckets, "owned buckets have changed");
    gauge!(names::FLEET_BUCKETS, "store" => store.to_owned(), "fleet" => fleet.to_owned())
        .set(buckets as f64);
}

pub(crate) fn assignment_members(store: &str, fleet: &str, members: usize) {
    gauge!(names::FLEET_MEMBERS, "store" => store.to_owned(), "fleet" => fleet.to_owned())
        .set(members as f64);
}

/// A database of a fleet has failed and is left alone for a while. Only the first failure of several is worth a warning.
pub(crate) fn store_failed(store: &str, error: &Error, pause: Duration, news: bool) {
    counter!(names::FLEET_FAILURES, "store" => store.to_owned()).increment(1);
    if news {
        tracing::warn!(store, %error, ?pause, "a database of the fleet has failed; it is left alone for a while");
    } else {
        tracing::debug!(store, %error, ?pause, "a database of the fleet still fails");
    }
}

/// A database of a fleet that rests is looked at.
pub(crate) fn store_looked_at(provider: &'static str) {
    counter!(names::FLEET_LOOKS, "store" => FLEET, "provider" => provider).increment(1);
}

/// A database of a fleet has its connections and is worked on; or no longer, and why.
pub(crate) fn store_turn(store: &str, what: &'static str) {
    tracing::debug!(store, what, "the turn of a database of the fleet");
}

/// A database of a fleet that had failed answers again.
pub(crate) fn store_recovered(store: &str) {
    tracing::info!(store, "a database of the fleet is well again");
}

/// Databases of a fleet can't be watched from outside, so they are looked at more often. Only the first failure of several is worth a warning.
pub(crate) fn watch_failed(place: &str, error: &Error, pause: Duration, news: bool) {
    if news {
        tracing::warn!(store = FLEET, place, %error, ?pause, "writes to databases of the fleet can't be seen from outside; they are looked at instead");
    } else {
        tracing::debug!(store = FLEET, place, %error, ?pause, "writes to databases of the fleet still can't be seen from outside");
    }
}

/// Databases of a fleet are watched again.
pub(crate) fn watch_recovered(place: &str) {
    tracing::info!(store = FLEET, place, "writes to databases of the fleet are seen from outside again");
}

/// Work was found in a database of a fleet, several times, that nobody had seen being written.
pub(crate) fn watch_distrusted(store: &str) {
    tracing::info!(
        store,
        "writes to a database of the fleet are not seen from outside as they should be; it is looked at more often"
    );
}

/// Discovery has answered.
pub(crate) fn fleet_refreshed(refreshed: &Refreshed) {
    let Refreshed { added, removed, replaced, kept, refused } = refreshed;
    for (store, error) in refused {
        tracing::warn!(
            store,
            error,
            "the entry of a database of the fleet can't be used; if the database was running, it keeps running by its previous entry. \
             Fix the entry: the next refresh tries it again"
        );
    }
    if added.len() + removed.len() + replaced.len() > 0 {
        tracing::info!(
            store = FLEET,
            added = added.len(),
            removed = removed.len(),
            replaced = replaced.len(),
            kept = kept.len(),
            "the databases of the fleet have changed"
        );
    }
}

/// Discovery has failed; the fleet stays as it is.
pub(crate) fn fleet_not_refreshed(error: &Error) {
    tracing::warn!(store = FLEET, %error, "the databases of the fleet could not be discovered; they stay as they are");
}

/// How the fleet is.
pub(crate) fn fleet_gauges(status: &FleetStatus) {
    for state in StoreState::ALL {
        let count = status.stores.iter().filter(|store| store.state == state).count();
        gauge!(names::FLEET_STATES, "store" => FLEET, "state" => state.as_str()).set(count as f64);
    }
    let running = status.stores.iter().filter(|store| store.state != StoreState::Refused).count();
    gauge!(names::FLEET_STORES, "store" => FLEET).set(running as f64);
    let refused = status.stores.iter().filter(|store| store.entry_error.is_some()).count();
    gauge!(names::FLEET_REFUSED, "store" => FLEET).set(refused as f64);
    let failing = status.stores.iter().filter(|store| store.breaker != BreakerState::Closed).count();
    gauge!(names::FLEET_SICK, "store" => FLEET).set(failing as f64);
    let watched = status.stores.iter().filter(|store| store.watched).count();
    gauge!(names::FLEET_WATCHED, "store" => FLEET).set(watched as f64);
    gauge!(names::FLEET_CONNECTIONS, "store" => FLEET).set(status.connections.used as f64);
    gauge!(names::FLEET_BUDGET, "store" => FLEET).set(status.connections.budget as f64);
    gauge!(names::FLEET_WAITING, "store" => FLEET).set(status.connections.waiting as f64);
}

/// Sharing the databases with other nodes has broken off; it is taken up again.
pub(crate) fn fleet_not_shared(error: &Error) {
    tracing::error!(store = FLEET, %error, "sharing the databases of the fleet broke off; none is worked on until it is taken up again");
}

/// Stands for all databases of a fleet.
const FLEET: &str = "fleet";
