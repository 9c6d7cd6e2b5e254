//! Power losses: the simulation finds nothing where syncs work, and finds losses where they don't.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::process::Command;

use mainstay_chaos::power::{self, Recording, Syncs};
use mainstay_chaos::verdict::Rule;

/// Not a test by itself: the process that is recorded.
#[test]
fn writer() {
    if let Some(written) = power::write_if_asked() {
        written.unwrap();
    }
}

/// Whether strace is installed. In a full run it has to be, so that the tests can't all be skipped
/// unnoticed.
fn has_strace() -> bool {
    if Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success()) {
        return true;
    }
    assert!(std::env::var_os("MAINSTAY_TEST_POSTGRES").is_none(), "a full run needs strace");
    eprintln!("skipped: strace is not installed");
    false
}

fn program() -> Command {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["writer", "--exact", "--nocapture"]);
    program
}

#[test]
fn answered_calls_survive_a_power_loss_and_only_because_of_syncs() {
    if !has_strace() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let recording = Recording::make(program(), 7, out.path()).unwrap();
    let report = recording.check(7, 300, Syncs::Honored, out.path()).unwrap();
    assert!(report.calls > 300 && report.syncs > 100, "{report:?}");
    assert_eq!((report.states, report.broken), (300, 0), "{:?}", report.violations);

    let report = recording.check(7, 100, Syncs::Ignored, out.path()).unwrap();
    assert!(report.broken > 50, "{report:?}");
    let found = |rule: Rule| report.violations.iter().any(|violation| violation.rule == rule);
    assert!(found(Rule::NothingLost) && found(Rule::Integrity), "{:?}", report.violations);
}

#[test]
fn a_program_that_does_not_do_the_work_is_noticed() {
    if !has_strace() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let error = power::run_with(Command::new("true"), 7, 1, out.path()).unwrap_err();
    assert!(error.to_string().contains("marked no call"), "{error:#}");
}
