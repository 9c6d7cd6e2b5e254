//! Joins: several steps, and what is to happen when they have ended.
//!
//! A step is mostly a message of the outbox. The settle that ends the last of them ends the join and enqueues its continuation,
//! in one transaction, so there is no moment at which all steps are done and nobody has noticed. Steps that are no messages are
//! reported by hand.

pub mod answer;
mod client;
mod filter;
mod new;
mod options;
mod outcome;
mod record;
mod retention;
mod service;
mod wait;

pub use client::Joins;
pub use filter::{JoinFilter, JoinPage, MemberPage};
pub use new::{JoinMode, NewJoin, PreparedJoin};
pub use options::JoinOptions;
pub use outcome::{Attached, CancelledJoin, Counted, Reported, Step};
pub use record::{Join, JoinMember, JoinReason, JoinState, JoinStats, MemberState};
pub use retention::JoinRetention;
pub use service::{JoinGauges, JoinService, JoinSweep};
pub use wait::{JOIN_WAIT, WaitOptions, wait_handler};

/// What follows [`crate::outbox::RESERVED_HEADER`] in the header that tells which join a message continues.
pub(crate) const JOIN: &str = "join";
