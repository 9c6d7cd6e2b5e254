//! `mainstay stores`: the databases of a fleet, as its file names them.
//!
//! Each database is visited on its own: one that is down, slow or of another schema is told as that, and changes nothing for the others.
//! What is shown of a database is where it is, never its password.

mod deploy;
mod list;
mod status;
pub(super) mod visit;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use mainstay::fleet::{DatabaseEntry, DatabaseFile};
use mainstay::store::Names;

use crate::database::Database;
use crate::failure::{self, Failure};
use crate::settings::Settings;
use crate::text::parse_positive_duration;

use visit::Trouble;

const LIST_EXAMPLES: &str = "\
Examples:
  mainstay stores list --fleet fleet.toml
  mainstay stores list --json | jq -r '.[].id'

Only the file is read; no database is asked. A fleet file names each database by an id and a URL:

  [[databases]]
  id = \"acme\"
  url = \"postgres://app:…@db1/acme\"

  [[databases]]
  id = \"globex\"
  url = \"sqlite:/var/lib/app/globex.db\"
  schema = \"work\"                       # [default: infra]

A file whose name ends in .json holds the same as JSON. Paths are seen from the working directory.";

const STATUS_EXAMPLES: &str = "\
Examples:
  mainstay stores status
  mainstay stores status acme globex
  mainstay stores status --json | jq -r '.[] | select(.ok | not) | .id'

Asks each database for its schema, its messages, and when it has something to do next. The exit code is 0 if all are
well, 3 if those that are not can't be reached, and 1 if one has another trouble.";

const DEPLOY_EXAMPLES: &str = "\
Examples:
  mainstay stores deploy
  mainstay stores deploy acme --timeout 30m

Creates Mainstay's tables in each database, or brings them up to date. A SQLite file that is not there is made. One
database that fails stops no other, so run it again when it is mended: where there is nothing to do, nothing changes.
The exit code is 0 if all are current, 3 if those that are not can't be reached, and 1 if one has another trouble.";

/// Look at and set up the databases of a fleet
#[derive(Debug, Subcommand)]
pub(crate) enum StoresCommand {
    /// List the databases that the fleet file names
    #[command(after_help = LIST_EXAMPLES)]
    List(FleetArgs),
    /// Ask each database how it is
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Create Mainstay's tables in each database, or bring them up to date
    #[command(after_help = DEPLOY_EXAMPLES)]
    Deploy(DeployArgs),
}

/// Which databases.
#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    /// Only the databases with these ids
    #[arg(value_name = "ID")]
    pub(super) ids: Vec<String>,
    /// The fleet file, TOML or JSON; also MAINSTAY_FLEET or `fleet = "…"` in the configuration file
    #[arg(long, value_name = "FILE")]
    pub(super) fleet: Option<PathBuf>,
}

/// How they are asked.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    fleet: FleetArgs,
    /// How long one database may take to answer
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_positive_duration)]
    timeout: Duration,
    /// Databases asked at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    at_once: u32,
}

/// How they are set up.
#[derive(Debug, Args)]
pub(crate) struct DeployArgs {
    #[command(flatten)]
    fleet: FleetArgs,
    /// How long one database may take
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_positive_duration)]
    timeout: Duration,
    /// Databases set up at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    at_once: u32,
}

/// A database that the fleet file names.
pub(in crate::commands) struct Store {
    id: String,
    names: Names,
    /// Where it is, or what is wrong with its URL.
    database: Result<Database, Trouble>,
}

impl Store {
    fn new(entry: DatabaseEntry, outbox: Option<&str>) -> anyhow::Result<Self> {
        let names = match outbox {
            Some(table) => entry.names.with_outbox(table)?,
            None => entry.names,
        };
        let database = Database::parse(entry.target.expose());
        Ok(Self { id: entry.id, names, database: database.map_err(|failure| Trouble::of(&failure.into())) })
    }

    /// Its id.
    pub(in crate::commands) fn id(&self) -> &str {
        &self.id
    }

    /// Where it is, as it may be shown.
    pub(in crate::commands) fn location(&self) -> Option<String> {
        self.database.as_ref().ok().map(ToString::to_string)
    }
}

pub(crate) async fn run(command: StoresCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    match command {
        StoresCommand::List(arguments) => list::run(&read(arguments, settings)?, settings),
        StoresCommand::Status(StatusArgs { fleet, timeout, at_once }) => {
            status::run(read(fleet, settings)?, timeout, at_once, settings).await
        }
        StoresCommand::Deploy(DeployArgs { fleet, timeout, at_once }) => {
            deploy::run(read(fleet, settings)?, timeout, at_once, settings).await
        }
    }
}

/// Reads the fleet file.
pub(super) fn read(arguments: FleetArgs, settings: &Settings) -> anyhow::Result<Vec<Store>> {
    if settings.schema_flag.is_some() {
        return Err(Failure::usage("--schema is not for a fleet")
            .because("each of its databases may have another; the fleet file says which")
            .hint("write `schema = \"…\"` beside the database's url")
            .into());
    }
    let Some(path) = settings.fleet(arguments.fleet)? else {
        return Err(Failure::usage("no fleet file is named")
            .hint("give --fleet FILE, set MAINSTAY_FLEET, or write `fleet = \"…\"` into mainstay.toml\n`mainstay stores list --help` shows what is in it")
            .into());
    };
    let shown = path.display().to_string();
    // Whatever is wrong with it, it is the file that has to be mended and no database.
    let mut entries = DatabaseFile::new(path).read().map_err(|error| {
        let source =
            std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        Failure::usage(format!("the fleet file {shown} can't be used"))
            .because(format_args!("{}{source}", error.message()))
    })?;
    if entries.is_empty() {
        return Err(Failure::usage(format!("the fleet file {shown} names no database"))
            .hint("`mainstay stores list --help` shows what is in it")
            .into());
    }
    if let Some(unknown) = arguments.ids.iter().find(|id| entries.iter().all(|entry| entry.id != **id)) {
        return Err(Failure::new(format!("there is no database {unknown:?} in {shown}"))
            .hint("`mainstay stores list` shows the ids there are")
            .into());
    }
    if !arguments.ids.is_empty() {
        entries.retain(|entry| arguments.ids.contains(&entry.id));
    }
    entries.sort_by(|a, b| a.id.cmp(&b.id));
    let outbox = settings.outbox_table();
    entries.into_iter().map(|entry| Store::new(entry, outbox)).collect()
}

/// The databases of a fleet file whose URLs can't be used, and what is wrong with each. None of them is asked.
pub(in crate::commands) async fn troubles(
    path: &Path,
    settings: &Settings,
) -> anyhow::Result<Vec<(String, String)>> {
    let arguments = FleetArgs { ids: Vec::new(), fleet: Some(path.to_owned()) };
    let mut troubles = Vec::new();
    for Store { id, names, database } in read(arguments, settings)? {
        let checked = match database {
            Ok(database) => database.check(names).await.map_err(|error| Trouble::of(&error)),
            Err(trouble) => Err(trouble),
        };
        troubles.extend(checked.err().map(|trouble| (id, trouble.text)));
    }
    Ok(troubles)
}

/// The exit code of a visit to several databases.
fn verdict(codes: impl IntoIterator<Item = u8>) -> ExitCode {
    let mut worst = None;
    for code in codes {
        worst = match (worst, code) {
            (None | Some(failure::UNREACHABLE), failure::UNREACHABLE) => Some(failure::UNREACHABLE),
            _ => Some(failure::FAILED),
        };
    }
    worst.map_or(ExitCode::SUCCESS, ExitCode::from)
}
