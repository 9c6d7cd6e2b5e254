//! What there is to do, and when: one look over all queues, jobs, joins and fan-outs.
//!
//! A database that rests is looked at over one connection that is opened and closed for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_core::Result;
use mainstay_core::store::{Agenda, Queue};
use rusqlite::{Connection, OptionalExtension};

use crate::database::Database;
use crate::error::Fault;
use crate::jobs::next_nominal;
use crate::limit::{self, until};
use crate::queue::Topics;
use crate::statements::{FanoutStatements, JobStatements, JoinStatements, Statements};
use crate::wake::next_due;

const AGENDA: &str = "sqlite.agenda";

/// Looks at what there is to do.
pub(crate) struct SqliteAgenda {
    database: Database,
    sql: Arc<Sql>,
}

/// The statements of all that can fall due.
struct Sql {
    outbox: Arc<Statements>,
    inbox: Arc<Statements>,
    timers: Arc<Statements>,
    runs: Arc<Statements>,
    jobs: Arc<JobStatements>,
    joins: Arc<JoinStatements>,
    fanout: Arc<FanoutStatements>,
}

impl SqliteAgenda {
    pub(crate) fn new(database: &Database, jobs: Arc<JobStatements>, joins: Arc<JoinStatements>) -> Self {
        let of = |queue| database.of(queue).statements;
        let (outbox, inbox) = (of(Queue::Outbox), of(Queue::Inbox));
        let (timers, runs) = (of(Queue::Timers), of(Queue::JobRuns));
        let fanout = FanoutStatements::shared(&database.names);
        let sql = Sql { outbox, inbox, timers, runs, jobs, joins, fanout };
        Self { database: database.clone(), sql: Arc::new(sql) }
    }

    pub(crate) async fn look(&self) -> Result<Agenda> {
        let sql = Arc::clone(&self.sql);
        let link = Arc::clone(&self.database.link);
        let alone = if link.location.is_memory() { None } else { link.alone(AGENDA).await? };
        let Some(alone) = alone else {
            return self.database.read(AGENDA, move |connection, _| Ok(sql.look(connection)?)).await;
        };
        let look = move || {
            // Also if nobody waits for the answer any more.
            let _alone = alone;
            let connection = link.location.open_reader(link.times.busy)?;
            let limit = link.times.statement;
            let agenda = until(&connection, Instant::now() + limit, |connection| sql.look(connection));
            let agenda = agenda.and_then(|agenda| agenda);
            agenda.map_err(|error| limit::error(link.location.place(), AGENDA, limit, Fault::Sqlite(error)))
        };
        let place = self.database.location.place();
        tokio::task::spawn_blocking(look).await.map_err(|_| place.panicked(AGENDA))?
    }
}

impl Sql {
    fn look(&self, connection: &Connection) -> rusqlite::Result<Agenda> {
        let all = Topics::new(&[], &[]);
        let now = self.outbox.now(connection)?;
        let within =
            |due: Option<i64>| due.map(|due| Duration::from_micros(due.saturating_sub(now).max(0) as u64));
        let next = |sql: &Statements| next_due(connection, sql, &all, now).map(within);
        let scheduled =
            [next(&self.timers)?, next(&self.runs)?, next_nominal(connection, &self.jobs, now).map(within)?];
        let mut agenda = Agenda::empty();
        agenda.outbox = next(&self.outbox)?;
        agenda.inbox = next(&self.inbox)?;
        agenda.scheduled = scheduled.into_iter().flatten().min();
        let mut deadline = connection.prepare_cached(&self.joins.first_deadline)?;
        agenda.joins = deadline.query_row([], |row| row.get(0)).optional().map(within)?;
        agenda.fanout_changes =
            connection.prepare_cached(&self.fanout.changes)?.query_row([], |row| row.get(0))?;
        Ok(agenda)
    }
}
