//! `mainstay serve`: the background work and the HTTP interface, in one process.
//!
//! It listens before the database is there, so that its health can be asked for all the time. It stops in the other order: first nothing
//! new comes in, then what is under way ends, then the background work.

mod listening;
mod notify;
mod reload;
pub(crate) mod settings;
mod webhooks;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use mainstay::fleet::{DatabaseFile, Fleet, UrlConnector};
use mainstay::health::{Startup, WatchdogOptions};
use mainstay::otlp::Otlp;
use mainstay::server::{Interface, Listener, metrics};
use mainstay::{ErrorKind, Mainstay};
use tokio_util::sync::CancellationToken;

use crate::database::{Database, IfMissing};
use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::signals::Signals;

use reload::Reload;
use settings::{ListenArgs, Serving};

/// The database where none is named: a file in the working directory.
const EMBEDDED: &str = "mainstay.db";

/// Connections to a server's database. Requests wait for each other beyond that.
const POOL: usize = 16;

/// How often the databases of a fleet are looked at, also those that rest.
const WATCH_FLEET: Duration = Duration::from_secs(300);

/// How often a start is looked at.
const LOOK: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Examples:
  mainstay serve                                  On mainstay.db in this folder, at http://127.0.0.1:7417
  mainstay serve --database postgres://app@db/shop --deploy
  mainstay serve --fleet fleet.toml
  mainstay token new ci --role operator           A token, and what the configuration has of it
  curl localhost:7417/v1/outbox/messages -d '{\"topic\":\"order.paid\",\"payload\":\"7\"}' -H content-type:application/json
  curl localhost:7417/openapi.json

Without tokens or a proxy it listens on loopback only, and everybody there may do everything.
The file mainstay.toml may have a section [serve]; docs/reference/configuration.md has all of it.";

/// Run the background work and an HTTP interface
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    listening: ListenArgs,
    /// Bring the schema up to date at the start; on SQLite that is always done
    #[arg(long)]
    deploy: bool,
    /// Coordinate the fan-outs of the database, or of each of a fleet, with the shards it knows; done by default where no database is
    /// named
    #[arg(long)]
    coordinate_fanouts: bool,
    /// The databases that this fleet file names, instead of one; also MAINSTAY_FLEET or `fleet = "…"` where no database is named
    #[arg(long, value_name = "FILE")]
    fleet: Option<PathBuf>,
}

pub(crate) async fn run(arguments: ServeArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let serving = Serving::collect(arguments.listening.clone(), settings.serve.clone())?;
    let named = settings.database()?;
    let fleet = match &named {
        Some(_) if arguments.fleet.is_none() => None,
        _ => settings.fleet(arguments.fleet.clone())?,
    };
    let metrics = metrics::install_beside(settings.otlp.as_ref().and_then(Otlp::recorder))?;
    tokio::spawn(metrics::upkeep(metrics.clone()));
    let asked = arguments.coordinate_fanouts || serving.coordinates_fanouts();
    match fleet {
        Some(file) => {
            let deploy = arguments.deploy;
            let serving = Arc::new(serving);
            let each = Arc::clone(&serving);
            let fleet = Fleet::builder(DatabaseFile::new(file), UrlConnector::new())
                .each(move |_, mainstay| {
                    each.background(mainstay).coordinate_fanouts(asked).deploy_schema(deploy)
                })
                .options(|options| options.handlers = options.handlers.max(serving.handlers_at_once()))
                .build()?;
            let stop = CancellationToken::new();
            let interface = serving.interface(fleet.clone(), metrics, stop.clone())?;
            let listener = serving.listen().await?;
            let reload = Reload::of(arguments.listening, &interface, &listener, &serving);
            serve_fleet(fleet, interface, listener, reload, stop, settings).await
        }
        None => {
            let coordinates = asked || named.is_none();
            let database = match named {
                Some(database) => database,
                None => Database::parse(EMBEDDED)?,
            };
            let embedded = matches!(database, Database::SqliteFile(_) | Database::SqliteMemory);
            let provider = database.open_with(settings.names()?, IfMissing::Create, POOL).await?;
            let mainstay = serving
                .background(Mainstay::builder_over(provider))
                .coordinate_fanouts(coordinates)
                .watchdog(WatchdogOptions::default())
                .deploy_schema(embedded || arguments.deploy)
                .build()?;
            let stop = CancellationToken::new();
            let interface = serving.interface(mainstay.clone(), metrics, stop.clone())?;
            let listener = serving.listen().await?;
            let reload = Reload::of(arguments.listening, &interface, &listener, &serving);
            serve_one(mainstay, interface, listener, reload, stop, settings).await
        }
    }
}

async fn serve_one(
    mainstay: Mainstay,
    interface: Interface,
    listener: Listener,
    mut reload: Reload,
    stop: CancellationToken,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let listening = listening::Listening::start(interface, listener, stop.clone(), settings)?;
    let stopped = CancellationToken::new();
    let work = mainstay.run(stopped.clone().cancelled_owned());
    tokio::pin!(work);
    let mut signals = Signals::watch(|| ());
    let ended = tokio::select! {
        ended = work.as_mut() => Some(ended),
        () = signals.stop() => None,
        () = reload.follow(settings) => None,
        () = async {
            while mainstay.startup() != Startup::Running {
                tokio::time::sleep(LOOK).await;
            }
            listening.ready();
            std::future::pending().await
        } => None,
    };
    listening.stop().await;
    stopped.cancel();
    let ended = match ended {
        // It ended by itself: it could not start, or a service broke.
        Some(ended) => ended,
        None => work.await,
    };
    mainstay.provider().close().await;
    ended.map_err(advised)?;
    listening::told_stopped(settings)?;
    Ok(ExitCode::SUCCESS)
}

async fn serve_fleet(
    fleet: Fleet,
    interface: Interface,
    listener: Listener,
    mut reload: Reload,
    stop: CancellationToken,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let listening = listening::Listening::start(interface, listener, stop, settings)?;
    let mut signals = Signals::watch(|| ());
    let running = tokio::select! {
        running = fleet.start() => Some(running),
        () = signals.stop() => None,
    };
    if let Some(Ok(_)) = &running {
        listening.ready();
        // Its options are ours, and in bounds.
        let watching = fleet.watchdog(WatchdogOptions::default().interval(WATCH_FLEET));
        tokio::select! {
            () = signals.stop() => {}
            () = reload.follow(settings) => {}
            _refused = watching => signals.stop().await,
        }
    }
    listening.stop().await;
    if let Some(running) = running {
        running.map_err(advised)?.stop().await;
    }
    listening::told_stopped(settings)?;
    Ok(ExitCode::SUCCESS)
}

fn advised(error: mainstay::Error) -> anyhow::Error {
    if error.kind() == ErrorKind::Schema {
        return Failure::new("the schema is not the right one")
            .because(error.message())
            .hint("run `mainstay migrate`, or start with --deploy")
            .into();
    }
    error.into()
}

/// Says where it listens.
fn tell(settings: &Settings, event: &str, url: Option<&str>) -> anyhow::Result<()> {
    if settings.json {
        return output::json(&serde_json::json!({"event": event, "url": url}));
    }
    match url {
        Some(url) => output::line(format_args!("{event} {url}")),
        None => output::line(event),
    }
}
