//! Which node of a fleet works on which databases.
//!
//! Databases are put into buckets by a hash of their identifiers, and a bucket is a lease in one home database (R21): who holds it works
//! on its databases. Every node is a member, which is a lease too. Who should hold which bucket is calculated by every node from the
//! members it sees, alike, without a coordinator ([`rendezvous`](Buckets::wanted_by)); the leases alone decide who does hold it. So
//! nodes that see different members for a moment wait for each other, and never work on the same bucket.
//!
//! A node that can't reach the home database stops owning by its own monotonic clock, before anybody else can be given what it held
//! (R20). Wall clocks are of no importance.

mod bucket;
mod membership;
mod options;
mod owned;
mod plan;
mod service;

pub use bucket::Buckets;
pub use options::AssignmentOptions;
pub use owned::Owned;
pub use service::Assignment;
