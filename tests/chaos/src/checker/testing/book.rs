//! A history that is written by hand. Times are in milliseconds.

use std::collections::HashMap;

use uuid::Uuid;

use crate::history::{
    Answer, Call, Claim, Condition, Ending, Event, Fault, History, Item, Kind, Line, MARKER, MessageState,
    Outcome, Phase, Placed, QueueName, Run, Sample, Sent, Trouble, Within,
};

/// The lease of all claims, in milliseconds.
pub(crate) const LEASE: u64 = 1_000;

/// Deliveries before a message fails.
pub(crate) const LIMIT: u32 = 3;

/// Returns the n-th id.
pub(crate) fn id(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

/// Returns a message as its sender describes it.
pub(crate) fn sent(n: u128) -> Sent {
    Sent {
        id: id(n),
        topic: "orders".to_owned(),
        key: None,
        marker: format!("{MARKER}{n}"),
        delay_ms: 0,
        join: None,
        idempotency_key: None,
    }
}

/// Returns the n-th message as a claim brings it.
pub(crate) fn item(n: u128, generation: i64) -> Item {
    Item {
        id: id(n),
        message: id(n),
        generation,
        attempt: u32::try_from(generation).unwrap(),
        topic: "orders".to_owned(),
        key: None,
        marker: format!("{MARKER}{n}"),
        claimed_at: None,
        until: None,
    }
}

/// Returns a claim of the n-th message.
pub(crate) fn claim(n: u128, generation: i64) -> Claim {
    Claim { id: id(n), generation }
}

/// Returns the row of a message that was handled in its first delivery.
pub(crate) fn done(n: u128) -> MessageState {
    MessageState {
        queue: QueueName::Outbox,
        id: id(n),
        status: "done".to_owned(),
        attempts: 1,
        generation: Some(1),
        seq: Some(i64::try_from(n).unwrap()),
        key: None,
        reason: None,
    }
}

/// A history in the making.
///
/// Every process has a file of its own, whose lines are numbered as they are written: `a:1`.
#[derive(Debug, Clone)]
pub(crate) struct Book {
    lines: Vec<Placed>,
    /// Lines so far, by process.
    written: HashMap<String, u64>,
    calls: u64,
    conditions: Vec<Condition>,
    open: u64,
}

impl Book {
    /// Begins with the run's own line, and ends well unless told otherwise.
    pub(crate) fn new() -> Self {
        Self::on("postgres")
    }

    /// The book of a run on this provider.
    pub(crate) fn on(provider: &str) -> Self {
        let run = Run {
            seed: 7,
            date: "2026-11-19".to_owned(),
            git: "0123abc".to_owned(),
            provider: provider.to_owned(),
            lease_ms: LEASE,
            delivery_limit: LIMIT,
            connections: 10,
            command: "cargo xtask chaos".to_owned(),
            minutes: 0.1,
            planned: [("kill".to_owned(), 1), ("pause".to_owned(), 2)].into(),
            loses_tail: false,
        };
        let check = Condition::Check { name: "amcheck".to_owned(), found: Vec::new() };
        let mut book =
            Self { lines: Vec::new(), written: HashMap::new(), calls: 0, conditions: vec![check], open: 0 };
        book.note(0, Event::Run(run));
        book
    }

    fn write(&mut self, process: &str, at_ms: u64, call: u64, event: Event) {
        let number = self.written.entry(process.to_owned()).or_default();
        *number += 1;
        let place = format!("{process}:{number}");
        let kind = if process == "controller" { Kind::Controller } else { Kind::Worker };
        let line = Line { at: at_ms * 1_000_000, process: process.to_owned(), kind, call, event };
        self.lines.push(Placed { place, line });
    }

    /// Writes a line of the controller.
    pub(crate) fn note(&mut self, at_ms: u64, event: Event) {
        self.calls += 1;
        self.write("controller", at_ms, self.calls, event);
    }

    /// Writes a fault that lasts.
    pub(crate) fn fault(&mut self, kind: &str, (from, to): (u64, u64)) {
        self.calls += 1;
        for (at, phase) in [(from, Phase::Begin), (to, Phase::End)] {
            let fault = Fault { kind: kind.to_owned(), target: "server".to_owned(), phase };
            self.write("controller", at, self.calls, Event::Fault(fault));
        }
    }

    /// Writes a fault that hit nothing.
    pub(crate) fn fault_of_nothing(&mut self, kind: &str, (from, to): (u64, u64)) {
        self.fault(kind, (from, to));
        if let Some(Event::Fault(fault)) = self.lines.last_mut().map(|placed| &mut placed.line.event) {
            fault.phase = Phase::Void;
        }
    }

    /// Writes a measurement.
    pub(crate) fn sample(&mut self, at_ms: u64, sample: Sample) {
        self.note(at_ms, Event::Sample(sample));
    }

    /// Writes a call that is never answered.
    pub(crate) fn silent(&mut self, process: &str, at_ms: u64, call: Call) {
        self.calls += 1;
        self.write(process, at_ms, self.calls, Event::Invoke(Box::new(call)));
    }

    /// Writes a call and how it came out.
    pub(crate) fn call(&mut self, process: &str, (from, to): (u64, u64), call: Call, event: Event) {
        self.silent(process, from, call);
        self.write(process, to, self.calls, event);
    }

    /// Writes a call that was answered.
    pub(crate) fn ok(&mut self, process: &str, at: (u64, u64), call: Call, answer: Answer) {
        self.call(process, at, call, Event::Ok(Box::new(answer)));
    }

    /// Writes a call that failed without effect.
    pub(crate) fn fail(&mut self, process: &str, at: (u64, u64), call: Call) {
        self.call(process, at, call, Event::Fail(trouble()));
    }

    /// Writes a call whose outcome is unknown.
    pub(crate) fn unknown(&mut self, process: &str, at: (u64, u64), call: Call) {
        self.call(process, at, call, Event::Unknown(trouble()));
    }

    /// Writes something that stands in the database at the end.
    pub(crate) fn end(&mut self, condition: Condition) {
        self.conditions.push(condition);
    }

    /// Writes the row of a message at the end.
    pub(crate) fn row(&mut self, state: MessageState) {
        self.end(Condition::Message(state));
    }

    /// Leaves items open at the end.
    pub(crate) fn leave_open(&mut self, open: u64) {
        self.open = open;
    }

    /// Forgets the rows of an id.
    pub(crate) fn forget_rows_of(&mut self, id: Uuid) {
        self.conditions.retain(|it| !matches!(it, Condition::Message(state) if state.id == id));
    }

    /// Forgets what stands in the database at the end.
    pub(crate) fn forget_conditions(&mut self) {
        self.conditions.clear();
    }

    /// Returns the history up to here, with an end.
    pub(crate) fn history(&self) -> History {
        let mut book = self.clone();
        let last = 1 + book.lines.iter().map(|placed| placed.line.at / 1_000_000).max().unwrap_or(0);
        book.note(last, Event::Quiet);
        book.note(last, Event::Settled { open: book.open });
        for condition in std::mem::take(&mut book.conditions) {
            book.note(last, Event::End(Box::new(condition)));
        }
        book.lines.sort_by_key(|placed| placed.line.at);
        History { lines: book.lines }
    }
}

/// What a message goes through, in short.
impl Book {
    /// Adds messages.
    pub(crate) fn enqueue(&mut self, process: &str, at: (u64, u64), messages: Vec<Sent>) {
        let ids = messages.iter().map(|sent| sent.id).collect();
        let answer = Answer::Enqueued { ids, duplicates: Vec::new() };
        self.ok(process, at, enqueue(messages), answer);
    }

    /// Claims items.
    pub(crate) fn claim(&mut self, process: &str, at: (u64, u64), items: Vec<Item>) {
        let answer = Answer::Claimed { items, rejected: Vec::new() };
        self.ok(process, at, take(process), answer);
    }

    /// Settles a claim.
    pub(crate) fn settle(&mut self, process: &str, at: (u64, u64), claim: Claim, outcome: Outcome) {
        let answer = Answer::Changed { changed: vec![claim.id], stale: Vec::new() };
        self.ok(process, at, settle(process, claim, outcome), answer);
    }

    /// Adds, claims and acks a message, from `at_ms` on.
    pub(crate) fn handled(&mut self, at_ms: u64, n: u128) {
        self.enqueue("producer", (at_ms, at_ms + 1), vec![sent(n)]);
        self.claim("a", (at_ms + 2, at_ms + 3), vec![item(n, 1)]);
        self.settle("a", (at_ms + 4, at_ms + 5), claim(n, 1), Outcome::Ack);
        self.row(done(n));
    }
}

/// Returns the call that adds messages.
pub(crate) fn enqueue(messages: Vec<Sent>) -> Call {
    Call::Enqueue { messages, within: Within::Commit }
}

/// Returns the call by which a process claims.
pub(crate) fn take(process: &str) -> Call {
    Call::Claim { queue: QueueName::Outbox, owner: owner(process), lease_ms: LEASE, limit: LIMIT }
}

/// Returns the call by which a process settles a claim.
pub(crate) fn settle(process: &str, claim: Claim, outcome: Outcome) -> Call {
    Call::Settle { queue: QueueName::Outbox, owner: owner(process), ends: vec![Ending { claim, outcome }] }
}

/// Returns the owner of a process's claims.
pub(crate) fn owner(process: &str) -> Uuid {
    let number = process.bytes().fold(0, |number, byte| number * 256 + u128::from(byte));
    Uuid::from_u128(number)
}

fn trouble() -> Trouble {
    Trouble { kind: "Connection".to_owned(), text: "the connection was closed".to_owned() }
}
