//! Who cancelled that order? `cargo run -p mainstay --features sqlite --example audit`.
//!
//! What is done by hand is recorded by the transaction that does it. An application adds records of its own, and asks for all that
//! belongs to a ticket.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use mainstay::audit::{Actor, AuditEvent, AuditFilter, AuditPage};
use mainstay::sqlite::Sqlite;
use mainstay::{Mainstay, Message};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mainstay = Mainstay::builder(Sqlite::memory().await?).build()?;
    mainstay.provider().schema().deploy().await?;
    let order = mainstay.outbox().enqueue(Message::json("order.ship", &7)?).await?.work_item;

    let alice = Actor::from("alice").correlated("TICKET-42");
    mainstay.outbox().by(&alice).cancel(&[order]).await?;
    let refund = AuditEvent::new("order.refund").anchor("order", "7").data(json!({ "amount": "12.50" }));
    mainstay.audit().by(&alice).write(refund).await?;

    let of_ticket = AuditFilter::all().correlation_id("TICKET-42");
    let records = mainstay.audit().list(&of_ticket, AuditPage::default()).await?;
    for record in &records {
        println!("{} by {}: {}", record.name, record.actor, record.outcome);
    }
    let names: Vec<_> = records.iter().map(|record| record.name.as_str()).collect();
    assert_eq!(names, ["order.refund", "outbox.cancel"], "the newest first");
    Ok(())
}
