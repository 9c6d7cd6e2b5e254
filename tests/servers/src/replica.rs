//! Copies of a running cluster: base backups, replicas, and their promotion.

use crate::cluster::{Cluster, ClusterOptions};
use crate::error::Result;
use crate::port::free_port;
use crate::process::complete;

impl Cluster {
    /// Takes a base backup of this cluster. [`Cluster::start`] restores it, on a port of its own.
    ///
    /// This cluster must run with [`ClusterOptions::replicated`].
    pub fn backup(&self, options: ClusterOptions) -> Result<Self> {
        self.base_backup(options, &[])
    }

    /// Starts a replica of this cluster. It streams asynchronously unless this cluster's
    /// `synchronous_standby_names` says otherwise.
    ///
    /// This cluster must run with [`ClusterOptions::replicated`]. A replica that is stopped misses what this cluster
    /// writes meanwhile, and catches up when it is started again while this cluster runs.
    pub fn replica(&self, options: ClusterOptions) -> Result<Self> {
        let mut replica = self.base_backup(options, &["--write-recovery-conf"])?;
        replica.start_on_any_port()?;
        Ok(replica)
    }

    /// Promotes a replica that runs, and waits until it takes writes.
    pub fn promote(&self) -> Result<()> {
        let mut promote = self.account.command(self.bin.join("pg_ctl"), self.directory.path());
        promote.args(["promote", "--pgdata=data", "--wait", "--timeout=60"]);
        complete(promote)
    }

    fn base_backup(&self, options: ClusterOptions, more: &[&str]) -> Result<Self> {
        let directory = self.account.directory()?;
        let mut backup = self.account.command(self.bin.join("pg_basebackup"), directory.path());
        backup.args(["--pgdata=data", "--host=127.0.0.1", "--username=postgres", "--no-password"]);
        backup.arg(format!("--port={}", self.port)).env("PGPASSWORD", &self.password);
        // Nothing here has to outlive a crash of the machine.
        backup.args(["--wal-method=stream", "--checkpoint=fast", "--no-sync"]).args(more);
        complete(backup)?;
        Ok(Self {
            bin: self.bin.clone(),
            account: self.account,
            options,
            port: free_port()?,
            password: self.password.clone(),
            server: None,
            directory,
        })
    }
}
