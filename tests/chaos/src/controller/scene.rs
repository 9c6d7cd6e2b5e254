//! The servers of a run, and the way that each child takes to them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use anyhow::{Result, bail};
use mainstay_servers::find_faketime;
use mainstay_tests::{ClusterOptions, OwnCluster, OwnPooler, PostgresUrl};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::child::Database;
use crate::options::{FaultKind, ProviderName, RunOptions};

use super::disk::Disk;
use super::link::Link;

/// The servers. They end with this.
pub(super) struct Scene {
    pub(super) provider: ProviderName,
    pub(super) servers: Servers,
    /// The URL of the database, past poolers and links. A failover changes it.
    direct: RwLock<String>,
    /// Where links lead to.
    entrance: RwLock<String>,
    /// Each child has a way of its own.
    links: BTreeMap<String, Link>,
}

/// What there is of servers.
pub(super) struct Servers {
    /// The primary.
    pub(super) cluster: Option<Mutex<OwnCluster>>,
    /// What follows the primary.
    pub(super) replica: Mutex<Option<OwnCluster>>,
    pub(super) pooler: Option<OwnPooler>,
    /// What the server takes its clock's offset from.
    pub(super) clock: Option<PathBuf>,
    /// The small disk that the data are on. Before the directory, which is removed after it.
    pub(super) disk: Option<Disk>,
    directory: TempDir,
}

/// Settings of a server, for failovers too.
pub(super) fn cluster_options(provider: ProviderName) -> ClusterOptions {
    let options = ClusterOptions::default().setting("max_connections", "200");
    if provider != ProviderName::Failover {
        return options;
    }
    // The replica confirms every commit, so that none is lost with the primary.
    options.replicated().setting("hot_standby", "on")
}

impl Scene {
    /// Starts the servers, and a link for each child. Takes those faults out of the options that this machine does not allow.
    pub(super) async fn start(options: &mut RunOptions, children: &[String]) -> Result<Self> {
        let provider = options.provider;
        let directory = tempfile::Builder::new().prefix("mainstay-chaos-").tempdir()?;
        let mut servers = Servers {
            cluster: None,
            replica: Mutex::new(None),
            pooler: None,
            clock: None,
            disk: None,
            directory,
        };
        let (direct, entrance) = match provider {
            ProviderName::Postgres | ProviderName::Pgbouncer | ProviderName::Failover => {
                servers.start_postgres(options).await?
            }
            ProviderName::Sqlite => {
                if options.faults.contains(&FaultKind::DiskFull) {
                    match Disk::mount(servers.directory.path()) {
                        Ok(disk) => servers.disk = Some(disk),
                        Err(error) => skip(options, FaultKind::DiskFull, &format!("{error:#}")),
                    }
                }
                let url = format!("sqlite:{}", servers.directory.path().join("chaos.db").display());
                (url.clone(), url)
            }
            ProviderName::SqlServer => bail!("there is no harness for {provider}"),
        };
        let mut scene = Self {
            provider,
            servers,
            direct: RwLock::new(direct),
            entrance: RwLock::new(entrance),
            links: BTreeMap::new(),
        };
        if provider.is_postgres() {
            for child in children {
                let link = Link::start(&PostgresUrl::parse(&scene.entrance()).address()).await?;
                scene.links.insert(child.clone(), link);
            }
        }
        Ok(scene)
    }

    /// The URL of the database, past poolers and links.
    pub(super) fn direct_url(&self) -> String {
        self.direct.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn entrance(&self) -> String {
        self.entrance.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Leads all children to another server. Their connections to the old one are cut.
    pub(super) fn lead_to(&self, url: &str) {
        let url = without_tls(url);
        self.direct.write().unwrap_or_else(PoisonError::into_inner).clone_from(&url);
        self.entrance.write().unwrap_or_else(PoisonError::into_inner).clone_from(&url);
        for link in self.links.values() {
            link.lead_to(&PostgresUrl::parse(&url).address());
        }
    }

    /// Leads all children to nowhere.
    pub(super) fn part(&self) {
        for link in self.links.values() {
            // Nothing listens there.
            link.lead_to("127.0.0.1:1");
        }
    }

    /// The database, past poolers and links.
    pub(super) fn database(&self) -> Database {
        Database::new(&self.direct_url())
    }

    /// The SQLite file.
    pub(super) fn sqlite_path(&self) -> Option<PathBuf> {
        let path = self.servers.directory.path().join("chaos.db");
        (self.provider == ProviderName::Sqlite).then_some(path)
    }

    /// The URL for a child. Its connections bear the name of the process.
    pub(super) fn url_for(&self, child: &str, process: &str) -> String {
        match self.links.get(child) {
            Some(link) => PostgresUrl::parse(&self.entrance())
                .with_host(&link.address().ip().to_string())
                .with_port(link.address().port())
                .with_parameter("application_name", process)
                .to_string(),
            None => self.direct_url(),
        }
    }

    /// The way of a child.
    pub(super) fn link(&self, child: &str) -> Option<&Link> {
        self.links.get(child)
    }

    /// Whether a pooler stands before the server.
    pub(super) fn is_pooled(&self) -> bool {
        self.provider == ProviderName::Pgbouncer
    }
}

/// Leaves out a kind of faults.
fn skip(options: &mut RunOptions, kind: FaultKind, why: &str) {
    println!("{kind} is left out: {why}");
    options.faults.remove(&kind);
}

/// Payloads and statements pass links in plain text.
fn without_tls(url: &str) -> String {
    PostgresUrl::parse(url).with_parameter("sslmode", "disable").to_string()
}

impl Servers {
    /// Returns the URLs past poolers, and for the children.
    async fn start_postgres(&mut self, options: &mut RunOptions) -> Result<(String, String)> {
        let mut settings = cluster_options(options.provider);
        if options.faults.contains(&FaultKind::ClockStep) {
            match find_faketime() {
                Some(library) => {
                    let clock = self.directory.path().join("clock");
                    std::fs::write(&clock, "+0")?;
                    open_to_all(self.directory.path())?;
                    settings = settings
                        .env("LD_PRELOAD", &library.display().to_string())
                        .env("FAKETIME_TIMESTAMP_FILE", &clock.display().to_string())
                        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                        .env("FAKETIME_NO_CACHE", "1");
                    self.clock = Some(clock);
                }
                None => skip(options, FaultKind::ClockStep, "there is no libfaketime"),
            }
        }
        let cluster = OwnCluster::create_with(settings).await;
        if options.faults.contains(&FaultKind::DiskFull) {
            cluster.stop().await;
            match Disk::under(&cluster.directory().await.join("data")) {
                Ok(disk) => self.disk = Some(disk),
                Err(error) => skip(options, FaultKind::DiskFull, &format!("{error:#}")),
            }
            cluster.start().await;
        }
        if options.provider == ProviderName::Failover {
            *self.replica.lock().await = Some(cluster.replica(cluster_options(options.provider)).await);
            set_synchronous(&cluster, true).await?;
        }
        let direct = without_tls(cluster.url());
        if options.provider == ProviderName::Pgbouncer {
            self.pooler = Some(cluster.pooler().await);
        }
        let entrance =
            self.pooler.as_ref().map_or_else(|| direct.clone(), |pooler| without_tls(pooler.url()));
        self.cluster = Some(Mutex::new(cluster));
        Ok((direct, entrance))
    }
}

/// Whether a commit waits until the replica has it.
pub(super) async fn set_synchronous(cluster: &OwnCluster, synchronous: bool) -> Result<()> {
    let names = if synchronous { "*" } else { "" };
    let client = cluster.client().await;
    client.batch_execute(&format!("alter system set synchronous_standby_names = '{names}'")).await?;
    client.batch_execute("select pg_reload_conf()").await?;
    Ok(())
}

/// Lets the account of the server into a directory.
fn open_to_all(directory: &std::path::Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}
