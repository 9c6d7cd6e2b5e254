//! Waiting for work without polling the tables.
//!
//! Three things end a wait: a commit of this process (told by a signal), a commit of somebody else (seen in
//! `PRAGMA data_version`, a number that costs next to nothing to read), and the next due time or lapse of a lease. Each of
//! them only makes the waiter look; it returns when there is something to claim.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::Result;
use mainstay_core::store::{WaitRequest, Wake};
use rusqlite::{Connection, params};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::database::Database;
use crate::error::Fault;
use crate::queue::Topics;
use crate::statements::Statements;

const WAIT: &str = "queue.wait";

/// How often to look for commits of others: at first, and after a while of quiet.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_millis(250);

/// As far as a timer is asked to reach.
const FAR: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Tells the waiters of this process that something may have become ready.
pub(crate) struct Signal(watch::Sender<State>);

#[derive(Default)]
struct State {
    told: u64,
    closed: bool,
}

impl Signal {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(State::default()))
    }

    pub(crate) fn tell_if(&self, ready: bool) {
        if ready {
            self.0.send_modify(|state| state.told += 1);
        }
    }

    pub(crate) fn close(&self) {
        self.0.send_modify(|state| state.closed = true);
    }
}

/// What a look at the database brought.
struct Look {
    version: i64,
    /// How long until there is something to claim; none when nothing is planned. Not looked at if nothing has changed.
    next: Option<Option<Duration>>,
}

/// When there will be something to do, of these topics and as from now. None when nothing is planned.
pub(crate) type Next = dyn Fn(&Connection, &Topics, i64) -> rusqlite::Result<Option<i64>> + Send + Sync;

/// When there will be something to claim from a queue.
pub(crate) fn next_due(
    connection: &Connection,
    sql: &Statements,
    topics: &Topics,
    now: i64,
) -> rusqlite::Result<Option<i64>> {
    let mut statement = connection.prepare_cached(&sql.next_due)?;
    statement.query_row(params![now, topics.only, topics.except], |row| row.get(0))
}

/// Looks for work, unless the database is still the one seen before.
fn look(
    connection: &Connection,
    sql: &Statements,
    topics: &Topics,
    next: &Next,
    seen: Option<i64>,
) -> Result<Look, Fault> {
    let version = connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
    if seen == Some(version) {
        return Ok(Look { version, next: None });
    }
    let now = sql.now(connection)?;
    let next = next(connection, topics, now)?;
    let next = next.map(|due| Duration::from_micros(u64::try_from(due.saturating_sub(now)).unwrap_or(0)));
    Ok(Look { version, next: Some(next) })
}

async fn look_at(database: &Database, topics: &Topics, next: &Arc<Next>, seen: Option<i64>) -> Result<Look> {
    let (sql, topics, next) = (Arc::clone(&database.statements), topics.clone(), Arc::clone(next));
    let look = move |connection: &_| look(connection, &sql, &topics, next.as_ref(), seen);
    let in_use = database.open(WAIT).await?;
    match in_use.watcher(WAIT).await? {
        Some(watcher) => watcher.run(WAIT, look).await,
        None => in_use.get(WAIT)?.writer.run(WAIT.into(), look, |_| false).await,
    }
}

/// Waits until there is something to do of the topics asked for, by what `next` says.
pub(crate) async fn wait(database: &Database, request: &WaitRequest, next: Arc<Next>) -> Result<Wake> {
    let deadline = Instant::now() + request.timeout.min(FAR);
    let topics = Topics::new(&request.only_topics, &request.except_topics);
    match timeout_at(deadline, wait_for_work(database, request, &topics, &next)).await {
        Ok(wake) => wake,
        Err(_) => Ok(Wake::TimedOut),
    }
}

async fn wait_for_work(
    database: &Database,
    request: &WaitRequest,
    topics: &Topics,
    next: &Arc<Next>,
) -> Result<Wake> {
    // From before the first look, so that nothing falls between the two.
    let mut signal = database.signal.0.subscribe();
    let mut seen = None;
    let mut due: Option<Instant> = None;
    let mut pause = SHORTEST;
    let mut woken = Wake::Due;
    loop {
        if signal.borrow_and_update().closed {
            return Err(database.closed(WAIT));
        }
        let look = request.within_limit(WAIT, look_at(database, topics, next, seen)).await?;
        if let Some(next) = look.next {
            match next {
                Some(next) if next.is_zero() => return Ok(woken),
                next => due = next.map(|next| Instant::now() + next.min(FAR)),
            }
            pause = SHORTEST;
        }
        seen = Some(look.version);
        // In memory there is nobody else to look for.
        let poll = if database.location.is_memory() { FAR } else { pause };
        pause = (pause * 2).min(LONGEST);
        let poll = Instant::now() + poll;
        tokio::select! {
            changed = signal.changed() => {
                if changed.is_err() {
                    return Err(database.closed(WAIT));
                }
                (seen, woken) = (None, Wake::Notified);
            }
            () = sleep_until(due.map_or(poll, |due| due.min(poll))) => {
                if due.is_some_and(|due| due <= Instant::now()) {
                    // Time has passed; the data need not have changed.
                    (seen, woken) = (None, Wake::Due);
                } else {
                    woken = Wake::Notified;
                }
            }
        }
    }
}
