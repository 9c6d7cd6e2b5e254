//! `mainstay demo`: a small shop on outbox, inbox, timers, a job, a lease, and a fan-out over a fleet, with nothing to set up.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use mainstay::store::Provider;
use tempfile::TempDir;

use crate::database::{Database, IfMissing, connect_postgres, connect_sqlserver};
use crate::failure::Failure;
use crate::output::Stream;
use crate::screen;
use crate::settings::Settings;
use crate::shop::{self, Plan, PostgresShop, SCHEMA, SqlServerShop, SqliteShop};
use crate::signals::Signals;
use crate::text::parse_positive_duration;

const DETAILS: &str = "\
Examples:
  mainstay demo
  mainstay demo --for 30s --rate 500
  mainstay demo --database demo.db              Keep the database and look into it afterwards
  mainstay demo --database postgres://me@localhost/test --workers 32
  mainstay demo --for 5s --json                 The summary as one JSON object

Customers place orders; an order and its message are written in one transaction. Workers ship
them; a shipment, the notice to the customer and the end of the message are one transaction.
Some orders fail and are retried, some are slow, some poison, some expire, some must go in order.
Beside that, timers remind customers, a job takes stock every second, an inbox takes in what the
carrier reports (often twice, once counts), two foremen want the forklift that a lease gives to one,
and every second a fan-out has three branches counted, each in a SQLite database of its own in a
temporary folder; a join says when all of them have been.

Without --for it runs until Ctrl-C on a terminal, and for 10 s otherwise. The first Ctrl-C
closes the shop, finishes what was ordered and checks the books; the second quits at once (130).
The books are read from the database. The exit code is 0 if they balance and 1 if they do not.

Without a database it uses a temporary SQLite file that is removed at the end. In a database of
yours it keeps to the schema mainstay_demo (a prefix on SQLite), unless --schema names another;
drop that to remove its traces.";

/// How long the shop is open where nobody can press Ctrl-C.
const UNATTENDED: Duration = Duration::from_secs(10);

/// Run a small shop, watch it, and check its books at the end
#[derive(Debug, Args)]
#[command(after_help = DETAILS)]
pub(crate) struct DemoArgs {
    /// How long orders are placed: 10s, 5m [default: until Ctrl-C on a terminal, otherwise 10s]
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_positive_duration)]
    open_for: Option<Duration>,
    /// Orders per second
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Handlers at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    workers: u32,
}

pub(crate) async fn run(arguments: DemoArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let names = settings.names_in(settings.schema_flag.as_deref().unwrap_or(SCHEMA))?;
    let folder = tempfile::Builder::new().prefix("mainstay-demo-").tempdir();
    let folder = folder.context("no temporary folder can be made")?;
    let (database, is_temporary) = match settings.database()? {
        Some(Database::SqliteMemory) => {
            return Err(Failure::usage("the demo needs a database that two connections can open")
                .because("the shop writes its orders through a connection of its own, and sqlite::memory: has only one")
                .hint("leave --database out for a temporary file, or name a file")
                .into());
        }
        Some(database) => (database, false),
        None => (Database::SqliteFile(folder.path().join("demo.db")), true),
    };
    let location = match is_temporary {
        true => "a temporary SQLite file".to_owned(),
        false => database.to_string(),
    };
    let on_terminal = Stream::Out.is_terminal() && !settings.json;
    let plan = Plan {
        open_for: arguments.open_for.or(if on_terminal { None } else { Some(UNATTENDED) }),
        rate: f64::from(arguments.rate),
        workers: arguments.workers as usize,
        queues: match database {
            Database::Postgres(_) | Database::SqlServer(_) => 8,
            // SQLite has one writer at a time; more customers would only queue for the lock.
            Database::SqliteFile(_) | Database::SqliteMemory => 1,
        },
        branches: folder.path().to_owned(),
        location,
        schema: names.schema().to_owned(),
    };

    let signals = Signals::watch(tidy_up(&folder));
    let in_place = settings.may_draw();
    let view = |location: &str| shop::View::new(location, in_place, settings.quiet);
    let summary = match &database {
        Database::Postgres(url) => {
            // Each worker may hold a transaction, and each customer one more.
            let pool = plan.workers + plan.queues as usize + 4;
            let postgres = connect_postgres(url, names, pool).await?;
            let provider: Arc<dyn Provider> = Arc::new(postgres.clone());
            let view = view(&plan.location);
            let summary =
                shop::run(PostgresShop::new(postgres), Arc::clone(&provider), plan, view, signals).await;
            provider.close().await;
            summary?
        }
        Database::SqliteFile(path) => {
            let schema = names.schema().to_owned();
            let provider = database.open(names, IfMissing::Create).await?;
            let shop = SqliteShop::connect(path, &schema)?;
            let view = view(&plan.location);
            let summary = shop::run(shop, Arc::clone(&provider), plan, view, signals).await;
            provider.close().await;
            summary?
        }
        Database::SqliteMemory => return Err(Failure::usage("the demo needs a file").into()),
        Database::SqlServer(url) => {
            let pool = plan.workers + 4;
            let server = connect_sqlserver(url, names, pool).await?;
            let provider: Arc<dyn Provider> = Arc::new(server.clone());
            let view = view(&plan.location);
            let summary =
                shop::run(SqlServerShop::new(server), Arc::clone(&provider), plan, view, signals).await;
            provider.close().await;
            summary?
        }
    };
    drop(folder);
    shop::tell(&summary, settings.json)
}

/// What is left to do when nothing will be dropped any more.
fn tidy_up(folder: &TempDir) -> impl FnOnce() + Send + 'static {
    let folder = folder.path().to_owned();
    move || {
        screen::restore();
        // Nothing can be done about a folder that stays; the system clears it away some day.
        let _left = std::fs::remove_dir_all(folder);
    }
}
