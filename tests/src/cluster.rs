use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use mainstay_servers::{
    Blank, Bouncer, Cluster, ClusterOptions, Group, find_pgbouncer, find_postgres, variables,
};
use tokio_postgres::Client;

use crate::postgres::connect;

/// A PostgreSQL server of a test's own, which the test may stop, crash and start again.
///
/// It keeps its port and its data, and is removed at the end of the test.
#[derive(Debug)]
pub struct OwnCluster {
    cluster: Arc<Mutex<Cluster>>,
    url: String,
    ca: PathBuf,
    // Held until the end when this process made it, because the certificate is in it.
    blank: Arc<Blank>,
}

impl OwnCluster {
    /// Starts a server.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub async fn create() -> Self {
        Self::create_with(ClusterOptions::default()).await
    }

    /// Starts a server with settings or an environment of its own.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub async fn create_with(options: ClusterOptions) -> Self {
        blocking(move || {
            let bin = find_postgres().unwrap_or_else(|error| panic!("{error}"));
            let blank = blank(&bin);
            let cluster = Cluster::create(&bin, &blank, options).unwrap_or_else(|error| panic!("{error}"));
            Self::of(cluster, blank)
        })
        .await
    }

    fn of(cluster: Cluster, blank: Arc<Blank>) -> Self {
        let (url, ca) = (cluster.url("postgres"), blank.ca());
        Self { cluster: Arc::new(Mutex::new(cluster)), url, ca, blank }
    }

    /// Starts a replica that streams from this server, which must run with [`ClusterOptions::replicated`].
    ///
    /// A replica that is stopped misses what is written meanwhile: promoted then, it has lost that tail.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub async fn replica(&self, options: ClusterOptions) -> Self {
        let copy = move |cluster: &mut Cluster| cluster.replica(options);
        Self::of(self.with(copy).await.unwrap_or_else(|error| panic!("{error}")), Arc::clone(&self.blank))
    }

    /// Takes a base backup of this server, which must run with [`ClusterOptions::replicated`]. [`Self::start`] restores it.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub async fn backup(&self, options: ClusterOptions) -> Self {
        let copy = move |cluster: &mut Cluster| cluster.backup(options);
        Self::of(self.with(copy).await.unwrap_or_else(|error| panic!("{error}")), Arc::clone(&self.blank))
    }

    /// Makes a replica the primary, and waits until it takes writes.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub async fn promote(&self) {
        self.with(|cluster| cluster.promote().unwrap_or_else(|error| panic!("{error}"))).await;
    }

    /// URL of the administrative database, as superuser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The certificate of the authority that signed the server's certificate.
    pub fn ca(&self) -> &Path {
        &self.ca
    }

    /// A new connection to the administrative database.
    pub async fn client(&self) -> Client {
        connect(&self.url).await
    }

    /// Kills all processes of the server at once: a crash.
    pub async fn kill(&self) {
        self.with(Cluster::kill).await;
    }

    /// Stops the server without a checkpoint: the next start recovers.
    pub async fn stop_immediately(&self) {
        self.with(Cluster::stop_immediately).await;
    }

    /// Where its data directory `data` is.
    pub async fn directory(&self) -> PathBuf {
        self.with(|cluster| cluster.directory().to_owned()).await
    }

    /// Starts a pooler in transaction mode in front of the server.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub async fn pooler(&self) -> OwnPooler {
        let start = |cluster: &mut Cluster| {
            let program = find_pgbouncer().unwrap_or_else(|error| panic!("{error}"));
            Bouncer::create(&program, cluster, Group::Inherited).unwrap_or_else(|error| panic!("{error}"))
        };
        let bouncer = self.with(start).await;
        let url = bouncer.url("postgres");
        OwnPooler { bouncer: Arc::new(Mutex::new(bouncer)), url }
    }

    /// Shuts the server down in good order, disconnecting its clients.
    pub async fn stop(&self) {
        self.with(Cluster::stop).await;
    }

    /// Starts the server again, on the same port, and waits until it takes connections.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub async fn start(&self) {
        self.with(|cluster| cluster.start().unwrap_or_else(|error| panic!("{error}"))).await;
    }

    /// What the server has logged since it was last started.
    pub async fn log(&self) -> String {
        self.with(|cluster| cluster.log()).await
    }

    /// Works on the cluster beside the runtime, so that what the test observes goes on.
    async fn with<T: Send + 'static>(&self, work: impl FnOnce(&mut Cluster) -> T + Send + 'static) -> T {
        let cluster = Arc::clone(&self.cluster);
        blocking(move || {
            // A failed start leaves the cluster stopped, not broken.
            let mut cluster = cluster.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut cluster)
        })
        .await
    }
}

/// A PgBouncer of a test's own. It keeps its port, and ends with this.
#[derive(Debug)]
pub struct OwnPooler {
    bouncer: Arc<Mutex<Bouncer>>,
    url: String,
}

impl OwnPooler {
    /// URL of the administrative database through the pooler, as superuser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills the pooler.
    pub async fn kill(&self) {
        self.with(Bouncer::kill).await;
    }

    /// Starts the pooler again.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub async fn start(&self) {
        self.with(|bouncer| bouncer.start().unwrap_or_else(|error| panic!("{error}"))).await;
    }

    /// The file that the pooler logs to.
    pub async fn log(&self) -> PathBuf {
        self.with(|bouncer| bouncer.log()).await
    }

    /// Stops the pooler's process, or lets it go on.
    pub async fn pause(&self, pause: bool) {
        self.with(move |bouncer| bouncer.pause(pause)).await;
    }

    async fn with<T: Send + 'static>(&self, work: impl FnOnce(&mut Bouncer) -> T + Send + 'static) -> T {
        let bouncer = Arc::clone(&self.bouncer);
        blocking(move || work(&mut bouncer.lock().unwrap_or_else(PoisonError::into_inner))).await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => panic!("the runtime ends: {error}"),
        },
    }
}

/// The blank cluster all tests share, or else one for this server alone.
fn blank(bin: &Path) -> Arc<Blank> {
    Arc::new(match std::env::var_os(variables::BLANK) {
        Some(directory) => Blank::open(Path::new(&directory)),
        None => Blank::create(bin).unwrap_or_else(|error| panic!("{error}")),
    })
}
