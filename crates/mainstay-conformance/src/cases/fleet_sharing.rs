//! Two nodes of a fleet over the same databases, which they share through one home database.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::fleet::assignment::Buckets;
use mainstay_core::fleet::{AssignmentOptions, Fleet, RunningFleet, StoreState};
use mainstay_core::lease::{LeaseFilter, Leases};
use mainstay_core::outbox::Message;
use mainstay_core::store::Names;
use mainstay_tests::eventually;
use tokio::sync::oneshot;

use crate::case::cases;
use crate::crew::{PATIENCE, Reporter, Reports};
use crate::fixture::Fixture;
use crate::tenants::{Delivery, Tenants, reporting};
use crate::world::{TOPIC, World};

cases! { $ fleet_sharing_cases:
    r24_two_nodes_share_the_databases_of_a_fleet ["R24", "R20", "MST-002"],
    r24_a_node_that_dies_leaves_its_databases_to_the_others ["R24", "R20"],
    r24_sharing_is_checked_before_anything_runs ["R24"],
}

/// Longer than a case takes: nothing lapses unless time is moved.
const LEASE: Duration = Duration::from_secs(300);

fn sharing() -> AssignmentOptions {
    AssignmentOptions::default().fleet("shared").lease(LEASE).look(Duration::from_millis(20))
}

/// Three ids, of which each of two nodes gets one at least.
fn ids() -> Vec<String> {
    let wanted = |id: &String| Buckets::wanted_by(Buckets::default().of(id), [0, 1]);
    let candidates = || (0..1_000).map(|number| format!("tenant-{number}"));
    let first = candidates().filter(|id| wanted(id) == Some(0)).take(2);
    first.chain(candidates().find(|id| wanted(id) == Some(1))).collect()
}

/// A node of the fleet.
struct Node {
    fleet: Fleet,
    running: RunningFleet,
    reports: Reports<Delivery>,
}

impl Node {
    async fn join(tenants: &Tenants<'_>, world: &World<'_>) -> Self {
        let (reporter, reports): (Reporter<Delivery>, _) = Reports::new();
        let fleet = tenants.fleet().share_through(world.provider.as_ref(), sharing());
        let fleet = fleet.each(reporting(reporter)).build().unwrap();
        let running = fleet.start().await.unwrap();
        Self { fleet, running, reports }
    }

    /// The databases it works on, or looks at.
    fn has(&self) -> BTreeSet<String> {
        let stores = self.fleet.status().stores.into_iter();
        stores.filter(|store| store.state != StoreState::Elsewhere).map(|store| store.id).collect()
    }
}

/// Puts messages into all databases, past the fleet.
async fn fill(tenants: &Tenants<'_>, ids: &[String], round: &str, count: usize) {
    for id in ids {
        let messages = (0..count).map(|number| Message::new(TOPIC, format!("{round} {number}"))).collect();
        tenants.outbox(id).enqueue_many(messages).await.unwrap();
    }
}

/// Waits until everything of a round is handled, by whichever node, and tells who did it where.
async fn handled(
    nodes: &mut [&mut Node],
    expected: usize,
    counts: &mut BTreeMap<Delivery, usize>,
) -> Vec<BTreeSet<String>> {
    let mut by: Vec<BTreeSet<String>> = nodes.iter().map(|_| BTreeSet::new()).collect();
    let mut left = expected;
    eventually(PATIENCE, "all messages are handled", async || {
        for (node, by) in nodes.iter_mut().zip(&mut by) {
            for delivery in node.reports.rest() {
                by.insert(delivery.0.clone());
                *counts.entry(delivery).or_default() += 1;
                left = left.saturating_sub(1);
            }
        }
        left == 0
    })
    .await;
    by
}

pub(super) async fn r24_two_nodes_share_the_databases_of_a_fleet(fx: &dyn Fixture) {
    let (world, ids) = (World::open(fx).await, ids());
    let names: Vec<&str> = ids.iter().map(String::as_str).collect();
    let tenants = Tenants::open(fx, &names).await;
    let all: BTreeSet<String> = ids.iter().cloned().collect();
    let mut counts = BTreeMap::new();

    // One alone has everything.
    let mut first = Node::join(&tenants, &world).await;
    fill(&tenants, &ids, "alone", 10).await;
    let by = handled(&mut [&mut first], 30, &mut counts).await;
    assert_eq!((&by[0], first.has()), (&all, all.clone()));

    // Another gets its share, and no database has two nodes.
    let mut second = Node::join(&tenants, &world).await;
    eventually(PATIENCE, "the two share the databases", async || {
        let (one, other) = (first.has(), second.has());
        one.is_disjoint(&other) && &one | &other == all && one.len() < 3 && other.len() < 3
    })
    .await;
    let (one, other) = (first.has(), second.has());
    fill(&tenants, &ids, "both", 20).await;
    let by = handled(&mut [&mut first, &mut second], 60, &mut counts).await;
    assert_eq!(by, [one, other], "each works on its own only");

    // One leaves in the middle of the work, and the other goes on with it.
    fill(&tenants, &ids, "left", 20).await;
    first.running.stop().await;
    assert_eq!(first.fleet.status().connections.used, 0);
    let mut reports = first.reports;
    let before = reports.rest();
    let expected = 60 - before.len();
    for delivery in before {
        *counts.entry(delivery).or_default() += 1;
    }
    handled(&mut [&mut second], expected, &mut counts).await;
    eventually(PATIENCE, "the one that is left has everything", async || second.has() == all).await;
    fill(&tenants, &ids, "last", 10).await;
    let by = handled(&mut [&mut second], 30, &mut counts).await;
    assert_eq!(by, [all]);
    second.running.stop().await;
    let rest = (reports.rest(), second.reports.rest());
    assert!(rest.0.is_empty() && rest.1.is_empty(), "{rest:?} once more");
    assert_eq!(counts.len(), 180);
    assert!(counts.values().all(|count| *count == 1), "each once: {counts:?}");
    for id in &ids {
        let stats = tenants.stats(id).await;
        assert_eq!((stats.done, stats.open(), stats.failed), (60, 0, 0), "{id}");
    }
}

pub(super) async fn r24_a_node_that_dies_leaves_its_databases_to_the_others(fx: &dyn Fixture) {
    let (world, ids) = (World::open(fx).await, ids());
    let names: Vec<&str> = ids.iter().map(String::as_str).collect();
    let tenants = Tenants::open(fx, &names).await;
    let all: BTreeSet<String> = ids.iter().cloned().collect();
    // It dies with its runtime, and nothing is given up.
    let (reporter, mut reports) = Reports::new();
    let home = fx.second().await;
    let doomed = tenants.fleet().share_through(home.as_ref(), sharing());
    let doomed = doomed.each(reporting(reporter)).build().unwrap();
    let (die, death) = oneshot::channel::<()>();
    let life = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let running = doomed.start().await.unwrap();
            death.await.unwrap();
            // Whoever drops it stops gracefully.
            std::mem::forget(running);
        });
    });
    fill(&tenants, &ids, "first", 1).await;
    for id in &ids {
        reports.next().await;
        eventually(PATIENCE, "it is done", async || tenants.stats(id).await.done == 1).await;
    }
    die.send(()).unwrap();
    eventually(PATIENCE, "it is dead", async || life.is_finished()).await;
    life.join().unwrap();
    let mut next = Node::join(&tenants, &world).await;
    fill(&tenants, &ids, "second", 1).await;
    let seat = LeaseFilter::all().held_only(true).prefix("fleet:shared:node:");
    let leases = Leases::new(world.provider.leases());
    eventually(PATIENCE, "it is a node", async || leases.list(&seat).await.unwrap().len() == 2).await;
    assert_eq!(next.has(), BTreeSet::new(), "the leases have not lapsed");
    fx.advance(&Names::default(), LEASE).await;
    let mut counts = BTreeMap::new();
    let by = handled(&mut [&mut next], 3, &mut counts).await;
    assert_eq!((by, next.has()), (vec![all.clone()], all));
    next.running.stop().await;
}

pub(super) async fn r24_sharing_is_checked_before_anything_runs(fx: &dyn Fixture) {
    let (world, tenants) = (World::open(fx).await, Tenants::open(fx, &["a"]).await);
    let wrong = sharing().buckets(0);
    let refused = tenants.fleet().share_through(world.provider.as_ref(), wrong).build().unwrap_err();
    assert_eq!((refused.kind(), refused.field()), (ErrorKind::InvalidArgument, Some("buckets")));
    // Who only routes takes no share.
    let router = tenants.fleet().share_through(world.provider.as_ref(), sharing()).routes_only();
    let router = router.build().unwrap();
    let running = router.start().await.unwrap();
    router.outbox("a").unwrap().enqueue(Message::new(TOPIC, "")).await.unwrap();
    let mut node = Node::join(&tenants, &world).await;
    assert_eq!(node.reports.next().await.0, "a");
    assert_eq!(router.status().store("a").unwrap().state, StoreState::Elsewhere);
    node.running.stop().await;
    running.stop().await;
}
