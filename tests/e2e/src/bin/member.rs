//! A process that takes part in a fleet, for tests that pause and kill it.
//!
//! It prints `joined`. Then, for every line it reads, it prints what it owns at that moment: each bucket with the epoch of its lease, as
//! `3:1 17:2`, or `nothing`. It ends with its input, and gives up everything then.

// The tests read what it prints.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mainstay::fleet::assignment::{Assignment, AssignmentOptions, Owned};
use mainstay::lease::Leases;
use tokio::io::{AsyncBufReadExt, BufReader};

#[derive(Parser)]
struct Arguments {
    /// The home database: `sqlite:path` or `postgres://…`
    database: String,
    /// How long buckets are held without a renewal.
    #[arg(long, default_value_t = 3_000)]
    lease_ms: u64,
}

fn text(owned: &Owned) -> String {
    let buckets: Vec<String> =
        owned.buckets().iter().map(|(bucket, epoch)| format!("{bucket}:{epoch}")).collect();
    if buckets.is_empty() { "nothing".to_owned() } else { buckets.join(" ") }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter("error").init();
    let provider = mainstay_e2e::open(&arguments.database).await?;
    let options =
        AssignmentOptions::default().lease(Duration::from_millis(arguments.lease_ms)).node("member");
    let assignment = Arc::new(Assignment::new(Leases::new(provider.leases()), options)?);
    let owned = assignment.owned();
    let mut running = mainstay::runtime::start(assignment);
    running.started().await;
    println!("joined");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while lines.next_line().await?.is_some() {
        println!("{}", text(&owned.borrow()));
    }
    running.stop().await?;
    Ok(())
}
