//! The command line: what can be asked for, and the words that explain it.
//!
//! Values that may hold a password are plain texts here: clap quotes a value it refuses, so the checking of those is
//! done later, by code that never quotes them.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::commands::{
    audit, bench, completions, config, demo, fanout, health, inbox, jobs, joins, lease, leases, man, migrate,
    operations, outbox, retention, serve, stores, timers, token, why,
};

const EXAMPLES: &str = "\
Examples:
  mainstay demo                                   Watch a small shop at work, nothing to set up
  mainstay --database shop.db migrate             Put Mainstay's tables into a SQLite file
  mainstay outbox enqueue order.paid '{\"order\":7}'
  mainstay outbox list --status failed
  mainstay outbox requeue --all-failed
  mainstay outbox pause mail.send --reason 'the provider is down'
  mainstay outbox export --status ready | mainstay --database new.db outbox import
  mainstay inbox list --state dead
  mainstay why 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11
  mainstay jobs explain '30 2 * * *' --tz Europe/Berlin
  mainstay jobs create nightly '30 2 * * *' --topic report.build --tz Europe/Berlin
  mainstay joins start 3 --key order-7 --on-completed order.ready
  mainstay lease run nightly-report -- ./report.sh
  mainstay leases list --held
  mainstay operations list --state running
  mainstay stores status --fleet fleet.toml       How the databases of a fleet are
  mainstay health --database shop.db              Is it well, and what is to be done?
  mainstay doctor --database shop.db              What may become trouble, and what to do
  mainstay --actor alice --correlation-id TICKET-42 outbox requeue --all-failed
  mainstay audit list --actor alice
  mainstay retention run --keep failed=90d --dry-run
  mainstay timers schedule reminder.send '{\"user\":7}' --due-in 2h
  mainstay serve                                  Background work and an HTTP interface, nothing to set up
  mainstay config check                           What is set, where it comes from, and what is wrong with it
  mainstay bench --database postgres://me@localhost/shop

Settings, the first that is there counts: flag, environment, file, default
  --database      MAINSTAY_DATABASE      database = \"…\"
  --schema        MAINSTAY_SCHEMA        schema = \"infra\"
  --outbox-table  MAINSTAY_OUTBOX_TABLE  outbox_table = \"outbox\"
  --fleet         MAINSTAY_FLEET         fleet = \"fleet.toml\" (for `stores`, `health`, `doctor`)
  --actor         MAINSTAY_ACTOR         [default: cli: and the name of the user]
  -v, -q          MAINSTAY_LOG           log = \"warn\"
  The file is mainstay.toml in the working directory, or the one named by --config.

Exit codes:
  0  done as asked
  1  not as wanted: it failed, something was not found, a check did not pass
  2  wrong usage: an argument, a setting or the configuration file
  3  the database can't be reached";

/// Reliable background work on the database you already run.
#[derive(Debug, Parser)]
#[command(name = "mainstay", version, after_help = EXAMPLES, max_term_width = 110)]
#[command(disable_help_subcommand = true, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) flags: Flags,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Flags {
    /// The database: sqlite:PATH, sqlite::memory:, a plain path.db, postgres://USER@HOST/NAME or
    /// mssql://USER@HOST/NAME
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) database: Option<String>,
    /// The schema of Mainstay's tables; on SQLite a prefix of their names [default: infra]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) schema: Option<String>,
    /// The outbox's table [default: outbox]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) outbox_table: Option<String>,
    /// The configuration file [default: mainstay.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Who does it, as the audit trail has it [default: cli: and the name of the user]; after `audit list`, whose records
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) actor: Option<String>,
    /// What it belongs to, as the audit trail has it: the number of a ticket, say; where messages are made or listed, also theirs
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) correlation_id: Option<String>,
    /// Print JSON on stdout, for programs to read
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Log more to stderr; twice for debug, three times for trace
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Log nothing but errors, and show no progress
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a small shop, watch it, and check its books at the end
    Demo(demo::DemoArgs),
    /// Create Mainstay's tables, or bring them up to date
    Migrate(migrate::MigrateArgs),
    /// Enqueue, look at and mend messages
    #[command(subcommand)]
    Outbox(outbox::OutboxCommand),
    /// Receive, look at and mend messages that come from elsewhere
    #[command(subcommand)]
    Inbox(inbox::InboxCommand),
    /// Register, look at, switch and trigger work that comes round by the clock
    #[command(subcommand)]
    Jobs(jobs::JobsCommand),
    /// Look at, change and start work that is cut into slices
    #[command(subcommand)]
    Fanout(fanout::FanoutCommand),
    /// Start, look at and change joins: several steps, and what happens when they have ended
    #[command(subcommand)]
    Joins(joins::JoinsCommand),
    /// Look at work that takes a while, and give up what is stalled
    #[command(subcommand)]
    Operations(operations::OperationsCommand),
    /// See who holds which lease, and take leases away
    #[command(subcommand)]
    Leases(leases::LeasesCommand),
    /// Do something while holding a lease
    #[command(subcommand)]
    Lease(lease::LeaseCommand),
    /// Schedule, look at and change messages for later
    #[command(subcommand)]
    Timers(timers::TimersCommand),
    /// See who did what, and what came of it
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Delete what is over and past its age
    #[command(subcommand)]
    Retention(retention::RetentionCommand),
    /// Check whether a database, or each of a fleet, is well; a probe for deployments
    Health(health::HealthArgs),
    /// Examine a database more closely than health does, and say what to do
    Doctor(health::DoctorArgs),
    /// Tell why a message is not running, and what to do
    Why(why::WhyArgs),
    /// Look at and set up the databases of a fleet
    #[command(subcommand)]
    Stores(stores::StoresCommand),
    /// Run the background work and an HTTP interface
    Serve(serve::ServeArgs),
    /// Make tokens for the HTTP interface
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Check the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print the completions of a shell
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write all of them
    Man(man::ManArgs),
    /// Measure the outbox on your own database
    Bench(bench::BenchArgs),
}
