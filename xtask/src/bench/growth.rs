//! `cargo xtask bench growth`: how Mainstay's cost grows with the backlog, the payloads, the workers and the processes.

use std::io::{BufRead, BufReader};

use serde_json::Value;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::run::run;

use super::figures::{short, table, thousands};
use super::ground::Ground;
use super::machine::Machine;
use super::options::Options;
use super::programs::{binary, build};

const ONLY: [&str; 4] = ["backlog", "payload", "workers", "processes"];

pub(super) fn main(arguments: &[String], interrupt: &Interrupt) -> Result<(), Failure> {
    let mut options = Options::new(arguments);
    let (quick, as_json) = (options.flag("--quick"), options.flag("--json"));
    let only = options.list("--only", &ONLY)?;
    options.done()?;

    build(&["mainstay"], interrupt)?;
    let machine = Machine::look();
    let ground = Ground::start(interrupt)?;
    if !as_json {
        println!("{machine}\nPostgreSQL {}", ground.query("postgres", "show server_version")?);
    }
    let database = ground.database("growth")?;
    let mut command = binary("growth");
    command.args(["--database", &database.url, "--only", &only.join(",")]);
    if quick {
        command.arg("--quick");
    }
    let piped = std::io::pipe().map_err(|error| Failure::new(format!("cannot make a pipe: {error}")));
    let (reader, writer) = piped?;
    command.stdout(writer);
    // Told as it comes: a full run takes long.
    let teller = std::thread::spawn(move || {
        let mut last = String::new();
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            if as_json {
                println!("{line}");
            } else if let Ok(told) = serde_json::from_str::<Value>(&line) {
                print!("{}", shown(&told, &mut last));
            }
        }
    });
    let ran = run(&mut command, interrupt);
    // Or the pipe would never end.
    drop(command);
    let _told = teller.join();
    ran
}

/// One figure as a line; before the first of its kind a heading.
fn shown(told: &Value, last: &mut String) -> String {
    let kind = told["growth"].as_str().unwrap_or_default();
    let mut text = String::new();
    if kind != last {
        text = format!("\n{kind}\n");
        kind.clone_into(last);
    }
    let mut row = vec![format!("{:>9}", thousands(told["size"].as_u64().unwrap_or(0)))];
    for (name, figure) in told["figures"].as_object().into_iter().flatten() {
        row.push(format!("{name} {:>8}", figure.as_f64().map(short).unwrap_or_default()));
    }
    text.push_str(&table(&[row], &[]));
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::shown;

    #[test]
    fn a_heading_stands_before_the_first_of_a_kind() {
        let told = json!({ "growth": "workers", "size": 16, "figures": { "drain_per_second": 12_345.0 } });
        let mut last = String::new();
        let line = "       16  drain_per_second   12,345\n";
        assert_eq!(shown(&told, &mut last), format!("\nworkers\n{line}"));
        assert_eq!(shown(&told, &mut last), line);
    }
}
