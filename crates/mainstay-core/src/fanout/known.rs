//! Coordinates the fan-outs that are in the database, with the shards that it knows, as they come and go.
//!
//! Not where an application coordinates them with a planner of its own: whoever holds a fan-out's lease plans it, and this one would not
//! know the shards that only that planner names.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep};

use crate::error::{ErrorKind, Result};
use crate::runtime::{Lifecycle, Running, Service, start};
use crate::telemetry;

use super::{Fanout, FanoutKey, FanoutOptions, FanoutService, KnownShards};

/// How often it is looked which fan-outs there are.
const LOOK: Duration = Duration::from_secs(2);

/// Fan-outs read at once.
const PAGE: u32 = 1_000;

/// The coordinators of all fan-outs of a database.
pub(crate) struct KnownFanouts {
    fanout: Fanout,
    /// Those that are known. They outlive a stop, so that it is known when each looks next.
    services: Mutex<HashMap<FanoutKey, Arc<FanoutService>>>,
    /// The versions of the policies that were last read, added up, as the agenda has them.
    versions: AtomicI64,
}

impl KnownFanouts {
    pub(crate) fn new(fanout: Fanout) -> Self {
        Self { fanout, services: Mutex::default(), versions: AtomicI64::new(0) }
    }

    /// When the first of them looks next; none: once a policy has changed.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.services().values().filter_map(|service| service.next_look()).min()
    }

    /// Which changes of policies are known here, as the agenda counts them.
    pub(crate) fn changes(&self) -> i64 {
        self.versions.load(Ordering::Relaxed)
    }

    fn services(&self) -> MutexGuard<'_, HashMap<FanoutKey, Arc<FanoutService>>> {
        // Whole whatever panicked beside it: entries come and go one at a time.
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn keys(&self) -> Result<Vec<FanoutKey>> {
        let (mut keys, mut versions): (Vec<FanoutKey>, i64) = (Vec::new(), 0);
        loop {
            let page = self.fanout.list(keys.last(), PAGE).await?;
            let full = page.len() == PAGE as usize;
            versions += page.iter().map(|policy| policy.version).sum::<i64>();
            keys.extend(page.into_iter().map(|policy| policy.key));
            if !full {
                self.versions.store(versions, Ordering::Relaxed);
                return Ok(keys);
            }
        }
    }

    /// Ends only with the store.
    async fn follow(&self, running: &mut HashMap<FanoutKey, Running>) {
        loop {
            match self.keys().await {
                Ok(keys) => self.take(keys, running).await,
                Err(error) if error.kind() == ErrorKind::Closed => return,
                Err(error) => telemetry::fanouts_unknown(self.fanout.store().identifier(), &error),
            }
            sleep(LOOK).await;
        }
    }

    async fn take(&self, keys: Vec<FanoutKey>, running: &mut HashMap<FanoutKey, Running>) {
        let wanted: HashSet<&FanoutKey> = keys.iter().collect();
        self.services().retain(|key, _| wanted.contains(key));
        let is_over = |(key, one): &(&FanoutKey, &Running)| one.is_finished() || !wanted.contains(*key);
        let over: Vec<_> = running.iter().filter(is_over).map(|(key, _)| key.clone()).collect();
        for coordinator in over.into_iter().filter_map(|key| running.remove(&key)) {
            self.end(coordinator).await;
        }
        for key in keys {
            if running.contains_key(&key) {
                continue;
            }
            match self.service(&key) {
                Ok(service) => drop(running.insert(key, start(service))),
                Err(error) => telemetry::fanouts_unknown(self.fanout.store().identifier(), &error),
            }
        }
    }

    fn service(&self, key: &FanoutKey) -> Result<Arc<FanoutService>> {
        let mut services = self.services();
        if let Some(service) = services.get(key) {
            return Ok(Arc::clone(service));
        }
        let shards = Arc::new(KnownShards::new(Arc::clone(self.fanout.store())));
        let service = FanoutService::new(self.fanout.clone(), key.clone(), shards, FanoutOptions::default())?;
        Ok(Arc::clone(services.entry(key.clone()).or_insert(Arc::new(service))))
    }

    async fn end(&self, coordinator: Running) {
        if let Err(error) = coordinator.stop().await {
            telemetry::fanouts_unknown(self.fanout.store().identifier(), &error);
        }
    }
}

#[async_trait]
impl Service for KnownFanouts {
    fn name(&self) -> &'static str {
        "fan-out coordinators"
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        lifecycle.started();
        let mut running = HashMap::new();
        lifecycle.stopping().run_until_cancelled(self.follow(&mut running)).await;
        // All at once, so that giving up their leases takes as long as one does.
        running.values().for_each(Running::request_stop);
        for coordinator in running.into_values() {
            self.end(coordinator).await;
        }
        Ok(())
    }
}
