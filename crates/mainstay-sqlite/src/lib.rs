//! Mainstay on SQLite: reliable background work in one file, with nothing to install.
//!
//! ```
//! use mainstay_core::outbox::{Message, Outbox};
//! use mainstay_core::store::Provider;
//! use mainstay_sqlite::Sqlite;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> mainstay_core::Result<()> {
//! let sqlite = Sqlite::memory().await?; // or Sqlite::open("app.db")
//! sqlite.schema().deploy().await?;
//! let outbox = Outbox::new(sqlite.outbox());
//! outbox.enqueue(Message::new("order.paid", r#"{"order":7}"#)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! One thread owns the connection that writes. All operations that wait go into one transaction, so the price of a durable
//! commit is shared (`synchronous=FULL`: what a call has returned survives the loss of power). A few other connections
//! read meanwhile. Other processes may use the same file at the same time; see [`SqliteBuilder::busy_timeout`].
//!
//! Processes that write to one file take turns, so that a busy one leaves the others their share: each
//! locks the empty file `app.db-turn` beside the database until its transaction has begun. Any other
//! program may write without it, and should set a busy timeout. One that wants its turn beside a busy
//! process does the same: `flock` on that file, `BEGIN IMMEDIATE`, unlock. On systems other than Unix
//! there is no such file, and a busy process can make others wait up to their busy timeout.
//!
//! Statements are interrupted at a limit ([`SqliteBuilder::statement_limit`],
//! [`SqliteBuilder::transaction_limit`]), so that none keeps the only writer for itself.
//!
//! SQLite has one writer at a time. A handler that takes a transaction ([`SqliteTransaction`]) has the writer to itself
//! until it ends, so it should be short, and must not wait for an operation of the store from within: that would wait for the
//! transaction, until the [limit](SqliteBuilder::transaction_limit) ends it.
//!
//! # From other languages
//!
//! The tables are the interface. Any program that can open the file enqueues in its own transaction with
//!
//! ```sql
//! INSERT INTO infra_outbox (topic, payload) VALUES (?, ?)
//! ```
//!
//! and may also give `id` and `message_id` (16-byte blobs; a random UUID by default, so give a UUIDv7 where listings
//! should be in order of time), `correlation_id`, `due_at` and `expires_at` (microseconds since 1970-01-01 UTC), `priority`
//! (-9 to 9), `ordering_key`, `hold_on_failure` (0 or 1) and `headers` (a JSON object of texts). Everything else is
//! Mainstay's. Constraints refuse what would break the rules. An `idempotency_key` is not checked by a plain INSERT: to
//! have it checked, insert the key into `infra_outbox_idempotency` first, and skip the message if that conflicts.
//!
//! A message that came from elsewhere is received into the inbox, once however often it comes, with
//!
//! ```sql
//! INSERT INTO infra_inbox_received (source, message_id, topic, payload) VALUES (?, ?, ?, ?)
//! ```

mod adapter;
mod agenda;
mod audit;
mod call;
mod connection;
mod database;
mod diagnosis;
mod error;
mod fanout;
mod fleet;
mod health;
mod inbox;
mod jobs;
mod joins;
mod lease;
mod limit;
mod link;
mod operations;
mod options;
mod provider;
mod queue;
mod reader;
mod schema;
mod statements;
mod timer;
mod transaction;
mod value;
mod wake;
mod watch;
mod writer;

pub use adapter::InSqlite;
pub use audit::SqliteAudit;
pub use fanout::SqliteFanout;
pub use fleet::{SqliteConnector, SqliteDiscovery};
pub use inbox::SqliteInbox;
pub use jobs::SqliteJobs;
pub use joins::SqliteJoins;
pub use lease::SqliteLeases;
pub use operations::SqliteOperations;
pub use options::SqliteBuilder;
pub use provider::Sqlite;
pub use queue::SqliteQueue;
pub use schema::MIGRATIONS;
pub use transaction::SqliteTransaction;
