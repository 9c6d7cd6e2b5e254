use std::path::PathBuf;

use crate::cargo::cargo;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::run::run;

pub(crate) const USAGE: &str = "\
conformance [--check | --write]
    Compare docs/reference/conformance.md with the results of the last full test run, or
    write it from them. Whether SQL Server was among them makes no difference to the first";

pub(crate) fn main(arguments: &[String]) -> Result<(), Failure> {
    let interrupt = Interrupt::watch()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] | ["--check"] => report("--check", &interrupt),
        ["--write"] => report("--write", &interrupt),
        _ => Err(Failure::usage("expected --check or --write".to_owned())),
    }
}

/// Makes the report of the results there are.
pub(crate) fn report(mode: &str, interrupt: &Interrupt) -> Result<(), Failure> {
    let mut command = cargo();
    // The features of the test run, so that nothing is built again.
    command.args(["run", "--quiet", "--package", "mainstay-conformance", "--all-features"]);
    command.args(["--bin", "conformance-report", "--", mode]);
    run(&mut command, interrupt)
}

/// Forgets the results of earlier runs: a case that is gone must not count as passed.
pub(crate) fn forget_results() -> Result<(), Failure> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let directory =
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(target).join("conformance");
    match std::fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::new(format!("cannot remove {}: {error}", directory.display())))
        }
        _ => Ok(()),
    }
}
