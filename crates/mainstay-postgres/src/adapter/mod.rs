//! What stores do in transactions of the drivers that applications use. Each adapter calls the same SQL functions on the
//! caller's connection and neither commits nor rolls back (OBX-003).

mod deadpool;
#[cfg(feature = "diesel")]
mod diesel;
#[cfg(feature = "sea-orm")]
mod sea_orm;
#[cfg(feature = "sqlx")]
mod sqlx;
mod tokio_postgres;

use mainstay_core::store::{Argument, StoreCall};
use mainstay_core::{Error, ErrorKind, Result};

pub use self::deadpool::Deadpool;
#[cfg(feature = "diesel")]
pub use self::diesel::DieselAsync;
#[cfg(feature = "sea-orm")]
pub use self::sea_orm::SeaOrm;
#[cfg(feature = "sqlx")]
pub use self::sqlx::Sqlx;
pub use self::tokio_postgres::TokioPostgres;
pub(crate) use self::tokio_postgres::{call_on, enqueue_on, guard_on};

#[cfg(any(feature = "sqlx", feature = "diesel", feature = "sea-orm"))]
const ENQUEUE: &str = "outbox.enqueue";

const GUARD: &str = "lease.guard";

/// What a driver returned as texts.
#[cfg(any(feature = "sqlx", feature = "diesel", feature = "sea-orm"))]
fn enqueued(work_item: &str, message: &str, added: bool) -> Result<mainstay_core::outbox::Enqueued> {
    Ok(mainstay_core::outbox::Enqueued { work_item: work_item.parse()?, message: message.parse()?, added })
}

/// What the calls of this provider's stores are known by.
#[derive(Debug, Default)]
pub(crate) struct Origin;

/// The statements of a call with their arguments as texts, or what is wrong with running it in a transaction of PostgreSQL.
fn steps(call: &StoreCall) -> Result<impl Iterator<Item = (&str, Vec<Option<String>>)>> {
    if !call.origin.is::<Origin>() {
        let message = format!(
            "this is a transaction of PostgreSQL, but the store is {}; use a transaction of its own database",
            call.store
        );
        return Err(Error::new(ErrorKind::Unsupported, call.operation, message));
    }
    let text = |argument: &Argument| match argument {
        Argument::Null => None,
        Argument::Integer(number) => Some(number.to_string()),
        Argument::Text(text) => Some(text.clone()),
        Argument::Bytes(bytes) => Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
    };
    Ok(call.steps.iter().map(move |step| (&*step.sql, step.arguments.iter().map(text).collect())))
}
