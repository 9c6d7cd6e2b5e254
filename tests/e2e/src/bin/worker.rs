//! A worker process that tests start, stop and kill.
//!
//! It prints `ready` once it runs, stops gracefully at SIGTERM, and prints `stopped` when it has.

// The tests read what it prints.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use clap::Parser;
use mainstay::backoff::Backoff;
use mainstay::inbox::GuardOptions;
use mainstay::outbox::{Message, Outbox};
use mainstay::runtime::QueueBuilder;
use mainstay::{Begin, Context, HandlerError, Mainstay, TopicPolicy};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
struct Arguments {
    /// `sqlite:path` or `postgres://…`
    database: String,
    /// Deploys the schema of this program and stops.
    #[arg(long)]
    deploy: bool,
    /// Enqueues this many messages to record, and stops.
    #[arg(long)]
    send: Option<u32>,
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
    /// Handle what the inbox receives, and not the outbox's messages.
    #[arg(long)]
    inbox: bool,
    /// Reserve this message of the source `e2e` first, say so, and never let go of it.
    #[arg(long)]
    guard: Option<String>,
}

/// The handlers and what they run under, whichever queue it is.
fn set_up<R>(queue: QueueBuilder<R>, arguments: &Arguments) -> QueueBuilder<R> {
    let soon = || TopicPolicy::default().backoff(Backoff::fixed(Duration::from_millis(20)));
    queue
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
}

/// Leaves an effect exactly once.
async fn record(context: Context) -> Result<(), HandlerError> {
    mainstay_e2e::effect(&context).await
}

/// Takes the whole process down.
async fn die(_: Context) -> Result<(), HandlerError> {
    std::process::abort()
}

/// Never ends by itself, and says when it is dropped.
async fn hang(_: Context) -> Result<(), HandlerError> {
    let _says = SaysDropped;
    println!("hanging");
    std::future::pending().await
}

struct SaysDropped;

impl Drop for SaysDropped {
    fn drop(&mut self) {
        println!("dropped");
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter("warn").init();
    let provider = mainstay_e2e::open(&arguments.database).await?;
    if arguments.deploy {
        provider.schema().deploy().await?;
        return Ok(());
    }
    if let Some(count) = arguments.send {
        provider.schema().require().await?;
        let messages = (0..count).map(|n| Message::new("record", n.to_string())).collect();
        Outbox::new(provider.outbox()).enqueue_many(messages).await?;
        return Ok(());
    }
    let mut builder = match arguments.inbox {
        false => Mainstay::builder_over(provider).outbox(|outbox| set_up(outbox, &arguments)),
        true => Mainstay::builder_over(provider).inbox(|inbox| set_up(inbox, &arguments)),
    };
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
    let mut held = None;
    if let Some(message) = &arguments.guard {
        let options = GuardOptions::default().lease(Duration::from_millis(arguments.lease_ms));
        let begin = mainstay.inbox().begin_with("e2e", message, &options).await?;
        println!("{}", if matches!(begin, Begin::New(_)) { "guarding" } else { "not mine" });
        held = Some(begin);
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let running = mainstay.start().await?;
    println!("ready");
    terminate.recv().await;
    running.stop().await?;
    drop(held);
    println!("stopped");
    Ok(())
}
