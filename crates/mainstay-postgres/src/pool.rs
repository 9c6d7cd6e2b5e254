//! The connections: made when first needed, handed out one operation at a time.
//!
//! A connection goes back to the pool only when its operation has ended. One whose operation was dropped midway, or got no
//! answer in time, is closed instead ([`closing`](crate::closing)): the server ends what is under way on it and undoes what was
//! not complete.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Connect, Hook, Manager, ManagerConfig, Object, Pool, PoolError, QueueMode,
    RecyclingMethod, Runtime, TimeoutType,
};
use futures_util::future::join3;
use mainstay_core::store::{Allowance, ConnectionPass, CountedConnection};
use mainstay_core::{Error, ErrorKind, Result};
use tokio::sync::AcquireError;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Connection, Row, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::cancel::Cancel;
use crate::closing::{Abandoned, Closer};
use crate::contention::{Permit, Places, Turn, Wait};
use crate::error::{PoolLimits, closed, from_driver, from_pool, held_up, unanswered};
use crate::lending::{Lent, Switches};
use crate::session::{Session, is_stale};
use crate::url::{Server, Target};

/// How often a statement is tried that lost to a concurrent one.
const CONFLICT_ATTEMPTS: u32 = 5;

/// A parameter of a statement, with its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

type TlsStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// Makes connections to whichever server of the URL answers.
#[derive(Clone)]
pub(crate) struct Connector {
    servers: Arc<[Config]>,
    addresses: Arc<[Server]>,
    shuffled: bool,
    tls: MakeRustlsConnect,
    timeout: Duration,
    /// Names the database in logs, the way the identifiers of its stores begin.
    store: Arc<str>,
    allowance: Allowance,
}

/// No server answered in time.
struct NoAnswer;

impl Connector {
    pub(crate) fn new(
        target: &Target,
        mode: SslMode,
        tls: MakeRustlsConnect,
        timeout: Duration,
        allowance: Allowance,
    ) -> Self {
        let servers = target.servers.iter().map(|server| {
            let mut config = target.config.clone();
            config.host(&server.host).port(server.port).ssl_mode(mode).connect_timeout(timeout);
            // A peer that vanished without a word must not hold a worker for the system's two hours.
            if config.get_keepalives_idle() > Duration::from_secs(3_600) {
                config.keepalives_idle(Duration::from_secs(30));
            }
            config.keepalives_interval(config.get_keepalives_interval().unwrap_or(Duration::from_secs(10)));
            config.keepalives_retries(config.get_keepalives_retries().unwrap_or(3));
            if config.get_tcp_user_timeout().is_none() {
                config.tcp_user_timeout(Duration::from_secs(30));
            }
            config
        });
        let store = format!("{}/{}", target.address(), target.database()).into();
        let addresses = target.servers.iter().cloned().collect();
        let servers = servers.collect();
        Self { servers, addresses, shuffled: target.shuffled, tls, timeout, store, allowance }
    }

    /// How long each server has to accept a connection.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What cancels statements on the connections.
    fn cancel(&self) -> Cancel {
        Cancel {
            servers: Arc::clone(&self.addresses),
            tls: self.tls.clone(),
            timeout: self.timeout,
            store: Arc::clone(&self.store),
        }
    }

    /// Counts a connection for as long as the answer lives.
    pub(crate) fn count(&self) -> CountedConnection {
        self.allowance.count()
    }

    /// A connection of one's own, outside the pool.
    pub(crate) async fn connect(
        &self,
        operation: &'static str,
    ) -> Result<(Client, Connection<Socket, TlsStream>)> {
        match self.connect_any().await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(error)) => Err(from_driver(operation, error)),
            Err(NoAnswer) => Err(Error::unanswered(operation, "no server answered in time")),
        }
    }

    /// The first server that answers, each given the whole time limit: one that takes the connection and then
    /// says nothing must not keep the others from being tried.
    async fn connect_any(
        &self,
    ) -> Result<Result<(Client, Connection<Socket, TlsStream>), tokio_postgres::Error>, NoAnswer> {
        let count = self.servers.len();
        let first = if self.shuffled { Uuid::new_v4().as_u128() as usize % count } else { 0 };
        let mut refused = None;
        for at in 0..count {
            let config = &self.servers[(first + at) % count];
            match tokio::time::timeout(self.timeout, config.connect(self.tls.clone())).await {
                Ok(Ok(connected)) => return Ok(Ok(connected)),
                Ok(Err(error)) => refused = Some(error),
                Err(_) => {}
            }
        }
        refused.map(Err).ok_or(NoAnswer)
    }
}

impl Connect for Connector {
    fn connect(
        &self,
        _: &Config,
    ) -> std::pin::Pin<
        Box<dyn Future<Output = Result<(Client, JoinHandle<()>), tokio_postgres::Error>> + Send + '_>,
    > {
        Box::pin(async move {
            // Operations have asked before they came here; this is for those who use the pool directly.
            let mut counted = self.allowance.count_allowed().await;
            let (client, connection) = match self.connect_any().await {
                Ok(connected) => connected?,
                // The driver has no public way to make this error; the pool's own time limit is about to strike.
                Err(NoAnswer) => std::future::pending().await,
            };
            let store = Arc::clone(&self.store);
            let switch = CancellationToken::new();
            Switches::announce(switch.clone());
            let task = tokio::spawn(async move {
                tokio::select! {
                    ended = connection => {
                        if let Err(error) = ended {
                            tracing::debug!(%store, %error, "a connection ended");
                        }
                    }
                    () = switch.cancelled() => tracing::debug!(%store, "a connection without an answer was closed in use"),
                    () = counted.severed() => tracing::debug!(%store, "a connection that may not be answered was closed"),
                }
            });
            Ok((client, task))
        })
    }
}

/// The pool of connections.
#[derive(Clone)]
pub(crate) struct Connections {
    pool: Pool,
    closer: Arc<Closer>,
    /// How many may be in handlers' transactions and in calls that wait for others; the rest is left to claim, renew and settle.
    places: Places,
    /// Whether the database's default isolation is not the one that claims need, so that each statement says it.
    isolate: Arc<AtomicBool>,
    /// Whether statements are prepared once per connection.
    prepared: bool,
    /// Names the database in logs.
    store: Arc<str>,
    allowance: Allowance,
}

impl Connections {
    pub(crate) fn new(connector: Connector, size: usize, prepared: bool, limits: PoolLimits) -> Result<Self> {
        let servers = connector.servers.len() as u32;
        let (store, allowance) = (Arc::clone(&connector.store), connector.allowance.clone());
        let cancel = connector.cancel();
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(Config::new(), connector, config);
        let switches = Arc::new(Switches::default());
        let attached = Arc::clone(&switches);
        let pool = Pool::builder(manager)
            .post_create(Hook::sync_fn(move |connection, _| {
                attached.attach(connection);
                Ok(())
            }))
            .runtime(Runtime::Tokio1)
            .max_size(size)
            // The last used first: the rest can idle in peace.
            .queue_mode(QueueMode::Lifo)
            .wait_timeout(Some(limits.acquire))
            .create_timeout(Some(limits.connect * servers + Duration::from_millis(100)))
            .build();
        let pool = pool.map_err(|error| {
            Error::new(ErrorKind::Internal, "postgres.connect", "the pool can't be built").with_source(error)
        })?;
        let closer = Arc::new(Closer::new(pool.clone(), cancel, limits, switches));
        Ok(Self {
            pool,
            closer,
            places: Places::new(size),
            isolate: Arc::default(),
            prepared,
            store,
            allowance,
        })
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Names the database in logs, the way the identifiers of its stores begin.
    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    /// Whether statements are prepared once per connection.
    pub(crate) fn prepared(&self) -> bool {
        self.prepared
    }

    pub(crate) fn close(&self) {
        self.pool.close();
        self.places.close();
        if let Some(gate) = self.allowance.gate() {
            gate.close();
        }
    }

    /// Waits until statements that were given up have ended, but not for long.
    pub(crate) async fn wait_for_closing(&self) {
        self.closer.wait().await;
    }

    fn limits(&self) -> &PoolLimits {
        self.closer.limits()
    }

    /// A connection, for as long as the lease lives.
    pub(crate) async fn lease(&self, operation: &'static str) -> Result<Lease> {
        let limits = self.limits();
        let pass = match tokio::time::timeout(limits.acquire, self.allowance.enter()).await {
            Ok(Some(pass)) => pass,
            Ok(None) => return Err(closed(operation)),
            Err(_) => return Err(from_pool(operation, PoolError::Timeout(TimeoutType::Wait), limits)),
        };
        let object = self.pool.get().await.map_err(|error| from_pool(operation, error, limits))?;
        let gated = pass.is_some().then(|| self.clone());
        let closer = Arc::clone(&self.closer);
        Ok(Lease {
            object: Some(object),
            closer,
            is_given_up: AtomicBool::new(false),
            permit: None,
            gated,
            pass,
        })
    }

    /// How many connections the pool may have from now on; with none it lets go of those that are not in use.
    pub(crate) fn allow(&self, connections: usize) {
        if let Some(gate) = self.allowance.gate() {
            gate.allow(connections);
            self.let_go();
        }
    }

    /// Closes what is not in use, if there may be no connections.
    fn let_go(&self) {
        if self.allowance.is_empty() {
            drop(self.pool.retain(|_, _| false));
        }
    }

    /// Closes all, whoever uses them.
    pub(crate) fn sever(&self) {
        self.allow(0);
        self.allowance.sever();
    }

    /// How many connections are open, of all kinds.
    pub(crate) fn open(&self) -> usize {
        self.allowance.open()
    }

    /// How many the pool has at most.
    pub(crate) fn max_size(&self) -> usize {
        self.pool.status().max_size
    }

    /// Waits until no more than so many connections are open, of all kinds.
    pub(crate) async fn at_most(&self, connections: usize) {
        self.allowance.at_most(connections).await;
    }

    /// Whether somebody else says how many connections there may be.
    pub(crate) fn is_gated(&self) -> bool {
        self.allowance.gate().is_some()
    }

    /// A connection for a handler's transaction.
    pub(crate) async fn lease_for_transaction(&self, operation: &'static str) -> Result<Lease> {
        let permit = self.permit(operation, self.places.for_transaction()).await?;
        let mut lease = self.lease(operation).await?;
        lease.permit = Some(permit);
        Ok(lease)
    }

    async fn permit(
        &self,
        operation: &'static str,
        permit: impl Future<Output = Result<Permit, AcquireError>>,
    ) -> Result<Permit> {
        match tokio::time::timeout(self.limits().acquire, permit).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(closed(operation)),
            Err(_) => Err(from_pool(operation, PoolError::Timeout(TimeoutType::Wait), self.limits())),
        }
    }

    /// Runs one statement in a transaction that can write nothing, and that goes by indexes whatever the statistics say.
    pub(crate) async fn look(
        &self,
        operation: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        let lease = self.lease(operation).await?;
        let client = lease.client()?;
        let rows = lease.bounded(operation, async { Ok(query_between(LOOK, client, sql, parameters).await) });
        let rows = rows.await?;
        // A statement that failed has ended with the commit, too.
        lease.give_back();
        rows.map_err(|error| from_driver(operation, error))
    }

    /// Runs one statement in a transaction of its own. When it lost to a concurrent one (deadlock, serialisation, a lock), it
    /// is tried again (OBX-082): the server has undone it. All attempts together have the time limit of a call; waiting for a
    /// connection has its own.
    pub(crate) async fn query(
        &self,
        operation: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        self.query_with(operation, sql, parameters, None).await
    }

    /// The same for a statement that can wait for a transaction of another client: see [`contention`](crate::contention). It waits
    /// for its turn, and for a permit if its wait can be long, for as long as a call may take.
    pub(crate) async fn query_in_turn(
        &self,
        operation: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
        turn: impl Future<Output = Turn>,
        wait: Wait,
    ) -> Result<Vec<Row>> {
        let limit = self.limits().call;
        let leave = async {
            let turn = turn.await;
            let permit = match wait {
                Wait::Brief => None,
                Wait::Long => Some(self.places.for_waiting().await.map_err(|_| closed(operation))?),
            };
            Ok((turn, permit))
        };
        let leave = tokio::time::timeout(limit, leave).await;
        let (_turn, permit) = leave.unwrap_or_else(|_| Err(held_up(operation, limit)))?;
        self.query_with(operation, sql, parameters, permit).await
    }

    async fn query_with(
        &self,
        operation: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
        permit: Option<Permit>,
    ) -> Result<Vec<Row>> {
        let (mut attempt, mut deadline) = (1, None);
        loop {
            let mut lease = self.lease(operation).await?;
            lease.permit.clone_from(&permit);
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + self.limits().call);
            let isolate = self.isolate.load(Ordering::Relaxed);
            let answer = async {
                match isolate {
                    false => Ok(lease.session(self.prepared)?.query(sql, parameters).await),
                    true => Ok(query_isolated(lease.client()?, sql, parameters).await),
                }
            };
            // Without an answer the lease is dropped, and the statement canceled.
            let answer = timeout_at(deadline, answer).await;
            let result = answer.unwrap_or_else(|_| Err(unanswered(operation, self.limits().call)))?;
            let error = match result {
                Ok(rows) => {
                    lease.give_back();
                    return Ok(rows);
                }
                Err(error) if !isolate && error.code() == Some(&SqlState::ACTIVE_SQL_TRANSACTION) => {
                    self.isolate.store(true, Ordering::Relaxed);
                    lease.give_back();
                    continue;
                }
                // The schema was deployed anew since, or a pooler has changed the session. The statement was not run.
                Err(error) if self.prepared && attempt < CONFLICT_ATTEMPTS && is_stale(&error) => {
                    attempt += 1;
                    drop(lease);
                    continue;
                }
                Err(error) => from_driver(operation, error),
            };
            match error.kind() {
                // The server has become a standby: the pool must find the new primary.
                ErrorKind::ReadOnly => drop(lease),
                _ => lease.give_back(),
            }
            let lost = error.kind() == ErrorKind::Conflict && error.is_retryable();
            if !lost || attempt == CONFLICT_ATTEMPTS || Instant::now() >= deadline {
                return Err(error);
            }
            tracing::debug!(store = %self.store, operation, attempt, %error, "lost to a concurrent statement; trying again");
            tokio::time::sleep(pause(attempt)).await;
            attempt += 1;
        }
    }
}

/// How a look begins.
const LOOK: &str = include_str!("../queries/look.sql");

/// The statement between a begin and a commit, all sent at once.
async fn query_isolated(
    client: &Client,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<Row>, tokio_postgres::Error> {
    query_between("begin isolation level read committed", client, sql, parameters).await
}

async fn query_between(
    begin: &str,
    client: &Client,
    sql: &str,
    parameters: &[Parameter<'_>],
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let begin = client.batch_execute(begin);
    let (begun, rows, committed) =
        join3(begin, client.query_typed(sql, parameters), client.batch_execute("commit")).await;
    begun?;
    let rows = rows?;
    committed?;
    Ok(rows)
}

/// 5 to 10 ms, doubling: random, so that two that met don't meet again.
fn pause(attempt: u32) -> Duration {
    let random = Duration::from_micros(u64::from(Uuid::new_v4().as_u128() as u16) % 5_000);
    (Duration::from_millis(5) + random) * 2u32.pow(attempt - 1)
}

/// A connection that is closed when dropped, unless it is given back.
pub(crate) struct Lease {
    object: Option<Object>,
    closer: Arc<Closer>,
    /// A call on it got no answer in time, and may be under way still.
    is_given_up: AtomicBool,
    permit: Option<Permit>,
    /// Where somebody else says how many connections there may be: what the connection is of.
    gated: Option<Connections>,
    /// Let go of last.
    pass: Option<ConnectionPass>,
}

impl Lease {
    pub(crate) fn client(&self) -> Result<&Client> {
        self.wrapper().map(|wrapper| &**wrapper)
    }

    /// The same with how statements are sent.
    pub(crate) fn session(&self, prepared: bool) -> Result<Session<'_>> {
        self.wrapper().map(|wrapper| Session::of(wrapper, prepared))
    }

    /// The answer of a call on the connection, within the time limit of calls.
    pub(crate) async fn bounded<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let limit = self.closer.limits().call;
        tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
            self.is_given_up.store(true, Ordering::Relaxed);
            Err(unanswered(operation, limit))
        })
    }

    /// Whether a call on it was given up: only closing it is left to do.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// Lends the connection for statements that are not bounded otherwise.
    pub(crate) fn lend(self) -> Lent {
        let limit = self.closer.limits().call;
        Lent::new(self, limit)
    }

    /// Gives up what is under way on it, although its user waits for that. `idle` ends when nothing is.
    pub(crate) async fn give_up(
        &self,
        idle: Pin<&mut impl Future<Output = Result<(), tokio_postgres::Error>>>,
    ) {
        if let Ok(connection) = self.wrapper() {
            self.is_given_up.store(true, Ordering::Relaxed);
            self.closer.interrupt(connection, idle).await;
        }
    }

    fn wrapper(&self) -> Result<&ClientWrapper> {
        if self.is_given_up() {
            let text =
                "an earlier call on the connection got no answer in time; nothing more can be done on it";
            return Err(Error::new(ErrorKind::Unavailable, "postgres.lease", text));
        }
        let gone = || Error::new(ErrorKind::Internal, "postgres.lease", "the connection was given back");
        self.object.as_deref().ok_or_else(gone)
    }

    /// Back to the pool: nothing is under way on it.
    pub(crate) fn give_back(mut self) {
        self.object = None;
        // It may have come back after all others were let go.
        if let Some(connections) = &self.gated {
            connections.let_go();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            let (permit, pass) = (self.permit.take(), self.pass.take());
            self.closer.close(Abandoned { object: Some(object), _permit: permit, _pass: pass });
        }
    }
}
