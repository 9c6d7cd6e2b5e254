//! The model's settles, renewals and reaps.

use std::collections::BTreeSet;

use mainstay_core::queue::{FailureReason, Outcome, Settled, Settlement, Status};
use mainstay_core::{OwnerToken, WorkItemId};

use super::model::{Check, Held, Model, TICK, check, told};
use super::step::End;
use crate::world::World;

impl Model {
    pub(super) fn picked(&self, number: usize) -> Option<Held> {
        // Counted from the newest, so that most of them are still held.
        (!self.claims.is_empty()).then(|| self.claims[self.claims.len() - 1 - number % self.claims.len()])
    }

    pub(super) fn holds(&self, owner: OwnerToken, claim: &Held) -> bool {
        let item = &self.items[claim.item];
        let same = item.owner == Some(owner) && item.generation == claim.handle.generation();
        item.status == Status::InProgress && same
    }

    pub(super) async fn settle(
        &mut self,
        world: &World<'_>,
        owner: Option<usize>,
        ends: &[(usize, End)],
    ) -> Check {
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

    pub(super) fn end(&mut self, index: usize, end: End) {
        let tick = self.tick;
        let item = &mut self.items[index];
        item.owner = None;
        match end {
            End::Ack => (item.status, item.settled) = (Status::Done, tick),
            End::Fail => self.fail(index, FailureReason::Handler),
            End::Abandon { delay } => (item.status, item.due) = (Status::Ready, tick + u64::from(delay)),
            End::Release { delay } => {
                (item.status, item.due) = (Status::Ready, tick + u64::from(delay.unwrap_or(0)));
                item.attempts -= 1;
            }
        }
    }

    pub(super) async fn renew(
        &mut self,
        world: &World<'_>,
        owner: Option<usize>,
        number: usize,
        lease: u32,
    ) -> Check {
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

    pub(super) async fn reap(&mut self, world: &World<'_>) -> Check {
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
