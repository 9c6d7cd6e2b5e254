//! `mainstay fanout`: work that is cut into slices, one for each shard.

mod change;
mod cursors;
mod list;
mod register;
mod shards;
mod show;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::SignedDuration;
use mainstay::Leases;
use mainstay::fanout::Fanout;

use crate::attempt::Attempt;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::text::harmless;

use super::outbox::Opened;

/// Look at, change and start work that is cut into slices
#[derive(Debug, Subcommand)]
pub(crate) enum FanoutCommand {
    /// List fan-outs and their policies
    List,
    /// Show a fan-out's policy and who coordinates it
    Show(KeyArgs),
    /// Register a fan-out: a topic with a work key, and how often its shards are due
    Register(register::RegisterArgs),
    /// Change a fan-out's policy at run time; what is not named stays as it is
    Set(change::SetArgs),
    /// Ask for a run now
    Run(change::RunArgs),
    /// List the shards of a fan-out and how far each has come
    Cursors(cursors::CursorsArgs),
    /// Make shards known to a fan-out
    AddShards(shards::AddArgs),
    /// Forget shards of a fan-out, and how far they have come
    ForgetShards(shards::ForgetArgs),
    /// Delete a fan-out, with its shards
    Delete(register::DeleteArgs),
}

/// Which fan-out
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// Its topic
    topic: String,
    /// Its work key
    work_key: String,
}

impl KeyArgs {
    /// As it is known.
    fn plain(&self) -> String {
        format!("{}:{}", self.topic, self.work_key)
    }

    /// As a terminal may show it.
    fn shown(&self) -> String {
        harmless(&self.plain())
    }

    /// The failure for a key that no fan-out has.
    fn unknown(&self) -> Failure {
        Failure::new(format!("there is no fan-out {}", self.shown())).hint(
            "`mainstay fanout list` shows those there are; the programs that work on them register them, or `mainstay fanout register`",
        )
    }
}

/// A span as it can be given back to `set`.
fn span(duration: Duration) -> String {
    format!("{:#}", SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX))
}

pub(crate) async fn run(command: FanoutCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    // What can be refused without a database is refused first.
    match &command {
        FanoutCommand::Register(arguments) => arguments.check()?,
        FanoutCommand::Set(arguments) => arguments.check()?,
        FanoutCommand::AddShards(arguments) => arguments.check()?,
        FanoutCommand::ForgetShards(arguments) => arguments.check()?,
        _ => {}
    }
    let of = |name: &'static str, key: &KeyArgs| Some(Attempt::new(name).about("fanout", [key.plain()]));
    let attempt = match &command {
        FanoutCommand::Register(arguments) => of("fanout.register", &arguments.key),
        FanoutCommand::Set(arguments) => of("fanout.set", arguments.key()),
        FanoutCommand::Run(arguments) => of("fanout.run", arguments.key()),
        FanoutCommand::AddShards(arguments) => Some(arguments.attempt()),
        FanoutCommand::ForgetShards(arguments) => Some(arguments.attempt()),
        FanoutCommand::Delete(arguments) => of("fanout.delete", &arguments.key),
        FanoutCommand::List | FanoutCommand::Show(_) | FanoutCommand::Cursors(_) => None,
    };
    let opened = Opened::open(settings).await?;
    let fanout = Fanout::new(opened.provider.as_ref()).by(&settings.actor);
    let result = match command {
        FanoutCommand::List => list::run(&fanout, settings).await,
        FanoutCommand::Show(key) => {
            show::run(&key, &fanout, &Leases::new(opened.provider.leases()), settings).await
        }
        FanoutCommand::Register(arguments) => register::register(&arguments, &fanout, settings).await,
        FanoutCommand::Set(arguments) => change::set(&arguments, &fanout, settings).await,
        FanoutCommand::Run(arguments) => change::run(&arguments, &fanout, settings).await,
        FanoutCommand::Cursors(arguments) => cursors::run(&arguments, &fanout, settings).await,
        FanoutCommand::AddShards(arguments) => shards::add(&arguments, &fanout, settings).await,
        FanoutCommand::ForgetShards(arguments) => shards::forget(&arguments, &fanout, settings).await,
        FanoutCommand::Delete(arguments) => register::delete(&arguments, &fanout, settings).await,
    };
    if let Some(attempt) = attempt {
        attempt.ended(opened.provider.as_ref(), settings, &result).await;
    }
    opened.provider.close().await;
    result
}
