//! Connections that are given up: what is still under way on them is canceled on the server before they are closed.
//!
//! A server does not notice that a client is gone while a statement waits for a lock. It would go on waiting, commit in the end,
//! and keep its backend until then; the next call would take another one. So a connection keeps its place in the pool until the
//! server has ended the statement, or has not answered for so long that waiting makes no sense.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object, Pool};
use futures_util::future::{Either, select};
use mainstay_core::store::ConnectionPass;
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_util::task::TaskTracker;

use crate::cancel::Cancel;
use crate::contention::Permit;
use crate::error::PoolLimits;
use crate::lending::Switches;

/// A connection on which nothing is under way answers within this, as a rule. If not, a cancel request too many does no harm.
const ROUND_TRIP: Duration = Duration::from_millis(50);

/// How long a canceled statement may take to end.
const ANSWER: Duration = Duration::from_millis(500);

/// How often a statement is canceled. A request that arrives between two statements cancels neither.
const ATTEMPTS: u32 = 3;

/// How long the pool's end waits for statements that are being canceled.
const END: Duration = Duration::from_secs(5);

/// Closes the connections of a pool that are given up.
pub(crate) struct Closer {
    pool: Pool,
    cancel: Cancel,
    limits: PoolLimits,
    switches: Arc<Switches>,
    tasks: TaskTracker,
}

/// A connection on its way out of the pool, with what it holds until then.
pub(crate) struct Abandoned {
    pub(crate) object: Option<Object>,
    /// Let go of after the connection: others that get them find one.
    pub(crate) _permit: Option<Permit>,
    pub(crate) _pass: Option<ConnectionPass>,
}

impl Closer {
    pub(crate) fn new(pool: Pool, cancel: Cancel, limits: PoolLimits, switches: Arc<Switches>) -> Self {
        Self { pool, cancel, limits, switches, tasks: TaskTracker::new() }
    }

    pub(crate) fn limits(&self) -> &PoolLimits {
        &self.limits
    }

    /// Closes a connection, in a task of its own. Without a runtime there is nothing to cancel with.
    pub(crate) fn close(self: &Arc<Self>, abandoned: Abandoned) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let closer = Arc::clone(self);
            self.tasks.spawn_on(async move { closer.end(abandoned).await }, &runtime);
        }
    }

    /// Waits until nothing is being canceled any more, but not for long.
    pub(crate) async fn wait(&self) {
        self.tasks.close();
        // What is left ends by itself.
        let _ = timeout(END, self.tasks.wait()).await;
    }

    async fn end(&self, abandoned: Abandoned) {
        let Some(client) = abandoned.object.as_deref() else { return };
        // Answered once all is over that was sent before. An error says that the connection is gone.
        let idle = client.batch_execute("");
        tokio::pin!(idle);
        if timeout(ROUND_TRIP, &mut idle).await.is_ok() {
            return;
        }
        if !self.cancel(client, idle).await {
            self.let_go();
        }
    }

    /// Cancels what is under way on a connection. `idle` ends when nothing is. False: the connection says nothing at all.
    async fn cancel(
        &self,
        client: &Client,
        mut idle: Pin<&mut impl Future<Output = Result<(), tokio_postgres::Error>>>,
    ) -> bool {
        let token = client.cancel_token();
        for _ in 0..ATTEMPTS {
            let sent = std::pin::pin!(self.cancel.send(&token));
            match select(sent, &mut idle).await {
                Either::Left((false, _)) => break,
                Either::Left((true, _)) => {
                    if timeout(ANSWER, &mut idle).await.is_ok() {
                        return true;
                    }
                }
                // Until the request is passed on, a pooler lends the session to no other client.
                Either::Right((Ok(()), sent)) => {
                    sent.await;
                    return true;
                }
                Either::Right((Err(_), _)) => return true,
            }
        }
        false
    }

    /// Lets go of the idle connections. What came between one and the server most likely came between others, too.
    fn let_go(&self) {
        drop(self.pool.retain(|_, _| false));
        tracing::debug!(store = %self.cancel.store, "a connection without an answer was closed");
    }

    /// Cancels the statement on a connection that is in use, or closes the connection.
    pub(crate) async fn interrupt(
        &self,
        connection: &ClientWrapper,
        idle: Pin<&mut impl Future<Output = Result<(), tokio_postgres::Error>>>,
    ) {
        let limit = self.limits.call;
        tracing::warn!(store = %self.cancel.store, ?limit, "a statement in a handler's transaction got no answer in time and is canceled");
        if !self.cancel(connection, idle).await {
            self.switches.close(connection);
            self.let_go();
        }
    }
}

/// Out of the pool and closed, however it comes to that; the server rolls back.
impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            drop(Object::take(object));
        }
    }
}
