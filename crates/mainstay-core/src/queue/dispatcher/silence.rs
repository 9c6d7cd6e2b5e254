//! Tests of a dispatcher whose database does not answer. The clock only moves when nothing else does, so a bound shows as the time a call
//! was given up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::Dispatcher;
use crate::id::{MessageId, WorkItemId};
use crate::job::{CurrentRun, Jobs, Trigger};
use crate::outbox::Outbox;
use crate::queue::{ClaimHandle, Claimed, Context, DispatcherOptions, Handler, Registry, TopicPolicy};
use crate::renewing::call_limit;
use crate::runtime::{Running, start};
use crate::silent::{Silent, SilentProvider};
use crate::store::{JobStore, OutboxStore};
use crate::timer::{TimerOptions, TimerService, Timers};

const HOUR: Duration = Duration::from_secs(3_600);
const LEASE: Duration = Duration::from_secs(2);

/// A dispatcher over this database that waits for an hour at a time.
fn dispatch(silent: &Arc<Silent>, lease: Duration, handled: &Arc<Notify>) -> Running {
    let mut registry = Registry::default();
    let handled = Arc::clone(handled);
    let handler = move |_: Context| {
        handled.notify_one();
        std::future::ready(())
    };
    registry.add("t", Handler::raw(handler), TopicPolicy::default()).unwrap();
    let options = DispatcherOptions { lease, poll_min: HOUR, poll_max: HOUR, ..DispatcherOptions::default() };
    let store = Arc::clone(silent) as Arc<dyn OutboxStore>;
    let dispatcher = Dispatcher::new(Outbox::new(store), registry, options).unwrap();
    start(Arc::new(dispatcher.noting_runs_in(Jobs::new(Arc::clone(silent) as Arc<dyn JobStore>))))
}

/// How long it takes until a call was made so often.
async fn until(silent: &Silent, call: &str, count: usize) -> Duration {
    let begun = Instant::now();
    let reached = timeout(2 * HOUR, silent.reaches(call, count)).await;
    assert!(reached.is_ok(), "{call}: {} instead of {count}", silent.count(call));
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_an_answer_is_given_up_within_two_leases_however_long_it_was_to_be() {
    let silent = Arc::new(Silent::default());
    silent.idle.store(true, Ordering::SeqCst);
    let _running = dispatch(&silent, LEASE, &Arc::default());
    until(&silent, "queue.wait", 1).await;
    assert!(until(&silent, "queue.claim", 2).await <= 2 * LEASE + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_an_answer_is_given_up_within_a_minute_however_long_its_lease() {
    let silent = Arc::new(Silent::default());
    let _running = dispatch(&silent, 24 * HOUR, &Arc::default());
    until(&silent, "queue.claim", 1).await;
    assert!(until(&silent, "queue.claim", 2).await <= Duration::from_secs(61));
}

#[tokio::test(start_paused = true)]
async fn a_handler_of_a_run_begins_although_its_start_can_not_be_noted() {
    let silent = Arc::new(Silent::default());
    let now = Timestamp::now();
    let run = CurrentRun::new("report".to_owned(), WorkItemId::new(), now, Trigger::Manual);
    let (handle, lapses) = (ClaimHandle::new(run.id, 1), now + LEASE);
    let mut claimed = Claimed::new(handle, MessageId::new(), "t".to_owned(), String::new(), 1, now, lapses);
    claimed.headers = run.to_headers();
    silent.claimable.lock().unwrap().push(claimed);
    let handled = Arc::<Notify>::default();
    let _running = dispatch(&silent, LEASE, &handled);
    until(&silent, "job.started", 1).await;
    let begun = timeout(2 * LEASE, handled.notified()).await;
    assert!(begun.is_ok(), "the handler waits for a note");
}

#[tokio::test(start_paused = true)]
async fn a_turn_without_an_answer_is_given_up_within_two_leases() {
    let silent = Arc::new(Silent::default());
    let provider = SilentProvider(Arc::clone(&silent));
    let timers = Timers::new(&provider);
    let limit = call_limit(LEASE);
    let service = TimerService::new(timers, TimerOptions::default()).unwrap().with_call_limit(limit);
    let _running = start(Arc::new(service));
    until(&silent, "outbox.forward", 1).await;
    assert!(until(&silent, "outbox.forward", 2).await <= 2 * LEASE + Duration::from_secs(1));
    // And so is the look of a wait.
    silent.idle.store(true, Ordering::SeqCst);
    until(&silent, "queue.wait", 1).await;
    let turns = silent.count("outbox.forward");
    assert!(until(&silent, "outbox.forward", turns + 1).await <= 2 * LEASE + Duration::from_secs(1));
}
