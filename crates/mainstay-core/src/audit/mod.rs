//! The audit trail: who did what to what, and what came of it (R30).
//!
//! It is append-only: records are never changed, and deleted only by its own retention, which is off. Every administrative action
//! writes its record in the transaction that does it, so neither is there without the other; applications write theirs with
//! [`Audit`].

mod actor;
pub mod answer;
mod client;
mod data;
mod event;
mod filter;
mod record;
mod retention;

pub use actor::Actor;
pub use client::Audit;
pub use data::{ITEMS_SHOWN, bounded};
pub use event::{AuditEvent, PreparedAudit};
pub use filter::{AuditFilter, AuditPage};
pub use record::{Anchor, AuditId, AuditOutcome, AuditRecord};
pub use retention::AuditRetention;
