use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::account::Account;
use crate::blank::Blank;
use crate::error::{Error, Result};
use crate::port::free_port;
use crate::process::{Group, Process, children_of, signal_process};

/// How long a server may take to start, to recover or to stop before that is an error.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a cluster's server runs with, beyond what all have in common.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    group: Group,
    settings: Vec<(String, String)>,
    environment: Vec<(String, String)>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self::new(Group::Inherited)
    }
}

impl ClusterOptions {
    /// No more than all have in common.
    pub fn new(group: Group) -> Self {
        Self { group, settings: Vec::new(), environment: Vec::new() }
    }

    /// With a configuration parameter set to `value`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With an environment variable of the server process set to `value`.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With what base backups and replicas of the cluster need.
    #[must_use]
    pub fn replicated(self) -> Self {
        self.setting("wal_level", "replica")
            .setting("max_wal_senders", "10")
            // For a replica that was stopped for a while.
            .setting("wal_keep_size", "256MB")
    }
}

/// A temporary PostgreSQL cluster: started on creation, stopped and removed on drop.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) bin: PathBuf,
    pub(crate) account: Account,
    pub(crate) options: ClusterOptions,
    pub(crate) port: u16,
    pub(crate) password: String,
    pub(crate) server: Option<Process>,
    // Last, to be removed after the server has stopped.
    pub(crate) directory: TempDir,
}

impl Cluster {
    /// Copies the blank cluster and starts a server for the copy on a free loopback port.
    pub fn create(bin: &Path, blank: &Blank, options: ClusterOptions) -> Result<Self> {
        let account = Account::for_servers()?;
        let directory = account.directory()?;
        blank.copy_to(account, directory.path())?;
        let mut cluster = Self {
            bin: bin.to_owned(),
            account,
            options,
            port: free_port()?,
            password: blank.password()?,
            server: None,
            directory,
        };
        cluster.start_on_any_port()?;
        Ok(cluster)
    }

    /// Starts the server for the first time: on another port if its own was taken since it was found free.
    pub(crate) fn start_on_any_port(&mut self) -> Result<()> {
        let mut attempts = 5;
        loop {
            match self.start() {
                Err(error) if attempts > 0 && error.to_string().contains("could not bind") => {
                    attempts -= 1;
                    self.port = free_port()?;
                }
                started => return started,
            }
        }
    }

    /// URL of a database, as superuser.
    pub fn url(&self, database: &str) -> String {
        url(&self.password, self.port, database)
    }

    /// The loopback port the server listens on; the same for the life of the cluster.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The password of the superuser `postgres`.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// What the server has logged since it was last started.
    pub fn log(&self) -> String {
        self.server.as_ref().map(Process::output).unwrap_or_default()
    }

    /// Starts the server and waits until it takes connections; nothing if it runs.
    pub fn start(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(server) = &mut self.server
                && server.exited().is_none()
            {
                return Ok(());
            }
            let server = self.server.insert(Process::spawn(
                command(
                    self.account,
                    &self.bin.join("postgres"),
                    self.directory.path(),
                    self.port,
                    &self.options,
                ),
                &self.directory.path().join("log"),
                self.options.group,
            )?);
            match wait_until_ready(server, self.directory.path(), deadline) {
                // After a crash the last of the old server's processes may still be ending.
                Err(error)
                    if Instant::now() < deadline && error.to_string().contains("shared memory block") =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => {
                    server.kill();
                    return Err(error);
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Shuts the server down in good order, disconnecting its clients.
    pub fn stop(&mut self) {
        if let Some(server) = &mut self.server {
            server.end(Signal::INT, PATIENCE);
        }
    }

    /// Stops the server without a checkpoint, as `pg_ctl stop --mode=immediate` does: the next start recovers.
    pub fn stop_immediately(&mut self) {
        if let Some(server) = &mut self.server {
            server.end(Signal::QUIT, PATIENCE);
        }
    }

    /// Where the data directory `data` and the log are.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills the server and all its processes at once: a crash.
    pub fn kill(&mut self) {
        let Some(server) = &mut self.server else {
            return;
        };
        if server.exited().is_some() {
            return;
        }
        // Held first, so that it starts no process after the others have been counted. Left
        // to themselves, the others would end only after the statement they are at.
        server.signal(Signal::STOP);
        for child in children_of(server.id()) {
            signal_process(child, Signal::KILL);
        }
        server.kill();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The data is about to be removed: there is no point in writing it out.
        if let Some(server) = &mut self.server {
            server.end(Signal::QUIT, PATIENCE);
        }
    }
}

/// URL of a database on a loopback port, as superuser.
pub(crate) fn url(password: &str, port: u16, database: &str) -> String {
    format!("postgres://postgres:{password}@127.0.0.1:{port}/{database}")
}

fn command(
    account: Account,
    postgres: &Path,
    directory: &Path,
    port: u16,
    options: &ClusterOptions,
) -> Command {
    let mut command = account.command(postgres, directory);
    command.args(["-D", "data"]);
    let mut set = |name: &str, value: &str| {
        command.arg("-c").arg(format!("{name}={value}"));
    };
    set("listen_addresses", "127.0.0.1");
    set("port", &port.to_string());
    set("unix_socket_directories", &directory.display().to_string());
    set("ssl", "on");
    set("ssl_cert_file", "server.crt");
    set("ssl_key_file", "server.key");
    set("fsync", "on");
    set("wal_level", "minimal");
    set("max_wal_senders", "0");
    set("log_min_messages", "warning");
    for (name, value) in &options.settings {
        set(name, value);
    }
    for (name, value) in &options.environment {
        command.env(name, value);
    }
    command
}

fn wait_until_ready(server: &mut Process, directory: &Path, deadline: Instant) -> Result<()> {
    let status = directory.join("data/postmaster.pid");
    loop {
        if let Some(status) = server.exited() {
            return Err(Error::new(format!("PostgreSQL did not start ({status}):\n{}", server.output())));
        }
        if is_ready(&status, server.id()) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::new(format!(
                "PostgreSQL is not ready after {PATIENCE:?}:\n{}",
                server.output()
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the server's status file, which `pg_ctl` reads too, says that it is ready: its
/// first line is the process number (of an earlier server after a crash), its eighth the
/// status.
fn is_ready(status: &Path, id: u32) -> bool {
    let Ok(text) = std::fs::read_to_string(status) else {
        return false;
    };
    let mut lines = text.lines().map(str::trim);
    lines.next() == Some(&id.to_string()) && lines.nth(6) == Some("ready")
}
