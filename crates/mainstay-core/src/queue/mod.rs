//! The engine: claim, run, renew, settle, reap. Outbox, inbox, timers and job runs are all this queue.

mod claim;
mod settle;
mod status;

pub use claim::{ClaimBatch, ClaimHandle, ClaimRequest, Claimed, Rejected};
pub use settle::{Outcome, Settled, Settlement, validate_settlements};
pub use status::{FailureReason, Status};
