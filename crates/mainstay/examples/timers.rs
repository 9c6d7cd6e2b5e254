//! An order that expires unless it is paid: `cargo run -p mainstay --features sqlite --example timers`.
//!
//! Two orders are placed; a timer is to expire each. One is paid in time, which cancels its timer. The other's fires.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::{Duration, Instant};

use mainstay::sqlite::Sqlite;
use mainstay::{Context, HandlerError, Mainstay, NewTimer};
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_millis(300);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (expired, mut expiries) = mpsc::unbounded_channel();
    let expire = move |order: i64, ctx: Context| {
        let expired = expired.clone();
        async move {
            println!("order {order} was not paid in time (message {})", ctx.message_id());
            expired.send(order)?;
            Ok::<(), HandlerError>(())
        }
    };
    let mainstay = Mainstay::builder(Sqlite::memory().await?)
        .deploy_schema(true)
        .outbox(|outbox| outbox.handler("order.expire", expire))
        .timers(|timers| timers)
        .build()?;
    let running = mainstay.start().await?;

    let timers = mainstay.timers();
    let started = Instant::now();
    let mut scheduled = Vec::new();
    for order in [7, 8] {
        let timer = NewTimer::json("order.expire", &order, PATIENCE)?;
        let timer = timer.idempotency_key(format!("expire-order-{order}"));
        scheduled.push(timers.schedule(timer).await?.work_item);
    }
    println!("two orders, to be paid within {PATIENCE:?}");
    println!("order 7 is paid, its timer cancelled: {}", timers.cancel(scheduled[0]).await?);

    let order = expiries.recv().await;
    println!("that was {:?} after it was placed", started.elapsed());
    running.stop().await?;
    let stats = timers.stats().await?;
    assert_eq!((order, stats.fired, stats.failed, stats.pending), (Some(8), 1, 1, 0));
    Ok(())
}
