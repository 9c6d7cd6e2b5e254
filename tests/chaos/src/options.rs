//! What a run is asked to do.

// What is left out is for the person who started the run.
#![allow(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::history::{CLOCK_STEP, LOST_TAIL};

/// How long claims and leases hold in a run.
pub const LEASE: Duration = Duration::from_secs(2);

/// What the processes run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderName {
    /// A PostgreSQL server.
    Postgres,
    /// A PostgreSQL server behind PgBouncer in transaction mode.
    Pgbouncer,
    /// A PostgreSQL server with replicas that take over.
    Failover,
    /// A SQLite file.
    Sqlite,
    /// A SQL Server that the environment names.
    SqlServer,
}

impl ProviderName {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Postgres, Self::Pgbouncer, Self::Failover, Self::Sqlite, Self::SqlServer];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Pgbouncer => "pgbouncer",
            Self::Failover => "failover",
            Self::Sqlite => "sqlite",
            Self::SqlServer => "sqlserver",
        }
    }

    /// Whether the processes speak to a server.
    pub const fn has_server(self) -> bool {
        !matches!(self, Self::Sqlite)
    }

    /// Whether the processes speak to a PostgreSQL server.
    pub const fn is_postgres(self) -> bool {
        matches!(self, Self::Postgres | Self::Pgbouncer | Self::Failover)
    }

    /// The faults that make sense on it.
    pub fn faults(self) -> Vec<FaultKind> {
        FaultKind::ALL.into_iter().filter(|kind| kind.applies_to(self)).collect()
    }
}

impl fmt::Display for ProviderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ProviderName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|provider| provider.as_str() == text);
        match found {
            Some(provider) => Ok(provider),
            None => bail!("unknown provider {text:?}; known are {}", list(&Self::ALL)),
        }
    }
}

/// The kinds of faults that a schedule has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// SIGKILL of a child at a random instant.
    Kill,
    /// SIGKILL of a child right after it has written a certain line of its history.
    KillAtStep,
    /// SIGKILL of several children at once.
    KillMany,
    /// SIGSTOP of a child for half a lease to three leases.
    Pause,
    /// All server processes are killed; the server starts again.
    ServerCrash,
    /// The server is stopped in immediate mode and started again.
    ServerStop,
    /// One backend is killed, and the server restarts all others.
    BackendKill,
    /// One session is ended by `pg_terminate_backend`, or by `KILL` on SQL Server.
    BackendTerminate,
    /// One backend is stopped for a while.
    BackendPause,
    /// All connections of a child are cut.
    ConnectionCut,
    /// A connection is cut after some bytes of an answer.
    ConnectionCutAnswer,
    /// The connections of a child deliver late.
    ConnectionDelay,
    /// A connection stays open, and answers no longer arrive.
    ConnectionHalfOpen,
    /// All packets between a child's host and the servers are lost.
    Partition,
    /// The packets from a child's host to the servers are lost.
    LostRequests,
    /// The packets from the servers to a child's host are lost.
    LostAnswers,
    /// PgBouncer is killed and started again.
    PoolerKill,
    /// PgBouncer is stopped for a while.
    PoolerPause,
    /// The table of open messages is locked for a while.
    TableLock,
    /// The disk of the database is full for a while.
    DiskFull,
    /// The database's clock is set forward or back.
    ClockStep,
    /// The primary dies, and a replica that has everything takes over.
    Failover,
    /// The primary dies, and a replica that lacks the last transactions takes over.
    FailoverLostTail,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::Kill,
        Self::KillAtStep,
        Self::KillMany,
        Self::Pause,
        Self::ServerCrash,
        Self::ServerStop,
        Self::BackendKill,
        Self::BackendTerminate,
        Self::BackendPause,
        Self::ConnectionCut,
        Self::ConnectionCutAnswer,
        Self::ConnectionDelay,
        Self::ConnectionHalfOpen,
        Self::Partition,
        Self::LostRequests,
        Self::LostAnswers,
        Self::PoolerKill,
        Self::PoolerPause,
        Self::TableLock,
        Self::DiskFull,
        Self::ClockStep,
        Self::Failover,
        Self::FailoverLostTail,
    ];

    /// Its name, as `verdict.json` counts it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::KillAtStep => "kill_at_step",
            Self::KillMany => "kill_many",
            Self::Pause => "pause",
            Self::ServerCrash => "server_crash",
            Self::ServerStop => "server_stop",
            Self::BackendKill => "backend_kill",
            Self::BackendTerminate => "backend_terminate",
            Self::BackendPause => "backend_pause",
            Self::ConnectionCut => "connection_cut",
            Self::ConnectionCutAnswer => "connection_cut_answer",
            Self::ConnectionDelay => "connection_delay",
            Self::ConnectionHalfOpen => "connection_half_open",
            Self::Partition => "partition",
            Self::LostRequests => "lost_requests",
            Self::LostAnswers => "lost_answers",
            Self::PoolerKill => "pooler_kill",
            Self::PoolerPause => "pooler_pause",
            Self::TableLock => "table_lock",
            Self::DiskFull => "disk_full",
            Self::ClockStep => CLOCK_STEP,
            Self::Failover => "failover",
            Self::FailoverLostTail => LOST_TAIL,
        }
    }

    /// Whether it makes sense on a provider.
    pub fn applies_to(self, provider: ProviderName) -> bool {
        match self {
            Self::Kill | Self::KillAtStep | Self::KillMany | Self::Pause | Self::TableLock => true,
            Self::ServerCrash | Self::ServerStop | Self::BackendKill | Self::BackendPause => {
                matches!(provider, ProviderName::Postgres | ProviderName::Pgbouncer)
            }
            Self::BackendTerminate => {
                matches!(provider, ProviderName::Postgres | ProviderName::Pgbouncer | ProviderName::SqlServer)
            }
            Self::ConnectionCut
            | Self::ConnectionCutAnswer
            | Self::ConnectionDelay
            | Self::ConnectionHalfOpen => provider.has_server(),
            // A server that is not ours cannot be moved to another host.
            Self::Partition | Self::LostRequests | Self::LostAnswers => provider.is_postgres(),
            Self::PoolerKill | Self::PoolerPause => provider == ProviderName::Pgbouncer,
            Self::DiskFull => matches!(provider, ProviderName::Postgres | ProviderName::Sqlite),
            Self::ClockStep => matches!(provider, ProviderName::Postgres | ProviderName::Sqlite),
            Self::Failover | Self::FailoverLostTail => provider == ProviderName::Failover,
        }
    }

    /// How long it is between two of them on average, in milliseconds.
    pub const fn interval_ms(self) -> u64 {
        match self {
            Self::Kill => 700,
            Self::KillMany | Self::ServerStop | Self::ServerCrash => 15_000,
            Self::Pause => 2_500,
            Self::ConnectionCut | Self::ConnectionCutAnswer => 800,
            Self::ConnectionDelay => 4_000,
            Self::ConnectionHalfOpen => 8_000,
            Self::Partition | Self::LostRequests | Self::LostAnswers => 9_000,
            Self::BackendKill => 20_000,
            Self::BackendTerminate => 1_500,
            Self::BackendPause => 6_000,
            Self::PoolerKill | Self::PoolerPause => 12_000,
            Self::TableLock => 10_000,
            Self::DiskFull => 20_000,
            Self::ClockStep => 7_000,
            Self::Failover | Self::FailoverLostTail => 20_000,
            // Drawn when a child is started.
            Self::KillAtStep => 0,
        }
    }
}

impl FaultKind {
    /// Whether it is a fault of a server. They happen one after the other.
    pub const fn is_of_server(self) -> bool {
        matches!(
            self,
            Self::ServerCrash
                | Self::ServerStop
                | Self::BackendKill
                | Self::BackendTerminate
                | Self::BackendPause
                | Self::PoolerKill
                | Self::PoolerPause
                | Self::TableLock
                | Self::DiskFull
                | Self::ClockStep
                | Self::Failover
                | Self::FailoverLostTail
        )
    }

    /// Whether it can stop the work of all children: a backend that is stopped may hold a lock of the server's own.
    pub const fn stops_all(self) -> bool {
        self.is_of_server() && !matches!(self, Self::BackendTerminate | Self::ClockStep)
    }

    /// About how long it keeps a server busy, in milliseconds, if what lasts lasts this long.
    pub const fn takes_ms(self, lasts_ms: u64) -> u64 {
        match self {
            Self::ClockStep => 50,
            Self::BackendTerminate => 150,
            Self::BackendPause | Self::PoolerPause | Self::TableLock => lasts_ms + 200,
            Self::PoolerKill => 500,
            Self::ServerCrash | Self::ServerStop | Self::BackendKill => 1_500,
            Self::DiskFull => lasts_ms + 1_500,
            Self::Failover => 4_000,
            Self::FailoverLostTail => lasts_ms + 4_500,
            _ => 0,
        }
    }

    /// Whether it takes hosts of their own for the children.
    pub const fn is_of_network(self) -> bool {
        matches!(self, Self::Partition | Self::LostRequests | Self::LostAnswers)
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Leaves out a kind of faults, and says why.
pub fn leave_out(options: &mut RunOptions, kind: FaultKind, why: &str) {
    if options.faults.remove(&kind) {
        println!("{kind} is left out: {why}");
    }
}

fn list<T: fmt::Display>(names: &[T]) -> String {
    names.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// Reads `all`, `none` or names with commas between them, for a provider.
pub fn parse_faults(text: &str, provider: ProviderName) -> Result<BTreeSet<FaultKind>> {
    let known = provider.faults();
    match text {
        "all" => return Ok(known.into_iter().collect()),
        "none" => return Ok(BTreeSet::new()),
        _ => {}
    }
    let mut kinds = BTreeSet::new();
    for name in text.split(',').map(str::trim) {
        let Some(kind) = FaultKind::ALL.into_iter().find(|kind| kind.as_str() == name) else {
            bail!("unknown fault {name:?}; known for {provider} are all, none, {}", list(&known));
        };
        if !known.contains(&kind) {
            bail!("the fault {name:?} makes no sense on {provider}; known there are {}", list(&known));
        }
        kinds.insert(kind);
    }
    Ok(kinds)
}

/// What a run is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOptions {
    /// Decides the schedule.
    pub seed: u64,
    /// How long faults are injected.
    pub minutes: f64,
    /// How many times as many faults as usual there are.
    pub rate: f64,
    /// What the processes run on.
    pub provider: ProviderName,
    /// The kinds of faults.
    pub faults: BTreeSet<FaultKind>,
    /// Whether it is an error that a kind has to be left out.
    pub strict: bool,
    /// Where the histories, the logs and the verdict go.
    pub out: PathBuf,
}

impl RunOptions {
    /// How long faults are injected, in milliseconds.
    pub fn length_ms(&self) -> u64 {
        (self.minutes * 60_000.0) as u64
    }

    /// The command that repeats the run.
    pub fn command(&self) -> String {
        let faults = match self.faults.iter().copied().collect::<Vec<_>>() {
            kinds if kinds.is_empty() => "none".to_owned(),
            kinds if kinds == self.provider.faults() => "all".to_owned(),
            kinds => kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(","),
        };
        let rate = if self.rate == 1.0 { String::new() } else { format!(" --rate {}", self.rate) };
        format!(
            "cargo xtask chaos --seed {} --minutes {}{rate} --provider {} --faults {faults} --out <directory>",
            self.seed, self.minutes, self.provider
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn faults_are_read_by_name() {
        let read = parse_faults("pause, kill", ProviderName::Sqlite).unwrap();
        assert_eq!(read.into_iter().collect::<Vec<_>>(), [FaultKind::Kill, FaultKind::Pause]);
        assert!(parse_faults("none", ProviderName::Sqlite).unwrap().is_empty());
        assert_eq!(parse_faults("all", ProviderName::Postgres).unwrap().len(), 19);
        assert_eq!(parse_faults("all", ProviderName::SqlServer).unwrap().len(), 10);
    }

    #[test]
    fn mistakes_name_the_choices() {
        let error = parse_faults("kil", ProviderName::Sqlite).unwrap_err().to_string();
        assert!(error.contains("\"kil\"") && error.contains("pause"), "{error}");
        let error = parse_faults("failover", ProviderName::Sqlite).unwrap_err().to_string();
        assert!(error.contains("makes no sense on sqlite"), "{error}");
        let error = "oracle".parse::<ProviderName>().unwrap_err().to_string();
        assert!(error.contains("pgbouncer"), "{error}");
    }
}
