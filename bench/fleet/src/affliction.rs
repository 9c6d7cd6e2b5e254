//! Ten databases that go down, each pair of them in another way, and come back.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use mainstay_tests::FaultProxy;
use rusqlite::Connection;
use tokio_postgres::Client;

use crate::tenants::{Place, Tenant};

/// What SQLite keeps beside a file.
const BESIDE: [&str; 3] = ["", "-wal", "-shm"];

/// What was done to a database, so that it can be undone.
pub(crate) enum Affliction {
    /// The file is not where it was.
    Vanished(PathBuf),
    /// Something else is in its place.
    NoDatabase(PathBuf),
    /// Somebody writes, and does not end.
    Locked(Connection),
    /// The server lets nobody into the database.
    Refusing(String),
    /// Connections are accepted, and then nothing is said.
    Silent(Arc<FaultProxy>),
}

/// Takes these databases down.
pub(crate) async fn afflict(group: &[Tenant], admin: &Client) -> Result<Vec<Affliction>> {
    let (mut afflictions, mut files) = (Vec::new(), 0);
    for tenant in group {
        afflictions.push(match &tenant.place {
            Place::File(path) => {
                files += 1;
                harm_file(path, (files - 1) / 2)?
            }
            Place::Server(_, Some(proxy)) => {
                proxy.stall(true);
                Affliction::Silent(Arc::clone(proxy))
            }
            Place::Server(name, None) => {
                admin.batch_execute(&format!("alter database {name} allow_connections false")).await?;
                let end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1";
                admin.query(end, &[name]).await?;
                Affliction::Refusing(name.clone())
            }
        });
    }
    Ok(afflictions)
}

fn harm_file(path: &Path, kind: usize) -> Result<Affliction> {
    Ok(match kind {
        0 => {
            carry(path, &away(path))?;
            Affliction::Vanished(path.to_owned())
        }
        1 => {
            carry(path, &away(path))?;
            std::fs::write(path, "This is a text, and has never been a database. ".repeat(200))?;
            Affliction::NoDatabase(path.to_owned())
        }
        _ => {
            let connection = Connection::open(path)?;
            connection.busy_timeout(Duration::from_secs(10))?;
            connection.execute_batch("begin immediate")?;
            Affliction::Locked(connection)
        }
    })
}

impl Affliction {
    /// Lets the database be as it was.
    pub(crate) async fn end(self, admin: &Client) -> Result<()> {
        match self {
            Self::Vanished(path) | Self::NoDatabase(path) => {
                for beside in BESIDE {
                    // Mostly there is none.
                    drop(std::fs::remove_file(with(&path, beside)));
                }
                carry(&away(&path), &path)?;
            }
            Self::Locked(connection) => connection.execute_batch("rollback")?,
            Self::Refusing(name) => {
                admin.batch_execute(&format!("alter database {name} allow_connections true")).await?;
            }
            Self::Silent(proxy) => {
                proxy.stall(false);
                proxy.cut().await;
            }
        }
        Ok(())
    }
}

fn away(path: &Path) -> PathBuf {
    with(path, ".away")
}

fn with(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn carry(from: &Path, to: &Path) -> std::io::Result<()> {
    for beside in BESIDE {
        match std::fs::rename(with(from, beside), with(to, beside)) {
            Err(error) if beside.is_empty() => return Err(error),
            // There is none while nobody has the file open.
            _ => {}
        }
    }
    Ok(())
}
