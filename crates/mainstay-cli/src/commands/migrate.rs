//! `mainstay migrate`: the tables, made or brought up to date.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::store::{Names, SchemaStatus};
use serde_json::json;

use crate::attempt::Attempt;
use crate::database::{Database, IfMissing, connect_postgres, connect_sqlserver};
use crate::failure::{self, FAILED, Failure};
use crate::output;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  mainstay --database shop.db migrate
  mainstay --database postgres://me@localhost/shop migrate --check && ./start
  mainstay --database postgres://localhost/any migrate --print > schema.sql
  mainstay --database postgres://localhost/any migrate --grants shop_app | psql shop

Any number of instances may run it at once; running it again changes nothing.
--print and --grants need no database that answers: the URL only says which kind of script.
With --json they print an object with the script in it.
With --check the exit code is 0 when the schema is current and 1 when it is not.";

/// Create Mainstay's tables, or bring them up to date
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MigrateArgs {
    /// Print the whole script instead of running it
    #[arg(long, conflicts_with = "check")]
    print: bool,
    /// Change nothing; only tell whether the schema is current
    #[arg(long)]
    check: bool,
    /// Print the script that gives a role what an application needs and no more (PostgreSQL, SQL Server)
    #[arg(long, value_name = "ROLE", conflicts_with_all = ["print", "check"])]
    grants: Option<String>,
}

pub(crate) async fn run(arguments: MigrateArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let database = settings.require_database()?;
    let names = settings.names()?;
    if let Some(role) = &arguments.grants {
        return print_grants(&database, names, role, settings).await;
    }
    if arguments.print {
        return print(&database, names, settings).await;
    }
    let schema_name = names.schema().to_owned();
    let missing = if arguments.check { IfMissing::Refuse } else { IfMissing::Create };
    let provider = database.open(names, missing).await?;
    let schema = provider.schema();
    let doing = || format!("could not {} {database}", if arguments.check { "look at" } else { "migrate" });
    let before = schema.status().await.with_context(doing)?;
    let deployed = if arguments.check { Ok(before.clone()) } else { schema.deploy_by(&settings.actor).await };
    let deployed = deployed.with_context(doing);
    if let Err(error) = &deployed {
        // Where there has been a deployment before, there is a trail to tell it.
        let (code, text) = failure::in_a_line(error);
        let attempt = Attempt::new("schema.deploy").about("schema", [schema_name]);
        attempt.failed(provider.as_ref(), &settings.actor, code, &text).await;
    }
    provider.close().await;
    let status = deployed?;

    let (current, usable) = (matches!(status, SchemaStatus::Current { .. }), status.is_usable());
    if settings.json {
        output::json(&json!({
            "database": database.to_string(),
            "current": current,
            "changed": before != status,
            "status": word(&status),
            "version": found(&status),
            "message": status.to_string(),
        }))?;
    } else if usable {
        let done = if before == status { "nothing to do" } else { "migrated" };
        let done = if arguments.check { word(&status) } else { done };
        output::line(format_args!("{database}: {done}; {status}"))?;
    } else {
        output::note(format_args!("{database}: not current: {status}"));
    }
    Ok(if usable { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

async fn print(database: &Database, names: Names, settings: &Settings) -> anyhow::Result<ExitCode> {
    let provider = match database {
        // A script needs no file, and making one would be a surprise.
        Database::SqliteFile(_) | Database::SqliteMemory => {
            Database::SqliteMemory.open(names, IfMissing::Create).await?
        }
        Database::Postgres(_) | Database::SqlServer(_) => database.open(names, IfMissing::Refuse).await?,
    };
    let script = provider.schema().script();
    provider.close().await;
    if settings.json {
        output::json(&json!({ "database": database.to_string(), "script": script }))?;
    } else {
        output::line(script.trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn print_grants(
    database: &Database,
    names: Names,
    role: &str,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    check_role(database, role)?;
    let script = match database {
        Database::Postgres(url) => connect_postgres(url, names, 1).await?.grants_script(role),
        Database::SqlServer(url) => connect_sqlserver(url, names, 2).await?.grants_script(role),
        Database::SqliteFile(_) | Database::SqliteMemory => {
            return Err(Failure::usage("--grants needs a database on a server")
                .because("SQLite has no roles; whoever may open the file may do everything")
                .into());
        }
    };
    if settings.json {
        output::json(&json!({ "database": database.to_string(), "role": role, "script": script }))?;
    } else {
        output::line(script.trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What no server takes for the name of a role.
fn check_role(database: &Database, role: &str) -> Result<(), Failure> {
    let (length, most, unit) = match database {
        Database::Postgres(_) => (role.len(), 63, "bytes"),
        _ => (role.encode_utf16().count(), 128, "characters"),
    };
    let reason = match (1..=most).contains(&length) {
        false => format!("--grants must be 1 to {most} {unit}, got {length}"),
        true if role.contains('\0') => "--grants must not contain NUL".to_owned(),
        true => return Ok(()),
    };
    Err(Failure::usage("the role is not valid").because(reason))
}

pub(super) fn word(status: &SchemaStatus) -> &'static str {
    match status {
        SchemaStatus::Current { .. } => "current",
        SchemaStatus::Compatible { .. } => "compatible",
        SchemaStatus::Missing { .. } => "missing",
        SchemaStatus::Outdated { .. } => "outdated",
        SchemaStatus::Newer { .. } => "newer",
        SchemaStatus::Incomplete { .. } => "incomplete",
        SchemaStatus::Unrecorded { .. } => "unrecorded",
        SchemaStatus::Drifted { .. } => "drifted",
        _ => "unknown",
    }
}

pub(super) fn found(status: &SchemaStatus) -> Option<i32> {
    match status {
        SchemaStatus::Current { version } | SchemaStatus::Incomplete { version } => Some(*version),
        SchemaStatus::Outdated { found, .. }
        | SchemaStatus::Compatible { found, .. }
        | SchemaStatus::Newer { found, .. } => Some(*found),
        _ => None,
    }
}
