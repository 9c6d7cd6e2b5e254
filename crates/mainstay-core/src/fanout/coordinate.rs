//! One pass of a coordinator: what is due, and its slices into the outbox.
//!
//! What is planned is calculated from rows that were read before; each slice is made in a transaction that first makes sure that the
//! coordinator still holds its lease, that the policy is still the same and that the shard's cursor is still the one it was planned with.
//! So a coordinator that was paused for any length of time makes nothing that is not to be made, and one that dies midway leaves slices that are
//! made and others that are planned again.
//!
//! A run that something follows is made in one transaction: its slices, the join that counts them, and the note that it was made.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, timeout};

use crate::error::{Error, ErrorKind, Result};
use crate::id::{JoinId, WorkItemId};
use crate::job::{Misfire, plan};
use crate::join::{Counted, PreparedJoin};
use crate::lease::Lease;
use crate::outbox::{Message, PreparedMessage};
use crate::renewing::{attempt, call_limit};
use crate::store::{StoreCall, StoreTransaction};
use crate::telemetry;

use super::{
    Candidate, Fanout, FanoutCursor, FanoutKey, FanoutPolicy, FanoutSlice, Occasion, PlannedSlice, Planner,
    RunContinuation,
};

const COORDINATE: &str = "fanout.coordinate";

/// How often a planner that is still at work shows in the log.
const SLOW_PLANNER: Duration = Duration::from_secs(60);

/// Shards looked at, and slices made, per transaction.
const PAGE: usize = 500;

/// One call of a pass to the database. While one hangs the lease is renewed over other connections, and no coordinator anywhere works:
/// so it is given up after two leases, and the lease with it.
async fn step<T>(lease: &Lease, call: impl Future<Output = Result<T>>) -> Result<T> {
    attempt(COORDINATE, call_limit(lease.duration()), call).await
}

/// What a pass has brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pass {
    /// The slices made.
    pub dispatched: Vec<FanoutSlice>,
    /// The join of these slices, if something follows them.
    pub run: Option<JoinId>,
    /// Shards whose last slice was in flight and which were left alone.
    pub in_flight: u64,
    /// Shard keys the planner gave that can't be used.
    pub refused: u64,
    /// The version of the policy that was planned by. None if there is no such fan-out.
    pub version: Option<i64>,
    /// How long until it is worth another look, unless the policy changes. None if only that makes it so.
    pub next: Option<SignedDuration>,
}

impl Fanout {
    /// Makes a slice of everything that is due. What [`super::FanoutService`] does while it holds `lease`, which must be the fan-out's own
    /// ([`FanoutKey::lease_name`]).
    pub async fn coordinate(&self, key: &FanoutKey, planner: &dyn Planner, lease: &Lease) -> Result<Pass> {
        self.coordinate_with(key, planner, &RunContinuation::default(), lease).await
    }

    /// The same, with something that follows when all the slices it makes have ended.
    pub async fn coordinate_with(
        &self,
        key: &FanoutKey,
        planner: &dyn Planner,
        continuation: &RunContinuation,
        lease: &Lease,
    ) -> Result<Pass> {
        if lease.name() != key.lease_name() {
            let (wanted, got) = (key.lease_name(), lease.name());
            return Err(Error::invalid(COORDINATE, "lease", format_args!("must be {wanted:?}, got {got:?}")));
        }
        let standing = step(lease, self.store().standing(key)).await?;
        let Some((mut policy, now)) = standing else { return Ok(Pass::default()) };
        if policy.is_ahead_of(now) {
            step(lease, self.count_from(now, &mut policy, lease)).await?;
        }
        let mut pass = Pass { version: Some(policy.version), ..Pass::default() };
        let (occasion, next) = occasion(&policy, now)?;
        pass.next = next.map(|next| next.duration_since(now));
        if let Some(occasion) = occasion {
            let run = Run { fanout: self, key, policy: &policy, planner, continuation, lease, occasion, now };
            run.make(&mut pass).await?;
        }
        Ok(pass)
    }
}

impl Fanout {
    /// Occurrences count from now on: the last run was noted by a clock that has been set back since, and waiting for that time to come
    /// again could take years. What was run then is not run twice, since that is remembered for each shard.
    async fn count_from(&self, now: Timestamp, policy: &mut FanoutPolicy, lease: &Lease) -> Result<()> {
        let mut tx = self.outbox.store().begin().await?;
        lease.guard(&mut tx).await?;
        tx.call(&self.store().ran(&policy.key, policy.version, now, None)).await?;
        tx.commit().await?;
        telemetry::fanout_was_ahead(self.store().identifier(), policy);
        (policy.last_run_at, policy.since_at) = (Some(now), policy.since_at.min(now));
        Ok(())
    }
}

/// Why there is something to plan now, and when there will be the next time.
fn occasion(policy: &FanoutPolicy, now: Timestamp) -> Result<(Option<Occasion>, Option<Timestamp>)> {
    if let Some(requested) = policy.run_requested_at {
        // The next look comes at once: noting the run leaves the rest to it.
        return Ok((Some(Occasion::Requested(requested)), Some(now)));
    }
    if !policy.enabled {
        return Ok((None, None));
    }
    let Some(schedule) = policy.schedule()? else {
        let every = SignedDuration::try_from(policy.every).unwrap_or(SignedDuration::MAX);
        return Ok((Some(Occasion::Cadence), now.checked_add(every).ok()));
    };
    let since = policy.last_run_at.map_or(policy.since_at, |last| last.max(policy.since_at));
    let Some(first) = schedule.next_after(since) else { return Ok((None, None)) };
    // One run stands for all that were missed.
    let plan = plan(&schedule, first, now, Misfire::Once);
    Ok((plan.occurrences.last().map(|last| Occasion::Cron(*last)), plan.next))
}

/// A run that is being made.
struct Run<'a> {
    fanout: &'a Fanout,
    key: &'a FanoutKey,
    policy: &'a FanoutPolicy,
    planner: &'a dyn Planner,
    continuation: &'a RunContinuation,
    lease: &'a Lease,
    occasion: Occasion,
    now: Timestamp,
}

impl Run<'_> {
    async fn make(&self, pass: &mut Pass) -> Result<()> {
        let mut seen = HashSet::new();
        let mut after: Option<String> = None;
        // All of a run that something follows.
        let mut whole = Vec::new();
        loop {
            let page = self.candidates(after.as_deref()).await?;
            after = page.last().cloned();
            let fresh: Vec<String> = page.into_iter().filter(|shard| seen.insert(shard.clone())).collect();
            if fresh.is_empty() {
                break;
            }
            self.lease.check()?;
            for shards in self.usable(fresh, pass).chunks(PAGE) {
                let planned = self.plan(shards, pass).await?;
                if !self.continuation.is_none() {
                    whole.extend(planned);
                } else if !planned.is_empty() {
                    self.dispatch_new(&planned, pass).await?;
                }
            }
        }
        if !whole.is_empty() {
            self.dispatch_new(&whole, pass).await?;
        }
        match self.occasion {
            // With the slices.
            Occasion::Cadence => Ok(()),
            _ if pass.run.is_some() => Ok(()),
            Occasion::Cron(_) | Occasion::Requested(_) => self.note().await,
        }
    }

    /// Asks the planner for a page. It is the application's code and may take its time: the lease is renewed meanwhile.
    async fn candidates(&self, after: Option<&str>) -> Result<Vec<String>> {
        let page = self.planner.candidates(self.key, after, PAGE);
        tokio::pin!(page);
        let begun = Instant::now();
        loop {
            match timeout(SLOW_PLANNER, &mut page).await {
                Ok(page) => return page.map_err(|error| planner_failed(self.key, error)),
                Err(_) => {
                    telemetry::fanout_planning(self.fanout.store().identifier(), self.key, begun.elapsed());
                }
            }
        }
    }

    /// One bad key keeps no other shard from its slices.
    fn usable(&self, shards: Vec<String>, pass: &mut Pass) -> Vec<String> {
        let (usable, refused): (Vec<_>, Vec<_>) =
            shards.into_iter().partition(|shard| FanoutKey::validate_shard("fanout.plan", shard).is_ok());
        pass.refused += refused.len() as u64;
        telemetry::fanout_refused(self.fanout.store().identifier(), self.key, refused.len() as u64);
        usable
    }

    async fn plan(&self, shards: &[String], pass: &mut Pass) -> Result<Vec<PlannedSlice>> {
        let cursors = self.step(self.fanout.store().look(self.key, shards)).await?;
        let cursors: HashMap<&str, &FanoutCursor> =
            cursors.iter().map(|cursor| (cursor.shard_key.as_str(), cursor)).collect();
        let mut planned = Vec::new();
        for shard in shards {
            let cursor = cursors.get(shard.as_str()).copied();
            if cursor.is_some_and(|cursor| cursor.in_flight) {
                pass.in_flight += 1;
                continue;
            }
            let candidate = Candidate::new(self.policy, shard, cursor, self.occasion, self.now);
            let Some(time) = self.planner.due(&candidate) else { continue };
            // At an occurrence the outbox keeps what is not due yet; otherwise there is time to think again.
            if self.occasion == Occasion::Cadence && time.due > self.now {
                let wait = time.due.duration_since(self.now);
                pass.next = Some(pass.next.map_or(wait, |next| next.min(wait)));
                continue;
            }
            planned.push(PlannedSlice::new(self.key, shard, cursor, time));
        }
        Ok(planned)
    }

    /// Dispatches slices. One whose message is there already was made before, by a cursor that somebody has since put back, from a copy of the
    /// table or by hand: it counts as made.
    async fn dispatch_new(&self, planned: &[PlannedSlice], pass: &mut Pass) -> Result<()> {
        match self.dispatch(planned, &HashSet::new(), pass).await {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            other => return other,
        }
        let mut known = HashSet::new();
        for slice in planned {
            if self.step(self.fanout.outbox.get(slice.id)).await?.is_some() {
                known.insert(slice.id);
            }
        }
        telemetry::fanout_known(self.fanout.store().identifier(), self.key, known.len() as u64);
        self.dispatch(planned, &known, pass).await
    }

    /// Notes slices and adds their messages, in one transaction; but for the messages that are known to be there.
    async fn dispatch(
        &self,
        planned: &[PlannedSlice],
        known: &HashSet<WorkItemId>,
        pass: &mut Pass,
    ) -> Result<()> {
        let store = self.fanout.store();
        let mut tx = self.begin().await?;
        let made = self.claim(tx.as_mut(), planned).await?;
        if made.is_empty() {
            return self.step(tx.rollback()).await;
        }
        let join = self.step(self.join(tx.as_mut(), &made)).await?;
        let run = join.as_ref().map(PreparedJoin::id);
        let new = made.iter().filter(|slice| !known.contains(&slice.id));
        let messages = new.map(|slice| self.message(slice, run)).collect::<Result<Vec<_>>>()?;
        let mut enqueued = Vec::with_capacity(messages.len());
        for page in messages.chunks(PAGE) {
            enqueued.extend(self.step(tx.enqueue(page)).await?);
        }
        let counted = match run {
            Some(run) => self.step(self.attach_known(tx.as_mut(), run, &made, known)).await?,
            None => None,
        };
        if run.is_some() || self.occasion == Occasion::Cadence {
            self.step(tx.call(&self.ran())).await?;
        }
        self.step(tx.commit()).await?;
        telemetry::enqueued(self.fanout.outbox.store().identifier(), &messages, &enqueued);
        telemetry::fanout_dispatched(store.identifier(), self.key, messages.len() as u64);
        if let Some(join) = &join {
            telemetry::join_started(self.fanout.joins.identifier(), join);
            telemetry::joins_counted(self.fanout.joins.identifier(), counted.as_slice());
        }
        pass.run = run;
        pass.dispatched.extend(made.into_iter().map(|slice| slice.payload(self.key, run)));
        Ok(())
    }

    /// Notes slices as planned. Which of them may be made.
    async fn claim<'p>(
        &self,
        tx: &mut dyn StoreTransaction,
        planned: &'p [PlannedSlice],
    ) -> Result<Vec<&'p PlannedSlice>> {
        let store = self.fanout.store();
        let mut made = Vec::new();
        for page in planned.chunks(PAGE) {
            let answers = self.step(tx.call(&store.claim(self.key, self.policy.version, page))).await?;
            let claimed: HashSet<String> = store.claimed(&answers)?.into_iter().collect();
            made.extend(page.iter().filter(|slice| claimed.contains(&slice.shard_key)));
        }
        Ok(made)
    }

    /// Starts the join of slices that something follows.
    async fn join(
        &self,
        tx: &mut dyn StoreTransaction,
        made: &[&PlannedSlice],
    ) -> Result<Option<PreparedJoin>> {
        if self.continuation.is_none() {
            return Ok(None);
        }
        // More than can be expected of a join are refused by it.
        let slices = u32::try_from(made.len()).unwrap_or(u32::MAX);
        let join = self.continuation.join(self.key, slices, self.fanout.outbox.limits())?;
        let answers = tx.call(&self.fanout.joins.starting(&join, None)).await?;
        self.fanout.joins.started(join.id(), &answers)?;
        Ok(Some(join))
    }

    /// Makes slices whose messages were there before steps of the run as well: those that have ended are counted at once.
    async fn attach_known(
        &self,
        tx: &mut dyn StoreTransaction,
        run: JoinId,
        made: &[&PlannedSlice],
        known: &HashSet<WorkItemId>,
    ) -> Result<Option<Counted>> {
        let known: Vec<WorkItemId> =
            made.iter().map(|slice| slice.id).filter(|id| known.contains(id)).collect();
        if known.is_empty() {
            return Ok(None);
        }
        let joins = &self.fanout.joins;
        let answers = tx.call(&joins.attaching(run, &known, None)).await?;
        Ok(joins.attached(run, &answers)?.counted)
    }

    fn message(&self, slice: &PlannedSlice, run: Option<JoinId>) -> Result<PreparedMessage> {
        let message = Message::json(self.key.message_topic(), &slice.payload(self.key, run))?
            .work_item_id(slice.id)
            .message_id(slice.message)
            .due_at(slice.due);
        let message = if let Some(run) = run { message.join(run) } else { message };
        message.prepare(self.fanout.outbox.limits())
    }

    fn ran(&self) -> StoreCall {
        let (nominal, requested) = match self.occasion {
            Occasion::Cadence => (self.now, None),
            Occasion::Cron(at) => (at, None),
            Occasion::Requested(at) => (at, Some(at)),
        };
        self.fanout.store().ran(self.key, self.policy.version, nominal, requested)
    }

    /// Notes the run, once all its slices are made: should that not come to be, the next coordinator makes those that are missing.
    async fn note(&self) -> Result<()> {
        let mut tx = self.begin().await?;
        self.step(tx.call(&self.ran())).await?;
        self.step(tx.commit()).await
    }

    /// A transaction that commits only while the lease is held.
    async fn begin(&self) -> Result<Box<dyn StoreTransaction>> {
        let mut tx = self.step(self.fanout.outbox.store().begin()).await?;
        self.step(self.lease.guard(&mut tx)).await?;
        Ok(tx)
    }

    async fn step<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        step(self.lease, call).await
    }
}

fn planner_failed(key: &FanoutKey, error: super::PlannerError) -> Error {
    // What is underneath may say whether it is worth trying again; that it will be tried again is certain.
    let text = format!("the planner of {key} failed: {error}");
    match error.downcast_ref::<Error>() {
        Some(cause) if cause.is_unanswered() => Error::unanswered("fanout.plan", text),
        _ => Error::new(ErrorKind::Internal, "fanout.plan", text),
    }
    .with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn policy() -> FanoutPolicy {
        let mut policy =
            FanoutPolicy::new(FanoutKey::new("etl", "payments").unwrap(), at("2027-01-01T10:30:00Z"));
        policy.every = Duration::from_secs(600);
        policy
    }

    #[test]
    fn without_cron_every_look_is_an_occasion_and_the_next_is_a_cadence_away() {
        let now = at("2027-01-01T11:00:00Z");
        assert_eq!(
            occasion(&policy(), now).unwrap(),
            (Some(Occasion::Cadence), Some(at("2027-01-01T11:10:00Z")))
        );
        let mut disabled = policy();
        disabled.enabled = false;
        assert_eq!(occasion(&disabled, now).unwrap(), (None, None));
        disabled.run_requested_at = Some(now);
        assert_eq!(occasion(&disabled, now).unwrap().0, Some(Occasion::Requested(now)));
    }

    #[test]
    fn a_restart_catches_up_once() {
        let mut hourly = policy();
        hourly.cron = Some("@hourly".to_owned());
        // Nothing has come since it was registered.
        let (none, next) = occasion(&hourly, at("2027-01-01T10:59:59Z")).unwrap();
        assert_eq!((none, next), (None, Some(at("2027-01-01T11:00:00Z"))));
        // Three were missed: the last one stands for them.
        let (missed, next) = occasion(&hourly, at("2027-01-01T13:20:00Z")).unwrap();
        assert_eq!(missed, Some(Occasion::Cron(at("2027-01-01T13:00:00Z"))));
        assert_eq!(next, Some(at("2027-01-01T14:00:00Z")));
        hourly.last_run_at = Some(at("2027-01-01T13:00:00Z"));
        assert_eq!(occasion(&hourly, at("2027-01-01T13:20:00Z")).unwrap().0, None);
        // Changed since: what it would have missed before does not count.
        hourly.since_at = at("2027-01-01T15:30:00Z");
        assert_eq!(occasion(&hourly, at("2027-01-01T15:40:00Z")).unwrap().0, None);
        hourly.cron = Some("nonsense".to_owned());
        assert_eq!(occasion(&hourly, at("2027-01-01T15:40:00Z")).unwrap_err().field(), Some("cron"));
    }
}
