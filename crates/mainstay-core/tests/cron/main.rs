//! Cron expressions and schedules against calculations that share nothing with them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod clock;
mod explaining;
mod expression;
mod misfires;
mod oracle;
mod parsing;
mod schedules;
mod second_opinion;
mod transitions;

use jiff::Timestamp;
use proptest::test_runner::Config;

/// An instant by its RFC 3339 text.
#[track_caller]
fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// So many cases. What fails is told with its values, and is to become a test with a name, not a file of seeds.
fn cases(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}
