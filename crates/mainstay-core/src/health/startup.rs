//! Where a process stands between its start and its stop, for those who ask whether it may be relied on.
//!
//! It follows what the runtime does and decides nothing. A service that ended without being told to is remembered until the next start.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::runtime::{Lifecycle, Service};

use super::{Finding, HealthStatus, Probe};

/// Where a process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Startup {
    /// Nobody has started it.
    NotStarted,
    /// It waits for its database, checks the schema, or its services are starting.
    Starting,
    /// All of its services run.
    Running,
    /// It begins nothing new.
    Stopping,
    /// It has stopped, or could not start.
    Stopped,
    /// A service of it ended without being told to.
    Broken {
        /// Its name.
        service: &'static str,
    },
}

impl Startup {
    /// What it means for this probe. A process that only starts, or stops, is alive.
    pub(super) fn judge(self, probe: Probe) -> Finding {
        let alive = match self {
            Self::Broken { service } => {
                let text = format!("the service {service:?} ended without being told to");
                return Finding::new(HealthStatus::Unhealthy, text)
                    .advise("restart the process; its log says why the service ended");
            }
            Self::Running => return Finding::healthy("all services run"),
            Self::NotStarted => "it has not been started",
            Self::Starting => "it is starting: it waits for its database, or checks the schema",
            Self::Stopping => "it is stopping",
            Self::Stopped => "it has stopped",
        };
        match probe {
            Probe::Live => Finding::healthy(alive),
            Probe::Ready | Probe::Full | Probe::Doctor => Finding::new(HealthStatus::Unhealthy, alive),
        }
    }
}

/// Where a process stands, as its runtime tells it.
#[derive(Debug)]
pub(crate) struct StartupState(Mutex<Stand>);

#[derive(Debug)]
struct Stand {
    /// Which start it is of. What was dropped may end after the next start has begun, and has nothing to say then.
    start: u64,
    state: Startup,
}

impl Default for StartupState {
    fn default() -> Self {
        Self(Mutex::new(Stand { start: 0, state: Startup::NotStarted }))
    }
}

impl StartupState {
    fn stand(&self) -> MutexGuard<'_, Stand> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> Startup {
        self.stand().state
    }

    /// Of this start, and unless a service of it has broken.
    fn set(&self, start: u64, to: Startup) {
        let mut stand = self.stand();
        if stand.start == start && !matches!(stand.state, Startup::Broken { .. }) {
            stand.state = to;
        }
    }

    /// It starts; until the answer is dropped it has not stopped.
    pub(crate) fn start(self: &Arc<Self>) -> StartupGuard {
        let mut stand = self.stand();
        *stand = Stand { start: stand.start + 1, state: Startup::Starting };
        StartupGuard { state: Arc::clone(self), start: stand.start }
    }
}

/// A process that starts or runs.
#[derive(Debug)]
pub(crate) struct StartupGuard {
    state: Arc<StartupState>,
    start: u64,
}

impl StartupGuard {
    /// All services run.
    pub(crate) fn running(&self) {
        self.state.set(self.start, Startup::Running);
    }

    /// They have been told to stop.
    pub(crate) fn stopping(&self) {
        self.state.set(self.start, Startup::Stopping);
    }

    /// A service whose end is noted, if nobody asked for it.
    pub(crate) fn note(&self, service: Arc<dyn Service>) -> Arc<dyn Service> {
        Arc::new(NotedService { service, state: Arc::clone(&self.state), start: self.start })
    }
}

impl Drop for StartupGuard {
    fn drop(&mut self) {
        self.state.set(self.start, Startup::Stopped);
    }
}

/// A service whose end is noted, if nobody asked for it.
struct NotedService {
    service: Arc<dyn Service>,
    state: Arc<StartupState>,
    start: u64,
}

#[async_trait]
impl Service for NotedService {
    fn name(&self) -> &'static str {
        self.service.name()
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let stop = lifecycle.stopping().clone();
        let _noted = NoteEnd { stop, of: self };
        self.service.run(lifecycle).await
    }
}

/// Dropped when the service ends, however it ends.
struct NoteEnd<'a> {
    stop: CancellationToken,
    of: &'a NotedService,
}

impl Drop for NoteEnd<'_> {
    fn drop(&mut self) {
        let NotedService { service, state, start } = self.of;
        // Whoever dropped all of it has said that it stopped.
        let over = matches!(state.get(), Startup::Stopping | Startup::Stopped);
        if !self.stop.is_cancelled() && !over {
            state.set(*start, Startup::Broken { service: service.name() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::HealthStatus;
    use crate::runtime::start;

    /// Ends by itself, or when told to.
    struct Fickle {
        ends: bool,
        panics: bool,
    }

    #[async_trait]
    impl Service for Fickle {
        fn name(&self) -> &'static str {
            "fickle"
        }
        async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
            lifecycle.started();
            assert!(!self.panics, "it breaks off");
            if !self.ends {
                lifecycle.stopping().cancelled().await;
            }
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_service_that_ends_unasked_is_told_until_the_next_start() {
        for (ends, panics, broken) in [(true, false, true), (false, true, true), (false, false, false)] {
            let state = Arc::new(StartupState::default());
            let guard = state.start();
            assert_eq!(state.get(), Startup::Starting);
            let mut service = start(guard.note(Arc::new(Fickle { ends, panics })));
            service.started().await;
            guard.running();
            if broken {
                let _ended = service.ended().await;
                assert_eq!(state.get(), Startup::Broken { service: "fickle" });
                for probe in [Probe::Live, Probe::Ready] {
                    assert_eq!(state.get().judge(probe).status, HealthStatus::Unhealthy);
                }
            } else {
                assert_eq!(state.get(), Startup::Running);
                guard.stopping();
                service.stop().await.unwrap();
                assert_eq!(state.get(), Startup::Stopping);
            }
            drop(guard);
            let expected = if broken { Startup::Broken { service: "fickle" } } else { Startup::Stopped };
            assert_eq!(state.get(), expected);
            drop(state.start());
            assert_eq!(state.get(), Startup::Stopped);
        }
    }

    #[tokio::test]
    async fn what_was_dropped_has_nothing_to_say_of_the_next_start() {
        let state = Arc::new(StartupState::default());
        let first = state.start();
        let mut service = start(first.note(Arc::new(Fickle { ends: false, panics: false })));
        service.started().await;
        drop(first);
        let second = state.start();
        second.running();
        // Its task ends after that.
        drop(service);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(state.get(), Startup::Running);
    }
}
