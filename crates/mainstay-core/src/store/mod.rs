//! The seam: what a provider supplies. Small object-safe traits, one per primitive.
//!
//! Arguments are validated before they get here. Every method is one transaction, uses the database's
//! clock, and is safe to drop at any await: it then happened as a whole or not at all.

mod agenda;
mod allowance;
mod audit;
mod call;
mod capabilities;
mod collision;
mod diagnosis;
mod fanout;
mod gate;
mod health;
mod inbox;
mod job;
mod join;
mod lease;
mod migration;
mod names;
mod operation;
mod outbox;
mod per_names;
mod provider;
mod queue;
mod timer;
mod transaction;

pub use agenda::Agenda;
pub use allowance::{Allowance, CountedConnection};
pub use audit::AuditStore;
pub use call::{Argument, CallIn, CallInBlocking, Step, StoreCall};
pub use capabilities::Capabilities;
pub use collision::check_collisions;
pub use diagnosis::DiagnosisStore;
pub use fanout::FanoutStore;
pub use gate::{ConnectionGate, ConnectionPass};
pub use health::HealthStore;
pub use inbox::InboxStore;
pub use job::{
    Advance, Advanced, Dispatched, DueJobs, EndedRun, JobStore, Occurrence, RunPlace, RunsLookedAt,
};
pub use join::JoinStore;
pub use lease::LeaseStore;
pub use migration::{
    Applied, Migration, MigrationPlan, ROUTINES, SchemaStatus, Template, checksum, made, plan_migrations,
    routines_checksum,
};
pub use names::{Names, Queue, render};
pub use operation::OperationStore;
pub use outbox::OutboxStore;
pub use per_names::PerNames;
pub use provider::{Provider, SchemaStore};
pub use queue::{QueueStore, WaitRequest, Wake};
pub use timer::TimerStore;
pub use transaction::StoreTransaction;
