//! Leases: one holder at a time for a name, over all processes that use the same database (R20, R21).
//!
//! A lease has two numbers. `epoch` grows with every acquisition and fences writes: [`Lease::guard`] checks it inside the
//! caller's own transaction. `fencing_token` grows with every acquisition and renewal, for systems outside the database that
//! remember the highest one seen. Neither ever goes back.

mod client;
mod elsewhere;
mod gauge;
mod grant;
mod group;
mod guard;
mod holding;
mod options;
mod record;
mod tenure;

pub use client::{Acquired, Leases, Ran};
pub use gauge::LeaseGauges;
pub use grant::{LeaseAnswer, LeaseClaim, LeaseGrant, LeaseHolder, LeaseRequest, LeasesRequest};
pub(crate) use group::{Kept, LeaseGroup};
pub use guard::{GuardIn, GuardInBlocking, InHandler};
pub use holding::Lease;
pub use options::LeaseOptions;
pub use record::{LeaseFilter, LeaseRecord};
pub(crate) use tenure::Tenure;
