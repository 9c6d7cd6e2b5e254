//! The history, arranged by what the rules ask about: one story for each work item, and the rest.

use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;

use super::LogLine;
use super::operations::Operation;
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
    /// Calls that may have requeued any failed message: their process died before it learned which.
    pub blind_requeues: Vec<&'a Operation<'a>>,
    /// When rows of settled messages may have been deleted.
    purges: Windows,
    /// Lines of logs with a payload's marker.
    pub leaks: &'a [LogLine],
    /// Kinds of calls, with the queue they name, of which one may have taken effect.
    possible: HashSet<(&'static str, Option<QueueName>)>,
    /// Those of which one may have taken effect without an answer that lasts.
    unknown: HashSet<(&'static str, Option<QueueName>)>,
    /// Topics of messages whose ids are known before they are claimed.
    pub topics: HashSet<&'a str>,
    /// The first call that may have received each message, by source and id.
    receipts: HashMap<(&'a str, &'a str), &'a Operation<'a>>,
}

impl<'a> Evidence<'a> {
    /// Arranges a history whose calls are `operations`.
    pub(crate) fn gather(
        history: &'a History,
        operations: &'a [Operation<'a>],
        leaks: &'a [LogLine],
    ) -> Self {
        let mut evidence = Self {
            run: None,
            operations,
            stories: BTreeMap::new(),
            samples: Vec::new(),
            conditions: Vec::new(),
            settled: None,
            clock_steps: Windows::of(history, CLOCK_STEP),
            blind_requeues: Vec::new(),
            purges: Windows::new(
                operations
                    .iter()
                    .filter(|it| it.possibly() && matches!(it.call, Call::Purge { .. }))
                    .map(|it| (it.invoked, it.returned))
                    .collect(),
            ),
            leaks,
            possible: HashSet::new(),
            unknown: HashSet::new(),
            topics: HashSet::new(),
            receipts: HashMap::new(),
        };
        for placed in &history.lines {
            evidence.note(placed);
        }
        for operation in operations.iter().filter(|operation| operation.possibly()) {
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
        let may_have_ended = story.terminals().iter().any(|terminal| terminal.operation.invoked <= to)
            || self.may_be_rejected_unseen(QueueName::Outbox, story);
        may_have_ended && self.purges.touch(from, to)
    }

    /// Returns whether a claim that was never answered may have failed an item: it was delivered too often.
    pub(crate) fn may_be_rejected_unseen(&self, queue: QueueName, story: &Story<'_>) -> bool {
        let may_have_failed =
            story.status() != "done" || !story.requeues.is_empty() || !self.blind_requeues.is_empty();
        may_have_failed && self.has_unknown("claim", Some(queue))
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
                    self.story(QueueName::Inbox, *item).adds.push(add);
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
            Call::Requeue { ids } if operation.possibly() => {
                let requeued = match operation.answer() {
                    Some(Answer::Changed { changed, .. }) => changed,
                    _ if ids.is_empty() => return self.blind_requeues.push(operation),
                    _ => ids,
                };
                for id in requeued {
                    self.story(QueueName::Outbox, *id).requeues.push(operation);
                }
            }
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

    fn cancelled(&mut self, operation: &'a Operation<'a>, queue: QueueName, ids: &'a [Uuid]) {
        let changed = Changed::by(operation);
        for id in ids {
            if let Some(sure) = changed.get(*id) {
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
