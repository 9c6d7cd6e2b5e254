//! The carrier: it reports each parcel that has arrived, and often more than once. The inbox takes each report in once.

use std::sync::atomic::{AtomicU64, Ordering};

use mainstay::inbox::{Inbox, Incoming};
use mainstay::{HandlerResult, Message};
use uuid::Uuid;

use super::Order;

/// The topic of reports.
pub(crate) const ARRIVED: &str = "parcel.arrived";

/// Where the reports of a run come from.
pub(crate) fn source(run: Uuid) -> String {
    format!("carrier-{}", run.simple())
}

/// What the carrier sent, repetitions included.
#[derive(Debug, Default)]
pub(crate) struct Reports(AtomicU64);

impl Reports {
    /// How many it has sent.
    pub(crate) fn sent(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reports the arrival of an order's parcel: once, twice or three times.
pub(super) async fn report(inbox: &Inbox, reports: &Reports, order: &Order) -> HandlerResult {
    for _ in 0..=order.number % 3 {
        let id = format!("parcel-{}", order.number);
        inbox.enqueue(Incoming::new(source(order.run), id, Message::json(ARRIVED, order)?)).await?;
        reports.0.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
