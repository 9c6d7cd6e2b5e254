use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::url::PostgresUrl;

/// A TCP proxy on a loopback port whose connections can be cut, refused, stalled and silenced, and whose round trips are counted.
///
/// It runs in the runtime it was started in and ends, with all its connections, on drop.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<String>,
    refuse: AtomicBool,
    stalled: watch::Sender<bool>,
    live: AtomicUsize,
    round_trips: AtomicU64,
    /// The next connection whose client sends this gets no answer any more.
    silence: Mutex<Option<Vec<u8>>>,
    silenced: AtomicUsize,
    connections: Mutex<JoinSet<()>>,
}

impl FaultProxy {
    /// Starts a proxy for `target`, a `host:port`.
    ///
    /// # Panics
    ///
    /// If there is no free port.
    pub async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port");
        let address = listener.local_addr().expect("the address listened on");
        let shared = Arc::new(Shared {
            target: Mutex::new(target.to_owned()),
            refuse: AtomicBool::new(false),
            stalled: watch::Sender::new(false),
            live: AtomicUsize::new(0),
            round_trips: AtomicU64::new(0),
            silence: Mutex::new(None),
            silenced: AtomicUsize::new(0),
            connections: Mutex::new(JoinSet::new()),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Self { address, shared, accepting }
    }

    /// Starts a proxy for the server of a PostgreSQL URL.
    ///
    /// # Panics
    ///
    /// If it is no such URL, or there is no free port.
    pub async fn for_url(url: &str) -> Self {
        Self::start(&PostgresUrl::parse(url).address()).await
    }

    /// Where the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A PostgreSQL URL with the server's address replaced by the proxy's.
    pub fn url(&self, url: &str) -> String {
        PostgresUrl::parse(url)
            .with_host(&self.address.ip().to_string())
            .with_port(self.address.port())
            .to_string()
    }

    /// Leads new connections to the server of another PostgreSQL URL, as a failover does. Open ones stay.
    ///
    /// # Panics
    ///
    /// If it is no such URL.
    pub fn lead_to(&self, url: &str) {
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) =
            PostgresUrl::parse(url).address();
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.live.load(Ordering::SeqCst)
    }

    /// How often a client has sent something after the server's last word: once for all that is sent without waiting for
    /// an answer. The ones that make and end a connection are among them.
    pub fn round_trips(&self) -> u64 {
        self.shared.round_trips.load(Ordering::SeqCst)
    }

    /// Drops all open connections, towards both sides. They are closed on return.
    pub async fn cut(&self) {
        let mut connections = std::mem::take(&mut *self.shared.lock());
        connections.shutdown().await;
    }

    /// Whether new connections are closed as soon as they are made.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refuse.store(refuse, Ordering::SeqCst);
    }

    /// Whether bytes are held back, in both directions, while connections stay open. What
    /// was held back follows when the stall ends.
    pub fn stall(&self, stall: bool) {
        self.shared.stalled.send_replace(stall);
    }

    /// Silences the next connection that sends `text`: what its client sends goes on to the server, this statement included, and
    /// nothing comes back, while both sides stay open. All other connections work. `text` must not be encrypted.
    pub fn silence(&self, text: &str) {
        *self.shared.silence.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.as_bytes().to_vec());
    }

    /// How many connections were silenced.
    pub fn silenced(&self) -> usize {
        self.shared.silenced.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.lock().abort_all();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        // A set of tasks is whole whatever happened while it was locked.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what a client has sent last silences its connection. Does so once.
    fn silences(&self, sent: &[u8]) -> bool {
        let mut silence = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
        let found = silence.as_ref().is_some_and(|text| sent.windows(text.len()).any(|part| part == text));
        if found {
            *silence = None;
            self.silenced.fetch_add(1, Ordering::SeqCst);
        }
        found
    }
}

/// How much of what a client has sent since the last answer is searched for a text: it may come in two parts.
const REMEMBERED: usize = 1024;

/// Counts a connection for as long as it exists, however it ends.
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: Arc<Shared>) -> Self {
        shared.live.fetch_add(1, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        if shared.refuse.load(Ordering::SeqCst) {
            continue;
        }
        let counted = Counted::new(Arc::clone(&shared));
        let mut connections = shared.lock();
        // The ended ones would pile up otherwise.
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(client, counted));
    }
}

async fn serve(mut client: TcpStream, counted: Counted) {
    let shared = &counted.0;
    let target = shared.target.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Ok(mut server) = TcpStream::connect(target).await else {
        return;
    };
    // A proxy that waits for more to send would change the timing of what is tested.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    let answered = AtomicBool::new(true);
    let (silent, mut sent) = (AtomicBool::new(false), Vec::new());
    let asked = |bytes: &[u8]| {
        if answered.swap(false, Ordering::SeqCst) {
            shared.round_trips.fetch_add(1, Ordering::SeqCst);
            sent.clear();
        }
        sent.drain(..sent.len().saturating_sub(REMEMBERED));
        sent.extend_from_slice(bytes);
        if shared.silences(&sent) {
            silent.store(true, Ordering::SeqCst);
        }
        true
    };
    // An error in one direction ends both, the end of one direction only that.
    let _ = tokio::try_join!(
        pump(client_read, server_write, shared.stalled.subscribe(), asked),
        pump(server_read, client_write, shared.stalled.subscribe(), |_| {
            answered.store(true, Ordering::SeqCst);
            !silent.load(Ordering::SeqCst)
        }),
    );
}

/// Hands on what `passing` lets through.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut stalled: watch::Receiver<bool>,
    mut passing: impl FnMut(&[u8]) -> bool,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        // The sender lives as long as the connection.
        let _ = stalled.wait_for(|stalled| !stalled).await;
        if count == 0 {
            return to.shutdown().await;
        }
        if passing(&buffer[..count]) {
            to.write_all(&buffer[..count]).await?;
        }
    }
}
