//! Jobs: work that comes round by the clock.
//!
//! What is here is calculation only: when a [`Schedule`] fires, what becomes of occurrences nobody was there for
//! ([`plan`]), what a job and a run of it are. It reads no clock and speaks to no database; whoever calls brings the
//! time along, so any number of schedulers come to the same answer.

mod cron;
mod definition;
mod explain;
mod jitter;
mod misfire;
mod overlap;
mod record;
mod run;
mod schedule;
mod stretch;
mod zone;

pub use cron::{Cron, CronError, CronField};
pub use definition::{JobDefinition, PreparedJob};
pub use explain::{DstNote, Explanation, Fire, Shift, ShiftKind, Treatment};
pub use jitter::jitter;
pub use misfire::{GRACE, Misfire, Plan, plan};
pub use overlap::Overlap;
pub use record::Job;
pub use run::{JobRun, RunState, Trigger};
pub use schedule::{Occurrences, Schedule};
pub use zone::Zone;
