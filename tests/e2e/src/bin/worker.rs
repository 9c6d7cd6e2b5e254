//! A worker process that tests start, stop and kill.
//!
//! It prints `ready` once it runs, stops gracefully at SIGTERM, and prints `stopped` when it has.

// The tests read what it prints.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use clap::Parser;
use mainstay::backoff::Backoff;
use mainstay::{Context, HandlerError, Mainstay, TopicPolicy};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
struct Arguments {
    /// `sqlite:path` or `postgres://…`
    database: String,
    /// How long a claim holds.
    #[arg(long, default_value_t = 500)]
    lease_ms: u64,
    /// Deliveries before a message is failed.
    #[arg(long, default_value_t = 1_000)]
    delivery_limit: u32,
    /// Fires timers too.
    #[arg(long)]
    timers: bool,
    /// Is a scheduler of jobs too.
    #[arg(long)]
    jobs: bool,
}

/// Leaves an effect exactly once.
async fn record(context: Context) -> Result<(), HandlerError> {
    mainstay_e2e::effect(&context).await
}

/// Takes the whole process down.
async fn die(_: Context) -> Result<(), HandlerError> {
    std::process::abort()
}

/// Never ends by itself.
async fn hang(_: Context) -> Result<(), HandlerError> {
    println!("hanging");
    std::future::pending().await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter("warn").init();
    let soon = || TopicPolicy::default().backoff(Backoff::fixed(Duration::from_millis(20)));
    let provider = mainstay_e2e::open(&arguments.database).await?;
    let mut builder = Mainstay::builder_over(provider).outbox(|outbox| {
        outbox
            .raw_handler_with("record", soon(), record)
            .raw_handler_with("die", soon(), die)
            .raw_handler_with("hang", soon(), hang)
            // Nothing may depend on somebody calling reap.
            .reap_every(None)
            .gauges_every(None)
            .options(|options| {
                options.lease = Duration::from_millis(arguments.lease_ms);
                options.delivery_limit = arguments.delivery_limit;
                options.poll_max = Duration::from_millis(250);
                options.grace = Duration::from_millis(200);
                options.batch = 10;
                options.prefetch = 20;
            })
    });
    if arguments.timers {
        builder = builder.timers(|timers| {
            timers.reap_every(None).gauges_every(None).options(|options| {
                options.batch = 10;
                options.poll_max = Duration::from_millis(250);
            })
        });
    }
    if arguments.jobs {
        builder = builder.jobs(|jobs| {
            jobs.retention(None).options(|options| {
                options.batch = 10;
                options.poll_max = Duration::from_millis(250);
            })
        });
    }
    let mainstay = builder.build()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let running = mainstay.start().await?;
    println!("ready");
    terminate.recv().await;
    running.stop().await?;
    println!("stopped");
    Ok(())
}
