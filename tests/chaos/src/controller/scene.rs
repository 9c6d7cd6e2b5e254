//! The servers of a run, and the way that each child takes to them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use anyhow::{Context as _, Result};
use mainstay_tests::{ClusterOptions, OwnCluster, OwnPooler, PostgresUrl};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::child::Database;
use crate::clock::Clock;
use crate::network::Network;
use crate::options::{FaultKind, ProviderName, RunOptions, leave_out};

use super::disk::Disk;
use super::link::Link;
use super::sql_server::OwnDatabase;

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
    /// The hosts of the servers and the children, if they have some of their own.
    network: Option<Network>,
    /// Where logs go.
    logs: PathBuf,
}

/// What there is of servers.
pub(super) struct Servers {
    /// The primary.
    pub(super) cluster: Option<Mutex<OwnCluster>>,
    /// What follows the primary.
    pub(super) replica: Mutex<Option<OwnCluster>>,
    pub(super) pooler: Option<OwnPooler>,
    /// The clock of the database.
    pub(super) clock: Option<Clock>,
    /// The small disk that the data are on. Before the directory, which is removed after it.
    pub(super) disk: Option<Disk>,
    /// The run's database on a SQL Server that runs already.
    sql_server: Option<OwnDatabase>,
    directory: TempDir,
}

/// Settings of a server, for failovers too.
pub(super) fn cluster_options(provider: ProviderName) -> ClusterOptions {
    // A client that dies while its packets are lost can't tell the server, whose default is to ask after two hours.
    let options = ClusterOptions::default()
        .setting("max_connections", "200")
        .setting("tcp_keepalives_idle", "5")
        .setting("tcp_keepalives_interval", "2")
        .setting("tcp_keepalives_count", "3");
    if provider != ProviderName::Failover {
        return options;
    }
    // The replica confirms every commit, so that none is lost with the primary.
    options.replicated().setting("hot_standby", "on")
}

impl Scene {
    /// Starts the servers, and a link for each child. Takes those faults out of the options that this machine does not allow.
    pub(super) async fn start(
        options: &mut RunOptions,
        children: &[String],
        network: Option<Network>,
    ) -> Result<Self> {
        let provider = options.provider;
        let directory = tempfile::Builder::new().prefix("mainstay-chaos-").tempdir()?;
        let mut servers = Servers {
            cluster: None,
            replica: Mutex::new(None),
            pooler: None,
            clock: None,
            disk: None,
            sql_server: None,
            directory,
        };
        let (direct, entrance) = match provider {
            ProviderName::Postgres | ProviderName::Pgbouncer | ProviderName::Failover => {
                servers.start_postgres(options, network.is_some()).await?
            }
            ProviderName::Sqlite => {
                servers.clock = Clock::of_this_process();
                if options.faults.contains(&FaultKind::DiskFull) {
                    match Disk::mount(servers.directory.path()) {
                        Ok(disk) => servers.disk = Some(disk),
                        Err(error) => leave_out(options, FaultKind::DiskFull, &format!("{error:#}")),
                    }
                }
                let url = format!("sqlite:{}", servers.directory.path().join("chaos.db").display());
                (url.clone(), url)
            }
            ProviderName::SqlServer => {
                let url = servers.sql_server.insert(OwnDatabase::create().await?).url();
                (url.clone(), url)
            }
        };
        let mut scene = Self {
            provider,
            servers,
            direct: RwLock::new(direct),
            entrance: RwLock::new(entrance),
            links: BTreeMap::new(),
            network,
            logs: options.out.join("logs"),
        };
        if provider.has_server() {
            let at = scene.address();
            let address = match &scene.servers.sql_server {
                Some(database) => database.address(),
                None => PostgresUrl::parse(&scene.entrance()).address(),
            };
            for child in children {
                let link = Link::start(at, &address).await?;
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

    /// The URL for a child in one of its lives. Its connections bear the name of the process.
    pub(super) fn url_for(&self, child: &str, life: u64) -> String {
        let Some(link) = self.links.get(child) else { return self.direct_url() };
        let process = format!("{child}.{life}");
        if let Some(database) = &self.servers.sql_server {
            return database.url_through(link.address(), &process);
        }
        let url = PostgresUrl::parse(&self.entrance());
        // Without a proxy between, every second life has the lost packets to itself.
        let url = match self.network {
            Some(_) if self.provider == ProviderName::Postgres && life % 2 == 1 => {
                url.with_host(&Network::SERVER.to_string())
            }
            _ => url.with_host(&link.address().ip().to_string()).with_port(link.address().port()),
        };
        url.with_parameter("application_name", &process).to_string()
    }

    /// The network, if the children have hosts of their own.
    pub(super) fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// Where children reach links.
    fn address(&self) -> IpAddr {
        if self.network.is_some() { Network::SERVER.into() } else { Ipv4Addr::LOCALHOST.into() }
    }

    /// The way of a child.
    pub(super) fn link(&self, child: &str) -> Option<&Link> {
        self.links.get(child)
    }

    /// Keeps what a server has logged with the logs of the children, to be searched for payloads.
    pub(super) async fn keep_log(&self, cluster: &OwnCluster) -> Result<()> {
        let log = cluster.directory().await.join("log");
        let name = log.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        std::fs::copy(log, self.logs.join(format!("server-{name}.log"))).context("the log of a server")?;
        Ok(())
    }

    /// Keeps the logs of all servers.
    pub(super) async fn keep_logs(&self) -> Result<()> {
        if let Some(cluster) = &self.servers.cluster {
            self.keep_log(&*cluster.lock().await).await?;
        }
        if let Some(pooler) = &self.servers.pooler {
            std::fs::copy(pooler.log().await, self.logs.join("pooler.log"))
                .context("the log of the pooler")?;
        }
        Ok(())
    }
}

/// Payloads and statements pass links in plain text.
fn without_tls(url: &str) -> String {
    PostgresUrl::parse(url).with_parameter("sslmode", "disable").to_string()
}

impl Servers {
    /// Returns the URLs past poolers, and for the children.
    async fn start_postgres(
        &mut self,
        options: &mut RunOptions,
        has_network: bool,
    ) -> Result<(String, String)> {
        let mut settings = cluster_options(options.provider);
        if has_network {
            settings = settings.setting("listen_addresses", &format!("127.0.0.1,{}", Network::SERVER));
        }
        if options.faults.contains(&FaultKind::ClockStep) {
            match Clock::create(self.directory.path())? {
                Some(clock) => {
                    open_to_all(self.directory.path())?;
                    for (name, value) in clock.environment() {
                        settings = settings.env(name, &value);
                    }
                    self.clock = Some(clock);
                }
                None => leave_out(options, FaultKind::ClockStep, "there is no libfaketime"),
            }
        }
        let cluster = OwnCluster::create_with(settings).await;
        if has_network {
            admit_children(&cluster).await?;
        }
        if options.faults.contains(&FaultKind::DiskFull) {
            cluster.stop().await;
            match Disk::under(&cluster.directory().await.join("data")) {
                Ok(disk) => self.disk = Some(disk),
                Err(error) => leave_out(options, FaultKind::DiskFull, &format!("{error:#}")),
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

/// Lets the children's hosts in.
async fn admit_children(cluster: &OwnCluster) -> Result<()> {
    let path = cluster.directory().await.join("data/pg_hba.conf");
    let mut file = std::fs::File::options().append(true).open(path)?;
    writeln!(file, "host all all {} scram-sha-256", Network::ADDRESSES)?;
    cluster.client().await.batch_execute("select pg_reload_conf()").await?;
    Ok(())
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
