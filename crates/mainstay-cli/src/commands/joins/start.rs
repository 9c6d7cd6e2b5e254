//! `mainstay joins start`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use mainstay::{ErrorKind, JoinId, JoinMode, Joins, Message, NewJoin};
use serde_json::json;

use crate::commands::content::lenient;
use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::{parse_duration, parse_timestamp};

const EXAMPLES: &str = "\
Examples:
  mainstay joins start 3 --key order-7 --on-completed order.ready --on-completed-payload 7
  mainstay joins start 5 --quorum 3 --on-completed vote.passed --on-failed vote.lost
  mainstay joins start 100 --mode deadline --deadline-in 1h --on-completed report.build

Prints the join's id. Messages become steps of it with `mainstay outbox enqueue --join ID` or `mainstay joins attach`. Deadlines
are kept by whichever process runs Mainstay with joins.";

/// Start a join
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StartArgs {
    /// How many steps it has, 1 to 1,000,000,000
    expected: u32,
    /// When it has ended, and how [default: all]
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// It has completed when this many steps have, and failed when that can't be any more
    #[arg(long, value_name = "N")]
    quorum: Option<u32>,
    /// What it is found by later, 1 to 255 characters
    #[arg(long)]
    key: Option<String>,
    /// End it this long from now at the latest, by the database's clock: 30s, 5m, 1h30m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "deadline_at")]
    deadline_in: Option<Duration>,
    /// End it at this moment at the latest: 2027-01-31T09:00:00Z
    #[arg(long, value_name = "MOMENT", value_parser = parse_timestamp)]
    deadline_at: Option<Timestamp>,
    /// The topic of the message that is enqueued when it completes
    #[arg(long, value_name = "TOPIC")]
    on_completed: Option<String>,
    /// The payload of that message [default: empty]
    #[arg(long, value_name = "PAYLOAD", requires = "on_completed")]
    on_completed_payload: Option<String>,
    /// The topic of the message that is enqueued when it fails
    #[arg(long, value_name = "TOPIC")]
    on_failed: Option<String>,
    /// The payload of that message [default: empty]
    #[arg(long, value_name = "PAYLOAD", requires = "on_failed")]
    on_failed_payload: Option<String>,
    /// Link the messages to the request they came from
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Its id, instead of a new one
    #[arg(long, value_parser = super::parse_id)]
    id: Option<JoinId>,
}

/// When a join has ended.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// When all steps have ended; failed if any has failed
    All,
    /// When one step has completed; failed when all have failed
    Any,
    /// When as many steps have completed as --quorum says; failed when that can't be any more
    Quorum,
    /// As all, and at the deadline by what has ended by then
    Deadline,
}

impl StartArgs {
    /// The id it was given, if any.
    pub(super) fn id(&self) -> Option<JoinId> {
        self.id
    }

    fn join(&self) -> NewJoin {
        let mode = match (self.quorum, self.mode) {
            (Some(needed), _) => JoinMode::Quorum(needed),
            // Refused by `check` where a quorum was asked for without its number.
            (None, None | Some(Mode::All | Mode::Quorum)) => JoinMode::All,
            (None, Some(Mode::Any)) => JoinMode::Any,
            (None, Some(Mode::Deadline)) => JoinMode::Deadline,
        };
        let mut join = NewJoin::new(self.expected).mode(mode);
        join = self.id.into_iter().fold(join, NewJoin::id);
        join = self.key.iter().fold(join, NewJoin::grouping_key);
        join = self.deadline_in.into_iter().fold(join, NewJoin::deadline_in);
        join = self.deadline_at.into_iter().fold(join, NewJoin::deadline_at);
        let on_completed = self.continuation(self.on_completed.as_ref(), self.on_completed_payload.as_ref());
        join = on_completed.into_iter().fold(join, NewJoin::on_completed);
        let on_failed = self.continuation(self.on_failed.as_ref(), self.on_failed_payload.as_ref());
        on_failed.into_iter().fold(join, NewJoin::on_failed)
    }

    fn continuation(&self, topic: Option<&String>, payload: Option<&String>) -> Option<Message> {
        let message = Message::new(topic?, payload.cloned().unwrap_or_default());
        Some(self.correlation_id.iter().fold(message, Message::correlation))
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        match (self.quorum, self.mode) {
            (None, Some(Mode::Quorum)) => {
                return Err(Failure::usage("--mode quorum needs to know how many steps have to complete")
                    .hint("say `--quorum 3`, which is enough by itself")
                    .into());
            }
            (Some(_), Some(Mode::All | Mode::Any | Mode::Deadline)) => {
                return Err(Failure::usage("--quorum and --mode contradict each other")
                    .hint("leave --mode away: --quorum is a mode")
                    .into());
            }
            _ => {}
        }
        if self.key.as_deref() == Some("") {
            // To the library an empty one is none.
            let failure = Failure::usage("the join can't be started");
            return Err(failure.because("--key must be 1 to 255 characters, got 0").into());
        }
        self.join().prepare(&lenient()).context("the join can't be started")?;
        Ok(())
    }
}

pub(super) async fn run(
    arguments: &StartArgs,
    joins: &Joins,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let started = joins.start(arguments.join()).await;
    let id = started.map_err(|error| match (error.kind(), arguments.id) {
        // All else that could be wrong with it was checked before.
        (ErrorKind::InvalidArgument, Some(id)) => Failure::new(format!("there is a join {id} already"))
            .hint(format!("`mainstay joins show {id}` shows it"))
            .into(),
        _ => anyhow::Error::new(error).context("the join was not started"),
    })?;
    if settings.json {
        output::json(&json!({ "id": id }))?;
    } else {
        output::line(format_args!("join {id}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
