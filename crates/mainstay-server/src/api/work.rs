//! Taking work and ending it, the same for the outbox and the inbox: claim, ack, abandon, fail, release, renew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::outbox::Outbox;
use mainstay_core::queue::{
    ClaimBatch, ClaimHandle, ClaimRequest, Claimed, FailureReason, Outcome, Settled, Settlement,
};
use mainstay_core::runtime::Pause;
use mainstay_core::store::{OutboxStore, WaitRequest};
use mainstay_core::trace::TraceContext;
use mainstay_core::{OwnerToken, WorkItemId};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;
use uuid::Uuid;

use super::message::ids;
use super::time;
use crate::problem::{Kind, Problem};
use crate::request::Call;
use crate::taken::take;
use crate::ticket;

/// What is claimed at once, unless told otherwise.
const BATCH: u32 = 10;

/// The pause after a wake that brought nothing: what woke us may be somebody else's by now, again and again.
const BLOCKED: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// How often it is looked whether there is work, where nobody tells: the database can't, or its pooler passes nothing on.
const POLL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Asks for due work.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Claim)]
pub(super) struct ClaimBody {
    /// Only these topics. Defaults to all.
    #[serde(default)]
    topics: Vec<String>,
    /// Not these topics.
    #[serde(default)]
    except_topics: Vec<String>,
    /// Items at most. Defaults to 10. There are fewer where they would be too much for one answer: four times the largest body of a request.
    #[schema(minimum = 1, maximum = 1000)]
    batch: Option<u32>,
    /// How long the claims hold unless renewed, above 0 and up to a day. Defaults to 30.
    #[schema(minimum = 0.001, maximum = 86400)]
    lease_seconds: Option<f64>,
    /// How long to wait if there is nothing. Defaults to 0.
    #[schema(minimum = 0, maximum = 60)]
    wait_seconds: Option<f64>,
    /// Deliveries that a message may have; one that has had them fails instead of being handed out. Defaults to 10.
    #[schema(minimum = 1, maximum = 1000000)]
    delivery_limit: Option<u32>,
    /// Who claims. Defaults to a new one for each request; claims know it.
    owner: Option<Uuid>,
}

/// What was claimed.
#[derive(Serialize, ToSchema)]
#[schema(as = Claimed)]
pub(super) struct ClaimsView {
    /// Who claims.
    owner: Uuid,
    /// The items, the most urgent first. Empty if there was nothing.
    items: Vec<ClaimedView>,
    /// Those that failed on the way, by the delivery limit or by expiry.
    rejected: Vec<RejectedView>,
}

/// A claimed item.
#[derive(Serialize, ToSchema)]
#[schema(as = ClaimedItem)]
pub(super) struct ClaimedView {
    /// What settles and renews it. Opaque.
    claim: String,
    /// Its id here.
    id: Uuid,
    /// Its id for receivers: the same over all deliveries.
    message_id: Uuid,
    /// What it is about.
    topic: String,
    /// The payload.
    payload: String,
    /// Texts that travel with it.
    headers: BTreeMap<String, String>,
    /// Where it comes from.
    correlation_id: Option<String>,
    /// Which delivery this is, from 1.
    attempt: u32,
    /// When it was enqueued.
    created_at: Timestamp,
    /// Since when it has been due.
    due_at: Timestamp,
    /// Not handed out from this on.
    expires_at: Option<Timestamp>,
    /// Until when the claim holds, by the database's clock.
    locked_until: Timestamp,
    /// The error of the last delivery.
    last_error: Option<String>,
    /// Its priority.
    priority: i16,
    /// Its ordering key.
    ordering_key: Option<String>,
}

/// An item that a claim failed instead of handing it out.
#[derive(Serialize, ToSchema)]
#[schema(as = RejectedItem)]
struct RejectedView {
    /// Its id here.
    id: Uuid,
    /// What it is about.
    topic: String,
    /// `delivery-limit` or `expired`.
    reason: String,
}

/// Claims, and nothing else.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ClaimsAck)]
pub(super) struct ClaimsBody {
    /// The claims.
    claims: Vec<String>,
}

/// Claims to be tried again.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ClaimsAbandon)]
pub(super) struct AbandonBody {
    /// The claims.
    claims: Vec<String>,
    /// After how long, above 0. Defaults to a backoff that grows with the attempts.
    #[schema(exclusive_minimum = 0, maximum = 315360000)]
    delay_seconds: Option<f64>,
    /// What went wrong; cut to 2,048 characters.
    error: Option<String>,
}

/// Claims to be given back.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ClaimsRelease)]
pub(super) struct ReleaseBody {
    /// The claims.
    claims: Vec<String>,
    /// After how long, above 0. Defaults to at once.
    #[schema(exclusive_minimum = 0, maximum = 315360000)]
    delay_seconds: Option<f64>,
}

/// Claims to be given up.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ClaimsFail)]
pub(super) struct FailBody {
    /// The claims.
    claims: Vec<String>,
    /// Why; cut to 2,048 characters.
    error: Option<String>,
}

/// Claims to be extended.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ClaimsRenew)]
pub(super) struct RenewBody {
    /// The claims.
    claims: Vec<String>,
    /// For how long from now, above 0 and up to a day. Defaults to 30.
    #[schema(minimum = 0.001, maximum = 86400)]
    lease_seconds: Option<f64>,
}

/// Claims, each with what became of it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ClaimsSettle)]
pub(super) struct SettleBody {
    /// The claims.
    settlements: Vec<SettlementBody>,
}

/// A claim and what became of it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Settlement)]
struct SettlementBody {
    /// The claim.
    claim: String,
    /// What became of it.
    outcome: OutcomeBody,
    /// For `abandon` and `release`: after how long, above 0.
    #[schema(exclusive_minimum = 0, maximum = 315360000)]
    delay_seconds: Option<f64>,
    /// For `abandon` and `fail`: what went wrong.
    error: Option<String>,
}

/// What became of a claimed item.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Outcome)]
enum OutcomeBody {
    /// Handled.
    Ack,
    /// To be tried again; the delivery counts.
    Abandon,
    /// Failed for good.
    Fail,
    /// Given back; the delivery does not count.
    Release,
}

/// What a settle or a renewal changed. A claim in neither list is held but was not extended, because another transaction
/// was changing its item: it keeps the lease it has.
#[derive(Serialize, ToSchema)]
#[schema(as = Settled)]
pub(super) struct SettledView {
    /// Ids of those whose claims held.
    changed: Vec<Uuid>,
    /// Ids of those whose claims no longer held: they were left alone.
    stale: Vec<Uuid>,
}

/// Claims, and waits for work if there is none.
pub(super) async fn claim(call: &Call, queue: &Outbox, body: ClaimBody) -> Result<ClaimsView, Problem> {
    let owner = body.owner.map_or_else(OwnerToken::new, OwnerToken::from_uuid);
    let most = call.shared.limits.batch as u32;
    let batch = body.batch.unwrap_or(BATCH);
    if !(1..=most).contains(&batch) {
        return Err(Problem::invalid("batch", format_args!("must be 1 to {most}, got {batch}")));
    }
    let wait = wait(call, body.wait_seconds)?;
    let mut request =
        ClaimRequest::new(owner).batch(batch).only_topics(body.topics).except_topics(body.except_topics);
    if let Some(lease) = time::optional("lease_seconds", body.lease_seconds)? {
        request = request.lease(lease);
    }
    if let Some(limit) = body.delivery_limit {
        request = request.delivery_limit(limit);
    }
    let found = claim_within(call, queue, &request, wait).await?;
    let name = queue_name(queue);
    Ok(ClaimsView {
        owner: owner.as_uuid(),
        items: found.items.into_iter().map(|item| claimed(&name, owner, item)).collect(),
        rejected: found
            .rejected
            .into_iter()
            .map(|one| RejectedView {
                id: one.id.as_uuid(),
                topic: one.topic,
                reason: one.reason.to_string(),
            })
            .collect(),
    })
}

/// How long a request may wait.
pub(super) fn wait(call: &Call, number: Option<f64>) -> Result<Duration, Problem> {
    let wait = time::optional("wait_seconds", number)?.unwrap_or_default();
    let most = call.shared.limits.wait;
    if wait > most {
        return Err(Problem::invalid("wait_seconds", format_args!("must be at most {}", most.as_secs_f64())));
    }
    call.patience.waits(wait);
    Ok(wait)
}

async fn claim_within(
    call: &Call,
    queue: &Outbox,
    request: &ClaimRequest,
    wait: Duration,
) -> Result<ClaimBatch, Problem> {
    let (deadline, stop) = (Instant::now() + wait, &call.shared.stop);
    let mut rejected = Vec::new();
    let (mut waiting, mut blocked, mut poll) = (None, Pause::new(BLOCKED), Pause::new(POLL));
    let mut place = None;
    loop {
        let mut found = claim_once(queue, request, call.shared.limits.answer_bytes()).await?;
        rejected.append(&mut found.rejected);
        let left = deadline.saturating_duration_since(Instant::now());
        if !found.items.is_empty() || left.is_zero() || stop.is_cancelled() {
            return Ok(ClaimBatch { items: found.items, rejected });
        }
        if place.is_none() {
            place = Some(call.wait_here()?);
        }
        let store = queue.store();
        // Not by the owner's name: another request of the same owner that ends would end this one's waiting.
        let waiter = waiting
            .get_or_insert_with(|| Waiting { store: Arc::clone(store), owner: OwnerToken::new() })
            .owner;
        let asked = WaitRequest::new(waiter)
            .timeout(left.min(poll.step()))
            .call_limit(request.call_limit())
            .only_topics(request.only_topics.clone())
            .except_topics(request.except_topics.clone());
        let begun = Instant::now();
        match stop.run_until_cancelled(queue.wait(&asked)).await {
            None => return Ok(ClaimBatch { items: Vec::new(), rejected }),
            Some(woken) => drop(woken?),
        }
        if begun.elapsed() < blocked.next() {
            tokio::time::sleep(blocked.step().min(deadline.saturating_duration_since(Instant::now()))).await;
        } else {
            blocked.reset();
        }
    }
}

/// What was claimed for a client who has hung up meanwhile is given back, and counts as no delivery. So is what would be too much for one answer.
async fn claim_once(queue: &Outbox, request: &ClaimRequest, most: usize) -> Result<ClaimBatch, Problem> {
    let (outbox, owner) = (queue.clone(), request.owner);
    let (queue, request, trace) = (queue.clone(), request.clone(), TraceContext::current());
    let claiming = async move {
        let mut batch = TraceContext::within(trace, queue.claim(&request)).await?;
        let kept = fitting(batch.items.iter().map(bytes), most);
        let rest: Vec<_> = batch.items.split_off(kept).iter().map(|item| item.handle).collect();
        if !rest.is_empty() {
            let _lapses = queue.release(owner, &rest, None).await;
        }
        Ok(batch)
    };
    let give_back = move |batch: ClaimBatch| async move {
        let _lapses = outbox.release(owner, &batch.handles(), None).await;
    };
    take(claiming, give_back).await
}

/// How much of an answer an item is, about.
fn bytes(item: &Claimed) -> usize {
    let headers: usize = item.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    item.payload.len() + item.topic.len() + headers + item.last_error.as_ref().map_or(0, String::len)
}

/// How many of these fit into so many bytes: one at least, or nobody would ever get it.
pub(super) fn fitting(sizes: impl Iterator<Item = usize>, most: usize) -> usize {
    let mut sum = 0_usize;
    let fits = sizes.take_while(|size| {
        let first = sum == 0;
        // An empty one counts, too.
        sum = sum.saturating_add(size.saturating_add(1));
        first || sum <= most
    });
    fits.count()
}

/// Somebody who waits, and is no longer waited for once this is dropped.
struct Waiting {
    store: Arc<dyn OutboxStore>,
    owner: OwnerToken,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let (store, owner) = (Arc::clone(&self.store), self.owner);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { store.leave(owner).await });
        }
    }
}

fn claimed(queue: &str, owner: OwnerToken, item: Claimed) -> ClaimedView {
    let handle = item.handle;
    ClaimedView {
        claim: ticket::write(queue, &(owner, handle.id(), handle.generation(), handle.place())),
        id: handle.id().as_uuid(),
        message_id: item.message_id.as_uuid(),
        topic: item.topic,
        payload: item.payload,
        headers: item.headers,
        correlation_id: item.correlation_id,
        attempt: item.attempt,
        created_at: item.created_at,
        due_at: item.due_at,
        expires_at: item.expires_at,
        locked_until: item.locked_until,
        last_error: item.last_error,
        priority: item.priority,
        ordering_key: item.ordering_key,
    }
}

/// Claims of one queue are none of another's.
fn queue_name(queue: &Outbox) -> String {
    let identifier = queue.store().identifier();
    identifier.rsplit(['/', '.', ':']).next().unwrap_or(identifier).to_owned()
}

type Ticket = (OwnerToken, WorkItemId, i64, Option<std::num::NonZeroU64>);

fn handle(queue: &str, field: &str, text: &str) -> Result<(OwnerToken, ClaimHandle), Problem> {
    let (owner, id, generation, place): Ticket = ticket::read(queue, field, text)?;
    if owner.as_uuid().is_nil() {
        return Err(ticket::wrong(field));
    }
    Ok((owner, ClaimHandle::new(id, generation).at(place)))
}

/// All with the same outcome.
async fn settle_all(
    call: &Call,
    queue: &Outbox,
    claims: &[String],
    outcome: Outcome,
) -> Result<SettledView, Problem> {
    call.check_batch("claims", claims)?;
    let mut settlements = Vec::with_capacity(claims.len());
    for (index, text) in claims.iter().enumerate() {
        let (owner, claim) = handle(&queue_name(queue), &format!("claims[{index}]"), text)?;
        settlements.push((owner, Settlement { claim, outcome: outcome.clone() }));
    }
    end(queue, settlements).await
}

pub(super) async fn ack(call: &Call, queue: &Outbox, body: ClaimsBody) -> Result<SettledView, Problem> {
    settle_all(call, queue, &body.claims, Outcome::Ack).await
}

pub(super) async fn abandon(call: &Call, queue: &Outbox, body: AbandonBody) -> Result<SettledView, Problem> {
    let delay = time::delay("delay_seconds", body.delay_seconds)?;
    settle_all(call, queue, &body.claims, Outcome::Abandon { delay, error: body.error }).await
}

pub(super) async fn release(call: &Call, queue: &Outbox, body: ReleaseBody) -> Result<SettledView, Problem> {
    let delay = time::delay("delay_seconds", body.delay_seconds)?;
    settle_all(call, queue, &body.claims, Outcome::Release { delay, error: None }).await
}

pub(super) async fn fail(call: &Call, queue: &Outbox, body: FailBody) -> Result<SettledView, Problem> {
    let outcome = Outcome::Fail { reason: FailureReason::Handler, error: body.error };
    settle_all(call, queue, &body.claims, outcome).await
}

pub(super) async fn settle(call: &Call, queue: &Outbox, body: SettleBody) -> Result<SettledView, Problem> {
    call.check_batch("settlements", &body.settlements)?;
    let mut settlements = Vec::with_capacity(body.settlements.len());
    for (index, one) in body.settlements.into_iter().enumerate() {
        let at = |field: &str| format!("settlements[{index}].{field}");
        let (owner, claim) = handle(&queue_name(queue), &at("claim"), &one.claim)?;
        let delay = time::delay(&at("delay_seconds"), one.delay_seconds)?;
        let outcome = match one.outcome {
            OutcomeBody::Ack | OutcomeBody::Fail if delay.is_some() => {
                return Err(Problem::invalid(
                    at("delay_seconds"),
                    "must not be given where it is not tried again",
                ));
            }
            OutcomeBody::Ack | OutcomeBody::Release if one.error.is_some() => {
                return Err(Problem::invalid(at("error"), "must not be given where nothing went wrong"));
            }
            OutcomeBody::Ack => Outcome::Ack,
            OutcomeBody::Abandon => Outcome::Abandon { delay, error: one.error },
            OutcomeBody::Fail => Outcome::Fail { reason: FailureReason::Handler, error: one.error },
            OutcomeBody::Release => Outcome::Release { delay, error: None },
        };
        settlements.push((owner, Settlement { claim, outcome }));
    }
    end(queue, settlements).await
}

/// Ends them, those of each owner in one transaction. Most have one owner. Nothing of the request may be wrong by now.
async fn end(queue: &Outbox, settlements: Vec<(OwnerToken, Settlement)>) -> Result<SettledView, Problem> {
    let asked: BTreeSet<_> = settlements.iter().map(|(_, settlement)| settlement.claim.id()).collect();
    let mut all = Settled::default();
    for (owner, settlements) in by_owner(settlements) {
        let settled = queue.settle(owner, &settlements).await;
        add(&mut all, settled)?;
    }
    told(&asked, all)
}

pub(super) async fn renew(call: &Call, queue: &Outbox, body: RenewBody) -> Result<SettledView, Problem> {
    call.check_batch("claims", &body.claims)?;
    let lease = time::optional("lease_seconds", body.lease_seconds)?.unwrap_or(Duration::from_secs(30));
    let mut claims = Vec::with_capacity(body.claims.len());
    for (index, text) in body.claims.iter().enumerate() {
        claims.push(handle(&queue_name(queue), &format!("claims[{index}]"), text)?);
    }
    let asked: BTreeSet<_> = claims.iter().map(|(_, claim)| claim.id()).collect();
    let mut all = Settled::default();
    for (owner, claims) in by_owner(claims) {
        let renewed = queue.renew(owner, &claims, lease).await;
        add(&mut all, renewed)?;
    }
    told(&asked, all)
}

fn by_owner<T>(all: Vec<(OwnerToken, T)>) -> BTreeMap<OwnerToken, Vec<T>> {
    let mut by_owner: BTreeMap<OwnerToken, Vec<T>> = BTreeMap::new();
    for (owner, one) in all {
        by_owner.entry(owner).or_default().push(one);
    }
    by_owner
}

/// Where the database fails midway, what was changed before is told with the problem.
fn add(all: &mut Settled, more: mainstay_core::Result<Settled>) -> Result<(), Problem> {
    match more {
        Ok(mut more) => {
            all.changed.append(&mut more.changed);
            all.stale.append(&mut more.stale);
            Ok(())
        }
        Err(error) if all.changed.is_empty() && all.stale.is_empty() => Err(error.into()),
        Err(error) => {
            Err(Problem::from(error).with("changed", ids(&all.changed)).with("stale", ids(&all.stale)))
        }
    }
}

/// A client that looks at nothing but the status must not take lost claims for settled ones.
fn told(asked: &BTreeSet<WorkItemId>, settled: Settled) -> Result<SettledView, Problem> {
    // A claim that is neither changed nor stale is held: another transaction was changing its item.
    let lost = settled.stale.iter().collect::<BTreeSet<_>>().len();
    if settled.changed.is_empty() && lost > 0 && lost == asked.len() {
        let text = "none of the claims holds any more: somebody else has taken or settled the items; drop what was done for them";
        return Err(Problem::new(Kind::ClaimLost, text).with("stale", ids(&settled.stale)));
    }
    Ok(SettledView { changed: ids(&settled.changed), stale: ids(&settled.stale) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_is_held_but_not_extended_is_not_lost() {
        let (stale, held) = (WorkItemId::new(), WorkItemId::new());
        let settled = |changed: &[WorkItemId], stale: &[WorkItemId]| {
            let mut settled = Settled::default();
            (settled.changed, settled.stale) = (changed.to_vec(), stale.to_vec());
            settled
        };
        let both = BTreeSet::from([stale, held]);
        let told_both = told(&both, settled(&[], &[stale])).ok().map(|view| (view.changed, view.stale));
        assert_eq!(told_both, Some((Vec::new(), vec![stale.as_uuid()])));
        assert!(told(&both, settled(&[], &[stale, held])).is_err());
        assert!(told(&BTreeSet::from([stale]), settled(&[], &[stale])).is_err());
        assert!(told(&both, settled(&[held], &[stale])).is_ok());
        assert!(told(&both, Settled::default()).is_ok());
    }

    #[test]
    fn an_answer_has_a_bound_and_one_item_at_least() {
        assert_eq!(fitting([10, 10, 10].into_iter(), 22), 2);
        assert_eq!(fitting([10, 10, 10].into_iter(), 1_000), 3);
        assert_eq!(fitting([100, 1].into_iter(), 22), 1, "the first is handed out whatever it is");
        assert_eq!(fitting([0, 0, 0].into_iter(), 2), 2);
        assert_eq!(fitting([usize::MAX, usize::MAX].into_iter(), 22), 1);
        assert_eq!(fitting([].into_iter(), 22), 0);
    }
}
