//! The service that keeps a node's share of the buckets.
//!
//! In every turn it renews all it holds and looks who is there; then it gives up what should be another's, and takes what is its own and
//! free. That is two visits to the home database, and one more for each of the latter, whatever the number of buckets. What it holds
//! it publishes at once, and stops publishing before it gives it up. It must never extend by its own clock what the database did not
//! grant.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::lease::{LeaseGroup, Leases};
use crate::runtime::{Lifecycle, Service};
use crate::telemetry;

use super::membership::{LeaseNames, View};
use super::owned::Holding;
use super::plan::Plan;
use super::{AssignmentOptions, Buckets, Owned};

/// No call is given up sooner: a slow answer is better than none.
const ATTEMPT_MIN: Duration = Duration::from_millis(100);

/// No call is waited for any longer: another connection may have more luck.
const ATTEMPT_MAX: Duration = Duration::from_secs(15);

/// How long a stop waits for a turn that has begun, and then for the release.
const LEAVE: Duration = Duration::from_secs(2);

/// The longest pause after a failure while nothing is held.
const TROUBLE_MAX: Duration = Duration::from_secs(5);

/// Keeps this node's share of a fleet's databases.
///
/// Run it as a [`Service`]; what it owns is in [`Assignment::owned`]. Told to stop, it gives everything up at once, so that the others
/// can have it; dropped, it leaves it to lapse, as a crash would.
pub struct Assignment {
    leases: Leases,
    options: AssignmentOptions,
    buckets: Buckets,
    names: LeaseNames,
    owned: watch::Sender<Owned>,
}

impl Assignment {
    /// The service's name.
    pub const NAME: &'static str = "fleet assignment";

    /// A node's part in a fleet. `leases` are those of the home database, the same for all nodes of the fleet.
    pub fn new(leases: Leases, options: AssignmentOptions) -> Result<Self> {
        options.validate()?;
        let (buckets, names) = (Buckets::new(options.buckets)?, LeaseNames::of(&options.fleet));
        Ok(Self { leases, options, buckets, names, owned: watch::Sender::new(Owned::none()) })
    }

    /// What this node owns, from now on. Nothing before the service has run and after it has ended.
    pub fn owned(&self) -> watch::Receiver<Owned> {
        self.owned.subscribe()
    }

    /// How databases are put into buckets.
    pub fn buckets(&self) -> Buckets {
        self.buckets
    }

    fn store(&self) -> &str {
        self.leases.store().identifier()
    }

    /// Tells everybody what is held now, if that has changed.
    fn publish(&self, node: &Node) {
        let seat = node.seat.and_then(|seat| node.group.get(&self.names.seat(seat)));
        let held = match seat {
            None => BTreeMap::new(),
            Some(seat) => {
                let holding = |(name, kept): (&str, &crate::lease::Kept)| {
                    let bucket = self.names.bucket_of(name)?;
                    let (epoch, tenure) = (kept.epoch, kept.tenure.clone());
                    Some((bucket, Holding { epoch, bucket: tenure, seat: seat.tenure.clone() }))
                };
                node.group.held().filter_map(holding).collect()
            }
        };
        self.replace(Owned::of(self.buckets, held));
    }

    fn replace(&self, owned: Owned) {
        let changed = self.owned.send_if_modified(|known| {
            let changed = !known.is_same(&owned);
            if changed {
                *known = owned;
            }
            changed
        });
        if changed {
            let count = self.owned.borrow().buckets().len();
            telemetry::assignment_owned(self.store(), &self.options.fleet, count);
        }
    }

    /// Stops publishing what lapses, when it does, whether or not the database answers. Never ends.
    async fn watch_deadlines(&self) {
        let mut published = self.owned.subscribe();
        loop {
            let (left, deadline) = {
                let owned = published.borrow_and_update();
                (owned.without_lapsed(), owned.deadline())
            };
            if let Some(left) = left {
                self.replace(left);
                continue;
            }
            let lapse = async {
                match deadline {
                    Some(deadline) => clock::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = lapse => {}
                // The sender is `self`'s own, so it is there.
                _ = published.changed() => {}
            }
        }
    }

    /// Asks the home database, but not for so long that what is held could lapse meanwhile.
    async fn ask<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let left = match self.owned.borrow().deadline() {
            Some(deadline) => deadline.saturating_duration_since(clock::now()),
            None => self.options.lease,
        };
        let patience = (left / 2).clamp(ATTEMPT_MIN, ATTEMPT_MAX);
        timeout(patience, call).await.unwrap_or_else(|_| {
            let text = format!("the home database did not answer within {patience:?}");
            Err(Error::new(ErrorKind::Unavailable, "fleet.assignment", text))
        })
    }

    /// Renews, looks, gives and takes. When to do so again.
    async fn turn(&self, node: &mut Node) -> Result<Duration> {
        let lost = self.ask(node.group.renew()).await;
        self.publish(node);
        lost?;
        let mut view = self.look().await?;
        let seat = match node.seat.filter(|seat| node.group.get(&self.names.seat(*seat)).is_some()) {
            Some(seat) => seat,
            None => {
                self.give_all_up(node).await?;
                if !self.agrees(&view) {
                    return Ok(self.look_soon(1));
                }
                let Some(seat) = self.take_seat(node, &view).await? else { return Ok(Duration::ZERO) };
                // Only a look from now on shows everybody who came before; whoever comes later sees this node.
                view = self.look().await?;
                seat
            }
        };
        if !node.admitted && !self.agrees(&view) {
            self.give_all_up(node).await?;
            return Ok(self.look_soon(1));
        }
        node.admitted = true;
        let members = view.members(&self.buckets.agreement());
        telemetry::assignment_members(self.store(), &self.options.fleet, members.len());
        let held = node.group.held().filter_map(|(name, _)| self.names.bucket_of(name)).collect();
        let plan = Plan::new(self.buckets, members, &view, seat, node.group.owner(), &held);
        self.give(node, &plan, &view).await?;
        let taken = self.take(node, &plan).await?;
        if taken + plan.give.len() > 0 {
            telemetry::assignment_changed(self.store(), &self.options.fleet, taken, plan.give.len());
        }
        let missing = plan.awaited + plan.take.len() - taken;
        Ok(self.pause(node, &view, missing))
    }

    /// Becomes a member. None when somebody else was quicker.
    async fn take_seat(&self, node: &mut Node, view: &View) -> Result<Option<u32>> {
        let seat = view.seat_for(node.group.owner(), node.failures);
        let request = node.group.acquire(vec![self.names.seat(seat)], Some(self.buckets.agreement()));
        if self.ask(request).await? == 0 {
            node.failures += 1;
            return Ok(None);
        }
        (node.seat, node.failures, node.admitted) = (Some(seat), 0, false);
        telemetry::assignment_joined(self.store(), &self.options.fleet, node.group.owner(), seat);
        Ok(Some(seat))
    }

    /// Whether all who are there put databases into the same buckets. A node that does otherwise must not take any beside them: both
    /// would work on the same database.
    fn agrees(&self, view: &View) -> bool {
        let agreement = self.buckets.agreement();
        let dissenter = view.dissenter(&agreement);
        if let Some((seat, says)) = dissenter {
            telemetry::assignment_refused(self.store(), &self.options.fleet, &agreement, seat, says);
        }
        dissenter.is_none()
    }

    /// Who is not a member owns nothing. A seat is given back too: others must not wait for a node that takes nothing.
    async fn give_all_up(&self, node: &mut Node) -> Result<()> {
        let claims = node.group.forget_all();
        node.seat = None;
        self.publish(node);
        self.ask(node.group.release(&claims)).await.map(drop)
    }

    async fn look(&self) -> Result<View> {
        self.ask(View::look(self.leases.store().as_ref(), &self.names)).await
    }

    async fn give(&self, node: &mut Node, plan: &Plan, view: &View) -> Result<()> {
        let names = plan.give.iter().map(|bucket| self.names.bucket(*bucket));
        let mut claims = node.group.forget(names);
        // First told, then given up.
        self.publish(node);
        let owner = node.group.owner();
        // What this node got by a call whose answer it never saw, and should not have.
        let strays = view.buckets.iter().filter(|(bucket, holder)| {
            let name = self.names.bucket(**bucket);
            holder.owner == owner && !plan.take.contains(bucket) && node.group.get(&name).is_none()
        });
        let strays =
            strays.map(|(bucket, holder)| node.group.claim(&self.names.bucket(*bucket), holder.epoch));
        let seats =
            view.seats.iter().filter(|(seat, holder)| holder.owner == owner && Some(**seat) != node.seat);
        let seats = seats.map(|(seat, holder)| node.group.claim(&self.names.seat(*seat), holder.epoch));
        let strays: Vec<_> = strays.chain(seats).filter(|stray| !claims.contains(stray)).collect();
        claims.extend(strays);
        self.ask(node.group.release(&claims)).await.map(drop)
    }

    async fn take(&self, node: &mut Node, plan: &Plan) -> Result<usize> {
        let names = plan.take.iter().map(|bucket| self.names.bucket(*bucket)).collect();
        let taken = self.ask(node.group.acquire(names, None)).await;
        self.publish(node);
        taken
    }

    /// Until the next turn: soon while others have what this node should have, and when what others hold would lapse.
    fn pause(&self, node: &Node, view: &View, missing: usize) -> Duration {
        let look = self.look_soon(if missing > 0 { 4 } else { 1 });
        let lapse = view.others_until(node.group.owner()).and_then(|until| node.group.until(until));
        look.min(lapse.unwrap_or(look))
    }

    /// A part of the usual interval, and up to a quarter of that sooner, so that nodes don't ask at the same moment.
    fn look_soon(&self, part: u32) -> Duration {
        let random = f64::from(Uuid::new_v4().as_u128() as u32) / f64::from(u32::MAX);
        (self.options.look_every() / part).mul_f64(1.0 - 0.25 * random)
    }

    /// Takes turns until the store is closed.
    async fn turns(&self, node: &mut Node, lifecycle: &Lifecycle) {
        let retry = (self.options.lease / 20).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let mut trouble = retry;
        loop {
            let turn = self.turn(node).await;
            // Also when it failed: a home database that can't be reached is no reason not to start.
            lifecycle.started();
            let pause = match turn {
                Ok(pause) => {
                    trouble = retry;
                    pause.max(Duration::from_millis(5))
                }
                Err(error) if error.kind() == ErrorKind::Closed => return,
                Err(error) => {
                    let holds = node.group.held().next().is_some();
                    let delay = if holds { retry } else { trouble };
                    trouble = (trouble * 2).min(TROUBLE_MAX.max(retry));
                    telemetry::retrying(self.store(), "fleet.assignment", &error, delay);
                    delay
                }
            };
            let stopping = lifecycle
                .stopping()
                .run_until_cancelled(clock::sleep_until(clock::now() + pause))
                .await
                .is_none();
            if stopping {
                return;
            }
        }
    }

    /// Gives everything up, the seat included. What can't be given up lapses.
    async fn leave(&self, node: &mut Node) {
        let claims = node.group.forget_all();
        self.publish(node);
        let release = timeout(LEAVE, node.group.release(&claims));
        let failed = match release.await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error,
            Err(_) => {
                let text = format!("the home database did not answer within {LEAVE:?}");
                Error::new(ErrorKind::Unavailable, "lease.release", text)
            }
        };
        telemetry::lease_unreleased(self.store(), &format!("fleet:{}", self.options.fleet), &failed);
    }
}

#[async_trait]
impl Service for Assignment {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let _ending = Ending(&self.owned);
        let mut node = Node::new(&self.leases, &self.options);
        {
            // A turn that has begun may have taken what nobody would know of, so it is waited for.
            let patience = async {
                lifecycle.stopping().cancelled().await;
                sleep(LEAVE).await;
            };
            tokio::select! {
                () = self.turns(&mut node, &lifecycle) => {}
                () = self.watch_deadlines() => {}
                () = patience => {}
            }
        }
        telemetry::service(self.store(), Self::NAME, None, "stopping");
        self.leave(&mut node).await;
        Ok(())
    }
}

/// Nothing is owned once the service has ended, in whatever way.
struct Ending<'a>(&'a watch::Sender<Owned>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.send_replace(Owned::none());
    }
}

/// One run of the service.
struct Node {
    group: LeaseGroup,
    /// The seat it was given, which may be lost since.
    seat: Option<u32>,
    /// Whether the members that were there before put databases into the same buckets.
    admitted: bool,
    /// How often somebody else was quicker to a seat.
    failures: u32,
}

impl Node {
    fn new(leases: &Leases, options: &AssignmentOptions) -> Self {
        let name = options.node.as_deref().unwrap_or(leases.owner());
        let name: String = name.chars().take(200).collect();
        // New for every run, and nobody else's, whatever the node is called.
        let owner = format!("{name}/{:016x}", Uuid::new_v4().as_u128() as u64);
        let group = LeaseGroup::new(std::sync::Arc::clone(leases.store()), owner, options.lease);
        Self { group, seat: None, admitted: false, failures: 0 }
    }
}

impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assignment")
            .field("store", &self.store())
            .field("fleet", &self.options.fleet)
            .field("owned", &*self.owned.borrow())
            .finish_non_exhaustive()
    }
}
