//! A PostgreSQL for the measurements, and fresh databases on it.
//!
//! As it comes: fsync on, and every other setting that has to do with speed at PostgreSQL's own default, the same for all.

use std::path::{Path, PathBuf};
use std::process::Command;

use mainstay_servers::{Blank, Cluster, ClusterOptions, Group, find_postgres};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::tools::install;

/// Settings that are told with the figures.
const TOLD: [&str; 6] =
    ["server_version", "fsync", "synchronous_commit", "wal_level", "shared_buffers", "max_connections"];

/// A temporary PostgreSQL. Dropping it stops and removes it.
#[derive(Debug)]
pub(super) struct Ground {
    bin: PathBuf,
    // Before the blank one it was copied from.
    cluster: Cluster,
    _blank: Blank,
}

/// An empty database, removed with [`Ground::remove`].
#[derive(Debug)]
pub(super) struct Database {
    name: String,
    pub(super) url: String,
}

impl Ground {
    /// Installs PostgreSQL if need be, and starts one.
    pub(super) fn start(interrupt: &Interrupt) -> Result<Self, Failure> {
        if find_postgres().is_err() {
            install(&["postgresql"], interrupt)?;
        }
        interrupt.check()?;
        let bin = find_postgres()?;
        let blank = Blank::create(&bin)?;
        // What the tests' servers have otherwise.
        let options =
            ClusterOptions::new(Group::Own).setting("wal_level", "replica").setting("max_wal_senders", "10");
        let cluster = Cluster::create(&bin, &blank, options)?;
        Ok(Self { bin, cluster, _blank: blank })
    }

    /// Makes an empty database.
    pub(super) fn database(&self, name: &str) -> Result<Database, Failure> {
        self.query("postgres", &format!("create database \"{name}\""))?;
        // Without encryption: some of the programs have none, and it would be measured too.
        let url = format!("{}?sslmode=disable", self.cluster.url(name));
        Ok(Database { name: name.to_owned(), url })
    }

    pub(super) fn remove(&self, database: &Database) -> Result<(), Failure> {
        self.query("postgres", &format!("drop database \"{}\" with (force)", database.name)).map(drop)
    }

    /// What one statement answers, as text.
    pub(super) fn query(&self, database: &str, sql: &str) -> Result<String, Failure> {
        let mut command = self.psql(database);
        let output = command
            .args(["-c", sql])
            .output()
            .map_err(|error| Failure::new(format!("cannot run psql: {error}")))?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::new(format!("PostgreSQL refused `{sql}`: {}", told.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn psql(&self, database: &str) -> Command {
        let mut command = Command::new(self.bin.join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres"]);
        command.args(["-p", &self.cluster.port().to_string(), "-d", database]);
        command.env("PGPASSWORD", self.cluster.password());
        // PostgreSQL's programs want to know where they are, and the caller's directory may be closed to them.
        command.current_dir(Path::new("/"));
        command
    }

    /// The settings that are told with the figures.
    pub(super) fn settings(&self) -> Result<Vec<(&'static str, String)>, Failure> {
        TOLD.iter().map(|name| Ok((*name, self.query("postgres", &format!("show {name}"))?))).collect()
    }
}

pub(super) fn settings_json(settings: &[(&'static str, String)]) -> Value {
    settings.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
}
