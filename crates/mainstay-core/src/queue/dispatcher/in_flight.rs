//! All claims this dispatcher holds, from the claim to the settle. Their times are moments of the [`clock`] of leases.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock;
use crate::hash::{Map, Set};
use crate::id::WorkItemId;
use crate::queue::{ClaimHandle, Claimed, Context, Registered, Settlement};
use crate::telemetry;
use crate::trace::TraceContext;

/// Where a claim stands.
#[derive(Debug)]
pub(super) enum Stage {
    /// Waiting for a free handler.
    Waiting(Box<Claimed>),
    /// Its handler is running.
    Running(Context),
    /// Its handler has ended, or never began; it is being settled. The context it ran in, if anybody wants to know.
    Ended(Option<Box<TraceContext>>),
}

/// A claim this dispatcher holds.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) stage: Stage,
    pub(super) topic: Arc<str>,
    /// What handles it.
    pub(super) registered: Arc<Registered>,
    pub(super) keyed: bool,
    /// When the request that claimed it was sent. No later than the database's own `claimed_at`.
    pub(super) asked_at: Instant,
    /// When to renew it.
    pub(super) renew_at: Instant,
    /// From when on the database may have given it to somebody else.
    pub(super) deadline: Instant,
    /// Whether the claim is known, or must be assumed, to be lost.
    pub(super) lost: bool,
}

/// What a handler is to begin with.
pub(super) struct Next {
    pub(super) claimed: Box<Claimed>,
    pub(super) topic: Arc<str>,
    pub(super) registered: Arc<Registered>,
    pub(super) asked_at: Instant,
}

/// What the topics of one handler have of the claims.
#[derive(Debug, Default)]
struct Share {
    held: usize,
    running: usize,
}

/// When claims made or renewed by a request sent at `asked_at` are to be renewed, and when they are gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseTimes {
    lease: Duration,
    renew_at: f64,
}

impl LeaseTimes {
    pub(super) fn new(lease: Duration, renew_at: f64) -> Self {
        Self { lease, renew_at }
    }

    fn renewal(&self, asked_at: Instant) -> Instant {
        asked_at + self.lease.mul_f64(self.renew_at)
    }

    /// A little before the lease ends, so that the handler is gone when another worker may start.
    fn deadline(&self, asked_at: Instant) -> Instant {
        let margin = (self.lease / 10).min(Duration::from_secs(1));
        asked_at + self.lease - margin
    }
}

/// The table of claims. A handle is a key: the same row claimed twice is two entries.
#[derive(Debug)]
pub(super) struct InFlight {
    entries: Map<ClaimHandle, Entry>,
    waiting: VecDeque<ClaimHandle>,
    running: Set<WorkItemId>,
    /// Of lanes whose concurrency is bounded. Nobody asks for the others.
    by_lane: Map<Arc<str>, Share>,
    times: LeaseTimes,
    next_renewal: Option<Instant>,
    next_deadline: Option<Instant>,
}

impl InFlight {
    pub(super) fn new(times: LeaseTimes) -> Self {
        Self {
            entries: Map::default(),
            waiting: VecDeque::new(),
            running: Set::default(),
            by_lane: Map::default(),
            times,
            next_renewal: None,
            next_deadline: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many claims of a lane are held, if it is bounded.
    pub(super) fn of_lane(&self, lane: &str) -> usize {
        self.by_lane.get(lane).map_or(0, |share| share.held)
    }

    /// Whether it may run once more.
    fn may_run(&self, registered: &Registered) -> bool {
        let running = || self.by_lane.get(&registered.lane).map_or(0, |share| share.running);
        registered.policy.concurrency.is_none_or(|bound| running() < bound)
    }

    /// The next moment at which [`Self::due_renewals`] may have something.
    pub(super) fn next_renewal(&self) -> Option<Instant> {
        self.next_renewal
    }

    /// The next moment at which [`Self::lapsed`] may have something.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.next_deadline
    }

    /// Takes in a claim of this topic that was asked for at `asked_at`, and what handles it.
    pub(super) fn add(
        &mut self,
        claimed: Claimed,
        topic: Arc<str>,
        registered: Arc<Registered>,
        asked_at: Instant,
    ) {
        let handle = claimed.handle;
        let (renew_at, deadline) = (self.times.renewal(asked_at), self.times.deadline(asked_at));
        share_of(&mut self.by_lane, &registered, |share| share.held += 1);
        let entry = Entry {
            topic,
            registered,
            keyed: claimed.ordering_key.is_some(),
            stage: Stage::Waiting(Box::new(claimed)),
            asked_at,
            renew_at,
            deadline,
            lost: false,
        };
        self.entries.insert(handle, entry);
        self.waiting.push_back(handle);
        self.note_times(renew_at, deadline);
    }

    fn note_times(&mut self, renew_at: Instant, deadline: Instant) {
        self.next_renewal = Some(self.next_renewal.map_or(renew_at, |next| next.min(renew_at)));
        self.next_deadline = Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
    }

    /// The next waiting claim that its topic lets run and whose row has no handler running from an earlier claim.
    pub(super) fn pop_waiting(&mut self) -> Option<Next> {
        let ready = |handle: &ClaimHandle| {
            let entry = self.entries.get(handle);
            entry.is_some_and(|entry| !self.running.contains(&handle.id()) && self.may_run(&entry.registered))
        };
        let at = self.waiting.iter().position(ready)?;
        let handle = self.waiting.remove(at)?;
        let entry = self.entries.get_mut(&handle)?;
        match std::mem::replace(&mut entry.stage, Stage::Ended(None)) {
            Stage::Waiting(claimed) => Some(Next {
                claimed,
                topic: Arc::clone(&entry.topic),
                registered: Arc::clone(&entry.registered),
                asked_at: entry.asked_at,
            }),
            other => {
                entry.stage = other;
                None
            }
        }
    }

    /// Notes that the handler of a claim runs.
    pub(super) fn set_running(&mut self, handle: ClaimHandle, context: Context) {
        self.running.insert(handle.id());
        if let Some(entry) = self.entries.get_mut(&handle) {
            share_of(&mut self.by_lane, &entry.registered, |share| share.running += 1);
            entry.stage = Stage::Running(context);
        }
    }

    /// Notes that the handler of a claim has ended. True when the claim was lost meanwhile.
    pub(super) fn set_ended(&mut self, handle: ClaimHandle) -> bool {
        self.running.remove(&handle.id());
        let Some(entry) = self.entries.get_mut(&handle) else { return true };
        let trace = match &entry.stage {
            Stage::Running(context) if telemetry::spans_wanted() => Some(Box::new(context.trace())),
            _ => None,
        };
        entry.stage = Stage::Ended(trace);
        share_of(&mut self.by_lane, &entry.registered, |share| {
            share.running = share.running.saturating_sub(1)
        });
        entry.lost
    }

    /// Forgets a claim. True when it had an ordering key, so that its next message may be claimable now.
    pub(super) fn remove(&mut self, handle: ClaimHandle) -> bool {
        let Some(entry) = self.entries.remove(&handle) else { return false };
        share_of(&mut self.by_lane, &entry.registered, |share| share.held = share.held.saturating_sub(1));
        if self.entries.is_empty() {
            (self.next_renewal, self.next_deadline) = (None, None);
        }
        entry.keyed
    }

    /// All waiting claims, taken out of the queue; they stay in the table until they are settled.
    pub(super) fn drain_waiting(&mut self) -> Vec<ClaimHandle> {
        let handles: Vec<_> = self.waiting.drain(..).collect();
        for handle in &handles {
            if let Some(entry) = self.entries.get_mut(handle) {
                entry.stage = Stage::Ended(None);
            }
        }
        handles
    }

    /// The contexts that the handlers of these claims ran in, if anybody wants to know.
    pub(super) fn handled(&self, settlements: &[Settlement]) -> Vec<TraceContext> {
        if !telemetry::spans_wanted() {
            return Vec::new();
        }
        let stages = settlements.iter().filter_map(|settlement| self.entries.get(&settlement.claim));
        let traces = stages.filter_map(|entry| match &entry.stage {
            Stage::Ended(trace) => trace.as_deref().copied(),
            _ => None,
        });
        traces.collect()
    }

    /// Drops every running handler.
    pub(super) fn cancel_running(&self) {
        for entry in self.entries.values() {
            if let Stage::Running(context) = &entry.stage {
                context.cancel();
            }
        }
    }

    /// Claims whose renewal is due, or nearly so: close ones share a request. Those that have ended are left out,
    /// because they are being settled.
    pub(super) fn due_renewals(&mut self, now: Instant) -> Vec<ClaimHandle> {
        if self.next_renewal.is_none_or(|next| next > now) {
            return Vec::new();
        }
        let horizon = now + self.times.lease / 20;
        let far = now + self.times.lease * 10;
        let mut due = Vec::new();
        for (handle, entry) in &mut self.entries {
            // One whose own transaction is acking has its row locked: a renewal would wait for it, and with it all others.
            let is_acking = matches!(&entry.stage, Stage::Running(context) if context.is_completing());
            if entry.renew_at <= horizon
                && !entry.lost
                && !is_acking
                && !matches!(entry.stage, Stage::Ended(_))
            {
                // Until the answer comes, which sets it anew.
                entry.renew_at = far;
                due.push(*handle);
            } else if is_acking {
                entry.renew_at = entry.renew_at.max(now + self.times.lease / 20);
            }
        }
        self.recompute();
        due
    }

    /// Notes that claims were renewed by a request sent at `asked_at`.
    pub(super) fn renewed(&mut self, ids: &[WorkItemId], asked: &[ClaimHandle], asked_at: Instant) {
        let changed: Set<_> = ids.iter().copied().collect();
        let (renew_at, deadline) = (self.times.renewal(asked_at), self.times.deadline(asked_at));
        for handle in asked.iter().filter(|handle| changed.contains(&handle.id())) {
            if let Some(entry) = self.entries.get_mut(handle) {
                (entry.renew_at, entry.deadline) = (renew_at, deadline);
            }
        }
        self.recompute();
    }

    /// Notes that a renewal did not go through and is to be tried again at `when`.
    pub(super) fn renew_again(&mut self, asked: &[ClaimHandle], when: Instant) {
        for handle in asked {
            if let Some(entry) = self.entries.get_mut(handle) {
                entry.renew_at = when;
            }
        }
        self.recompute();
    }

    /// Claims that may have lapsed by now. What becomes of them must be followed by [`Self::recompute`].
    pub(super) fn lapsed(&self, now: Instant) -> Vec<ClaimHandle> {
        let is_lapsed =
            |entry: &Entry| entry.deadline <= now && !entry.lost && !matches!(entry.stage, Stage::Ended(_));
        self.entries.iter().filter(|(_, entry)| is_lapsed(entry)).map(|(handle, _)| *handle).collect()
    }

    /// Gives a claim up as lost: a waiting one is forgotten, a running handler is dropped. Returns the topic when there
    /// was something to lose. A handler whose own transaction is committing the ack is left alone: the claim is gone
    /// because it is settled.
    pub(super) fn lose(&mut self, handle: ClaimHandle) -> Option<Arc<str>> {
        let entry = self.entries.get_mut(&handle)?;
        match &entry.stage {
            Stage::Ended(_) => return None,
            Stage::Running(context) if context.is_completing() => {
                // Looked at again a little later, should the commit get stuck.
                entry.deadline = clock::now().into_std() + self.times.lease / 10;
                return None;
            }
            Stage::Running(context) => {
                context.cancel();
                entry.lost = true;
                return Some(Arc::clone(&entry.topic));
            }
            Stage::Waiting(_) => {}
        }
        let topic = Arc::clone(&entry.topic);
        self.waiting.retain(|waiting| *waiting != handle);
        self.remove(handle);
        Some(topic)
    }

    /// Computes the next events anew after claims were renewed or lost.
    pub(super) fn recompute(&mut self) {
        let open =
            || self.entries.values().filter(|entry| !entry.lost && !matches!(entry.stage, Stage::Ended(_)));
        self.next_renewal = open().map(|entry| entry.renew_at).min();
        self.next_deadline = open().map(|entry| entry.deadline).min();
    }
}

/// Changes what a lane has, if that is counted.
fn share_of(by_lane: &mut Map<Arc<str>, Share>, registered: &Registered, change: impl FnOnce(&mut Share)) {
    if registered.policy.concurrency.is_some() {
        change(by_lane.entry(Arc::clone(&registered.lane)).or_default());
    }
}
