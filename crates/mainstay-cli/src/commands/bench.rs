//! `mainstay bench`: a measurement on the user's own database.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use comfy_table::Cell;
use serde_json::{Value, json};

use crate::bench::{KEYS, Plan, Progress, Results, Scratch, find, measure, shown};
use crate::failure::Failure;
use crate::output::{self, number};
use crate::screen;
use crate::settings::Settings;
use crate::signals::Signals;

const DETAILS: &str = "\
Examples:
  mainstay bench                                  On a temporary SQLite file
  mainstay bench --database postgres://me@localhost/shop
  mainstay bench --database mssql://me@localhost/shop
  mainstay bench --quick --json
  mainstay bench --only drain,limit_claim_settle --messages 1000000

Measured, with payloads of 200 bytes:
  enqueue_1, _16, _256      messages per second by so many callers, each durable before the next
  enqueue_in_tx_16          the same by 16 callers, each in a transaction of its own
  bulk                      messages per second in calls of 5,000
  drain                     messages per second claimed, handled and settled from a full outbox
  drain_joined              the same where all messages are steps of one join; its *_to_limit is to drain
  end_to_end                messages per second when 16 callers enqueue while dispatchers handle, until
                            the last is settled
  latency_p50_ms, _p99_ms   from just before the call of enqueue to the start of the handler, at 50
                            messages per second
  write_alone_p95_ms        of a SQLite file: one write by one caller, every 20 ms
  write_beside_busy_p95_ms  the same while another process writes to the file without a pause; its
                            *_to_limit is to write_alone_p95_ms
  idle_queries_per_s        transactions per second of a process with nothing to do (on SQL Server its
                            round trips)
  wal_bytes_per_message     what PostgreSQL logs for a message from enqueue to its end
  dead_tuples_per_message   row versions it leaves behind for vacuum
  limit_*                   the same database without Mainstay: plain statements on plain tables with
                            rows of the same size, in the same run
  *_to_limit                how a figure stands to its limit: part of the rate, times the latency

The drains and end_to_end have --workers dispatchers of 64 handlers that claim 1,000 at once, latency and
idle one dispatcher at its defaults. What a database has no such thing for is null. The WAL and the
transactions are those of the whole server and the whole database: they tell something where nobody
else is at work.

All of it happens in schemas of its own, mainstay_bench_… (prefixes on SQLite), which are removed at
the end, on Ctrl-C too. What a measurement that was killed has left is told by the next one.";

/// Measure the outbox on your own database
#[derive(Debug, Args)]
#[command(after_help = DETAILS)]
pub(crate) struct BenchArgs {
    /// Messages of a measurement that a number ends: bulk, drains [default: 100000, quick: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    messages: Option<u64>,
    /// Seconds of a measurement that time ends: all others [default: 5, quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: Option<u64>,
    /// Dispatchers in this process that drain
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Only these figures
    #[arg(long, value_name = "KEY,...", value_delimiter = ',', value_parser = KEYS.map(|key| key.name))]
    only: Option<Vec<String>>,
    /// Less of everything: a first impression in less than a minute
    #[arg(long)]
    quick: bool,
}

impl BenchArgs {
    fn plan(&self) -> Plan {
        let (messages, seconds) = if self.quick { (10_000, 1) } else { (100_000, 5) };
        let wanted = |only: &Vec<String>| only.iter().filter_map(|name| find(name)).collect();
        Plan {
            only: self.only.as_ref().map(wanted),
            time: Duration::from_secs(self.seconds.unwrap_or(seconds)),
            messages: self.messages.unwrap_or(messages),
            workers: usize::from(self.workers),
        }
    }
}

pub(crate) async fn run(arguments: BenchArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let plan = arguments.plan();
    let scratch = Scratch::make(settings.database()?).await?;
    let left = scratch.left_behind().await?;
    if !left.is_empty() {
        let shown = left.iter().take(10).map(|each| format!("\n  {each}")).collect::<String>();
        let more = left.len().saturating_sub(10);
        let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
        output::note(format_args!(
            "other measurements have left something behind; unless one is running now, remove it:{shown}{more}"
        ));
    }
    let schema = scratch.schema().to_owned();
    let mut signals = Signals::watch(move || {
        screen::restore();
        output::note(format_args!("quit; what begins with {schema} may be left behind"));
    });
    let mut progress = Progress::new(settings.may_draw(), settings.quiet);
    let measured = tokio::select! {
        measured = measure(&scratch, &plan, &mut progress) => measured,
        () = signals.stop() => Err(Failure::new("interrupted; the scratch schemas were removed").into()),
    };
    progress.end();
    let (kind, location) = (scratch.kind(), scratch.location.clone());
    // Tidied up first, whatever came of it; but what went wrong first is what is told.
    let removed = scratch.remove().await;
    let results = measured?;
    removed?;
    if settings.json {
        tell_json(&results, &plan, kind, &location)?;
    } else {
        tell_table(&results, &plan, &location)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tell_json(results: &Results, plan: &Plan, kind: &str, location: &str) -> anyhow::Result<()> {
    let mut object = json!({
        "database": kind,
        "location": location,
        "messages": plan.messages,
        "seconds": plan.time.as_secs(),
        "workers": plan.workers,
    });
    if let Value::Object(object) = &mut object {
        object.extend(results.json(plan));
    }
    output::json(&object)
}

fn tell_table(results: &Results, plan: &Plan, location: &str) -> anyhow::Result<()> {
    output::line(format_args!("On {location}, from this machine:"))?;
    let mut table = output::table(["", "measured", "limit", "measured / limit"]);
    for key in KEYS.iter().filter(|key| plan.wants(&[key.name])) {
        let Some(figure) = results.get(key) else { continue };
        let limit = key.limit.and_then(|name| results.named(name)).map(|limit| shown(limit, key.unit));
        let ratio = results.to_limit(key).map(|ratio| format!("{ratio:.2}"));
        table.add_row([
            Cell::new(key.title),
            number(shown(figure, key.unit)),
            number(limit.unwrap_or_default()),
            number(ratio.unwrap_or_default()),
        ]);
    }
    output::print(&table)
}
