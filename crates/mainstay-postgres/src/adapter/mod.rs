//! Enqueueing and guarding leases in transactions of the drivers that applications use. Each adapter calls the same SQL functions on the
//! caller's connection and neither commits nor rolls back (OBX-003).

mod deadpool;
#[cfg(feature = "diesel")]
mod diesel;
#[cfg(feature = "sea-orm")]
mod sea_orm;
#[cfg(feature = "sqlx")]
mod sqlx;
mod tokio_postgres;

pub use self::deadpool::Deadpool;
#[cfg(feature = "diesel")]
pub use self::diesel::DieselAsync;
#[cfg(feature = "sea-orm")]
pub use self::sea_orm::SeaOrm;
#[cfg(feature = "sqlx")]
pub use self::sqlx::Sqlx;
pub use self::tokio_postgres::TokioPostgres;
pub(crate) use self::tokio_postgres::{enqueue_on, guard_on};

#[cfg(any(feature = "sqlx", feature = "diesel", feature = "sea-orm"))]
const ENQUEUE: &str = "outbox.enqueue";

#[cfg(any(feature = "sqlx", feature = "diesel", feature = "sea-orm"))]
const GUARD: &str = "lease.guard";

/// What a driver returned as texts.
#[cfg(any(feature = "sqlx", feature = "diesel", feature = "sea-orm"))]
fn enqueued(
    work_item: &str,
    message: &str,
    added: bool,
) -> mainstay_core::Result<mainstay_core::outbox::Enqueued> {
    Ok(mainstay_core::outbox::Enqueued { work_item: work_item.parse()?, message: message.parse()?, added })
}
