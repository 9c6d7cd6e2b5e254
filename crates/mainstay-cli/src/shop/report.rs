//! The summary of a run: the books, for a person or for a program.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use comfy_table::Cell;
use mainstay::store::Provider;
use serde_json::json;

use super::books::Books;
use super::carrier::Reports;
use super::customers::Orders;
use super::run::Plan;
use crate::failure::FAILED;
use crate::meter::Meter;
use crate::output::{self, number};
use crate::text::{count, counted, millis, milliseconds};

/// What became of a run.
pub(crate) struct Summary {
    location: String,
    kind: &'static str,
    books: Books,
    stale_settles: u64,
    refused: u64,
    /// What the carrier sent, repetitions included.
    reports_sent: u64,
    /// p50, p95, p99.
    latency: [Option<Duration>; 3],
    open_for: Duration,
    took: Duration,
    interrupted: bool,
}

impl Summary {
    #[allow(clippy::too_many_arguments, reason = "they are what a summary is made of, and it is made once")]
    pub(super) fn new(
        plan: &Plan,
        provider: &Arc<dyn Provider>,
        books: Books,
        meter: &Meter,
        orders: &Orders,
        reports: &Reports,
        open_for: Duration,
        took: Duration,
        interrupted: bool,
    ) -> Self {
        Self {
            location: plan.location.clone(),
            kind: provider.kind(),
            books,
            stale_settles: meter.read().stale,
            refused: orders.refused(),
            reports_sent: reports.sent(),
            latency: [0.5, 0.95, 0.99].map(|part| meter.lag().percentile(part)),
            open_for,
            took,
            interrupted,
        }
    }
}

/// Prints the summary. The exit code says whether the books balance.
pub(crate) fn tell(summary: &Summary, as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        tell_json(summary)?;
    } else {
        tell_table(summary)?;
    }
    Ok(if summary.books.balanced() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn tell_json(summary: &Summary) -> anyhow::Result<()> {
    let books = &summary.books;
    let latency = summary.latency.map(|latency| latency.map(millis));
    let inventory = json!({
        "runs": books.inventory.runs,
        "slices": books.inventory.slices,
        "miscounted": books.inventory.miscounted,
        "unannounced": books.inventory.unannounced,
    });
    output::json(&json!({
        "balanced": books.balanced(),
        "database": summary.kind,
        "location": summary.location,
        "interrupted": summary.interrupted,
        "duration_seconds": summary.took.as_secs_f64(),
        "open_seconds": summary.open_for.as_secs_f64(),
        "orders": books.orders,
        "orders_refused": summary.refused,
        "shipments": books.shipments,
        "enqueued": books.enqueued,
        "done": books.done,
        "failed": books.failed,
        "failed_by_reason": books.failed_by,
        "pending": books.pending,
        "in_progress": books.in_progress,
        "lost": books.lost,
        "unexplained": books.unexplained,
        "shipped_twice": books.shipped_twice,
        "done_unshipped": books.done_unshipped,
        "shipped_undone": books.shipped_undone,
        "out_of_order": books.out_of_order,
        "retries": books.retries,
        "reminders": books.beside.reminders,
        "reminders_fired": books.beside.fired,
        "reminders_cancelled": books.beside.cancelled,
        "reminders_misfired": books.beside.misfired,
        "stock_counts": books.beside.counts,
        "stock_miscounted": books.beside.miscounted,
        "reports_sent": summary.reports_sent,
        "reports": books.beside.reports,
        "reports_misread": books.beside.misread,
        "shifts": books.beside.shifts,
        "shifts_overlapping": books.beside.overlapping,
        "inventory": inventory,
        "stale_settles": summary.stale_settles,
        "messages_per_second": (books.done + books.failed) as f64 / summary.took.as_secs_f64().max(0.001),
        "latency_p50_ms": latency[0],
        "latency_p95_ms": latency[1],
        "latency_p99_ms": latency[2],
    }))
}

fn tell_table(summary: &Summary) -> anyhow::Result<()> {
    let books = &summary.books;
    let (open_for, took) = (summary.open_for.as_secs_f64(), summary.took.as_secs_f64());
    output::line(format_args!(
        "The shop was open for {open_for:.1} s on {}, and ready after {took:.1} s.",
        summary.location
    ))?;

    let reasons: Vec<_> =
        books.failed_by.iter().map(|(reason, messages)| format!("{} {reason}", count(*messages))).collect();
    let per_second = |things: u64, seconds: f64| format!("{:.0}/s", things as f64 / seconds.max(0.001));
    let (beside, inventory) = (&books.beside, &books.inventory);
    let mut table = output::table(["the books, read from the database", "", ""]);
    for (name, value, note) in [
        ("orders placed", books.orders, per_second(books.orders, open_for)),
        ("orders shipped", books.shipments, "each with its message's end in one transaction".to_owned()),
        ("messages enqueued", books.enqueued, per_second(books.done + books.failed, took)),
        ("  done", books.done, String::new()),
        ("  failed for good", books.failed, reasons.join(", ")),
        ("  pending", books.pending, String::new()),
        ("  lost", books.lost, String::new()),
        ("retries", books.retries, String::new()),
        ("stale settles", summary.stale_settles, String::new()),
        (
            "reminders (timers)",
            beside.reminders,
            format!("{} fired, {} cancelled in time", count(beside.fired), count(beside.cancelled)),
        ),
        ("stock counts (a job)", beside.counts, "one for each second".to_owned()),
        (
            "carrier's reports (inbox)",
            beside.reports,
            format!("{} sent, each took effect once", count(summary.reports_sent)),
        ),
        (
            "inventories (a fan-out)",
            inventory.runs,
            format!("{} slices in three databases, each run ended by a join", count(inventory.slices)),
        ),
        ("shifts (a lease)", beside.shifts, "two foremen, never at once".to_owned()),
    ] {
        table.add_row([Cell::new(name), number(count(value)), Cell::new(note)]);
    }
    if let [Some(p50), Some(p95), Some(p99)] = summary.latency.map(|latency| latency.map(milliseconds)) {
        table.add_row([
            Cell::new("latency, due to handler"),
            number(&p50),
            Cell::new(format!("p50    {p95} p95    {p99} p99")),
        ]);
    }
    output::print(&table)?;
    if summary.refused > 0 {
        output::line(format_args!("{} could not be placed.", counted(summary.refused, "order")))?;
    }
    verdict(books)
}

fn verdict(books: &Books) -> anyhow::Result<()> {
    if books.balanced() {
        return output::line(format_args!(
            "The books balance: {} enqueued, {} done, {} failed, none lost,\n\
             and every shipped order has exactly one shipment.",
            count(books.enqueued),
            count(books.done),
            count(books.failed),
        ));
    }
    output::line("THE BOOKS DO NOT BALANCE:")?;
    for (what, messages) in books.checks().into_iter().filter(|(_, messages)| *messages > 0) {
        output::line(format_args!("  {} {what}", count(messages)))?;
    }
    Ok(())
}
