//! The connections of this process, and who may have them.
//!
//! Whoever wants to open connections first gets a [`Share`] for all of them, so nobody holds some while waiting for more. Shares are given
//! in the order in which they are asked for. Those that work can't have all: a part is kept for looks and for calls of the application,
//! which last a moment.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{ConnectionStatus, FleetOptions};

/// The connections of this process.
#[derive(Debug)]
pub(super) struct Budget {
    total: usize,
    all: Arc<Semaphore>,
    /// What those that work may have of them.
    working: Arc<Semaphore>,
    /// How many of those that are kept back may be kept open by who watches.
    standing: Arc<Semaphore>,
    per_server: Option<usize>,
    servers: Mutex<HashMap<String, Arc<Semaphore>>>,
    used: Arc<AtomicUsize>,
    peak: AtomicUsize,
    /// How many databases wait for connections to work with.
    line: watch::Sender<usize>,
}

/// Connections that somebody may open. Dropping it gives them to the next.
#[derive(Debug)]
pub(super) struct Share {
    count: usize,
    used: Arc<AtomicUsize>,
    _permits: [Option<OwnedSemaphorePermit>; 3],
}

impl Drop for Share {
    fn drop(&mut self) {
        self.used.fetch_sub(self.count, Ordering::SeqCst);
    }
}

impl Budget {
    pub(super) fn new(options: &FleetOptions) -> Self {
        Self {
            total: options.connections,
            all: Arc::new(Semaphore::new(options.connections)),
            working: Arc::new(Semaphore::new(options.connections - options.reserve())),
            standing: Arc::new(Semaphore::new(standing(options))),
            per_server: options.connections_per_server,
            servers: Mutex::default(),
            used: Arc::default(),
            peak: AtomicUsize::new(0),
            line: watch::Sender::new(0),
        }
    }

    /// One connection, for a look or a call.
    pub(super) async fn one(&self, server: Option<&str>) -> Share {
        let server = self.of_server(server, 1).await;
        let all = acquire(&self.all, 1).await;
        self.share(1, [server, None, all])
    }

    /// Leave to keep a connection of [`Self::one`] open for long. Half of what is kept back stays for those that last a moment.
    pub(super) fn standing(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.standing).try_acquire_owned().ok()
    }

    /// All that a database works with.
    pub(super) async fn for_work(&self, server: Option<&str>, count: usize) -> Share {
        let _waiting = InLine::new(&self.line);
        let server = self.of_server(server, count).await;
        let working = acquire(&self.working, count).await;
        // Only looks and calls can be in the way now, and those are short.
        let all = acquire(&self.all, count).await;
        self.share(count, [server, working, all])
    }

    /// How many databases wait for connections to work with.
    pub(super) fn line(&self) -> watch::Receiver<usize> {
        self.line.subscribe()
    }

    pub(super) fn status(&self) -> ConnectionStatus {
        ConnectionStatus {
            budget: self.total,
            used: self.used.load(Ordering::SeqCst),
            peak: self.peak.load(Ordering::SeqCst),
            waiting: *self.line.borrow(),
        }
    }

    async fn of_server(&self, server: Option<&str>, count: usize) -> Option<OwnedSemaphorePermit> {
        let (bound, server) = (self.per_server?, server?);
        let slots = {
            let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
            let slots = servers.entry(server.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(bound)));
            Arc::clone(slots)
        };
        acquire(&slots, count).await
    }

    fn share(&self, count: usize, permits: [Option<OwnedSemaphorePermit>; 3]) -> Share {
        let used = self.used.fetch_add(count, Ordering::SeqCst) + count;
        self.peak.fetch_max(used, Ordering::SeqCst);
        Share { count, used: Arc::clone(&self.used), _permits: permits }
    }
}

/// How many connections may be kept open by who watches: none where a server has no room for that beside a database at work and a look.
fn standing(options: &FleetOptions) -> usize {
    match options.connections_per_server {
        Some(bound) if bound < options.connections_per_store + 2 => 0,
        _ => options.reserve() / 2,
    }
}

async fn acquire(slots: &Arc<Semaphore>, count: usize) -> Option<OwnedSemaphorePermit> {
    // No budget is beyond 32 bits, and none is ever closed.
    Arc::clone(slots).acquire_many_owned(count as u32).await.ok()
}

/// Counts one who waits, however the wait ends.
struct InLine<'a>(&'a watch::Sender<usize>);

impl<'a> InLine<'a> {
    fn new(line: &'a watch::Sender<usize>) -> Self {
        line.send_modify(|waiting| *waiting += 1);
        Self(line)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn budget(connections: usize, per_server: Option<usize>) -> Budget {
        let options =
            FleetOptions { connections, connections_per_server: per_server, ..FleetOptions::default() };
        options.validate().unwrap();
        Budget::new(&options)
    }

    #[tokio::test]
    async fn those_that_work_leave_some_for_looks() {
        let budget = budget(10, None);
        let working = [budget.for_work(None, 3).await, budget.for_work(None, 3).await];
        assert!(budget.for_work(None, 3).now_or_never().is_none(), "two are kept back");
        let looks: Vec<_> = (0..4).filter_map(|_| budget.one(None).now_or_never()).collect();
        assert_eq!(looks.len(), 4);
        assert!(budget.one(None).now_or_never().is_none(), "that is all there is");
        assert_eq!(budget.status(), ConnectionStatus { budget: 10, used: 10, peak: 10, waiting: 0 });
        drop(working);
        drop(looks);
        assert_eq!(budget.status().used, 0);
    }

    #[tokio::test]
    async fn who_asks_first_is_served_first() {
        let budget = budget(4, None);
        let first = budget.for_work(None, 3).await;
        let mut second = Box::pin(budget.for_work(None, 3));
        assert!((&mut second).now_or_never().is_none());
        let mut third = Box::pin(budget.for_work(None, 2));
        assert!((&mut third).now_or_never().is_none());
        assert_eq!(*budget.line().borrow(), 2);
        drop(first);
        assert!((&mut third).now_or_never().is_none(), "it asked for less, but later");
        drop((&mut second).now_or_never().expect("the second is next"));
        assert!((&mut third).now_or_never().is_some());
    }

    #[test]
    fn who_watches_leaves_room_for_looks() {
        let standing = |connections, per_server| {
            let budget = budget(connections, per_server);
            std::iter::from_fn(|| budget.standing()).collect::<Vec<_>>().len()
        };
        assert_eq!(standing(50, None), 5);
        assert_eq!(standing(4, None), 0, "the only one that is kept back is for looks");
        assert_eq!(standing(50, Some(4)), 0, "a database at work would wait for it for ever");
        assert_eq!(standing(50, Some(5)), 5);
    }

    #[tokio::test]
    async fn each_server_has_its_own_bound() {
        let budget = budget(50, Some(4));
        let _first = budget.for_work(Some("a:1"), 3).await;
        let _look = budget.one(Some("a:1")).await;
        assert!(budget.one(Some("a:1")).now_or_never().is_none());
        assert!(budget.for_work(Some("b:1"), 3).now_or_never().is_some());
    }
}
