//! Measurements during a run.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio_postgres::types::Type;
use tokio_util::task::AbortOnDropHandle;

use crate::child::Database;
use crate::history::{Event, Kind, Recorder, Sample};

use super::children::{Children, Slot};
use super::scene::Scene;

/// How often it is measured.
const EVERY: Duration = Duration::from_millis(200);

/// Due messages that are counted at most.
const DUE_MAX: u64 = 1_000;

/// Messages that anybody could claim: those with an ordering key may wait behind each other.
const DUE_POSTGRES: &str = "select count(*) from (select 1 from infra.outbox o
     where o.status = 0 and o.ordering_key is null and o.due_at <= now()
       and not exists (select 1 from infra.outbox_paused p where p.topic = o.topic) limit 1000) t";

/// The same in SQLite, whose times are microseconds.
const DUE_SQLITE: &str = "select count(*) from (select 1 from infra_outbox o
     where o.status = 0 and o.ordering_key is null and o.due_at <= (julianday('now') - 2440587.5) * 86400000000.0
       and not exists (select 1 from infra_outbox_paused p where p.topic = o.topic) limit 1000) t";

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
            database: scene.database(),
            write_ahead_log: scene.sqlite_path().map(|path| path.with_extension("db-wal")),
            pooled: scene.is_pooled(),
            client: None,
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
    database: Database,
    write_ahead_log: Option<PathBuf>,
    pooled: bool,
    client: Option<tokio_postgres::Client>,
}

impl Sampler {
    async fn run(mut self, recorder: Arc<Recorder>) {
        loop {
            tokio::time::sleep(EVERY).await;
            let cast = self.cast.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let mut sample = Sample {
                rss_kib: cast.ids.iter().filter_map(|id| resident(*id)).max(),
                wal_bytes: self.write_ahead_log.as_ref().and_then(|path| Some(path.metadata().ok()?.len())),
                ..Sample::default()
            };
            let counted = tokio::time::timeout(Duration::from_secs(1), self.count(&cast)).await;
            match counted {
                Ok(Ok((backends, due))) => {
                    self.due.store(due, Ordering::Relaxed);
                    sample.backends = backends;
                    sample.due = Some(due);
                    let disturbed = self.disturbed.load(Ordering::Relaxed);
                    sample.healthy_workers = Some(if disturbed { 0 } else { cast.healthy_workers });
                }
                // The server is down, or a lock is in the way.
                Ok(Err(_)) | Err(_) => self.client = None,
            }
            recorder.note(Event::Sample(sample));
        }
    }

    /// The backends of the children, and the messages that are due.
    async fn count(&mut self, cast: &Cast) -> Result<(Option<u32>, u64)> {
        if self.database.sqlite().is_some() {
            let database = self.database.clone();
            let due = tokio::task::spawn_blocking(move || -> Result<i64> {
                Ok(database.connection()?.query_row(DUE_SQLITE, [], |row| row.get(0))?)
            })
            .await??;
            return Ok((None, due.unsigned_abs()));
        }
        let client = match &self.client {
            Some(client) if !client.is_closed() => client,
            // After a failover it is another server.
            _ => self.client.insert(self.scene.database().client().await?),
        };
        let backends = match self.pooled {
            // The pooler's own connections belong to no child.
            true => None,
            false => {
                let count = "select count(*) from pg_stat_activity where application_name = any($1)";
                let row = client.query_typed_one(count, &[(&cast.processes, Type::TEXT_ARRAY)]).await?;
                u32::try_from(row.get::<_, i64>(0)).ok()
            }
        };
        let due: i64 = client.query_typed_one(DUE_POSTGRES, &[]).await?.get(0);
        Ok((backends, due.unsigned_abs()))
    }
}

/// The resident set of a process in KiB.
fn resident(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
