//! Puts a [`Fleet`] together.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::Result;
use crate::lease::Leases;
use crate::queue::slots::SharedSlots;
use crate::runtime::MainstayBuilder;
use crate::store::Provider;

use super::budget::Budget;
use super::control::{Inner, SetUp};
use super::keeper::Node;
use super::{
    Assignment, AssignmentOptions, Connect, DatabaseDiscovery, DatabaseEntry, Fleet, FleetOptions, Owned,
    Selection,
};

/// Puts a [`Fleet`] together.
#[must_use = "nothing happens until it is built"]
pub struct FleetBuilder {
    discovery: Box<dyn DatabaseDiscovery>,
    connect: Box<dyn Connect>,
    set_up: SetUp,
    options: FleetOptions,
    selection: Selection,
    ownership: Ownership,
    works: bool,
}

/// Where it comes from which databases this node works on.
enum Ownership {
    All,
    Told(watch::Receiver<Owned>),
    Shared(Leases, AssignmentOptions),
}

impl FleetBuilder {
    pub(super) fn new(discovery: Box<dyn DatabaseDiscovery>, connect: Box<dyn Connect>) -> Self {
        Self {
            discovery,
            connect,
            set_up: Box::new(|_, builder| builder),
            options: FleetOptions::default(),
            selection: Selection::default(),
            ownership: Ownership::All,
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

    /// Shares the databases with the other nodes of the fleet, through leases in one home database: each is worked on by one node, and what
    /// a node leaves behind, the others take over. The home's connections are not of the budget: sharing asks it one statement at a
    /// time and listens for nothing, so it takes one connection of the home's pool. Closing it is the application's. Defaults to sharing
    /// with nobody.
    pub fn share_through(mut self, home: &dyn Provider, options: AssignmentOptions) -> Self {
        self.ownership = Ownership::Shared(Leases::new(home.leases()), options);
        self
    }

    /// Works only on the databases that are said to be this node's, as that changes: for applications that share them by rules of their
    /// own. Defaults to all.
    pub fn owned(mut self, owned: watch::Receiver<Owned>) -> Self {
        self.ownership = Ownership::Told(owned);
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
        let (mut owned_from, mut assignment) = (None, None);
        match self.ownership {
            Ownership::All => {}
            Ownership::Told(from) => owned_from = Some(from),
            Ownership::Shared(leases, options) => {
                let sharing = Assignment::new(leases, options)?;
                owned_from = Some(sharing.owned());
                assignment = Some(Arc::new(sharing));
            }
        }
        let owned_from = owned_from.filter(|_| self.works);
        let owned = match &owned_from {
            Some(from) => from.borrow().clone(),
            None if self.works => Owned::all(),
            None => Owned::none(),
        };
        let owned = watch::Sender::new(owned);
        let rung = watch::Sender::new(0);
        let node = Node {
            options: self.options,
            budget: Budget::new(&self.options),
            owned: owned.subscribe(),
            dispatches: matches!(self.selection, Selection::Concurrent),
            rung: rung.clone(),
        };
        Ok(Fleet(Arc::new(Inner {
            discovery: self.discovery,
            connect: self.connect,
            set_up: self.set_up,
            node: Arc::new(node),
            handlers: SharedSlots::new(self.options.handlers),
            selection: self.selection,
            owned,
            owned_from,
            assignment: assignment.filter(|_| self.works),
            registry: Mutex::default(),
            refreshing: tokio::sync::Mutex::new(()),
            last_refresh: Mutex::default(),
            rung,
            keepers: TaskTracker::new(),
            stop: CancellationToken::new(),
            started: AtomicBool::new(false),
        })))
    }
}
