//! The connections: made when first needed, handed out one operation at a time.
//!
//! A query runs in a task that owns its connection. Whoever stops waiting for it ends the task, and the connection with it: the server then
//! undoes what was not complete, and no half-read answer can ever be taken for another's. A connection comes back to the pool only with
//! its answer complete and no transaction open; where an error leaves that in doubt, it is closed as well ([`has_undone`]).

use std::error::Error as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use mainstay_core::store::{Allowance, ConnectionPass, Step};
use mainstay_core::{Error, ErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::driver::{Session, Severance};
use crate::error::{Fault, closed, from_fault, has_undone, unanswered, was_turned_away};
use crate::rows::Row;
use crate::url::Target;

/// How often a statement is tried that lost to a concurrent one.
const CONFLICT_ATTEMPTS: u32 = 5;

/// The longest wait for a lock: less than the shortest patience of a settle (5 s).
const LOCKS_MAX: Duration = Duration::from_secs(4);

/// The longest wait of a handler's own statements.
const HANDLER_LOCKS_MAX: Duration = Duration::from_secs(30);

/// How long a given-up connection keeps its place beyond the longest wait for a lock.
const PARTING: Duration = Duration::from_secs(1);

/// How often a server is tried that refuses for the moment.
const CONNECT_ATTEMPTS: u32 = 3;

/// How much longer one waits for such a server than for a concurrent statement.
const PATIENCE: u32 = 20;

/// What the pool goes by.
#[derive(Debug, Clone)]
pub(crate) struct PoolOptions {
    pub(crate) size: usize,
    pub(crate) connect: Duration,
    pub(crate) acquire: Duration,
    /// How long a call may take once it has a connection.
    pub(crate) call: Duration,
    /// Where connections live, if not where their first operation runs.
    pub(crate) runtime: Option<tokio::runtime::Handle>,
}

impl PoolOptions {
    /// How long a statement waits for another transaction's locks: less than its caller waits for the statement.
    fn locks(&self) -> Duration {
        self.locks_within(LOCKS_MAX)
    }

    fn locks_within(&self, longest: Duration) -> Duration {
        (self.call / 2).clamp(Duration::from_millis(1), longest)
    }
}

/// The pool of connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Pool>);

struct Pool {
    target: Target,
    options: PoolOptions,
    /// Names the database in logs.
    store: String,
    idle: Mutex<Vec<Connection>>,
    slots: Arc<Semaphore>,
    /// How many may be in handlers' transactions; the rest is left to renew and settle while those run.
    transactions: Arc<Semaphore>,
    allowance: Allowance,
    visits: AtomicU64,
}

/// A connection that nobody else has.
struct Connection {
    session: Session,
    /// Counts as an open connection until the last of these is dropped.
    open: Arc<oneshot::Sender<()>>,
}

/// Ends a task unless it has ended.
struct Aborting<T>(JoinHandle<T>);

impl<T> Drop for Aborting<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connections {
    pub(crate) fn new(target: Target, options: PoolOptions, allowance: Allowance) -> Self {
        let store = format!("{}/{}", target.address(), target.database());
        let size = options.size;
        Self(Arc::new(Pool {
            target,
            store,
            idle: Mutex::default(),
            slots: Arc::new(Semaphore::new(size)),
            transactions: Arc::new(Semaphore::new((size - size.div_ceil(4)).max(1))),
            allowance,
            visits: AtomicU64::new(0),
            options,
        }))
    }

    /// How long a call may take once it has a connection.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.0.options.call
    }

    /// The batch that begins a handler's transaction. The handler's own statements wait longer for locks than the pool's.
    pub(crate) fn beginning(&self) -> String {
        let locks = self.0.options.locks_within(HANDLER_LOCKS_MAX).as_millis();
        format!("SET XACT_ABORT ON; SET LOCK_TIMEOUT {locks}; BEGIN TRANSACTION")
    }

    /// The batch that makes the connection the pool's again.
    pub(crate) fn after_transaction(&self, end: &str) -> String {
        format!("{end}; SET LOCK_TIMEOUT {}", self.0.options.locks().as_millis())
    }

    /// Names the database in logs, the way the identifiers of its stores begin.
    pub(crate) fn store(&self) -> &str {
        &self.0.store
    }

    /// How often the server was asked something so far.
    pub(crate) fn visits(&self) -> u64 {
        self.0.visits.load(Ordering::Relaxed)
    }

    /// Whether both are of the same database, over the same connections.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        // Nothing panics while it is held.
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something that others have at the moment, for as long as an operation may. Without an answer the pool is closed.
    async fn turn<T>(
        &self,
        operation: &'static str,
        what: &str,
        turn: impl Future<Output = Option<T>>,
    ) -> Result<T> {
        let limit = self.0.options.acquire;
        match tokio::time::timeout(limit, turn).await {
            Ok(Some(had)) => Ok(had),
            Ok(None) => Err(closed(operation)),
            Err(_) => {
                let message =
                    format!("{what} became free within {limit:?}; raise pool_size if this is common");
                Err(Error::unanswered(operation, message))
            }
        }
    }

    /// A connection, for as long as the lease lives.
    pub(crate) async fn lease(&self, operation: &'static str) -> Result<Lease> {
        let enter = async {
            let slot = Arc::clone(&self.0.slots).acquire_owned().await.ok()?;
            Some((slot, self.0.allowance.enter().await?))
        };
        let (slot, pass) = self.turn(operation, "no connection", enter).await?;
        let connection = match self.idle_one() {
            Some(connection) => connection,
            None => self.connect(operation).await?,
        };
        let (pool, limit) = (self.clone(), Some(self.call_timeout()));
        let (severance, open) = (connection.session.severance(), Arc::clone(&connection.open));
        Ok(Lease {
            connection: Some(connection),
            pool,
            limit,
            deadline: None,
            place: Some(Place { severance, _open: open, permit: None, _pass: pass, _slot: slot }),
        })
    }

    /// A connection for a handler's transaction.
    pub(crate) async fn lease_for_transaction(&self, operation: &'static str) -> Result<Lease> {
        let enter = async { Arc::clone(&self.0.transactions).acquire_owned().await.ok() };
        let permit = self.turn(operation, "no connection for a transaction", enter).await?;
        let mut lease = self.lease(operation).await?;
        if let Some(place) = &mut lease.place {
            place.permit = Some(permit);
        }
        Ok(lease)
    }

    /// The one used last, if the server has not ended it.
    fn idle_one(&self) -> Option<Connection> {
        loop {
            let connection = self.idle().pop()?;
            if !connection.session.is_stale() {
                return Some(connection);
            }
        }
    }

    async fn connect(&self, operation: &'static str) -> Result<Connection> {
        let mut attempt = 1;
        loop {
            let error = match self.connect_once(operation).await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            // Only what the server itself has refused for the moment: whoever can't be reached at all is told so at once.
            let passing = error.is_retryable() && error.source().is_some() && attempt < CONNECT_ATTEMPTS;
            if !passing {
                return Err(error);
            }
            tokio::time::sleep(pause(attempt) * PATIENCE).await;
            attempt += 1;
        }
    }

    async fn connect_once(&self, operation: &'static str) -> Result<Connection> {
        let mut counted = self.0.allowance.count_allowed().await;
        let (target, limit) = (self.0.target.clone(), self.0.options.connect);
        let locks = self.0.options.locks();
        // A connection that is given up half-way is nobody's, so this future may be dropped.
        let opening =
            self.spawn(async move { tokio::time::timeout(limit, Session::open(&target, locks)).await });
        let opened = tokio::select! {
            opened = Aborting(opening).join() => opened,
            () = counted.severed() => return Err(cut(operation)),
        };
        let session = match opened {
            Some(Ok(Ok(session))) => session,
            Some(Ok(Err(fault))) => {
                let error = from_fault(operation, fault);
                let message = format!("{} (server {})", error.message(), self.0.target.address());
                let (kind, retryable) = (error.kind(), error.is_retryable());
                let outer = Error::new(kind, operation, message).with_retryable(retryable);
                return Err(if error.source().is_some() { outer.with_source(error) } else { outer });
            }
            Some(Err(_)) => {
                let message = format!("{} did not answer within {limit:?}", self.0.target.address());
                return Err(Error::unanswered(operation, message));
            }
            None => return Err(closed(operation)),
        };
        let (open, gone) = oneshot::channel::<()>();
        let severance = session.severance();
        // Counts it until it is closed, by whoever has it or by force: then nobody needs to let go of it first.
        drop(self.spawn(async move {
            tokio::select! {
                _ = gone => {}
                () = counted.severed() => severance.sever(),
            }
        }));
        Ok(Connection { session, open: Arc::new(open) })
    }

    /// A connection that is none of the pool's. It waits for locks as long as whoever has it wants.
    pub(crate) async fn open_one(&self, operation: &'static str) -> Result<Session> {
        let mut session = self.connect(operation).await?.session;
        let limit = self.0.options.connect;
        let set = tokio::time::timeout(limit, session.batch("SET LOCK_TIMEOUT -1")).await;
        set.map_err(|_| unanswered(operation, limit))?.map_err(|fault| from_fault(operation, fault))?;
        Ok(session)
    }

    fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        match &self.0.options.runtime {
            Some(runtime) => runtime.spawn(work),
            None => tokio::spawn(work),
        }
    }

    /// Runs one statement in a transaction of its own. When it lost to a concurrent one (a deadlock, a lock that was not to be had), it is tried
    /// again (OBX-082): the server has undone it. So it is on a fresh connection when the server was too busy to begin with it. All attempts
    /// share the time limit of a call, which begins with the first connection.
    pub(crate) async fn run(&self, operation: &'static str, step: &Step) -> Result<Vec<Row>> {
        let (mut attempt, mut before) = (1, None);
        loop {
            let mut lease = match before.take() {
                None => self.lease(operation).await?,
                // Waits for a connection within the time of the call, too.
                Some((deadline, error)) => {
                    let lease = tokio::time::timeout_at(deadline, self.lease(operation)).await;
                    let mut lease = lease.unwrap_or(Err(error))?;
                    lease.deadline = Some(deadline);
                    lease
                }
            };
            let deadline = *lease.deadline.get_or_insert_with(|| end_of(self.call_timeout()));
            let error = match lease.query(operation, step).await {
                Ok(rows) => {
                    lease.give_back();
                    return Ok(rows);
                }
                Err(error) => error,
            };
            let turned_away = was_turned_away(&error);
            // Otherwise it is closed. So it is where the server has become a secondary, or is too busy: the next one may be to another.
            match has_undone(&error) {
                true => lease.give_back(),
                false => drop(lease),
            }
            let lost = error.kind() == ErrorKind::Conflict && error.is_retryable();
            let most = if turned_away { CONNECT_ATTEMPTS } else { CONFLICT_ATTEMPTS };
            let is_late = Instant::now() >= deadline;
            if !(lost || turned_away) || attempt >= most || is_late {
                return Err(error);
            }
            tracing::debug!(store = self.store(), operation, attempt, %error, "not done by the server; trying again");
            tokio::time::sleep(pause(attempt) * if turned_away { PATIENCE } else { 1 }).await;
            before = Some((deadline, error));
            attempt += 1;
        }
    }

    /// How many connections there may be from now on; with none it lets go of those that are not in use.
    pub(crate) fn allow(&self, connections: usize) {
        if let Some(gate) = self.0.allowance.gate() {
            gate.allow(connections);
            self.let_go();
        }
    }

    fn let_go(&self) {
        if self.0.allowance.is_empty() {
            let idle = std::mem::take(&mut *self.idle());
            drop(idle);
        }
    }

    /// Ends all connections, whoever uses them.
    pub(crate) fn sever(&self) {
        self.allow(0);
        self.0.allowance.sever();
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.0.allowance.open()
    }

    /// Waits until no more than so many are open.
    pub(crate) async fn at_most(&self, connections: usize) {
        self.0.allowance.at_most(connections).await;
    }

    /// Whether somebody else says how many connections there may be.
    pub(crate) fn is_gated(&self) -> bool {
        self.0.allowance.gate().is_some()
    }

    pub(crate) fn close(&self) {
        self.0.slots.close();
        self.0.transactions.close();
        if let Some(gate) = self.0.allowance.gate() {
            gate.close();
        }
        let idle = std::mem::take(&mut *self.idle());
        drop(idle);
    }
}

impl<T> Aborting<T> {
    /// What the task returned; none if it was ended or panicked.
    async fn join(mut self) -> Option<T> {
        (&mut self.0).await.ok()
    }
}

/// All connections were closed, this one before it was there.
fn cut(operation: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, operation, "all connections were closed while this one was being made")
}

/// The end of a time limit that begins now. One beyond what the clock can hold is years away.
fn end_of(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or_else(|| now + Duration::from_secs(1 << 30))
}

/// 5 to 10 ms, doubling: random, so that two that met don't meet again.
fn pause(attempt: u32) -> Duration {
    let random = Duration::from_micros(u64::from(Uuid::new_v4().as_u128() as u16) % 5_000);
    (Duration::from_millis(5) + random) * 2u32.pow(attempt - 1)
}

/// A connection that is closed when dropped, unless it is given back.
pub(crate) struct Lease {
    connection: Option<Connection>,
    pool: Connections,
    /// How long a call on it may take.
    limit: Option<Duration>,
    /// When the calls on it end at the latest: attempts of one call share it.
    deadline: Option<Instant>,
    /// None once the connection is given back.
    place: Option<Place>,
}

/// Ends the client's side of a connection when a call on it is given up or has broken it: the lease may live on.
struct GivingUp(Option<Severance>);

impl Drop for GivingUp {
    fn drop(&mut self) {
        if let Some(severance) = &self.0 {
            severance.half_close();
        }
    }
}

/// The place of a connection in the pool.
struct Place {
    severance: Severance,
    _open: Arc<oneshot::Sender<()>>,
    permit: Option<OwnedSemaphorePermit>,
    /// Let go of last.
    _pass: Option<ConnectionPass>,
    _slot: OwnedSemaphorePermit,
}

impl Lease {
    /// Runs a statement.
    pub(crate) async fn query(&mut self, operation: &'static str, step: &Step) -> Result<Vec<Row>> {
        let step = step.clone();
        self.with(operation, move |session| Box::pin(async move { session.query(&step).await })).await
    }

    /// Runs a batch.
    pub(crate) async fn batch(
        &mut self,
        operation: &'static str,
        sql: impl Into<String>,
    ) -> Result<Vec<Row>> {
        let sql = sql.into();
        self.with(operation, move |session| Box::pin(async move { session.batch(&sql).await })).await
    }

    /// Takes the time limit of calls off, for the deployment of the schema: it waits for others, and a step over a large table takes as
    /// long as it takes.
    pub(crate) fn unbounded(mut self) -> Self {
        self.limit = None;
        self
    }

    /// Does something with the connection within the time limit of calls.
    async fn with<T, F>(&mut self, operation: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut Session) -> BoxFuture<'a, Result<T, Fault>> + Send + 'static,
    {
        self.within(self.limit, operation, work).await
    }

    /// Does something with the connection in a task of its own. Dropped midway, or without an answer in time, it takes the connection
    /// along: the driver can't send an attention, but a server that finds the connection closed ends its statement and rolls back.
    pub(crate) async fn within<T, F>(
        &mut self,
        limit: Option<Duration>,
        operation: &'static str,
        work: F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut Session) -> BoxFuture<'a, Result<T, Fault>> + Send + 'static,
    {
        let Some(mut connection) = self.connection.take() else {
            let message = "the connection was lost, or a call on it was given up midway; nothing can be done on it any more";
            return Err(Error::new(ErrorKind::Unavailable, operation, message));
        };
        self.pool.0.visits.fetch_add(1, Ordering::Relaxed);
        let mut giving_up = GivingUp(Some(connection.session.severance()));
        let task = self.pool.spawn(async move {
            let result = work(&mut connection.session).await;
            (connection, result)
        });
        let answer = Aborting(task).join();
        let answer = match limit {
            Some(limit) => {
                let end = self.deadline.map_or(end_of(limit), |deadline| deadline.min(end_of(limit)));
                tokio::time::timeout_at(end, answer).await.map_err(|_| unanswered(operation, limit))?
            }
            None => answer.await,
        };
        let Some((connection, result)) = answer else {
            return Err(Error::new(ErrorKind::Unavailable, operation, "the connection's task was ended"));
        };
        if result.as_ref().err().is_none_or(Fault::leaves_connection) {
            giving_up.0 = None;
            self.connection = Some(connection);
        }
        result.map_err(|fault| from_fault(operation, fault))
    }

    /// Back to the pool: nothing is under way on it.
    pub(crate) fn give_back(mut self) {
        let Some(connection) = self.connection.take() else { return };
        let place = self.place.take();
        if self.pool.0.slots.is_closed() {
            return;
        }
        self.pool.idle().push(connection);
        // Free once the connection is there to be had.
        drop(place);
        // It may have come back after all others were let go.
        self.pool.let_go();
    }
}

/// A connection that is not given back keeps its place until the server has closed it, too: its session may still wait for a lock there. A
/// server that does not answer has ended that wait by the limit, or is not there any more.
impl Drop for Lease {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let options = &self.pool.0.options;
        let limit = options.locks() + PARTING;
        let runtime = options.runtime.clone().or_else(|| tokio::runtime::Handle::try_current().ok());
        let parting = async move {
            drop(tokio::time::timeout(limit, place.severance.part()).await);
            place.severance.sever();
            drop(place);
        };
        match runtime {
            Some(runtime) => drop(runtime.spawn(parting)),
            None => drop(parting),
        }
    }
}
