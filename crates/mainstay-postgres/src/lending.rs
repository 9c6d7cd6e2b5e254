//! Connections that are lent to handlers, for statements of their own.
//!
//! Nothing bounds such a statement: on a connection that never answers, the handler would wait for ever, while the claim of its
//! message is renewed over other connections. So a task watches each lent connection. Now and then it sends an empty statement,
//! which is answered once all is over that was sent before. If that takes longer than a call may, what is under way is canceled,
//! and a connection that does not answer even then is closed, so that the handler's call fails.
//!
//! On an idle connection the task stops soon, until the handler takes the client again: each empty statement would put the server's
//! `idle_in_transaction_session_timeout` off.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, StatementCache};
use mainstay_core::Result;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use crate::pool::Lease;

/// Empty statements that are sent after a use.
const CHECKS: u32 = 2;

/// A lease that is watched. Dropped, it drops the lease.
pub(crate) struct Lent {
    lease: Arc<Lease>,
    uses: Arc<Uses>,
    watch: JoinHandle<()>,
}

/// How often the client of a lent connection was taken.
#[derive(Debug, Default)]
struct Uses {
    count: AtomicU64,
    next: Notify,
}

impl Lent {
    /// Lends a connection whose statements may take as long as a call.
    pub(crate) fn new(lease: Lease, limit: Duration) -> Self {
        let (lease, uses) = (Arc::new(lease), Arc::new(Uses::default()));
        let watch = tokio::spawn(watch(Arc::downgrade(&lease), Arc::clone(&uses), limit));
        Self { lease, uses, watch }
    }

    /// The client, for a statement of the handler's own.
    pub(crate) fn client(&self) -> Result<&Client> {
        self.uses.count.fetch_add(1, Ordering::SeqCst);
        self.uses.next.notify_one();
        self.lease.client()
    }

    /// Gives the connection back to the pool: nothing is under way on it.
    pub(crate) async fn give_back(mut self) {
        self.watch.abort();
        // It ended, however it did, and with it its hold of the lease.
        let _ = (&mut self.watch).await;
        // What was canceled may have been over: the request can still be on its way.
        if self.lease.is_given_up() {
            return;
        }
        let lease = Arc::clone(&self.lease);
        drop(self);
        if let Some(lease) = Arc::into_inner(lease) {
            lease.give_back();
        }
    }
}

impl Deref for Lent {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

async fn watch(lease: Weak<Lease>, uses: Arc<Uses>, limit: Duration) {
    let (mut seen, mut checks) = (0, 0);
    loop {
        sleep(limit / 4).await;
        let count = uses.count.load(Ordering::SeqCst);
        if count != seen {
            (seen, checks) = (count, 0);
        } else if checks == CHECKS {
            uses.next.notified().await;
            continue;
        }
        checks += 1;
        let Some(lease) = lease.upgrade() else { return };
        let Ok(client) = lease.client() else { return };
        let idle = client.batch_execute("");
        tokio::pin!(idle);
        match timeout(limit, &mut idle).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => return lease.give_up(idle).await,
        }
    }
}

thread_local! {
    /// Of the connection that was made last. The pool hands it over at once, without letting anything else run on the thread.
    static MADE: Cell<Option<CancellationToken>> = const { Cell::new(None) };
}

/// What closes the connections of a pool while they are in use. The driver closes one only when its users have let go.
#[derive(Debug, Default)]
pub(crate) struct Switches(Mutex<Vec<(Weak<StatementCache>, CancellationToken)>>);

impl Switches {
    /// Notes the switch of a connection that the pool is about to get.
    pub(crate) fn announce(switch: CancellationToken) {
        MADE.set(Some(switch));
    }

    /// Attaches the switch that was announced to the connection, which its cache of statements identifies.
    pub(crate) fn attach(&self, connection: &ClientWrapper) {
        let Some(switch) = MADE.take() else { return };
        let mut switches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        switches.retain(|(cache, _)| cache.strong_count() > 0);
        switches.push((Arc::downgrade(&connection.statement_cache), switch));
    }

    /// Closes a connection, and so fails the calls on it.
    pub(crate) fn close(&self, connection: &ClientWrapper) {
        let switches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = Arc::as_ptr(&connection.statement_cache);
        if let Some((_, switch)) = switches.iter().find(|(cache, _)| cache.as_ptr() == own) {
            switch.cancel();
        }
    }
}
