//! The connections of one database: asked for, allowed, closed, and given back.

use super::*;

/// How long closing connections is waited for before something else is seen to. The share stays taken until they are closed.
const CLOSING: Duration = Duration::from_secs(2);

impl Keeper {
    /// Adds one connection to what is held, for a moment; false if `stop` comes first. What calls already have in use is not taken from
    /// them, so it takes another, unless that makes more than the database can have.
    pub(super) async fn hold_one(&mut self, stop: &CancellationToken) -> bool {
        if self.held() >= self.node.options.connections_per_store {
            return true;
        }
        let (budget, server) = (&self.node.budget, self.store.server.as_deref());
        let asked = async {
            match self.store.is_well() {
                true => budget.one(server).await,
                false => budget.trial(server).await,
            }
        };
        match stop.run_until_cancelled(asked).await {
            None => false,
            Some(share) => {
                self.hold(share);
                true
            }
        }
    }

    /// Waits in line for all that the database works with; calls of the application are let through meanwhile. False if it is no longer
    /// wanted.
    pub(super) async fn hold_all(&mut self) -> bool {
        let (node, server, stop) = (Arc::clone(&self.node), self.store.server.clone(), self.stop.clone());
        let count = node.options.connections_per_store;
        let mut owned = node.owned.clone();
        let provider = Arc::clone(&self.store.provider);
        let is_unproven = self.store.view().breaker.is_unproven();
        let line = async {
            match is_unproven {
                true => node.budget.for_proof(server.as_deref(), count).await,
                false => node.budget.for_work(server.as_deref(), count).await,
            }
        };
        tokio::pin!(line);
        let share = loop {
            if stop.is_cancelled() || !owned.borrow_and_update().owns(self.store.id()) {
                return false;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return false,
                share = &mut line => break share,
                _ = owned.changed() => continue,
                () = self.store.signals.told() => {}
                // A call that took long is over. What it had may be what is waited for.
                () = provider.allow_connections(0), if self.held.is_some() => {
                    self.held = None;
                    continue;
                }
            }
            let told = self.store.signals.take();
            self.recheck |= told.recheck;
            if told.wanted {
                tokio::select! {
                    biased;
                    share = &mut line => break share,
                    () = self.serve(Serving::Busy, &stop) => {}
                }
            }
        };
        self.hold(share);
        if let Some(held) = &mut self.held {
            held.shrink_to(count);
        }
        true
    }

    pub(super) fn hold(&mut self, share: Share) {
        match &mut self.held {
            Some(held) => held.absorb(share),
            None => self.held = Some(share),
        }
    }

    pub(super) fn held(&self) -> usize {
        self.held.as_ref().map_or(0, Share::count)
    }

    /// Allows what is held.
    pub(super) async fn allow(&self) {
        let allowed = self.store.provider.allow_connections(self.held());
        // It only takes time when more are open, and then they are on their way out.
        drop(tokio::time::timeout(CLOSING, allowed).await);
    }

    /// Closes the connections as soon as nobody uses them, and gives back what is closed.
    pub(super) async fn let_go(&mut self) {
        let provider = Arc::clone(&self.store.provider);
        self.close(provider.allow_connections(0)).await;
    }

    /// Closes the connections, whoever uses them, and gives back what is closed.
    pub(super) async fn sever(&mut self) {
        let provider = Arc::clone(&self.store.provider);
        self.close(provider.sever_connections()).await;
    }

    pub(super) async fn close(&mut self, closing: impl Future<Output = ()>) {
        match tokio::time::timeout(CLOSING, closing).await {
            Ok(()) => self.held = None,
            Err(_) => self.settle(),
        }
    }

    /// Gives back what is closed, while none is allowed.
    pub(super) fn settle(&mut self) {
        if let Some(held) = &mut self.held {
            held.shrink_to(self.store.provider.open_connections());
        }
        if self.held() == 0 {
            self.held = None;
        }
    }
}
