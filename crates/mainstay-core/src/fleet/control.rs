//! The fleet as an application holds it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::{Error, ErrorKind, Result};
use crate::health::Startup;
use crate::queue::slots::SharedSlots;
use crate::runtime::{MainstayBuilder, Pause, Service, start};
use crate::store::Queue;
use crate::telemetry;

use super::keeper::Node;
use super::registry::Registry;
use super::store::Store;
use super::{
    Assignment, BreakerState, Connect, DatabaseDiscovery, DatabaseEntry, FleetBuilder, FleetStatus, Owned,
    Refreshed, Selection, StoreState, StoreStatus, selection,
};

/// The pauses between attempts to discover databases at the start.
const START_RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// The pause before sharing the databases is taken up again after it has ended by itself.
const SHARE_AGAIN: Duration = Duration::from_secs(5);

pub(super) type SetUp = Box<dyn Fn(&DatabaseEntry, MainstayBuilder) -> MainstayBuilder + Send + Sync>;

/// Mainstay over many databases. Cheap to clone.
#[derive(Clone)]
pub struct Fleet(pub(super) Arc<Inner>);

/// What it is made of.
pub(super) struct Inner {
    pub(super) discovery: Box<dyn DatabaseDiscovery>,
    pub(super) connect: Box<dyn Connect>,
    pub(super) set_up: SetUp,
    pub(super) node: Arc<Node>,
    pub(super) handlers: Arc<SharedSlots>,
    pub(super) selection: Selection,
    /// Where which databases are this node's is said, and where that comes from.
    pub(super) owned: watch::Sender<Owned>,
    pub(super) owned_from: Option<watch::Receiver<Owned>>,
    /// Shares the databases with other nodes, if there may be some.
    pub(super) assignment: Option<Arc<Assignment>>,
    pub(super) registry: Mutex<Registry>,
    pub(super) refreshing: tokio::sync::Mutex<()>,
    pub(super) last_refresh: Mutex<LastRefresh>,
    /// Counts the work that clients of this process have added.
    pub(super) rung: watch::Sender<u64>,
    /// The databases' keepers, and those that are on their way out.
    pub(super) keepers: TaskTracker,
    pub(super) stop: CancellationToken,
    pub(super) started: AtomicBool,
}

/// What came of the last refresh.
#[derive(Default)]
pub(super) struct LastRefresh {
    pub(super) at: Option<Timestamp>,
    pub(super) error: Option<String>,
}

impl Inner {
    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        // Two maps are whole whatever panicked beside them.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn last_refresh(&self) -> MutexGuard<'_, LastRefresh> {
        self.last_refresh.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All databases, by id.
    pub(super) fn stores(&self) -> Vec<Arc<Store>> {
        self.registry().stores.values().map(|kept| Arc::clone(&kept.store)).collect()
    }

    /// The databases that messages of this queue are to be handed out from, by id.
    pub(super) fn working_stores(&self, queue: Queue) -> Vec<Arc<Store>> {
        let owned = self.owned.borrow().clone();
        let mut stores = self.stores();
        stores.retain(|store| {
            owned.owns(store.id()) && store.may_be_tried() && store.mainstay.dispatcher(queue).is_some()
        });
        stores
    }
}

impl Fleet {
    /// Begins to put a fleet together: of the databases that `discovery` tells of, reached through `connect`.
    pub fn builder(discovery: impl DatabaseDiscovery, connect: impl Connect) -> FleetBuilder {
        FleetBuilder::new(Box::new(discovery), Box::new(connect))
    }

    /// Asks which databases there are, and starts to keep them. Waits for a discovery that can't be reached just now; what it says and is
    /// wrong is an error at once. A database that is down, or not fit, keeps nobody waiting. A fleet is started once.
    pub async fn start(&self) -> Result<RunningFleet> {
        let inner = &self.0;
        if inner.started.swap(true, Ordering::SeqCst) {
            let text = "the fleet has been started before; build another one";
            return Err(Error::new(ErrorKind::Closed, "fleet.start", text));
        }
        let guard = inner.stop.clone().drop_guard();
        let mut pause = Pause::new(START_RETRY);
        while let Err(error) = inner.refresh().await {
            if !error.is_retryable() {
                inner.keepers.close();
                return Err(error);
            }
            let delay = pause.step();
            telemetry::retrying("fleet", "discover", &error, delay);
            tokio::time::sleep(delay).await;
        }
        if let Some(from) = &inner.owned_from {
            inner.keepers.spawn(follow(Arc::clone(inner), from.clone()));
        }
        if let Some(assignment) = &inner.assignment {
            inner.keepers.spawn(share(Arc::clone(assignment), inner.stop.clone()));
        }
        if let Some(interval) = inner.node.options.refresh.filter(|_| !inner.discovery.is_fixed()) {
            inner.keepers.spawn(refresh_every(Arc::clone(inner), interval));
        }
        if let Some(interval) = inner.node.options.gauges {
            inner.keepers.spawn(publish_every(self.clone(), interval));
        }
        if let Selection::Strategy(make) = &inner.selection {
            for queue in [Queue::Outbox, Queue::Inbox] {
                inner.keepers.spawn(selection::run(Arc::clone(inner), queue, make(), inner.stop.clone()));
            }
        }
        Ok(RunningFleet { fleet: self.clone(), _guard: guard })
    }

    /// Starts, runs until `shutdown` completes, and stops gracefully.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) -> Result<()> {
        tokio::pin!(shutdown);
        let running = tokio::select! {
            () = &mut shutdown => return Ok(()),
            started = self.start() => started?,
        };
        shutdown.await;
        running.stop().await;
        Ok(())
    }

    /// Asks discovery now, which before the start only tells which databases there are. What is new is added, what is gone is stopped gracefully, what has changed is replaced, and the rest is left
    /// as it is. An error leaves everything as it is.
    pub async fn refresh(&self) -> Result<Refreshed> {
        self.0.refresh().await
    }

    /// Where this process stands with its fleet: it is starting until discovery has answered, and running from then on, whatever single
    /// databases do.
    pub fn startup(&self) -> Startup {
        let inner = &self.0;
        match inner.started.load(Ordering::SeqCst) {
            false => Startup::NotStarted,
            true if inner.stop.is_cancelled() && inner.keepers.is_empty() => Startup::Stopped,
            true if inner.stop.is_cancelled() => Startup::Stopping,
            true if inner.last_refresh().at.is_none() => Startup::Starting,
            true => Startup::Running,
        }
    }

    /// The ids of all databases, in order.
    pub fn ids(&self) -> Vec<String> {
        self.0.registry().stores.keys().cloned().collect()
    }

    /// How the fleet is, and each of its databases.
    pub fn status(&self) -> FleetStatus {
        let (mut stores, refused): (Vec<StoreStatus>, Vec<StoreStatus>) = {
            let registry = self.0.registry();
            let refused = registry.refused.iter().map(|(id, refusal)| StoreStatus {
                id: id.clone(),
                state: StoreState::Refused,
                breaker: BreakerState::Open,
                since: refusal.since,
                failures: 1,
                last_error: Some(refusal.error.clone()),
                last_error_kind: Some(refusal.kind),
                in_hand: 0,
                watched: false,
                known: true,
                entry_error: Some(refusal.error.clone()),
            });
            let running = registry.stores.values().map(|kept| StoreStatus {
                entry_error: kept.refusal.as_ref().map(|refusal| refusal.error.clone()),
                ..kept.store.status()
            });
            (running.collect(), refused.collect())
        };
        stores.extend(refused);
        stores.sort_by(|a, b| a.id.cmp(&b.id));
        let last = self.0.last_refresh();
        FleetStatus {
            stores,
            connections: self.0.node.budget.status(),
            refreshed_at: last.at,
            refresh_error: last.error.clone(),
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("stores", &self.ids()).finish_non_exhaustive()
    }
}

/// A fleet that is being kept. Dropping it lets all databases stop by themselves, with nobody waiting for it.
#[derive(Debug)]
#[must_use = "dropping it ends the background work"]
pub struct RunningFleet {
    fleet: Fleet,
    _guard: tokio_util::sync::DropGuard,
}

impl RunningFleet {
    /// The fleet.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Stops all databases gracefully, at once, and lets go of them. Clients of them fail from then on.
    pub async fn stop(self) {
        let inner = Arc::clone(&self.fleet.0);
        drop(self);
        inner.keepers.close();
        inner.keepers.wait().await;
    }
}

/// Takes over what is said of which databases are this node's.
async fn follow(fleet: Arc<Inner>, mut from: watch::Receiver<Owned>) {
    let following = async {
        while from.changed().await.is_ok() {
            let owned = from.borrow_and_update().clone();
            fleet.owned.send_replace(owned);
        }
    };
    fleet.stop.run_until_cancelled(following).await;
}

/// Takes part in sharing the databases, until told to stop. What this node has is given up then, so that others go on with it while the
/// databases stop here: they hand out nothing new, and what is in hand is claimed.
async fn share(assignment: Arc<Assignment>, stop: CancellationToken) {
    loop {
        let mut running = start(Arc::clone(&assignment) as Arc<dyn Service>);
        let ended = tokio::select! {
            () = stop.cancelled() => None,
            ended = running.ended() => Some(ended),
        };
        match ended {
            None => {
                // It has said what is wrong; what could not be given up lapses.
                drop(running.stop().await);
                return;
            }
            Some(Err(error)) => telemetry::fleet_not_shared(&error),
            // The home database was closed.
            Some(Ok(())) => {}
        }
        if stop.run_until_cancelled(tokio::time::sleep(SHARE_AGAIN)).await.is_none() {
            return;
        }
    }
}

/// Publishes how the fleet is, until it stops.
async fn publish_every(fleet: Fleet, interval: Duration) {
    let stop = fleet.0.stop.clone();
    let publishing = async {
        loop {
            telemetry::fleet_gauges(&fleet.status());
            tokio::time::sleep(interval).await;
        }
    };
    stop.run_until_cancelled(publishing).await;
}

async fn refresh_every(fleet: Arc<Inner>, interval: Duration) {
    let refreshing = async {
        loop {
            tokio::time::sleep(interval).await;
            // It has said what is wrong; the next time may do better.
            drop(fleet.refresh().await);
        }
    };
    fleet.stop.run_until_cancelled(refreshing).await;
}
