//! The program `mainstay`.

// What it says goes through `output`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod attempt;
mod bench;
mod cli;
mod commands;
mod database;
mod failure;
mod histogram;
mod log;
mod meter;
mod otlp;
mod output;
mod progress;
mod redact;
#[cfg(test)]
mod reference;
mod retention;
mod screen;
mod settings;
mod shop;
mod signals;
mod text;
mod user;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use settings::Settings;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return tell_usage(&error),
    };
    match run(cli) {
        Ok(code) => code,
        Err(error) => failure::report(&error),
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    // It is about to be another program, which no setting of this one concerns.
    #[cfg(target_os = "linux")]
    if let Command::Lease(commands::lease::LeaseCommand::Bound(arguments)) = &cli.command {
        return Err(commands::bound::turn_into(arguments));
    }
    // What is said of the program itself needs no settings, and that of the settings reads them in its own way.
    match &cli.command {
        Command::Completions(arguments) => return commands::completions::run(arguments),
        Command::Man(arguments) => return commands::man::run(arguments),
        Command::Config(command) => return commands::config::run(command, cli.flags),
        _ => {}
    }
    let mut settings = Settings::collect(cli.flags)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut unheeded = Vec::new();
    if matches!(cli.command, Command::Serve(_) | Command::Demo(_)) {
        let within = runtime.enter();
        (settings.otlp, unheeded) = otlp::start(settings.telemetry.clone())?;
        drop(within);
    }
    // The demo's handlers fail on purpose all the time; nobody wants to read that unasked.
    log::start(settings.log_filter(!matches!(cli.command, Command::Demo(_))), settings.otlp.as_ref())?;
    for told in unheeded {
        tracing::warn!("{told}");
    }
    let outcome = runtime.block_on(async {
        match cli.command {
            Command::Demo(arguments) => commands::demo::run(arguments, &settings).await,
            Command::Migrate(arguments) => commands::migrate::run(arguments, &settings).await,
            Command::Outbox(command) => commands::outbox::run(command, &settings).await,
            Command::Jobs(command) => commands::jobs::run(command, &settings).await,
            Command::Fanout(command) => commands::fanout::run(command, &settings).await,
            Command::Joins(command) => commands::joins::run(command, &settings).await,
            Command::Operations(command) => commands::operations::run(command, &settings).await,
            Command::Leases(command) => commands::leases::run(command, &settings).await,
            Command::Lease(command) => commands::lease::run(command, &settings).await,
            Command::Timers(command) => commands::timers::run(command, &settings).await,
            Command::Audit(command) => commands::audit::run(command, &settings).await,
            Command::Retention(command) => commands::retention::run(command, &settings).await,
            Command::Stores(command) => commands::stores::run(command, &settings).await,
            Command::Health(arguments) => commands::health::run(arguments, &settings).await,
            Command::Inbox(command) => commands::inbox::run(command, &settings).await,
            Command::Doctor(arguments) => commands::health::doctor(arguments, &settings).await,
            Command::Why(arguments) => commands::why::run(arguments, &settings).await,
            Command::Serve(arguments) => commands::serve::run(arguments, &settings).await,
            Command::Token(command) => commands::token::run(command, &settings),
            Command::Bench(arguments) => commands::bench::run(arguments, &settings).await,
            Command::Completions(_) | Command::Man(_) | Command::Config(_) => Ok(ExitCode::SUCCESS),
        }
    });
    otlp::stop(settings.otlp.take(), runtime);
    // What to do about some errors depends on the database. One that can't be read from its URL was told as that.
    outcome.map_err(|error| failure::at(error, settings.database().ok().flatten().as_ref()))
}

/// Shows help or what is wrong with the arguments.
fn tell_usage(error: &clap::Error) -> ExitCode {
    output::usage(error);
    if error.use_stderr() { ExitCode::from(failure::USAGE) } else { ExitCode::SUCCESS }
}
