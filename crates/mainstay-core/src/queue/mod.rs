//! The engine: claim, run, renew, settle, reap. Outbox, inbox, timers and job runs are all this queue.

mod cancel;
mod claim;
mod context;
mod dispatcher;
mod handler;
mod policy;
pub(crate) mod pulse;
mod registry;
pub(crate) mod settle;
pub(crate) mod slots;
mod status;

pub use claim::{ClaimBatch, ClaimHandle, ClaimRequest, Claimed, Rejected};
pub use context::{Context, HandlerTransaction};
pub use dispatcher::Dispatcher;
pub use handler::{Handler, HandlerError, HandlerOutput, HandlerResult};
pub use policy::{DispatcherOptions, TopicPolicy};
pub use registry::{Registered, Registry};
pub use settle::{Outcome, Settled, Settlement, validate_settlements};
pub use status::{FailureReason, Status};
