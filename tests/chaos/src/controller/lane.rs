//! Faults of servers, one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::child::{Dialects, Engine};
use crate::history::{Event, Fault, Phase, Recorder};
use crate::options::FaultKind;
use crate::schedule::Planned;

use super::LEASE;
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

/// What others see of the lane.
#[derive(Debug, Default)]
struct State {
    busy: AtomicBool,
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

    /// Whether the servers are as they should be.
    pub(super) fn is_quiet(&self) -> bool {
        !self.state.busy.load(Ordering::SeqCst)
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
            self.state.busy.store(true, Ordering::SeqCst);
            if self.scene.provider.has_server() {
                // It may still recover from the fault before.
                self.until_ready().await?;
            }
            let number = self.recorder.number();
            let done = self.inject(&planned, number).await;
            done.with_context(|| format!("the fault {} could not be injected", planned.kind))?;
            self.note(number, planned.kind, Phase::End);
            self.state.busy.store(false, Ordering::SeqCst);
        }
        Ok(())
    }

    fn note(&self, number: u64, kind: FaultKind, phase: Phase) {
        let fault = Fault { kind: kind.as_str().to_owned(), target: "server".to_owned(), phase };
        self.recorder.write(number, Event::Fault(fault));
    }

    /// Lets a fault last.
    async fn last(&self, planned: &Planned) {
        let length = LEASE.mul_f64(planned.length as f64 / 1_000.0);
        self.state.over.run_until_cancelled(tokio::time::sleep(length)).await;
    }

    async fn inject(&mut self, planned: &Planned, number: u64) -> Result<()> {
        let begin = || self.note(number, planned.kind, Phase::Begin);
        match planned.kind {
            FaultKind::FailoverLostTail => return self.fail_over(planned, number).await,
            FaultKind::ClockStep => {
                begin();
                return self.step_clock(planned);
            }
            _ => begin(),
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
                self.signal_backend(planned, Signal::KILL).await?;
                // The server ends all other sessions, and recovers.
                tokio::time::sleep(Duration::from_millis(100)).await;
                self.until_ready().await?;
            }
            FaultKind::BackendTerminate => {
                if let Some(backend) = self.backend(planned).await? {
                    self.terminate(backend).await?;
                }
            }
            FaultKind::BackendPause => {
                if let Some(backend) = self.signal_backend(planned, Signal::STOP).await? {
                    self.last(planned).await;
                    signal(backend, Signal::CONT);
                }
            }
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
            FaultKind::TableLock => self.lock(planned).await?,
            FaultKind::DiskFull => {
                let disk = servers.disk.as_ref().context("no disk")?;
                disk.fill()?;
                self.last(planned).await;
                disk.free()?;
                if let Some(cluster) = &servers.cluster {
                    // A server that could not write its log has ended, or recovers.
                    cluster.lock().await.start().await;
                    self.until_ready().await?;
                }
            }
            FaultKind::Failover => self.fail_over(planned, number).await?,
            other => anyhow::bail!("{other} is no fault of a server"),
        }
        Ok(())
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

    /// Ends a session, unless it has ended by itself.
    async fn terminate(&self, backend: i64) -> Result<()> {
        let database = self.scene.database();
        let terminate = match database.engine() {
            Engine::SqlServer => format!("KILL {backend}"),
            _ => format!("select pg_terminate_backend({backend})"),
        };
        match database.session().await?.execute(&terminate).await {
            Err(error) if error.to_string().contains("is not an active process ID") => Ok(()),
            terminated => Ok(terminated?),
        }
    }

    /// Locks the table of open messages.
    async fn lock(&self, planned: &Planned) -> Result<()> {
        let database = self.scene.database();
        let mut session = database.session().await?;
        match session.execute(LOCK.of(database.engine())).await {
            // Busy writers can keep SQLite from that: then there is nothing to hold.
            Err(_) if database.engine() == Engine::Sqlite => return Ok(()),
            locked => locked?,
        }
        self.last(planned).await;
        Ok(session.execute("rollback").await?)
    }

    fn step_clock(&mut self, planned: &Planned) -> Result<()> {
        let clock = self.scene.servers.clock.as_ref().context("no clock")?;
        self.offset += STEPS[(planned.pick % STEPS.len() as u64) as usize];
        clock.set(self.offset).context("cannot set the clock")
    }

    /// Kills the primary and promotes the replica, which then gets a replica of its own.
    async fn fail_over(&self, planned: &Planned, number: u64) -> Result<()> {
        let servers = &self.scene.servers;
        let mut primary = servers.cluster.as_ref().context("no server")?.lock().await;
        let mut standby = servers.replica.lock().await;
        let replica = standby.take().context("no replica")?;
        let loses = planned.kind == FaultKind::FailoverLostTail;
        if loses {
            // What was acknowledged so far waited for the replica.
            self.note(number, planned.kind, Phase::Begin);
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
        set_synchronous(&replica, false).await?;
        let options = cluster_options(self.scene.provider);
        self.scene.lead_to(replica.url());
        *standby = Some(replica.replica(options).await);
        set_synchronous(&replica, true).await?;
        *primary = replica;
        Ok(())
    }
}

fn signal(backend: i64, with: Signal) {
    if let Some(pid) = i32::try_from(backend).ok().and_then(Pid::from_raw) {
        // Fails only when the process is gone.
        let _ = kill_process(pid, with);
    }
}
