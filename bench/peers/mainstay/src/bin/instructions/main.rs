//! A number of messages through one part of Mainstay over a store that does nothing, to be run under callgrind.
//!
//! `instructions enqueue|settle|dispatch N`: one thread, nothing random but ids. Run with N and with 2 N, the difference is
//! what N messages cost; what starting and stopping takes is in both.

mod fanout;
mod audit;
mod health;
mod inbox;
mod jobs;
mod joins;
mod operations;
mod store;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use load::Result;
use mainstay::queue::ClaimRequest;
use mainstay::store::Provider;
use mainstay::{Context, Mainstay, Message, Outbox, OwnerToken};
use store::Nothing;

/// Messages per claim and settle.
const BATCH: u32 = 500;

fn main() -> ExitCode {
    let run = || -> Result<()> {
        let mut arguments = std::env::args().skip(1);
        let part = arguments.next().context("which part?")?;
        let messages = arguments.next().context("how many messages?")?.parse()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        runtime.block_on(async {
            match part.as_str() {
                "enqueue" => enqueue(messages).await,
                "settle" => settle(messages).await,
                "dispatch" => dispatch(messages).await,
                _ => bail!("there is no part {part:?}"),
            }
        })
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error:?}");
            ExitCode::FAILURE
        }
    }
}

/// Checking a message and handing it to the store.
async fn enqueue(messages: u64) -> Result<()> {
    let outbox = Outbox::new(Nothing::with(0).outbox());
    let payload = "x".repeat(200);
    for _ in 0..messages {
        outbox.enqueue(Message::new(store::TOPIC, payload.as_str())).await?;
    }
    Ok(())
}

/// Claiming and settling in batches, without a dispatcher.
async fn settle(messages: u64) -> Result<()> {
    let outbox = Outbox::new(Nothing::with(messages).outbox());
    let owner = OwnerToken::new();
    let request = ClaimRequest::new(owner).batch(BATCH);
    loop {
        let handles = outbox.claim(&request).await?.handles();
        if handles.is_empty() {
            return Ok(());
        }
        outbox.ack(owner, &handles).await?;
    }
}

/// The whole way: claim, handler, settle.
async fn dispatch(messages: u64) -> Result<()> {
    let nothing = Arc::new(Nothing::with(messages));
    let provider: Arc<dyn Provider> = Arc::clone(&nothing) as _;
    let mainstay = Mainstay::builder_over(provider)
        .outbox(|outbox| {
            let outbox = outbox.raw_handler(store::TOPIC, async |_: Context| {});
            outbox.reap_every(None).gauges_every(None).retention(None).options(|options| {
                options.concurrency = 64;
                options.batch = BATCH;
                options.prefetch = 1_000;
            })
        })
        .build()?;
    let running = mainstay.start().await?;
    nothing.until_settled().await;
    running.stop().await?;
    Ok(())
}
