//! What the outbox should do, in a few lines without a database.
//!
//! Time is counted in ticks of ten minutes, which only [`Step::Advance`] moves: the real time a run takes is far below
//! one, so it never decides anything. Where the contract leaves a choice (which of the claimable messages a small
//! batch takes), the model follows what the database did after checking that it was allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mainstay_core::outbox::{Message, OnFailure, OutboxMessage};
use mainstay_core::queue::{ClaimHandle, ClaimRequest, FailureReason, Outcome, Settled, Settlement, Status};
use mainstay_core::{OwnerToken, WorkItemId};

use super::step::{End, KEYS, New, OWNERS, Step};
use crate::world::{TOPIC, World};

const TICK: Duration = Duration::from_secs(600);

/// Deliveries a message may have.
const LIMIT: u32 = 3;

type Check = Result<(), String>;

macro_rules! check {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

#[derive(Debug, Clone)]
struct Item {
    id: WorkItemId,
    key: Option<u8>,
    hold: bool,
    status: Status,
    reason: Option<FailureReason>,
    attempts: u32,
    generation: i64,
    owner: Option<OwnerToken>,
    due: u64,
    locked: u64,
    expires: Option<u64>,
}

impl Item {
    fn is_open(&self) -> bool {
        !self.status.is_terminal()
    }
}

/// A claim that somebody once got. It is kept for ever, to be used when it is long stale.
#[derive(Debug, Clone, Copy)]
struct Held {
    item: usize,
    owner: OwnerToken,
    handle: ClaimHandle,
}

/// The whole state. Items are in the order they were enqueued.
pub(super) struct Model {
    tick: u64,
    items: Vec<Item>,
    claims: Vec<Held>,
    held_keys: BTreeSet<u8>,
    owners: Vec<OwnerToken>,
}

impl Default for Model {
    fn default() -> Self {
        let owners = (0..OWNERS).map(|_| OwnerToken::new()).collect();
        Self { tick: 0, items: Vec::new(), claims: Vec::new(), held_keys: BTreeSet::new(), owners }
    }
}

fn key_name(key: u8) -> String {
    format!("key {key}")
}

fn told(error: mainstay_core::Error) -> String {
    format!("the database refused: {error:?}")
}

impl Model {
    pub(super) async fn play(&mut self, world: &World<'_>, step: &Step) -> Check {
        match step {
            Step::Enqueue(new) => self.enqueue(world, new).await,
            Step::Claim { owner, batch, lease } => {
                self.claim(world, self.owners[*owner], *batch, *lease).await.map(drop)
            }
            Step::Settle { owner, claims } => self.settle(world, *owner, claims).await,
            Step::Renew { owner, claim, lease } => self.renew(world, *owner, *claim, *lease).await,
            Step::Reap => self.reap(world).await,
            Step::Cancel(number) => self.cancel(world, *number).await,
            Step::Requeue(number) => self.requeue(world, *number).await,
            Step::ReleaseKey(key) => {
                let released = world.outbox.release_key(&key_name(*key)).await.map_err(told)?;
                check!(released == self.held_keys.remove(key), "released {released}");
                Ok(())
            }
            Step::Advance(ticks) => {
                world.advance(TICK * *ticks).await;
                self.tick += u64::from(*ticks);
                Ok(())
            }
        }
    }

    /// At most one message of a key is in the hands of a worker whose lease still holds.
    pub(super) fn check_lanes(&self) -> Check {
        for key in 0..KEYS {
            let running: Vec<_> =
                self.items.iter().filter(|item| item.key == Some(key) && self.is_live(item)).collect();
            check!(running.len() <= 1, "two of {} run at once: {running:?}", key_name(key));
        }
        Ok(())
    }

    fn is_live(&self, item: &Item) -> bool {
        item.status == Status::InProgress && item.locked > self.tick
    }

    async fn enqueue(&mut self, world: &World<'_>, new: &New) -> Check {
        let mut message = Message::new(TOPIC, "").priority(new.priority);
        if let Some(key) = new.key {
            let on_failure = if new.hold { OnFailure::Hold } else { OnFailure::Skip };
            message = message.ordering_key(key_name(key)).on_failure(on_failure);
        }
        if let Some(ticks) = new.due {
            message = message.due_in(TICK * ticks);
        }
        if let Some(ticks) = new.expires {
            message = message.expires_in(TICK * ticks);
        }
        let enqueued = world.outbox.enqueue(message).await.map_err(told)?;
        check!(enqueued.added, "it was not added");
        self.items.push(Item {
            id: enqueued.work_item,
            key: new.key,
            hold: new.hold && new.key.is_some(),
            status: Status::Ready,
            reason: None,
            attempts: 0,
            generation: 0,
            owner: None,
            due: self.tick + u64::from(new.due.unwrap_or(0)),
            locked: 0,
            expires: new.expires.map(|ticks| self.tick + u64::from(ticks)),
        });
        self.compare(world, self.items.len() - 1).await
    }

    // ---- claiming

    /// Whether a claim may look at the item: due, free, and the first of its key.
    fn has_its_turn(&self, index: usize) -> bool {
        let item = &self.items[index];
        let free = match item.status {
            Status::Ready => true,
            Status::InProgress => item.locked <= self.tick,
            Status::Done | Status::Failed => false,
        };
        free && item.due <= self.tick && self.is_first(index)
    }

    fn is_first(&self, index: usize) -> bool {
        let Some(key) = self.items[index].key else { return true };
        let lane = || {
            self.items.iter().enumerate().filter(move |(_, other)| other.key == Some(key) && other.is_open())
        };
        !self.held_keys.contains(&key)
            && lane().all(|(other, _)| other >= index)
            && lane().all(|(other, item)| other == index || !self.is_live(item))
    }

    /// Why a claim would fail it instead of handing it out.
    fn verdict(&self, index: usize) -> Option<FailureReason> {
        let item = &self.items[index];
        if item.expires.is_some_and(|expires| expires <= self.tick) {
            return Some(FailureReason::Expired);
        }
        (item.attempts >= LIMIT).then_some(FailureReason::DeliveryLimit)
    }

    async fn claim(
        &mut self,
        world: &World<'_>,
        owner: OwnerToken,
        batch: u32,
        lease: u32,
    ) -> Result<Vec<Held>, String> {
        let turn: Vec<usize> = (0..self.items.len()).filter(|index| self.has_its_turn(*index)).collect();
        let (rejectable, claimable): (Vec<usize>, Vec<usize>) =
            turn.into_iter().partition(|index| self.verdict(*index).is_some());
        let request = ClaimRequest::new(owner).batch(batch).lease(TICK * lease).delivery_limit(LIMIT);
        let answer = world.outbox.claim(&request).await.map_err(told)?;
        let index_of: BTreeMap<WorkItemId, usize> =
            self.items.iter().enumerate().map(|(index, item)| (item.id, index)).collect();
        let known = |id: &WorkItemId| index_of.get(id).copied().ok_or(format!("{id} is nobody's"));

        // Failing one may bring the next of its key up within the same claim, in whatever order.
        let mut rejected = Vec::new();
        for one in &answer.rejected {
            rejected.push((known(&one.id)?, one.reason));
        }
        let mut seen: BTreeSet<usize> = rejected.iter().map(|(index, _)| *index).collect();
        check!(seen.len() == rejected.len(), "one was rejected twice");
        while !rejected.is_empty() {
            let next = rejected.iter().position(|(index, reason)| {
                self.has_its_turn(*index) && self.verdict(*index) == Some(*reason)
            });
            let Some(next) = next else { return Err(format!("rejected without cause: {rejected:?}")) };
            let (index, reason) = rejected.remove(next);
            self.fail(index, reason);
        }

        let mut taken = Vec::new();
        check!(answer.items.len() <= batch as usize, "{} claimed of at most {batch}", answer.items.len());
        for claimed in &answer.items {
            let index = known(&claimed.id())?;
            check!(seen.insert(index), "{} was claimed twice in one call", claimed.id());
            check!(
                self.has_its_turn(index) && self.verdict(index).is_none(),
                "claimed out of turn: {:?}",
                self.items[index]
            );
            let (tick, item) = (self.tick, &mut self.items[index]);
            check!(claimed.handle.generation() > item.generation, "the generation did not grow");
            check!(
                claimed.attempt == item.attempts + 1,
                "attempt {} after {}",
                claimed.attempt,
                item.attempts
            );
            item.status = Status::InProgress;
            item.owner = Some(owner);
            item.generation = claimed.handle.generation();
            item.attempts += 1;
            item.locked = tick + u64::from(lease);
            taken.push(Held { item: index, owner, handle: claimed.handle });
        }
        // Nothing that could be had is left while there is room.
        check!(
            taken.len() >= claimable.len().min(batch as usize),
            "{} claimed of {}",
            taken.len(),
            claimable.len()
        );
        if taken.len() < batch as usize {
            let left: Vec<_> =
                rejectable.iter().chain(&claimable).filter(|index| !seen.contains(*index)).collect();
            check!(left.is_empty(), "left although there was room: {left:?}");
        }
        for index in seen {
            self.compare(world, index).await?;
        }
        self.notice_fenced(world).await?;
        self.claims.extend(&taken);
        Ok(taken)
    }

    /// A lapsed claim of a message that has to wait for its key may have been ended by a claim that came past: its worker
    /// is gone, and must not come back beside another one of the key.
    async fn notice_fenced(&mut self, world: &World<'_>) -> Check {
        for index in 0..self.items.len() {
            let item = &self.items[index];
            if item.key.is_none()
                || item.status != Status::InProgress
                || self.is_live(item)
                || self.is_first(index)
            {
                continue;
            }
            let row = world.row(item.id).await;
            if row.status == Status::Ready {
                let item = &mut self.items[index];
                (item.status, item.owner) = (Status::Ready, None);
            }
            self.compare(world, index).await?;
        }
        Ok(())
    }

    fn fail(&mut self, index: usize, reason: FailureReason) {
        let item = &mut self.items[index];
        (item.status, item.reason, item.owner) = (Status::Failed, Some(reason), None);
        // Whoever cancels a message wants the rest of its key to go on.
        if let Some(key) = item.key.filter(|_| item.hold && reason != FailureReason::Cancelled) {
            self.held_keys.insert(key);
        }
    }

    // ---- settling

    fn picked(&self, number: usize) -> Option<Held> {
        // Counted from the newest, so that most of them are still held.
        (!self.claims.is_empty()).then(|| self.claims[self.claims.len() - 1 - number % self.claims.len()])
    }

    fn holds(&self, owner: OwnerToken, claim: &Held) -> bool {
        let item = &self.items[claim.item];
        let same = item.owner == Some(owner) && item.generation == claim.handle.generation();
        item.status == Status::InProgress && same
    }

    async fn settle(&mut self, world: &World<'_>, owner: Option<usize>, ends: &[(usize, End)]) -> Check {
        let asked: Vec<(Held, End)> =
            ends.iter().filter_map(|(number, end)| Some((self.picked(*number)?, *end))).collect();
        let Some((first, _)) = asked.first() else { return Ok(()) };
        let owner = owner.map_or(first.owner, |owner| self.owners[owner]);
        let settlements: Vec<Settlement> = asked
            .iter()
            .map(|(claim, end)| Settlement { claim: claim.handle, outcome: outcome(*end) })
            .collect();
        let mut changed = BTreeSet::new();
        for (claim, end) in &asked {
            // Of a claim that comes twice the first counts; it no longer holds when the second is looked at.
            if self.holds(owner, claim) {
                changed.insert(claim.handle.id());
                self.end(claim.item, *end);
            }
        }
        let settled = world.outbox.settle(owner, &settlements).await.map_err(told)?;
        check_settled(&settled, &changed, asked.iter().map(|(claim, _)| claim.handle.id()))?;
        for (claim, _) in asked {
            self.compare(world, claim.item).await?;
        }
        Ok(())
    }

    fn end(&mut self, index: usize, end: End) {
        let tick = self.tick;
        let item = &mut self.items[index];
        item.owner = None;
        match end {
            End::Ack => item.status = Status::Done,
            End::Fail => self.fail(index, FailureReason::Handler),
            End::Abandon { delay } => (item.status, item.due) = (Status::Ready, tick + u64::from(delay)),
            End::Release { delay } => {
                (item.status, item.due) = (Status::Ready, tick + u64::from(delay.unwrap_or(0)));
                item.attempts -= 1;
            }
        }
    }

    async fn renew(&mut self, world: &World<'_>, owner: Option<usize>, number: usize, lease: u32) -> Check {
        let Some(claim) = self.picked(number) else { return Ok(()) };
        let owner = owner.map_or(claim.owner, |owner| self.owners[owner]);
        let id = claim.handle.id();
        let renewed = world.outbox.renew(owner, &[claim.handle], TICK * lease).await.map_err(told)?;
        let holds = self.holds(owner, &claim);
        // A lapsed claim may be refused: with an ordering key another one may have been started on the strength of that.
        let lapsed = self.items[claim.item].locked <= self.tick;
        let may_refuse = lapsed && self.items[claim.item].key.is_some();
        let refused = holds && may_refuse && renewed.changed.is_empty();
        if holds && !refused {
            self.items[claim.item].locked = self.tick + u64::from(lease);
        }
        let changed = if holds && !refused { BTreeSet::from([id]) } else { BTreeSet::new() };
        check_settled(&renewed, &changed, [id])?;
        self.compare(world, claim.item).await
    }

    // ---- the rest

    async fn reap(&mut self, world: &World<'_>) -> Check {
        let lapsed: Vec<usize> = (0..self.items.len())
            .filter(|index| {
                self.items[*index].status == Status::InProgress && !self.is_live(&self.items[*index])
            })
            .collect();
        let reaped = world.outbox.reap_expired().await.map_err(told)?;
        check!(reaped == lapsed.len() as u64, "{reaped} reaped of {}", lapsed.len());
        for index in lapsed {
            (self.items[index].status, self.items[index].owner) = (Status::Ready, None);
            self.compare(world, index).await?;
        }
        Ok(())
    }

    fn numbered(&self, number: usize) -> Option<usize> {
        (!self.items.is_empty()).then(|| number % self.items.len())
    }

    async fn cancel(&mut self, world: &World<'_>, number: usize) -> Check {
        let Some(index) = self.numbered(number) else { return Ok(()) };
        let id = self.items[index].id;
        let cancelled = world.outbox.cancel(&[id]).await.map_err(told)?;
        let ready = self.items[index].status == Status::Ready;
        check!(cancelled == if ready { vec![id] } else { vec![] }, "cancelled {cancelled:?}");
        if ready {
            self.fail(index, FailureReason::Cancelled);
        }
        self.compare(world, index).await
    }

    async fn requeue(&mut self, world: &World<'_>, number: usize) -> Check {
        let Some(index) = self.numbered(number) else { return Ok(()) };
        let (id, tick) = (self.items[index].id, self.tick);
        let requeued = world.outbox.requeue(&[id]).await.map_err(told)?;
        let failed = self.items[index].status == Status::Failed;
        check!(requeued == if failed { vec![id] } else { vec![] }, "requeued {requeued:?}");
        if failed {
            let item = &mut self.items[index];
            (item.status, item.reason, item.attempts, item.due) = (Status::Ready, None, 0, tick);
            item.expires = item.expires.filter(|expires| *expires > tick);
            if let Some(key) = item.key {
                self.held_keys.remove(&key);
            }
        }
        self.compare(world, index).await
    }

    // ---- comparing

    async fn compare(&self, world: &World<'_>, index: usize) -> Check {
        let item = &self.items[index];
        let row = world.row(item.id).await;
        let expected = (item.status, item.reason, item.attempts, item.generation, item.owner);
        let found = (row.status, row.reason, row.attempts, row.generation, row.owner);
        check!(found == expected, "{} should be {expected:?} and is {found:?}", item.id);
        check!(
            row.processed_at.is_some() == item.status.is_terminal(),
            "processed at {:?}",
            row.processed_at
        );
        check!(
            row.locked_until.is_some() == (item.status == Status::InProgress),
            "locked {:?}",
            row.locked_until
        );
        self.compare_times(world, item, &row).await
    }

    async fn compare_times(&self, world: &World<'_>, item: &Item, row: &OutboxMessage) -> Check {
        let now = world.now().await;
        if item.status == Status::Ready {
            check!((row.next_attempt_at <= now) == (item.due <= self.tick), "due at {}", row.next_attempt_at);
        }
        if let (Status::InProgress, Some(locked)) = (item.status, row.locked_until) {
            check!((locked <= now) == (item.locked <= self.tick), "locked until {locked} at {now}");
        }
        Ok(())
    }

    /// Every row, and the counts.
    pub(super) async fn compare_all(&self, world: &World<'_>) -> Check {
        for index in 0..self.items.len() {
            self.compare(world, index).await?;
        }
        let stats = world.outbox.stats().await.map_err(told)?;
        let count =
            |wanted: &dyn Fn(&Item) -> bool| self.items.iter().filter(|item| wanted(item)).count() as u64;
        let expected = [
            count(&|item| item.status == Status::Ready && item.due <= self.tick),
            count(&|item| item.status == Status::Ready && item.due > self.tick),
            count(&|item| item.status == Status::InProgress),
            count(&|item| item.status == Status::InProgress && item.locked <= self.tick),
            count(&|item| item.status == Status::Done),
            count(&|item| item.status == Status::Failed),
            self.held_keys.len() as u64,
        ];
        let found = [
            stats.ready,
            stats.scheduled,
            stats.in_progress,
            stats.lapsed,
            stats.done,
            stats.failed,
            stats.held_keys,
        ];
        check!(found == expected, "the counts should be {expected:?} and are {found:?}");
        Ok(())
    }

    /// Nothing is stuck: with time and workers, every message comes to an end.
    pub(super) async fn drain(&mut self, world: &World<'_>) -> Check {
        for key in 0..KEYS {
            self.play(world, &Step::ReleaseKey(key)).await?;
        }
        for _ in 0..self.items.len() + 2 {
            if self.items.iter().all(|item| item.status.is_terminal()) {
                break;
            }
            self.play(world, &Step::Advance(10)).await?;
            let owner = self.owners[0];
            let claimed = self.claim(world, owner, 50, 1).await?;
            let claims: Vec<ClaimHandle> = claimed.iter().map(|claim| claim.handle).collect();
            for claim in &claimed {
                self.end(claim.item, End::Ack);
            }
            world.outbox.ack(owner, &claims).await.map_err(told)?;
            // A message that failed on the way may hold its key.
            for key in std::mem::take(&mut self.held_keys) {
                world.outbox.release_key(&key_name(key)).await.map_err(told)?;
            }
        }
        let stuck: Vec<_> = self.items.iter().filter(|item| item.is_open()).collect();
        check!(stuck.is_empty(), "these never come to an end: {stuck:?}");
        self.compare_all(world).await
    }
}

fn outcome(end: End) -> Outcome {
    match end {
        End::Ack => Outcome::Ack,
        End::Abandon { delay } => Outcome::Abandon { delay: Some(TICK * delay), error: None },
        End::Release { delay } => Outcome::Release { delay: delay.map(|ticks| TICK * ticks), error: None },
        End::Fail => Outcome::Fail { reason: FailureReason::Handler, error: None },
    }
}

fn check_settled(
    settled: &Settled,
    changed: &BTreeSet<WorkItemId>,
    asked: impl IntoIterator<Item = WorkItemId>,
) -> Check {
    let stale: BTreeSet<WorkItemId> = asked.into_iter().filter(|id| !changed.contains(id)).collect();
    let as_set = |ids: &[WorkItemId]| ids.iter().copied().collect::<BTreeSet<_>>();
    let once = settled.changed.len() == changed.len() && settled.stale.len() == stale.len();
    let right = as_set(&settled.changed) == *changed && as_set(&settled.stale) == stale;
    check!(once && right, "settled {settled:?}, expected {changed:?} and {stale:?}");
    Ok(())
}
