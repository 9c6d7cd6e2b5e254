//! SIGHUP: the certificate, tokens and webhooks' secrets are read again, without a restart.
//!
//! All of it is read and checked before anything changes: a file that is missing or wrong leaves everything as it was.

use mainstay::server::webhook::Webhooks;
use mainstay::server::{CurrentTls, Interface, Listener};

use super::settings::{ListenArgs, Serving};
use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;

/// What can be changed while it runs.
pub(super) struct Reload {
    flags: ListenArgs,
    interface: Interface,
    tls: Option<CurrentTls>,
    webhooks: Webhooks,
    hangups: Hangups,
}

impl Reload {
    /// Watches for SIGHUP from now on: before, it ends the process.
    pub(super) fn of(
        flags: ListenArgs,
        interface: &Interface,
        listener: &Listener,
        serving: &Serving,
    ) -> Self {
        let (interface, webhooks) = (interface.clone(), serving.webhooks().clone());
        Self { flags, interface, tls: listener.tls(), webhooks, hangups: Hangups::watch() }
    }

    /// Does it whenever it is asked for. Never ends.
    pub(super) async fn follow(&mut self, settings: &Settings) {
        loop {
            self.hangups.next().await;
            match self.take_over(settings) {
                Ok(()) => tell(settings, "reloaded", None),
                Err(failure) => tell(settings, "not reloaded", Some(&failure)),
            }
        }
    }

    fn take_over(&self, settings: &Settings) -> Result<(), Failure> {
        let now = Serving::collect(self.flags.clone(), settings.read_serve_again()?)?;
        let (tls, access, webhooks) = now.changeable();
        if tls.is_some() != self.tls.is_some() {
            return Err(Failure::new("TLS can't be switched on or off while it runs").hint("restart it"));
        }
        self.interface.change_access(access).map_err(|error| Failure::new(error.message()))?;
        if let (Some(current), Some(tls)) = (&self.tls, tls) {
            current.change(tls);
        }
        self.webhooks.change_secrets(&webhooks);
        Ok(())
    }
}

fn tell(settings: &Settings, event: &str, failure: Option<&Failure>) {
    // What it says has one line in the log.
    let error = failure.map(|failure| failure.to_string().replace('\n', "; "));
    match &error {
        None => {
            tracing::info!("reloaded: the certificate, tokens and secrets of webhooks are those of the files")
        }
        Some(error) => tracing::error!(%error, "not reloaded: everything stays as it was"),
    }
    // Nobody may read it any more.
    let _closed = match (settings.json, error) {
        (true, error) => output::json(&serde_json::json!({"event": event, "error": error})),
        (false, _) if settings.quiet => Ok(()),
        (false, None) => output::line(event),
        (false, Some(error)) => output::line(format_args!("{event}: {error}")),
    };
}

#[cfg(unix)]
struct Hangups(Option<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Hangups {
    fn watch() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let watched = signal(SignalKind::hangup());
        Self(watched.inspect_err(|error| tracing::warn!(%error, "SIGHUP can't be watched")).ok())
    }

    async fn next(&mut self) {
        let Some(signal) = &mut self.0 else { return std::future::pending().await };
        if signal.recv().await.is_none() {
            std::future::pending().await
        }
    }
}

#[cfg(not(unix))]
struct Hangups;

#[cfg(not(unix))]
impl Hangups {
    fn watch() -> Self {
        Self
    }

    async fn next(&mut self) {
        std::future::pending().await
    }
}
