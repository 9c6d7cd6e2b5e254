//! Which of many databases gets the next batch.

use std::sync::{Arc, Mutex};

use mainstay_core::fleet::{DrainFirst, RoundRobin, Selection, SelectionStrategy};
use mainstay_core::inbox::Incoming;
use mainstay_core::outbox::Message;
use mainstay_core::runtime::MainstayBuilder;

use crate::case::cases;
use crate::crew::Reports;
use crate::fixture::{Affliction, Fixture, Lacking};
use crate::tenants::{Delivery, Tenants, reporting, until_status};
use crate::world::TOPIC;

cases! { $ fleet_selection_cases:
    obx_067_a_strategy_picks_the_next_store ["OBX-067", "IBX-086", "R24"],
    obx_068_round_robin_takes_a_batch_of_each_in_turn ["OBX-068"],
    ibx_087_round_robin_takes_a_batch_of_each_in_turn ["IBX-087"],
    obx_069_drain_first_stays_until_there_is_no_more ["OBX-069"],
    ibx_088_drain_first_stays_until_there_is_no_more ["IBX-088"],
    r24_drain_first_has_a_budget ["R24", "OBX-069"],
    r24_a_failed_database_holds_up_no_strategy ["R24", "MST-007"],
    r24_a_database_that_can_only_be_read_holds_up_no_strategy ["R24", "MST-007"],
}

const IDS: [&str; 3] = ["a", "b", "c"];

/// Two to a batch, one at a time, so that the order of deliveries is the order of batches.
fn by_twos(builder: MainstayBuilder) -> MainstayBuilder {
    let by_twos = |options: &mut mainstay_core::queue::DispatcherOptions| {
        (options.batch, options.concurrency) = (2, 1);
    };
    builder.outbox(|outbox| outbox.options(by_twos)).inbox(|inbox| inbox.options(by_twos))
}

async fn put(tenants: &Tenants<'_>, id: &str, count: usize, into_inbox: bool) {
    for number in 0..count {
        let message = Message::new(TOPIC, number.to_string());
        match into_inbox {
            false => {
                tenants.outbox(id).enqueue(message).await.unwrap();
            }
            true => {
                let incoming = Incoming::new("test", number.to_string(), message);
                tenants.inbox(id).enqueue(incoming).await.unwrap();
            }
        }
    }
}

/// The databases of the first deliveries, in order, with `counts` messages in each.
async fn order<S: SelectionStrategy>(
    fx: &dyn Fixture,
    counts: [usize; 3],
    into_inbox: bool,
    make: impl Fn() -> S + Send + Sync + 'static,
) -> String {
    let tenants = Tenants::open(fx, &IDS).await;
    for (id, count) in IDS.into_iter().zip(counts) {
        put(&tenants, id, count, into_inbox).await;
    }
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let set_up = reporting(reporter);
    let fleet = tenants.fleet().each(move |entry, builder| by_twos(set_up(entry, builder)));
    let fleet = fleet.selection(Selection::by(make)).build().unwrap();
    let running = fleet.start().await.unwrap();
    let mut order = String::new();
    for _ in 0..counts.iter().sum() {
        order.push_str(&reports.next().await.0);
    }
    running.stop().await;
    for (id, count) in IDS.into_iter().zip(counts) {
        let stats = match into_inbox {
            false => tenants.stats(id).await,
            true => tenants.inbox(id).stats().await.unwrap().queue,
        };
        assert_eq!((stats.done, stats.open()), (count as u64, 0), "{id}");
    }
    order
}

pub(super) async fn obx_068_round_robin_takes_a_batch_of_each_in_turn(fx: &dyn Fixture) {
    assert_eq!(order(fx, [4, 4, 4], false, RoundRobin::new).await, "aabbccaabbcc");
}

pub(super) async fn ibx_087_round_robin_takes_a_batch_of_each_in_turn(fx: &dyn Fixture) {
    assert_eq!(order(fx, [4, 2, 4], true, RoundRobin::new).await, "aabbccaacc");
}

pub(super) async fn obx_069_drain_first_stays_until_there_is_no_more(fx: &dyn Fixture) {
    assert_eq!(order(fx, [4, 5, 3], false, DrainFirst::new).await, "aaaabbbbbccc");
}

pub(super) async fn ibx_088_drain_first_stays_until_there_is_no_more(fx: &dyn Fixture) {
    assert_eq!(order(fx, [3, 4, 2], true, DrainFirst::new).await, "aaabbbbcc");
}

pub(super) async fn r24_drain_first_has_a_budget(fx: &dyn Fixture) {
    let order = order(fx, [8, 2, 2], false, || DrainFirst::with_budget(2)).await;
    assert_eq!(order, "aaaabbccaaaa", "two batches in a row, then the others");
}

/// Always picks the same, and writes down what it was told.
struct Only {
    wanted: &'static str,
    told: Told,
}

/// The last store picked and how much came of it, each time.
type Told = Arc<Mutex<Vec<(Option<String>, usize)>>>;

impl SelectionStrategy for Only {
    fn select_next(&mut self, stores: &[&str], last: Option<&str>, last_count: usize) -> Option<usize> {
        self.told.lock().unwrap().push((last.map(str::to_owned), last_count));
        stores.iter().position(|store| *store == self.wanted)
    }

    fn reset(&mut self) {}
}

pub(super) async fn obx_067_a_strategy_picks_the_next_store(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &IDS).await;
    for id in IDS {
        put(&tenants, id, 3, false).await;
        put(&tenants, id, 3, true).await;
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let set_up = reporting(reporter);
    let heard = Arc::clone(&told);
    let fleet = tenants.fleet().each(move |entry, builder| by_twos(set_up(entry, builder)));
    let selection = Selection::by(move || Only { wanted: "b", told: Arc::clone(&heard) });
    let fleet = fleet.selection(selection).build().unwrap();
    let running = fleet.start().await.unwrap();
    for _ in 0..6 {
        assert_eq!(reports.next().await.0, "b");
    }
    running.stop().await;
    for id in ["a", "c"] {
        assert_eq!(tenants.stats(id).await.ready, 3, "{id} was not picked");
        assert_eq!(tenants.inbox(id).stats().await.unwrap().queue.ready, 3, "{id} was not picked");
    }
    let told = told.lock().unwrap();
    assert_eq!(told[0], (None, 0), "nobody was before the first");
    let b = Some("b".to_owned());
    assert!(told.contains(&(b.clone(), 2)) && told.contains(&(b, 1)), "what the last one had: {told:?}");
}

pub(super) async fn r24_a_failed_database_holds_up_no_strategy(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &IDS).await;
    for id in IDS {
        put(&tenants, id, 3, false).await;
    }
    fx.afflict(tenants.get("b"), Affliction::WrongSchema)
        .await
        .unwrap_or_else(|lacking| panic!("{lacking:?}"));
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let set_up = reporting(reporter);
    let fleet = tenants.fleet().each(move |entry, builder| by_twos(set_up(entry, builder)));
    let fleet = fleet.selection(Selection::by(RoundRobin::new)).build().unwrap();
    let running = fleet.start().await.unwrap();
    for _ in 0..6 {
        assert_ne!(reports.next().await.0, "b");
    }
    assert_eq!(tenants.stats("b").await.ready, 3, "nothing of it was touched");
    until_status(&fleet, "b", "it is left alone", |status| status.failures > 0).await;
    fx.heal(tenants.get("b")).await;
    for _ in 0..3 {
        assert_eq!(reports.next().await.0, "b", "it is its turn again");
    }
    running.stop().await;
}

pub(super) async fn r24_a_database_that_can_only_be_read_holds_up_no_strategy(
    fx: &dyn Fixture,
) -> Result<(), Lacking> {
    let tenants = Tenants::open(fx, &IDS).await;
    for id in IDS {
        put(&tenants, id, 3, false).await;
    }
    fx.afflict(tenants.get("b"), Affliction::Full).await?;
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let set_up = reporting(reporter);
    let fleet = tenants.fleet().each(move |entry, builder| by_twos(set_up(entry, builder)));
    let fleet = fleet.selection(Selection::by(RoundRobin::new)).build().unwrap();
    let running = fleet.start().await.unwrap();
    for _ in 0..6 {
        assert_ne!(reports.next().await.0, "b");
    }
    until_status(&fleet, "b", "it fails in a row, whatever looks say", |status| status.failures >= 3).await;
    fx.heal(tenants.get("b")).await;
    for _ in 0..3 {
        assert_eq!(reports.next().await.0, "b", "it is its turn again");
    }
    running.stop().await;
    Ok(())
}
