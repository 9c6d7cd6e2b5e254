//! Has the ends of jobs' runs noted soon after they came about, beside the loop and never in its way.
//!
//! Only what is for reading depends on it: should the process die before, a scheduler notes them later, and whoever asks for a run
//! is told its end all the same.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::job::Jobs;
use crate::queue::{ClaimHandle, Context};

/// The runs of this dispatcher that are being settled.
pub(super) struct EndedRuns {
    jobs: Option<Jobs>,
    settling: HashSet<ClaimHandle>,
    /// Whether somebody is about to look: those who come meanwhile are seen too.
    looking: Arc<AtomicBool>,
}

impl EndedRuns {
    pub(super) fn new(jobs: Option<Jobs>) -> Self {
        Self { jobs, settling: HashSet::new(), looking: Arc::default() }
    }

    /// Remembers a delivery that has begun, if it is one of a run.
    pub(super) fn begun(&mut self, context: &Context) {
        if self.jobs.is_some() && context.job().is_some() {
            self.settling.insert(context.message().handle);
        }
    }

    /// A claim is over. If it was one of a run, that has probably ended.
    pub(super) fn over(&mut self, claim: ClaimHandle) {
        if self.settling.remove(&claim)
            && let Some(jobs) = self.jobs.clone()
            && !self.looking.swap(true, Ordering::AcqRel)
        {
            let looking = Arc::clone(&self.looking);
            tokio::spawn(async move {
                // From here on somebody else has to look for what comes.
                looking.store(false, Ordering::Release);
                if let Err(error) = jobs.collect().await {
                    let store = jobs.store().identifier();
                    tracing::debug!(store, %error, "the ends of runs were not noted; a scheduler will");
                }
            });
        }
    }
}
