//! Coordinates the fan-outs that are in the database, with the shards that it knows, as they come and go.
//!
//! Not where an application coordinates them with a planner of its own: whoever holds a fan-out's lease plans it, and this one would not
//! know the shards that only that planner names.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use mainstay::Mainstay;
use mainstay::fanout::{FanoutKey, FanoutOptions, FanoutService, KnownShards};
use mainstay::runtime::{Running, start};
use tokio_util::sync::CancellationToken;

/// How often it is looked which fan-outs there are.
const LOOK: Duration = Duration::from_secs(2);

/// Fan-outs read at once.
const PAGE: u32 = 1_000;

/// Coordinates until it is told to stop.
pub(super) async fn run(mainstay: Mainstay, stop: CancellationToken) {
    let mut coordinators: HashMap<FanoutKey, Running> = HashMap::new();
    loop {
        match keys(&mainstay).await {
            Ok(keys) => follow(&mainstay, keys, &mut coordinators).await,
            Err(error) => tracing::warn!(%error, "which fan-outs there are can't be told; asked again later"),
        }
        if stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_none() {
            break;
        }
    }
    for coordinator in coordinators.values() {
        coordinator.request_stop();
    }
    for (_, coordinator) in coordinators {
        end(coordinator).await;
    }
}

async fn keys(mainstay: &Mainstay) -> mainstay::Result<Vec<FanoutKey>> {
    let mut keys: Vec<FanoutKey> = Vec::new();
    loop {
        let page = mainstay.fanout().list(keys.last(), PAGE).await?;
        let full = page.len() == PAGE as usize;
        keys.extend(page.into_iter().map(|policy| policy.key));
        if !full {
            return Ok(keys);
        }
    }
}

async fn follow(mainstay: &Mainstay, keys: Vec<FanoutKey>, coordinators: &mut HashMap<FanoutKey, Running>) {
    let wanted: HashSet<&FanoutKey> = keys.iter().collect();
    let over: Vec<_> = coordinators
        .iter()
        .filter(|(key, coordinator)| coordinator.is_finished() || !wanted.contains(key))
        .map(|(key, _)| key.clone())
        .collect();
    for key in over {
        if let Some(coordinator) = coordinators.remove(&key) {
            end(coordinator).await;
        }
    }
    for key in keys.into_iter().filter(|key| !coordinators.contains_key(key)).collect::<Vec<_>>() {
        let fanout = mainstay.fanout().clone();
        let planner = Arc::new(KnownShards::new(Arc::clone(fanout.store())));
        match FanoutService::new(fanout, key.clone(), planner, FanoutOptions::default()) {
            Ok(service) => drop(coordinators.insert(key, start(Arc::new(service)))),
            Err(error) => tracing::warn!(%error, fanout = %key, "a fan-out can't be coordinated"),
        }
    }
}

async fn end(coordinator: Running) {
    if let Err(error) = coordinator.stop().await {
        tracing::warn!(%error, "a coordinator of a fan-out ended with an error");
    }
}
