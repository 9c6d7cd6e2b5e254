//! Natural batching of enqueues: what arrives while a commit is under way shares the next one.
//!
//! There is no timer. A call that finds nothing under way goes at once and alone; those that come meanwhile wait for its
//! end, and then go together in one statement and one commit. Each is durable before it is answered, and each call is still
//! all or nothing. Only small, independent messages are gathered: the statement of an idempotency key or of an id of the caller's own
//! can wait for another transaction, and no other caller is to wait with it (see [`contention`](crate::contention)).
//!
//! Statements run in tasks of their own and never in a caller's future: a caller who stops polling would stop all others.
//! One without a waiting caller is given up, and a call that has not been sent yet goes as soon as its caller does.
//!
//! When the database refuses a statement that several share because of what is in it, nothing of it was written, and each
//! goes again alone: one that can't succeed harms no other. Whatever else goes wrong, all are told.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainstay_core::outbox::{Enqueued, PreparedMessage};
use mainstay_core::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use crate::addition::{Addition, is_independent};
use crate::contention::Turns;
use crate::error::is_from_server;
use crate::pool::Connections;
use crate::statements::QueueStatements;

const ENQUEUE: &str = "outbox.enqueue";

/// Statements that may be under way at once.
const UNDER_WAY: usize = 2;

/// What one statement carries at most.
const SHARED_MESSAGES: usize = 1_000;
const SHARED_BYTES: usize = 1 << 20;

/// What a call may hold at most to be gathered; larger ones gain nothing by sharing.
const CALL_MESSAGES: usize = 100;
const CALL_BYTES: usize = 1 << 16;

pub(crate) struct Gathering(Arc<Shared>);

struct Shared {
    connections: Connections,
    statements: Arc<QueueStatements>,
    turns: Turns,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// By number, in the order of their arrival.
    waiting: BTreeMap<u64, Call>,
    /// Calls so far.
    calls: u64,
    under_way: usize,
}

/// A caller's messages, and where its answer goes.
struct Call {
    messages: Vec<PreparedMessage>,
    bytes: usize,
    reply: oneshot::Sender<Result<Vec<Enqueued>>>,
}

impl Gathering {
    pub(crate) fn new(connections: Connections, statements: Arc<QueueStatements>) -> Self {
        Self(Arc::new(Shared { connections, statements, turns: Turns::default(), queue: Mutex::default() }))
    }

    /// Adds messages in a transaction that is over, and durable, when this returns.
    pub(crate) async fn enqueue(&self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        let Some(bytes) = gatherable(messages) else { return self.0.add(messages).await };
        let (reply, answer) = oneshot::channel();
        let call = Call { messages: messages.to_vec(), bytes, reply };
        let (turn, mut place) = {
            let mut queue = self.0.queue();
            let number = queue.calls;
            queue.calls += 1;
            queue.waiting.insert(number, call);
            let free = queue.under_way < UNDER_WAY;
            queue.under_way += usize::from(free);
            let turn = free.then(|| Turn { shared: Arc::clone(&self.0), began: false });
            (turn, Place { shared: &self.0, number: Some(number) })
        };
        if let Some(turn) = turn {
            tokio::spawn(turn.serve());
        }
        let answer = answer.await;
        place.number = None;
        answer.unwrap_or_else(|_| Err(abandoned()))
    }
}

/// The size of a call that may be gathered.
fn gatherable(messages: &[PreparedMessage]) -> Option<usize> {
    let bytes = messages.iter().map(|message| message.payload().len()).sum();
    (messages.len() <= CALL_MESSAGES && bytes <= CALL_BYTES && messages.iter().all(is_independent))
        .then_some(bytes)
}

/// A caller's place among those who wait. Dropped without an answer, it takes the call along, and so the memory of its messages.
struct Place<'a> {
    shared: &'a Shared,
    /// None once it is answered.
    number: Option<u64>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let call = self.shared.queue().waiting.remove(&number);
            drop(call);
        }
    }
}

impl Shared {
    async fn add(&self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        Addition::new(messages).by(&self.connections, &self.statements, &self.turns).await
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while it is held.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls for one statement.
    fn next(&self) -> Vec<Call> {
        let mut queue = self.queue();
        let (mut calls, mut messages, mut bytes) = (Vec::new(), 0, 0);
        while let Some(call) = queue.waiting.first_entry() {
            messages += call.get().messages.len();
            bytes += call.get().bytes;
            let full = messages > SHARED_MESSAGES || bytes > SHARED_BYTES;
            if full && !calls.is_empty() {
                break;
            }
            calls.push(call.remove());
        }
        calls
    }

    /// Sends calls together, and answers each.
    async fn carry(&self, mut calls: Vec<Call>) {
        let counts: Vec<usize> = calls.iter().map(|call| call.messages.len()).collect();
        let messages: Vec<PreparedMessage> =
            calls.iter_mut().flat_map(|call| call.messages.drain(..)).collect();
        let added = tokio::select! {
            added = self.add(&messages) => added,
            () = all_gone(&mut calls) => return,
        };
        let error = match added {
            Ok(enqueued) => {
                let mut enqueued = enqueued.into_iter();
                for (call, count) in calls.into_iter().zip(counts) {
                    // The caller may have gone; the messages are there all the same.
                    let _ = call.reply.send(Ok(enqueued.by_ref().take(count).collect()));
                }
                return;
            }
            Err(error) => error,
        };
        let mut common = (calls.len() == 1 || !is_about_messages(&error)).then(|| Arc::new(error));
        let mut messages = messages.into_iter();
        for (mut call, count) in calls.into_iter().zip(counts) {
            let own: Vec<_> = messages.by_ref().take(count).collect();
            let answer = match &common {
                Some(error) => Err(copy(error)),
                None => tokio::select! {
                    answer = self.add(&own) => answer,
                    () = call.reply.closed() => continue,
                },
            };
            // Something else has gone wrong by now, and will for the rest.
            let answer = answer.map_err(|error| match is_about_messages(&error) || common.is_some() {
                true => error,
                false => copy(common.insert(Arc::new(error))),
            });
            let _ = call.reply.send(answer);
        }
    }
}

/// Ends when nobody waits for any of the calls.
async fn all_gone(calls: &mut [Call]) {
    for call in calls {
        call.reply.closed().await;
    }
}

/// The right to have a statement under way. Whoever lets go of it sees to those who wait.
struct Turn {
    shared: Arc<Shared>,
    /// False until the task that has it has run for the first time. One that never does belongs to a runtime that ends.
    began: bool,
}

impl Turn {
    /// Carries what waits until nothing does.
    async fn serve(mut self) {
        self.began = true;
        loop {
            let calls = self.shared.next();
            if calls.is_empty() {
                return;
            }
            self.shared.carry(calls).await;
            // Those who have just been answered may have more; let them come along.
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.under_way -= 1;
        if queue.waiting.is_empty() {
            return;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if self.began => {
                queue.under_way += 1;
                drop(queue);
                runtime.spawn(Self { shared: Arc::clone(&self.shared), began: false }.serve());
            }
            // Without a runtime to go on in, those who wait are told rather than left.
            _ => queue.waiting.clear(),
        }
    }
}

/// Whether the server has refused the statement for what is in it. Nothing was written then.
fn is_about_messages(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::AlreadyExists) && is_from_server(error)
}

fn abandoned() -> Error {
    let message = "the runtime that carried the message has ended; it may or may not have been enqueued";
    Error::new(ErrorKind::Unavailable, ENQUEUE, message)
}

/// The same error for one more caller.
fn copy(error: &Arc<Error>) -> Error {
    let copy = Error::new(error.kind(), error.operation(), error.message())
        .with_retryable(error.is_retryable())
        .with_source(Common(Arc::clone(error)));
    match error.field() {
        Some(field) => copy.with_field(field),
        None => copy,
    }
}

/// An error that several callers share.
struct Common(Arc<Error>);

impl fmt::Display for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::error::Error for Common {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::poll;
    use mainstay_core::WorkItemId;
    use mainstay_core::outbox::{Limits, Message};
    use mainstay_core::store::{Allowance, Names};

    use super::*;
    use crate::error::PoolLimits;
    use crate::options::PostgresBuilder;
    use crate::provider::connector;

    fn gathering() -> Gathering {
        let options = PostgresBuilder::new("postgres://nobody@localhost/none");
        let (target, connector) = connector(&options, "test", Allowance::new(None)).unwrap();
        let second = Duration::from_secs(1);
        let limits = PoolLimits { address: target.address(), connect: second, acquire: second, call: second };
        let connections = Connections::new(connector, 1, false, limits).unwrap();
        Gathering::new(connections, QueueStatements::shared(&Names::default()).unwrap())
    }

    fn prepared(message: Message) -> Vec<PreparedMessage> {
        vec![message.prepare(&Limits::default()).unwrap()]
    }

    #[tokio::test]
    async fn a_caller_who_gives_up_takes_its_messages_along() {
        let gathering = gathering();
        // As if both statements hung.
        gathering.0.queue().under_way = UNDER_WAY;
        let messages: Vec<_> = (0..3).map(|_| prepared(Message::new("t", "payload"))).collect();
        let mut calls: Vec<_> =
            messages.iter().map(|messages| Box::pin(gathering.enqueue(messages))).collect();
        for call in &mut calls {
            assert!(poll!(call).is_pending());
        }
        drop(calls.remove(1));
        let waiting: Vec<u64> = gathering.0.queue().waiting.keys().copied().collect();
        assert_eq!(waiting, [0, 2], "only the one that left is gone");
        drop(calls);
        assert!(gathering.0.queue().waiting.is_empty());
    }

    #[test]
    fn what_can_wait_for_another_transaction_goes_alone() {
        assert!(gatherable(&prepared(Message::new("t", ""))).is_some());
        assert!(gatherable(&prepared(Message::new("t", "").idempotency_key("k"))).is_none());
        assert!(gatherable(&prepared(Message::new("t", "").work_item_id(WorkItemId::new()))).is_none());
    }
}
