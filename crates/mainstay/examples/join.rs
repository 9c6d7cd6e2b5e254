//! An order that is shipped when all its parts are picked: `cargo run -p mainstay --features sqlite --example join`.
//!
//! Three parts are picked by three messages, which are the steps of a join. Whichever of them is settled last ships the order, in
//! the same transaction; nobody waits, and nobody counts.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use mainstay::join::JoinState;
use mainstay::sqlite::Sqlite;
use mainstay::{Context, HandlerError, Mainstay, Message, NewJoin};
use tokio::sync::mpsc;

async fn pick(part: String, _: Context) -> Result<(), HandlerError> {
    println!("picked: {part}");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (shipped, mut shipments) = mpsc::unbounded_channel();
    let ship = move |order: i64, ctx: Context| {
        let shipped = shipped.clone();
        async move {
            println!("order {order} is shipped, by the end of join {:?}", ctx.join());
            shipped.send((order, ctx.join()))?;
            Ok::<(), HandlerError>(())
        }
    };
    let mainstay = Mainstay::builder(Sqlite::memory().await?)
        .deploy_schema(true)
        .outbox(|outbox| outbox.handler("part.pick", pick).handler("order.ship", ship))
        .build()?;

    let parts = ["a table", "four chairs", "a lamp"];
    let join = NewJoin::new(3).grouping_key("order-7").on_completed(Message::json("order.ship", &7)?);
    let join = mainstay.joins().start(join).await?;
    for part in parts {
        mainstay.outbox().enqueue(Message::json("part.pick", &part)?.join(join)).await?;
    }

    let running = mainstay.start().await?;
    let shipment = shipments.recv().await;
    running.stop().await?;
    let ended = mainstay.joins().get(join).await?.ok_or("the join is kept for 30 days")?;
    println!("{} of {} steps completed; the join is {}", ended.completed, ended.expected, ended.state);
    assert_eq!(shipment, Some((7, Some(join))));
    assert_eq!((ended.completed, ended.state), (3, JoinState::Completed));
    Ok(())
}
