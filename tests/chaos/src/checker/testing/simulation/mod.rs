//! A small queue that is simulated: it makes legal histories.
//!
//! Every call takes effect at one instant between its invocation and its answer, so its history is
//! legal by construction. Calls of different processes overlap. Some are never answered: then the
//! effect came, did not come, or comes much later. All decisions are read from a tape of numbers, so
//! that a shorter tape is a simpler history.

mod holding;

use std::collections::BTreeMap;

use holding::{Lease, Reservation};
use uuid::Uuid;

use crate::checker::testing::book::{Book, LEASE, LIMIT, enqueue, id, item, owner, sent, settle, take};
use crate::history::{
    Action, Answer, Call, Claim, Condition, History, Item, LOST_TAIL, MessageState, Outcome, QueueName,
    Rejection, Sent, Within,
};

/// How a message stands.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Status {
    Ready,
    InProgress { owner: Uuid, until: u64 },
    Done,
    Failed,
}

#[derive(Debug, Clone)]
struct Message {
    sent: Sent,
    number: u128,
    status: Status,
    generation: i64,
    attempts: u32,
    effects: u64,
    /// Why it failed last.
    reason: Option<&'static str>,
}

impl Message {
    fn is_open(&self) -> bool {
        matches!(self.status, Status::Ready | Status::InProgress { .. })
    }

    /// Returns whether a claim may take it, as far as it is concerned itself.
    fn is_due(&self, now: u64) -> bool {
        match self.status {
            Status::Ready => true,
            Status::InProgress { until, .. } => until <= now,
            Status::Done | Status::Failed => false,
        }
    }
}

/// What the database holds. Messages are in the order of their sequence numbers.
#[derive(Debug, Clone, Default)]
struct Database {
    messages: Vec<Message>,
    lease: Lease,
    /// With the rows of lower epochs that each of them saw.
    guarded: Vec<(i64, Uuid, u64)>,
    /// Rows that were committed together with their messages.
    business: Vec<Uuid>,
    /// Effects of messages that were purged.
    effects: Vec<(Uuid, u64)>,
    audit: Vec<Condition>,
    /// Received messages, by their ids.
    received: BTreeMap<u64, Reservation>,
}

/// A process: its calls come one after the other.
#[derive(Debug, Clone)]
struct Process {
    name: &'static str,
    life: u32,
    free_at: u64,
    held: Vec<Claim>,
    epoch: Option<i64>,
    /// A received message and the generation of its reservation.
    reserved: Option<(u64, i64)>,
}

impl Process {
    fn name(&self) -> String {
        format!("{}.{}", self.name, self.life)
    }

    fn owner(&self) -> Uuid {
        owner(&self.name())
    }
}

/// How a call comes out.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Course {
    Answered,
    /// It takes effect, and the process dies before the answer.
    Died,
    /// The connection breaks before it takes effect, and the caller does not know.
    Lost,
    /// It fails without effect, and the caller knows.
    Failed,
}

/// Numbers that decide what happens.
struct Tape<'a>(std::slice::Iter<'a, u16>);

impl Tape<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next().map_or(0, |number| u64::from(*number) % bound)
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == bound - 1
    }

    fn course(&mut self) -> Course {
        match self.below(12) {
            9 => Course::Failed,
            10 => Course::Lost,
            11 => Course::Died,
            _ => Course::Answered,
        }
    }
}

/// What a simulation may do beside the ordinary.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// Failovers that lose their tail.
    pub failovers: bool,
    /// Calls that never get an answer, or fail.
    pub faults: bool,
    /// Whether the controller records the audit trail.
    pub audited: bool,
}

struct Simulation<'a> {
    tape: Tape<'a>,
    options: Options,
    book: Book,
    now: u64,
    next: u128,
    database: Database,
    /// How many failovers there were.
    timeline: i64,
    processes: Vec<Process>,
    /// Settles whose connection broke, and that are carried out later.
    late: Vec<(u64, Uuid, Claim, Outcome)>,
    /// The beginning of a failover's window, and what the replica has.
    failover: Option<(u64, Database)>,
}

/// Simulates what a tape says, and then lets all work end.
pub(crate) fn simulate(tape: &[u16], options: Options) -> History {
    let names = ["producer", "a", "b", "c", "operator", "h1", "h2"];
    let process =
        |name| Process { name, life: 1, free_at: 10, held: Vec::new(), epoch: None, reserved: None };
    let mut simulation = Simulation {
        tape: Tape(tape.iter()),
        options,
        book: Book::new(),
        now: 20,
        next: 1,
        database: Database::default(),
        timeline: 0,
        processes: names.map(process).to_vec(),
        late: Vec::new(),
        failover: None,
    };
    while simulation.tape.0.len() > 0 {
        simulation.step();
    }
    simulation.drain();
    simulation.finish()
}

impl Simulation<'_> {
    fn step(&mut self) {
        let time = 1 + self.tape.below(40);
        self.pass(time);
        match self.tape.below(22) {
            0..=3 => self.enqueue(),
            4..=8 => self.claim(),
            9..=12 => self.settle(),
            13 => self.renew(),
            14 => self.complete(),
            15 => self.operate(),
            16 | 17 => self.hold_lease(),
            18 if self.options.failovers => self.fail_over(),
            19 | 20 => self.reserve(),
            _ => {
                let halves = 1 + self.tape.below(2);
                self.pass(LEASE * halves / 2);
            }
        }
    }

    /// Lets time pass, and late calls be carried out.
    fn pass(&mut self, time: u64) {
        self.now += time;
        let now = self.now;
        let (due, late) = std::mem::take(&mut self.late).into_iter().partition(|(at, ..)| *at <= now);
        self.late = late;
        let due: Vec<(u64, Uuid, Claim, Outcome)> = due;
        for (_, owner, claim, outcome) in due {
            self.end(owner, claim, outcome);
        }
    }

    fn course(&mut self) -> Course {
        if self.options.faults { self.tape.course() } else { Course::Answered }
    }

    /// Records a call of a process that takes effect now.
    fn record(&mut self, process: usize, course: Course, call: Call, answer: Answer) {
        let process = &mut self.processes[process];
        let room = self.now - process.free_at.min(self.now);
        let from = self.now - room.min(self.tape.below(5));
        let to = self.now + 1 + self.tape.below(30);
        let name = process.name();
        match course {
            Course::Answered => self.book.ok(&name, (from, to), call, answer),
            Course::Failed => self.book.fail(&name, (from, to), call),
            Course::Lost => self.book.unknown(&name, (from, to), call),
            Course::Died => {
                self.book.silent(&name, from, call);
                process.life += 1;
                process.held.clear();
                process.epoch = None;
                process.reserved = None;
            }
        }
        process.free_at = to + 1;
    }

    /// Waits until a process has its last answer.
    fn free(&mut self, process: usize) {
        let free_at = self.processes[process].free_at;
        self.pass(free_at.saturating_sub(self.now));
    }

    fn enqueue(&mut self) {
        self.free(0);
        let is_committed = !self.tape.one_in(6);
        let mut messages = Vec::new();
        for _ in 0..=self.tape.below(3) {
            let key = [None, None, Some("k"), Some("l")][self.tape.below(4) as usize];
            messages.push(Sent { key: key.map(str::to_owned), ..sent(self.next) });
            self.next += 1;
        }
        let course = self.course();
        if is_committed && matches!(course, Course::Answered | Course::Died) {
            for sent in &messages {
                self.database.business.push(sent.id);
                self.database.messages.push(Message {
                    sent: sent.clone(),
                    number: sent.id.as_u128(),
                    status: Status::Ready,
                    generation: 0,
                    attempts: 0,
                    effects: 0,
                    reason: None,
                });
            }
        }
        let ids = messages.iter().map(|sent| sent.id).collect();
        if is_committed {
            let answer = Answer::Enqueued { ids, duplicates: Vec::new() };
            self.record(0, course, enqueue(messages), answer);
        } else {
            let call = Call::Enqueue { messages, within: Within::Rollback };
            self.record(0, course, call, Answer::RolledBack);
        }
    }

    fn worker(&mut self) -> usize {
        let worker = 1 + self.tape.below(3) as usize;
        self.free(worker);
        worker
    }

    fn claim(&mut self) {
        let worker = self.worker();
        let batch = 1 + self.tape.below(3) as usize;
        let course = self.course();
        self.claim_by(worker, batch, course);
    }

    fn claim_by(&mut self, worker: usize, batch: usize, course: Course) {
        let owner = self.processes[worker].owner();
        let (mut items, mut rejected): (Vec<Item>, Vec<Rejection>) = Default::default();
        if matches!(course, Course::Answered | Course::Died) {
            let now = self.now;
            for index in 0..self.database.messages.len() {
                if items.len() == batch || !self.may_be_claimed(index) {
                    continue;
                }
                let message = &mut self.database.messages[index];
                if message.attempts >= LIMIT {
                    message.status = Status::Failed;
                    message.reason = Some("delivery-limit");
                    rejected.push(Rejection { id: message.sent.id, reason: "DeliveryLimit".to_owned() });
                    continue;
                }
                message.status = Status::InProgress { owner, until: now + LEASE };
                message.generation += 1;
                message.attempts += 1;
                items.push(Item {
                    attempt: message.attempts,
                    key: message.sent.key.clone(),
                    ..item(message.number, message.generation)
                });
            }
        }
        let held = items.iter().map(|item| Claim { id: item.id, generation: item.generation });
        if course == Course::Answered {
            let held: Vec<Claim> = held.collect();
            self.processes[worker].held.extend(held);
        }
        let call = take(&self.processes[worker].name());
        self.record(worker, course, call, Answer::Claimed { items, rejected });
    }

    /// Of one ordering key, only the first open message may be claimed, and one at a time.
    fn may_be_claimed(&self, index: usize) -> bool {
        let (now, message) = (self.now, &self.database.messages[index]);
        let is_in_the_way = |other: &Message| {
            let is_running = matches!(other.status, Status::InProgress { until, .. } if until > now);
            other.sent.key.is_some() && other.sent.key == message.sent.key && is_running
        };
        let is_ahead = |other: &Message| {
            other.sent.key.is_some() && other.sent.key == message.sent.key && other.is_open()
        };
        message.is_due(now)
            && !self.database.messages[..index].iter().any(is_ahead)
            && !self.database.messages.iter().any(is_in_the_way)
    }

    /// Ends a claim, if it holds. Returns whether it did.
    fn end(&mut self, by: Uuid, claim: Claim, outcome: Outcome) -> bool {
        let Some(message) = self.held(by, claim) else { return false };
        message.status = match outcome {
            Outcome::Ack => Status::Done,
            Outcome::Fail | Outcome::Reject => Status::Failed,
            Outcome::Abandon | Outcome::Release => Status::Ready,
        };
        message.reason = match outcome {
            Outcome::Fail => Some("handler"),
            Outcome::Reject => Some("delivery-limit"),
            _ => None,
        };
        if matches!(outcome, Outcome::Release | Outcome::Reject) {
            message.attempts -= 1;
        }
        true
    }

    fn held(&mut self, by: Uuid, claim: Claim) -> Option<&mut Message> {
        self.database.messages.iter_mut().find(|message| {
            message.sent.id == claim.id
                && message.generation == claim.generation
                && matches!(message.status, Status::InProgress { owner, .. } if owner == by)
        })
    }

    /// Picks a worker's claim, and forgets it if it is over with that.
    fn pick(&mut self, worker: usize, is_over: bool) -> Option<Claim> {
        let held = &self.processes[worker].held;
        let index = self.tape.below(held.len().max(1) as u64) as usize;
        let claim = *held.get(index)?;
        if is_over {
            self.processes[worker].held.remove(index);
        }
        Some(claim)
    }

    fn settle(&mut self) {
        let worker = self.worker();
        let course = self.course();
        // After a failure the worker tries again some time.
        let Some(claim) = self.pick(worker, course == Course::Answered) else { return };
        let outcomes =
            [Outcome::Ack, Outcome::Ack, Outcome::Abandon, Outcome::Release, Outcome::Fail, Outcome::Reject];
        let outcome = outcomes[self.tape.below(6) as usize];
        let owner = self.processes[worker].owner();
        let is_changed = match course {
            Course::Answered | Course::Died => self.end(owner, claim, outcome),
            Course::Lost => {
                let delay = self.tape.below(2 * LEASE);
                self.late.push((self.now + delay, owner, claim, outcome));
                false
            }
            Course::Failed => false,
        };
        let call = settle(&self.processes[worker].name(), claim, outcome);
        self.record(worker, course, call, changed(claim.id, is_changed));
    }

    fn renew(&mut self) {
        let worker = self.worker();
        let course = self.course();
        let Some(claim) = self.pick(worker, false) else { return };
        let by = self.processes[worker].owner();
        let mut is_changed = false;
        if matches!(course, Course::Answered | Course::Died) {
            let now = self.now;
            if let Some(message) = self.held(by, claim)
                && (message.sent.key.is_none() || !message.is_due(now))
            {
                message.status = Status::InProgress { owner: by, until: now + LEASE };
                is_changed = true;
            }
        }
        let queue = QueueName::Outbox;
        let call = Call::Renew { queue, owner: by, claims: vec![claim], lease_ms: LEASE };
        self.record(worker, course, call, changed(claim.id, is_changed));
    }

    fn complete(&mut self) {
        let worker = self.worker();
        let mut course = self.course();
        let Some(claim) = self.pick(worker, course == Course::Answered) else { return };
        let by = self.processes[worker].owner();
        if matches!(course, Course::Answered | Course::Died) {
            match self.held(by, claim) {
                Some(message) => {
                    message.effects += 1;
                    message.status = Status::Done;
                }
                None => course = Course::Failed,
            }
        }
        let call = Call::Complete { queue: QueueName::Outbox, owner: by, claim };
        self.record(worker, course, call, Answer::Done);
    }

    fn operate(&mut self) {
        const OPERATOR: usize = 4;
        self.free(OPERATOR);
        let course = self.course();
        let is_carried_out = matches!(course, Course::Answered | Course::Died);
        let number = 1 + u128::from(self.tape.below(self.next.try_into().unwrap_or(u64::MAX)));
        let found = self.database.messages.iter_mut().find(|message| message.number == number);
        let (call, from, to) = match self.tape.below(4) {
            0 => (Call::Cancel { ids: vec![id(number)] }, Status::Ready, Status::Failed),
            1 => (Call::Requeue { ids: vec![id(number)] }, Status::Failed, Status::Ready),
            2 => (Call::Requeue { ids: vec![] }, Status::Failed, Status::Ready),
            _ => {
                let is_over = |message: &Message| message.status == Status::Done;
                let count = self.database.messages.iter().filter(|message| is_over(message)).count();
                let count = count as u64;
                if is_carried_out {
                    let purged = self.database.messages.iter().filter(|message| is_over(message));
                    let kept = purged.filter(|it| it.effects > 0).map(|it| (it.sent.id, it.effects));
                    self.database.effects.extend(kept);
                    self.database.messages.retain(|message| !is_over(message));
                    self.audit(Action::Purge, vec![], count);
                }
                let answer = Answer::Count(count);
                return self.record(OPERATOR, course, Call::Purge { age_ms: 0 }, answer);
            }
        };
        let is_changed = is_carried_out && found.as_ref().is_some_and(|message| message.status == from);
        if let (true, Some(message)) = (is_changed, found) {
            message.status = to;
            message.reason = (to == Status::Failed).then_some("cancelled");
            if to == Status::Ready {
                message.attempts = 0;
            }
            let action = if to == Status::Ready { Action::Requeue } else { Action::Cancel };
            self.audit(action, vec![id(number)], 1);
        }
        let changed = is_changed.then_some(id(number)).into_iter().collect();
        self.record(OPERATOR, course, call, Answer::Changed { changed, stale: vec![] });
    }

    fn audit(&mut self, action: Action, ids: Vec<Uuid>, count: u64) {
        self.database.audit.push(Condition::Audited { action, ids, count });
    }

    /// Stops the replica, or lets it take over: all since then is lost.
    fn fail_over(&mut self) {
        match self.failover.take() {
            None => self.failover = Some((self.now, self.database.clone())),
            Some((since, replica)) => {
                self.database = replica;
                self.timeline += 1;
                self.pass(1);
                self.book.fault(LOST_TAIL, (since, self.now));
                self.pass(1);
            }
        }
    }

    /// Lets all work end, without faults.
    fn drain(&mut self) {
        if self.failover.is_some() {
            self.fail_over();
        }
        self.pass(3 * LEASE);
        while self.database.messages.iter().any(Message::is_open) {
            self.free(1);
            self.claim_by(1, 10, Course::Answered);
            while let Some(claim) = self.processes[1].held.pop() {
                self.free(1);
                let owner = self.processes[1].owner();
                let is_changed = self.end(owner, claim, Outcome::Ack);
                let call = settle(&self.processes[1].name(), claim, Outcome::Ack);
                self.record(1, Course::Answered, call, changed(claim.id, is_changed));
            }
            self.pass(1);
        }
    }

    fn finish(mut self) -> History {
        for (seq, message) in (1..).zip(&self.database.messages) {
            self.book.row(MessageState {
                queue: QueueName::Outbox,
                id: message.sent.id,
                status: if message.status == Status::Done { "done" } else { "failed" }.to_owned(),
                attempts: message.attempts,
                generation: Some(message.generation),
                seq: Some(seq),
                key: message.sent.key.clone(),
                reason: message.reason.map(str::to_owned),
            });
            if message.effects > 0 {
                self.book.end(Condition::Effect { id: message.sent.id, rows: message.effects });
            }
        }
        self.book.end(Condition::Business { ids: std::mem::take(&mut self.database.business) });
        for (id, rows) in std::mem::take(&mut self.database.effects) {
            self.book.end(Condition::Effect { id, rows });
        }
        let is_audited = self.options.audited;
        if is_audited {
            self.book.end(Condition::Trail { records: self.database.audit.len() as u64 });
        }
        for record in std::mem::take(&mut self.database.audit).into_iter().filter(|_| is_audited) {
            self.book.end(record);
        }
        for (id, reservation) in &self.database.received {
            self.book.end(reservation.condition(*id));
        }
        for (epoch, value, seen) in std::mem::take(&mut self.database.guarded) {
            self.book.end(Condition::Guarded { name: "l".to_owned(), epoch, value, seen: Some(seen) });
        }
        self.book.history()
    }
}

fn changed(id: Uuid, is_changed: bool) -> Answer {
    let (changed, stale) = if is_changed { (vec![id], vec![]) } else { (vec![], vec![id]) };
    Answer::Changed { changed, stale }
}
