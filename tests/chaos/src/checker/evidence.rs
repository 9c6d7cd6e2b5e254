//! The history, arranged by what the rules ask about: one story for each work item, and the rest.

use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;

use super::LogLine;
use super::audit::Audit;
use super::operations::Operation;
use super::purges::Purges;
use super::story::{Add, Claimed, End, Renewal, Story};
use super::windows::Windows;
use crate::history::{
    Answer, CLOCK_STEP, Call, Condition, Ending, Event, History, Outcome, Placed, QueueName, Run, Sample,
    Sent, Within,
};

/// Something that the controller wrote down, with its line and time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noted<'a, T> {
    pub at: u64,
    pub line: &'a str,
    pub what: T,
}

/// A history, arranged for the rules.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    pub run: Option<Noted<'a, &'a Run>>,
    pub operations: &'a [Operation<'a>],
    /// By queue and id.
    pub stories: BTreeMap<(QueueName, Uuid), Story<'a>>,
    pub samples: Vec<Noted<'a, &'a Sample>>,
    pub conditions: Vec<Noted<'a, &'a Condition>>,
    /// Open items that were left when the time for all work was over.
    pub settled: Option<Noted<'a, u64>>,
    pub clock_steps: Windows,
    pub lost_tails: Windows,
    /// Calls that may have requeued any failed message: their process died before it learned which.
    pub blind_requeues: Vec<&'a Operation<'a>>,
    /// When rows of Done messages may have been deleted.
    purges: Purges,
    /// What operators did, where the audit trail tells.
    pub audit: Option<Audit>,
    /// Lines of logs with a payload's marker.
    pub leaks: &'a [LogLine],
    /// Kinds of calls, with the queue they name, of which one may have taken effect.
    possible: HashSet<(&'static str, Option<QueueName>)>,
    /// Those of which one may have taken effect without an answer that lasts.
    unknown: HashSet<(&'static str, Option<QueueName>)>,
    /// Topics of messages whose ids are known before they are claimed.
    pub topics: HashSet<&'a str>,
    /// Claims that may have taken effect without an answer that lasts.
    unknown_claims: HashMap<QueueName, u32>,
    /// The lowest number of deliveries after which a claim fails an item.
    limits: HashMap<QueueName, u32>,
    /// Received messages that a reservation may have completed, by source and id.
    pub finished: HashSet<(&'a str, &'a str)>,
    /// The first call that may have received each message, by source and id.
    receipts: HashMap<(&'a str, &'a str), &'a Operation<'a>>,
}

impl<'a> Evidence<'a> {
    /// Arranges a history whose calls are `operations`.
    pub(crate) fn gather(
        history: &'a History,
        operations: &'a [Operation<'a>],
        lost_tails: &Windows,
        leaks: &'a [LogLine],
    ) -> Self {
        // A failover that loses calls loses their records as well.
        let audit = Audit::of(history, operations).filter(|_| lost_tails.is_empty());
        let clock_steps = Windows::of(history, CLOCK_STEP);
        let purges = Purges::of(operations, audit.as_ref(), !clock_steps.is_empty());
        let mut evidence = Self {
            run: None,
            operations,
            stories: BTreeMap::new(),
            samples: Vec::new(),
            conditions: Vec::new(),
            settled: None,
            clock_steps,
            lost_tails: lost_tails.clone(),
            blind_requeues: Vec::new(),
            purges,
            audit,
            leaks,
            possible: HashSet::new(),
            unknown: HashSet::new(),
            topics: HashSet::new(),
            unknown_claims: HashMap::new(),
            limits: HashMap::new(),
            finished: HashSet::new(),
            receipts: HashMap::new(),
        };
        for placed in &history.lines {
            evidence.note(placed);
        }
        for operation in operations.iter().filter(|operation| operation.possibly()) {
            if let Call::Finish { source, id, .. } = operation.call {
                evidence.finished.insert((source, id));
            }
            if let Call::Receive { source, id, .. } = operation.call {
                let first = evidence.receipts.entry((source, id)).or_insert(operation);
                if operation.invoked < first.invoked {
                    *first = operation;
                }
            }
        }
        for operation in operations {
            let kind = (operation.call.kind(), operation.call.queue());
            if operation.possibly() {
                evidence.possible.insert(kind);
            }
            if operation.possibly() && !operation.surely() {
                evidence.unknown.insert(kind);
            }
            if let Call::Claim { queue, limit, .. } = operation.call {
                let least = evidence.limits.entry(*queue).or_insert(*limit);
                *least = (*limit).min(*least);
                let is_unknown = operation.possibly() && !operation.surely();
                *evidence.unknown_claims.entry(*queue).or_default() += u32::from(is_unknown);
            }
            evidence.tell(operation);
        }
        evidence
    }

    /// Returns whether a call of a kind may have taken effect. Only calls that name the queue count.
    pub(crate) fn has_possible(&self, kind: &'static str, queue: Option<QueueName>) -> bool {
        self.possible.contains(&(kind, queue))
    }

    /// Returns whether a call of a kind may have taken effect without an answer that lasts.
    pub(crate) fn has_unknown(&self, kind: &'static str, queue: Option<QueueName>) -> bool {
        self.unknown.contains(&(kind, queue))
    }

    /// Returns whether an operator may have requeued an item at an instant from `from` to `to`.
    pub(crate) fn may_be_requeued(&self, story: &Story<'_>, from: u64, to: u64) -> bool {
        let requeues = story.requeues.iter().chain(&self.blind_requeues);
        requeues.into_iter().any(|requeue| requeue.invoked <= to && requeue.returned >= from)
    }

    /// Returns whether an operator may have purged a message at an instant from `from` to `to`.
    pub(crate) fn may_be_purged(&self, story: &Story<'_>, from: u64, to: u64) -> bool {
        self.purges.may_have_purged(story, from, to)
    }

    /// Returns by how much a lease can be shorter than asked for: SQLite's clock counts whole milliseconds.
    pub(crate) fn granularity(&self) -> u64 {
        let is_sqlite = self.run.as_ref().is_some_and(|run| run.what.provider == "sqlite");
        if is_sqlite { 1_000_000 } else { 0 }
    }

    /// Returns whether a claim that was never answered may have failed an item that was delivered too
    /// often. (No message of a run expires.)
    pub(crate) fn may_be_rejected_unseen(&self, queue: QueueName, story: &Story<'_>) -> bool {
        // The row tells how its last life ended, not how earlier ones did.
        let is_last = match story.finally {
            Some(state) if state.what.status == "done" => false,
            Some(state) => !matches!(state.what.reason.as_deref(), Some("handler" | "cancelled")),
            // Only Done messages are purged.
            None => queue != QueueName::Outbox || story.proof().is_none(),
        };
        let has_earlier = !story.requeues.is_empty() || !self.blind_requeues.is_empty();
        let Some(limit) = self.limits.get(&queue).filter(|_| is_last || has_earlier) else { return false };
        // Every delivery up to the limit that is not known was a claim without an answer, and the
        // rejection was one more.
        let known = story.claims.iter().map(|claim| claim.item.attempt).max().unwrap_or(0);
        self.unknown_claims.get(&queue).copied().unwrap_or(0) > limit.saturating_sub(known)
    }

    fn note(&mut self, placed: &'a Placed) {
        fn noted<T>(placed: &Placed, what: T) -> Noted<'_, T> {
            Noted { at: placed.line.at, line: &placed.place, what }
        }
        match &placed.line.event {
            Event::Run(run) => self.run = Some(noted(placed, run)),
            Event::Sample(sample) => self.samples.push(noted(placed, sample)),
            Event::Settled { open } => self.settled = Some(noted(placed, *open)),
            Event::End(condition) => {
                self.conditions.push(noted(placed, condition));
                if let Condition::Message(state) = &**condition {
                    self.story(state.queue, state.id).finally = Some(noted(placed, state));
                }
            }
            _ => {}
        }
    }

    fn story(&mut self, queue: QueueName, id: Uuid) -> &mut Story<'a> {
        self.stories.entry((queue, id)).or_default()
    }

    /// Adds a call to the stories of the items that it is about.
    fn tell(&mut self, operation: &'a Operation<'a>) {
        match operation.call {
            Call::Enqueue { messages, within } => {
                self.sent(operation, QueueName::Outbox, messages, *within != Within::Rollback);
            }
            Call::Schedule { messages } => {
                self.sent(operation, QueueName::Timers, messages, true);
                // A timer becomes a message by a later call. This one only makes it possible.
                for sent in messages.iter().filter(|_| operation.possibly()) {
                    let add = Add { operation, sent: Some(sent), sure: false };
                    self.story(QueueName::Outbox, sent.id).adds.push(add);
                }
            }
            Call::Join { members, continuation, .. } => {
                self.sent(operation, QueueName::Outbox, members, true);
                self.topics.insert(&continuation.topic);
                if operation.possibly() {
                    let add = Add { operation, sent: Some(continuation), sure: false };
                    self.story(QueueName::Outbox, continuation.id).adds.push(add);
                }
            }
            Call::Receive { source, id, .. } => {
                if let Some(Answer::Received { item: Some(item), .. }) = operation.answer() {
                    // A duplicate tells which item an earlier call made, which may have lost its answer.
                    let first = self.receipts.get(&(source.as_str(), id.as_str())).copied();
                    let first = first.unwrap_or(operation);
                    let add = Add { operation: first, sent: None, sure: operation.surely() };
                    let story = self.story(QueueName::Inbox, *item);
                    story.adds.push(add);
                    story.received = Some((source, id));
                }
            }
            Call::Claim { queue, .. } => self.claimed(operation, *queue),
            Call::Settle { queue, ends, .. } => self.settled_claims(operation, *queue, ends),
            Call::Complete { queue, claim, .. } if operation.possibly() => {
                let end = End {
                    operation,
                    generation: claim.generation,
                    outcome: Outcome::Ack,
                    has_effect: true,
                    sure: operation.surely(),
                };
                self.story(*queue, claim.id).ends.push(end);
            }
            Call::Handle { queue, claim, .. } => {
                self.story(*queue, claim.id).handled.push((operation, claim.generation));
            }
            Call::Renew { queue, claims, lease_ms, .. } => {
                let changed = Changed::by(operation);
                for claim in claims.iter().filter(|claim| changed.get(claim.id) == Some(true)) {
                    let renewal = Renewal { operation, generation: claim.generation, lease_ms: *lease_ms };
                    self.story(*queue, claim.id).renewals.push(renewal);
                }
            }
            Call::Forward { queue, .. } => {
                if let Some(Answer::Changed { changed, .. }) = operation.answer() {
                    for id in changed {
                        self.story(*queue, *id).forwards.push(operation);
                        let add = Add { operation, sent: None, sure: operation.surely() };
                        self.story(QueueName::Outbox, *id).adds.push(add);
                    }
                }
            }
            Call::Cancel { ids } => self.cancelled(operation, QueueName::Outbox, ids),
            Call::CancelTimers { ids } => self.cancelled(operation, QueueName::Timers, ids),
            Call::Requeue { ids } if operation.possibly() => self.requeued(operation, ids),
            _ => {}
        }
    }

    fn sent(
        &mut self,
        operation: &'a Operation<'a>,
        queue: QueueName,
        messages: &'a [Sent],
        is_committed: bool,
    ) {
        for sent in messages {
            self.topics.insert(&sent.topic);
            let story = self.story(queue, sent.id);
            if !is_committed || !operation.possibly() {
                story.refused.push(operation);
                continue;
            }
            let is_duplicate = matches!(operation.answer(), Some(Answer::Enqueued { duplicates, .. }) if duplicates.contains(&sent.id));
            if is_duplicate {
                story.refused.push(operation);
            } else {
                story.adds.push(Add { operation, sent: Some(sent), sure: operation.surely() });
            }
        }
    }

    fn claimed(&mut self, operation: &'a Operation<'a>, queue: QueueName) {
        let Some(Answer::Claimed { items, rejected }) = operation.answer() else { return };
        for item in items {
            self.story(queue, item.id).claims.push(Claimed { operation, item });
        }
        for rejection in rejected {
            self.story(queue, rejection.id).rejections.push(operation);
        }
    }

    fn settled_claims(&mut self, operation: &'a Operation<'a>, queue: QueueName, ends: &[Ending]) {
        let changed = Changed::by(operation);
        let mut seen = HashSet::new();
        let named_twice: HashSet<Uuid> =
            ends.iter().map(|end| end.claim.id).filter(|id| !seen.insert(*id)).collect();
        for end in ends {
            let id = end.claim.id;
            let Some(sure) = changed.get(id) else { continue };
            self.story(queue, id).ends.push(End {
                operation,
                generation: end.claim.generation,
                outcome: end.outcome,
                has_effect: false,
                // The answer names ids: of two claims of one id it does not tell which was ended.
                sure: sure && !named_twice.contains(&id),
            });
        }
    }

    fn requeued(&mut self, operation: &'a Operation<'a>, ids: &[Uuid]) {
        let requeued: Vec<Uuid> = match (operation.answer(), &self.audit) {
            (Some(Answer::Changed { changed, .. }), _) => changed.clone(),
            (_, Some(audit)) => {
                audit.requeued_unseen().filter(|id| ids.is_empty() || ids.contains(id)).collect()
            }
            (_, None) if ids.is_empty() => return self.blind_requeues.push(operation),
            (_, None) => ids.to_vec(),
        };
        for id in requeued {
            self.story(QueueName::Outbox, id).requeues.push(operation);
        }
    }

    fn cancelled(&mut self, operation: &'a Operation<'a>, queue: QueueName, ids: &'a [Uuid]) {
        let changed = Changed::by(operation);
        for id in ids {
            let Some(sure) = changed.get(*id) else { continue };
            // The trail has no records of timers that applications cancel.
            let audit = self.audit.as_ref().filter(|_| queue == QueueName::Outbox);
            if sure || audit.is_none_or(|audit| audit.is_cancelled_unseen(*id)) {
                self.story(queue, *id).cancels.push((operation, sure));
            }
        }
    }
}

/// The items that a call changed.
enum Changed<'a> {
    /// Those it said, with whether that is for certain.
    These(HashSet<&'a Uuid>, bool),
    /// Any that it named.
    Unknown,
    /// None.
    Nothing,
}

impl<'a> Changed<'a> {
    fn by(operation: &Operation<'a>) -> Self {
        match operation.answer() {
            Some(Answer::Changed { changed, .. }) => {
                Self::These(changed.iter().collect(), operation.surely())
            }
            None if operation.possibly() => Self::Unknown,
            _ => Self::Nothing,
        }
    }

    /// Returns whether the call changed an item: surely, possibly, or not at all (`None`).
    fn get(&self, id: Uuid) -> Option<bool> {
        match self {
            Self::These(ids, sure) => ids.contains(&id).then_some(*sure),
            Self::Unknown => Some(false),
            Self::Nothing => None,
        }
    }
}
