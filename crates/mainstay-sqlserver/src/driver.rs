//! tiberius: the only file that names the driver.
//!
//! A query's future must never be dropped alone: what is left of its answer would be taken for the answer of the next one. So here nothing is
//! raced and nothing times out; [`pool`](crate::pool) runs each query in a task that owns the connection, and whoever gives up takes the
//! connection along.
//!
//! The driver logs every error of the server as the server words it, values and all. Nobody hears that ([`unheard`]): what may be told is in our own errors.

use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use futures_util::io::{AsyncRead, AsyncWrite};
use jiff::Timestamp;
use mainstay_core::Result;
use mainstay_core::lease::{GuardIn, LeaseClaim};
use mainstay_core::outbox::{EnqueueIn, Enqueued, PreparedMessage};
use mainstay_core::store::{Argument, CallIn, LeaseStore, OutboxStore, Step, StoreCall};
use tiberius::{AuthMethod, ColumnData, Config, EncryptionLevel, Query};
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};
use tracing::dispatcher::{Dispatch, get_default};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use crate::adapter;
use crate::error::{Fault, from_fault};
use crate::lease::SqlServerLeases;
use crate::queue::SqlServerQueue;
use crate::reach;
use crate::rows::{Cell, Row};
use crate::transaction::SqlServerTransaction;
use crate::url::{Encryption, Login, Target, Trust};

/// How often a server may point elsewhere: a gateway of Azure does so once.
const REDIRECTS: usize = 3;

/// A client of the driver, as [`SqlServer::client`](crate::SqlServer::client) makes it.
pub type Client = tiberius::Client<Compat<TcpStream>>;

/// A connection.
pub(crate) struct Session {
    client: Client,
    /// The same socket, to see and to end what becomes of it.
    socket: Arc<std::net::TcpStream>,
}

/// A second hold on a connection's socket.
pub(crate) struct Severance(Arc<std::net::TcpStream>);

impl Severance {
    /// Ends whatever is under way on it.
    pub(crate) fn sever(&self) {
        // It may be gone already.
        drop(self.0.shutdown(Shutdown::Both));
    }

    /// Ends the client's side of the connection.
    pub(crate) fn half_close(&self) {
        drop(self.0.shutdown(Shutdown::Write));
    }

    /// Ends the client's side of the connection, and waits until the server has ended its own.
    pub(crate) async fn part(&self) {
        self.half_close();
        let Ok(stream) = self.0.try_clone().and_then(TcpStream::from_std) else { return };
        let mut rest = [0; 4096];
        while stream.readable().await.is_ok() {
            match stream.try_read(&mut rest) {
                Ok(read) if read > 0 => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }
}

impl Session {
    /// Connects and logs in. No statement waits for another transaction's locks for longer than `locks`.
    pub(crate) async fn open(target: &Target, locks: Duration) -> Result<Self, Fault> {
        let mut target = target.clone();
        if let Some(Login::Tokens(tokens)) = &target.login {
            let token = tokens.token().await.map_err(|error| Fault::Token(error.message().to_owned()))?;
            target.login = Some(Login::Token(token));
        }
        for _ in 0..REDIRECTS {
            match unheard(Self::open_at(&target, locks)).await {
                Err(tiberius::error::Error::Routing { host, port }) => {
                    // The certificate is that of where it points to.
                    (target.host, target.port) = (host, port);
                }
                other => return other.map_err(fault),
            }
        }
        Err(Fault::Broken("the server points elsewhere again and again".to_owned()))
    }

    async fn open_at(target: &Target, locks: Duration) -> Result<Self, tiberius::error::Error> {
        let stream = reach::connect(&target.host, target.port).await?.into_std()?;
        let socket = Arc::new(stream.try_clone()?);
        let stream = TcpStream::from_std(stream)?;
        let mut client = Client::connect(config(target), stream.compat_write()).await?;
        let setting = format!("SET LOCK_TIMEOUT {}", locks.as_millis());
        client.simple_query(setting).await?.into_results().await?;
        Ok(Self { client, socket })
    }

    /// The driver's own client.
    pub(crate) fn into_client(self) -> Client {
        self.client
    }

    /// Runs a statement with its arguments. The rows of all its results, in order.
    pub(crate) async fn query(&mut self, step: &Step) -> Result<Vec<Row>, Fault> {
        run(&mut self.client, step).await
    }

    /// Runs statements that must be a batch of their own.
    pub(crate) async fn batch(&mut self, sql: &str) -> Result<Vec<Row>, Fault> {
        let answer = unheard(async { self.client.simple_query(sql).await?.into_results().await });
        Ok(answer.await.map_err(fault)?.into_iter().flatten().map(row).collect())
    }

    /// Whether the server has ended the connection while nobody used it, or has said something that nobody asked for.
    pub(crate) fn is_stale(&self) -> bool {
        match self.socket.peek(&mut [0]) {
            Ok(_) => true,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }

    /// What ends it from outside.
    pub(crate) fn severance(&self) -> Severance {
        Severance(Arc::clone(&self.socket))
    }
}

fn config(target: &Target) -> Config {
    let mut config = Config::new();
    config.host(&target.host);
    config.port(target.port);
    if let Some(database) = &target.database {
        config.database(database);
    }
    config.application_name(target.application.as_deref().unwrap_or("mainstay"));
    config.encryption(match target.encryption {
        Encryption::Strict => EncryptionLevel::Strict,
        Encryption::All => EncryptionLevel::Required,
        Encryption::Login => EncryptionLevel::Off,
        Encryption::None => EncryptionLevel::NotSupported,
    });
    match &target.trust {
        Trust::System => {}
        Trust::File(path) => config.trust_cert_ca(path.display()),
        Trust::Pem(pem) => config.trust_cert_ca_bundle(pem.clone()),
        Trust::Anything => config.trust_cert(),
    }
    if let Some(host) = &target.certificate_host {
        config.hostname_in_certificate(host);
    }
    match &target.login {
        Some(Login::Password { user, password }) => {
            config.authentication(AuthMethod::sql_server(user, password))
        }
        Some(Login::Token(token)) => config.authentication(AuthMethod::aad_token(token)),
        // Asked for before it gets here.
        Some(Login::Tokens(_)) | None => {}
    }
    // The pool has time limits of its own, and they discard the connection.
    config.handshake_timeout(None::<Duration>);
    config.command_timeout(None::<Duration>);
    config
}

/// Does something with the driver, and nobody hears what it logs meanwhile. Without a subscriber it is left alone: `tracing` then tells the crate `log`, and
/// would never do so again once one was set, be it this one; our own lines would be lost.
async fn unheard<T>(work: impl Future<Output = T>) -> T {
    match get_default(|listener| listener.is::<NoSubscriber>()) {
        true => work.await,
        false => work.with_subscriber(Dispatch::none()).await,
    }
}

async fn run<S>(client: &mut tiberius::Client<S>, step: &Step) -> Result<Vec<Row>, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut query = Query::new(&*step.sql);
    for argument in &step.arguments {
        match argument {
            Argument::Null => query.bind(None::<&str>),
            Argument::Integer(number) => query.bind(*number),
            Argument::Text(text) => query.bind(text.as_str()),
            Argument::Bytes(bytes) => query.bind(bytes.as_slice()),
        }
    }
    let answer = unheard(async { query.query(client).await?.into_results().await });
    Ok(answer.await.map_err(fault)?.into_iter().flatten().map(row).collect())
}

/// The same in the caller's own transaction. Should that be gone, as it is after most errors, the statement would be on its own: so it is refused. And
/// what has failed in it can't be tried again by itself, only all of it.
async fn run_in<S>(client: &mut tiberius::Client<S>, operation: &'static str, step: &Step) -> Result<Vec<Row>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let rows = run(client, &adapter::within(step)).await;
    rows.map_err(|fault| from_fault(operation, fault).with_retryable(false))
}

/// What the driver says, without the driver.
fn fault(error: tiberius::error::Error) -> Fault {
    match error {
        tiberius::error::Error::Server(token) => {
            Fault::Server { number: token.code(), class: token.class(), message: token.message().to_owned() }
        }
        tiberius::error::Error::Tls(message) => Fault::Tls(message),
        tiberius::error::Error::Io { kind, message } => Fault::Broken(format!("{message} ({kind:?})")),
        // What could not be read has left the rest of it unread.
        other => Fault::Broken(other.to_string()),
    }
}

fn row(row: tiberius::Row) -> Row {
    let labels = row.columns().iter().map(|column| column.name().to_ascii_lowercase()).collect();
    let cells = row.cells().map(|(_, data)| cell(data)).collect();
    Row::new(labels, cells)
}

fn cell(data: &ColumnData<'static>) -> Cell {
    let or_null = |cell: Option<Cell>| cell.unwrap_or(Cell::Null);
    match data {
        ColumnData::U8(number) => or_null(number.map(|number| Cell::Integer(number.into()))),
        ColumnData::I16(number) => or_null(number.map(|number| Cell::Integer(number.into()))),
        ColumnData::I32(number) => or_null(number.map(|number| Cell::Integer(number.into()))),
        ColumnData::I64(number) => or_null(number.map(Cell::Integer)),
        ColumnData::F32(number) => or_null(number.map(|number| Cell::Real(number.into()))),
        ColumnData::F64(number) => or_null(number.map(Cell::Real)),
        ColumnData::Bit(bit) => or_null(bit.map(|bit| Cell::Integer(bit.into()))),
        ColumnData::String(text) => or_null(text.as_ref().map(|text| Cell::Text(text.clone().into_owned()))),
        ColumnData::Guid(id) => or_null(id.map(Cell::Id)),
        ColumnData::Binary(bytes) => {
            or_null(bytes.as_ref().map(|bytes| Cell::Bytes(bytes.clone().into_owned())))
        }
        ColumnData::Numeric(number) => or_null(number.map(|number| Cell::Real(f64::from(number)))),
        ColumnData::DateTime2(time) => or_null(time.map(|time| moment(time, 0))),
        ColumnData::DateTimeOffset(time) => or_null(time.map(|time| moment(time.datetime2(), time.offset()))),
        // Nothing that Mainstay has in its tables.
        _ => Cell::Null,
    }
}

/// Days from the first of the year 1 to that of 1970.
const EPOCH: i64 = 719_162;

fn moment(time: tiberius::time::DateTime2, _offset: i16) -> Cell {
    // What comes with an offset is in UTC all the same; the offset is only how it was written.
    let scale = u32::from(time.time().scale()).min(9);
    let nanos = i128::from(time.time().increments()) * 10_i128.pow(9 - scale);
    let days = i64::from(time.date().days()) - EPOCH;
    let nanos = i128::from(days) * 86_400_000_000_000 + nanos;
    Cell::Moment(Timestamp::from_nanosecond(nanos).unwrap_or(if nanos < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    }))
}

/// Marks the types of tiberius.
#[derive(Debug)]
pub struct Tiberius;

/// Within a transaction that was begun by hand (`BEGIN TRANSACTION`). As with every query of the driver: whoever drops the future midway
/// must drop the client too.
impl<S> EnqueueIn<Tiberius> for tiberius::Client<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        const ENQUEUE: &str = "outbox.enqueue";
        let Some(step) = adapter::enqueuing(SqlServerQueue::of(store)?, messages) else {
            return Ok(Vec::new());
        };
        let rows = run_in(self, ENQUEUE, &step).await?;
        adapter::enqueued(ENQUEUE, &rows)
    }
}

impl<S> GuardIn<Tiberius> for tiberius::Client<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        const GUARD: &str = "lease.guard";
        let step = SqlServerLeases::of(store)?.guarding(claim).await?;
        run_in(self, GUARD, &step).await.map(drop)
    }
}

impl<S> CallIn<Tiberius> for tiberius::Client<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        adapter::check(call)?;
        let mut answers = Vec::new();
        for step in &call.steps {
            let rows = run_in(self, call.operation, step).await?;
            answers.extend(rows.iter().map(Row::answer));
        }
        Ok(answers)
    }
}

impl SqlServerTransaction {
    /// Runs a statement of the handler's own within the transaction, with its parameters bound. The rows of all its results. Don't end the
    /// transaction by it: commit and rollback are the dispatcher's part.
    pub async fn query(&mut self, query: Query<'static>) -> Result<Vec<tiberius::Row>> {
        const QUERY: &str = "transaction.query";
        let work = async |query: Query<'static>, session: &mut Session| {
            let answer = unheard(async { query.query(&mut session.client).await?.into_results().await });
            Ok(answer.await.map_err(fault)?.into_iter().flatten().collect())
        };
        // Like all that a handler does, it is bounded by the handler's own time limit.
        self.with(QUERY, None, move |session| Box::pin(async move { work(query, session).await })).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(days: u32, increments: u64, scale: u8) -> Cell {
        let date = tiberius::time::Date::new(days);
        moment(tiberius::time::DateTime2::new(date, tiberius::time::Time::new(increments, scale)), 0)
    }

    #[test]
    fn times_are_read_at_every_scale() {
        let second = Timestamp::from_second(1).unwrap();
        for scale in 0..=7 {
            assert_eq!(read(719_162, 10_u64.pow(scale.into()), scale), Cell::Moment(second));
        }
        assert_eq!(read(0, 0, 7), Cell::Moment("0001-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(
            read(3_652_058, 863_999_999_999, 7),
            Cell::Moment(
                Timestamp::MAX.min("9999-12-31T23:59:59.9999999Z".parse().unwrap_or(Timestamp::MAX))
            )
        );
    }

    #[test]
    fn values_keep_their_type() {
        let some = |text: &str| ColumnData::String(Some(text.to_owned().into()));
        assert_eq!(cell(&some("ü😀")), Cell::Text("ü😀".to_owned()));
        assert_eq!(cell(&ColumnData::String(None)), Cell::Null);
        assert_eq!(cell(&ColumnData::U8(Some(3))), Cell::Integer(3));
        assert_eq!(cell(&ColumnData::Bit(Some(true))), Cell::Integer(1));
        assert_eq!(cell(&ColumnData::I64(Some(i64::MIN))), Cell::Integer(i64::MIN));
        assert_eq!(cell(&ColumnData::Guid(Some(uuid::Uuid::max()))), Cell::Id(uuid::Uuid::max()));
    }
}
