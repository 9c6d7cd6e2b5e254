//! One process over the databases of three tenants: `cargo run -p mainstay --example fleet --features sqlite`.
//!
//! Each tenant has a file of its own, and each file is an ordinary Mainstay. A fourth one comes while the process runs, and its database does
//! not exist: the others don't notice.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use mainstay::fleet::{BreakerState, DatabaseEntry, DatabaseFile, Fleet};
use mainstay::sqlite::SqliteConnector;
use mainstay::{Context, HandlerError, Message};
use tokio::sync::mpsc;

const TENANTS: [&str; 3] = ["acme", "globex", "initech"];

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Which databases there are, as a file that is read again every few minutes. A list, a query or a closure would do as well.
    let folder = tempfile::tempdir()?;
    let databases = |tenants: &[&str]| {
        let entry = |tenant: &&str| {
            let path = folder.path().join(format!("{tenant}.db"));
            format!("[[databases]]\nid = \"{tenant}\"\nurl = 'sqlite:{}'\n\n", path.display())
        };
        tenants.iter().map(entry).collect::<String>()
    };
    let file = folder.path().join("fleet.toml");
    std::fs::write(&file, databases(&TENANTS))?;

    // What is set up here is set up for each database, as if it were the only one.
    let (tell, mut told) = mpsc::unbounded_channel();
    let fleet = Fleet::builder(DatabaseFile::new(&file), SqliteConnector::new())
        .options(|options| options.connections = 12)
        .each(move |tenant: &DatabaseEntry, mainstay| {
            let (tenant, tell) = (tenant.id.clone(), tell.clone());
            mainstay.outbox(|outbox| {
                outbox.handler("order.paid", move |order: u32, _: Context| {
                    let (tenant, tell) = (tenant.clone(), tell.clone());
                    async move { tell.send((tenant, order)).map_err(HandlerError::retry) }
                })
            })
        })
        .build()?;

    // A database without tables is left alone until it has them: four at a time get them here. One that fails stops no other.
    let running = fleet.start().await?;
    for deployed in fleet.deploy(4).await {
        println!("{}: {}", deployed.id, deployed.result?);
    }

    // Clients by tenant. What they enqueue is worked on at once, even if the database was resting.
    for (number, tenant) in (1_u32..).zip(TENANTS.iter().cycle().take(9)) {
        fleet.outbox(*tenant)?.enqueue(Message::json("order.paid", &number)?).await?;
    }
    for _ in 0..9 {
        let Some((tenant, order)) = told.recv().await else { break };
        println!("{tenant}: an invoice for order {order}");
    }
    if let Err(unknown) = fleet.outbox("hooli") {
        println!("{unknown}");
    }

    // A tenant whose database is not there. Nothing makes it but a deployment.
    std::fs::write(&file, databases(&[&TENANTS[..], &["umbrella"]].concat()))?;
    println!("refreshed: {:?}", fleet.refresh().await?);
    let sick = || fleet.status().store("umbrella").is_some_and(|store| store.breaker == BreakerState::Open);
    while !sick() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let status = fleet.status();
    for store in &status.stores {
        println!("{}: {:?}, breaker {:?}", store.id, store.state, store.breaker);
        if let (BreakerState::Open, Some(error)) = (store.breaker, &store.last_error) {
            println!("  {error}");
        }
    }
    let connections = status.connections;
    println!("connections: at most {} of {} at once", connections.peak, connections.budget);
    running.stop().await;
    Ok(())
}
