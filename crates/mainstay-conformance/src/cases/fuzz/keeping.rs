//! The model's cancellations, requeues and retention.

use std::collections::BTreeSet;

use mainstay_core::outbox::{MessageFilter, Retention};
use mainstay_core::queue::{FailureReason, Status};

use super::model::{Check, Model, TICK, check, told};
use crate::world::World;

impl Model {
    pub(super) fn numbered(&self, number: usize) -> Option<usize> {
        let item = self.items.get(number % self.items.len().max(1))?;
        self.newest(item.id)
    }

    pub(super) async fn cancel(&mut self, world: &World<'_>, number: usize) -> Check {
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

    pub(super) async fn requeue(&mut self, world: &World<'_>, number: usize) -> Check {
        let Some(index) = self.numbered(number) else { return Ok(()) };
        let id = self.items[index].id;
        let requeued = world.outbox.requeue(&[id]).await.map_err(told)?;
        let failed = self.is_failed(index);
        check!(requeued == if failed { vec![id] } else { vec![] }, "requeued {requeued:?}");
        if failed {
            self.revive(index);
        }
        self.compare(world, index).await
    }

    pub(super) async fn requeue_where(&mut self, world: &World<'_>, cancelled: bool, limit: u32) -> Check {
        let reason = cancelled.then_some(FailureReason::Cancelled);
        let matching: Vec<usize> = (0..self.items.len())
            .filter(|index| self.is_failed(*index) && (!cancelled || self.items[*index].reason == reason))
            .collect();
        let filter = reason.map_or(MessageFilter::all(), |reason| MessageFilter::all().reason(reason));
        let requeued = world.outbox.requeue_where(&filter, limit).await.map_err(told)?;
        let expected = matching.len().min(limit as usize);
        check!(requeued.len() == expected, "requeued {requeued:?}, {expected} of {matching:?}");
        let (taken, left): (Vec<usize>, Vec<usize>) =
            matching.into_iter().partition(|index| requeued.contains(&self.items[*index].id));
        check!(taken.len() == expected, "requeued {requeued:?}, which did not match or came twice");
        let settled = |index: &usize| self.items[*index].settled;
        let (newest, oldest) = (taken.iter().map(settled).max(), left.iter().map(settled).min());
        check!(oldest.is_none() || newest <= oldest, "left {left:?}, which failed before some of {taken:?}");
        for index in taken {
            self.revive(index);
            self.compare(world, index).await?;
        }
        Ok(())
    }

    pub(super) async fn purge(
        &mut self,
        world: &World<'_>,
        done: u32,
        failed: Option<u32>,
        batch: u32,
    ) -> Check {
        // Half a tick less, so that the moments a run takes don't decide.
        let age = |ticks: u32| TICK * ticks - TICK / 2;
        let retention = Retention::default().done(Some(age(done))).failed(failed.map(age)).batch(batch);
        let purged = world.outbox.purge(&retention).await.map_err(told)?;
        let mut doomed = BTreeSet::new();
        for (index, item) in self.items.iter().enumerate().filter(|(_, item)| !item.purged) {
            let kept = match item.status {
                Status::Done => Some(done),
                Status::Failed => failed,
                Status::Ready | Status::InProgress => None,
            };
            if kept.is_some_and(|ticks| item.settled + u64::from(ticks) <= self.tick) {
                doomed.insert(index);
            }
        }
        check!(purged == doomed.len() as u64, "{purged} purged, not {doomed:?}");
        for index in doomed {
            // What it held stays held: retention is no decision about the rest of its key.
            self.items[index].purged = true;
            self.compare(world, index).await?;
        }
        Ok(())
    }

    fn is_failed(&self, index: usize) -> bool {
        self.items[index].status == Status::Failed && !self.items[index].purged
    }

    fn revive(&mut self, index: usize) {
        let (tick, item) = (self.tick, &mut self.items[index]);
        (item.status, item.reason, item.attempts, item.due) = (Status::Ready, None, 0, tick);
        item.expires = item.expires.filter(|expires| *expires > tick);
        if let Some(key) = item.key {
            self.held_keys.remove(&key);
        }
    }
}
