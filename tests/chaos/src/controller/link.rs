//! The way of one child to its server, on which single connections can be hurt.
//!
//! `FaultProxy` of the tests hurts all connections alike. Here each has a fate of its own: cut in the middle of an answer,
//! silent while it stays open, late.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// A proxy on a loopback port. Its connections end with it.
#[derive(Debug)]
pub(super) struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    /// Where new connections lead to.
    target: Mutex<String>,
    /// How late answers arrive, in milliseconds.
    delay_ms: AtomicU64,
    /// Answers that arrived late.
    delayed: AtomicU64,
    connections: Mutex<Vec<Weak<Connection>>>,
    over: CancellationToken,
}

/// What happens to one connection.
#[derive(Debug)]
pub(super) struct Connection {
    cut: CancellationToken,
    /// It is cut after so many bytes of answers.
    left: AtomicU64,
    /// Answers no longer arrive.
    silent: AtomicBool,
    /// A part of an answer was lost.
    struck: AtomicBool,
}

impl Connection {
    /// Closes it, towards both sides.
    pub(super) fn cut(&self) {
        self.cut.cancel();
    }

    /// Closes it after so many more bytes of answers.
    pub(super) fn cut_after(&self, bytes: u64) {
        self.left.store(bytes, Ordering::SeqCst);
    }

    /// Whether a part of an answer was lost.
    pub(super) fn is_struck(&self) -> bool {
        self.struck.load(Ordering::SeqCst)
    }

    /// Lets answers get lost, while it stays open.
    pub(super) fn silence(&self) {
        self.silent.store(true, Ordering::SeqCst);
    }
}

impl Link {
    /// Starts a proxy at an address for a `host:port`.
    pub(super) async fn start(at: IpAddr, target: &str) -> Result<Self> {
        let listener = TcpListener::bind((at, 0)).await.context("no free port")?;
        let address = listener.local_addr().context("the address listened on")?;
        let shared = Arc::new(Shared {
            target: Mutex::new(target.to_owned()),
            delay_ms: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
            connections: Mutex::default(),
            over: CancellationToken::new(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(Self { address, shared, accepting })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads new connections to another server, and cuts those that are open.
    pub(super) fn lead_to(&self, target: &str) {
        target.clone_into(&mut self.shared.target.lock().unwrap_or_else(PoisonError::into_inner));
        self.cut();
    }

    /// Cuts all connections. Returns how many there were.
    pub(super) fn cut(&self) -> usize {
        let connections = self.connections();
        for connection in &connections {
            connection.cut();
        }
        connections.len()
    }

    /// Lets answers arrive late from now on.
    pub(super) fn delay(&self, delay: Duration) {
        self.shared.delay_ms.store(delay.as_millis() as u64, Ordering::SeqCst);
    }

    /// How many answers arrived late so far.
    pub(super) fn delayed(&self) -> u64 {
        self.shared.delayed.load(Ordering::SeqCst)
    }

    /// One of the open connections; none if there is none.
    pub(super) fn pick(&self, pick: u64) -> Option<Arc<Connection>> {
        let mut connections = self.connections();
        let index = pick.checked_rem(connections.len() as u64)?;
        Some(connections.swap_remove(index as usize))
    }

    fn connections(&self) -> Vec<Arc<Connection>> {
        let mut connections = self.shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| connection.strong_count() > 0);
        connections.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.over.cancel();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let connection = Arc::new(Connection {
            cut: shared.over.child_token(),
            left: AtomicU64::new(u64::MAX),
            silent: AtomicBool::new(false),
            struck: AtomicBool::new(false),
        });
        let mut connections = shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| connection.strong_count() > 0);
        connections.push(Arc::downgrade(&connection));
        drop(connections);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            connection.cut.clone().run_until_cancelled(serve(client, &shared, &connection)).await
        });
    }
}

async fn serve(mut client: TcpStream, shared: &Shared, connection: &Connection) -> std::io::Result<()> {
    let target = shared.target.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut server = TcpStream::connect(target).await?;
    // Whatever is sent goes on at once.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    // The end of one direction ends both: no client and no server of ours closes half a connection.
    tokio::select! {
        asked = ask(client_read, server_write) => asked,
        answered = answer(server_read, client_write, shared, connection) => answered,
    }
}

async fn ask(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> std::io::Result<()> {
    tokio::io::copy(&mut from, &mut to).await.map(drop)
}

async fn answer(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    shared: &Shared,
    connection: &Connection,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let delay_ms = shared.delay_ms.load(Ordering::SeqCst);
        if delay_ms > 0 {
            shared.delayed.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        }
        if connection.silent.load(Ordering::SeqCst) {
            connection.struck.store(true, Ordering::SeqCst);
            continue;
        }
        let left = connection.left.load(Ordering::SeqCst);
        let passed = left.min(count as u64) as usize;
        to.write_all(&buffer[..passed]).await?;
        if passed < count {
            connection.struck.store(true, Ordering::SeqCst);
            return Ok(());
        }
        if left != u64::MAX {
            // A cut that was asked for meanwhile counts from here.
            let _ = connection.left.compare_exchange(
                left,
                left - count as u64,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
        }
    }
}
