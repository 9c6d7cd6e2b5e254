//! `mainstay bench`: a first measurement on the user's own database.

use std::process::ExitCode;

use clap::Args;
use comfy_table::Cell;
use serde_json::json;

use crate::bench::{Progress, Results, Scratch, measure};
use crate::failure::Failure;
use crate::output::{self, number};
use crate::screen;
use crate::settings::Settings;
use crate::signals::Signals;
use crate::text::{count, millis, milliseconds};

const DETAILS: &str = "\
Examples:
  mainstay bench                                  On a temporary SQLite file
  mainstay bench --database postgres://me@localhost/shop
  mainstay bench --messages 50000 --json

Measured, with payloads of 200 bytes and the dispatcher at its defaults:
  enqueue_1    messages per second by one caller, each durable before the next
  enqueue_16   the same by 16 callers at once
  bulk         messages per second in calls of 1,000
  drain        messages per second claimed, handled and settled from a full outbox
  end_to_end   messages per second when 16 callers enqueue while the dispatcher drains
  latency_*    from the call of enqueue to the handler, at 100 messages per second

All of it happens in a schema of its own, mainstay_bench_… (a prefix on SQLite), which is removed
at the end, on Ctrl-C too. A slow database ends a measurement by time, so fewer messages count.";

/// Measure the outbox on your own database
#[derive(Debug, Args)]
#[command(after_help = DETAILS)]
pub(crate) struct BenchArgs {
    /// Messages per measurement
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    messages: u64,
}

pub(crate) async fn run(arguments: BenchArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let scratch = Scratch::make(settings.database()?).await?;
    let schema = scratch.schema().to_owned();
    let mut signals = Signals::watch(move || {
        screen::restore();
        eprintln!("quit; the scratch schema {schema} may be left behind");
    });
    let mut progress = Progress::new(settings.may_draw(), settings.quiet);
    let measured = tokio::select! {
        measured = measure(&scratch.provider, arguments.messages, &mut progress) => measured,
        () = signals.stop() => Err(Failure::new("interrupted; the scratch schema was removed").into()),
    };
    progress.end();
    let (kind, location) = (scratch.provider.kind(), scratch.location.clone());
    // Tidied up first, whatever came of it; but what went wrong first is what is told.
    let removed = scratch.remove().await;
    let results = measured?;
    removed?;
    if settings.json {
        tell_json(&results, kind, &location, arguments.messages)?;
    } else {
        tell_table(&results, &location)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tell_json(results: &Results, kind: &str, location: &str, messages: u64) -> anyhow::Result<()> {
    let rate = |rate: f64| rate.round();
    output::json(&json!({
        "database": kind,
        "location": location,
        "messages": messages,
        "enqueue_1": rate(results.enqueue_1),
        "enqueue_16": rate(results.enqueue_16),
        "bulk": rate(results.bulk),
        "drain": rate(results.drain),
        "end_to_end": rate(results.end_to_end),
        "latency_p50_ms": millis(results.latency_p50),
        "latency_p99_ms": millis(results.latency_p99),
    }))
}

fn tell_table(results: &Results, location: &str) -> anyhow::Result<()> {
    output::line(format_args!("On {location}, from this machine:"))?;
    let mut table = output::table(["", "messages per second"]);
    for (name, rate) in [
        ("enqueue, 1 caller", results.enqueue_1),
        ("enqueue, 16 callers", results.enqueue_16),
        ("enqueue in bulk", results.bulk),
        ("drain", results.drain),
        ("end to end", results.end_to_end),
    ] {
        table.add_row([Cell::new(name), number(count(rate as u64))]);
    }
    output::print(&table)?;
    let (p50, p99) = (milliseconds(results.latency_p50), milliseconds(results.latency_p99));
    output::line(format_args!(
        "Latency from enqueue to handler at 100 messages per second: p50 {p50}, p99 {p99}"
    ))
}
