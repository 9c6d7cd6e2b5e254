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
