//! Telling people: the worst first, one line a check.

use mainstay::health::{Check, FleetHealth, HealthReport, HealthStatus};

use crate::output::{self, Tone, number, toned};
use crate::text::{count, counted, harmless, milliseconds, shorten};

pub(super) fn one(report: &HealthReport) -> anyhow::Result<()> {
    let mut table = output::table(["status", "check", "took", "found", "do"]);
    for check in &report.checks {
        table.add_row(cells(check));
    }
    output::print(&table)?;
    output::line(format_args!("{}: {}", report.database, report.status))
}

/// Of databases that are well, a line is enough.
pub(super) fn fleet(health: &FleetHealth) -> anyhow::Result<()> {
    let mut table = output::table(["database", "status", "check", "took", "found", "do"]);
    for database in &health.databases {
        let (id, report) = (shorten(&database.id, 60), &database.report);
        let bad: Vec<_> = report.checks.iter().filter(|check| is_told(report, check)).collect();
        if bad.is_empty() {
            let found = format!("all of {}", counted(report.checks.len() as u64, "check"));
            let took = number(milliseconds(report.duration));
            table.add_row([
                id.as_str().into(),
                shown(report.status),
                "".into(),
                took,
                found.into(),
                "".into(),
            ]);
        }
        for check in bad {
            table.add_row(std::iter::once(id.as_str().into()).chain(cells(check)));
        }
    }
    output::print(&table)?;
    let unfit = health.databases.iter().filter(|database| !database.report.status.is_fit()).count() as u64;
    let all = counted(health.databases.len() as u64, "database");
    output::line(match unfit {
        0 => format!("{all}: {}", health.status),
        _ => format!("{all}: {}, {} not well", health.status, count(unfit)),
    })
}

/// That nothing else could be told of a database that can't be reached goes without saying.
fn is_told(report: &HealthReport, check: &Check) -> bool {
    let only_that = report.reached == Some(false) && check.status == HealthStatus::Unknown;
    check.status > HealthStatus::Healthy && !only_that
}

/// A status with its colour.
fn shown(status: HealthStatus) -> comfy_table::Cell {
    let tone = match status {
        HealthStatus::Healthy => Tone::Good,
        HealthStatus::Degraded | HealthStatus::Unknown => Tone::Doubtful,
        HealthStatus::Unhealthy => Tone::Bad,
        _ => Tone::Plain,
    };
    toned(status, tone)
}

fn cells(check: &Check) -> [comfy_table::Cell; 5] {
    [
        shown(check.status),
        check.name.into(),
        number(milliseconds(check.duration)),
        harmless(&check.summary).into(),
        harmless(check.advice.as_deref().unwrap_or_default()).into(),
    ]
}
