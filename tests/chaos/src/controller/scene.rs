//! The servers of a run, and the way that each child takes to them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, bail};
use mainstay_tests::{ClusterOptions, OwnCluster, PostgresUrl};
use tempfile::TempDir;

use crate::child::Database;
use crate::options::{ProviderName, RunOptions};

use super::link::Link;

/// The servers. They end with this.
pub(super) struct Scene {
    pub(super) provider: ProviderName,
    servers: Servers,
    /// Each child has a way of its own.
    links: BTreeMap<String, Link>,
}

enum Servers {
    Postgres(Box<OwnCluster>),
    Sqlite(TempDir),
}

impl Scene {
    /// Starts the servers, and a proxy for each child.
    pub(super) async fn start(options: &RunOptions, children: &[String]) -> Result<Self> {
        let servers = match options.provider {
            ProviderName::Postgres => {
                let settings = ClusterOptions::default().setting("max_connections", "200");
                Servers::Postgres(Box::new(OwnCluster::create_with(settings).await))
            }
            ProviderName::Sqlite => {
                Servers::Sqlite(tempfile::Builder::new().prefix("mainstay-chaos-").tempdir()?)
            }
            other => bail!("there is no harness for {other} yet"),
        };
        let mut scene = Self { provider: options.provider, servers, links: BTreeMap::new() };
        if scene.provider.is_postgres() {
            for child in children {
                let link = Link::start(&PostgresUrl::parse(&scene.entrance()).address()).await?;
                scene.links.insert(child.clone(), link);
            }
        }
        Ok(scene)
    }

    /// What children connect to, behind their proxies.
    fn entrance(&self) -> String {
        self.direct_url()
    }

    /// The URL of the database, past poolers and proxies.
    pub(super) fn direct_url(&self) -> String {
        match &self.servers {
            Servers::Postgres(cluster) => {
                PostgresUrl::parse(cluster.url()).with_parameter("sslmode", "disable").to_string()
            }
            Servers::Sqlite(_) => format!("sqlite:{}", self.sqlite_path().unwrap_or_default().display()),
        }
    }

    /// The database, past poolers and proxies.
    pub(super) fn database(&self) -> Database {
        Database::new(&self.direct_url())
    }

    /// The SQLite file.
    pub(super) fn sqlite_path(&self) -> Option<PathBuf> {
        match &self.servers {
            Servers::Sqlite(directory) => Some(directory.path().join("chaos.db")),
            Servers::Postgres(_) => None,
        }
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

    /// Whether a pooler stands before the server.
    pub(super) fn is_pooled(&self) -> bool {
        self.provider == ProviderName::Pgbouncer
    }
}
