//! The database's own checks find nothing.

use super::violation;
use crate::checker::evidence::Evidence;
use crate::history::Condition;
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut is_checked = false;
    for noted in &evidence.conditions {
        let Condition::Check { name, found } = noted.what else { continue };
        is_checked = true;
        if !found.is_empty() {
            let text = format!("{name}: {}", found.join("; "));
            violations.push(violation(Rule::Integrity, text, [""; 0], [noted.line]));
        }
    }
    if !is_checked {
        let text = "no check of the database's own was run at the end";
        violations.push(violation(Rule::Integrity, text, [""; 0], []));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, broken_by, legal};

    #[test]
    fn what_a_check_of_the_database_finds_is_reported() {
        let mut book = Book::new();
        let found = vec!["row 3 missing from index".to_owned()];
        book.end(Condition::Check { name: "integrity_check".to_owned(), found });
        broken_by(Rule::Integrity, &book.history(), &[], &["controller:5"]);
    }

    #[test]
    fn a_database_that_was_not_checked_is_not_clean() {
        legal(&Book::new().history());
        let mut book = Book::new();
        book.forget_conditions();
        broken_by(Rule::Integrity, &book.history(), &[], &[]);
    }
}
