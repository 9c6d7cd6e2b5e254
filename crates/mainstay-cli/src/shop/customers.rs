//! The customers: they place orders at a steady rate until they are told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mainstay::Outbox;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use uuid::Uuid;

use super::{Kind, Order, Shop};

/// The wait after an order that could not be placed.
const TROUBLE: Duration = Duration::from_millis(250);

/// Customers of each queue at the counter.
const CUSTOMERS: u64 = 8;

/// What the customers did.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    next: AtomicU64,
    placed: AtomicU64,
    refused: AtomicU64,
}

impl Orders {
    /// Orders placed.
    pub(crate) fn placed(&self) -> u64 {
        self.placed.load(Ordering::Relaxed)
    }

    /// Tries that the database refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Places orders until `stop` says so; returns when the last one is through.
pub(crate) async fn shop_until<S: Shop>(
    shop: Arc<S>,
    outbox: Outbox,
    orders: Arc<Orders>,
    run: Uuid,
    rate: f64,
    queues: u32,
    stop: watch::Receiver<bool>,
) {
    let mut tasks = JoinSet::new();
    let every = Duration::from_secs_f64(f64::from(queues) / rate);
    for queue in 0..queues {
        let (shop, outbox, orders) = (Arc::clone(&shop), outbox.clone(), Arc::clone(&orders));
        let first = every.mul_f64(f64::from(queue) / f64::from(queues));
        let stop = stop.clone();
        tasks.spawn(async move {
            let mut ticks = tokio::time::interval_at(Instant::now() + first, every);
            // After a hiccup the missed orders are made up for, so that the rate holds on the whole.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            queue_up(&*shop, &outbox, &orders, run, queue, ticks, stop).await;
        });
    }
    while tasks.join_next().await.is_some() {}
}

async fn queue_up<S: Shop>(
    shop: &S,
    outbox: &Outbox,
    orders: &Orders,
    run: Uuid,
    queue: u32,
    mut ticks: tokio::time::Interval,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            biased;
            // An error means that whoever could stop us has gone, which stops us too.
            _ = stop.wait_for(|stop| *stop) => return,
            _ = ticks.tick() => {}
        }
        let number = orders.next.fetch_add(1, Ordering::Relaxed);
        // A customer stays with one queue, so the numbers of a customer's orders only grow.
        let customer = u64::from(queue) * CUSTOMERS + number % CUSTOMERS;
        let order = Order { run, number, customer, kind: Kind::of(number) };
        match shop.place(outbox, &order).await {
            Ok(()) => drop(orders.placed.fetch_add(1, Ordering::Relaxed)),
            Err(error) => {
                orders.refused.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(error = format!("{error:#}"), number, "an order could not be placed");
                tokio::time::sleep(TROUBLE).await;
            }
        }
    }
}
