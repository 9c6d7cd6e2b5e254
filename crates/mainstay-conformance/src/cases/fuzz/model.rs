//! What the outbox should do, in a few lines without a database.
//!
//! Time is counted in ticks of ten minutes, which only [`Step::Advance`] moves: the real time a run takes is far below
//! one, so it never decides anything. Where the contract leaves a choice (which of the claimable messages a small
//! batch takes), the model follows what the database did after checking that it was allowed.

use std::collections::BTreeSet;
use std::time::Duration;

use mainstay_core::outbox::OutboxMessage;
use mainstay_core::queue::{ClaimHandle, FailureReason, Status};
use mainstay_core::{OwnerToken, WorkItemId};

use super::step::{End, KEYS, OWNERS, Step};
use crate::world::World;

pub(super) const TICK: Duration = Duration::from_secs(600);

/// Deliveries a message may have.
pub(super) const LIMIT: u32 = 3;

pub(super) type Check = Result<(), String>;

macro_rules! check {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}
pub(super) use check;

#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) id: WorkItemId,
    pub(super) key: Option<u8>,
    pub(super) hold: bool,
    pub(super) status: Status,
    pub(super) reason: Option<FailureReason>,
    pub(super) attempts: u32,
    pub(super) generation: i64,
    pub(super) owner: Option<OwnerToken>,
    pub(super) due: u64,
    pub(super) locked: u64,
    pub(super) expires: Option<u64>,
    pub(super) once: Option<u8>,
    /// When it ended; only of those that have.
    pub(super) settled: u64,
    /// Deleted by retention. It stays here for claims and ids that are long stale.
    pub(super) purged: bool,
}

impl Item {
    pub(super) fn is_open(&self) -> bool {
        !self.status.is_terminal()
    }
}

/// A claim that somebody once got. It is kept for ever, to be used when it is long stale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) item: usize,
    pub(super) owner: OwnerToken,
    pub(super) handle: ClaimHandle,
}

/// The whole state. Items are in the order they were enqueued.
pub(super) struct Model {
    pub(super) tick: u64,
    pub(super) items: Vec<Item>,
    pub(super) claims: Vec<Held>,
    pub(super) held_keys: BTreeSet<u8>,
    pub(super) owners: Vec<OwnerToken>,
}

impl Default for Model {
    fn default() -> Self {
        let owners = (0..OWNERS).map(|_| OwnerToken::new()).collect();
        Self { tick: 0, items: Vec::new(), claims: Vec::new(), held_keys: BTreeSet::new(), owners }
    }
}

pub(super) fn key_name(key: u8) -> String {
    format!("key {key}")
}

pub(super) fn told(error: mainstay_core::Error) -> String {
    format!("the database refused: {error:?}")
}

impl Model {
    pub(super) async fn play(&mut self, world: &World<'_>, step: &Step) -> Check {
        match step {
            Step::Enqueue(new) => self.enqueue(world, new).await,
            Step::EnqueueMany(many) => self.enqueue_many(world, many).await,
            Step::EnqueueAgain(number, new) => self.enqueue_again(world, *number, new).await,
            Step::Claim { owner, batch, lease } => {
                self.claim(world, self.owners[*owner], *batch, *lease).await.map(drop)
            }
            Step::Settle { owner, claims } => self.settle(world, *owner, claims).await,
            Step::Renew { owner, claim, lease } => self.renew(world, *owner, *claim, *lease).await,
            Step::Reap => self.reap(world).await,
            Step::Cancel(number) => self.cancel(world, *number).await,
            Step::Requeue(number) => self.requeue(world, *number).await,
            Step::RequeueWhere { cancelled, limit } => self.requeue_where(world, *cancelled, *limit).await,
            Step::Purge { done, failed, batch } => self.purge(world, *done, *failed, *batch).await,
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

    /// The last item with this id: retention may have deleted others.
    pub(super) fn newest(&self, id: WorkItemId) -> Option<usize> {
        self.items.iter().rposition(|item| item.id == id)
    }

    pub(super) fn is_live(&self, item: &Item) -> bool {
        item.status == Status::InProgress && item.locked > self.tick
    }

    pub(super) async fn compare(&self, world: &World<'_>, index: usize) -> Check {
        let item = &self.items[index];
        if self.newest(item.id) != Some(index) {
            check!(item.purged, "the id of {item:?} was used again");
            return Ok(());
        }
        let found = world.outbox.get(item.id).await.map_err(told)?;
        check!(found.is_some() != item.purged, "{} is there: {}", item.id, found.is_some());
        let Some(row) = found else { return Ok(()) };
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
        let count = |wanted: &dyn Fn(&Item) -> bool| {
            self.items.iter().filter(|item| !item.purged && wanted(item)).count() as u64
        };
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
