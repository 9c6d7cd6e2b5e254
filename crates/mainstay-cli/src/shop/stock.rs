//! Stocktaking: a job that runs every second, exactly once however many schedulers there are.

use mainstay::job::{JobDefinition, Overlap};
use mainstay::{Context, HandlerResult};
use uuid::Uuid;

/// The topic of the stocktaking.
pub(crate) const COUNT: &str = "stock.count";

/// When it runs: at every full second.
pub(crate) const CRON: &str = "* * * * * *";

/// The job of a run: runs must not change each other's.
pub(crate) fn job(run: Uuid) -> String {
    format!("demo-{}-stock", run.simple())
}

/// What the job is.
pub(super) fn define(job: JobDefinition) -> JobDefinition {
    job.topic(COUNT).payload("{}").overlap(Overlap::Skip)
}

/// Counts the stock, and notes the result in the run's history.
pub(super) async fn count(context: Context) -> HandlerResult {
    let shelves = context.job().map_or(0, |run| run.nominal_at.as_second() % 1_000);
    context.record_output(&format!("{shelves} shelves counted")).await?;
    Ok(())
}
