//! The payments of three tenants, one slice for each: `cargo run -p mainstay --features sqlite --example fanout`.
//!
//! A run is made by the cadence and another is asked for; what follows a run waits for all of its slices. In the second run one
//! tenant fails, so something else follows, and that tenant's cursor stays where it was.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::Duration;

use mainstay::fanout::shards_from;
use mainstay::sqlite::Sqlite;
use mainstay::{Context, HandlerError, Mainstay, Message, Slice};
use tokio::sync::mpsc;

async fn tenants() -> Result<Vec<&'static str>, std::io::Error> {
    Ok(vec!["acme", "globex", "initech"])
}

async fn import(slice: Slice, _ctx: Context) -> Result<(), HandlerError> {
    let since = slice.window_start.map_or("the beginning".to_owned(), |start| start.to_string());
    if slice.shard_key == "initech" && slice.window_start.is_some() {
        println!("  initech: the bank does not answer");
        return Err(HandlerError::fail("the bank does not answer"));
    }
    println!("  {}: payments since {since}", slice.shard_key);
    // Done up to the moment the slice was handed out.
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (ended, mut runs) = mpsc::unbounded_channel();
    let report = move |ctx: Context| {
        let ended = ended.clone();
        async move {
            let run = ctx.join().ok_or_else(|| HandlerError::fail("it follows no run"))?;
            println!("{}: run {run}", ctx.topic());
            ended.send(ctx.topic().to_owned())?;
            Ok::<(), HandlerError>(())
        }
    };
    let mainstay = Mainstay::builder(Sqlite::memory().await?)
        .deploy_schema(true)
        .outbox(|outbox| {
            outbox.raw_handler("payments.imported", report.clone()).raw_handler("payments.incomplete", report)
        })
        .fanout("etl", |etl| {
            etl.planner(shards_from(tenants)).work_key("payments", |payments| {
                payments
                    .every(Duration::from_secs(600))
                    .then(Message::new("payments.imported", "{}"))
                    .or_else(Message::new("payments.incomplete", "{}"))
                    .handler(import)
            })
        })
        .build()?;
    println!("the first run: nobody has heard of these tenants, so they are due");
    let running = mainstay.start().await?;
    assert_eq!(runs.recv().await.as_deref(), Some("payments.imported"));

    println!("\nthe second run: not due for ten minutes, but asked for");
    let fanout = mainstay.fanout();
    let before = fanout.cursors("etl", "payments", None, 10).await?;
    fanout.run_now("etl", "payments").await?;
    assert_eq!(runs.recv().await.as_deref(), Some("payments.incomplete"));
    running.stop().await?;

    println!("\nhow far they have come:");
    for (old, new) in before.iter().zip(fanout.cursors("etl", "payments", None, 10).await?) {
        println!(
            "  {:8} {}",
            new.shard_key,
            new.last_completed_at.map_or_else(String::new, |at| at.to_string())
        );
        assert_eq!(new.last_completed_at > old.last_completed_at, new.shard_key != "initech");
    }
    Ok(())
}
