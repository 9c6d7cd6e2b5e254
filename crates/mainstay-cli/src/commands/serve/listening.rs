//! The interface while it listens, and what the system and people are told of it.

use mainstay::server::{Interface, Listener};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::notify;
use crate::settings::Settings;

/// The interface, listening.
pub(super) struct Listening {
    stop: CancellationToken,
    task: JoinHandle<()>,
    quiet: bool,
    json: bool,
}

impl Listening {
    /// Begins to answer, and says where.
    pub(super) fn start(
        interface: Interface,
        listener: Listener,
        stop: CancellationToken,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let scheme = if listener.is_secure() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.address()?);
        let task = tokio::spawn(listener.serve(interface.router(), stop.clone()));
        super::tell(settings, "listening", Some(&url))?;
        Ok(Self { stop, task, quiet: settings.quiet, json: settings.json })
    }

    /// The background work runs too.
    pub(super) fn ready(&self) {
        notify::tell("READY=1");
        if self.json {
            let _closed = crate::output::json(&serde_json::json!({"event": "ready"}));
        } else if !self.quiet {
            let _closed = crate::output::line("ready");
        }
    }

    /// Takes nothing new, and lets what is under way end.
    pub(super) async fn stop(self) {
        notify::tell("STOPPING=1");
        self.stop.cancel();
        // It panics at most, and then nothing is under way either.
        let _ended = self.task.await;
    }
}

/// All has ended as it should.
pub(super) fn told_stopped(settings: &Settings) -> anyhow::Result<()> {
    super::tell(settings, "stopped", None)
}
