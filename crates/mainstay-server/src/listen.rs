//! Listens, and keeps connections within bounds: so many at once, headers that arrive in time, and an end that lets answers finish.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use mainstay_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::PeerAddress;
use crate::changing::Changing;
use crate::limits::timeout;
use crate::metrics::{CONNECTIONS, Deferred};
use crate::throttle::network;
use crate::unread::Impatient;

/// The pause after a failure to accept: there are no file descriptors left, say.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Connections at once, whatever the options say.
const CONNECTIONS_MAX: usize = 1_000_000;

/// How connections are kept.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListenOptions {
    /// Connections at once, 1 to 1,000,000; more wait to be accepted. Defaults to 512: below what most systems let a process have open, with the database's.
    pub connections: usize,
    /// Of these, those from one address; more are hung up on. Defaults to three quarters of all: enough for a proxy that everybody comes
    /// through, and whoever asks for health from elsewhere is answered whatever that one does.
    pub per_address: Option<usize>,
    /// How long the headers of a request, or the next request of a connection, may take to arrive, up to a day. Defaults to 30 s.
    pub header_timeout: Duration,
    /// How long answers that are under way may take after a stop, up to a day. Defaults to 10 s.
    pub grace: Duration,
    /// TLS. Defaults to none.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            connections: 512,
            per_address: None,
            header_timeout: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            tls: None,
        }
    }
}

impl ListenOptions {
    /// Refuses what is outside its bounds, by its field.
    pub fn validate(&self) -> Result<()> {
        const LISTEN: &str = "server.listen";
        for (field, value) in
            [("connections", self.connections), ("per_address", self.per_address.unwrap_or(1))]
        {
            if !(1..=CONNECTIONS_MAX).contains(&value) {
                let reason = format_args!("must be 1 to 1,000,000, got {value}");
                return Err(Error::invalid(LISTEN, field, reason));
            }
        }
        timeout(LISTEN, "header_timeout", self.header_timeout)?;
        // None at all is a way to stop, too.
        timeout(LISTEN, "grace", self.grace.max(Duration::from_nanos(1)))
    }
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    options: ListenOptions,
    tls: Option<CurrentTls>,
}

/// The TLS of a listener, to be changed while it runs: another certificate, say.
#[derive(Clone)]
pub struct CurrentTls(Arc<Changing<rustls::ServerConfig>>);

impl CurrentTls {
    /// Connections that come from now on get this. Those that are there keep what they have.
    pub fn change(&self, tls: Arc<rustls::ServerConfig>) {
        self.0.replace(tls);
    }

    fn acceptor(&self) -> TlsAcceptor {
        self.0.get().into()
    }
}

impl std::fmt::Debug for CurrentTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CurrentTls").finish_non_exhaustive()
    }
}

impl Listener {
    /// Listens at this address.
    pub async fn bind(address: SocketAddr, options: ListenOptions) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Config, "server.listen", format!("can't listen at {address}: {error}"))
        };
        options.validate()?;
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        let tls = options.tls.clone().map(|tls| CurrentTls(Arc::new(Changing::new(tls))));
        Ok(Self { socket, options, tls })
    }

    /// Whether it speaks TLS.
    pub fn is_secure(&self) -> bool {
        self.options.tls.is_some()
    }

    /// Its TLS, if it has some, to be changed while it runs.
    pub fn tls(&self) -> Option<CurrentTls> {
        self.tls.clone()
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr> {
        let failed =
            |error: std::io::Error| Error::new(ErrorKind::Internal, "server.listen", error.to_string());
        self.socket.local_addr().map_err(failed)
    }

    /// Answers until `stop` is cancelled, and then lets what is under way end.
    pub async fn serve(self, router: Router, stop: CancellationToken) {
        let connections = Arc::new(Semaphore::new(self.options.connections));
        let most = self.options.per_address.unwrap_or(self.options.connections.div_ceil(4) * 3);
        let guests = Guests::default();
        let tasks = TaskTracker::new();
        // Ends connections, whatever they are doing.
        let end = CancellationToken::new();
        let accepting = async {
            loop {
                // Closed by nobody.
                let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
                match self.socket.accept().await {
                    Ok((stream, from)) => {
                        let Some(guest) = guests.admit(from.ip(), most) else {
                            tracing::debug!(%from, most, "hung up: there are too many connections from this address");
                            continue;
                        };
                        let connection = Connection {
                            from,
                            router: router.clone(),
                            tls: self.tls.as_ref().map(CurrentTls::acceptor),
                            header_timeout: self.options.header_timeout,
                            stop: stop.clone(),
                            _permit: permit,
                            _guest: guest,
                        };
                        let end = end.clone();
                        tasks.spawn(async move {
                            end.run_until_cancelled(connection.keep(stream)).await;
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection was not accepted");
                        tokio::time::sleep(ACCEPT_AGAIN).await;
                    }
                }
            }
        };
        stop.run_until_cancelled(accepting).await;
        drop(self.socket);
        tasks.close();
        if tokio::time::timeout(self.options.grace, tasks.wait()).await.is_err() {
            end.cancel();
            tasks.wait().await;
        }
    }
}

struct Connection {
    from: SocketAddr,
    router: Router,
    tls: Option<TlsAcceptor>,
    header_timeout: Duration,
    stop: CancellationToken,
    _permit: OwnedSemaphorePermit,
    _guest: Guest,
}

/// How many connections each address has.
#[derive(Clone, Default)]
struct Guests(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl Guests {
    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // Whole whatever panicked beside it: numbers are changed one at a time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more of this address, unless it has `most`.
    fn admit(&self, from: IpAddr, most: usize) -> Option<Guest> {
        let address = network(from);
        let mut counts = self.counts();
        let count = counts.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Guest { of: self.clone(), address })
    }
}

/// A connection of an address, which has one less once this is dropped.
struct Guest {
    of: Guests,
    address: IpAddr,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut counts = self.of.counts();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

impl Connection {
    async fn keep(self, stream: TcpStream) {
        let open = metrics::gauge!(CONNECTIONS);
        open.increment(1.0);
        // Also when this is ended from outside.
        let _open = Deferred(Some(|| open.decrement(1.0)));
        // Answers are small, and somebody waits for each.
        let _slower = stream.set_nodelay(true);
        let Some(tls) = self.tls.clone() else { return self.answer(stream).await };
        // Nobody has asked for anything yet: a stop need not wait for it.
        let stop = self.stop.clone();
        let greeting = stop.run_until_cancelled(tls.accept(stream));
        let Some(greeted) = tokio::time::timeout(self.header_timeout, greeting).await.transpose() else {
            return;
        };
        match greeted {
            Ok(Ok(stream)) => self.answer(stream).await,
            Ok(Err(error)) => tracing::debug!(from = %self.from, %error, "no TLS"),
            Err(_) => tracing::debug!(from = %self.from, "no TLS in time"),
        }
    }

    async fn answer(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let (router, peer) = (self.router, PeerAddress(self.from.ip()));
        let secure = self.tls.is_some();
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let router = router.clone();
            async move {
                let mut request: Request = request.map(axum::body::Body::new);
                request.extensions_mut().insert(peer);
                let mut response = router.oneshot(request).await?;
                if secure {
                    let value = axum::http::HeaderValue::from_static("max-age=31536000");
                    response.headers_mut().insert(axum::http::header::STRICT_TRANSPORT_SECURITY, value);
                }
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_timeout)
            .serve_connection(TokioIo::new(Impatient::new(stream, self.header_timeout)), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(from = %self.from, %error, "a connection broke off");
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    async fn start(options: ListenOptions) -> (SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), options).await.unwrap();
        let (address, stop) = (listener.address().unwrap(), CancellationToken::new());
        let router = Router::new().route("/", get(|| async { "well" }));
        (address, stop.clone(), tokio::spawn(listener.serve(router, stop)))
    }

    /// All that comes back, up to the end of the connection.
    async fn ask(stream: &mut TcpStream) -> String {
        // It may have been hung up already.
        let _refused = stream.write_all(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").await;
        let mut told = Vec::new();
        let _reset = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut told)).await.unwrap();
        String::from_utf8(told).unwrap()
    }

    #[tokio::test]
    async fn one_address_does_not_have_all_connections() {
        let options = ListenOptions { per_address: Some(2), ..ListenOptions::default() };
        let (address, stop, serving) = start(options).await;
        let mut idle =
            [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
        let mut third = TcpStream::connect(address).await.unwrap();
        assert_eq!(ask(&mut third).await, "", "it is hung up");
        assert!(ask(&mut idle[0]).await.ends_with("well"));
        // That one has ended.
        let answered =
            async { while !ask(&mut TcpStream::connect(address).await.unwrap()).await.ends_with("well") {} };
        tokio::time::timeout(PATIENCE, answered).await.unwrap();
        stop.cancel();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn what_is_out_of_bounds_is_refused_by_its_field() {
        let with = |change: fn(&mut ListenOptions)| {
            let mut options = ListenOptions::default();
            change(&mut options);
            options
        };
        for (field, options) in [
            ("connections", with(|options| options.connections = 0)),
            ("connections", with(|options| options.connections = usize::MAX)),
            ("per_address", with(|options| options.per_address = Some(0))),
            ("header_timeout", with(|options| options.header_timeout = Duration::ZERO)),
            ("header_timeout", with(|options| options.header_timeout = Duration::from_secs(u64::MAX))),
            ("grace", with(|options| options.grace = Duration::from_secs(u64::MAX))),
        ] {
            let error = Listener::bind("127.0.0.1:0".parse().unwrap(), options).await.unwrap_err();
            assert_eq!(error.field(), Some(field), "{error}");
        }
        assert!(with(|options| options.grace = Duration::ZERO).validate().is_ok());
    }

    #[test]
    fn an_address_that_is_gone_is_forgotten() {
        let guests = Guests::default();
        let address = "10.0.0.1".parse().unwrap();
        let first = guests.admit(address, 1).unwrap();
        assert!(guests.admit(address, 1).is_none() && guests.admit("10.0.0.2".parse().unwrap(), 1).is_some());
        drop(first);
        assert!(guests.counts().is_empty());
    }
}
