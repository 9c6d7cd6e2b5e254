//! Puts a [`Fleet`] together.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::Result;
use crate::runtime::MainstayBuilder;

use super::budget::Budget;
use super::control::{Inner, SetUp};
use super::keeper::Node;
use super::{Connect, DatabaseDiscovery, DatabaseEntry, Fleet, FleetOptions, Owned, Selection};

/// Puts a [`Fleet`] together.
#[must_use = "nothing happens until it is built"]
pub struct FleetBuilder {
    discovery: Box<dyn DatabaseDiscovery>,
    connect: Box<dyn Connect>,
    set_up: SetUp,
    options: FleetOptions,
    selection: Selection,
    owned: Option<watch::Receiver<Owned>>,
    works: bool,
}

impl FleetBuilder {
    pub(super) fn new(discovery: Box<dyn DatabaseDiscovery>, connect: Box<dyn Connect>) -> Self {
        Self {
            discovery,
            connect,
            set_up: Box::new(|_, builder| builder),
            options: FleetOptions::default(),
            selection: Selection::default(),
            owned: None,
            works: true,
        }
    }

    /// Sets each database up, as if it were the only one: handlers, timers, jobs and all.
    pub fn each(
        mut self,
        set_up: impl Fn(&DatabaseEntry, MainstayBuilder) -> MainstayBuilder + Send + Sync + 'static,
    ) -> Self {
        self.set_up = Box::new(set_up);
        self
    }

    /// Changes how the databases share this process.
    pub fn options(mut self, change: impl FnOnce(&mut FleetOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Who gets the next batch. Defaults to all at once.
    pub fn selection(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Works only on the databases that are said to be this node's, as that changes. Defaults to all.
    pub fn owned(mut self, owned: watch::Receiver<Owned>) -> Self {
        self.owned = Some(owned);
        self
    }

    /// Only routes to the databases, and works on none. Somebody else has to.
    pub fn routes_only(mut self) -> Self {
        self.works = false;
        self
    }

    /// Checks everything and puts it together. Nothing runs yet, and nobody has been asked for databases.
    pub fn build(self) -> Result<Fleet> {
        self.options.validate()?;
        let owned_from = self.owned.filter(|_| self.works);
        let owned = match &owned_from {
            Some(from) => from.borrow().clone(),
            None if self.works => Owned::all(),
            None => Owned::none(),
        };
        let owned = watch::Sender::new(owned);
        let node = Node {
            options: self.options,
            budget: Budget::new(&self.options),
            owned: owned.subscribe(),
            dispatches: matches!(self.selection, Selection::Concurrent),
        };
        Ok(Fleet(Arc::new(Inner {
            discovery: self.discovery,
            connect: self.connect,
            set_up: self.set_up,
            node: Arc::new(node),
            handlers: Arc::new(Semaphore::new(self.options.handlers)),
            selection: self.selection,
            owned,
            owned_from,
            registry: Mutex::default(),
            refreshing: tokio::sync::Mutex::new(()),
            last_refresh: Mutex::default(),
            rung: watch::Sender::new(0),
            keepers: TaskTracker::new(),
            stop: CancellationToken::new(),
            started: AtomicBool::new(false),
        })))
    }
}
