//! The program as `cargo xtask chaos` runs it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

use mainstay_chaos::verdict::Verdict;

fn chaos(arguments: &[&str], out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay-chaos"));
    command.args(arguments).arg("--out").arg(out).env_remove("MAINSTAY_TEST_SQLSERVER").output().unwrap()
}

#[test]
fn a_short_run_on_sqlite_has_a_clean_verdict() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("run");
    let run = [
        "run",
        "--seed",
        "7",
        "--minutes",
        "0.1",
        "--provider",
        "sqlite",
        "--faults",
        "kill,kill_at_step,pause",
    ];
    let output = chaos(&run, &out);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("cargo xtask chaos --seed 7 --minutes 0.1 --provider sqlite"), "{said}");
    let verdict: Verdict =
        serde_json::from_str(&std::fs::read_to_string(out.join("verdict.json")).unwrap()).unwrap();
    assert_eq!(verdict.violations, []);
    assert!(
        verdict.faults["kill"] > 0 && verdict.ops["claim"] > 0 && verdict.ops["complete"] > 0,
        "{verdict:?}"
    );
    // The directory of a run is not used again.
    let output = chaos(&run, &out);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not empty"));
}

#[test]
fn mistakes_in_arguments_are_told() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, text) in [
        (&["run", "--seed", "1", "--provider", "oracle"][..], "postgres, pgbouncer, failover, sqlite"),
        (&["run", "--seed", "1", "--faults", "kil"], "unknown fault \"kil\""),
        (&["run", "--seed", "1", "--provider", "sqlite", "--faults", "failover"], "makes no sense on sqlite"),
        (&["run", "--seed", "1", "--minutes", "0"], "--minutes must be above 0"),
        (&["run", "--seed", "1", "--rate", "100"], "--rate must be from 0.01 to 20"),
        (&["run", "--seed", "one"], "--seed"),
        (&["run", "--seed", "1", "--provider", "sqlserver"], "set MAINSTAY_TEST_SQLSERVER to the URL"),
        (&["run"], "--seed"),
    ] {
        let output = chaos(arguments, &directory.path().join("run"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(text), "{arguments:?}: {said}");
    }
}
