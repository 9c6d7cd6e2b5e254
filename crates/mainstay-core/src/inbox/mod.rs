//! The inbox: messages that come from elsewhere, each handled once however often it is delivered.
//!
//! A ledger knows every message by its source and id, and whether it is done. Three ways to use it, from the bottom up: ask and mark
//! by hand ([`Inbox::already_processed`]), reserve a message while it is handled ([`Inbox::begin`], [`Inbox::process_once`]), or
//! put it into a durable queue and let handlers have it ([`Inbox::enqueue`]).

pub mod answer;
mod client;
mod elsewhere;
mod entry;
mod filter;
mod guard;
mod hash;
mod incoming;
mod key;
mod once;
mod outcome;
mod retention;

pub use client::Inbox;
pub use entry::{EntryState, InboxEntry, InboxStats, LedgerStats};
pub use filter::{InboxFilter, InboxPage};
pub use guard::{Guard, GuardOptions};
pub use hash::ContentHash;
pub use incoming::{Incoming, PreparedIncoming};
pub(crate) use incoming::{MESSAGE_ID, SOURCE};
pub use key::InboxKey;
pub use once::Once;
pub use outcome::{
    Begin, BeginAnswer, Mark, Received, ReceivedOutcome, Reservation, ReservationEnd, Reserved, Seen,
};
pub use retention::InboxRetention;
