//! Where a process stands between its start and its stop, for those who ask whether it may be relied on.
//!
//! It follows what the runtime does and decides nothing. A service that ended without being told to is remembered until the next start.

use std::sync::{Arc, Mutex, PoisonError};

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
            Probe::Ready | Probe::Full => Finding::new(HealthStatus::Unhealthy, alive),
        }
    }
}

/// Where a process stands, as its runtime tells it.
#[derive(Debug)]
pub(crate) struct StartupState(Mutex<Startup>);

impl Default for StartupState {
    fn default() -> Self {
        Self(Mutex::new(Startup::NotStarted))
    }
}

impl StartupState {
    pub(crate) fn get(&self) -> Startup {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, to: Startup, unless: impl Fn(Startup) -> bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !unless(*state) {
            *state = to;
        }
    }

    /// It starts; until the answer is dropped it has not stopped.
    pub(crate) fn start(self: &Arc<Self>) -> StartupGuard {
        self.set(Startup::Starting, |_| false);
        StartupGuard(Arc::clone(self))
    }
}

fn is_broken(state: Startup) -> bool {
    matches!(state, Startup::Broken { .. })
}

/// A process that starts or runs.
#[derive(Debug)]
pub(crate) struct StartupGuard(Arc<StartupState>);

impl StartupGuard {
    /// All services run.
    pub(crate) fn running(&self) {
        self.0.set(Startup::Running, is_broken);
    }

    /// They have been told to stop.
    pub(crate) fn stopping(&self) {
        self.0.set(Startup::Stopping, is_broken);
    }
}

impl Drop for StartupGuard {
    fn drop(&mut self) {
        self.0.set(Startup::Stopped, is_broken);
    }
}

/// A service whose end is noted, if nobody asked for it.
pub(crate) struct NotedService {
    service: Arc<dyn Service>,
    state: Arc<StartupState>,
}

impl NotedService {
    pub(crate) fn over(service: Arc<dyn Service>, state: &Arc<StartupState>) -> Arc<dyn Service> {
        Arc::new(Self { service, state: Arc::clone(state) })
    }
}

#[async_trait]
impl Service for NotedService {
    fn name(&self) -> &'static str {
        self.service.name()
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let stop = lifecycle.stopping().clone();
        let _noted = NoteEnd { service: self.name(), stop, state: &self.state };
        self.service.run(lifecycle).await
    }
}

/// Dropped when the service ends, however it ends.
struct NoteEnd<'a> {
    service: &'static str,
    stop: CancellationToken,
    state: &'a StartupState,
}

impl Drop for NoteEnd<'_> {
    fn drop(&mut self) {
        if !self.stop.is_cancelled() {
            let over = |state| is_broken(state) || matches!(state, Startup::Stopping | Startup::Stopped);
            self.state.set(Startup::Broken { service: self.service }, over);
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
            let mut service = start(NotedService::over(Arc::new(Fickle { ends, panics }), &state));
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
}
