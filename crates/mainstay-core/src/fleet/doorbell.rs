//! Listens at one place for writes to the databases that rest there, so that work which another process adds is begun soon.
//!
//! One task for each place: a server that is down keeps nobody else's doorbell from ringing. Every change from one reading to the next
//! rings, whatever the database is doing, and so does the first reading: nothing is known of what was written before it. A reading that
//! fails forgets nothing, so what was written meanwhile rings at the next.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::Pause;
use crate::telemetry;

use super::budget::Share;
use super::control::Inner;
use super::store::Store;
use super::{DatabaseEntry, Mark, Watch};

/// How many times rarer a watch reads that has to connect for it.
const CONNECTING: u32 = 10;

/// Listens at one place.
pub(super) struct Doorbell {
    fleet: Arc<Inner>,
    watch: Box<dyn Watch>,
    /// What its connection is counted as, while it may have one.
    share: Option<Share>,
    /// Whether it may keep its connection from one reading to the next.
    standing: Option<OwnedSemaphorePermit>,
    trouble: Pause,
    is_deaf: bool,
    /// Whether no database is left here.
    is_over: bool,
}

impl Doorbell {
    pub(super) fn new(fleet: Arc<Inner>, watch: Box<dyn Watch>) -> Self {
        let breaker = fleet.node.options.breaker;
        let trouble = Pause::new((breaker.min, breaker.max));
        Self { fleet, watch, share: None, standing: None, trouble, is_deaf: false, is_over: false }
    }

    /// Listens until the fleet stops, or no database is left here.
    pub(super) async fn run(mut self, interval: Duration) {
        let stop = self.fleet.stop.clone();
        let listening = async {
            while let Some(stores) = self.stores() {
                let wait = self.listen(&stores, interval).await;
                tokio::time::sleep(wait).await;
            }
        };
        stop.run_until_cancelled(listening).await;
        self.let_go().await;
    }

    /// The databases of this node that are here. None if no database is here at all: then nobody listens here any more.
    fn stores(&mut self) -> Option<Vec<Arc<Store>>> {
        let mut registry = self.fleet.registry();
        let place = self.watch.place();
        let here = registry.stores.values().map(|kept| &kept.store);
        let here: Vec<_> = here.filter(|store| store.place.as_deref() == Some(place)).cloned().collect();
        if here.is_empty() {
            registry.places.remove(place);
            self.is_over = true;
            return None;
        }
        let owned = self.fleet.owned.borrow().clone();
        let (ours, others): (Vec<_>, Vec<_>) = here.into_iter().partition(|store| owned.owns(store.id()));
        others.iter().for_each(|store| store.hear(None, false));
        Some(ours)
    }

    /// Reads once, and rings where something has changed. How long to wait until the next time.
    async fn listen(&mut self, stores: &[Arc<Store>], interval: Duration) -> Duration {
        if stores.is_empty() {
            self.let_go().await;
            return interval;
        }
        let marks = match self.read(stores).await {
            Ok(marks) => marks,
            Err(error) => {
                self.let_go().await;
                // What they looked like is still known, for when the watch is back.
                stores.iter().for_each(|store| store.signals.set_watched(false));
                let pause = self.trouble.step();
                telemetry::watch_failed(self.watch.place(), &error, pause, !self.is_deaf);
                self.is_deaf = true;
                return pause;
            }
        };
        if std::mem::take(&mut self.is_deaf) {
            telemetry::watch_recovered(self.watch.place());
        }
        self.trouble.reset();
        for (at, store) in stores.iter().enumerate() {
            store.hear(marks.get(at).copied().flatten(), self.watch.is_complete());
        }
        if !self.watch.connects() {
            return interval;
        }
        if self.standing.is_none() {
            self.standing = self.fleet.node.budget.standing();
        }
        match self.standing {
            Some(_) => interval,
            None => {
                self.let_go().await;
                interval * CONNECTING
            }
        }
    }

    async fn read(&mut self, stores: &[Arc<Store>]) -> Result<Vec<Option<Mark>>> {
        if self.watch.connects() && self.share.is_none() {
            let server = stores.first().and_then(|store| store.server.clone());
            self.share = Some(self.fleet.node.budget.one(server.as_deref()).await);
        }
        let entries: Vec<&DatabaseEntry> = stores.iter().map(|store| &store.entry).collect();
        let limit = self.fleet.node.options.look_timeout;
        tokio::time::timeout(limit, self.watch.read(&entries)).await.unwrap_or_else(|_| {
            let text = format!("there was no answer within {limit:?}");
            Err(Error::new(ErrorKind::Unavailable, "fleet.watch", text))
        })
    }

    /// Closes the connection and gives it back.
    async fn let_go(&mut self) {
        self.watch.let_go().await;
        (self.share, self.standing) = (None, None);
    }
}

impl Drop for Doorbell {
    /// However it ends, nobody must go on believing in it. After a bug the next refresh puts another in its place.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut registry = self.fleet.registry();
        let place = self.watch.place();
        registry.places.remove(place);
        let here = registry.stores.values().map(|kept| &kept.store);
        here.filter(|store| store.place.as_deref() == Some(place)).for_each(|store| store.hear(None, false));
    }
}
