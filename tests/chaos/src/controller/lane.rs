//! Faults of servers, one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use mainstay_tests::OwnCluster;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::child::{Dialects, Engine};
use crate::history::{Event, Fault, Phase, Recorder};
use crate::options::FaultKind;
use crate::schedule::Planned;

use super::scene::{Scene, cluster_options, set_synchronous};

/// How far a clock is stepped, in seconds. Rarely back: a lease that is given with a clock that is set back by an hour
/// holds for an hour longer.
const STEPS: [i64; 6] = [1, 2, 10, 300, 3_600, -2];

/// The sessions of children.
const BACKENDS: Dialects = Dialects {
    postgres: "select application_name, pid::bigint from pg_stat_activity
        where backend_type = 'client backend' and application_name ~ '[.][0-9]+$' order by pid",
    // SQLite has none.
    sqlite: "select '', 0 where false",
    sql_server: "SELECT program_name, CAST(session_id AS BIGINT) FROM sys.dm_exec_sessions
        WHERE database_id = DB_ID() AND program_name LIKE N'%-_.%' ORDER BY session_id",
};

/// Locks the table of open messages until a rollback. On SQLite that is a transaction of another program, which holds the only
/// writer.
const LOCK: Dialects = Dialects {
    postgres: "begin; lock table infra.outbox in access exclusive mode",
    sqlite: "begin immediate",
    // Babelfish ignores the hints. A change of the table locks it there.
    sql_server: "BEGIN TRANSACTION;
        IF SERVERPROPERTY(N'BabelfishVersion') IS NULL
            SELECT COUNT(*) FROM infra.Outbox WITH (TABLOCKX, HOLDLOCK);
        ELSE EXEC(N'ALTER TABLE infra.Outbox ADD chaos INT NULL');",
};

/// Injects the faults that it is sent.
pub(super) struct Lane {
    faults: mpsc::UnboundedSender<Planned>,
    task: JoinHandle<Result<()>>,
    state: Arc<State>,
}

/// The database's clock, in milliseconds since 1970.
const CLOCK: Dialects = Dialects {
    postgres: "select '', (extract(epoch from clock_timestamp()) * 1000)::bigint",
    sqlite: "select '', cast((julianday('now') - 2440587.5) * 86400000 as integer)",
    sql_server: "SELECT N'', DATEDIFF_BIG(MILLISECOND, '1970-01-01', SYSUTCDATETIME())",
};

/// By how much a clock that was read before and after a step may be off, in milliseconds.
const ABOUT_MS: i64 = 500;

/// Writes more than a full disk takes.
const PROBE: Dialects = Dialects {
    postgres: "create table chaos_probe as select repeat('x', 1000) as x from generate_series(1, 4000)",
    sqlite: "create table chaos_probe as select randomblob(4000000) as x",
    sql_server: "SELECT 1",
};

/// How long a server may take to come back.
const BACK: Duration = Duration::from_secs(60);

/// What others see of the lane.
#[derive(Debug, Default)]
struct State {
    stops_all: AtomicBool,
    injected: AtomicU64,
    over: CancellationToken,
}

struct Worker {
    scene: Arc<Scene>,
    recorder: Arc<Recorder>,
    state: Arc<State>,
    /// By how much the server's clock is off, in seconds.
    offset: i64,
}

impl Lane {
    pub(super) fn start(scene: &Arc<Scene>, recorder: &Arc<Recorder>) -> Self {
        let state = Arc::new(State::default());
        let (faults, queue) = mpsc::unbounded_channel();
        let worker = Worker {
            scene: Arc::clone(scene),
            recorder: Arc::clone(recorder),
            state: Arc::clone(&state),
            offset: 0,
        };
        Self { faults, task: tokio::spawn(worker.run(queue)), state }
    }

    /// Injects a fault after those that were sent before it.
    pub(super) fn send(&self, planned: &Planned) {
        // Fails when an earlier one has failed, which `end` tells.
        let _ = self.faults.send(planned.clone());
    }

    /// Whether a fault is under way that can stop the work of all.
    pub(super) fn stops_all(&self) -> bool {
        self.state.stops_all.load(Ordering::SeqCst)
    }

    /// How many faults there were.
    pub(super) fn injected(&self) -> u64 {
        self.state.injected.load(Ordering::SeqCst)
    }

    /// Whether an injection has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.task.is_finished()
    }

    /// Ends the fault under way, and drops those that wait.
    pub(super) async fn end(self) -> Result<()> {
        self.state.over.cancel();
        drop(self.faults);
        self.task.await.context("the harness panicked")?
    }
}

impl Worker {
    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Planned>) -> Result<()> {
        while let Some(planned) = queue.recv().await {
            if self.state.over.is_cancelled() {
                break;
            }
            self.state.stops_all.store(planned.kind.stops_all(), Ordering::SeqCst);
            if self.scene.provider.has_server() {
                // It may still recover from the fault before.
                self.until_ready().await?;
            }
            let number = self.recorder.number();
            self.note(number, planned.kind, Phase::Begin);
            let failed = || format!("the fault {} could not be injected", planned.kind);
            match planned.kind {
                FaultKind::Failover | FaultKind::FailoverLostTail => {
                    self.fail_over(&planned, number).await.with_context(failed)?;
                }
                kind => {
                    let hit = self.inject(&planned).await.with_context(failed)?;
                    self.note(number, kind, if hit { Phase::End } else { Phase::Void });
                }
            }
            self.state.injected.fetch_add(1, Ordering::SeqCst);
            self.state.stops_all.store(false, Ordering::SeqCst);
        }
        Ok(())
    }

    fn note(&self, number: u64, kind: FaultKind, phase: Phase) {
        let fault = Fault { kind: kind.as_str().to_owned(), target: "server".to_owned(), phase };
        self.recorder.write(number, Event::Fault(fault));
    }

    /// Lets a fault last.
    async fn last(&self, planned: &Planned) {
        self.state.over.run_until_cancelled(tokio::time::sleep(planned.lasts())).await;
    }

    /// Injects a fault. Returns whether it hit anything.
    async fn inject(&mut self, planned: &Planned) -> Result<bool> {
        if planned.kind == FaultKind::ClockStep {
            return self.step_clock(planned).await;
        }
        let servers = &self.scene.servers;
        match planned.kind {
            FaultKind::ServerCrash => {
                let cluster = servers.cluster.as_ref().context("no server")?.lock().await;
                cluster.kill().await;
                cluster.start().await;
            }
            FaultKind::ServerStop => {
                let cluster = servers.cluster.as_ref().context("no server")?.lock().await;
                cluster.stop_immediately().await;
                cluster.start().await;
            }
            FaultKind::BackendKill => {
                if self.signal_backend(planned, Signal::KILL).await?.is_none() {
                    return Ok(false);
                }
                // The server ends all other sessions, and recovers.
                tokio::time::sleep(Duration::from_millis(100)).await;
                self.until_ready().await?;
            }
            FaultKind::BackendTerminate => match self.backend(planned).await? {
                Some(backend) => return self.terminate(backend).await,
                None => return Ok(false),
            },
            FaultKind::BackendPause => match self.signal_backend(planned, Signal::STOP).await? {
                Some(backend) => {
                    self.last(planned).await;
                    signal(backend, Signal::CONT);
                }
                None => return Ok(false),
            },
            FaultKind::PoolerKill => {
                let pooler = servers.pooler.as_ref().context("no pooler")?;
                pooler.kill().await;
                pooler.start().await;
            }
            FaultKind::PoolerPause => {
                let pooler = servers.pooler.as_ref().context("no pooler")?;
                pooler.pause(true).await;
                self.last(planned).await;
                pooler.pause(false).await;
            }
            FaultKind::TableLock => return self.lock(planned).await,
            FaultKind::DiskFull => {
                let disk = servers.disk.as_ref().context("no disk")?;
                disk.fill()?;
                let hit = self.cannot_write().await;
                self.last(planned).await;
                disk.free()?;
                self.bring_back().await?;
                return Ok(hit);
            }
            other => bail!("{other} is no fault of a server"),
        }
        Ok(true)
    }

    /// Whether a write fails.
    async fn cannot_write(&self) -> bool {
        let database = self.scene.database();
        let Ok(mut session) = database.session().await else { return true };
        let failed = session.execute(PROBE.of(database.engine())).await.is_err();
        if !failed {
            // It may fail as well. There is room again when the next probe is made.
            let _ = session.execute("drop table if exists chaos_probe").await;
        }
        failed
    }

    /// Starts the server as often as it takes: one that could not write its log ends, or fails in its recovery.
    async fn bring_back(&self) -> Result<()> {
        let Some(cluster) = &self.scene.servers.cluster else { return Ok(()) };
        let begun = Instant::now();
        loop {
            cluster.lock().await.start().await;
            match self.scene.database().session().await {
                Ok(_) => return Ok(()),
                Err(error) if begun.elapsed() > BACK => {
                    return Err(error.context("the server does not come back"));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Waits until the server takes connections.
    async fn until_ready(&self) -> Result<()> {
        let mut last = None;
        for _ in 0..600 {
            match self.scene.database().session().await {
                Ok(_) => return Ok(()),
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(last.context("no attempt")?.context("the server does not come back"))
    }

    /// A backend of a child.
    async fn backend(&self, planned: &Planned) -> Result<Option<i64>> {
        let rows = self.scene.database().rows(BACKENDS).await?;
        let Some(index) = planned.pick.checked_rem(rows.len() as u64) else { return Ok(None) };
        Ok(Some(rows[index as usize].1))
    }

    async fn signal_backend(&self, planned: &Planned, with: Signal) -> Result<Option<i64>> {
        let backend = self.backend(planned).await?;
        if let Some(backend) = backend {
            signal(backend, with);
        }
        Ok(backend)
    }

    /// Ends a session. Returns false if it has ended by itself.
    async fn terminate(&self, backend: i64) -> Result<bool> {
        let database = self.scene.database();
        let terminate = match database.engine() {
            Engine::SqlServer => format!("KILL {backend}"),
            _ => format!("select pg_terminate_backend({backend})"),
        };
        match database.session().await?.execute(&terminate).await {
            Err(error) if error.to_string().contains("is not an active process ID") => Ok(false),
            terminated => Ok(terminated.map(|()| true)?),
        }
    }

    /// Locks the table of open messages. Returns whether it got the lock.
    async fn lock(&self, planned: &Planned) -> Result<bool> {
        let database = self.scene.database();
        let mut session = database.session().await?;
        match session.execute(LOCK.of(database.engine())).await {
            // Busy writers can keep SQLite from that: then there is nothing to hold.
            Err(_) if database.engine() == Engine::Sqlite => return Ok(false),
            locked => locked?,
        }
        self.last(planned).await;
        session.execute("rollback").await?;
        Ok(true)
    }

    /// Steps the clock. Returns whether the database saw it.
    async fn step_clock(&mut self, planned: &Planned) -> Result<bool> {
        let clock = self.scene.servers.clock.as_ref().context("no clock")?;
        let step = STEPS[(planned.pick % STEPS.len() as u64) as usize];
        let (before, begun) = (self.time().await, Instant::now());
        self.offset += step;
        clock.set(self.offset).context("cannot set the clock")?;
        let (Some(before), Some(after)) = (before, self.time().await) else { return Ok(false) };
        let moved = after - before - begun.elapsed().as_millis() as i64;
        Ok((moved - step * 1_000).abs() < ABOUT_MS)
    }

    /// The time by the clock of the database. None while it does not answer.
    async fn time(&self) -> Option<i64> {
        Some(self.scene.database().rows(CLOCK).await.ok()?.first()?.1)
    }

    /// Kills the primary and promotes the replica, which then gets a replica of its own.
    async fn fail_over(&self, planned: &Planned, number: u64) -> Result<()> {
        let servers = &self.scene.servers;
        let mut primary = servers.cluster.as_ref().context("no server")?.lock().await;
        let mut standby = servers.replica.lock().await;
        let replica = standby.take().context("no replica")?;
        let loses = planned.kind == FaultKind::FailoverLostTail;
        if loses {
            // What was acknowledged before the fault began waited for the replica.
            set_synchronous(&primary, false).await?;
            replica.stop_immediately().await;
            self.last(planned).await;
        }
        primary.kill().await;
        self.scene.part();
        if loses {
            replica.start().await;
        }
        replica.promote().await;
        // No client can reach the old primary any more, and none the new one yet.
        self.note(number, planned.kind, Phase::End);
        set_synchronous(&replica, false).await?;
        let options = cluster_options(self.scene.provider);
        self.scene.lead_to(replica.url());
        *standby = Some(replica.replica(options).await);
        set_synchronous(&replica, true).await?;
        until_replicated(&replica).await?;
        self.scene.keep_log(&primary).await?;
        *primary = replica;
        Ok(())
    }
}

/// Waits until a replica has everything that was committed so far, and confirms what follows.
async fn until_replicated(primary: &OwnCluster) -> Result<()> {
    let client = primary.client().await;
    let position: String = client.query_one("select pg_current_wal_lsn()::text", &[]).await?.get(0);
    let confirmed = format!(
        "select count(*) from pg_stat_replication where sync_state = 'sync' and flush_lsn >= '{position}'"
    );
    let begun = Instant::now();
    while client.query_one(&confirmed, &[]).await?.get::<_, i64>(0) == 0 {
        if begun.elapsed() > BACK {
            bail!("the replica does not follow");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn signal(backend: i64, with: Signal) {
    if let Some(pid) = i32::try_from(backend).ok().and_then(Pid::from_raw) {
        // Fails only when the process is gone.
        let _ = kill_process(pid, with);
    }
}
