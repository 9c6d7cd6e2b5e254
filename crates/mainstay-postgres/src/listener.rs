//! Notifications: one connection per provider, made when somebody first waits, on which the server says that there is
//! something new in one of the queues.
//!
//! A notification only saves waiting; nothing may rely on one. Whether they get through is tried out and not assumed,
//! because a pooler in transaction mode accepts `LISTEN` and then delivers nothing. Whenever the connection comes back,
//! everybody is woken once: something may have been missed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use mainstay_core::store::Queue;
use mainstay_core::{Error, ErrorKind, Result};
use tokio::sync::{mpsc, watch};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use uuid::Uuid;

use crate::error::from_driver;
use crate::pool::{Connections, Connector};
use crate::rows;

const LISTEN: &str = "postgres.listen";

/// What there are notifications of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// New work in a queue.
    Queue(Queue),
    /// A fan-out that is planned otherwise now.
    Fanout,
}

const SUBJECTS: usize = Queue::ALL.len() + 1;

impl Subject {
    /// Its place in what the probe returns.
    const fn place(self) -> usize {
        match self {
            Self::Queue(queue) => queue as usize,
            Self::Fanout => Queue::ALL.len(),
        }
    }
}

/// How long a notification to oneself may take before they count as not delivered.
const PROBE_TIME: Duration = Duration::from_secs(5);

/// The pauses between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The pause after finding that notifications don't get through: that changes only with the set-up.
const DEAF_PAUSE: Duration = Duration::from_secs(300);

/// What waiters see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Signal {
    /// Whether notifications get through.
    pub(crate) listening: bool,
    /// Grows with every notification, and when listening begins.
    pub(crate) wakes: u64,
    /// Grows when listening begins.
    pub(crate) session: u64,
}

/// The listening connection of a provider.
pub(crate) struct Listener {
    task: Task,
    running: Arc<AtomicBool>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Cancelled while there may be no connection for it.
    paused: Mutex<CancellationToken>,
}

#[derive(Clone)]
struct Task {
    connector: Connector,
    connections: Connections,
    probe: String,
    identifier: String,
    /// By subject.
    signals: Arc<[watch::Sender<Signal>; SUBJECTS]>,
    /// Whether it has been said that notifications don't get through.
    told: Arc<AtomicBool>,
}

/// A connection that hears notifications.
struct Ear {
    client: Client,
    /// The channels of those it heard.
    notifications: mpsc::UnboundedReceiver<String>,
    /// The channel it hears from its beginning.
    trial: String,
    _driver: AbortOnDropHandle<()>,
}

impl Ear {
    async fn run(&self, sql: String) -> Result<()> {
        let answer = tokio::time::timeout(PROBE_TIME, self.client.batch_execute(&sql)).await;
        answer.map_err(|_| broken())?.map_err(|error| from_driver(LISTEN, error))
    }
}

impl Listener {
    pub(crate) fn new(
        connector: Connector,
        connections: Connections,
        probe: String,
        identifier: String,
        stop: CancellationToken,
    ) -> Self {
        let signals = Arc::new(std::array::from_fn(|_| watch::Sender::new(Signal::default())));
        let connections_are_gated = connections.is_gated();
        let task = Task { connector, connections, probe, identifier, signals, told: Arc::default() };
        let paused = stop.child_token();
        if connections_are_gated {
            paused.cancel();
        }
        let paused = Mutex::new(paused);
        Self { task, running: Arc::default(), tasks: TaskTracker::new(), stop, paused }
    }

    /// The signals of a subject; starts listening if nobody has yet.
    pub(crate) fn subscribe(&self, subject: Subject) -> watch::Receiver<Signal> {
        let signals = self.task.signals[subject.place()].subscribe();
        let stop = self.paused().clone();
        if !stop.is_cancelled() && !self.running.swap(true, Ordering::AcqRel) {
            let running =
                Running { running: Arc::clone(&self.running), task: self.task.clone(), stop: stop.clone() };
            self.tasks.spawn(async move {
                stop.run_until_cancelled(running.task.run()).await;
                drop(running);
            });
        }
        signals
    }

    /// How long a notification takes to come back, on a connection made for that; none if none comes within that time.
    pub(crate) async fn try_out(&self, within: Duration) -> Result<Option<Duration>> {
        let mut ear = self.task.connect().await?;
        let begun = Instant::now();
        let came = self.task.try_out(&mut ear, within).await?;
        Ok(came.map(|_| begun.elapsed()))
    }

    /// Ends the connection until it may be made again.
    pub(crate) async fn pause(&self) {
        self.paused().cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    /// Lets the next who waits for something listen again.
    pub(crate) fn resume(&self) {
        let mut paused = self.paused();
        if paused.is_cancelled() {
            *paused = self.stop.child_token();
        }
    }

    fn paused(&self) -> MutexGuard<'_, CancellationToken> {
        // A token is whole whatever panicked beside it.
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// However the task ends (its runtime may go away under it), nobody is left to believe that it listens.
struct Running {
    running: Arc<AtomicBool>,
    task: Task,
    stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Waiters of a paused listener must not open the connections that are being closed.
        self.task.set_listening(false, !self.stop.is_cancelled());
        self.running.store(false, Ordering::Release);
    }
}

impl Task {
    async fn run(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let ended = self.session().await;
            let listened = self.set_listening(false, true);
            let next = match ended {
                Ok(()) => DEAF_PAUSE,
                Err(error) => {
                    let store = &self.identifier;
                    tracing::debug!(store, %error, "not listening for notifications; polling meanwhile");
                    if listened {
                        pause = FIRST_PAUSE;
                    }
                    let next = pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    next
                }
            };
            tokio::time::sleep(next).await;
        }
    }

    /// Listens until the connection breaks. Returns without an error when notifications don't get through.
    async fn session(&self) -> Result<()> {
        let mut ear = self.connect().await?;
        let Some(channels) = self.try_out(&mut ear, PROBE_TIME).await? else {
            if !self.told.swap(true, Ordering::Relaxed) {
                let store = &self.identifier;
                tracing::info!(
                    store,
                    "notifications don't get through (a pooler in transaction mode?); new messages are found by polling"
                );
            }
            return Ok(());
        };
        let quoted = channels.iter().map(|channel| channel.replace('"', "\"\""));
        let listen: String = quoted.map(|channel| format!("; listen \"{channel}\"")).collect();
        ear.run(format!("unlisten \"{}\"{listen}", ear.trial)).await?;
        self.set_listening(true, true);
        tracing::debug!(store = &self.identifier, "listening for notifications");
        while let Some(heard) = ear.notifications.recv().await {
            // The trial's own channel may still be heard once more.
            for (signal, _) in self.signals.iter().zip(&channels).filter(|(_, channel)| **channel == heard) {
                signal.send_modify(|signal| signal.wakes += 1);
            }
        }
        Err(broken())
    }

    /// A connection of its own that hears a channel of its own: the trial wakes nobody else.
    async fn connect(&self) -> Result<Ear> {
        let counted = self.connector.count();
        let (client, mut connection) = self.connector.connect(LISTEN).await?;
        let (heard, notifications) = mpsc::unbounded_channel();
        let driver = AbortOnDropHandle::new(tokio::spawn(async move {
            let _counted = counted;
            let mut messages = poll_fn(move |context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(notification) = message
                    && heard.send(notification.channel().to_owned()).is_err()
                {
                    return;
                }
            }
        }));
        let trial = format!("mainstay_trial_{}", Uuid::new_v4().simple());
        let ear = Ear { client, notifications, trial, _driver: driver };
        ear.run(format!("listen \"{}\"", ear.trial)).await?;
        Ok(ear)
    }

    /// The subjects' channels, if a notification comes within that time.
    async fn try_out(&self, ear: &mut Ear, within: Duration) -> Result<Option<[String; SUBJECTS]>> {
        let rows = self.connections.query(LISTEN, &self.probe, &[(&ear.trial, Type::TEXT)]).await?;
        match tokio::time::timeout(within, ear.notifications.recv()).await {
            Ok(Some(_)) => channels(&rows).map(Some),
            Ok(None) => Err(broken()),
            Err(_) => Ok(None),
        }
    }

    /// Records whether notifications get through, and returns whether they did before. A change wakes the waiters, if `wake`: what came
    /// while it was not listening was not heard.
    fn set_listening(&self, listening: bool, wake: bool) -> bool {
        let mut before = false;
        for signal in self.signals.iter() {
            signal.send_if_modified(|signal| {
                before = signal.listening;
                let changed = before != listening;
                signal.listening = listening;
                signal.wakes += u64::from(changed && wake);
                signal.session += u64::from(changed && listening);
                changed
            });
        }
        before
    }
}

/// The subjects' channels, in the order of their places.
fn channels(rows: &[tokio_postgres::Row]) -> Result<[String; SUBJECTS]> {
    let row = rows.first().ok_or_else(broken)?;
    let mut channels = [const { String::new() }; SUBJECTS];
    for (at, channel) in channels.iter_mut().enumerate() {
        *channel = rows::Reader::new(LISTEN, row).get(at)?;
    }
    Ok(channels)
}

fn broken() -> Error {
    Error::new(ErrorKind::Unavailable, LISTEN, "the connection broke off")
}
