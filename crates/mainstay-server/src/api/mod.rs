//! The operations, one file for each thing they are on.

mod audit;
mod fanout;
mod inbox;
mod jobs;
mod joins;
mod leases;
mod mending;
mod message;
mod operations;
mod outbox;
mod owner;
mod pausing;
mod reservations;
mod stats;
mod stores;
mod time;
mod timers;
mod work;

pub(crate) use stats::Counts;

use crate::endpoint::Endpoints;

/// All of them.
pub(crate) fn endpoints(all: &mut Endpoints) {
    outbox::endpoints(all);
    inbox::endpoints(all);
    pausing::endpoints(all);
    timers::endpoints(all);
    jobs::endpoints(all);
    leases::endpoints(all);
    joins::endpoints(all);
    fanout::endpoints(all);
    operations::endpoints(all);
    audit::endpoints(all);
    stats::endpoints(all);
    stores::endpoints(all);
}
