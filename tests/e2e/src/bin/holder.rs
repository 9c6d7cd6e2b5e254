//! A process that holds a lease, for tests that pause and kill it.
//!
//! It prints `holding` and the epoch, or `held` and who has it. Then it does what it is told, a line at a time: `begin` begins a
//! transaction, guards the lease in it and writes an effect; `commit` commits it; `release` releases the lease; `wait` waits until the
//! lease is lost. Each is answered in one word. It ends with its input.

// The tests read what it prints.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use clap::Parser;
use mainstay::ErrorKind;
use mainstay::lease::{Acquired, Lease, LeaseOptions, Leases};
use mainstay::store::{Provider, StoreTransaction};
use tokio::io::{AsyncBufReadExt, BufReader};

#[derive(Parser)]
struct Arguments {
    /// `sqlite:path` or `postgres://…`
    database: String,
    /// The lease's name.
    name: String,
    /// How long the lease is held without a renewal.
    #[arg(long, default_value_t = 2_000)]
    lease_ms: u64,
}

async fn begin(provider: &dyn Provider, lease: &Lease) -> mainstay::Result<Box<dyn StoreTransaction>> {
    let mut tx = provider.outbox().begin().await?;
    lease.guard(&mut tx).await?;
    Ok(tx)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter("error").init();
    let provider = mainstay_e2e::open(&arguments.database).await?;
    let options = LeaseOptions::default().duration(Duration::from_millis(arguments.lease_ms)).owner("holder");
    let lease = match Leases::new(provider.leases()).acquire_with(&arguments.name, options).await? {
        Acquired::Lease(lease) => lease,
        Acquired::Held(holder) => {
            println!("held {}", holder.owner.unwrap_or_default());
            return Ok(());
        }
    };
    println!("holding {}", lease.epoch());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut open = None;
    while let Some(line) = lines.next_line().await? {
        let answer = match line.as_str() {
            "begin" => match begin(provider.as_ref(), &lease).await {
                Ok(mut tx) => {
                    mainstay_e2e::write_effect(tx.as_mut(), "written").await?;
                    open = Some(tx);
                    "guarded"
                }
                Err(error) if error.kind() == ErrorKind::LeaseLost => "refused",
                Err(error) => return Err(error.into()),
            },
            "commit" => match open.take() {
                Some(tx) => {
                    tx.commit().await?;
                    "committed"
                }
                None => "nothing",
            },
            "check" if lease.check().is_ok() => "fine",
            "check" => "lost",
            "wait" => {
                lease.cancellation().cancelled().await;
                "cancelled"
            }
            "release" => {
                lease.release().await?;
                "released"
            }
            _ => "what?",
        };
        println!("{answer}");
    }
    Ok(())
}
