//! The model's claims: whose turn it is, and whether the database took the right ones.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_core::queue::{ClaimRequest, FailureReason, Status};
use mainstay_core::{OwnerToken, WorkItemId};

use super::model::{Check, Held, LIMIT, Model, TICK, check, told};
use crate::world::World;

impl Model {
    /// Whether a claim may look at the item: due, free, and the first of its key.
    pub(super) fn has_its_turn(&self, index: usize) -> bool {
        let item = &self.items[index];
        let free = match item.status {
            Status::Ready => true,
            Status::InProgress => item.locked <= self.tick,
            Status::Done | Status::Failed => false,
        };
        free && item.due <= self.tick && self.is_first(index)
    }

    pub(super) fn is_first(&self, index: usize) -> bool {
        let Some(key) = self.items[index].key else { return true };
        let lane = || {
            self.items.iter().enumerate().filter(move |(_, other)| other.key == Some(key) && other.is_open())
        };
        !self.held_keys.contains(&key)
            && lane().all(|(other, _)| other >= index)
            && lane().all(|(other, item)| other == index || !self.is_live(item))
    }

    /// Why a claim would fail it instead of handing it out.
    pub(super) fn verdict(&self, index: usize) -> Option<FailureReason> {
        let item = &self.items[index];
        if item.expires.is_some_and(|expires| expires <= self.tick) {
            return Some(FailureReason::Expired);
        }
        (item.attempts >= LIMIT).then_some(FailureReason::DeliveryLimit)
    }

    pub(super) async fn claim(
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
                self.claims.iter().all(|held| held.handle != claimed.handle),
                "the generation came before"
            );
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
    pub(super) async fn notice_fenced(&mut self, world: &World<'_>) -> Check {
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

    pub(super) fn fail(&mut self, index: usize, reason: FailureReason) {
        let (tick, item) = (self.tick, &mut self.items[index]);
        (item.status, item.reason, item.owner, item.settled) = (Status::Failed, Some(reason), None, tick);
        // Whoever cancels a message wants the rest of its key to go on.
        if let Some(key) = item.key.filter(|_| item.hold && reason != FailureReason::Cancelled) {
            self.held_keys.insert(key);
        }
    }
}
