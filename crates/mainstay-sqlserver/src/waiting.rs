//! Waiting for work. SQL Server tells nobody of new rows, so a wait looks once, and then sleeps until something is due, somebody in this
//! process has enqueued, or the time is over. Whoever waits looks again then; how long to wait is the dispatcher's to say.

use std::sync::Arc;

use mainstay_core::Result;
use mainstay_core::store::{Queue, Step, WaitRequest, Wake};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::error::closed;
use crate::pool::Connections;
use crate::procedures::QueueProcedures;
use crate::rows::{self, Reader};

const WAIT: &str = "outbox.wait";

/// Tells those who wait in this process: for each queue, and behind them for the policies of fan-outs.
#[derive(Debug, Clone)]
pub(crate) struct Signals(Arc<[watch::Sender<u64>; 5]>);

const FANOUT: usize = Queue::ALL.len();

impl Signals {
    pub(crate) fn new() -> Self {
        Self(Arc::new(std::array::from_fn(|_| watch::Sender::new(0))))
    }

    pub(crate) fn signal_fanout(&self) {
        self.0[FANOUT].send_modify(|times| *times += 1);
    }

    pub(crate) fn subscribe_fanout(&self) -> watch::Receiver<u64> {
        self.0[FANOUT].subscribe()
    }

    pub(crate) fn signal(&self, queue: Queue) {
        self.0[queue as usize].send_modify(|times| *times += 1);
    }

    pub(crate) fn subscribe(&self, queue: Queue) -> watch::Receiver<u64> {
        self.0[queue as usize].subscribe()
    }
}

/// Waits for the work of one queue.
pub(crate) struct Waiting {
    connections: Connections,
    procedures: Arc<QueueProcedures>,
    /// What is asked instead, where more is waited for than the queue's items.
    look: Option<Step>,
    signals: Signals,
    closed: CancellationToken,
}

impl Waiting {
    pub(crate) fn new(
        connections: Connections,
        procedures: Arc<QueueProcedures>,
        signals: Signals,
        closed: CancellationToken,
    ) -> Self {
        Self { connections, procedures, look: None, signals, closed }
    }

    /// Asks this instead of when the queue's next item is due.
    pub(crate) fn looking_with(mut self, look: Step) -> Self {
        self.look = Some(look);
        self
    }

    /// There may be work now.
    pub(crate) fn signal(&self) {
        self.signals.signal(self.procedures.queue());
    }

    /// The same in the outbox.
    pub(crate) fn signal_outbox(&self) {
        self.signals.signal(Queue::Outbox);
    }

    pub(crate) async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        // Before the look: what comes while it looks is heard.
        let mut signal = self.signals.subscribe(self.procedures.queue());
        signal.mark_unchanged();
        let queue = || self.procedures.next_due(&request.only_topics, &request.except_topics);
        let step = self.look.clone().unwrap_or_else(queue);
        let look = request.within_limit(WAIT, self.connections.run(WAIT, &step));
        let rows = tokio::select! {
            rows = look => rows?,
            () = self.closed.cancelled() => return Err(closed(WAIT)),
        };
        let due = rows.iter().map(|row| Reader::new(WAIT, row).maybe_integer("due_in"));
        let due = due.collect::<Result<Vec<_>>>()?.into_iter().flatten().min().map(rows::micros);
        if due.is_some_and(|due| due.is_zero()) {
            return Ok(Wake::Due);
        }
        let is_sooner = due.is_some_and(|due| due <= request.timeout);
        let sleep = due.filter(|_| is_sooner).unwrap_or(request.timeout);
        tokio::select! {
            () = tokio::time::sleep(sleep) => Ok(if is_sooner { Wake::Due } else { Wake::TimedOut }),
            // The sender lives as long as this.
            _ = signal.changed() => Ok(Wake::Notified),
            () = self.closed.cancelled() => Err(closed(WAIT)),
        }
    }
}
