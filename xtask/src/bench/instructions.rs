//! `cargo xtask bench instructions`: what Mainstay itself does per message, counted and not timed.
//!
//! Counts don't depend on the machine's mood, so a change of one in a hundred can be seen.

use std::process::Command;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::tools::install;

use super::figures::{table, thousands};
use super::options::Options;
use super::programs::{binary, build};

const PARTS: [(&str, &str); 3] = [
    ("enqueue", "checking one message and handing it to the store"),
    ("settle", "claiming and settling one of 500 without a dispatcher"),
    ("dispatch", "claiming, handling and settling one by a dispatcher"),
];
/// Messages of the shorter run; the longer one has twice as many.
const MESSAGES: u64 = 20_000;

pub(super) fn main(arguments: &[String], interrupt: &Interrupt) -> Result<(), Failure> {
    let mut options = Options::new(arguments);
    let as_json = options.flag("--json");
    let parts = options.list("--only", &PARTS.map(|(name, _)| name))?;
    options.done()?;
    if Command::new("valgrind").arg("--version").output().is_err() {
        install(&["valgrind"], interrupt)?;
    }
    build(&["mainstay"], interrupt)?;

    let mut rows = Vec::new();
    for (part, words) in PARTS.iter().filter(|(name, _)| parts.contains(name)) {
        interrupt.check()?;
        let (once, twice) = (count(part, MESSAGES)?, count(part, 2 * MESSAGES)?);
        let each = twice.saturating_sub(once) / MESSAGES;
        if as_json {
            println!("{}", serde_json::json!({ "part": part, "instructions_per_message": each }));
        }
        rows.push(vec![(*part).to_owned(), thousands(each), format!("instructions: {words}")]);
    }
    if !as_json {
        print!("{}", table(&rows, &[0, 2]));
    }
    Ok(())
}

/// All instructions of a run.
fn count(part: &str, messages: u64) -> Result<u64, Failure> {
    let program = binary("instructions");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program.get_program())
        .args([part, &messages.to_string()])
        .output()
        .map_err(|error| Failure::new(format!("cannot run valgrind: {error}")))?;
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Failure::new(format!("the program failed under valgrind:\n{told}")));
    }
    collected(&told).ok_or_else(|| Failure::new(format!("valgrind told no count:\n{told}")))
}

/// The number after `Collected :`.
fn collected(told: &str) -> Option<u64> {
    let line = told.lines().find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::collected;

    #[test]
    fn the_count_is_found() {
        assert_eq!(collected("==1== Events    : Ir\n==1== Collected : 123456\n==1==\n"), Some(123_456));
        assert_eq!(collected("==1== nothing"), None);
    }
}
