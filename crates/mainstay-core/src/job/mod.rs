//! Jobs: work that comes round by the clock.
//!
//! [`Jobs`] registers and triggers them and looks at their runs; [`JobService`] makes the runs when their time comes.
//! Everything else is calculation only: when a [`Schedule`] fires, what becomes of occurrences nobody was there for
//! ([`plan`]), what a job and a run of it are. That reads no clock and speaks to no database; whoever calls brings the
//! time along, so any number of schedulers come to the same answer.

mod aside;
mod client;
mod cron;
mod current;
mod definition;
mod expected;
mod explain;
mod filter;
mod jitter;
mod materialise;
mod misfire;
mod overlap;
mod record;
mod run;
mod schedule;
mod service;
mod stretch;
mod zone;

pub use client::Jobs;
pub use cron::{Cron, CronError, CronField};
pub use current::CurrentRun;
pub use definition::{JobDefinition, PreparedJob};
pub use expected::{Expected, JobChange, JobMismatch, Registered};
pub use explain::{DstNote, Explanation, Fire, Shift, ShiftKind, Treatment};
pub use filter::RunFilter;
pub use jitter::jitter;
pub(crate) use jitter::share;
pub use materialise::Materialised;
pub use misfire::{GRACE, Misfire, Plan, plan};
pub use overlap::Overlap;
pub use record::Job;
pub use run::{JobRun, RunState, Trigger};
pub use schedule::{Occurrences, Schedule};
pub use service::{JobOptions, JobService};
pub use zone::Zone;
