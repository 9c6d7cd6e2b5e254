//! The connections of a database: opened when first needed or at once, let go when nobody may have any, and opened again.
//!
//! Whoever uses them holds them for as long as the operation lasts, so they are never closed under anybody, unless the database is
//! closed for good.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use mainstay_core::store::ConnectionGate;
use mainstay_core::{Error, ErrorKind, Result};
use tokio::sync::{Mutex, Notify, OnceCell, OwnedMutexGuard};

use crate::connection::{Location, Times};
use crate::reader::Readers;
use crate::wake::Signal;
use crate::writer::Writer;

/// How long an operation waits until it may have a connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// The way to the connections of a database.
pub(crate) struct Link {
    pub(crate) location: Location,
    pub(crate) times: Times,
    pub(crate) readers: usize,
    /// Who says how many connections there may be; none: all that are wanted.
    pub(crate) gate: Option<Arc<ConnectionGate>>,
    pub(crate) signal: Arc<Signal>,
    pub(crate) commits: Arc<AtomicU64>,
    state: RwLock<State>,
    /// One opens, looks or closes at a time: whoever lets go of the connections has to know that nobody is just opening one.
    opening: Arc<Mutex<()>>,
    /// Told whenever somebody is done with the connections, while somebody wants to know.
    done: Notify,
    /// How many do.
    watching: AtomicUsize,
}

enum State {
    Open(Arc<Open>),
    Resting,
    Closed,
}

/// Open connections.
pub(crate) struct Open {
    pub(crate) writer: Writer,
    /// None where the writer reads too: in memory, and where there may be no more connections.
    pub(crate) readers: Option<Readers>,
    /// The connection that watches for commits of others; opened by the first wait. None where there is none.
    watcher: Option<OnceCell<Readers>>,
}

impl Link {
    pub(crate) fn new(
        location: Location,
        times: Times,
        readers: usize,
        gate: Option<Arc<ConnectionGate>>,
    ) -> Self {
        Self {
            location,
            times,
            readers,
            gate,
            signal: Arc::new(Signal::new()),
            commits: Arc::default(),
            state: RwLock::new(State::Resting),
            opening: Arc::default(),
            done: Notify::new(),
            watching: AtomicUsize::new(0),
        }
    }

    /// The connections, for as long as the answer lives. Opens them if need be; `creates` says whether the file may be made.
    pub(crate) async fn open(self: &Arc<Self>, operation: &'static str, creates: bool) -> Result<InUse> {
        loop {
            // Where none is allowed they are on their way out, and those who come now must not keep them.
            if self.may_have() > 0
                && let Some(open) = self.current(operation)?
            {
                return Ok(open);
            }
            self.allowed(operation).await?;
            let one_at_a_time = Arc::clone(&self.opening).lock_owned().await;
            if let Some(open) = self.current(operation)? {
                return Ok(open);
            }
            let link = Arc::clone(self);
            // By itself, so that it comes to its end also if nobody waits for it any more: whoever lets go of the connections waits for
            // that, and nobody else could.
            let opening = tokio::spawn(async move {
                let _one_at_a_time = one_at_a_time;
                link.open_now(creates).await
            });
            opening.await.map_err(|_| self.location.place().panicked(operation))??;
        }
    }

    /// Opens the connections, unless they were let go of or closed meanwhile. Only one may do that at a time.
    async fn open_now(&self, creates: bool) -> Result<()> {
        let allowed = self.may_have();
        if allowed == 0 {
            return Ok(());
        }
        let opened = Open::start(self, allowed, creates).await?;
        let refused = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            match *state {
                State::Resting if self.may_have() > 0 => {
                    *state = State::Open(Arc::new(opened));
                    None
                }
                // Closed meanwhile, or no longer allowed.
                _ => Some(opened),
            }
        };
        if let Some(opened) = refused {
            opened.close().await;
        }
        Ok(())
    }

    /// The connections if they are open.
    pub(crate) fn current(self: &Arc<Self>, operation: &'static str) -> Result<Option<InUse>> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Open(open) => Ok(Some(InUse { open: Some(Arc::clone(open)), link: Arc::clone(self) })),
            State::Resting => Ok(None),
            State::Closed => Err(self.location.place().closed(operation)),
        }
    }

    /// How many connections there may be. One in memory is never let go of, so nobody has to wait for it.
    fn may_have(&self) -> usize {
        let gate = self.gate.as_ref().filter(|_| !self.location.is_memory());
        gate.map_or(usize::MAX, |gate| gate.allowed())
    }

    /// Keeps everybody else from opening or closing connections, for one of one's own: where there are none, or one that writes and leave
    /// for another. None where those that are open have to do.
    pub(crate) async fn alone(
        self: &Arc<Self>,
        operation: &'static str,
    ) -> Result<Option<OwnedMutexGuard<()>>> {
        loop {
            let alone = Arc::clone(&self.opening).lock_owned().await;
            let allowed = self.may_have();
            match self.current(operation)? {
                Some(open) if allowed < 2 || !open.get(operation)?.only_writes() => return Ok(None),
                _ if allowed > 0 => return Ok(Some(alone)),
                _ => {}
            }
            drop(alone);
            self.allowed(operation).await?;
        }
    }

    /// Waits until there may be connections.
    pub(crate) async fn allowed(&self, operation: &'static str) -> Result<()> {
        let Some(gate) = &self.gate else { return Ok(()) };
        match tokio::time::timeout(PATIENCE, gate.any()).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(self.location.place().closed(operation)),
            Err(_) => {
                let text =
                    format!("no connection was allowed within {PATIENCE:?}; raise the budget of connections");
                Err(Error::new(ErrorKind::Unavailable, operation, text))
            }
        }
    }

    /// Lets go of the connections as soon as nobody uses them, and waits for that. A database in memory would be lost with them.
    pub(crate) async fn rest(&self) {
        if self.location.is_memory() {
            return;
        }
        let _nobody_opens = self.opening.lock().await;
        let watching = Watching::new(&self.watching);
        let open = loop {
            let done = self.done.notified();
            tokio::pin!(done);
            // From before the look, so that nothing falls between the two.
            done.as_mut().enable();
            {
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                match std::mem::replace(&mut *state, State::Resting) {
                    State::Open(open) => match Arc::try_unwrap(open) {
                        Ok(open) => break Some(open),
                        Err(used) => *state = State::Open(used),
                    },
                    other => {
                        *state = other;
                        break None;
                    }
                }
            }
            done.await;
        };
        drop(watching);
        if let Some(open) = open {
            open.close().await;
        }
    }

    /// Finishes what is queued and lets go of all connections, for good.
    pub(crate) async fn close(&self) {
        self.signal.close();
        if let Some(gate) = &self.gate {
            gate.close();
        }
        let state = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *state, State::Closed)
        };
        if let State::Open(open) = state {
            open.close().await;
        }
    }
}

impl Open {
    async fn start(link: &Link, allowed: usize, creates: bool) -> Result<Self> {
        let (location, times) = (&link.location, link.times);
        let commits = Arc::clone(&link.commits);
        let signal = Arc::clone(&link.signal);
        let writer = Writer::start(location.clone(), times, signal, commits, creates).await?;
        // There may be fewer by now.
        let allowed = allowed.min(link.may_have());
        // One writes, one watches, the rest reads.
        let readers = if location.is_memory() { 0 } else { link.readers.min(allowed.saturating_sub(2)) };
        let readers = match readers {
            0 => None,
            count => Some(Readers::start(location, times, count).await?),
        };
        let watches = !location.is_memory() && allowed >= 2;
        Ok(Self { writer, readers, watcher: watches.then(OnceCell::new) })
    }

    /// Whether there is one connection, and will be no other.
    fn only_writes(&self) -> bool {
        self.readers.is_none() && self.watcher.is_none()
    }

    async fn close(&self) {
        // The writer last: the last connection to go tidies the log away.
        if let Some(readers) = &self.readers {
            readers.close().await;
        }
        if let Some(watcher) = self.watcher.as_ref().and_then(OnceCell::get) {
            watcher.close().await;
        }
        self.writer.close().await;
    }
}

/// Somebody who wants to know when connections are no longer used, for as long as it lives.
struct Watching<'a>(&'a AtomicUsize);

impl<'a> Watching<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Connections that somebody uses.
pub(crate) struct InUse {
    /// Some until dropped.
    open: Option<Arc<Open>>,
    link: Arc<Link>,
}

impl InUse {
    pub(crate) fn get(&self, operation: &'static str) -> Result<&Open> {
        self.open.as_deref().ok_or_else(|| self.link.location.place().closed(operation))
    }
}

impl InUse {
    /// The connection that watches for commits of others, if there is one.
    pub(crate) async fn watcher(&self, operation: &'static str) -> Result<Option<&Readers>> {
        let place = self.link.location.place();
        let Some(watcher) = &self.get(operation)?.watcher else { return Ok(None) };
        if watcher.get().is_none() {
            let in_use = Self { open: self.open.clone(), link: Arc::clone(&self.link) };
            // By itself, so that it comes to its end also if nobody waits any more: whoever waits next would open another beside it.
            let opening = async move {
                let Some(Open { watcher: Some(watcher), .. }) = in_use.open.as_deref() else { return Ok(()) };
                let start = || Readers::start(&in_use.link.location, in_use.link.times, 1);
                watcher.get_or_try_init(start).await.map(drop)
            };
            tokio::spawn(opening).await.map_err(|_| place.panicked(operation))??;
        }
        let Some(watcher) = watcher.get() else { return Ok(None) };
        if self.get(operation)?.writer.is_closed() {
            // Opened while close() was under way, which did not see it.
            watcher.close().await;
            return Err(place.closed(operation));
        }
        Ok(Some(watcher))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        // Before anybody is told: who is told looks whether it is gone.
        drop(self.open.take());
        if self.link.watching.load(Ordering::SeqCst) > 0 {
            self.link.done.notify_waiters();
        }
    }
}
