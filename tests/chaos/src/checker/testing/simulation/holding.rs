//! What is held for a while: a lease, and reservations of received messages.

use uuid::Uuid;

use super::{Course, Simulation};
use crate::checker::testing::book::LEASE;
use crate::history::{Answer, Call, Condition};

#[derive(Debug, Clone, Default)]
pub(super) struct Lease {
    holder: Option<(usize, u64)>,
    epoch: i64,
    token: i64,
}

impl Lease {
    /// Grants it. No number is lower than those of an earlier timeline of the server.
    fn grant(&mut self, process: usize, now: u64, timeline: i64, is_new: bool) -> Answer {
        let least = timeline * 1_000_000 + 1;
        if is_new {
            self.epoch = least.max(self.epoch + 1);
        }
        self.token = least.max(self.token + 1);
        self.holder = Some((process, now + LEASE));
        let until = (now + LEASE * 9 / 10) * 1_000_000;
        Answer::Granted { epoch: self.epoch, token: self.token, until }
    }
}

/// A received message.
#[derive(Debug, Clone, Default)]
pub(super) struct Reservation {
    holder: Option<(i64, u64)>,
    generation: i64,
    is_completed: bool,
}

impl Reservation {
    /// Reserves it, if it is free.
    fn begin(&mut self, now: u64) -> Option<i64> {
        let is_free = self.holder.is_none_or(|(_, until)| until <= now);
        if self.is_completed || !is_free {
            return None;
        }
        self.generation += 1;
        self.holder = Some((self.generation, now + LEASE));
        Some(self.generation)
    }

    /// Completes or releases it, if it is still held under a generation, lapsed or not.
    fn end(&mut self, generation: i64, is_completed: bool) -> bool {
        let is_held = self.holder.is_some_and(|(held, _)| held == generation);
        if is_held {
            self.holder = None;
            self.is_completed = is_completed;
        }
        is_held
    }

    pub(super) fn condition(&self, id: u64) -> Condition {
        Condition::Received {
            source: "shop".to_owned(),
            id: id.to_string(),
            status: if self.is_completed { "done" } else { "processing" }.to_owned(),
            effects: self.is_completed.into(),
        }
    }
}

impl Simulation<'_> {
    pub(super) fn hold_lease(&mut self) {
        let process = 5 + self.tape.below(2) as usize;
        self.free(process);
        let course = self.course();
        let is_carried_out = matches!(course, Course::Answered | Course::Died);
        let (now, name) = (self.now, "l".to_owned());
        let lease = &mut self.database.lease;
        let is_free = lease.holder.is_none_or(|(_, until)| until <= now);
        let action = self.tape.below(4);
        let Some(epoch) = self.processes[process].epoch.filter(|_| action > 0) else {
            let mut answer = Answer::Held { owner: None };
            if is_carried_out && is_free {
                answer = lease.grant(process, now, self.timeline, true);
                let epoch = lease.epoch;
                if course == Course::Answered {
                    self.processes[process].epoch = Some(epoch);
                }
            }
            let owner = self.processes[process].name();
            return self.record(process, course, Call::Acquire { name, owner, lease_ms: LEASE }, answer);
        };
        let is_held = !is_free && lease.epoch == epoch;
        match action {
            1 => {
                let mut answer = Answer::Held { owner: None };
                if is_carried_out && is_held {
                    answer = lease.grant(process, now, self.timeline, false);
                }
                self.record(process, course, Call::Prolong { name, epoch, lease_ms: LEASE }, answer);
            }
            2 => {
                if is_carried_out && is_held {
                    lease.holder = None;
                }
                self.processes[process].epoch = None;
                self.record(process, course, Call::GiveUp { name, epoch }, Answer::Flag(is_held));
            }
            _ => {
                let value = Uuid::from_u128(1_000_000 + u128::from(now));
                let course = if is_carried_out && !is_held { Course::Failed } else { course };
                if is_carried_out && is_held {
                    let lower = self.database.guarded.iter().filter(|(other, ..)| *other < epoch).count();
                    self.database.guarded.push((epoch, value, lower as u64));
                }
                self.record(process, course, Call::GuardedWrite { name, epoch, value }, Answer::Done);
            }
        }
    }

    /// Reserves a received message, or completes the one that a process has reserved.
    pub(super) fn reserve(&mut self) {
        let process = 5 + self.tape.below(2) as usize;
        self.free(process);
        let course = self.course();
        let is_carried_out = matches!(course, Course::Answered | Course::Died);
        let (now, source) = (self.now, "shop".to_owned());
        let Some((number, generation)) = self.processes[process].reserved.take() else {
            let number = self.tape.below(4);
            let entry = || self.database.received.entry(number).or_default().begin(now);
            let generation = is_carried_out.then(entry).flatten();
            if course == Course::Answered {
                self.processes[process].reserved = generation.map(|generation| (number, generation));
            }
            let call = Call::Begin { source, id: number.to_string(), lease_ms: LEASE };
            return self.record(process, course, call, Answer::Begun { generation });
        };
        // A call that came to nothing drops its guard, which releases the message some time.
        let is_completed = is_carried_out && !self.tape.one_in(4);
        let is_ended = match self.database.received.get_mut(&number) {
            Some(entry) if is_completed || self.tape.one_in(2) => entry.end(generation, is_completed),
            _ => false,
        };
        let course =
            if course == Course::Answered && !(is_ended && is_completed) { Course::Failed } else { course };
        let call = Call::Finish { source, id: number.to_string(), generation };
        self.record(process, course, call, Answer::Done);
    }
}
