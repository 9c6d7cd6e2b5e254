//! Listens, and keeps connections within bounds: so many at once, headers that arrive in time, and an end that lets answers finish.

use std::net::SocketAddr;
use std::sync::Arc;
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
use crate::metrics::{CONNECTIONS, Deferred};
use crate::unread::Impatient;

/// The pause after a failure to accept: there are no file descriptors left, say.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// How connections are kept.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListenOptions {
    /// Connections at once; more wait to be accepted. Defaults to 512: below what most systems let a process have open, with the database's.
    pub connections: usize,
    /// How long the headers of a request, or the next request of a connection, may take to arrive. Defaults to 30 s.
    pub header_timeout: Duration,
    /// How long answers that are under way may take after a stop. Defaults to 10 s.
    pub grace: Duration,
    /// TLS. Defaults to none.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            connections: 512,
            header_timeout: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            tls: None,
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    options: ListenOptions,
}

impl Listener {
    /// Listens at this address.
    pub async fn bind(address: SocketAddr, options: ListenOptions) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Config, "server.listen", format!("can't listen at {address}: {error}"))
        };
        if options.connections == 0 {
            return Err(Error::invalid("server.listen", "connections", "must be at least 1, got 0"));
        }
        if options.header_timeout.is_zero() {
            return Err(Error::invalid("server.listen", "header_timeout", "must be above zero"));
        }
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        Ok(Self { socket, options })
    }

    /// Whether it speaks TLS.
    pub fn is_secure(&self) -> bool {
        self.options.tls.is_some()
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
        let tasks = TaskTracker::new();
        let tls = self.options.tls.clone().map(TlsAcceptor::from);
        // Ends connections, whatever they are doing.
        let end = CancellationToken::new();
        let accepting = async {
            loop {
                // Closed by nobody.
                let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
                match self.socket.accept().await {
                    Ok((stream, from)) => {
                        let connection = Connection {
                            from,
                            router: router.clone(),
                            tls: tls.clone(),
                            header_timeout: self.options.header_timeout,
                            stop: stop.clone(),
                            _permit: permit,
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
        match tokio::time::timeout(self.header_timeout, tls.accept(stream)).await {
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
