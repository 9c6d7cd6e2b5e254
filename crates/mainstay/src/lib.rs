//! Reliable background work on the database you already run.
//!
//! A transactional outbox and an inbox over embedded SQLite, PostgreSQL or Microsoft SQL Server: enqueue inside your own transaction, with the driver you
//! already use, and every message is handled at least once, whatever crashes; receive what others send, and handle it once however
//! often it comes.
//!
//! Providers are features: `sqlite`, `postgres`, `sqlserver`. So are the drivers whose transactions can be enqueued in, and where traces go: `otel`, `otlp`.

pub use mainstay_core::*;

pub mod fleet;

pub use mainstay_core::audit::{Actor, Audit, AuditEvent};
pub use mainstay_core::fanout::{Fanout, Slice};
pub use mainstay_core::inbox::{Begin, Inbox, Incoming};
pub use mainstay_core::job::{JobDefinition, Jobs, Misfire, Overlap};
pub use mainstay_core::join::{JoinMode, Joins, NewJoin};
pub use mainstay_core::lease::{Lease, LeaseOptions, Leases};
pub use mainstay_core::operation::{NewOperation, OperationId, OperationScope, Operations};
pub use mainstay_core::outbox::{Message, Outbox};
pub use mainstay_core::queue::{Context, HandlerError, HandlerResult, TopicPolicy};
pub use mainstay_core::runtime::{Mainstay, RunningMainstay};
pub use mainstay_core::timer::{NewTimer, Timers};

/// Mainstay on embedded SQLite.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use mainstay_sqlite::*;
}

/// Mainstay on PostgreSQL.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use mainstay_postgres::*;
}

/// Mainstay on Microsoft SQL Server.
#[cfg(feature = "sqlserver")]
pub mod sqlserver {
    pub use mainstay_sqlserver::*;
}

/// The HTTP interface: a router for axum, and a listener for those that have none.
#[cfg(feature = "server")]
pub mod server {
    pub use mainstay_server::*;
}

/// Traces and metrics over OTLP, to any OpenTelemetry collector.
#[cfg(feature = "otlp")]
pub mod otlp {
    pub use mainstay_otlp::*;
}

/// The examples of the guides compile, and run where they can.
#[cfg(all(doctest, feature = "sqlite", feature = "postgres"))]
mod guides {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guides/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../../../docs/guides/leases.md")]
    struct Leases;
    #[doc = include_str!("../../../docs/guides/transactions.md")]
    struct Transactions;
    #[doc = include_str!("../../../docs/guides/cron.md")]
    struct Cron;
    #[doc = include_str!("../../../docs/guides/jobs.md")]
    struct Jobs;
    #[doc = include_str!("../../../docs/guides/fanout.md")]
    struct Fanout;
    #[doc = include_str!("../../../docs/guides/joins.md")]
    struct Joins;
    #[doc = include_str!("../../../docs/guides/timers.md")]
    struct Timers;
    #[doc = include_str!("../../../docs/guides/operations.md")]
    struct AuditAndOperations;
    #[doc = include_str!("../../../docs/guides/fleet.md")]
    struct Fleet;
    #[doc = include_str!("../../../docs/guides/health.md")]
    struct Health;
    #[doc = include_str!("../../../docs/guides/inbox.md")]
    struct Inbox;
    #[cfg(feature = "sqlserver")]
    #[doc = include_str!("../../../docs/guides/sqlserver.md")]
    struct SqlServer;
    #[cfg(feature = "otlp")]
    #[doc = include_str!("../../../docs/guides/tracing.md")]
    struct Tracing;
}
