//! Ctrl-C and the request to end: the first asks to stop, the second quits.

use tokio::sync::watch;

/// The exit code of a program that a second Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Tells when a person, or the system, has asked to stop.
#[derive(Debug, Clone)]
pub(crate) struct Signals(watch::Receiver<bool>);

impl Signals {
    /// Watches for signals. A second one runs `tidy_up` and ends the process.
    pub(crate) fn watch(tidy_up: impl FnOnce() + Send + 'static) -> Self {
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            signal().await;
            sender.send_replace(true);
            signal().await;
            tidy_up();
            std::process::exit(INTERRUPTED);
        });
        Self(receiver)
    }

    /// Waits for the first signal.
    pub(crate) async fn stop(&mut self) {
        if self.0.wait_for(|asked| *asked).await.is_err() {
            // Nobody watches any more, so nobody will ask.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(_) => return ctrl_c().await,
    };
    tokio::select! {
        () = ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(not(unix))]
async fn signal() {
    ctrl_c().await;
}

async fn ctrl_c() {
    if tokio::signal::ctrl_c().await.is_err() {
        // Without a handler the system's own way stands: Ctrl-C ends the process.
        std::future::pending::<()>().await;
    }
}
