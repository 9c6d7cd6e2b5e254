//! Getting through to a server: all addresses of its name, and a socket that notices when nobody is at the other end any more.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// How long an address is alone before the next one is tried beside it.
const HEAD_START: Duration = Duration::from_millis(250);

/// After how much silence the other end is asked whether it is still there, and how often then.
const SILENCE: Duration = Duration::from_secs(30);
const ASKED_EVERY: Duration = Duration::from_secs(10);

/// For how long what was sent may go unacknowledged.
#[cfg(target_os = "linux")]
const UNHEARD: Duration = Duration::from_secs(60);

/// Connects to whichever address of the name answers first. A listener of an availability group has one in each subnet, and all but one of
/// them are silent.
pub(crate) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = tokio::net::lookup_host((host, port)).await?.collect();
    let stream = first(addresses, TcpStream::connect).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE).with_interval(ASKED_EVERY))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNHEARD))?;
    Ok(stream)
}

/// The first of these that can be reached. Each has a head start over the next one, which begins sooner where it fails.
async fn first<T, F>(addresses: Vec<SocketAddr>, reach: impl Fn(SocketAddr) -> F) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let mut waiting = addresses.into_iter();
    let mut tried = FuturesUnordered::new();
    let mut failure = None;
    loop {
        match waiting.next() {
            Some(address) => tried.push(reach(address)),
            None if tried.is_empty() => {
                let nowhere = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                return Err(failure.unwrap_or_else(nowhere));
            }
            None => {}
        }
        tokio::select! {
            // One of them is under way.
            Some(reached) = tried.next() => match reached {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = Some(error),
            },
            () = tokio::time::sleep(HEAD_START), if waiting.len() > 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(ports: &[u16]) -> Vec<SocketAddr> {
        ports.iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_keeps_nobody_waiting() {
        let reach = |address: SocketAddr| async move {
            match address.port() {
                1 => std::future::pending().await,
                2 => Err(io::ErrorKind::ConnectionRefused.into()),
                port => Ok(port),
            }
        };
        assert_eq!(first(addresses(&[1, 1, 2, 3]), reach).await.unwrap(), 3);
        assert_eq!(first(addresses(&[4, 1]), reach).await.unwrap(), 4);
        let refused = first(addresses(&[2, 2]), reach).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(first(Vec::new(), reach).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn a_socket_notices_when_nobody_is_at_the_other_end() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = connect("localhost", listener.local_addr().unwrap().port()).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && stream.nodelay().unwrap());
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(UNHEARD));
    }
}
