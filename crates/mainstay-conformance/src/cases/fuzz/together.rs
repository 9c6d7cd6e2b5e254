//! Operations at the same time. Each is atomic, so what they did must be what they would have done one after another, in
//! some order: every order is tried on a copy of the model, until one explains all answers and all rows.
//!
//! Only one thing is left open that the model asks of a claim alone: one that runs beside others may leave what it could
//! have had, because it goes around rows that others are just changing.

use futures_util::future::join_all;
use jiff::Timestamp;
use mainstay_core::outbox::{Enqueued, OutboxMessage};
use mainstay_core::queue::{ClaimBatch, ClaimRequest, Settled};
use mainstay_core::{OwnerToken, WorkItemId};

use super::claiming::claim_request;
use super::enqueueing::message;
use super::model::{Check, Held, Model, TICK, told};
use super::settling::settlements;
use super::step::{End, New, Step};
use crate::world::World;

/// An operation with what the database answered.
#[derive(Debug)]
enum Answered {
    Enqueue(New, Enqueued),
    Claim(ClaimRequest, ClaimBatch),
    Settle(OwnerToken, Vec<(Held, End)>, Settled),
    Renew(OwnerToken, Held, u32, Settled),
    Reap(u64),
    Cancel(usize, Vec<WorkItemId>),
    Requeue(usize, Vec<WorkItemId>),
    /// There was nothing to do it to.
    Nothing,
}

/// What the database holds after all of them.
struct Found {
    rows: Vec<OutboxMessage>,
    now: Timestamp,
}

impl Model {
    pub(super) async fn together(&mut self, world: &World<'_>, steps: &[Step]) -> Check {
        let answers = join_all(steps.iter().map(|step| self.ask(world, step))).await;
        let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
        let enqueued = answers.iter().filter_map(|answer| match answer {
            Answered::Enqueue(_, enqueued) => Some(enqueued.work_item),
            _ => None,
        });
        let mut rows = Vec::new();
        for id in self.items.iter().map(|item| item.id).chain(enqueued) {
            rows.extend(world.outbox.get(id).await.map_err(told)?);
        }
        let found = Found { rows, now: world.now().await };
        let mut reasons = Vec::new();
        let explained = self.explain(&answers.iter().collect::<Vec<_>>(), &found, &mut reasons);
        *self = explained.ok_or_else(|| format!("no order explains {answers:#?}: {reasons:#?}"))?;
        Ok(())
    }

    /// Does one operation, chosen by what was known before any of them.
    async fn ask(&self, world: &World<'_>, step: &Step) -> Result<Answered, String> {
        let outbox = &world.outbox;
        let owner_or = |owner: &Option<usize>, other: OwnerToken| owner.map_or(other, |at| self.owners[at]);
        Ok(match step {
            Step::Enqueue(new) => {
                Answered::Enqueue(new.clone(), outbox.enqueue(message(new)).await.map_err(told)?)
            }
            Step::Claim { owner, batch, lease } => {
                let request = claim_request(self.owners[*owner], *batch, *lease);
                let answer = outbox.claim(&request).await.map_err(told)?;
                Answered::Claim(request, answer)
            }
            Step::Settle { owner, claims } => {
                let asked = self.asked(claims);
                let Some((first, _)) = asked.first() else { return Ok(Answered::Nothing) };
                let owner = owner_or(owner, first.owner);
                let settled = outbox.settle(owner, &settlements(&asked)).await.map_err(told)?;
                Answered::Settle(owner, asked, settled)
            }
            Step::Renew { owner, claim, lease } => {
                let Some(claim) = self.picked(*claim) else { return Ok(Answered::Nothing) };
                let owner = owner_or(owner, claim.owner);
                let renewed = outbox.renew(owner, &[claim.handle], TICK * *lease).await.map_err(told)?;
                Answered::Renew(owner, claim, *lease, renewed)
            }
            Step::Reap => Answered::Reap(outbox.reap_expired().await.map_err(told)?),
            Step::Cancel(number) => {
                let Some(index) = self.numbered(*number) else { return Ok(Answered::Nothing) };
                Answered::Cancel(index, outbox.cancel(&[self.items[index].id]).await.map_err(told)?)
            }
            Step::Requeue(number) => {
                let Some(index) = self.numbered(*number) else { return Ok(Answered::Nothing) };
                Answered::Requeue(index, outbox.requeue(&[self.items[index].id]).await.map_err(told)?)
            }
            other => return Err(format!("{other:?} is for one at a time")),
        })
    }

    /// The model after these operations in the first order that explains everything. What spoke against the others is
    /// added to `reasons`.
    fn explain(&self, answers: &[&Answered], found: &Found, reasons: &mut Vec<String>) -> Option<Self> {
        if answers.is_empty() {
            return self.agrees(found).map_err(|reason| reasons.push(reason)).is_ok().then(|| self.clone());
        }
        for at in 0..answers.len() {
            let mut rest = answers.to_vec();
            let answer = rest.remove(at);
            let mut next = self.clone();
            if let Err(reason) = next.take_in_answer(answer).and_then(|()| next.check_lanes()) {
                reasons.push(reason);
                continue;
            }
            for next in next.perhaps_fenced(answer) {
                if let Some(explained) = next.explain(&rest, found, reasons) {
                    return Some(explained);
                }
            }
        }
        None
    }

    fn take_in_answer(&mut self, answer: &Answered) -> Check {
        match answer {
            Answered::Enqueue(new, enqueued) => self.add(new, *enqueued).map(drop),
            Answered::Claim(request, batch) => self.take_in(request, batch).map(drop),
            Answered::Settle(owner, asked, settled) => self.settled(*owner, asked, settled),
            Answered::Renew(owner, claim, lease, renewed) => self.renewed(*owner, claim, *lease, renewed),
            Answered::Reap(reaped) => self.reaped(*reaped).map(drop),
            Answered::Cancel(index, ids) => self.cancelled(*index, ids),
            Answered::Requeue(index, ids) => self.requeued(*index, ids),
            Answered::Nothing => Ok(()),
        }
    }

    /// A claim may or may not have ended each lapsed claim that it came past: all that can be after it.
    fn perhaps_fenced(self, answer: &Answered) -> Vec<Self> {
        let fenced = match answer {
            Answered::Claim(..) => self.may_be_fenced(),
            _ => Vec::new(),
        };
        let mut all = vec![self];
        for index in fenced {
            let with = all.iter().cloned().map(|mut model| {
                model.free(index);
                model
            });
            all.extend(with.collect::<Vec<_>>());
        }
        all
    }

    fn agrees(&self, found: &Found) -> Check {
        for (index, item) in self.items.iter().enumerate() {
            let row = found.rows.iter().find(|row| row.id == item.id);
            self.compare_row(index, row, found.now)?;
        }
        Ok(())
    }
}
