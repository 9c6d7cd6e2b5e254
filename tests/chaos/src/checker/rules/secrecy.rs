//! No payload in a log.
//!
//! Every payload of a run has a marker in it that begins with [`MARKER`]; no line of a log may.

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::operations::Operation;
use crate::history::{Call, MARKER};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let leaks = evidence.leaks.iter().map(|leak| {
        // The text is in the log. Here it would leak once more, into every report.
        violation(Rule::Secrecy, "a payload is in a log", [""; 0], [leak.place.as_str()])
    });
    let unmarked = evidence.operations.iter().find(|operation| !is_marked(operation)).map(|operation| {
        let text =
            format!("a payload's marker does not begin with {MARKER}, so logs can't be searched for it");
        violation(Rule::Secrecy, text, [""; 0], operation.lines.iter().copied())
    });
    leaks.chain(unmarked).collect()
}

fn is_marked(operation: &Operation<'_>) -> bool {
    let is_marked = |marker: &str| marker.starts_with(MARKER);
    match operation.call {
        Call::Enqueue { messages, .. } | Call::Schedule { messages } => {
            messages.iter().all(|sent| is_marked(&sent.marker))
        }
        Call::Join { members, continuation, .. } => {
            members.iter().chain([continuation]).all(|sent| is_marked(&sent.marker))
        }
        Call::Receive { marker, .. } => is_marked(marker),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, broken_by, enqueue, legal, sent};
    use crate::checker::{LogLine, check};
    use crate::history::Sent;

    #[test]
    fn a_payload_in_a_log_is_reported_without_its_text() {
        let text = format!("handled {MARKER}17");
        let leak = LogLine { place: "worker-1.log:3".to_owned(), text };
        let violations = check(&Book::new().history(), &[leak]);
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].rule, Rule::Secrecy);
        assert_eq!(violations[0].lines, ["worker-1.log:3"]);
        assert!(!violations[0].text.contains(MARKER));
    }

    #[test]
    fn a_marker_that_can_not_be_searched_for_is_reported_once() {
        let mut book = Book::new();
        let odd = Sent { marker: "odd".to_owned(), ..sent(1) };
        book.silent("producer", 10, enqueue(vec![sent(2), odd.clone()]));
        book.silent("producer", 11, enqueue(vec![odd]));
        broken_by(Rule::Secrecy, &book.history(), &[], &["producer:1"]);
        let mut book = Book::new();
        book.silent("producer", 10, enqueue(vec![sent(1)]));
        legal(&book.history());
    }
}
