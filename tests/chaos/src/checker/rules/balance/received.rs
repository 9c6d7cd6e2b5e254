//! Received messages: the ledger knows each once, and agrees with the inbox's queue.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::violation;
use crate::checker::evidence::{Evidence, Noted};
use crate::checker::operations::Operation;
use crate::history::{Answer, Call, Condition, QueueName};
use crate::verdict::{Rule, Violation};

/// What the calls tell of a received message.
#[derive(Default)]
struct Calls<'a> {
    /// Calls that may have written it down.
    all: Vec<&'a Operation<'a>>,
    /// Those that were answered that it is new.
    new: Vec<&'a Operation<'a>>,
    /// Those that were answered that it is known.
    known: Vec<&'a Operation<'a>>,
    completed: Option<&'a Operation<'a>>,
    is_reserved: bool,
    items: BTreeMap<Uuid, &'a Operation<'a>>,
}

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut entries: HashMap<(&str, &str), Noted<'_, &str>> = HashMap::new();
    for noted in &evidence.conditions {
        if let Condition::Received { source, id, status, .. } = noted.what {
            let entry = Noted { at: noted.at, line: noted.line, what: status.as_str() };
            entries.insert((source, id), entry);
        }
    }
    let mut violations = Vec::new();
    for ((source, id), calls) in gather(evidence) {
        let entry = entries.remove(&(source, id));
        for (text, operations) in calls.wrong(evidence, entry.map(|entry| entry.what)) {
            let lines = operations.iter().flat_map(|operation| &operation.lines).copied();
            let lines = lines.chain(entry.map(|entry| entry.line));
            let text = format!("received message: {text}");
            violations.push(violation(Rule::Balance, text, [format!("{source}/{id}")], lines));
        }
    }
    let invented: BTreeMap<_, _> = entries.into_iter().collect();
    for ((source, id), entry) in invented {
        let text = "the ledger knows a message that no call received";
        violations.push(violation(Rule::Balance, text, [format!("{source}/{id}")], [entry.line]));
    }
    violations
}

fn gather<'a>(evidence: &Evidence<'a>) -> BTreeMap<(&'a str, &'a str), Calls<'a>> {
    let mut received: BTreeMap<(&str, &str), Calls<'a>> = BTreeMap::new();
    for operation in evidence.operations.iter().filter(|operation| operation.possibly()) {
        match operation.call {
            Call::Receive { source, id, .. } => {
                let calls = received.entry((source, id)).or_default();
                calls.all.push(operation);
                if let Some(Answer::Received { new, item }) = operation.answer() {
                    if *new {
                        calls.new.push(operation)
                    } else {
                        calls.known.push(operation)
                    }
                    calls.items.extend(item.map(|item| (item, operation)));
                }
            }
            Call::Begin { source, id, .. } => {
                let calls = received.entry((source, id)).or_default();
                calls.is_reserved = true;
                calls.all.push(operation);
            }
            Call::Finish { source, id, .. } => {
                let calls = received.entry((source, id)).or_default();
                calls.is_reserved = true;
                if operation.surely() {
                    calls.completed = Some(operation);
                }
            }
            _ => {}
        }
    }
    received
}

/// A sentence, and the calls that show it.
type Wrong<'a> = (String, Vec<&'a Operation<'a>>);

impl<'a> Calls<'a> {
    fn wrong(&self, evidence: &Evidence<'_>, status: Option<&str>) -> Vec<Wrong<'a>> {
        let mut wrong = Vec::new();
        let lasting: Vec<_> = self.new.iter().copied().filter(|operation| operation.surely()).collect();
        if lasting.len() > 1 {
            wrong.push((format!("it was new {} times", lasting.len()), lasting));
        }
        let first = self.all.iter().map(|operation| operation.invoked).min();
        let early = self.known.iter().find(|operation| Some(operation.invoked) == first);
        // One that was made together with it can have been first.
        if let Some(early) = early
            && !self.all.iter().any(|other| !std::ptr::eq(*other, *early) && other.invoked <= early.returned)
        {
            wrong.push(("it was known before any call received it".to_owned(), vec![early]));
        }
        if self.items.len() > 1 {
            let text = format!("it has {} items in the queue", self.items.len());
            wrong.push((text, self.items.values().copied().collect()));
        }
        let written = self.all.iter().find(|operation| operation.surely());
        let Some(status) = status else {
            wrong
                .extend(written.map(|operation| ("it is gone from the ledger".to_owned(), vec![*operation])));
            return wrong;
        };
        if let Some(completed) = self.completed
            && status != "done"
        {
            wrong.push((format!("it was completed, and the ledger has it as {status}"), vec![completed]));
        }
        // Who ends an item that is reserved as well, its worker or the reservation, can't be told.
        if !self.is_reserved {
            for (item, operation) in &self.items {
                let story = evidence.stories.get(&(QueueName::Inbox, *item));
                let expected = match story.map_or("", |story| story.status()) {
                    "done" => "done",
                    "failed" => "dead",
                    _ => continue,
                };
                if status != expected {
                    let text = format!("its item makes it {expected}, and the ledger has it as {status}");
                    wrong.push((text, vec![*operation]));
                }
            }
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, claim, done, found, id, item, owner, sent};
    use crate::history::{Ending, LOST_TAIL, MessageState, Outcome};

    const SHOP: &str = "shop";

    fn receive() -> Call {
        Call::Receive { source: SHOP.to_owned(), id: "r1".to_owned(), marker: sent(1).marker }
    }

    fn received(new: bool) -> Answer {
        Answer::Received { new, item: Some(id(1)) }
    }

    fn entry(book: &mut Book, status: &str) {
        let (source, id) = (SHOP.to_owned(), "r1".to_owned());
        book.end(Condition::Received { source, id, status: status.to_owned(), effects: 0 });
    }

    #[track_caller]
    fn told(book: &Book) -> Vec<String> {
        found(Rule::Balance, &book.history()).into_iter().map(|it| it.text).collect()
    }

    #[test]
    fn a_message_is_new_once() {
        let mut book = Book::new();
        book.ok("a", (10, 20), receive(), received(true));
        book.ok("b", (11, 12), receive(), received(false));
        entry(&mut book, "seen");
        assert_eq!(told(&book), [""; 0]);
        let mut book = Book::new();
        book.ok("a", (10, 20), receive(), received(true));
        book.ok("b", (11, 12), receive(), received(true));
        entry(&mut book, "seen");
        assert_eq!(told(&book), ["received message: it was new 2 times"]);
        book.fault(LOST_TAIL, (20, 21));
        assert_eq!(told(&book), [""; 0]);
    }

    #[test]
    fn a_message_is_not_known_before_it_came() {
        let mut book = Book::new();
        book.ok("a", (10, 11), receive(), received(false));
        book.ok("b", (12, 13), receive(), received(true));
        entry(&mut book, "seen");
        assert_eq!(told(&book), ["received message: it was known before any call received it"]);
        let mut book = Book::new();
        book.silent("b", 5, receive());
        book.ok("a", (10, 11), receive(), received(false));
        entry(&mut book, "seen");
        assert_eq!(told(&book), [""; 0]);
    }

    #[test]
    fn a_message_has_one_item_and_one_entry() {
        let mut book = Book::new();
        book.ok("a", (10, 11), receive(), received(true));
        assert_eq!(told(&book), ["received message: it is gone from the ledger"]);
        let other = Answer::Received { new: false, item: Some(id(2)) };
        book.ok("b", (12, 13), receive(), other);
        entry(&mut book, "seen");
        assert_eq!(told(&book), ["received message: it has 2 items in the queue"]);
        let mut book = Book::new();
        entry(&mut book, "seen");
        assert_eq!(told(&book), ["the ledger knows a message that no call received"]);
        book.silent("a", 10, receive());
        assert_eq!(told(&book), [""; 0]);
    }

    #[test]
    fn the_ledger_follows_the_queue() {
        let mut book = Book::new();
        book.ok("a", (10, 11), receive(), received(true));
        let call = Call::Claim { queue: QueueName::Inbox, owner: owner("a"), lease_ms: 1_000, limit: 3 };
        book.ok("a", (12, 13), call, Answer::Claimed { items: vec![item(1, 1)], rejected: vec![] });
        let ends = vec![Ending { claim: claim(1, 1), outcome: Outcome::Ack }];
        let call = Call::Settle { queue: QueueName::Inbox, owner: owner("a"), ends };
        book.ok("a", (14, 15), call, Answer::Changed { changed: vec![id(1)], stale: vec![] });
        book.row(MessageState { queue: QueueName::Inbox, ..done(1) });
        let mut behind = book.clone();
        entry(&mut book, "done");
        crate::checker::testing::legal(&book.history());
        entry(&mut behind, "seen");
        assert_eq!(
            told(&behind),
            ["received message: its item makes it done, and the ledger has it as seen"]
        );
    }

    #[test]
    fn a_completed_message_is_done() {
        let (source, id) = (SHOP.to_owned(), "r1".to_owned());
        let mut book = Book::new();
        let begin = Call::Begin { source: source.clone(), id: id.clone(), lease_ms: 1_000 };
        book.ok("a", (10, 11), begin, Answer::Begun { generation: Some(1) });
        book.ok("a", (12, 13), Call::Finish { source, id, generation: 1 }, Answer::Done);
        entry(&mut book, "processing");
        assert_eq!(told(&book), ["received message: it was completed, and the ledger has it as processing"]);
    }
}
