//! Has the ends of jobs' runs noted soon after they came about, beside the loop and never in its way.
//!
//! Only what is for reading depends on it: should the process die before, a scheduler notes them later, and whoever asks for a run
//! is told its end all the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::hash::Set;
use crate::id::WorkItemId;
use crate::job::Jobs;
use crate::queue::{ClaimHandle, Context};
use crate::renewing::{TURN_LIMIT, attempt};

/// The runs of this dispatcher that are being settled.
pub(super) struct EndedRuns {
    jobs: Option<Jobs>,
    settling: Set<ClaimHandle>,
    /// Those that have probably ended, for whoever notes it next. Somebody is about to unless there are none.
    over: Arc<Mutex<Vec<WorkItemId>>>,
}

impl EndedRuns {
    pub(super) fn new(jobs: Option<Jobs>) -> Self {
        Self { jobs, settling: Set::default(), over: Arc::default() }
    }

    /// Remembers a delivery that has begun, if it is one of a run.
    pub(super) fn begun(&mut self, context: &Context) {
        if self.jobs.is_some() && context.job().is_some() {
            self.settling.insert(context.message().handle);
        }
    }

    /// A claim is over. If it was one of a run, that has probably ended.
    pub(super) fn over(&mut self, claim: ClaimHandle) {
        if !self.settling.remove(&claim) {
            return;
        }
        let Some(jobs) = self.jobs.clone() else { return };
        let first = {
            let mut over = lock(&self.over);
            over.push(claim.id());
            over.len() == 1
        };
        if first {
            let over = Arc::clone(&self.over);
            tokio::spawn(async move {
                // From here on somebody else has to note what comes.
                let runs = std::mem::take(&mut *lock(&over));
                if let Err(error) = attempt("job.collect", TURN_LIMIT, jobs.collect_runs(&runs)).await {
                    let store = jobs.store().identifier();
                    tracing::debug!(store, %error, "the ends of runs were not noted; a scheduler will");
                }
            });
        }
    }
}

fn lock(over: &Mutex<Vec<WorkItemId>>) -> MutexGuard<'_, Vec<WorkItemId>> {
    // A list is whole whatever panicked beside it.
    over.lock().unwrap_or_else(PoisonError::into_inner)
}
