//! The way to a receiver: its name looked up, each address checked, and the very address that was checked connected to. A name that answers
//! otherwise the next time gains nothing by it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::network::{Network, special_use};
use super::target::Target;

/// A connection to a receiver, secure or not.
pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Why there is none.
#[derive(Debug)]
pub(super) enum NoWay {
    /// Deliveries may not go there.
    Forbidden(String),
    /// Nobody answers, or not as it should be.
    Unreachable(String),
}

/// Which addresses deliveries of a route may go to.
#[derive(Debug, Clone)]
pub(super) struct Allowed {
    pub(super) networks: Vec<Network>,
    /// Whether deliveries may go out of this machine in the clear.
    pub(super) http: bool,
}

impl Allowed {
    /// Why an address is not allowed; none if it is.
    pub(super) fn refuses(&self, address: IpAddr, secure: bool) -> Option<String> {
        let special = special_use(address);
        let named = self.networks.iter().any(|network| network.contains(address));
        if let Some(special) = special.filter(|_| !named) {
            return Some(format!(
                "the address {address} is {special}; if that is meant, add it to the route's allow_networks"
            ));
        }
        if !secure && !self.http && special != Some("loopback") {
            return Some(format!(
                "{address} is another machine, and http:// would send in the clear; use https://, or set allow_http on the route"
            ));
        }
        None
    }
}

/// The addresses of a name, as the system knows them.
pub(super) async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}

/// Connects, and agrees on TLS where the URL asks for it. The name is looked up once.
pub(super) async fn connect(
    target: &Target,
    allowed: &Allowed,
    tls: &Arc<ClientConfig>,
    within: Duration,
    look_up: impl AsyncFnOnce(&str, u16) -> io::Result<Vec<SocketAddr>>,
) -> Result<Box<dyn Connection>, NoWay> {
    let began = Instant::now();
    let mut addresses = look_up(&target.host, target.port)
        .await
        .map_err(|error| unreachable("can't be looked up", &error))?;
    let mut forbidden = None;
    addresses.retain(|address| {
        let refused = allowed.refuses(address.ip(), target.secure);
        let keep = refused.is_none();
        forbidden = forbidden.take().or(refused);
        keep
    });
    let stream = match dial(&addresses, within.saturating_sub(began.elapsed())).await {
        Ok(stream) => stream,
        Err(Some(error)) => return Err(unreachable("can't be reached", &error)),
        Err(None) => {
            return Err(
                forbidden.map_or_else(|| NoWay::Unreachable("has no address".to_owned()), NoWay::Forbidden)
            );
        }
    };
    // A request is written in one go, and its end must not wait for an answer.
    let _slower = stream.set_nodelay(true);
    if !target.secure {
        return Ok(Box::new(stream));
    }
    let name = ServerName::try_from(target.host.clone())
        .map_err(|_| NoWay::Unreachable("has no name for TLS".to_owned()))?;
    let connecting = TlsConnector::from(Arc::clone(tls)).connect(name, stream);
    let stream =
        connecting.await.map_err(|error| unreachable("speaks no TLS that can be trusted", &error))?;
    Ok(Box::new(stream))
}

fn unreachable(what: &str, error: &io::Error) -> NoWay {
    NoWay::Unreachable(format!("{what}: {error}"))
}

/// The first address that answers. Each has its share of the time, so that one that is silent does not hide those behind it.
async fn dial(addresses: &[SocketAddr], within: Duration) -> Result<TcpStream, Option<io::Error>> {
    let began = Instant::now();
    let mut last = None;
    for (at, address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
        let share = within.saturating_sub(began.elapsed()) / left;
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = Some(error),
            Err(_) => last = Some(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::client_tls;

    fn allowed(networks: &[&str], http: bool) -> Allowed {
        Allowed { networks: networks.iter().map(|text| text.parse().unwrap()).collect(), http }
    }

    #[test]
    fn what_is_not_named_is_the_internet_with_tls() {
        let none = allowed(&[], false);
        let refuses =
            |allowed: &Allowed, address: &str, secure| allowed.refuses(address.parse().unwrap(), secure);
        assert_eq!(refuses(&none, "8.8.8.8", true), None);
        assert!(refuses(&none, "8.8.8.8", false).unwrap().contains("allow_http"));
        assert!(refuses(&none, "127.0.0.1", false).unwrap().contains("loopback"));
        assert!(refuses(&none, "169.254.169.254", true).unwrap().contains("link-local"));
        let local = allowed(&["127.0.0.1", "10.0.0.0/8"], false);
        assert_eq!(refuses(&local, "127.0.0.1", false), None, "nobody listens in on this machine");
        assert_eq!(refuses(&local, "::ffff:127.0.0.1", false), None);
        assert_eq!(refuses(&local, "10.1.1.1", true), None);
        assert!(refuses(&local, "10.1.1.1", false).unwrap().contains("allow_http"));
        assert!(refuses(&local, "127.0.0.2", false).is_some() && refuses(&local, "::1", false).is_some());
        assert_eq!(refuses(&allowed(&["10.0.0.0/8"], true), "10.1.1.1", false), None);
    }

    fn target(host: &str, port: u16) -> Target {
        let (host, path) = (host.to_owned(), "/".to_owned());
        Target { secure: false, authority: host.clone(), host, port, path }
    }

    #[tokio::test]
    async fn the_address_that_a_name_has_is_what_counts() {
        let (tls, within) = (client_tls(None).unwrap(), Duration::from_secs(5));
        for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"] {
            let answer = SocketAddr::new(address.parse().unwrap(), 9);
            let name = target("innocent.example", 9);
            match connect(&name, &allowed(&[], true), &tls, within, async |_, _| Ok(vec![answer])).await {
                Err(NoWay::Forbidden(text)) => assert!(text.contains("loopback"), "{address}: {text}"),
                Err(NoWay::Unreachable(text)) => panic!("{address}: {text}"),
                Ok(_) => panic!("{address} was connected to"),
            }
        }
        // And as the system has it.
        let local = connect(&target("localhost", 9), &allowed(&[], true), &tls, within, look_up).await;
        assert!(matches!(local, Err(NoWay::Forbidden(_))));
    }

    #[tokio::test]
    async fn of_several_addresses_only_those_that_are_allowed_are_connected_to() {
        let (tls, within) = (client_tls(None).unwrap(), Duration::from_secs(5));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        // First one that is forbidden, at which somebody listens, too: another address of this machine, at the same port.
        let other = tokio::net::TcpListener::bind(("127.0.0.2", here.port())).await.unwrap();
        let mixed = vec![other.local_addr().unwrap(), here];
        let allowed_here = allowed(&["127.0.0.1"], true);
        let name = target("mixed.example", here.port());
        let connected = connect(&name, &allowed_here, &tls, within, async |_, _| Ok(mixed)).await;
        assert!(connected.is_ok());
        listener.accept().await.unwrap();
        let reached = tokio::time::timeout(Duration::ZERO, other.accept()).await;
        assert!(reached.is_err(), "nobody came to the one that is forbidden");
    }

    #[tokio::test]
    async fn a_name_that_answers_otherwise_the_next_time_gains_nothing() {
        let (tls, within) = (client_tls(None).unwrap(), Duration::from_secs(5));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        let forbidden = SocketAddr::new("127.0.0.2".parse().unwrap(), here.port());
        let answers = std::sync::Mutex::new(vec![forbidden, here]);
        let looked_up = async |_: &str, _: u16| Ok(answers.lock().unwrap().pop().into_iter().collect());
        let (name, allowed) = (target("changing.example", here.port()), allowed(&["127.0.0.1"], true));
        let first = connect(&name, &allowed, &tls, within, &looked_up).await;
        assert!(first.is_ok());
        assert_eq!(
            answers.lock().unwrap().len(),
            1,
            "what was checked is connected to: it is looked up once"
        );
        let second = connect(&name, &allowed, &tls, within, &looked_up).await;
        assert!(matches!(second, Err(NoWay::Forbidden(_))), "each delivery looks anew");
        let nowhere = connect(&name, &allowed, &tls, within, &looked_up).await;
        assert!(matches!(nowhere, Err(NoWay::Unreachable(_))), "a name without an address");
    }
}
