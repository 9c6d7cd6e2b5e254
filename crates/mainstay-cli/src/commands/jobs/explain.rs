//! `mainstay jobs explain`: when a cron expression fires next, and what clock changes do to it.

use std::process::ExitCode;

use clap::Args;
use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};
use mainstay::job::{Cron, DstNote, Explanation, Fire, Schedule, Shift, ShiftKind, Treatment, Zone};
use serde::Serialize;

use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::{count, counted, moment, parse_timestamp};

/// How far ahead clock changes are told at least: 13 months, in which a zone has all of a year's.
const AHEAD: SignedDuration = SignedDuration::from_hours(396 * 24);

const EXAMPLES: &str = "\
Examples:
  mainstay jobs explain '30 2 * * *' --tz Europe/Berlin
  mainstay jobs explain '30 2 * * *' --tz Europe/Berlin --from 2027-03-27T00:00:00Z --count 3
  mainstay jobs explain '0 */15 8-17 * * MON-FRI' --json
  mainstay jobs explain @monthly

Five fields: minute, hour, day of month, month, day of week. Six: second first.

What happens where clocks change:
  A fixed time (no * and no step in minute and hour) that is skipped runs once, at the first instant
  after the gap. One that comes twice runs once, at the first of the two.
  An interval goes by real time: what is skipped doesn't run, what comes twice runs twice.
Those of the next 13 months are told, however few fires are asked for.

No database is needed.";

/// Show when a cron expression fires next, and what clock changes do to it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// The cron expression, quoted: '*/5 * * * *'
    cron: String,
    /// The time zone whose clock it goes by, an IANA name like Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
    /// Only fires after this moment: 2027-03-28T00:00:00Z [default: now]
    #[arg(long, value_name = "MOMENT", value_parser = parse_timestamp)]
    from: Option<Timestamp>,
    /// How many fires, 1 to 1,000
    #[arg(long, value_name = "FIRES", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    schedule: &'a Schedule,
    fixed_time: bool,
    #[serde(flatten)]
    explanation: &'a Explanation,
}

pub(super) fn run(arguments: &ExplainArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let schedule = Schedule::new(read_cron(&arguments.cron)?, read_zone(&arguments.tz)?);
    let from = arguments.from.unwrap_or_else(Timestamp::now);
    let mut explanation = schedule.explain(from, arguments.count.into());
    let ahead = from.checked_add(AHEAD).unwrap_or(Timestamp::MAX);
    let until = explanation.fires.last().map_or(ahead, |fire| fire.at.max(ahead));
    explanation.shifts = schedule.shifts(from, until);
    if settings.json {
        let fixed_time = schedule.cron().is_fixed_time();
        output::json(&Report { schedule: &schedule, fixed_time, explanation: &explanation })?;
    } else {
        tell(&schedule, &explanation, until)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read_cron(text: &str) -> anyhow::Result<Cron> {
    Ok(Cron::parse(text).map_err(|error| {
        let failure = Failure::usage("the cron expression is not valid");
        match error.expression() {
            "" => failure.because(error.explanation()),
            _ => failure.because(format_args!("{}\n{}", error.pointer(), error.explanation())),
        }
        .hint("`mainstay jobs explain --help` shows how one is written")
    })?)
}

fn read_zone(name: &str) -> anyhow::Result<Zone> {
    let zone = Zone::get(name);
    Ok(zone.map_err(|error| Failure::usage("the time zone is not known").because(error.message()))?)
}

fn tell(schedule: &Schedule, explanation: &Explanation, until: Timestamp) -> anyhow::Result<()> {
    let kind = if schedule.cron().is_fixed_time() { "fixed times" } else { "an interval" };
    output::line(format_args!("{} in {}, {kind}\n", schedule.cron(), schedule.zone()))?;
    let zone = schedule.zone().time_zone();
    let mut fires = output::table(["", "local", "offset", "UTC", "clock change"]);
    for (number, fire) in (1_u64..).zip(&explanation.fires) {
        fires.add_row([
            output::number(count(number)),
            fire.local.strftime("%a %Y-%m-%d %H:%M:%S").to_string().into(),
            fire.at.to_zoned(zone.clone()).strftime("%:z").to_string().into(),
            moment(fire.at).into(),
            fire.note.as_ref().map(|note| told(note, fire)).unwrap_or_default().into(),
        ]);
    }
    output::print(&fires)?;
    tell_shifts(&explanation.shifts, until)
}

fn tell_shifts(shifts: &[Shift], until: Timestamp) -> anyhow::Result<()> {
    let (met, idle): (Vec<_>, Vec<_>) = shifts.iter().partition(|shift| shift.treatment != Treatment::None);
    if !met.is_empty() {
        output::line("")?;
        let mut table = output::table(["at (UTC)", "clock change", "scheduled in it", "what happens"]);
        for shift in met {
            let happens = happens(shift);
            table.add_row([
                output::number(moment(shift.at)),
                span(shift).into(),
                counted(shift.named, "time").into(),
                happens.into(),
            ]);
        }
        output::print(&table)?;
    }
    if !idle.is_empty() {
        let changes = counted(idle.len() as u64, "clock change");
        let until = until.strftime("%Y-%m-%d");
        output::line(format_args!("\n{changes} until {until} with no scheduled time in it"))?;
    }
    Ok(())
}

/// What a clock change has to do with a fire.
fn told(note: &DstNote, fire: &Fire) -> String {
    let local = clock(fire.local);
    match note {
        DstNote::Moved { from, skipped: 1 } => {
            format!(
                "{} is skipped that day: runs at the first instant after the gap",
                wall(*from, fire.local)
            )
        }
        DstNote::Moved { from, skipped } => format!(
            "{} times from {} on are skipped: one run for all, at the first instant after the gap",
            count(*skipped),
            wall(*from, fire.local)
        ),
        DstNote::FirstOnly { again_at } => {
            format!("{local} comes twice: runs at the first, not at {} UTC again", clock_of(*again_at))
        }
        DstNote::FirstOfTwo { .. } => format!("{local} comes twice and runs twice: the first"),
        DstNote::SecondOfTwo { .. } => format!("{local} comes twice and runs twice: the second"),
        // Whatever is added there has words of its own in the JSON.
        _ => "see --json".to_owned(),
    }
}

/// What a clock change skips or repeats.
fn span(shift: &Shift) -> String {
    let (from, to) = (shift.from.strftime("%Y-%m-%d"), wall(shift.to, shift.from));
    let what = match shift.kind {
        ShiftKind::Gap => "skipped",
        ShiftKind::Overlap => "twice",
    };
    format!("{from} {} to {to} {what}", clock(shift.from))
}

fn happens(shift: &Shift) -> String {
    match shift.treatment {
        Treatment::None => "nothing".to_owned(),
        Treatment::Skipped => "not run".to_owned(),
        Treatment::MovedToEnd => format!("one run, at {}", wall(shift.to, shift.from)),
        Treatment::FiresFirst => "run at the first, not again at the second".to_owned(),
        Treatment::FiresBoth => "run both times".to_owned(),
    }
}

/// A time of day; with its date, if that is not the one it is told beside.
fn wall(time: DateTime, beside: DateTime) -> String {
    match time.date() == beside.date() {
        true => clock(time),
        false => format!("{} {}", time.strftime("%Y-%m-%d"), clock(time)),
    }
}

/// A time of day, with seconds if it has any.
fn clock(time: DateTime) -> String {
    time.strftime(if time.second() == 0 { "%H:%M" } else { "%H:%M:%S" }).to_string()
}

fn clock_of(at: Timestamp) -> String {
    clock(jiff::tz::Offset::UTC.to_datetime(at))
}
