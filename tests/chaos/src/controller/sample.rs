//! Measurements during a run.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio_util::task::AbortOnDropHandle;

use crate::child::{Database, Dialects, Engine, Session};
use crate::history::{Event, Kind, Recorder, Sample};

use super::children::{Children, Slot};
use super::scene::Scene;

/// How often it is measured.
const EVERY: Duration = Duration::from_millis(200);

/// Due messages that are counted at most.
const DUE_MAX: u64 = 1_000;

/// Messages that anybody could claim: those with an ordering key may wait behind each other.
const DUE: Dialects = Dialects {
    postgres: "select 'due', count(*) from (select 1 from infra.outbox o
         where o.status = 0 and o.ordering_key is null and o.due_at <= now()
           and not exists (select 1 from infra.outbox_paused p where p.topic = o.topic) limit 1000) t",
    // Times are microseconds.
    sqlite: "select 'due', count(*) from (select 1 from infra_outbox o
         where o.status = 0 and o.ordering_key is null
           and o.due_at <= (julianday('now') - 2440587.5) * 86400000000.0
           and not exists (select 1 from infra_outbox_paused p where p.topic = o.topic) limit 1000) t",
    sql_server: "SELECT N'due', COUNT(*) FROM (SELECT TOP (1000) 1 AS n FROM infra.Outbox o WITH (READPAST)
         WHERE o.Status = 0 AND o.OrderingKey IS NULL AND o.DueAt <= SYSUTCDATETIME()
           AND NOT EXISTS (SELECT 1 FROM infra.Outbox_paused p WITH (NOLOCK) WHERE p.Topic = o.Topic)) t",
};

/// What the samples need to know of the children.
#[derive(Debug, Clone, Default)]
struct Cast {
    processes: Vec<String>,
    ids: Vec<u32>,
    healthy_workers: u32,
}

/// Measures in the background until it is dropped.
pub(super) struct Sampling {
    cast: Arc<Mutex<Cast>>,
    due: Arc<AtomicU64>,
    disturbed: Arc<AtomicBool>,
    single_writer: bool,
    looked: Instant,
    _task: AbortOnDropHandle<()>,
}

impl Sampling {
    /// Begins to measure.
    pub(super) fn start(scene: &Arc<Scene>, recorder: &Arc<Recorder>) -> Self {
        let cast = Arc::new(Mutex::new(Cast::default()));
        let due = Arc::new(AtomicU64::new(0));
        let disturbed = Arc::new(AtomicBool::new(false));
        let sampler = Sampler {
            disturbed: Arc::clone(&disturbed),
            cast: Arc::clone(&cast),
            due: Arc::clone(&due),
            scene: Arc::clone(scene),
            write_ahead_log: scene.sqlite_path().map(|path| path.with_extension("db-wal")),
            pooled: scene.is_pooled(),
        };
        let task = tokio::spawn(sampler.run(Arc::clone(recorder)));
        let single_writer = scene.sqlite_path().is_some();
        Self {
            cast,
            due,
            disturbed,
            single_writer,
            looked: Instant::now(),
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Notes which children there are.
    pub(super) fn look(&mut self, children: &Children, hurt: impl Fn(&Slot) -> bool) {
        if self.looked.elapsed() < EVERY / 2 {
            return;
        }
        self.looked = Instant::now();
        let slots = children.alive(0).into_iter().map(|index| &children.slots[index]);
        let mut cast = Cast::default();
        for slot in slots {
            cast.processes.push(slot.process());
            cast.ids.extend(slot.id());
            cast.healthy_workers += u32::from(slot.kind == Kind::Worker && slot.is_well() && !hurt(slot));
        }
        // On SQLite a process that is stopped in the middle of a transaction holds the only writer.
        if self.single_writer && children.slots.iter().any(|slot| slot.paused) {
            cast.healthy_workers = 0;
        }
        *self.cast.lock().unwrap_or_else(PoisonError::into_inner) = cast;
    }

    /// Notes whether a fault of the servers is under way: no worker is healthy meanwhile.
    pub(super) fn disturb(&self, disturbed: bool) {
        self.disturbed.store(disturbed, Ordering::Relaxed);
    }

    /// How many messages were due when it was last measured.
    pub(super) fn open(&self) -> String {
        let due = self.due.load(Ordering::Relaxed);
        if due >= DUE_MAX { format!("{DUE_MAX} or more") } else { due.to_string() }
    }
}

struct Sampler {
    disturbed: Arc<AtomicBool>,
    cast: Arc<Mutex<Cast>>,
    due: Arc<AtomicU64>,
    scene: Arc<Scene>,
    write_ahead_log: Option<PathBuf>,
    pooled: bool,
}

/// What was counted.
struct Counts {
    /// Backends of the children.
    backends: Option<u32>,
    /// Messages that are due.
    due: u64,
    /// The connection, for the next count.
    session: Session,
}

/// A count under way.
type Counting = Pin<Box<dyn Future<Output = Result<Counts>> + Send>>;

impl Sampler {
    async fn run(self, recorder: Arc<Recorder>) {
        let mut session = None;
        // A count that waits for a lock goes on: a call on a connection must end before the next one.
        let mut under_way: Option<Counting> = None;
        loop {
            tokio::time::sleep(EVERY).await;
            let cast = self.cast.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let mut sample = Sample {
                rss_kib: cast.ids.iter().filter_map(|id| resident(*id)).max(),
                wal_bytes: self.write_ahead_log.as_ref().and_then(|path| Some(path.metadata().ok()?.len())),
                ..Sample::default()
            };
            let is_late = under_way.is_some();
            let backends = backends(self.scene.database().engine(), &cast.processes);
            // The pooler's own connections belong to no child.
            let backends = backends.filter(|_| !self.pooled);
            let counting = under_way
                .get_or_insert_with(|| Box::pin(count(self.scene.database(), session.take(), backends)));
            match tokio::time::timeout(Duration::from_secs(1), counting).await {
                Ok(Ok(counts)) => {
                    under_way = None;
                    session = Some(counts.session);
                    // A late answer is about an earlier time.
                    if !is_late {
                        self.due.store(counts.due, Ordering::Relaxed);
                        sample.backends = counts.backends;
                        sample.due = Some(counts.due);
                        let disturbed = self.disturbed.load(Ordering::Relaxed);
                        sample.healthy_workers = Some(if disturbed { 0 } else { cast.healthy_workers });
                    }
                }
                // The server is down.
                Ok(Err(_)) => under_way = None,
                // A lock is in the way.
                Err(_) => {}
            }
            recorder.note(Event::Sample(sample));
        }
    }
}

/// Counts on a connection, or on a new one.
async fn count(database: Database, session: Option<Session>, backends: Option<String>) -> Result<Counts> {
    let mut session = match session {
        Some(session) => session,
        None => database.session().await?,
    };
    let mut count = None;
    if let Some(backends) = backends {
        let counted = session.rows(&backends).await?;
        count = counted.first().and_then(|(_, count)| u32::try_from(*count).ok());
    }
    let due = session.rows(DUE.of(database.engine())).await?;
    let due = due.first().map_or(0, |(_, due)| due.unsigned_abs());
    Ok(Counts { backends: count, due, session })
}

/// The query for the sessions of processes. None where there is no server.
fn backends(engine: Engine, processes: &[String]) -> Option<String> {
    // Names of processes have no quotes in them.
    let names = processes.join("', '");
    match engine {
        Engine::Postgres => Some(format!(
            "select 'backends', count(*) from pg_stat_activity where application_name in ('{names}')"
        )),
        Engine::SqlServer => Some(format!(
            "SELECT N'backends', COUNT(*) FROM sys.dm_exec_sessions
              WHERE database_id = DB_ID() AND program_name IN ('{names}')"
        )),
        Engine::Sqlite => None,
    }
}

/// The resident set of a process in KiB.
fn resident(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
