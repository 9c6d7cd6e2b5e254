use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::account::Account;
use crate::cluster::{Cluster, url};
use crate::error::{Error, Result};
use crate::port::free_port;
use crate::process::{Group, Process};

/// How long the pooler may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(10);

/// A PgBouncer in transaction mode in front of all databases of a cluster: started on
/// creation, stopped on drop.
#[derive(Debug)]
pub struct Bouncer {
    program: PathBuf,
    account: Account,
    group: Group,
    port: u16,
    password: String,
    process: Process,
    // Last, to be removed after the process has stopped.
    directory: TempDir,
}

impl Bouncer {
    /// Starts a pooler for `cluster` on a free loopback port.
    pub fn create(pgbouncer: &Path, cluster: &Cluster, group: Group) -> Result<Self> {
        let account = Account::for_servers()?;
        let directory = account.directory()?;
        let port = free_port()?;
        let path = directory.path();
        account.write(&path.join("users"), &format!("\"postgres\" \"{}\"\n", cluster.password()))?;
        account.write(
            &path.join("pgbouncer.ini"),
            &configuration(port, cluster.port(), has_prepared_statements(pgbouncer)),
        )?;
        let process = spawn(pgbouncer, account, path, port, group)?;
        Ok(Self {
            program: pgbouncer.to_owned(),
            account,
            group,
            port,
            password: cluster.password().to_owned(),
            process,
            directory,
        })
    }

    /// Kills the pooler with SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts the pooler again, on the same port; nothing if it runs.
    pub fn start(&mut self) -> Result<()> {
        if self.process.exited().is_some() {
            self.process = spawn(&self.program, self.account, self.directory.path(), self.port, self.group)?;
        }
        Ok(())
    }

    /// Stops the pooler's process, or lets it go on: its connections stay open meanwhile.
    pub fn pause(&mut self, pause: bool) {
        self.process.signal(if pause { Signal::STOP } else { Signal::CONT });
    }

    /// The file that the pooler logs to.
    pub fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// URL of a database through the pooler, as superuser.
    pub fn url(&self, database: &str) -> String {
        url(&self.password, self.port, database)
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        self.pause(false);
        self.process.end(Signal::TERM, PATIENCE);
    }
}

fn spawn(program: &Path, account: Account, directory: &Path, port: u16, group: Group) -> Result<Process> {
    let mut command = account.command(program, directory);
    command.args(["-q", "pgbouncer.ini"]);
    let mut process = Process::spawn(command, &directory.join("log"), group)?;
    if let Err(error) = wait_until_ready(&mut process, port) {
        process.kill();
        return Err(error);
    }
    Ok(process)
}

fn configuration(port: u16, server_port: u16, prepared_statements: bool) -> String {
    // The parameter is an error before PgBouncer knew prepared statements, and there nothing
    // has to be turned off.
    let prepared_statements = if prepared_statements { "max_prepared_statements = 0\n" } else { "" };
    // The query for passwords lets roles that tests create log in, too. A pooler that waits
    // a long time after a failed login would make tests that restart things wait with it.
    format!(
        "\
[databases]
* = host=127.0.0.1 port={server_port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
pool_mode = transaction
{prepared_statements}auth_type = scram-sha-256
auth_file = users
auth_user = postgres
auth_query = SELECT usename, passwd FROM pg_catalog.pg_shadow WHERE usename = $1
admin_users = postgres
ignore_startup_parameters = extra_float_digits
max_client_conn = 1000
default_pool_size = 20
server_idle_timeout = 30
server_login_retry = 1
log_connections = 0
log_disconnections = 0
"
    )
}

/// Whether this PgBouncer follows prepared statements in transaction mode (1.21 and later).
fn has_prepared_statements(pgbouncer: &Path) -> bool {
    let Ok(output) = Command::new(pgbouncer).arg("--version").output() else {
        return false;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text
        .split_whitespace()
        .nth(1)
        .unwrap_or_default()
        .split('.')
        .map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (1, 21)
}

fn wait_until_ready(process: &mut Process, port: u16) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // The port alone proves nothing: it may be another's, taken after it was found free.
        if let Some(status) = process.exited() {
            return Err(Error::new(format!("PgBouncer did not start ({status}):\n{}", process.output())));
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::new(format!(
                "PgBouncer does not listen after {PATIENCE:?}:\n{}",
                process.output()
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
