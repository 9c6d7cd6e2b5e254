//! The shop of the demo: customers place orders, workers ship them, and at the end the books are checked. Beside that, timers remind
//! customers, a job takes stock every second, an inbox takes in what the carrier reports (often twice), two foremen want the
//! one forklift, and a fan-out has the branches counted, each in a database of its own.
//!
//! All of it is real: orders and shipments are rows in the same database as the outbox, an order and its message are
//! one transaction, and so are a shipment, the notice it causes and the end of the message. The books are read from
//! the database alone, never from counts kept in this process.

mod beside;
mod books;
mod branches;
mod carrier;
mod customers;
mod foremen;
mod inventory;
mod order;
mod postgres;
mod reminders;
mod report;
mod run;
mod sqlite;
mod sqlserver;
mod stock;
mod view;
mod workers;

use std::sync::Arc;

use mainstay::lease::Lease;
use mainstay::{Context, HandlerResult, Outbox};
use uuid::Uuid;

pub(crate) use order::{Kind, Order};
pub(crate) use postgres::PostgresShop;
pub(crate) use report::tell;
pub(crate) use run::{Plan, run};
pub(crate) use sqlite::SqliteShop;
pub(crate) use sqlserver::SqlServerShop;
pub(crate) use view::View;

use books::Ledger;

/// The schema the demo keeps to, so that it never meets anybody's real messages.
pub(crate) const SCHEMA: &str = "mainstay_demo";

/// The shop's own tables, on one kind of database.
pub(crate) trait Shop: Send + Sync + 'static {
    /// Makes the tables, if they are not there.
    fn open(&self) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Writes an order and its message in one transaction.
    fn place(&self, outbox: &Outbox, order: &Order) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Writes a shipment, the notice to the customer and the end of the message in one transaction.
    fn ship(&self, order: &Order, context: &Context) -> impl Future<Output = HandlerResult> + Send;

    /// Writes the arrival of a parcel and the end of the carrier's report in one transaction.
    fn arrive(&self, order: &Order, context: &Context) -> impl Future<Output = HandlerResult> + Send;

    /// Writes a shift in a transaction that guards the lease.
    fn write_shift(
        &self,
        run: Uuid,
        foreman: &str,
        lease: &Arc<Lease>,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Reads what a run wrote.
    fn ledger(&self, run: Uuid) -> impl Future<Output = anyhow::Result<Ledger>> + Send;
}
