//! The connections of this process, and who may have them.
//!
//! Whoever wants to open connections first gets a [`Share`] for all of them. What is asked for is given whole or not at all, under the bound
//! of the process and that of the server together, so nobody holds a part while waiting for the rest. Of each bound a part is kept for
//! looks and for calls of the application, which last a moment; who wants to work waits in line for the other part. Who waits for a
//! server keeps nobody waiting who wants to go elsewhere.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::{ConnectionStatus, FleetOptions};

/// The connections of this process.
#[derive(Debug)]
pub(super) struct Budget {
    ledger: Arc<Ledger>,
    /// How many of those that are kept back may be kept open by who watches.
    standing: Arc<Semaphore>,
}

#[derive(Debug)]
struct Ledger {
    book: Mutex<Book>,
    line: watch::Sender<Line>,
}

/// Who has what, and who waits.
#[derive(Debug)]
struct Book {
    all: Bound,
    /// The bound of each server as long as it is unused; none: only the total bounds it.
    each_server: Option<Bound>,
    servers: HashMap<Arc<str>, Bound>,
    /// How many connections may be out at once to databases that are not well, and how many are.
    trials: (usize, usize),
    /// Who wants to work, first come first served.
    line: VecDeque<Waiter>,
    /// Who wants connections for a moment.
    moments: VecDeque<Waiter>,
    /// Who works, by when their turns began.
    turns: BTreeMap<Turn, AtWork>,
    tickets: u64,
    peak: usize,
}

/// A turn at work: when it began, and its ticket.
type Turn = (Instant, u64);

/// One who works.
#[derive(Debug)]
struct AtWork {
    server: Option<Arc<str>>,
    /// When it last asked whether it should make room. Who does not ask can't be counted upon: it may wait for an answer that never comes.
    asked: Instant,
    /// Since when it makes room.
    leaving: Option<Instant>,
}

/// How recently one must have asked to be counted upon: several times as long as there is between two times.
const ASKS: Duration = Duration::from_millis(500);

/// How long one who makes room is waited for. What is not free by then is held up by something.
const LEAVES: Duration = Duration::from_secs(3);

/// How many connections there may be, of the process or of a server.
#[derive(Debug, Clone, Copy)]
struct Bound {
    limit: usize,
    /// Kept for those that last a moment.
    kept: usize,
    working: usize,
    brief: usize,
}

/// What is asked for, or was given.
#[derive(Debug, Clone, Copy, Default)]
struct Parts {
    working: usize,
    brief: usize,
    /// How many of `brief` go to a database that is not well.
    trials: usize,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    server: Option<Arc<str>>,
    parts: Parts,
    given: oneshot::Sender<Share>,
}

/// How many databases wait for connections to work with, by what they wait for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line {
    anywhere: usize,
    servers: BTreeMap<Arc<str>, usize>,
}

impl Line {
    /// Whether somebody waits for what a database on this server works with.
    pub(super) fn wants(&self, server: Option<&str>) -> bool {
        self.anywhere > 0 || server.is_some_and(|server| self.servers.contains_key(server))
    }

    fn len(&self) -> usize {
        self.anywhere + self.servers.values().sum::<usize>()
    }
}

impl Bound {
    fn of(limit: usize) -> Self {
        Self { limit, kept: FleetOptions::kept(limit), working: 0, brief: 0 }
    }

    fn used(&self) -> usize {
        self.working + self.brief
    }

    /// Whether so many are left of those to work with, whoever has them for a moment.
    fn has_work_for(&self, count: usize) -> bool {
        self.working + count <= self.limit - self.kept
    }

    fn has_room_for(&self, count: usize) -> bool {
        self.used() + count <= self.limit
    }

    /// Whether so many are left for a moment. Who waits for room to work is let in first.
    fn has_moment(&self, count: usize, is_awaited: bool) -> bool {
        self.has_room_for(count) && (!is_awaited || self.brief + count <= self.kept)
    }

    fn give(&mut self, parts: Parts) {
        self.working += parts.working;
        self.brief += parts.brief;
    }

    fn take_back(&mut self, parts: Parts) {
        self.working -= parts.working;
        self.brief -= parts.brief;
    }
}

impl Book {
    fn server(&self, server: Option<&Arc<str>>) -> Option<Bound> {
        let each = self.each_server?;
        Some(self.servers.get(server?).copied().unwrap_or(each))
    }

    /// Gives those who wait what there is for them.
    fn serve(&mut self, ledger: &Arc<Ledger>) -> Vec<(oneshot::Sender<Share>, Share)> {
        let mut given = Vec::new();
        // Whose turn it is there; those behind must not overtake.
        let mut full = BTreeSet::new();
        // Where somebody who may work waits for those that last a moment.
        let (mut awaited, mut awaited_at) = (false, BTreeSet::new());
        let mut at = 0;
        while let Some(waiter) = self.line.get(at) {
            let (count, server) = (waiter.parts.working, waiter.server.clone());
            let is_next = server.as_ref().is_none_or(|server| !full.contains(server));
            let bound = self.server(server.as_ref());
            if !is_next || bound.is_some_and(|bound| !bound.has_work_for(count) || !bound.has_room_for(count))
            {
                if let Some(server) = server {
                    if is_next && bound.is_some_and(|bound| bound.has_work_for(count)) {
                        awaited_at.insert(Arc::clone(&server));
                    }
                    full.insert(server);
                }
                at += 1;
                continue;
            }
            if !self.all.has_work_for(count) || !self.all.has_room_for(count) {
                awaited = self.all.has_work_for(count);
                break;
            }
            given.extend(self.line.remove(at).map(|waiter| self.give(waiter, ledger)));
        }
        at = 0;
        // Among those that are not well, nobody who wants little overtakes one who wants more; and for one who wants more, room is kept until
        // there is enough.
        let (mut no_more_trials, mut gathered) = (false, 0);
        while let Some(waiter) = self.moments.get(at) {
            let (count, trials, server) = (waiter.parts.brief, waiter.parts.trials, waiter.server.as_ref());
            let is_awaited_there = server.is_some_and(|server| awaited_at.contains(server));
            no_more_trials |= trials > 0 && self.trials.1 + trials > self.trials.0;
            let fits = self.all.has_moment(count + gathered, awaited)
                && self.server(server).is_none_or(|bound| bound.has_moment(count, is_awaited_there))
                && (trials == 0 || !no_more_trials);
            match fits {
                true => given.extend(self.moments.remove(at).map(|waiter| self.give(waiter, ledger))),
                false => {
                    if trials > 1 && !no_more_trials {
                        (gathered, no_more_trials) = (count, true);
                    }
                    at += 1;
                }
            }
        }
        given
    }

    fn give(&mut self, waiter: Waiter, ledger: &Arc<Ledger>) -> (oneshot::Sender<Share>, Share) {
        let Waiter { ticket, server, parts, given } = waiter;
        let turn = (parts.working > 0).then(|| (Instant::now(), ticket));
        if let Some(turn) = turn {
            self.turns.insert(turn, AtWork { server: server.clone(), asked: turn.0, leaving: None });
        }
        self.all.give(parts);
        self.trials.1 += parts.trials;
        if let (Some(each), Some(server)) = (self.each_server, &server) {
            self.servers.entry(Arc::clone(server)).or_insert(each).give(parts);
        }
        self.peak = self.peak.max(self.all.used());
        (given, Share { ledger: Arc::clone(ledger), server, parts, turn })
    }

    fn take_back(&mut self, server: Option<&Arc<str>>, parts: Parts) {
        self.all.take_back(parts);
        self.trials.1 -= parts.trials;
        if let Some(server) = server
            && let Some(bound) = self.servers.get_mut(server)
        {
            bound.take_back(parts);
            if bound.used() == 0 {
                self.servers.remove(server);
            }
        }
    }

    /// Whether one who works should make room: those whose turns began first, and as many as wait. Who does so already counts, for a while, and
    /// of the others those that will find out by themselves.
    fn is_to_leave(&mut self, turn: Turn, line: &Line, after: Duration, now: Instant) -> bool {
        let Some(own) = self.turns.get_mut(&turn) else { return false };
        own.asked = now;
        let server = own.server.clone();
        let makes_room = |(since, _): &Turn, other: &AtWork| match other.leaving {
            Some(leaving) => now.saturating_duration_since(leaving) < LEAVES,
            None => {
                now.saturating_duration_since(other.asked) < ASKS
                    && now.saturating_duration_since(*since) >= after
            }
        };
        let before = |same: &dyn Fn(&AtWork) -> bool| {
            self.turns.range(..turn).filter(|(turn, other)| same(other) && makes_room(turn, other)).count()
        };
        let waiting_there = server.as_ref().and_then(|server| line.servers.get(server)).copied().unwrap_or(0);
        (line.anywhere > 0 && before(&|_| true) < line.anywhere)
            || (waiting_there > 0 && before(&|other| other.server == server) < waiting_there)
    }

    /// Who waits for what. Who waits for a server would not be helped by anybody else.
    fn waiting(&self) -> Line {
        let mut line = Line::default();
        for waiter in &self.line {
            let count = waiter.parts.working;
            let bound = self.server(waiter.server.as_ref());
            match &waiter.server {
                Some(server) if bound.is_some_and(|bound| !bound.has_work_for(count)) => {
                    *line.servers.entry(Arc::clone(server)).or_default() += 1;
                }
                _ => line.anywhere += 1,
            }
        }
        line
    }
}

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing in it can panic midway.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the book, and gives those who wait what there is for them now.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut Book)) {
        let given = {
            let mut book = self.book();
            change(&mut book);
            let given = book.serve(self);
            let line = book.waiting();
            // Under the lock, so that the last to change it is the last to tell of it.
            self.line.send_if_modified(|told| {
                let changed = *told != line;
                *told = line;
                changed
            });
            given
        };
        for (to, share) in given {
            // Who has gone gives it back by that.
            drop(to.send(share));
        }
    }
}

/// Connections that somebody may open. Dropping it gives them to the next.
#[derive(Debug)]
pub(super) struct Share {
    ledger: Arc<Ledger>,
    server: Option<Arc<str>>,
    parts: Parts,
    /// As long as it is whole.
    turn: Option<Turn>,
}

impl Share {
    /// Whether the turn at work has lasted so long and is the next that should make room for those who wait. To be asked often while
    /// somebody does.
    pub(super) fn is_to_leave(&self, after: Duration) -> bool {
        let Some(turn) = self.turn else { return false };
        let (now, mut book) = (Instant::now(), self.ledger.book());
        let line = self.ledger.line.borrow();
        book.is_to_leave(turn, &line, after, now) && now.saturating_duration_since(turn.0) >= after
    }

    /// It makes room. Whatever becomes of that, others are not kept from making room for long.
    pub(super) fn leaves(&self) {
        if let Some(turn) = self.turn
            && let Some(own) = self.ledger.book().turns.get_mut(&turn)
        {
            own.leaving.get_or_insert_with(Instant::now);
        }
    }

    /// The database is well after all. What it has is no longer a part of what those have that are not.
    pub(super) fn is_of_one_that_is_well(&mut self) {
        let trials = std::mem::take(&mut self.parts.trials);
        self.ledger.change(|book| book.trials.1 -= trials);
    }

    pub(super) fn count(&self) -> usize {
        self.parts.working + self.parts.brief
    }

    /// Makes one of two that are of the same database.
    pub(super) fn absorb(&mut self, mut other: Self) {
        let more = std::mem::take(&mut other.parts);
        // The turn that is over is forgotten: what is left of it belongs to the new one.
        if let Some(turn) = other.turn.take()
            && let Some(over) = self.turn.replace(turn)
        {
            self.ledger.book().turns.remove(&over);
        }
        self.parts.working += more.working;
        self.parts.brief += more.brief;
        self.parts.trials += more.trials;
    }

    /// Gives all back but so many.
    pub(super) fn shrink_to(&mut self, count: usize) {
        let fewer = self.count().saturating_sub(count);
        if fewer > 0 {
            let brief = fewer.min(self.parts.brief);
            let left = self.parts.brief - brief;
            let trials = self.parts.trials.saturating_sub(left);
            self.give_back(Parts { working: fewer - brief, brief, trials });
        }
    }

    fn give_back(&mut self, parts: Parts) {
        self.parts.working -= parts.working;
        self.parts.brief -= parts.brief;
        self.parts.trials -= parts.trials;
        let server = self.server.as_ref();
        let left = self.count();
        let turn = self.turn.take_if(|_| left == 0);
        self.ledger.change(|book| {
            book.take_back(server, parts);
            turn.map(|turn| book.turns.remove(&turn));
        });
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.count() > 0 {
            self.give_back(self.parts);
        }
    }
}

impl Budget {
    pub(super) fn new(options: &FleetOptions) -> Self {
        let all = Bound::of(options.connections);
        let book = Book {
            all,
            each_server: options.connections_per_server.map(Bound::of),
            servers: HashMap::new(),
            trials: ((all.kept / 2).max(1), 0),
            line: VecDeque::new(),
            moments: VecDeque::new(),
            turns: BTreeMap::new(),
            tickets: 0,
            peak: 0,
        };
        let ledger = Ledger { book: Mutex::new(book), line: watch::Sender::new(Line::default()) };
        Self { ledger: Arc::new(ledger), standing: Arc::new(Semaphore::new(standing(options))) }
    }

    /// One connection, for a look or a call.
    pub(super) async fn one(&self, server: Option<&str>) -> Share {
        self.take(server, Parts { brief: 1, ..Parts::default() }).await
    }

    /// The same for a database that is not well. All of those together have only a part of what is kept for looks and calls: each may hold
    /// its connection until it is known that there is no answer.
    pub(super) async fn trial(&self, server: Option<&str>) -> Share {
        self.take(server, Parts { brief: 1, trials: 1, ..Parts::default() }).await
    }

    /// All that a database works with which has failed at work, and is not known to be well: out of the same part, so that it takes nothing
    /// from those that are well. Where that part is too small, it waits in line as everybody.
    pub(super) async fn for_proof(&self, server: Option<&str>, count: usize) -> Share {
        let fits = {
            let book = self.ledger.book();
            count <= book.trials.0
                && (server.is_none() || book.each_server.is_none_or(|each| count <= each.kept))
        };
        match fits {
            true => self.take(server, Parts { brief: count, trials: count, ..Parts::default() }).await,
            false => self.for_work(server, count).await,
        }
    }

    /// All that a database works with.
    pub(super) async fn for_work(&self, server: Option<&str>, count: usize) -> Share {
        self.take(server, Parts { working: count, ..Parts::default() }).await
    }

    /// Leave to keep a connection of [`Self::one`] open for long. Half of what is kept back stays for those that last a moment.
    pub(super) fn standing(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.standing).try_acquire_owned().ok()
    }

    /// Who waits for connections to work with.
    pub(super) fn line(&self) -> watch::Receiver<Line> {
        self.ledger.line.subscribe()
    }

    pub(super) fn status(&self) -> ConnectionStatus {
        let book = self.ledger.book();
        let waiting = self.ledger.line.borrow().len();
        ConnectionStatus { budget: book.all.limit, used: book.all.used(), peak: book.peak, waiting }
    }

    async fn take(&self, server: Option<&str>, parts: Parts) -> Share {
        let (given, share) = oneshot::channel();
        let mut ticket = 0;
        self.ledger.change(|book| {
            book.tickets += 1;
            ticket = book.tickets;
            let waiter = Waiter { ticket, server: server.map(Arc::from), parts, given };
            if parts.working > 0 { &mut book.line } else { &mut book.moments }.push_back(waiter);
        });
        let _leaving = Leaving { ledger: &self.ledger, ticket };
        match share.await {
            Ok(share) => share,
            // Who waits is only forgotten by leaving.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Takes one who waits out of the line, however the wait ends.
struct Leaving<'a> {
    ledger: &'a Arc<Ledger>,
    ticket: u64,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut left = Vec::new();
        let waits =
            |book: &Book| book.line.iter().chain(&book.moments).any(|waiter| waiter.ticket == self.ticket);
        if waits(&self.ledger.book()) {
            self.ledger.change(|book| {
                for waiters in [&mut book.line, &mut book.moments] {
                    if let Some(at) = waiters.iter().position(|waiter| waiter.ticket == self.ticket) {
                        left.extend(waiters.remove(at));
                    }
                }
            });
        }
    }
}

/// How many connections may be kept open by who watches: none where a server has no room for that beside databases at work and a look.
fn standing(options: &FleetOptions) -> usize {
    let idle = |bound: Bound| {
        let at_work =
            (bound.limit - bound.kept) / options.connections_per_store * options.connections_per_store;
        bound.limit - at_work
    };
    match options.connections_per_server.map(Bound::of) {
        Some(bound) if idle(bound) < 2 => 0,
        _ => options.reserve() / 2,
    }
}

#[cfg(test)]
mod tests;
