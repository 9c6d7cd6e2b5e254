//! `mainstay leases`: who holds what, and taking it away.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, Subcommand};
use mainstay::lease::{LeaseFilter, LeaseRecord, Leases};
use mainstay::store::Provider;
use serde_json::json;

use crate::attempt::Attempt;
use crate::database::IfMissing;
use crate::failure::{Failure, Told};
use crate::output;
use crate::settings::Settings;
use crate::text::{counted, harmless, moment, shorten};

const LIST_EXAMPLES: &str = "\
Examples:
  mainstay leases list --held
  mainstay leases list --after nightly-report     The page after that name
  mainstay leases list --held --prefix fleet:     The members and the buckets of fleets
  mainstay leases list --json | jq -r '.[] | select(.held) | .name'

Times are UTC, by the database's clock. A lease that was once held stays in the list: its numbers never go back.";

const RELEASE_EXAMPLES: &str = "\
Example:
  mainstay leases release nightly-report

Takes the lease away from whoever holds it. A holder that is still alive learns it at its next renewal, and at once
where it guards its writes; what it does beside the database until then nobody undoes. So look first whether it is
really gone: a lease whose holder has died lapses by itself. The exit code is 1 when nobody held it.";

/// See who holds which lease, and take leases away
#[derive(Debug, Subcommand)]
pub(crate) enum LeasesCommand {
    /// List leases by name
    List(ListArgs),
    /// Show a lease
    Show(ShowArgs),
    /// Take a lease away from its holder
    Release(ReleaseArgs),
}

/// List leases by name
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {
    /// Only those that somebody holds now
    #[arg(long)]
    held: bool,
    /// Only those whose names begin with this
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Rows at most, 1 to 1,000
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only those after this name: the last one of the page before
    #[arg(long, value_name = "NAME")]
    after: Option<String>,
}

/// Show a lease
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The lease's name
    name: String,
}

/// Take a lease away from its holder
#[derive(Debug, Args)]
#[command(after_help = RELEASE_EXAMPLES)]
pub(crate) struct ReleaseArgs {
    /// The lease's name
    name: String,
}

/// Opens the database and finds its schema there.
pub(super) async fn open(settings: &Settings) -> anyhow::Result<Arc<dyn Provider>> {
    let database = settings.require_database()?;
    let provider = database.open(settings.names()?, IfMissing::Refuse).await?;
    let current = provider.schema().require().await;
    current.with_context(|| format!("{database} can't be used"))?;
    Ok(provider)
}

pub(crate) async fn run(command: LeasesCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    let provider = open(settings).await?;
    let attempt = match &command {
        LeasesCommand::Release(arguments) => {
            Some(Attempt::new("lease.force_release").about("lease", [&arguments.name]))
        }
        _ => None,
    };
    let leases = Leases::new(provider.leases()).by(&settings.actor);
    let result = match command {
        LeasesCommand::List(arguments) => list(arguments, &leases, settings).await,
        LeasesCommand::Show(arguments) => show(arguments, &leases, settings).await,
        LeasesCommand::Release(arguments) => release(arguments, &leases, settings).await,
    };
    if let Some(attempt) = attempt {
        attempt.ended(provider.as_ref(), settings, &result).await;
    }
    provider.close().await;
    result
}

async fn list(arguments: ListArgs, leases: &Leases, settings: &Settings) -> anyhow::Result<ExitCode> {
    let filter = LeaseFilter::all()
        .held_only(arguments.held)
        .limit(arguments.limit)
        .after(arguments.after.clone())
        .prefix(arguments.prefix.clone().unwrap_or_default());
    let found = leases.list(&filter).await.context("the leases can't be listed")?;
    if settings.json {
        output::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        output::line("no leases")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["name", "held by", "until", "epoch", "token", "context"]);
    for lease in &found {
        let (holder, until) = match lease.held {
            true => (lease.owner.as_deref().unwrap_or_default(), moment(lease.expires_at)),
            false => ("", String::new()),
        };
        table.add_row([
            shorten(&lease.name, 40).into(),
            shorten(holder, 40).into(),
            until.into(),
            output::number(lease.epoch),
            output::number(lease.fencing_token),
            lease.context.as_deref().map(|text| shorten(text, 60)).unwrap_or_default().into(),
        ]);
    }
    output::print(&table)?;
    if found.len() == arguments.limit as usize
        && let Some(last) = found.last()
    {
        let shown = counted(found.len() as u64, "lease");
        output::note(format_args!("{shown} shown; there may be more: --after {}", harmless(&last.name)));
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(arguments: ShowArgs, leases: &Leases, settings: &Settings) -> anyhow::Result<ExitCode> {
    let found = leases.get(&arguments.name).await.context("the lease can't be read")?;
    let Some(lease) = found else {
        let what = format!("nobody has ever held a lease {:?}", arguments.name);
        return Err(Failure::new(what).hint("`mainstay leases list` shows the names there are").into());
    };
    if settings.json {
        output::json(&lease)?;
    } else {
        tell(&lease)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(lease: &LeaseRecord) -> anyhow::Result<()> {
    let mut rows = vec![("name", lease.name.clone())];
    let mut add = |name, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    match lease.held {
        true => {
            add("held by", lease.owner.clone());
            add("held until", Some(moment(lease.expires_at)));
        }
        false => {
            add("held by", Some("nobody".to_owned()));
            add("lapsed from", lease.owner.clone());
            add("ended", Some(moment(lease.expires_at)));
        }
    }
    add("context", lease.context.clone());
    add("acquired", Some(moment(lease.acquired_at)));
    add("renewed", Some(moment(lease.renewed_at)));
    add("epoch", Some(lease.epoch.to_string()));
    add("fencing token", Some(lease.fencing_token.to_string()));
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    for (name, value) in rows {
        output::line(format_args!("{name:width$}  {}", harmless(&value)))?;
    }
    Ok(())
}

async fn release(arguments: ReleaseArgs, leases: &Leases, settings: &Settings) -> anyhow::Result<ExitCode> {
    let name = &arguments.name;
    let owner = leases.force_release(name).await.context("the lease can't be released")?;
    let refused = format!("{} not released: nobody holds it", harmless(name));
    if settings.json {
        output::json(&json!({ "name": name, "released": owner.is_some(), "owner": owner }))?;
    } else {
        match &owner {
            Some(owner) => {
                output::line(format_args!("{} released: {} held it", harmless(name), harmless(owner)))?;
            }
            None => output::refusal(&refused),
        }
    }
    if owner.is_some() { Ok(ExitCode::SUCCESS) } else { Err(Told(refused).into()) }
}
