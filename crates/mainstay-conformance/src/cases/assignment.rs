//! Nodes that share the databases of a fleet: who owns what as nodes come, go, die and lose their home database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mainstay_core::fleet::assignment::{Assignment, AssignmentOptions, Buckets, Owned};
use mainstay_core::lease::{LeaseFilter, LeaseRecord, Leases};
use mainstay_core::runtime::{Running, start};
use mainstay_tests::eventually;
use tokio::sync::watch;

use crate::case::cases;
use crate::faulty_leases::{Fault, FaultyLeases};
use crate::fixture::Fixture;
use crate::world::World;

use super::lease::{PATIENCE, leases, others};

cases! { $ assignment_cases:
    r24_a_node_alone_owns_everything ["R24", "R21"],
    r24_two_nodes_share_and_a_third_gets_its_share ["R24"],
    r24_a_node_that_stops_gives_everything_up_at_once ["R24", "R20"],
    r24_a_dead_node_is_replaced_once_its_lease_has_lapsed ["R24", "R20"],
    r24_nodes_that_come_and_go_never_own_the_same ["R24", "R20"],
    r24_without_the_home_database_nothing_is_owned_in_time ["R24", "R20"],
    r24_a_home_database_that_is_away_for_a_moment_changes_nothing ["R24"],
    r24_what_is_taken_away_is_not_owned ["R24", "R20"],
    r24_a_node_that_counts_otherwise_stays_out ["R24"],
    r24_many_buckets_cost_two_visits_a_turn ["R24"],
    r24_fleets_share_nothing ["R24"],
}

/// Longer than a case takes: nothing lapses unless time is moved.
const LEASE: Duration = Duration::from_secs(300);

fn options() -> AssignmentOptions {
    AssignmentOptions::default().fleet("tenants").lease(LEASE).look(Duration::from_millis(20))
}

/// A node of a fleet. Dropped, it is dead.
struct Node {
    running: Running,
    owned: watch::Receiver<Owned>,
}

impl Node {
    async fn join(leases: &Leases, options: AssignmentOptions) -> Self {
        let assignment = Arc::new(Assignment::new(leases.clone(), options).unwrap());
        let owned = assignment.owned();
        assert!(owned.borrow().buckets().is_empty(), "nothing is owned before it runs");
        let mut running = start(assignment);
        running.started().await;
        Self { running, owned }
    }

    /// The buckets it holds, each with its epoch.
    fn buckets(&self) -> BTreeMap<u32, i64> {
        self.owned.borrow().buckets()
    }

    fn numbers(&self) -> BTreeSet<u32> {
        self.buckets().into_keys().collect()
    }

    fn count(&self) -> usize {
        self.buckets().len()
    }

    async fn stop(self) {
        tokio::time::timeout(PATIENCE, self.running.stop()).await.expect("it stops").unwrap();
        assert!(self.owned.borrow().buckets().is_empty(), "who has stopped owns nothing");
    }
}

/// Waits until these nodes own everything, and nobody has the same as another.
async fn settled(nodes: &[&Node]) {
    eventually(PATIENCE, "the nodes share all buckets", async || {
        let all: Vec<u32> = nodes.iter().flat_map(|node| node.numbers()).collect();
        let distinct: BTreeSet<&u32> = all.iter().collect();
        all.len() == 64 && distinct.len() == 64 && nodes.iter().all(|node| node.count() > 0)
    })
    .await;
}

/// The leases of the fleet that are held, by the database.
async fn held(leases: &Leases) -> Vec<LeaseRecord> {
    let filter = LeaseFilter::all().held_only(true).prefix("fleet:tenants:").limit(1_000);
    leases.list(&filter).await.unwrap()
}

/// The database knows each bucket under the epoch by which the node holds it, and by one owner for the whole node.
async fn assert_as_in_the_database(leases: &Leases, node: &Node) {
    let records: BTreeMap<String, LeaseRecord> =
        held(leases).await.into_iter().map(|record| (record.name.clone(), record)).collect();
    let mut owners = BTreeSet::new();
    for (bucket, epoch) in node.buckets() {
        let record = records.get(&format!("fleet:tenants:bucket:{bucket}")).expect("it is held");
        assert_eq!(record.epoch, epoch);
        owners.insert(record.owner.clone());
    }
    assert_eq!(owners.len(), 1, "{owners:?}");
}

async fn r24_a_node_alone_owns_everything(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = leases(&world);
    assert!(Owned::all().owns("tenant-1") && Owned::all().is_all(), "without a home database");
    assert!(!Owned::none().owns("tenant-1"));
    let node = Node::join(&leases, options().node("alone")).await;
    settled(&[&node]).await;
    let owned = node.owned.borrow().clone();
    assert!((0..1_000).all(|tenant| owned.owns(&format!("tenant-{tenant}"))) && !owned.is_all());
    assert_as_in_the_database(&leases, &node).await;
    let seat = leases.get("fleet:tenants:node:0").await.unwrap().unwrap();
    assert!(seat.owner.unwrap().starts_with("alone/"));
    node.stop().await;
    assert!(!owned.owns("tenant-1"), "an old value knows it too");
    assert_eq!(held(&leases).await, [], "nothing is left behind");
}

async fn r24_two_nodes_share_and_a_third_gets_its_share(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mine = leases(&world);
    let first = Node::join(&mine, options()).await;
    settled(&[&first]).await;
    let second = Node::join(&others(fx).await, options()).await;
    eventually(PATIENCE, "what all nodes calculate alike", async || {
        (first.count(), second.count()) == (31, 33)
    })
    .await;
    settled(&[&first, &second]).await;
    let before = (first.buckets(), second.buckets());

    let third = Node::join(&others(fx).await, options()).await;
    eventually(PATIENCE, "a third each", async || {
        [&first, &second, &third].iter().all(|node| (20..=23).contains(&node.count()))
    })
    .await;
    settled(&[&first, &second, &third]).await;
    for (node, before) in [(&first, before.0), (&second, before.1)] {
        let kept = node.buckets().into_iter().all(|bucket| before.get(&bucket.0) == Some(&bucket.1));
        assert!(kept, "what they keep was never given up");
        assert_as_in_the_database(&mine, node).await;
    }
    assert_as_in_the_database(&mine, &third).await;

    // A database is owned by exactly one of them.
    let owned: Vec<Owned> = [&first, &second, &third].map(|node| node.owned.borrow().clone()).into();
    for tenant in 0..1_000 {
        let owners = owned.iter().filter(|owned| owned.owns(&format!("tenant-{tenant}"))).count();
        assert_eq!(owners, 1, "tenant-{tenant}");
    }
    for node in [first, second, third] {
        node.stop().await;
    }
}

async fn r24_a_node_that_stops_gives_everything_up_at_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mine = leases(&world);
    let first = Node::join(&mine, options()).await;
    let second = Node::join(&others(fx).await, options()).await;
    settled(&[&first, &second]).await;
    let left = second.buckets();
    second.stop().await;
    // No time was moved: nothing has lapsed.
    settled(&[&first]).await;
    for (bucket, epoch) in left {
        assert_eq!(first.buckets()[&bucket], epoch + 1, "bucket {bucket} was acquired once more");
    }
    // Whoever comes back in the same seat gets the same.
    let third = Node::join(&others(fx).await, options()).await;
    settled(&[&first, &third]).await;
    assert_eq!((first.count(), third.count()), (31, 33));
    first.stop().await;
    third.stop().await;
}

async fn r24_a_dead_node_is_replaced_once_its_lease_has_lapsed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mine = leases(&world);
    let first = Node::join(&mine, options()).await;
    let second = Node::join(&others(fx).await, options()).await;
    settled(&[&first, &second]).await;
    let kept = first.buckets();
    let dead = second.numbers();
    drop(second);
    let seat = async || mine.get("fleet:tenants:node:0").await.unwrap().unwrap();
    let turns = async |count: i64| {
        let since = seat().await.fencing_token;
        eventually(PATIENCE, "the first one renews", async || seat().await.fencing_token >= since + count)
            .await;
    };

    turns(5).await;
    assert_eq!(first.buckets(), kept, "nobody is given what has not lapsed");
    world.advance(LEASE / 2).await;
    turns(5).await;
    assert_eq!(first.buckets(), kept);
    world.advance(LEASE / 2).await;
    settled(&[&first]).await;
    let now = first.buckets();
    assert!(kept.iter().all(|(bucket, epoch)| now[bucket] == *epoch), "its own it never lost");
    assert!(dead.iter().all(|bucket| now[bucket] > 1), "the dead one's it acquired anew");
    assert_as_in_the_database(&mine, &first).await;
    first.stop().await;
}

/// Looks over and over whether two nodes own the same, and who owned which bucket by which epoch.
#[derive(Default)]
struct Ledger(BTreeMap<(u32, i64), usize>);

impl Ledger {
    fn look(&mut self, nodes: &[(usize, watch::Receiver<Owned>)]) {
        for (number, owned) in nodes {
            let before = owned.borrow().buckets();
            for (other, theirs) in nodes.iter().filter(|(other, _)| other != number) {
                let between = theirs.borrow().buckets();
                let after = owned.borrow().buckets();
                for (bucket, epoch) in &before {
                    let lasted = after.get(bucket) == Some(epoch);
                    assert!(
                        !lasted || !between.contains_key(bucket),
                        "{number} and {other} both own {bucket}"
                    );
                }
            }
            for (bucket, epoch) in before {
                let owner = *self.0.entry((bucket, epoch)).or_insert(*number);
                assert_eq!(owner, *number, "bucket {bucket} of epoch {epoch} was given to two");
            }
        }
    }
}

async fn r24_nodes_that_come_and_go_never_own_the_same(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let homes = [leases(&world), others(fx).await, others(fx).await];
    let mut ledger = Ledger::default();
    let mut nodes: Vec<(usize, Node)> = Vec::new();
    for step in 0..24_usize {
        // Four are there at most; they come, stop and die in an order without a pattern.
        match (nodes.len(), step * 7 % 5) {
            (0 | 1, _) | (2 | 3, 0..=2) => {
                let named = options().node(step.to_string());
                nodes.push((step, Node::join(&homes[step % 3], named).await));
            }
            (_, 3) => nodes.remove(step % nodes.len()).1.stop().await,
            _ => {
                drop(nodes.remove(step % nodes.len()));
                // In two parts, and those who live renew before each: their own clocks are not moved.
                for _ in 0..2 {
                    looks(&mut ledger, &nodes, 5).await;
                    renewed(&world, &homes[0], &nodes).await;
                    world.advance(LEASE / 2 + Duration::from_secs(1)).await;
                }
            }
        }
        looks(&mut ledger, &nodes, 20).await;
    }
    // Whatever happened, those who are there share everything in the end.
    settled(&nodes.iter().map(|(_, node)| node).collect::<Vec<_>>()).await;
    looks(&mut ledger, &nodes, 5).await;
    assert!(ledger.0.len() > 64, "buckets have changed hands: {}", ledger.0.len());
    for (_, node) in nodes {
        node.stop().await;
    }
    assert_eq!(held(&homes[0]).await, []);
}

/// Waits until each of the nodes has renewed what it holds.
async fn renewed(world: &World<'_>, leases: &Leases, nodes: &[(usize, Node)]) {
    let since = world.now().await;
    for (number, _) in nodes {
        eventually(PATIENCE, "a node that lives renews", async || {
            let owner = format!("{number}/");
            held(leases).await.iter().any(|lease| {
                let theirs = lease.owner.as_ref().is_some_and(|name| name.starts_with(&owner));
                theirs && lease.name.contains(":node:") && lease.renewed_at > since
            })
        })
        .await;
    }
}

/// Looks while the nodes take some turns.
async fn looks(ledger: &mut Ledger, nodes: &[(usize, Node)], count: usize) {
    let owned: Vec<_> = nodes.iter().map(|(number, node)| (*number, node.owned.clone())).collect();
    for _ in 0..count {
        ledger.look(&owned);
        // Time passes, and the nodes take their turns by it.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

async fn r24_without_the_home_database_nothing_is_owned_in_time(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mine = leases(&world);
    for fault in [Fault::Fails, Fault::Hangs] {
        let (home, through) = FaultyLeases::over(&mine);
        let short = options().lease(Duration::from_secs(2));
        let first = Node::join(&through, short.clone()).await;
        settled(&[&first]).await;
        home.set(fault);
        let record = mine.get("fleet:tenants:bucket:0").await.unwrap().unwrap();
        let owned = first.owned.borrow().clone();
        let mut told = first.owned.clone();
        let second = Node::join(&others(fx).await, short).await;
        eventually(PATIENCE, "it stops owning by its own clock", async || {
            let now = world.now().await;
            // Asked after the clock was, so what is owned now was owned then.
            let owns = owned.buckets().contains_key(&0);
            assert!(!owns || now < record.expires_at, "owned at {now}, until {}", record.expires_at);
            !owns
        })
        .await;
        let nothing = told.wait_for(|owned| owned.buckets().is_empty());
        tokio::time::timeout(PATIENCE, nothing).await.expect("it is told").unwrap();
        settled(&[&second]).await;
        let taken = mine.get("fleet:tenants:bucket:0").await.unwrap().unwrap();
        assert!(taken.epoch > record.epoch && taken.acquired_at >= record.expires_at);
        // It comes back as any newcomer does.
        home.set(Fault::None);
        settled(&[&first, &second]).await;
        first.stop().await;
        second.stop().await;
    }
}

async fn r24_a_home_database_that_is_away_for_a_moment_changes_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mine = leases(&world);
    let (home, through) = FaultyLeases::over(&mine);
    home.set(Fault::Fails);
    let node = Node::join(&through, options()).await;
    assert_eq!(node.count(), 0, "it starts, and owns nothing");
    home.set(Fault::None);
    settled(&[&node]).await;
    let before = node.buckets();
    let mut seen = node.owned.clone();
    seen.mark_unchanged();
    home.set(Fault::Fails);
    let met = home.met();
    eventually(PATIENCE, "it has asked in vain", async || home.met() > met + 1).await;
    home.set(Fault::None);
    let token = mine.get("fleet:tenants:node:0").await.unwrap().unwrap().fencing_token;
    eventually(PATIENCE, "it renews again", async || {
        mine.get("fleet:tenants:node:0").await.unwrap().unwrap().fencing_token > token
    })
    .await;
    assert_eq!(node.buckets(), before);
    assert!(!seen.has_changed().unwrap(), "nobody was told anything");
    // A stop does not wait for a database that does not answer.
    home.set(Fault::Hangs);
    node.stop().await;
}

async fn r24_what_is_taken_away_is_not_owned(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mine = leases(&world);
    let node = Node::join(&mine, options()).await;
    settled(&[&node]).await;
    // A bucket: the others stay, and it is acquired anew.
    let before = node.buckets();
    mine.force_release("fleet:tenants:bucket:7").await.unwrap().expect("it was held");
    eventually(PATIENCE, "it is acquired anew", async || node.buckets().get(&7) == Some(&2)).await;
    let mut after = node.buckets();
    after.insert(7, 1);
    assert_eq!(after, before);
    // The seat: who is not a member owns nothing.
    mine.force_release("fleet:tenants:node:0").await.unwrap().expect("it was held");
    eventually(PATIENCE, "all are acquired anew", async || {
        let now = node.buckets();
        now.len() == 64
            && now.iter().all(|(bucket, epoch)| *epoch == before[bucket] + 1 + i64::from(*bucket == 7))
    })
    .await;
    node.stop().await;
}

async fn r24_a_node_that_counts_otherwise_stays_out(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mine = leases(&world);
    let first = Node::join(&mine, options()).await;
    settled(&[&first]).await;
    let other = Node::join(&others(fx).await, options().buckets(32)).await;
    // One that counts alike is not kept out by it.
    let second = Node::join(&others(fx).await, options()).await;
    settled(&[&first, &second]).await;
    assert_eq!(other.count(), 0);
    first.stop().await;
    assert_eq!(other.count(), 0);
    second.stop().await;
    eventually(PATIENCE, "it is alone", async || other.count() == 32).await;
    other.stop().await;
}

async fn r24_many_buckets_cost_two_visits_a_turn(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mine = leases(&world);
    let metered = fx.metered().await;
    let node = Node::join(&Leases::new(metered.provider.leases()), options()).await;
    settled(&[&node]).await;
    // Where there is one instance only, the case's own looks are counted too.
    let asked = std::cell::Cell::new(0);
    let turns = async || {
        asked.set(asked.get() + 1);
        mine.get("fleet:tenants:node:0").await.unwrap().unwrap().fencing_token
    };
    let (before, since) = ((metered.visits)(), turns().await);
    eventually(PATIENCE, "twenty turns", async || turns().await >= since + 20).await;
    let (took, visits) = ((turns().await - since).unsigned_abs(), (metered.visits)() - before);
    assert!(visits <= 2 * took + asked.get() + 4, "{visits} visits in {took} turns");
    node.stop().await;
    metered.provider.close().await;
}

async fn r24_fleets_share_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mine = leases(&world);
    let tenants = Node::join(&mine, options()).await;
    let archives = Node::join(&mine, options().fleet("tenants-archive").buckets(16)).await;
    settled(&[&tenants]).await;
    eventually(PATIENCE, "the other fleet has its own", async || archives.count() == 16).await;
    assert_eq!(tenants.count(), 64);
    assert_eq!(Buckets::new(16).unwrap().count(), 16);
    tenants.stop().await;
    archives.stop().await;
}
