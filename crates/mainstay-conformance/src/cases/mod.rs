//! The cases, by topic. A file registers its functions once, at its head; one that is not registered is dead code
//! and does not compile.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a case fails by panicking")]

mod abandon;
mod ack;
mod claim;
mod concurrency;
mod crash;
mod effects;
mod enqueue;
mod fail;
mod input;
mod limits;
mod observability;
mod ordering;
mod reap;
mod replay;
mod retention;
mod schema;
mod security;

use crate::case::Case;

/// Every case of the contract.
pub fn all() -> Vec<Case> {
    [
        abandon::CASES,
        ack::CASES,
        claim::CASES,
        concurrency::CASES,
        crash::CASES,
        effects::CASES,
        enqueue::CASES,
        fail::CASES,
        input::CASES,
        limits::CASES,
        observability::CASES,
        ordering::CASES,
        reap::CASES,
        replay::CASES,
        retention::CASES,
        schema::CASES,
        security::CASES,
    ]
    .concat()
}
