//! Three members of a group, one of which leads. When the leader goes, another one takes over.
//!
//! `cargo run -p mainstay --features sqlite --example leader`

// It is there to be watched.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use mainstay::Mainstay;
use mainstay::lease::{Acquired, LeaseOptions, Leases};
use mainstay::sqlite::Sqlite;

/// Waits for the lease, leads for a moment, and goes.
async fn member(leases: Leases, name: String) -> mainstay::Result<i64> {
    let options = LeaseOptions::default()
        .duration(Duration::from_secs(2))
        .owner(&name)
        .context("an example")
        .wait(Duration::from_secs(60));
    let lease = match leases.acquire_with("leader", options).await? {
        Acquired::Lease(lease) => lease,
        Acquired::Held(holder) => {
            println!("{name}: gave up waiting, it is {holder}");
            return Ok(0);
        }
    };
    println!("{name}: leading, epoch {}", lease.epoch());
    for step in 1..=3 {
        lease.check()?;
        println!("{name}: step {step}, fencing token {}", lease.fencing_token());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let epoch = lease.epoch();
    lease.close().await?;
    println!("{name}: gone");
    Ok(epoch)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mainstay = Mainstay::builder(Sqlite::memory().await?).deploy_schema(true).build()?;
    let running = mainstay.start().await?;
    let members = ["ada", "grace", "barbara"]
        .map(|name| tokio::spawn(member(mainstay.leases().clone(), name.to_owned())));
    let mut epochs = Vec::new();
    for member in members {
        epochs.push(member.await??);
    }
    epochs.sort_unstable();
    assert_eq!(epochs, [1, 2, 3], "each has led once, one after the other");
    running.stop().await?;
    Ok(())
}
