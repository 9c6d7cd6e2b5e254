//! What a provider supplies to be tested: a database of its own, and the few things the seam rightly has no
//! method for, such as moving time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::audit::{Audit, AuditEvent, AuditId};
use mainstay_core::fanout::{Fanout, FanoutSlice, Slice};
use mainstay_core::fleet::{Connect, DatabaseEntry};
use mainstay_core::inbox::{Guard, Inbox, Incoming, Received};
use mainstay_core::join::{Joins, NewJoin};
use mainstay_core::lease::Lease;
use mainstay_core::operation::{NewOperation, OperationId, Operations};
use mainstay_core::outbox::{Enqueued, Message, Outbox};
use mainstay_core::queue::Context;
use mainstay_core::store::{Names, Provider, Queue, StoreTransaction};
use mainstay_core::timer::{NewTimer, Timers};
use mainstay_core::{JoinId, Result};

use crate::session::Session;

/// How an application ends its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It commits.
    Commit,
    /// It rolls back.
    Rollback,
}

/// Why a provider has no counterpart for something: the capability it lacks, and a few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lacking(pub &'static str);

/// An instance whose visits to its database are counted.
pub struct Metered {
    /// The instance.
    pub provider: Arc<dyn Provider>,
    /// How often it has asked the database so far: round trips, or transactions where the database is in the same process.
    pub visits: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// One of several databases.
pub struct Tenant {
    /// How a fleet is told of it.
    pub entry: DatabaseEntry,
    /// An instance with connections of its own, which no affliction is in the way of.
    pub provider: Arc<dyn Provider>,
}

/// What can be wrong with a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affliction {
    /// It can't be reached.
    Dead,
    /// It takes what it is sent, and says nothing.
    Silent,
    /// Its schema is that of a program of the future.
    WrongSchema,
    /// It is gone.
    Vanished,
    /// Nothing can be written to it in reasonable time; it can be read.
    Slow,
    /// Its disk is full.
    Full,
}

/// One fresh database of a provider. Each case gets its own fixture.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// The provider and its mode, as in the report: `sqlite-file`, `postgres-pgbouncer`, …
    fn provider_name(&self) -> &'static str;

    /// Whether a wait hears of an enqueue by other instances. Not so where a pooler keeps notifications back; then new
    /// work is found by polling.
    fn hears_of_enqueues(&self) -> bool {
        true
    }

    /// The database with the schema deployed under the default names, and no rows. The same one on every call.
    async fn provider(&self) -> Arc<dyn Provider>;

    /// Another instance with connections of its own on the same database: another process, in effect. Where a
    /// database can't be shared, the same instance.
    async fn second(&self) -> Arc<dyn Provider>;

    /// The same with its visits to the database counted.
    async fn metered(&self) -> Metered;

    /// Another database, without a schema.
    async fn undeployed(&self) -> Arc<dyn Provider>;

    /// The database of [`Fixture::provider`] under other names, without a schema for these.
    async fn with_names(&self, names: Names) -> Arc<dyn Provider>;

    /// Lets time pass without waiting: moves every stored time of the tables under `names` back by `by`.
    async fn advance(&self, names: &Names, by: Duration);

    /// Sets the clock back: moves every stored time of the tables under `names` on by `by`.
    async fn set_back(&self, names: &Names, by: Duration);

    /// All that stands in the tables under `names`, and where the database keeps versions of rows apart, which these are: the same text
    /// twice means that nothing was written in between, not even what was there before.
    async fn contents(&self, names: &Names) -> String;

    /// Everything the deployment made under `names`, as `table outbox`, `index outbox_ready`, `function
    /// outbox_claim`: the kind, and the name without the schema.
    async fn objects(&self, names: &Names) -> BTreeSet<String>;

    /// The columns of a table under `names`, told by its name without the schema.
    async fn columns(&self, names: &Names, table: &str) -> BTreeSet<String>;

    /// Opens a session of plain SQL on a queue of the database under `names`.
    async fn session(&self, _names: &Names, _queue: Queue) -> Result<Box<dyn Session>, Lacking> {
        Err(Lacking("functions: there is no plain SQL for claims, and only one transaction writes at a time"))
    }

    /// What a claim of ten from this queue walks through from end to end although it needs only a part, in the database's own words; empty
    /// where it goes by indexes. There are thousands of rows when this is asked, and it changes none.
    async fn scans_of_a_claim(&self, names: &Names, queue: Queue) -> Result<Vec<String>, Lacking>;

    /// Makes the ledger of migrations say that another program took this step, which allows programs from
    /// `oldest_program` on.
    async fn record_step(&self, names: &Names, version: i32, checksum: &str, oldest_program: i32);

    /// Runs one transaction on the application's own driver: writes `note` into a table of the application, makes
    /// it if need be, enqueues `messages` with `enqueue_in`, and ends as told.
    async fn transact(
        &self,
        outbox: &Outbox,
        note: &str,
        messages: Vec<Message>,
        end: End,
    ) -> Result<Vec<Enqueued>>;

    /// Runs one transaction on the application's own driver: writes `note` into the same table, guards `lease`, and ends as told.
    /// Where the guard fails, it rolls back.
    async fn guarded(&self, lease: &Lease, note: &str, end: End) -> Result<()>;

    /// Ends a delivery as a handler would that guards `lease` in its transaction and writes `note`.
    async fn complete_guarded(&self, context: &Context, lease: &Lease, note: &str) -> Result<()>;

    /// The same with a timer: schedules it with `schedule_in`.
    async fn schedule(&self, timers: &Timers, note: &str, timer: NewTimer, end: End) -> Result<Enqueued>;

    /// The same with messages received by `enqueue_in` of the inbox.
    async fn receive(
        &self,
        inbox: &Inbox,
        note: &str,
        incoming: Vec<Incoming>,
        end: End,
    ) -> Result<Vec<Received>>;

    /// The same with a guard completed by `complete_in`. Rolls back when that fails.
    async fn complete_guard(&self, guard: &Guard, note: &str, end: End) -> Result<()>;

    /// Runs one transaction on the application's own driver: starts `join` with `start_in`, enqueues `messages` as its steps with `enqueue_in`,
    /// and ends as told.
    async fn start_joined(
        &self,
        joins: &Joins,
        outbox: &Outbox,
        join: NewJoin,
        messages: Vec<Message>,
        end: End,
    ) -> Result<JoinId>;

    /// The same with a slice completed by `complete_in` of the fan-outs.
    async fn complete_slice_in(
        &self,
        fanout: &Fanout,
        slice: &FanoutSlice,
        at: Timestamp,
        note: &str,
        end: End,
    ) -> Result<bool>;

    /// Ends a delivery as a handler would that completes its slice in its transaction and writes `note`. Where told to roll back, the
    /// delivery goes on.
    async fn complete_slice(
        &self,
        context: &Context,
        slice: &Slice,
        at: Timestamp,
        note: &str,
        end: End,
    ) -> Result<()>;

    /// The same with an event recorded by `write_in` of the audit trail.
    async fn record(&self, audit: &Audit, note: &str, event: AuditEvent, end: End) -> Result<AuditId>;

    /// The same with an operation that is started by `start_in` and ended as succeeded by `end_in`.
    async fn track(
        &self,
        operations: &Operations,
        note: &str,
        new: NewOperation,
        end: End,
    ) -> Result<OperationId>;

    /// Tries to change, delete and empty what the audit trail holds, with the rights of the tables' owner. What the database said to
    /// each attempt; none where it let it happen.
    async fn tamper_with_audit(&self, names: &Names) -> Vec<Option<String>>;

    /// Writes `note` into the same table within a handler's transaction.
    async fn write_note(&self, transaction: &mut dyn StoreTransaction, note: &str);

    /// Ends a delivery as a handler would: takes its transaction, writes `note`, enqueues `follow_up`, and completes.
    async fn complete(&self, context: &Context, note: &str, follow_up: Message) -> Result<()>;

    /// The committed notes, sorted.
    async fn notes(&self) -> Vec<String>;

    /// The same database for a role that has only the rights the documentation names.
    async fn least_privilege(&self) -> Result<Arc<dyn Provider>, Lacking>;

    /// The same database for a role that may connect and nothing else.
    async fn without_rights(&self) -> Result<Arc<dyn Provider>, Lacking>;

    /// The same database over a connection that is encrypted and checks the server's certificate, and whether the
    /// database itself says that it is encrypted.
    async fn encrypted(&self) -> Result<(Arc<dyn Provider>, bool), Lacking>;

    /// A further database with the schema deployed under the default names, and no rows, under this id.
    async fn tenant(&self, id: &str) -> Tenant;

    /// A further database without a schema, under this id.
    async fn bare_tenant(&self, id: &str) -> Tenant;

    /// What connects a fleet to such databases.
    fn connector(&self) -> Arc<dyn Connect>;

    /// Makes something wrong with a further database, for the fleet.
    async fn afflict(&self, tenant: &Tenant, affliction: Affliction) -> Result<(), Lacking>;

    /// Ends that.
    async fn heal(&self, tenant: &Tenant);

    /// Whether tables can be called anything: not every engine keeps the quotes around the names of all it makes.
    async fn takes_any_name(&self) -> Result<(), Lacking> {
        Ok(())
    }

    /// What a function of the contract is among the schema's objects: not every database calls it one, or writes its name as it is written there.
    fn object_of(&self, function: &str) -> String {
        format!("function {function}")
    }

    /// Whether these arguments can be put to a function at all: not every database has infinite times, or lists of different lengths, or this very function.
    fn can_say(&self, _function: &str, _arguments: &[Option<&str>]) -> bool {
        true
    }

    /// Calls a function of the schema as any language could, with `arguments` as literals (none is null), and returns
    /// the first column of each row as text; the error is the database's own text. Only asked of providers whose
    /// capabilities have functions.
    async fn call(
        &self,
        names: &Names,
        function: &str,
        arguments: &[Option<&str>],
    ) -> Result<Vec<String>, String>;
}
