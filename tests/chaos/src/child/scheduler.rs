//! A scheduler: promotes timers and the runs of jobs.

use std::time::Duration;

use anyhow::Result;
use mainstay::job::Misfire;
use mainstay::{JobDefinition, Mainstay};

use crate::history::{Answer, Call};

use super::Child;
use super::trouble::record;

/// The topic of runs, which nothing else has.
const TOPIC: &str = "chaos.job";

/// Every occurrence has a run, however late: the checker counts them.
const MISFIRE: Misfire = Misfire::All { cap: Misfire::CAP_MAX, window: Misfire::WINDOW_MAX };

/// Runs until the process is to stop.
pub(super) async fn run(child: Child) -> Result<()> {
    let Some(provider) = child.recorded().await else { return Ok(()) };
    let mainstay = Mainstay::builder_over(provider)
        .timers(|timers| {
            timers.retention(None).gauges_every(None).reap_every(Some(child.lease)).options(|options| {
                options.batch = 10;
                options.poll_max = Duration::from_secs(1);
            })
        })
        .jobs(|jobs| {
            jobs.retention(None).gauges_every(None).reap_every(Some(child.lease)).options(|options| {
                options.batch = 10;
                options.poll_max = Duration::from_secs(1);
            })
        })
        .build()?;
    let running = mainstay.start().await?;
    for (name, cron, every) in [("every-second", "* * * * * *", 1), ("every-3-seconds", "*/3 * * * * *", 3)] {
        // Not again: the controller disables it at the end.
        if mainstay.jobs().get(name).await?.is_none() {
            let every_ms = every * 1_000;
            let definition = JobDefinition::new(name, TOPIC, cron).misfire(MISFIRE);
            let invoked = child.recorder.invoke(Call::SaveJob { name: name.to_owned(), every_ms });
            let saved = mainstay.jobs().create_or_update(definition).await;
            record(invoked, &saved, |_| Answer::Done);
        }
    }
    child.stop.cancelled().await;
    running.stop().await?;
    Ok(())
}
