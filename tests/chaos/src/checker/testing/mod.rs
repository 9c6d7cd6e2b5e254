//! Histories for tests.

mod book;
mod mutations;
mod properties;
mod simulation;

pub(crate) use book::{Book, LEASE, claim, done, enqueue, id, item, owner, sent, settle, take};

use super::check;
use crate::history::History;
use crate::verdict::{Rule, Violation};

/// Checks a history, and expects violations of one rule only. Returns them.
#[track_caller]
pub(crate) fn broken(rule: Rule, history: &History) -> Vec<Violation> {
    let violations = check(history, &[]);
    assert!(!violations.is_empty(), "nothing was found");
    assert!(violations.iter().all(|it| it.rule == rule), "{violations:#?}");
    violations
}

/// Checks a history, and expects one violation of a rule with these ids and lines.
#[track_caller]
pub(crate) fn broken_by(rule: Rule, history: &History, ids: &[&str], lines: &[&str]) {
    let violations = broken(rule, history);
    assert_eq!(violations.len(), 1, "{violations:#?}");
    assert_eq!(violations[0].ids, ids, "{}", violations[0].text);
    assert_eq!(violations[0].lines, lines, "{}", violations[0].text);
}

/// Checks a history that may break several rules, and returns the violations of one.
pub(crate) fn found(rule: Rule, history: &History) -> Vec<Violation> {
    let mut violations = check(history, &[]);
    violations.retain(|it| it.rule == rule);
    violations
}

/// Checks a history that breaks no rule.
#[track_caller]
pub(crate) fn legal(history: &History) {
    assert_eq!(check(history, &[]), []);
}
