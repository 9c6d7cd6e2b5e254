//! `cargo xtask bench fleet`: a thousand databases in one process, idle, busy, and with ten of them down.

use std::process::Command;

use serde_json::{Value, json};

use crate::cargo::{cargo, target};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::run::run;

use super::figures::{short, table};
use super::ground::{Ground, settings_json};
use super::machine::Machine;
use super::options::Options;
use super::programs::ask;

const PROGRAM: &str = "bench-fleet";

pub(super) fn main(arguments: &[String], interrupt: &Interrupt) -> Result<(), Failure> {
    let mut options = Options::new(arguments);
    let (quick, as_json) = (options.flag("--quick"), options.flag("--json"));
    let (tenants, databases) = (options.value::<u32>("--tenants")?, options.value::<u32>("--databases")?);
    options.done()?;

    // Before the build, which is a load of its own.
    let machine = Machine::look();
    run(cargo().args(["build", "--release", "--locked", "--package", PROGRAM]), interrupt)?;
    let ground = Ground::start(interrupt)?;
    let settings = ground.settings()?;
    let mut command = Command::new(target()?.join("release").join(PROGRAM));
    command.args(["measure", "--database", &ground.database("fleet")?.url]);
    if quick {
        command.arg("--quick");
    }
    for (name, value) in [("--tenants", tenants), ("--databases", databases)] {
        if let Some(value) = value {
            command.args([name, &value.to_string()]);
        }
    }
    let told = ask(command, interrupt)?;
    if as_json {
        let all = json!({ "machine": machine.json(), "postgres": settings_json(&settings), "fleet": told });
        println!("{all}");
        return Ok(());
    }
    println!("{machine}");
    if machine.is_busy() {
        println!("The machine was busy before the run: ratios may stand, times do not.");
    }
    print!("{}", shown(&told));
    Ok(())
}

/// The figures as tables.
fn shown(told: &Value) -> String {
    let number = |path: &str| told.pointer(path).and_then(Value::as_f64).map_or("-".to_owned(), short);
    let mut text = format!(
        "\n{} databases of SQLite and {} of PostgreSQL in one process; made in {} s, seen to for the first time in {} s \
         ({} s of processor time), stopped in {} s\n\n",
        number("/sqlite"),
        number("/postgres"),
        number("/made_in_seconds"),
        number("/seen_to_in_seconds"),
        number("/seen_to_cpu_seconds"),
        number("/stopped_in_seconds"),
    );
    let rows = [
        ("looks a second, SQLite", "/idle/sqlite_looks_per_second", ""),
        ("looks a second, PostgreSQL", "/idle/postgres_looks_per_second", ""),
        ("transactions a second at the server", "/idle/postgres_transactions_per_second", ""),
        ("sessions a second at the server", "/idle/postgres_sessions_per_second", ""),
        ("processor, seconds a second", "/idle/cpu_seconds_per_second", "/busy/cpu_seconds_per_second"),
        ("connections at most", "/idle/most/connections", "/busy/most/connections"),
        (
            "of them at the server",
            "/idle/most/connections_at_the_server",
            "/busy/most/connections_at_the_server",
        ),
        ("memory at most, MiB", "/idle/most/rss_mib", "/busy/most/rss_mib"),
        ("threads at most", "/idle/most/threads", "/busy/most/threads"),
        ("descriptors at most", "/idle/most/descriptors", "/busy/most/descriptors"),
    ];
    let cell = |path: &str| if path.is_empty() { String::new() } else { number(path) };
    let rows = rows.map(|(name, idle, busy)| vec![name.to_owned(), cell(idle), cell(busy)]);
    let heading = ["", "idle", "busy"].map(str::to_owned).to_vec();
    text += &table(&[vec![heading], rows.to_vec()].concat(), &[0]);
    text += &latencies(told);
    text += &goals(told);
    text
}

/// How long after the commit, and after the call, handlers began.
fn latencies(told: &Value) -> String {
    let heading =
        ["added by", "database", "", "down", "messages", "p50 ms", "p99", "most", "of the call p50", "p99"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for line in told["latency"].as_array().into_iter().flatten() {
        let word = |name: &str| line[name].as_str().unwrap_or_default().replace('_', " ");
        let figure = |path: &str| line.pointer(path).and_then(Value::as_f64).map_or("-".to_owned(), short);
        let count = line.pointer("/since_commit_ms/count").and_then(Value::as_u64).unwrap_or(0);
        let down = if line["down"] == true { "ten" } else { "none" };
        rows.push(vec![
            word("by"),
            word("database"),
            word("hit"),
            down.to_owned(),
            count.to_string(),
            figure("/since_commit_ms/p50"),
            figure("/since_commit_ms/p99"),
            figure("/since_commit_ms/most"),
            figure("/since_call_ms/p50"),
            figure("/since_call_ms/p99"),
        ]);
    }
    format!(
        "\nFrom the commit, and from the call, until the handler begins:\n{}",
        table(&rows, &[0, 1, 2, 3])
    )
}

fn goals(told: &Value) -> String {
    let ratio = |name: &str| told["p99_ratio"][name].as_f64().map_or("-".to_owned(), short);
    let pairs = told["p99_ratio"]["each_pair"].as_array().into_iter().flatten();
    let pairs: Vec<String> = pairs.map(|it| it.as_f64().map_or("-".to_owned(), short)).collect();
    let mut text = format!(
        "\np99 of warm ones with ten down, to that with none: same process {}, other process {}; same process pair by pair {}. \
         None down to none down: {}\n\n",
        ratio("same_process"),
        ratio("other_process"),
        pairs.join(", "),
        ratio("well_to_well"),
    );
    let mut rows = Vec::new();
    for goal in told["goals"].as_array().into_iter().flatten() {
        let figure = |name: &str| goal[name].as_f64().map_or("-".to_owned(), short);
        let met = match goal["met"].as_bool() {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "too few to tell",
        };
        let name = goal["goal"].as_str().unwrap_or_default().to_owned();
        rows.push(vec![name, figure("measured"), format!("goal {}", figure("limit")), met.to_owned()]);
    }
    text += &table(&rows, &[0, 3]);
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::shown;

    #[test]
    fn what_is_missing_is_shown_as_missing() {
        let told = json!({
            "sqlite": 10,
            "goals": [{ "goal": "connections at most", "measured": 51, "limit": 50, "met": false }],
            "latency": [{ "by": "same_process", "database": "sqlite", "hit": "warm", "down": true, "since_commit_ms": null }],
        });
        let text = shown(&told);
        assert!(text.contains("connections at most  51.0  goal 50.0  NOT MET"), "{text}");
        assert!(text.contains("same process  sqlite    warm  ten          0"), "{text}");
    }
}
