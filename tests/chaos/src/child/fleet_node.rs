//! A node that shares buckets with others.

use std::sync::Arc;

use anyhow::Result;
use mainstay::fleet::assignment::{Assignment, AssignmentOptions};
use mainstay::lease::Leases;
use mainstay::store::Provider;

use crate::history::{Answer, Call};

use super::Child;

/// Runs until the process is to stop.
pub(super) async fn run(child: Child) -> Result<()> {
    let Some(provider) = child.recorded().await else { return Ok(()) };
    let options = AssignmentOptions::default()
        .fleet("chaos")
        .buckets(8)
        .lease(child.lease)
        .look(child.lease / 4)
        .node(child.process.clone());
    let assignment = Arc::new(Assignment::new(Leases::new(provider.leases()), options)?);
    let mut owned = assignment.owned();
    let running = mainstay::runtime::start(assignment);
    loop {
        let invoked = child.recorder.invoke(Call::Own { lease_ms: child.lease_ms() });
        let buckets = owned.borrow_and_update().buckets().into_iter().collect();
        invoked.ok(Answer::Owned { buckets });
        // Looked at without a change too: a node that was stopped may go on to believe that it owns them.
        let changed = tokio::time::timeout(child.lease / 8, owned.changed());
        match child.stop.run_until_cancelled(changed).await {
            Some(Ok(Ok(())) | Err(_)) => {}
            Some(Ok(Err(_))) | None => break,
        }
    }
    running.stop().await?;
    let invoked = child.recorder.invoke(Call::Own { lease_ms: child.lease_ms() });
    invoked.ok(Answer::Owned { buckets: Vec::new() });
    Ok(())
}
