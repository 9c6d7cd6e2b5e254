//! The checker: reads the history of a run and finds what broke a rule.
//!
//! [`check`] is a pure function of the history. It works in three steps:
//!
//! 1. `operations` pairs calls with their answers. What a call that was never answered did is
//!    unknown, and it may do it at any later moment.
//! 2. `evidence` arranges them: one `story` for each work item, and what the controller measured.
//! 3. `rules` judges that, one file for each [`Rule`](crate::verdict::Rule). Generations, epochs and
//!    fencing tokens are version numbers (`versions`), so each rule is linear in the history, but for
//!    sorting.
//!
//! A rule reports only what no order of events explains. It compares instants of the monotonic clock,
//! which all processes of the machine share, and never the clocks of the database or of a process:
//! faults step those. A lease of ten seconds holds for ten seconds after its claim was *invoked*, at
//! least; it was held for certain from when its claim was *answered*.
//!
//! Short histories of a lease or of a received message are searched for an order that explains every
//! answer (`linear`).
//!
//! # What a clean verdict does not show
//!
//! - An overlap shorter than the time that an answer takes: a hold is certain only from its answer on.
//! - A wrong effect of a call without an answer, where the effect it may have had explains the rest. The
//!   audit trail narrows this down for operators' calls (`audit`).
//! - Anything within the window of a failover that loses its tail, except that generations, epochs and
//!   fencing tokens of what survived still grow.
//!
//! The tests simulate a small queue to make legal histories, break these in many ways, and expect that
//! the right rule notices (`testing`).

mod activity;
mod audit;
mod evidence;
mod linear;
mod logs;
mod operations;
mod purges;
mod rules;
mod run;
mod story;
#[cfg(test)]
mod testing;
mod versions;
mod windows;

pub use logs::LogLine;
pub use run::{VERDICT, exit_code, run_check, verdict, write_verdict};

use evidence::Evidence;
use operations::Operation;
use windows::Windows;

use crate::history::{History, LOST_TAIL};
use crate::verdict::Violation;

/// Finds everything in a history that breaks a rule, in the order of the rules.
///
/// `leaks` are the lines of the processes' logs with a payload's marker.
pub fn check(history: &History, leaks: &[LogLine]) -> Vec<Violation> {
    let lost_tails = Windows::of(history, LOST_TAIL);
    let operations = Operation::pair(history, &lost_tails);
    let evidence = Evidence::gather(history, &operations, &lost_tails, leaks);
    rules::ALL.iter().flat_map(|judge| judge(&evidence)).collect()
}
