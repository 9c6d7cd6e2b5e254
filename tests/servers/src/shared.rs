use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::account::Account;
use crate::blank::Blank;
use crate::bouncer::Bouncer;
use crate::cluster::{Cluster, ClusterOptions};
use crate::error::Result;
use crate::process::Group;
use crate::programs::find_faketime;
use crate::variables;

/// The servers all tests share. They run until this is dropped.
#[derive(Debug)]
pub struct SharedServers {
    bin: PathBuf,
    // The order is that of dropping: the pooler before the server behind it.
    bouncer: Bouncer,
    cluster: Cluster,
    blank: Blank,
    scratch: TempDir,
}

impl SharedServers {
    /// Starts a cluster with the PostgreSQL programs in `bin`, and a pooler for it.
    pub fn start(bin: &Path, pgbouncer: &Path) -> Result<Self> {
        let scratch = Account::for_servers()?.directory()?;
        let blank = Blank::create(bin)?;
        let options = ClusterOptions::new(Group::Own).setting("max_connections", "300");
        let cluster = Cluster::create(bin, &blank, options)?;
        let bouncer = Bouncer::create(pgbouncer, &cluster, Group::Own)?;
        Ok(Self { bin: bin.to_owned(), bouncer, cluster, blank, scratch })
    }

    /// A directory for the temporary files of the tests. It goes with the servers, so that a
    /// test that is killed leaves nothing behind.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The environment that tells tests where the servers are.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut environment = vec![
            (variables::POSTGRES, self.cluster.url("postgres").into()),
            (variables::PGBOUNCER, self.bouncer.url("postgres").into()),
            (variables::CA, self.blank.ca().into()),
            (variables::PG_BIN, self.bin.clone().into()),
            (variables::BLANK, self.blank.directory().into()),
        ];
        environment.extend(find_faketime().map(|library| (variables::FAKETIME, library.into_os_string())));
        environment
    }
}
