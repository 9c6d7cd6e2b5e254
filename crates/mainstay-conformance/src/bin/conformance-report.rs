//! Writes the conformance page, or checks the committed one.
//!
//! `conformance-report --write [FILE]` makes it anew; `conformance-report --check [FILE]` compares it and fails if
//! it differs, a case failed or one was not run at all. That SQL Server was run for one of the two alone is no difference: not
//! everybody has one. FILE defaults to `docs/reference/conformance.md` of the workspace.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mainstay_conformance::{report, requirements, results};

const USAGE: &str = "usage: conformance-report (--check | --write) [FILE]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (check, file) = match arguments.as_slice() {
        ["--check"] => (true, committed()),
        ["--check", file] => (true, PathBuf::from(file)),
        ["--write"] => (false, committed()),
        ["--write", file] => (false, PathBuf::from(file)),
        _ => {
            say(USAGE);
            return ExitCode::from(2);
        }
    };
    let outcome = if check { compare(&file) } else { write(&file) };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            say(&message);
            ExitCode::FAILURE
        }
    }
}

/// The page in the workspace this program was built from.
fn committed() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("."));
    workspace.join("docs/reference/conformance.md")
}

fn render() -> Result<String, String> {
    let directory = results::directory();
    report::render(&directory, requirements::LIST)
        .map_err(|error| format!("the results in {} can't be read: {error}", directory.display()))
}

fn write(file: &Path) -> Result<(), String> {
    let told = |error| format!("{} can't be written: {error}", file.display());
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory).map_err(told)?;
    }
    std::fs::write(file, render()?).map_err(told)
}

fn compare(file: &Path) -> Result<(), String> {
    let directory = results::directory();
    let failed = report::failures(&directory).map_err(|error| error.to_string())?;
    if !failed.is_empty() {
        return Err(format!("{} cases failed:\n  {}", failed.len(), failed.join("\n  ")));
    }
    let forgotten = report::forgotten(&directory).map_err(|error| error.to_string())?;
    if !forgotten.is_empty() {
        return Err(format!("{} cases left no result:\n  {}", forgotten.len(), forgotten.join("\n  ")));
    }
    let wanted = render()?;
    let found = std::fs::read_to_string(file).unwrap_or_default();
    let Some(line) = report::first_difference(&found, &wanted) else { return Ok(()) };
    let at = |text: &str| text.lines().nth(line).unwrap_or("(the end)").to_owned();
    Err(format!(
        "{} is not what this test run gives; run `cargo xtask conformance --write` and commit it.\n\
         The first difference is in line {}:\n  committed: {}\n  this run:  {}",
        file.display(),
        line + 1,
        at(&found),
        at(&wanted)
    ))
}

fn say(message: &str) {
    // There is nobody left to tell if this fails.
    let _ = writeln!(std::io::stderr(), "{message}");
}
