//! The child processes: programs that use Mainstay as applications do, and record every call.

mod application;
mod business;
mod database;
mod fleet_node;
mod http_worker;
mod lease_holder;
mod operator;
mod payload;
mod producer;
mod receiver;
mod recorded;
mod recorded_jobs;
mod recorded_leases;
mod scheduler;
mod session;
mod sql_calls;
mod sql_worker;
mod trouble;
mod worker;

pub(crate) use database::{Database, POOL};
pub(crate) use recorded::Recorded;
pub(crate) use session::{Dialects, Engine, Session};

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::history::{Event, Kind, Recorder, Strike};
use crate::network;
use crate::random::Random;

/// The arguments of a child process.
#[derive(Debug, clap::Args)]
pub struct ChildArguments {
    /// What it is, as histories name it.
    #[arg(long, value_parser = parse_kind)]
    kind: Kind,
    /// Its name and how often it was started: `worker-2.17`.
    #[arg(long)]
    process: String,
    /// Where its history goes.
    #[arg(long)]
    directory: PathBuf,
    /// `sqlite:path`, `postgres://…` or `mssql://…`
    #[arg(long)]
    database: String,
    /// Decides what it does.
    #[arg(long)]
    seed: u64,
    /// How long claims and leases hold.
    #[arg(long)]
    lease_ms: u64,
    /// Deliveries before a message fails.
    #[arg(long)]
    delivery_limit: u32,
    /// The network namespace of its host.
    #[arg(long)]
    network: Option<String>,
    /// It kills itself at a line with this in it.
    #[arg(long)]
    strike: Option<String>,
    /// At which of these lines.
    #[arg(long, default_value_t = 1)]
    nth: u64,
}

/// Reads a kind of process by its name.
fn parse_kind(text: &str) -> Result<Kind, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

/// What every child has.
pub(crate) struct Child {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) database: Database,
    pub(crate) process: String,
    pub(crate) random: Random,
    pub(crate) lease: Duration,
    pub(crate) delivery_limit: u32,
    pub(crate) stop: CancellationToken,
}

impl Child {
    /// The provider, with all of its calls recorded. None when the process is to stop before the database answers.
    pub(crate) async fn recorded(&self) -> Option<Arc<Recorded>> {
        let provider = self.stop.run_until_cancelled(self.database.provider_at_last()).await?;
        Some(Arc::new(Recorded::new(provider, Arc::clone(&self.recorder))))
    }

    /// Waits for so long at most; false when the process is to stop.
    pub(crate) async fn pause(&self, ms: u64) -> bool {
        self.stop.run_until_cancelled(tokio::time::sleep(Duration::from_millis(ms))).await.is_some()
    }

    /// The lease in milliseconds.
    pub(crate) fn lease_ms(&self) -> u64 {
        self.lease.as_millis() as u64
    }
}

/// Runs a child process until a SIGTERM stops it.
pub fn main(arguments: ChildArguments) -> Result<()> {
    // Nothing is left behind when the controller dies.
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot follow the controller")?;
    if let Some(network) = &arguments.network {
        // Before there is another thread.
        network::enter(network)?;
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // tiberius logs errors of the server with the values that they quote.
        .with_env_filter("debug,tokio_postgres=info,tiberius=off")
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    runtime.block_on(run(arguments))
}

async fn run(arguments: ChildArguments) -> Result<()> {
    let strike = arguments.strike.map(|pattern| Strike { pattern, nth: arguments.nth });
    let recorder =
        Arc::new(Recorder::open(&arguments.directory, &arguments.process, arguments.kind, strike)?);
    recorder.note(Event::Started(std::process::id()));
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let stopping = stop.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        stopping.cancel();
    });
    let child = Child {
        recorder: Arc::clone(&recorder),
        database: Database::new(&arguments.database),
        random: Random::new(arguments.seed, &arguments.process),
        process: arguments.process,
        lease: Duration::from_millis(arguments.lease_ms),
        delivery_limit: arguments.delivery_limit,
        stop,
    };
    match arguments.kind {
        Kind::Worker => worker::run(child).await?,
        Kind::Producer => producer::run(child).await?,
        Kind::SqlWorker => sql_worker::run(child).await?,
        Kind::HttpWorker => http_worker::run(child).await?,
        Kind::Scheduler => scheduler::run(child).await?,
        Kind::LeaseHolder => lease_holder::run(child).await?,
        Kind::FleetNode => fleet_node::run(child).await?,
        Kind::Operator => operator::run(child).await?,
        Kind::Receiver => receiver::run(child).await?,
        Kind::Controller => anyhow::bail!("the controller is no child process"),
    }
    recorder.note(Event::Stopped);
    Ok(())
}
