//! `cargo xtask bench peers`: the same work through other queues and through Mainstay.
//!
//! One run after the other, never two at once, each on a database of its own. The programs take turns within each round and
//! begin with another one in every round, so that a machine that becomes slower or faster does so for all.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::interrupt::Interrupt;

use super::figures::{Spread, short, table};
use super::ground::{Ground, settings_json};
use super::machine::Machine;
use super::options::Options;
use super::programs::{PROGRAMS, ask, build, program};

/// What is measured: its name, and the figures that are told of it.
const WORK: [(&str, &[&str]); 8] = [
    ("enqueue_1", &["per_second"]),
    ("enqueue_16", &["per_second"]),
    ("enqueue_256", &["per_second"]),
    ("bulk", &["per_second"]),
    ("drain", &["per_second"]),
    ("end_to_end", &["per_second"]),
    ("latency", &["p50_ms", "p99_ms"]),
    (SQLITE, &["per_second"]),
];
/// On a SQLite file, each commit synchronised.
const SQLITE: &str = "sqlite_enqueue_64";
/// Programs that can use SQLite.
const ON_SQLITE: [&str; 2] = ["mainstay", "riverqueue"];

/// How much of each.
struct Extent {
    rounds: usize,
    seconds: u64,
    latency_seconds: u64,
    messages: u64,
}

const FULL: Extent = Extent { rounds: 5, seconds: 5, latency_seconds: 10, messages: 100_000 };
const QUICK: Extent = Extent { rounds: 1, seconds: 1, latency_seconds: 3, messages: 10_000 };

/// One measurement.
struct Run {
    round: usize,
    work: &'static str,
    program: &'static str,
    /// What the program printed.
    told: Value,
}

impl Run {
    fn figure(&self, name: &str) -> Option<f64> {
        self.told[name].as_f64()
    }
}

pub(super) fn main(arguments: &[String], interrupt: &Interrupt) -> Result<(), Failure> {
    let mut options = Options::new(arguments);
    let mut extent = if options.flag("--quick") { QUICK } else { FULL };
    let as_json = options.flag("--json");
    extent.rounds = options.value("--rounds")?.unwrap_or(extent.rounds).max(1);
    extent.messages = options.value("--messages")?.unwrap_or(extent.messages);
    let programs = options.list("--only", &PROGRAMS)?;
    let work = options.list("--work", &WORK.map(|(name, _)| name))?;
    options.done()?;

    build(&programs, interrupt)?;
    let machine = Machine::look();
    if machine.is_busy() {
        eprintln!("warning: other programs keep this machine busy; the figures will be worth little");
    }
    let ground = Ground::start(interrupt)?;
    let settings = ground.settings()?;
    let (runs, failures) = measure(&ground, &extent, &programs, &work, interrupt)?;

    if as_json {
        let summary: Vec<Value> = lines(&runs, &programs, &work).iter().map(Line::json).collect();
        let raw: Vec<Value> = runs
            .iter()
            .map(|run| json!({ "round": run.round, "work": run.work, "told": run.told }))
            .collect();
        println!(
            "{:#}",
            json!({
                "machine": machine.json(), "postgres": settings_json(&settings), "rounds": extent.rounds,
                "failures": failures, "summary": summary, "runs": raw,
            })
        );
    } else {
        let settings: Vec<String> = settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        println!("\n{machine}\nPostgreSQL: {}", settings.join(", "));
        println!("{} rounds; a ratio is that of two runs of the same round\n", extent.rounds);
        print!("{}", told(&lines(&runs, &programs, &work)));
        println!(
            "\nper_second: more is better, and a ratio above 1 is for Mainstay. p50_ms, p99_ms: the opposite."
        );
    }
    match failures.len() {
        0 => Ok(()),
        count => Err(Failure::new(format!("{count} runs failed: {}", failures.join(", ")))),
    }
}

/// All runs, and the names of those that failed.
fn measure(
    ground: &Ground,
    extent: &Extent,
    programs: &[&'static str],
    work: &[&'static str],
    interrupt: &Interrupt,
) -> Result<(Vec<Run>, Vec<String>), Failure> {
    let (mut runs, mut failures) = (Vec::new(), Vec::new());
    for round in 0..extent.rounds {
        for &work in work {
            let turn = programs.iter().cycle().skip(round % programs.len()).take(programs.len());
            for &program in turn.filter(|name| work != SQLITE || ON_SQLITE.contains(name)) {
                let name = format!("{work} of {program}");
                match once(ground, extent, program, work, interrupt) {
                    Ok(told) => {
                        let told_of = |it: &&str| Some(format!("{it} {}", short(told[*it].as_f64()?)));
                        let figures: Vec<String> = figures_of(work).iter().filter_map(told_of).collect();
                        eprintln!("round {} {name}: {}", round + 1, figures.join(", "));
                        runs.push(Run { round, work, program, told });
                    }
                    Err(failure) => {
                        interrupt.check()?;
                        eprintln!(
                            "round {} {name} failed. {}",
                            round + 1,
                            failure.message.unwrap_or_default()
                        );
                        failures.push(name);
                    }
                }
            }
        }
    }
    Ok((runs, failures))
}

fn once(
    ground: &Ground,
    extent: &Extent,
    name: &str,
    work: &str,
    interrupt: &Interrupt,
) -> Result<Value, Failure> {
    let seconds = if work == "latency" { extent.latency_seconds } else { extent.seconds };
    let ask_it = |database: &str, work: &str| {
        let mut command = program(name);
        command.args(["--database", database, "--work", work]);
        command.args(["--seconds", &seconds.to_string(), "--messages", &extent.messages.to_string()]);
        ask(command, interrupt)
    };
    if work == SQLITE {
        let file = SqliteFile::new();
        return ask_it(&format!("sqlite:{}", file.0.display()), "enqueue_64");
    }
    let database = ground.database("bench")?;
    let told = ask_it(&database.url, work);
    ground.remove(&database)?;
    told
}

/// A file that goes away with what SQLite puts beside it.
struct SqliteFile(PathBuf);

impl SqliteFile {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("mainstay-bench-{}.db", std::process::id())))
    }
}

impl Drop for SqliteFile {
    fn drop(&mut self) {
        for ending in ["", "-wal", "-shm"] {
            let mut path = self.0.clone().into_os_string();
            path.push(ending);
            // Not all of them were made.
            let _missing = std::fs::remove_file(path);
        }
    }
}

fn figures_of(work: &str) -> &'static [&'static str] {
    WORK.iter().find(|(name, _)| *name == work).map_or(&[], |(_, figures)| *figures)
}

/// What is told of one figure of one program.
struct Line {
    work: &'static str,
    figure: &'static str,
    program: &'static str,
    version: String,
    spread: Spread,
    /// Mainstay's by this one's, round by round; none for Mainstay itself.
    ratio: Option<Spread>,
}

impl Line {
    fn json(&self) -> Value {
        json!({
            "work": self.work, "figure": self.figure, "program": self.program, "version": self.version,
            "median": self.spread.median, "least": self.spread.least, "most": self.spread.most,
            "mainstay_by_this": self.ratio.map(|it| it.median),
            "mainstay_by_this_least": self.ratio.map(|it| it.least),
            "mainstay_by_this_most": self.ratio.map(|it| it.most),
        })
    }
}

fn lines(runs: &[Run], programs: &[&'static str], work: &[&'static str]) -> Vec<Line> {
    let mut lines = Vec::new();
    for &work in work {
        for &figure in figures_of(work) {
            for &program in programs {
                let of = |name: &str| -> Vec<&Run> {
                    runs.iter().filter(|run| run.work == work && run.program == name).collect()
                };
                let own = of(program);
                let Some(spread) = Spread::of(own.iter().filter_map(|run| run.figure(figure))) else {
                    continue;
                };
                let ours = of(PROGRAMS[0]);
                let ratios = own.iter().filter_map(|run| {
                    let our = ours.iter().find(|our| our.round == run.round)?;
                    Some(our.figure(figure)? / run.figure(figure)?)
                });
                let ratio = if program == PROGRAMS[0] { None } else { Spread::of(ratios) };
                let version = own.first().and_then(|run| run.told["version"].as_str()).unwrap_or_default();
                lines.push(Line { work, figure, program, version: version.to_owned(), spread, ratio });
            }
        }
    }
    lines
}

fn told(lines: &[Line]) -> String {
    let head =
        ["work", "figure", "program", "version", "median", "least..most", "mainstay / it", "least..most"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let ends = |it: &Spread| format!("{}..{}", short(it.least), short(it.most));
    let mut last = None;
    for line in lines {
        let is_new = last.replace((line.work, line.figure)) != Some((line.work, line.figure));
        let (work, figure) = if is_new { (line.work, line.figure) } else { ("", "") };
        let ratio = line.ratio.as_ref();
        rows.push(vec![
            work.to_owned(),
            figure.to_owned(),
            line.program.to_owned(),
            line.version.clone(),
            short(line.spread.median),
            ends(&line.spread),
            ratio.map(|it| short(it.median)).unwrap_or_default(),
            ratio.map(ends).unwrap_or_default(),
        ]);
    }
    table(&rows, &[0, 1, 2, 3])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: usize, program: &'static str, rate: f64) -> Run {
        Run { round, work: "drain", program, told: json!({ "per_second": rate, "version": "1" }) }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let runs = [
            run(0, "mainstay", 100.0),
            run(0, "riverqueue", 50.0),
            run(1, "mainstay", 10.0),
            run(1, "riverqueue", 5.0),
        ];
        let lines = lines(&runs, &["mainstay", "riverqueue"], &["drain"]);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].ratio.is_none());
        assert_eq!(lines[1].ratio, Some(Spread { median: 2.0, least: 2.0, most: 2.0 }));
        assert_eq!(lines[1].spread, Spread { median: 27.5, least: 5.0, most: 50.0 });
    }
}
