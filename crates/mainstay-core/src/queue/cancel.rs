//! How a delivery is told to end before its handler has.
//!
//! A part of the delivery itself, and nothing of its own in memory: there is one for every message. One task waits for it.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;

/// Fires once.
#[derive(Debug, Default)]
pub(super) struct Cancel {
    fired: AtomicBool,
    waiter: AtomicWaker,
}

impl Cancel {
    /// Ends the wait of whoever waits, now or later.
    pub(super) fn fire(&self) {
        self.fired.store(true, Ordering::Release);
        self.waiter.wake();
    }

    /// Waits until it has fired. Of several who wait, only the last is woken.
    pub(super) async fn fired(&self) {
        poll_fn(|context| {
            // Once more after the waiter is known: it may have fired in between, and then woken nobody.
            let has_fired = || self.fired.load(Ordering::Acquire);
            if has_fired() {
                return Poll::Ready(());
            }
            self.waiter.register(context.waker());
            if has_fired() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn it_waits_until_it_has_fired() {
        let cancel = Cancel::default();
        assert!(cancel.fired().now_or_never().is_none());
        cancel.fire();
        assert!(cancel.fired().now_or_never().is_some());
    }

    #[tokio::test]
    async fn who_waits_is_woken() {
        for _ in 0..100 {
            let cancel = Arc::new(Cancel::default());
            let waits = Arc::clone(&cancel);
            let waiting = tokio::spawn(async move { waits.fired().await });
            let fires = std::thread::spawn(move || cancel.fire());
            waiting.await.unwrap();
            fires.join().unwrap();
        }
    }
}
