//! A webhook that is called too often: `cargo run -p mainstay --example inbox --features sqlite`.
//!
//! Every invoice is delivered three times, mostly once with another amount; each is booked once, and one that can't be is dead.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mainstay::sqlite::Sqlite;
use mainstay::{Context, HandlerError, Incoming, Mainstay, Message};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Invoice {
    number: u32,
    cents: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let booked = Arc::new(AtomicU32::new(0));
    let book = {
        let booked = Arc::clone(&booked);
        move |invoice: Invoice, context: Context| {
            let booked = Arc::clone(&booked);
            async move {
                if invoice.cents == 0 {
                    return Err(HandlerError::fail("an invoice over nothing"));
                }
                booked.fetch_add(invoice.cents, Ordering::Relaxed);
                println!("booked invoice {} from {:?}", invoice.number, context.source());
                Ok(())
            }
        }
    };
    let mainstay = Mainstay::builder(Sqlite::memory().await?)
        .inbox(|inbox| inbox.handler("invoice.paid", book))
        .deploy_schema(true)
        .build()?;
    let running = mainstay.start().await?;

    for round in 0..3 {
        for number in 0..5 {
            let other = u32::from(round == 1 && number > 0);
            let cents = number * 100 + other;
            let message = Message::json("invoice.paid", &Invoice { number, cents })?;
            let received =
                mainstay.inbox().enqueue(Incoming::new("billing", format!("inv-{number}"), message)).await?;
            println!("inv-{number}: {}, other content: {}", received.outcome, received.hash_mismatch);
        }
        while mainstay.inbox().queue().stats().await?.open() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    running.stop().await?;
    let ledger = mainstay.inbox().stats().await?.ledger;
    println!("done {}, dead {}, booked {} cents", ledger.done, ledger.dead, booked.load(Ordering::Relaxed));
    Ok(())
}
