//! How many handlers run at once over several dispatchers.
//!
//! Of those stores that wait, the one with the fewest handlers gets the next slot, and a part of the slots is only for stores that have
//! none: a few whose handlers take long can't keep the others from theirs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::pulse::Pulse;

/// Where the dispatchers of a store get leave to run a handler. By default from nobody: each has only its own bound.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots {
    /// And which of its stores this is.
    shared: Option<(Arc<SharedSlots>, u64)>,
    pulse: Arc<Pulse>,
}

/// A number of handlers that several stores share.
#[derive(Debug)]
pub(crate) struct SharedSlots(Mutex<Book>);

#[derive(Debug)]
struct Book {
    free: usize,
    /// Of the free ones, those that only a store with none can have.
    kept: usize,
    /// How many each store has, of those that have some.
    taken: BTreeMap<u64, usize>,
    waiting: VecDeque<Waiter>,
    stores: u64,
    tickets: u64,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    store: u64,
    given: oneshot::Sender<Slot>,
}

/// Leave to run one handler. Dropping it gives it to the next.
#[derive(Debug)]
pub(crate) struct Slot(Option<(Arc<SharedSlots>, u64)>);

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some((shared, store)) = self.0.take() {
            shared.change(|book| book.give_back(store));
        }
    }
}

impl Book {
    fn taken(&self, store: u64) -> usize {
        self.taken.get(&store).copied().unwrap_or(0)
    }

    fn has_for(&self, store: u64) -> bool {
        self.free > self.kept || (self.free > 0 && self.taken(store) == 0)
    }

    fn take(&mut self, store: u64) {
        self.free -= 1;
        *self.taken.entry(store).or_default() += 1;
    }

    fn give_back(&mut self, store: u64) {
        self.free += 1;
        if let Some(taken) = self.taken.get_mut(&store) {
            *taken -= 1;
            if *taken == 0 {
                self.taken.remove(&store);
            }
        }
    }

    /// Who is next, if there is one for anybody who waits.
    fn next(&mut self) -> Option<Waiter> {
        let fewest = |(at, waiter): &(usize, &Waiter)| (self.taken(waiter.store), *at);
        let (at, waiter) = self.waiting.iter().enumerate().min_by_key(fewest)?;
        self.has_for(waiter.store).then_some(at).and_then(|at| self.waiting.remove(at))
    }
}

impl SharedSlots {
    /// So many in all. A quarter is for stores that have none.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Book {
            free: count,
            kept: count / 4,
            taken: BTreeMap::new(),
            waiting: VecDeque::new(),
            stores: 0,
            tickets: 0,
        })))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing in it can panic midway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the book, and gives those who wait what there is for them now.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Book) -> T) -> T {
        let mut given = Vec::new();
        let mut book = self.book();
        let changed = change(&mut book);
        while let Some(Waiter { store, given: to, .. }) = book.next() {
            book.take(store);
            given.push((to, Slot(Some((Arc::clone(self), store)))));
        }
        drop(book);
        for (to, slot) in given {
            // Who has gone gives it back by that.
            drop(to.send(slot));
        }
        changed
    }

    fn try_take(self: &Arc<Self>, store: u64) -> Option<Slot> {
        let mut book = self.book();
        // Whoever waits could not have it, or it would be theirs.
        if !book.has_for(store) {
            return None;
        }
        book.take(store);
        Some(Slot(Some((Arc::clone(self), store))))
    }
}

impl Slots {
    /// Slots of a number that is shared with other stores.
    pub(crate) fn of(shared: Arc<SharedSlots>) -> Self {
        let store = shared.change(|book| {
            book.stores += 1;
            book.stores
        });
        Self { shared: Some((shared, store)), pulse: Arc::default() }
    }

    /// A slot, if one is free.
    pub(crate) fn try_take(&self) -> Option<Slot> {
        match &self.shared {
            None => Some(Slot(None)),
            Some((shared, store)) => shared.try_take(*store),
        }
    }

    /// Waits for a slot.
    pub(crate) async fn take(self) -> Slot {
        let Some((shared, store)) = self.shared else { return Slot(None) };
        let (given, slot) = oneshot::channel();
        let ticket = shared.change(|book| {
            book.tickets += 1;
            let ticket = book.tickets;
            book.waiting.push_back(Waiter { ticket, store, given });
            ticket
        });
        let _leaving = Leaving { shared, ticket };
        match slot.await {
            Ok(slot) => slot,
            // Who waits is only forgotten by leaving.
            Err(_) => std::future::pending().await,
        }
    }

    /// What the dispatchers of the store show of it.
    pub(crate) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }
}

/// Takes one who waits out of the line, however the wait ends.
struct Leaving {
    shared: Arc<SharedSlots>,
    ticket: u64,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut book = self.shared.book();
        let left = book.waiting.iter().position(|waiter| waiter.ticket == self.ticket);
        let left = left.and_then(|at| book.waiting.remove(at));
        drop(book);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn stores<const N: usize>(count: usize) -> [Slots; N] {
        let shared = SharedSlots::new(count);
        std::array::from_fn(|_| Slots::of(Arc::clone(&shared)))
    }

    fn all_of(slots: &Slots) -> Vec<Slot> {
        std::iter::from_fn(|| slots.try_take()).collect()
    }

    #[test]
    fn a_few_stores_can_not_have_all() {
        let [first, second, third, fourth] = stores(8);
        let slow = [all_of(&first), all_of(&second)];
        assert_eq!(slow.each_ref().map(Vec::len), [6, 1], "two are for those that have none");
        let held = third.try_take().expect("the last");
        assert!(third.try_take().is_none());
        drop(held);
        assert!(fourth.try_take().is_some());
    }

    #[test]
    fn the_one_with_the_fewest_is_next() {
        let [busy, quiet] = stores(2);
        let mut held = all_of(&busy);
        assert_eq!(held.len(), 2);
        let mut third = Box::pin(busy.clone().take());
        assert!((&mut third).now_or_never().is_none());
        let mut first = Box::pin(quiet.clone().take());
        assert!((&mut first).now_or_never().is_none());
        held.pop();
        assert!((&mut third).now_or_never().is_none(), "it asked first, but has one");
        let first = (&mut first).now_or_never().expect("it has none");
        drop(first);
        assert!((&mut third).now_or_never().is_some());
    }

    #[test]
    fn who_leaves_the_line_keeps_nobody_waiting() {
        let [one, other] = stores(1);
        let held = all_of(&one);
        let mut leaves = Box::pin(other.clone().take());
        let mut stays = Box::pin(one.clone().take());
        assert!((&mut leaves).now_or_never().is_none());
        assert!((&mut stays).now_or_never().is_none());
        drop(held);
        // It was its turn, and it never knew.
        drop(leaves);
        assert!((&mut stays).now_or_never().is_some());
        assert!(one.try_take().is_some());
    }
}
