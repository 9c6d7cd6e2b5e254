//! Cancel requests that arrive through a pooler.
//!
//! The driver's own request closes its connection right after sending. PgBouncer takes that for a client that has gone, and forwards
//! nothing. So here the connection stays open until the other side closes it, as libpq does: by then the request has been passed on.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_postgres::CancelToken;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::url::Server;

/// Where and how cancel requests are sent.
pub(crate) struct Cancel {
    /// A request that gets to another server than that of its connection does nothing there.
    pub(crate) servers: Arc<[Server]>,
    pub(crate) tls: MakeRustlsConnect,
    pub(crate) timeout: Duration,
    /// Names the database in logs.
    pub(crate) store: Arc<str>,
}

impl Cancel {
    /// Asks to cancel what is under way on the connection of the token. Returns whether a server took the request.
    pub(crate) async fn send(&self, token: &CancelToken) -> bool {
        let sent = join_all(self.servers.iter().map(|server| async move {
            let sent = timeout(self.timeout, self.send_to(server, token)).await;
            let failed = match sent {
                Ok(Ok(())) => return true,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {:?}", self.timeout),
            };
            tracing::debug!(
                store = %self.store,
                host = server.host,
                port = server.port,
                error = failed,
                "a cancel request failed"
            );
            false
        }));
        sent.await.contains(&true)
    }

    async fn send_to(&self, server: &Server, token: &CancelToken) -> Result<(), Failure> {
        if server.host.starts_with('/') {
            let path = format!("{}/.s.PGSQL.{}", server.host, server.port);
            let stream = UnixStream::connect(path).await?.into_std()?;
            let kept = UnixStream::from_std(stream.try_clone()?)?;
            return self.request(UnixStream::from_std(stream)?, kept, &server.host, token).await;
        }
        let addresses = tokio::net::lookup_host((server.host.as_str(), server.port)).await?;
        let sent = join_all(addresses.map(|address| async move {
            let stream = TcpStream::connect(address).await?.into_std()?;
            let kept = TcpStream::from_std(stream.try_clone()?)?;
            self.request(TcpStream::from_std(stream)?, kept, &server.host, token).await
        }));
        // A name may have several addresses, of which some lead nowhere.
        let mut sent = sent.await;
        match sent.iter().any(Result::is_ok) {
            true => Ok(()),
            false => sent.pop().unwrap_or(Ok(())),
        }
    }

    /// Sends the request on one hold of a connection, and waits by the other until it is closed.
    async fn request<S>(&self, stream: S, mut kept: S, host: &str, token: &CancelToken) -> Result<(), Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let tls = MakeTlsConnect::<Open<S>>::make_tls_connect(&mut self.tls.clone(), host)?;
        token.cancel_query_raw(Open(stream), OpenTls(tls)).await?;
        // An error is an end as well.
        while kept.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
        Ok(())
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A stream that is not shut down by its user.
struct Open<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for Open<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Open<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl<S: TlsStream + Unpin> TlsStream for Open<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.0.channel_binding()
    }
}

/// Encrypts a stream that is not shut down by its user.
struct OpenTls<T>(T);

impl<S, T> TlsConnect<S> for OpenTls<T>
where
    T: TlsConnect<S>,
    T::Future: Send + 'static,
{
    type Stream = Open<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, Self::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connecting = self.0.connect(stream);
        Box::pin(async move { connecting.await.map(Open) })
    }
}
