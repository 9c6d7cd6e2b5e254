//! Connections that only read, each on a thread of its own, fed from one queue.
//!
//! Every job sees one snapshot of the database. Readers never wait for the writer (see WAL), so looking at a queue costs
//! those who fill and drain it nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, mpsc};
use std::time::{Duration, Instant};

use mainstay_core::Error;
use rusqlite::Connection;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::connection::{Location, Times};
use crate::error::{Fault, Place};
use crate::limit::{self, until};
use crate::writer::spawn;

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// The way to the threads. Dropping it ends them.
pub(crate) struct Readers {
    place: Place,
    statement_limit: Duration,
    call_timeout: Duration,
    jobs: RwLock<Option<mpsc::Sender<Job>>>,
    ended: watch::Receiver<()>,
}

impl Readers {
    pub(crate) async fn start(location: &Location, times: Times, count: usize) -> Result<Self, Error> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let (alive, ended) = watch::channel(());
        let alive = Arc::new(alive);
        let place = location.place().clone();
        for _ in 0..count {
            let (opened, open) = oneshot::channel();
            let (location, queue, alive) = (location.clone(), Arc::clone(&queue), Arc::clone(&alive));
            let body = move || {
                // Dropped when the thread ends, however it ends.
                let _alive = alive;
                match location.open_reader(times.busy) {
                    Err(error) => drop(opened.send(Err(error))),
                    Ok(connection) => {
                        if opened.send(Ok(())).is_ok() {
                            serve(&connection, &queue);
                        }
                    }
                }
            };
            spawn("mainstay-sqlite-reader", body)?;
            open.await.map_err(|_| place.panicked("sqlite.open"))??;
        }
        let (statement_limit, call_timeout) = (times.statement, times.call);
        Ok(Self { place, statement_limit, call_timeout, jobs: RwLock::new(Some(jobs)), ended })
    }

    /// Runs `work` on one snapshot. Its statements are interrupted at their limit.
    pub(crate) async fn run<T, F>(&self, operation: &'static str, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let limit = self.statement_limit;
        let begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&begun);
        let job = move |connection: &Connection| {
            if !reply.is_closed() {
                begins.store(true, Ordering::SeqCst);
                drop(reply.send(on_one_snapshot(connection, limit, work)));
            }
        };
        let jobs = self.jobs.read().unwrap_or_else(PoisonError::into_inner).clone();
        let jobs = jobs.ok_or_else(|| self.place.closed(operation))?;
        jobs.send(Box::new(job)).map_err(|_| self.place.closed(operation))?;
        tokio::pin!(answer);
        let answer = match timeout(self.call_timeout, &mut answer).await {
            Ok(answer) => answer,
            // Its statements are interrupted at their limit.
            Err(_) if begun.load(Ordering::SeqCst) => answer.await,
            // It is never begun.
            Err(_) => return Err(self.place.unanswered(operation, self.call_timeout)),
        };
        // Without an answer, the job panicked.
        let result = answer.map_err(|_| self.place.panicked(operation))?;
        result.map_err(|fault| limit::error(&self.place, operation, limit, fault))
    }

    /// Lets the threads finish what is queued and end, and waits for that.
    pub(crate) async fn close(&self) {
        drop(self.jobs.write().unwrap_or_else(PoisonError::into_inner).take());
        let mut ended = self.ended.clone();
        // An error is the end of all senders, and so of all threads.
        while ended.changed().await.is_ok() {}
    }
}

fn serve(connection: &Connection, queue: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        // The lock is let go before the job runs, so the next job finds the next thread.
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        if catch_unwind(AssertUnwindSafe(|| job(connection))).is_err() {
            // Whatever the job had begun must not outlive it: an old snapshot keeps the log from being cut.
            drop(connection.execute_batch("ROLLBACK"));
        }
    }
}

fn on_one_snapshot<T>(
    connection: &Connection,
    limit: Duration,
    work: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    connection.prepare_cached("BEGIN")?.execute([])?;
    let result = until(connection, Instant::now() + limit, work)?;
    // Some errors have ended it already. It must end: an old snapshot keeps the log from being cut.
    if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    result
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use crate::Sqlite;

    use super::*;

    #[tokio::test]
    async fn a_read_that_has_begun_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let limit = Duration::from_millis(20);
        let builder = Sqlite::builder(directory.path().join("test.db")).readers(1).call_timeout(limit);
        let sqlite = builder.open().await.unwrap();
        let open = sqlite.database().open("test").await.unwrap();
        let readers = open.get("test").unwrap().readers.as_ref().unwrap();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (go, may_go) = std::sync::mpsc::channel::<()>();
        let work = move |_: &Connection| {
            begun.send(()).unwrap();
            may_go.recv().unwrap();
            Ok(7)
        };
        let call = readers.run("test", work);
        let behind = async {
            tokio::task::spawn_blocking(move || has_begun.recv()).await.unwrap().unwrap();
            // It can't begin, and is given up at the limit, which the first one is past then.
            let late = readers.run("test", |_| Ok(())).await.unwrap_err();
            go.send(()).unwrap();
            late
        };
        let (first, late) = tokio::join!(call, behind);
        assert_eq!(first.unwrap(), 7);
        assert!(late.is_unanswered(), "{late}");
    }
}
