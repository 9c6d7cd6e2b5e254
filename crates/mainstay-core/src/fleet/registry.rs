//! The databases of the fleet, and how a refresh changes them.
//!
//! What discovery says anew is compared with what is there: new ones are added, missing ones stopped gracefully and let go, changed ones
//! replaced, and the rest is left alone, clients and all. One entry that can't be used is recorded and keeps no other entry out. If the database
//! of that entry is running, it keeps running by its previous entry, and every refresh tries the changed one again.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;

use crate::bell::Bell;
use crate::error::{Error, ErrorKind, Result};
use crate::queue::slots::Slots;
use crate::runtime::Mainstay;
use crate::store::ConnectionGate;
use crate::telemetry;

use super::control::Inner;
use super::discovery::validate;
use super::doorbell::Doorbell;
use super::keeper::Keeper;
use super::store::{Signals, Store};
use super::{ConnectTerms, DatabaseEntry};
use crate::breaker::Breaker;

/// How long discovery may take.
const DISCOVERY: Duration = Duration::from_secs(60);

/// How long setting one database up may take.
const SET_UP: Duration = Duration::from_secs(10);

/// How many databases are set up at once.
const AT_ONCE: usize = 32;

/// The pause after a bug has ended the keeper of a database.
const AFTER_PANIC: Duration = Duration::from_secs(5);

/// What a refresh changed, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refreshed {
    /// New ones.
    pub added: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
    /// Those that were changed, and are connected to anew.
    pub replaced: Vec<String>,
    /// Those that are as they were.
    pub kept: Vec<String>,
    /// Those whose entry can't be used, and why. One that was running keeps running by its previous entry.
    pub refused: Vec<(String, String)>,
}

/// The databases of the fleet.
#[derive(Default)]
pub(super) struct Registry {
    pub(super) stores: BTreeMap<String, Kept>,
    /// Entries without a running database.
    pub(super) refused: BTreeMap<String, Refusal>,
    /// Where somebody listens.
    pub(super) places: BTreeSet<String>,
}

/// A database that is kept.
pub(super) struct Kept {
    pub(super) store: Arc<Store>,
    pub(super) stop: CancellationToken,
    /// Why its changed entry can't be used. It runs by the entry before.
    pub(super) refusal: Option<Refusal>,
    /// Who will keep it, once the fleet has started.
    keeper: Option<Box<Keeper>>,
}

/// An entry that can't be used.
pub(super) struct Refusal {
    pub(super) kind: ErrorKind,
    pub(super) error: String,
    pub(super) since: jiff::Timestamp,
}

impl Inner {
    /// Asks discovery, and changes the databases accordingly.
    pub(super) async fn refresh(self: &Arc<Self>) -> Result<Refreshed> {
        let _one_at_a_time = self.refreshing.lock().await;
        // Whatever the application's part in it does, the next refresh comes.
        let refreshed = caught("the refresh", self.refresh_now()).await;
        let mut last = self.last_refresh();
        match &refreshed {
            Ok(refreshed) => {
                last.at = Some(jiff::Timestamp::now());
                last.error = None;
                telemetry::fleet_refreshed(refreshed);
            }
            Err(error) => {
                last.error = Some(error.to_string());
                telemetry::fleet_not_refreshed(error);
            }
        }
        drop(last);
        refreshed
    }

    async fn refresh_now(self: &Arc<Self>) -> Result<Refreshed> {
        let entries = guarded("discovery", DISCOVERY, self.discovery.discover()).await?;
        validate(&entries, self.node.options.allow_empty)?;
        let mut refreshed = Refreshed::default();
        let gone: Vec<String> = {
            let registry = self.registry();
            let known = registry.stores.keys().chain(registry.refused.keys());
            known.filter(|id| !entries.iter().any(|entry| entry.id == **id)).cloned().collect()
        };
        for id in gone {
            self.leave(&id);
            refreshed.removed.push(id);
        }
        let mut changed = Vec::new();
        for entry in entries {
            let before = self.registry().stores.get(&entry.id).map(|kept| kept.store.entry.clone());
            match before == Some(entry.clone()) {
                true => {
                    self.accept(&entry.id);
                    refreshed.kept.push(entry.id);
                }
                false => changed.push((entry, before.is_some())),
            }
        }
        // Several at a time: each may have to ask somebody for a password, and wait for the answer.
        let opening = changed.into_iter().map(|(entry, known)| async move {
            let id = entry.id.clone();
            (id, known, guarded("the set-up", SET_UP, self.open(entry)).await)
        });
        let mut opened = futures_util::stream::iter(opening).buffer_unordered(AT_ONCE);
        while let Some((id, known, result)) = opened.next().await {
            match result {
                Ok((store, keeper)) => {
                    // The old one finishes what it has in hand; claims keep the two apart.
                    self.leave(&id);
                    let (stop, keeper) = (keeper.stop.clone(), Some(Box::new(keeper)));
                    self.registry().stores.insert(id.clone(), Kept { store, stop, refusal: None, keeper });
                    if known { &mut refreshed.replaced } else { &mut refreshed.added }.push(id);
                }
                Err(error) => {
                    refreshed.refused.push((id.clone(), error.to_string()));
                    self.refuse(id, &error);
                }
            }
        }
        drop(opened);
        for ids in [&mut refreshed.added, &mut refreshed.replaced] {
            ids.sort();
        }
        refreshed.refused.sort();
        if self.started.load(Ordering::SeqCst) {
            self.keep_all();
        }
        Ok(refreshed)
    }

    /// Notes that an entry can't be used, and since when. A running database keeps running.
    fn refuse(&self, id: String, error: &Error) {
        let mut registry = self.registry();
        let Registry { stores, refused, .. } = &mut *registry;
        let known = match stores.get(&id) {
            Some(kept) => kept.refusal.as_ref(),
            None => refused.get(&id),
        };
        let since = known.map_or_else(jiff::Timestamp::now, |refusal| refusal.since);
        let refusal = Refusal { kind: error.kind(), error: error.to_string(), since };
        match stores.get_mut(&id) {
            Some(kept) => kept.refusal = Some(refusal),
            None => drop(refused.insert(id, refusal)),
        }
    }

    /// The entry is again the one that its database runs by.
    fn accept(&self, id: &str) {
        if let Some(kept) = self.registry().stores.get_mut(id) {
            kept.refusal = None;
        }
    }

    /// Keeps those that nobody keeps yet, and listens where nobody does.
    fn keep_all(self: &Arc<Self>) {
        let mut registry = self.registry();
        for kept in registry.stores.values_mut() {
            if let Some(keeper) = kept.keeper.take() {
                self.keepers.spawn(keep(*keeper));
            }
        }
        let Some(interval) = self.node.options.watch else { return };
        let Registry { stores, places, .. } = &mut *registry;
        for store in stores.values().map(|kept| &kept.store) {
            let Some(place) = store.place.as_ref().filter(|place| !places.contains(*place)) else { continue };
            if let Some(watch) = self.connect.watch(&store.entry) {
                places.insert(place.clone());
                self.keepers.spawn(Doorbell::new(Arc::clone(self), watch).run(interval));
            }
        }
    }

    /// Lets a database go, if it is there.
    fn leave(&self, id: &str) {
        let mut registry = self.registry();
        registry.refused.remove(id);
        if let Some(kept) = registry.stores.remove(id) {
            kept.stop.cancel();
        }
    }

    /// Sets a database up. Opens no connection.
    async fn open(self: &Arc<Self>, entry: DatabaseEntry) -> Result<(Arc<Store>, Keeper)> {
        let signals = Arc::new(Signals::default());
        let gate = {
            let signals = Arc::clone(&signals);
            ConnectionGate::new(move || signals.want())
        };
        let terms = ConnectTerms { gate, connections: self.node.options.connections_per_store };
        let provider = self.connect.connect(&entry, terms).await?;
        let bell = {
            let (signals, rung) = (Arc::clone(&signals), self.rung.clone());
            Bell::new(move || {
                signals.ring();
                rung.send_modify(|rings| *rings += 1);
            })
        };
        let slots = Slots::of(Arc::clone(&self.handlers));
        let builder = (self.set_up)(&entry, Mainstay::builder_over(provider));
        let mainstay = builder.among_others(bell, slots.clone()).build()?;
        let server = self.connect.server(&entry);
        let place = self.connect.watch(&entry).map(|watch| watch.place().to_owned());
        let breaker = Breaker::new(self.node.options.breaker);
        let (store, requests) = Store::new((entry, server, place), mainstay, slots, signals, breaker);
        let store = Arc::new(store);
        let keeper =
            Keeper::new(Arc::clone(&store), Arc::clone(&self.node), self.stop.child_token(), requests);
        Ok((store, keeper))
    }
}

/// What the application or its connector does, in bounded time, and with a panic as an error.
async fn guarded<T>(what: &str, limit: Duration, doing: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(limit, caught(what, doing)).await {
        Ok(done) => done,
        Err(_) => {
            let text = format!("{what} did not answer within {limit:?}");
            Err(Error::new(ErrorKind::Unavailable, "fleet.refresh", text))
        }
    }
}

/// A panic as an error. What it said is in the log of the process.
async fn caught<T>(what: &str, doing: impl Future<Output = Result<T>>) -> Result<T> {
    match AssertUnwindSafe(doing).catch_unwind().await {
        Ok(done) => done,
        Err(_) => Err(Error::new(ErrorKind::Internal, "fleet.refresh", format!("{what} panicked"))),
    }
}

/// Runs a keeper to its end. A bug in it, or in what it calls, must not take the database out of the fleet for good.
async fn keep(mut keeper: Keeper) {
    loop {
        let ended = AssertUnwindSafe(keeper.run()).catch_unwind().await;
        if ended.is_ok() {
            return;
        }
        tracing::error!(store = keeper.store.id(), "the keeper of a database panicked; it is started again");
        tokio::time::sleep(AFTER_PANIC).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_hangs_or_panics_is_an_error() {
        let limit = Duration::from_millis(1);
        let hung = guarded("x", limit, std::future::pending::<Result<()>>()).await.unwrap_err();
        assert_eq!(hung.kind(), ErrorKind::Unavailable);
        let panicked = guarded("x", DISCOVERY, async { panic!("boom") });
        let panicked: Result<()> = panicked.await;
        assert_eq!(panicked.unwrap_err().kind(), ErrorKind::Internal);
    }
}
