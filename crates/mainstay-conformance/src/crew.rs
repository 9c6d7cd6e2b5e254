//! Workers with real handlers, for the cases about what happens between claim and settle.

#![allow(clippy::expect_used, reason = "a case fails by panicking")]

use std::time::Duration;

use mainstay_core::queue::{Context, DispatcherOptions};
use mainstay_core::runtime::{InboxBuilder, Mainstay, OutboxBuilder, RunningMainstay};
use tokio::sync::mpsc;

use crate::world::World;

/// How long a case waits for something that should happen soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

impl World<'_> {
    /// Starts a worker of its own instance with these handlers and no chores on a timer.
    pub(crate) async fn work(&self, set_up: impl FnOnce(OutboxBuilder) -> OutboxBuilder) -> RunningMainstay {
        self.mainstay(set_up).start().await.expect("start the worker")
    }

    /// The same, not started.
    pub(crate) fn mainstay(&self, set_up: impl FnOnce(OutboxBuilder) -> OutboxBuilder) -> Mainstay {
        let quiet = |outbox: OutboxBuilder| outbox.retention(None).reap_every(None).gauges_every(None);
        let builder = Mainstay::builder_over(self.provider.clone())
            .inbox(|inbox| inbox.retention(None).reap_every(None).gauges_every(None));
        builder.outbox(|outbox| set_up(quiet(outbox.options(brisk)))).build().expect("build the worker")
    }

    /// Starts a worker whose handlers take what the inbox receives.
    pub(crate) async fn work_inbox(
        &self,
        set_up: impl FnOnce(InboxBuilder) -> InboxBuilder,
    ) -> RunningMainstay {
        let quiet = |inbox: InboxBuilder| inbox.retention(None).reap_every(None).gauges_every(None);
        let mainstay = Mainstay::builder_over(self.provider.clone())
            .outbox(|outbox| outbox.retention(None).reap_every(None).gauges_every(None))
            .inbox(|inbox| set_up(quiet(inbox.options(brisk))))
            .build();
        mainstay.expect("build the worker").start().await.expect("start the worker")
    }

    /// Waits until `condition` holds.
    pub(crate) async fn until(&self, what: &str, mut condition: impl AsyncFnMut(&Self) -> bool) {
        mainstay_tests::eventually(PATIENCE, what, async || condition(self).await).await;
    }

    /// Waits until nothing is due or in progress.
    pub(crate) async fn until_idle(&self) {
        self.until("all that is due is handled", async |world: &Self| {
            let stats = world.outbox.stats().await.expect("stats");
            stats.ready + stats.in_progress == 0
        })
        .await;
    }
}

/// Polls often, so that a provider that is woken late does not make the suite slow.
pub(crate) fn brisk(options: &mut DispatcherOptions) {
    options.poll_min = Duration::from_millis(10);
    options.poll_max = Duration::from_millis(200);
}

/// What handlers tell a case.
pub(crate) struct Reports<T>(mpsc::UnboundedReceiver<T>);

/// A handler's end of [`Reports`].
pub(crate) type Reporter<T> = mpsc::UnboundedSender<T>;

impl<T> Reports<T> {
    pub(crate) fn new() -> (Reporter<T>, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (sender, Self(receiver))
    }

    /// The next report; fails the case if none comes.
    pub(crate) async fn next(&mut self) -> T {
        let next = tokio::time::timeout(PATIENCE, self.0.recv()).await.expect("a handler to report in time");
        next.expect("a handler that still runs")
    }

    /// Everything reported and not yet taken.
    pub(crate) fn rest(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

/// Reports its own end, also when it is dropped midway.
pub(crate) struct Farewell(pub(crate) Reporter<&'static str>);

impl Drop for Farewell {
    fn drop(&mut self) {
        // Nobody may be listening any more.
        let _ = self.0.send("dropped");
    }
}

/// A handler that reports each delivery and succeeds.
pub(crate) fn reporting(reporter: Reporter<Context>) -> impl Fn(Context) -> std::future::Ready<()> {
    move |context| {
        // Nobody may be listening any more.
        let _ = reporter.send(context);
        std::future::ready(())
    }
}
