//! The engine of Mainstay: everything that is not SQL.
//!
//! Applications use the `mainstay` crate, which re-exports this one beside the providers. What a provider
//! must supply is in [`store`]; what an application sees is in [`outbox`], [`inbox`], [`timer`], [`job`], [`join`], [`fanout`], [`lease`],
//! [`queue`], [`audit`], [`operation`], [`health`] and [`runtime`].
//! No database crate is in this crate's tree.

pub mod audit;
pub mod backoff;
mod bell;
mod bounds;
pub mod breaker;
mod clock;
pub mod error;
pub mod fanout;
pub mod fleet;
mod hash;
pub mod health;
pub mod id;
pub mod inbox;
pub mod job;
pub mod join;
pub mod lease;
pub mod operation;
pub mod outbox;
pub mod queue;
mod renewing;
pub mod runtime;
#[cfg(test)]
mod silent;
pub mod store;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
pub mod text;
pub mod timer;
pub mod trace;

pub use error::{Error, ErrorKind, ExistingItem, Result};
pub use id::{JoinId, MessageId, OwnerToken, WorkItemId};
