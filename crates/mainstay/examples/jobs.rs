//! A report every other second: `cargo run -p mainstay --features sqlite --example jobs`.
//!
//! A job is registered in code, runs twice by the clock, is triggered once by hand, and its history is shown.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use mainstay::job::{RunFilter, RunState, Trigger};
use mainstay::outbox::Page;
use mainstay::sqlite::Sqlite;
use mainstay::{Context, HandlerError, Mainstay, Overlap};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (built, mut reports) = mpsc::unbounded_channel();
    let build = move |ctx: Context| {
        let built = built.clone();
        async move {
            let run = ctx.job().ok_or_else(|| HandlerError::fail("not a run of a job"))?.clone();
            println!("report for {} ({}), run {}", run.nominal_at, run.trigger, run.id);
            ctx.record_output("7 pages, nothing unusual").await?;
            built.send(run)?;
            Ok::<(), HandlerError>(())
        }
    };
    let mainstay = Mainstay::builder(Sqlite::memory().await?)
        .deploy_schema(true)
        .outbox(|outbox| outbox.raw_handler("report.build", build))
        // Six fields begin with the second.
        .job("report", "*/2 * * * * *", |job| job.topic("report.build").overlap(Overlap::Queue))
        .build()?;
    let running = mainstay.start().await?;

    let jobs = mainstay.jobs();
    for _ in 0..2 {
        reports.recv().await;
    }
    jobs.disable("report").await?;
    let by_hand = jobs.trigger("report").await?.id;
    while reports.recv().await.is_some_and(|run| run.id != by_hand) {}
    running.stop().await?;

    println!("\nwhat the database remembers:");
    for run in jobs.runs(&RunFilter::all().job("report"), Page::default()).await? {
        let took = run.duration().map(|took| format!("{took:?}")).unwrap_or_default();
        println!("{}  {:8} {:10} {took}", run.nominal_at, run.trigger, run.state);
    }
    let manual = RunFilter::all().trigger(Trigger::Manual).state(RunState::Succeeded);
    assert_eq!(jobs.runs(&manual, Page::default()).await?.len(), 1);
    Ok(())
}
