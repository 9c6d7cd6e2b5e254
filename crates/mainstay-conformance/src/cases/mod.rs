//! The cases, by topic. A file registers its functions once, at its head; one that is not registered is dead code
//! and does not compile.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a case fails by panicking")]

mod abandon;
mod ack;
mod administration;
mod assignment;
mod audit;
mod claim;
mod concurrency;
mod crash;
mod dedupe;
mod delivery;
mod doctor;
mod effects;
mod elsewhere;
mod enqueue;
mod export;
mod fail;
mod fanout;
mod fanout_clock;
mod fanout_cursors;
mod fanout_planners;
mod fanout_policy;
mod fanout_runs;
mod fanout_service;
mod fleet;
mod fleet_due;
mod fleet_selection;
mod fleet_shares;
mod fleet_sharing;
mod fleet_trouble;
mod fleet_watch;
mod forget;
mod fuzz;
mod guard;
mod handlers;
mod health;
mod inbox_engine;
mod inbox_service;
mod input;
mod job_races;
mod job_runs;
mod job_waits;
mod jobs;
mod join_counting;
mod join_ends;
mod join_races;
mod join_wait;
mod joins;
mod lease;
mod lease_guard;
mod lease_keeping;
mod lease_many;
mod limits;
mod mishaps;
mod observability;
mod operation_scope;
mod operations;
mod ordering;
mod pause;
mod reap;
mod receive;
mod receive_again;
mod recording;
mod replay;
mod retention;
mod retry;
mod scheduling;
mod schema;
mod security;
mod service;
mod timer_claims;
mod timer_firing;
mod timers;
mod wait;
mod watchdog;

use crate::case::Case;

/// Every case of the contract.
pub fn all() -> Vec<Case> {
    [
        abandon::CASES,
        ack::CASES,
        assignment::CASES,
        administration::CASES,
        recording::CASES,
        audit::CASES,
        claim::CASES,
        concurrency::CASES,
        crash::CASES,
        dedupe::CASES,
        delivery::CASES,
        effects::CASES,
        elsewhere::CASES,
        enqueue::CASES,
        export::CASES,
        fail::CASES,
        fanout::CASES,
        fanout_planners::CASES,
        fanout_policy::CASES,
        fanout_clock::CASES,
        fanout_cursors::CASES,
        fanout_runs::CASES,
        fanout_service::CASES,
        fleet::CASES,
        fleet_due::CASES,
        fleet_selection::CASES,
        fleet_sharing::CASES,
        fleet_shares::CASES,
        fleet_trouble::CASES,
        fleet_watch::CASES,
        forget::CASES,
        fuzz::CASES,
        guard::CASES,
        handlers::CASES,
        doctor::CASES,
        watchdog::CASES,
        health::CASES,
        inbox_engine::CASES,
        inbox_service::CASES,
        input::CASES,
        job_runs::CASES,
        job_waits::CASES,
        jobs::CASES,
        join_ends::CASES,
        job_races::CASES,
        join_races::CASES,
        join_wait::CASES,
        joins::CASES,
        join_counting::CASES,
        lease::CASES,
        lease_guard::CASES,
        lease_keeping::CASES,
        lease_many::CASES,
        limits::CASES,
        mishaps::CASES,
        observability::CASES,
        operation_scope::CASES,
        operations::CASES,
        ordering::CASES,
        pause::CASES,
        reap::CASES,
        receive::CASES,
        receive_again::CASES,
        replay::CASES,
        retention::CASES,
        retry::CASES,
        scheduling::CASES,
        schema::CASES,
        security::CASES,
        service::CASES,
        timer_claims::CASES,
        timer_firing::CASES,
        timers::CASES,
        wait::CASES,
    ]
    .concat()
}
