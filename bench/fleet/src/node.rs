//! The process with the fleet: the one that is measured. It has no more than an application would have, except that it counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use mainstay::Context;
use mainstay::fleet::{BreakerState, DatabaseFile, Fleet, StoreState, UrlConnector};
use mainstay::outbox::Outbox;
use mainstay::telemetry::names::FLEET_LOOKS;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use crate::pacing;
use crate::wire::{Answer, Order, Report, TOPIC, now};

/// Which handlers have begun, and when.
type Begun = Arc<Mutex<Vec<(u64, u64)>>>;

/// Runs the fleet of this list until told to stop.
pub(crate) async fn run(list: &str) -> Result<()> {
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    let looks = Looks::default();
    metrics::set_global_recorder(looks.clone())?;
    let begun = Begun::default();
    let told = Arc::clone(&begun);
    let fleet = Fleet::builder(DatabaseFile::new(list), UrlConnector::new())
        .each(move |_, mainstay| {
            let begun = Arc::clone(&told);
            mainstay.outbox(|outbox| {
                outbox.raw_handler(TOPIC, move |context: Context| {
                    note(&begun, &context);
                    std::future::ready(())
                })
            })
        })
        .build()?;
    let running = fleet.start().await?;
    crate::child::serve(async |order| {
        Ok(match order {
            Order::Report => Answer::Report(report(&fleet, &looks, &begun)),
            Order::Touch(ids) => {
                for outbox in outboxes(&fleet, &ids)? {
                    pacing::touch(&outbox).await?;
                }
                Answer::Done
            }
            Order::Send(load) => {
                let (to, aside) = (outboxes(&fleet, &load.to)?, outboxes(&fleet, &load.aside)?);
                Answer::Sent(pacing::send(&load, to, aside).await)
            }
            Order::Stop => Answer::Done,
        })
    })
    .await?;
    running.stop().await;
    Ok(())
}

fn note(begun: &Begun, context: &Context) {
    let now = now();
    if let Ok(number) = context.payload().parse() {
        begun.lock().unwrap_or_else(PoisonError::into_inner).push((number, now));
    }
}

fn outboxes(fleet: &Fleet, ids: &[String]) -> Result<Vec<Outbox>> {
    ids.iter().map(|id| Ok(fleet.outbox(id.as_str())?)).collect()
}

fn report(fleet: &Fleet, looks: &Looks, begun: &Begun) -> Report {
    let status = fleet.status();
    let count = |state| status.stores.iter().filter(|store| store.state == state).count();
    Report {
        warm: count(StoreState::Warm),
        waiting: count(StoreState::Waiting),
        failing: status.stores.iter().filter(|store| store.breaker != BreakerState::Closed).count(),
        budget: status.connections.budget,
        used: status.connections.used,
        peak: status.connections.peak,
        looks_sqlite: looks.sqlite.load(Ordering::Relaxed),
        looks_postgres: looks.postgres.load(Ordering::Relaxed),
        begun: std::mem::take(&mut *begun.lock().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Counts looks, and nothing else.
#[derive(Debug, Clone, Default)]
struct Looks {
    sqlite: Arc<AtomicU64>,
    postgres: Arc<AtomicU64>,
}

impl Recorder for Looks {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() != FLEET_LOOKS {
            return Counter::noop();
        }
        let is_sqlite = key.labels().any(|label| label.key() == "provider" && label.value() == "sqlite");
        Counter::from_arc(Arc::clone(if is_sqlite { &self.sqlite } else { &self.postgres }))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
