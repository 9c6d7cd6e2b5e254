//! Measurements during a run: what the children use, what waits, and what no claim would find.
//!
//! Each has a task and a session of its own, so that a lock that one of them meets hides nothing from the others.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use mainstay_tests::PostgresUrl;
use tokio_postgres::{Client, SimpleQueryMessage};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::child::{Database, Dialects, Engine, Session};
use crate::history::{Condition, Event, Kind, QueueName, Recorder, Sample};

use super::children::{Children, Slot};
use super::scene::Scene;

/// How often resources are measured.
const RESOURCES: Duration = Duration::from_millis(100);

/// How often it is counted what waits.
const WORK: Duration = Duration::from_millis(200);

/// How often hidden messages are looked for.
const HIDDEN_WORK: Duration = Duration::from_secs(1);

/// How long a measurement may take.
const PATIENCE: Duration = Duration::from_secs(3);

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

/// Messages below the floor of their priority, and those of ordering keys in which everything is parked though nothing holds
/// them. Each in one snapshot, in which there is none of either.
const HIDDEN: &str = "
    select o.id::text || ' below the floor', 1::bigint
      from infra.outbox o,
           (select * from infra.outbox_floor order by n desc limit 1) f,
           unnest(f.levels, f.due_ats, f.seqs) k(level, due, seq)
     where not o.parked and o.priority = k.level and (o.due_at, o.seq) <= (k.due, k.seq)
    union all
    select o.id::text || ' parked behind nothing', 1
      from infra.outbox o
     where o.parked
       and not exists (select 1 from infra.outbox p where p.ordering_key = o.ordering_key and not p.parked)
       and not exists (select 1 from infra.outbox_hold h where h.ordering_key = o.ordering_key)
     limit 100";

/// What the samples need to know of the children.
#[derive(Debug, Clone, Default)]
struct Cast {
    processes: Vec<String>,
    ids: Vec<u32>,
    healthy: Vec<String>,
}

/// What the measurements share.
#[derive(Debug, Default)]
struct State {
    cast: Mutex<Cast>,
    due: AtomicU64,
    disturbed: AtomicBool,
}

/// Measures in the background until it is dropped.
pub(super) struct Sampling {
    state: Arc<State>,
    single_writer: bool,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl Sampling {
    /// Begins to measure. Hidden messages are looked for if the clock is never set back, which can hide them.
    pub(super) fn start(scene: &Arc<Scene>, recorder: &Arc<Recorder>) -> Self {
        let state = Arc::new(State::default());
        let sampler = || Sampler {
            state: Arc::clone(&state),
            recorder: Arc::clone(recorder),
            scene: Arc::clone(scene),
            session: None,
            console: None,
        };
        let mut tasks = vec![tokio::spawn(sampler().resources()), tokio::spawn(sampler().work())];
        if scene.provider.is_postgres() && scene.servers.clock.is_none() {
            tasks.push(tokio::spawn(sampler().hidden()));
        }
        let single_writer = scene.sqlite_path().is_some();
        Self { state, single_writer, _tasks: tasks.into_iter().map(AbortOnDropHandle::new).collect() }
    }

    /// Notes which children there are.
    pub(super) fn look(&mut self, children: &Children, hurt: impl Fn(&Slot) -> bool) {
        let slots = children.alive(0).into_iter().map(|index| &children.slots[index]);
        let mut cast = Cast::default();
        for slot in slots {
            cast.processes.push(slot.process());
            cast.ids.extend(slot.id());
            if slot.kind == Kind::Worker && slot.is_well() && !hurt(slot) {
                cast.healthy.push(slot.process());
            }
        }
        // On SQLite a process that is stopped in the middle of a transaction holds the only writer.
        if self.single_writer && children.slots.iter().any(|slot| slot.paused) {
            cast.healthy.clear();
        }
        *self.state.cast.lock().unwrap_or_else(PoisonError::into_inner) = cast;
    }

    /// Notes whether a fault that stops all work is under way: no worker is healthy meanwhile.
    pub(super) fn disturb(&self, disturbed: bool) {
        self.state.disturbed.store(disturbed, Ordering::Relaxed);
    }

    /// How many messages were due when it was last measured.
    pub(super) fn open(&self) -> String {
        let due = self.state.due.load(Ordering::Relaxed);
        if due >= DUE_MAX { format!("{DUE_MAX} or more") } else { due.to_string() }
    }
}

struct Sampler {
    state: Arc<State>,
    recorder: Arc<Recorder>,
    scene: Arc<Scene>,
    session: Option<Session>,
    /// The administrator's session at the pooler.
    console: Option<Client>,
}

impl Sampler {
    fn cast(&self) -> Cast {
        self.state.cast.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Measures connections, memory and the write-ahead log.
    async fn resources(mut self) {
        let write_ahead_log = self.scene.sqlite_path().map(|path| path.with_extension("db-wal"));
        loop {
            tokio::time::sleep(RESOURCES).await;
            let cast = self.cast();
            let busiest = tokio::time::timeout(PATIENCE, self.connections(&cast)).await;
            let busiest = self.measured(busiest).flatten();
            self.recorder.note(Event::Sample(Sample {
                connections: busiest.as_ref().map(|(_, connections)| *connections),
                busiest: busiest.map(|(process, _)| process),
                rss_kib: cast.ids.iter().filter_map(|id| resident(*id)).max(),
                wal_bytes: write_ahead_log.as_ref().and_then(|path| Some(path.metadata().ok()?.len())),
                ..Sample::default()
            }));
        }
    }

    /// Counts what waits, and notes which workers could claim it.
    async fn work(mut self) {
        loop {
            tokio::time::sleep(WORK).await;
            // Before the count: what happens while it waits for an answer is seen next time.
            let disturbed = self.state.disturbed.load(Ordering::Relaxed);
            let healthy = if disturbed { Vec::new() } else { self.cast().healthy };
            let due = tokio::time::timeout(PATIENCE, self.rows(DUE)).await;
            let due = self.measured(due).map(|rows| rows.first().map_or(0, |(_, due)| due.unsigned_abs()));
            if let Some(due) = due {
                self.state.due.store(due, Ordering::Relaxed);
            }
            self.recorder.note(Event::Sample(Sample { due, healthy: Some(healthy), ..Sample::default() }));
        }
    }

    /// Looks for messages that no claim would find. Reports each once.
    async fn hidden(mut self) {
        let mut known: HashSet<String> = HashSet::new();
        loop {
            tokio::time::sleep(HIDDEN_WORK).await;
            let found = tokio::time::timeout(PATIENCE, self.rows(Dialects::same(HIDDEN))).await;
            for (text, _) in self.measured(found).unwrap_or_default() {
                let Some((id, why)) = text.split_once(' ') else { continue };
                if let (Ok(id), true) = (id.parse::<Uuid>(), known.insert(text.clone())) {
                    let (queue, why) = (QueueName::Outbox, why.to_owned());
                    let stuck = Condition::Stuck { queue, ids: vec![id], why };
                    self.recorder.note(Event::End(Box::new(stuck)));
                }
            }
        }
    }

    /// The result of a measurement. None when the server is down, or a lock is in the way.
    fn measured<T>(&mut self, result: Result<Result<T>, tokio::time::error::Elapsed>) -> Option<T> {
        let result = result.ok().and_then(Result::ok);
        if result.is_none() {
            (self.session, self.console) = (None, None);
        }
        result
    }

    async fn rows(&mut self, sql: Dialects) -> Result<Vec<(String, i64)>> {
        let engine = self.scene.database().engine();
        self.session().await?.rows(sql.of(engine)).await
    }

    async fn session(&mut self) -> Result<&mut Session> {
        match &mut self.session {
            Some(session) => Ok(session),
            // After a failover it is another server.
            none => Ok(none.insert(self.scene.database().session().await?)),
        }
    }

    /// The child with the most connections, and how many it has. None where there is no server.
    async fn connections(&mut self, cast: &Cast) -> Result<Option<(String, u32)>> {
        let engine = self.scene.database().engine();
        let counted = match (&self.scene.servers.pooler, count(engine, &cast.processes)) {
            // Its own connections to the server belong to no child.
            (Some(pooler), _) => {
                let console = match &mut self.console {
                    Some(console) => console,
                    none => none.insert(open_console(pooler.url()).await?),
                };
                clients(console, &cast.processes).await?
            }
            (None, Some(count)) => self.session().await?.rows(&count).await?,
            (None, None) => return Ok(None),
        };
        let busiest = counted.into_iter().max_by_key(|(_, connections)| *connections);
        busiest.map(|(process, connections)| Ok((process, u32::try_from(connections)?))).transpose()
    }
}

/// The query for the sessions of each process. None where there is no server.
fn count(engine: Engine, processes: &[String]) -> Option<String> {
    // Names of processes have no quotes in them.
    let names = processes.join("', '");
    match engine {
        Engine::Postgres => Some(format!(
            "select application_name, count(*) from pg_stat_activity where application_name in ('{names}') group by 1"
        )),
        Engine::SqlServer => Some(format!(
            "SELECT program_name, COUNT(*) FROM sys.dm_exec_sessions
              WHERE database_id = DB_ID() AND program_name IN ('{names}') GROUP BY program_name"
        )),
        Engine::Sqlite => None,
    }
}

/// Connects to a pooler as its administrator.
async fn open_console(url: &str) -> Result<Client> {
    let url = PostgresUrl::parse(url).with_database("pgbouncer").with_parameter("sslmode", "disable");
    Database::new(&url.to_string()).client().await
}

/// The connections that each process has at a pooler.
async fn clients(console: &Client, processes: &[String]) -> Result<Vec<(String, i64)>> {
    let mut counted: HashMap<String, i64> = HashMap::new();
    for message in console.simple_query("show clients").await? {
        let SimpleQueryMessage::Row(row) = message else { continue };
        let name = row.try_get("application_name")?.context("a client without a name")?;
        if processes.iter().any(|process| process == name) {
            *counted.entry(name.to_owned()).or_default() += 1;
        }
    }
    Ok(counted.into_iter().collect())
}

/// The resident set of a process in KiB.
fn resident(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
