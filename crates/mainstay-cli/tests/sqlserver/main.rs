//! The program on SQL Server: on the server that `MAINSTAY_TEST_SQLSERVER` names.
//!
//! Without it no case is run, and each is shown as not run: the usual harness knows only passed, failed and ignored by the source. So this one
//! runs the cases itself (`harness.rs`). Each is in a database of its own, which is made for it and dropped after it (`own_database.rs`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a harness prints, and a test fails by panicking"
)]

mod fleet;
mod guide;
mod harness;
mod holding;
mod own_database;
#[path = "../program/mod.rs"]
mod program;
mod queues;
mod schema;
mod serve;
#[path = "../served/mod.rs"]
mod served;
mod shop;
mod steps;
mod timetables;
mod watching;

use std::process::ExitCode;

use harness::Case;

/// The long ones first, so that the others run beside them.
const CASES: &[&[Case]] = &[
    shop::CASES,
    fleet::CASES,
    serve::CASES,
    schema::CASES,
    guide::CASES,
    queues::CASES,
    timetables::CASES,
    steps::CASES,
    holding::CASES,
    watching::CASES,
];

fn main() -> ExitCode {
    harness::main(CASES.concat())
}
