//! Reminders: some time after a parcel has gone, its customer is asked for a review, unless the customer has written one by then.
//! Each is a timer; it becomes a message of the outbox when it is due.

use std::time::Duration;

use mainstay::timer::{NewTimer, Timers};
use mainstay::{Context, HandlerResult};
use uuid::Uuid;

use super::Order;

/// The topic of reminders.
pub(crate) const REMIND: &str = "review.remind";

/// Links the reminders of a run, apart from its orders.
pub(crate) fn correlation(run: Uuid) -> String {
    format!("demo-{}-reminders", run.simple())
}

/// One order in ten is reminded of.
fn is_wanted(order: &Order) -> bool {
    order.number % 10 == 4
}

/// One customer in ten of these writes a review at once.
fn is_reviewed(order: &Order) -> bool {
    order.number % 100 == 14
}

/// Schedules the reminder of an order whose parcel has gone. Asked twice, it schedules one.
pub(super) async fn schedule(timers: &Timers, order: &Order) -> HandlerResult {
    if !is_wanted(order) {
        return Ok(());
    }
    let wait = Duration::from_millis(300 + order.number % 700);
    let timer = NewTimer::json(REMIND, order, wait)?
        .correlation(correlation(order.run))
        .idempotency_key(format!("{}-{}", order.run.simple(), order.number));
    let scheduled = timers.schedule(timer).await?;
    if is_reviewed(order) {
        timers.cancel(scheduled.work_item).await?;
    }
    Ok(())
}

/// Asks for the review.
pub(super) async fn remind(_order: Order, _context: Context) -> HandlerResult {
    Ok(())
}
