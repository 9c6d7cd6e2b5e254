//! The inventory: every second a fan-out makes a slice for each branch, each is counted in the branch's own database, and the run's join
//! says when all of them have been.
//!
//! A slice is done when the branch's message is: until then it is put off, without counting as an attempt. Delivered twice, it finds the
//! message it sent before. The books are read from the databases: the runs and their slices from the shop's, the counts from the branches'.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mainstay::fanout::{FanoutChange, FanoutKey, Slice};
use mainstay::fleet::Fleet;
use mainstay::join::{JoinFilter, JoinPage, JoinState, MemberPage};
use mainstay::outbox::{MessageFilter, Page};
use mainstay::queue::Status;
use mainstay::runtime::FanoutBuilder;
use mainstay::{Context, HandlerError, HandlerResult, Mainstay, Message, Outbox};
use uuid::Uuid;

use super::branches::{self, BRANCHES};

/// The topic of what follows when all branches have been counted.
pub(crate) const COMPLETE: &str = "inventory.complete";

const WORK_KEY: &str = "branches";

/// How long a slice waits between two looks at its branch.
const LOOK: Duration = Duration::from_millis(50);

/// Rows read at once.
const PAGE: u32 = 1_000;

/// The fan-out of a run: runs must not count each other's branches.
pub(crate) fn topic(run: Uuid) -> String {
    format!("demo-{}-inventory", run.simple())
}

/// How often all branches have been counted, for the view.
#[derive(Debug, Default, Clone)]
pub(crate) struct Complete(Arc<AtomicU64>);

impl Complete {
    pub(crate) fn times(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// All branches counted.
    pub(super) fn note(&self) -> HandlerResult {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Sets the fan-out up.
pub(super) fn define(fanout: FanoutBuilder, run: Uuid, fleet: Fleet) -> FanoutBuilder {
    fanout.work_key(WORK_KEY, |work| {
        work.cron("* * * * * *")
            .every(Duration::from_secs(1))
            .shards(BRANCHES)
            .then(Message::new(COMPLETE, "all branches counted").correlation(topic(run)))
            .handler(move |slice, context| count(fleet.clone(), run, slice, context))
    })
}

/// Plans no more.
pub(super) async fn stop(mainstay: &Mainstay, run: Uuid) -> mainstay::Result<()> {
    let change = FanoutChange::default().enabled(false);
    mainstay.fanout().set(&topic(run), WORK_KEY, &change).await.map(drop)
}

/// Has a branch counted, in its own database.
async fn count(fleet: Fleet, run: Uuid, slice: Slice, context: Context) -> HandlerResult {
    let outbox = fleet.outbox(slice.shard_key.as_str())?;
    let slice = context.id().to_string();
    let message = Message::new(branches::COUNT, "{}").correlation(topic(run)).idempotency_key(slice);
    let counting = outbox.enqueue(message).await?.work_item;
    match outbox.get(counting).await?.map(|message| message.status) {
        Some(Status::Done) => Ok(()),
        Some(Status::Failed) => Err(HandlerError::fail("the branch could not be counted")),
        _ => Err(HandlerError::snooze(LOOK)),
    }
}

/// The books of the inventory.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Inventory {
    /// Runs of the fan-out.
    pub(crate) runs: u64,
    /// Of these, whose join has not ended; and what follows a run and is not over.
    pub(crate) unfinished: u64,
    /// Runs of which a slice failed.
    pub(crate) incomplete: u64,
    /// Slices of all runs.
    pub(crate) slices: u64,
    /// Slices without a count in a branch's database, and counts without a slice.
    pub(crate) miscounted: u64,
    /// Runs that are complete without its having been said once, or the other way round.
    pub(crate) unannounced: u64,
}

impl Inventory {
    /// Reads the books of a run of the shop.
    pub(crate) async fn read(mainstay: &Mainstay, fleet: &Fleet, run: Uuid) -> mainstay::Result<Self> {
        let mut inventory = Self::default();
        let (mut complete, mut slices) = (0_u64, HashSet::new());
        let key = FanoutKey::new(topic(run), WORK_KEY)?;
        let filter = JoinFilter::default().grouping_key(key.message_topic());
        let mut page = JoinPage::first(PAGE);
        loop {
            let joins = mainstay.joins().list(&filter, page).await?;
            for join in &joins {
                inventory.runs += 1;
                match join.state {
                    JoinState::Pending => inventory.unfinished += 1,
                    JoinState::Completed => complete += 1,
                    _ => inventory.incomplete += 1,
                }
                let members = mainstay.joins().members(join.id, MemberPage::first(PAGE)).await?;
                slices.extend(members.iter().map(|member| member.work_item.to_string()));
            }
            match joins.last() {
                Some(last) if joins.len() == PAGE as usize => page = JoinPage::first(PAGE).after(last.id),
                _ => break,
            }
        }
        inventory.slices = slices.len() as u64;
        for branch in BRANCHES {
            for (status, slice) in messages(&fleet.outbox(branch)?, run).await? {
                let known = slice.is_some_and(|slice| slices.remove(&slice));
                inventory.miscounted += u64::from(!known || status != Status::Done);
            }
        }
        inventory.miscounted += slices.len() as u64;
        let said = messages(mainstay.outbox(), run).await?;
        inventory.unannounced = complete.abs_diff(said.len() as u64);
        inventory.unfinished += said.iter().filter(|(status, _)| *status != Status::Done).count() as u64;
        Ok(inventory)
    }

    /// Whether something is still to come to its end.
    pub(crate) fn is_pending(&self) -> bool {
        self.unfinished > 0
    }

    /// What must be zero, with what it would mean.
    pub(crate) fn checks(&self) -> [(&'static str, u64); 4] {
        [
            ("runs of the inventory that are not over", self.unfinished),
            ("runs of the inventory that failed", self.incomplete),
            ("slices of the inventory that were not counted in their branch once", self.miscounted),
            ("runs of the inventory whose end was not told once", self.unannounced),
        ]
    }
}

/// What an outbox has of the inventory: how each message stands, and its idempotency key.
async fn messages(outbox: &Outbox, run: Uuid) -> mainstay::Result<Vec<(Status, Option<String>)>> {
    let filter = MessageFilter::all().correlation_id(topic(run));
    let (mut found, mut page) = (Vec::new(), Page { limit: PAGE, before: None });
    loop {
        let rows = outbox.list(&filter, page).await?;
        page.before = rows.last().map(|message| message.id);
        let full = rows.len() == PAGE as usize;
        found.extend(rows.into_iter().map(|message| (message.status, message.idempotency_key)));
        if !full {
            return Ok(found);
        }
    }
}
