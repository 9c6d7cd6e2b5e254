//! Operations: work that takes a while, followed from its start to its end (R30).
//!
//! An operation is started, tells of its progress and of what happens, and ends once: terminal is terminal, whoever comes first.
//! Whoever works on one shows signs of life; an operation without any for a while is stalled, and can be marked so, which ends it.
//! [`OperationScope`] does all that for a piece of code, and records a failure when it is dropped without an end.

pub mod answer;
mod client;
mod event;
mod filter;
mod new;
mod options;
mod progress;
mod record;
mod retention;
mod scope;

pub use client::Operations;
pub use event::{NewEvent, PreparedEvent};
pub use filter::{EventPage, OperationFilter, OperationPage};
pub use new::{NewOperation, PreparedOperation};
pub use options::OperationOptions;
pub use progress::Progress;
pub use record::{Ended, Operation, OperationEnd, OperationEvent, OperationId, OperationState};
pub use retention::OperationRetention;
pub use scope::OperationScope;
