//! How every background loop starts and stops.
//!
//! A service is started once, says when it is ready, and runs until it is told to stop; then it finishes what it has
//! begun and returns. Dropping the handle without stopping ends it at once, as a crash would.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{Error, ErrorKind, Result};

/// A background loop.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// Its name, for logs.
    fn name(&self) -> &'static str;

    /// Runs until `lifecycle.stopping()` and returns once everything begun is finished.
    async fn run(&self, lifecycle: Lifecycle) -> Result<()>;

    /// This process has nothing more to do with the database: it has left the fleet, or is another's. What is told of it all the time is to be
    /// taken back.
    fn retire(&self) {}
}

/// A service's side of the contract.
#[derive(Debug)]
pub struct Lifecycle {
    started: watch::Sender<bool>,
    stop: CancellationToken,
    hurry: CancellationToken,
}

impl Lifecycle {
    /// Says that the service is ready.
    pub fn started(&self) {
        self.started.send_replace(true);
    }

    /// Cancelled when the service is to stop.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// Cancelled when what is under way may take no longer than its grace period. Most often that is together with
    /// [`Self::stopping`]; a service that is told to finish may take the time it needs until then.
    pub fn hurrying(&self) -> &CancellationToken {
        &self.hurry
    }
}

/// A running service.
#[derive(Debug)]
pub struct Running {
    name: &'static str,
    started: watch::Receiver<bool>,
    stop: CancellationToken,
    hurry: CancellationToken,
    task: AbortOnDropHandle<Result<()>>,
}

/// Starts a service on the current runtime.
pub fn start(service: Arc<dyn Service>) -> Running {
    let (started, seen) = watch::channel(false);
    let stop = CancellationToken::new();
    let hurry = CancellationToken::new();
    let lifecycle = Lifecycle { started, stop: stop.clone(), hurry: hurry.clone() };
    let name = service.name();
    let task = tokio::spawn(async move { service.run(lifecycle).await });
    Running { name, started: seen, stop, hurry, task: AbortOnDropHandle::new(task) }
}

impl Running {
    /// The service's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Waits until the service is ready, or has ended before it was.
    pub async fn started(&mut self) {
        // An error means that the service has ended; `stop` tells why.
        let _ended = self.started.wait_for(|started| *started).await;
    }

    /// Tells the service to stop, without waiting.
    pub fn request_stop(&self) {
        self.stop.cancel();
        self.hurry.cancel();
    }

    /// Tells the service to begin nothing new and to end what it has begun, however long that takes, without waiting.
    pub fn request_finish(&self) {
        self.stop.cancel();
    }

    /// What tells the service that it may take no longer than its grace period.
    pub(crate) fn hurry(&self) -> &CancellationToken {
        &self.hurry
    }

    /// Whether the service has ended.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits for the service's end, which it comes to by itself only when something is badly wrong.
    pub async fn ended(&mut self) -> Result<()> {
        match (&mut self.task).await {
            Ok(result) => result,
            Err(error) => {
                let text = format!("the service {} broke off", self.name);
                Err(Error::new(ErrorKind::Internal, "service.run", text).with_source(error))
            }
        }
    }

    /// Tells the service to stop and waits until it has.
    pub async fn stop(mut self) -> Result<()> {
        self.request_stop();
        self.ended().await
    }
}
