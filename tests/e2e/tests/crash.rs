//! Processes die at the worst moment. Nothing is lost, nothing is done twice in the same database: neither messages nor
//! timers nor runs of jobs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
#[macro_use]
mod support;

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use mainstay::id::{MessageId, WorkItemId};
use mainstay::job::{JobRun, RunFilter, RunState};
use mainstay::outbox::{Message, Outbox, OutboxMessage, Page};
use mainstay::queue::{FailureReason, Status};
use mainstay::{Begin, Inbox, Incoming, JobDefinition, Jobs, NewTimer, Timers};
use mainstay_e2e::Stall;
use mainstay_tests::eventually;
use support::{Database, Worker};

const DEADLINE: Duration = Duration::from_secs(120);

/// How work gets to the handlers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Messages are enqueued.
    Messages,
    /// Timers are scheduled, and the workers fire them.
    Timers,
    /// Jobs have missed occurrences, and the workers are schedulers that make up for them.
    Jobs,
    /// Messages are received, each more than once.
    Received,
}

/// A database, and how work gets to the handlers in it.
struct Scene {
    database: Database,
    way: Way,
    /// The queue that the handlers take their messages from.
    outbox: Outbox,
    inbox: Inbox,
    timers: Timers,
    jobs: Jobs,
}

/// What was sent.
struct Sent {
    count: usize,
    /// The work items; not known of runs that nobody has made yet.
    items: Vec<WorkItemId>,
    /// The jobs of which there are to be runs.
    jobs: Vec<String>,
}

impl Scene {
    async fn new(database: Database, way: Way) -> Self {
        let (outbox, timers, jobs) =
            (database.outbox().await, database.timers().await, database.jobs().await);
        let inbox = database.inbox().await;
        let outbox = if way == Way::Received { inbox.queue().clone() } else { outbox };
        Self { database, way, outbox, inbox, timers, jobs }
    }

    async fn worker(&self, arguments: &[&str]) -> Worker {
        let mut worker = self.doomed_worker(arguments);
        worker.line("ready").await;
        worker
    }

    /// One that may die of its first message before it has said that it is ready.
    fn doomed_worker(&self, arguments: &[&str]) -> Worker {
        let way: &[&str] = match self.way {
            Way::Messages => &[],
            Way::Timers => &["--timers"],
            Way::Jobs => &["--jobs"],
            Way::Received => &["--inbox"],
        };
        Worker::spawn(&self.database, &[way, arguments].concat(), &[])
    }

    /// Sends `count` messages. Timers fall due over a second, so that they fire while things happen. Jobs have missed up to 20
    /// occurrences each.
    async fn send(&self, topic: &str, count: u64) -> Sent {
        let mut sent = Sent { count: usize::try_from(count).unwrap(), items: Vec::new(), jobs: Vec::new() };
        match self.way {
            Way::Messages => {
                let messages = (0..count).map(|n| Message::new(topic, n.to_string())).collect();
                let enqueued = self.outbox.enqueue_many(messages).await.unwrap();
                sent.items = enqueued.iter().map(|enqueued| enqueued.work_item).collect();
            }
            Way::Received => {
                let incoming = |_| {
                    let id = MessageId::new();
                    Incoming::new("e2e", id.to_string(), Message::new(topic, "").message_id(id))
                };
                let incoming: Vec<Incoming> = (0..count).map(incoming).collect();
                let received = self.inbox.enqueue_many(incoming.clone()).await.unwrap();
                sent.items = received.iter().filter_map(|received| received.work_item).collect();
                self.inbox.enqueue_many(incoming).await.unwrap();
            }
            Way::Timers => {
                let due = |n| Duration::from_millis(n * 1_000 / count);
                let timers = (0..count).map(|n| NewTimer::new(topic, n.to_string(), due(n))).collect();
                let scheduled = self.timers.schedule_many(timers).await.unwrap();
                sent.items = scheduled.iter().map(|scheduled| scheduled.work_item).collect();
            }
            Way::Jobs => {
                for number in 0..count.div_ceil(20) {
                    let name = format!("{topic}-{}-{number}", WorkItemId::new());
                    let missed = (count - number * 20).min(20);
                    mainstay_e2e::miss(self.database.url(), &name, topic, missed).await.unwrap();
                    sent.jobs.push(name);
                }
            }
        }
        sent
    }

    /// Sends one message whose id is known at once.
    async fn send_one(&self, topic: &str) -> WorkItemId {
        if self.way != Way::Jobs {
            return self.send(topic, 1).await.items[0];
        }
        self.jobs.create_or_update(JobDefinition::new(topic, topic, "@yearly")).await.unwrap();
        self.jobs.trigger(topic).await.unwrap().id
    }

    /// The runs that were made of what was sent.
    async fn runs(&self, sent: &Sent) -> Vec<JobRun> {
        let mut runs = Vec::new();
        for job in &sent.jobs {
            runs.extend(self.jobs.runs(&RunFilter::all().job(job), Page::default()).await.unwrap());
        }
        runs
    }

    /// Nothing of what was sent is under way.
    async fn is_settled(&self, sent: &[Sent]) -> bool {
        for sent in sent.iter().filter(|sent| !sent.jobs.is_empty()) {
            let runs = self.runs(sent).await;
            if runs.len() < sent.count || !runs.iter().all(|run| run.state.is_over()) {
                return false;
            }
        }
        let timers = self.timers.stats().await.is_ok_and(|stats| stats.pending + stats.claimed == 0);
        timers && self.outbox.stats().await.is_ok_and(|stats| stats.open() == 0)
    }

    /// The ledger of received messages says the same as their queue.
    async fn assert_ledger(&self) {
        if self.way == Way::Received {
            let stats = self.inbox.stats().await.unwrap();
            assert_eq!((stats.ledger.done, stats.ledger.dead), (stats.queue.done, stats.queue.failed));
        }
    }

    /// The message; none if it is still a timer or a run.
    async fn message(&self, id: WorkItemId) -> Option<OutboxMessage> {
        self.outbox.get(id).await.unwrap()
    }

    /// Every one of these was handled, each once.
    async fn assert_handled_once(&self, sent: &[Sent]) {
        let mut wanted = HashSet::new();
        for sent in sent {
            for id in &sent.items {
                wanted.insert(self.message(*id).await.unwrap().message_id.to_string());
            }
            // One run for each occurrence, and each run is its message.
            let runs = self.runs(sent).await;
            assert_eq!(sent.items.len() + runs.len(), sent.count);
            let occurrences: HashSet<_> = runs.iter().map(|run| (&run.job, run.nominal_at)).collect();
            assert_eq!(occurrences.len(), runs.len(), "an occurrence was doubled");
            for run in runs {
                assert_eq!(run.state, RunState::Succeeded, "{run:?}");
                wanted.insert(run.id.to_string());
            }
        }
        let effects = mainstay_e2e::effects(self.database.url()).await.unwrap();
        assert_eq!(effects.len(), wanted.len(), "an effect was lost or doubled");
        assert_eq!(effects.into_iter().collect::<HashSet<_>>(), wanted);
    }
}

/// MST-001: workers killed at any point lose no message; MST-030: effects are exactly once all the same.
async fn killed_workers(scene: Scene) {
    let sent = [scene.send("record", 400).await];
    let mut workers = vec![scene.worker(&[]).await, scene.worker(&[]).await];
    for round in 0..6 {
        // Killed after some progress, so that claims, handlers and settles are all under way somewhere.
        let goal = (round + 1) * 40;
        eventually(DEADLINE, "some more messages are done", async || {
            scene.outbox.stats().await.is_ok_and(|stats| stats.done >= goal)
        })
        .await;
        let victim = usize::try_from(round).unwrap() % workers.len();
        workers.remove(victim).kill().await;
        workers.push(scene.worker(&[]).await);
    }
    eventually(DEADLINE, "all messages are settled", async || scene.is_settled(&sent).await).await;
    let stats = scene.outbox.stats().await.unwrap();
    assert_eq!((stats.done, stats.failed), (400, 0));
    scene.assert_handled_once(&sent).await;
    scene.assert_ledger().await;
}

async fn mst_001_killed_workers_lose_nothing(database: Database) {
    killed_workers(Scene::new(database, Way::Messages).await).await;
}

async fn mst_001_killed_workers_lose_no_timer(database: Database) {
    killed_workers(Scene::new(database, Way::Timers).await).await;
}

async fn mst_001_killed_schedulers_lose_no_run(database: Database) {
    killed_workers(Scene::new(database, Way::Jobs).await).await;
}

async fn mst_001_killed_workers_lose_no_received_message(database: Database) {
    killed_workers(Scene::new(database, Way::Received).await).await;
}

/// MST-004: a process that is killed after it has claimed timers or runs and before it has made messages of them.
async fn killed_midway(scene: Scene) {
    let mut all = Vec::new();
    // The server finds out that the client is gone, or it ends what it has begun: both may happen.
    for server_notices in [true, false] {
        let stall = Stall::begin(&scene.database.direct_url()).await.unwrap();
        let sent = scene.send("record", 5).await;
        let worker = scene.worker(&[]).await;
        eventually(DEADLINE, "the worker is about to enqueue", async || stall.is_reached().await.unwrap())
            .await;
        worker.kill().await;
        for timer in &sent.items {
            let open = scene.timers.get(*timer).await.unwrap().unwrap();
            assert!(open.is_pending(), "{open:?}: claimed by somebody who is dead");
            assert!(scene.message(*timer).await.is_none());
        }
        for run in scene.runs(&sent).await {
            assert_eq!(run.state, RunState::Pending, "{run:?}: claimed by somebody who is dead");
            assert!(scene.message(run.id).await.is_none());
        }
        if server_notices {
            stall.end_sessions().await.unwrap();
        }
        stall.end().await.unwrap();
        all.push(sent);
        let worker = scene.worker(&[]).await;
        eventually(DEADLINE, "everything is handled", async || scene.is_settled(&all).await).await;
        worker.stop().await;
        scene.assert_handled_once(&all).await;
    }
}

async fn mst_004_killed_between_claim_and_enqueue(database: Database) {
    killed_midway(Scene::new(database, Way::Timers).await).await;
}

async fn mst_004_killed_between_claim_and_enqueue_of_runs(database: Database) {
    killed_midway(Scene::new(database, Way::Jobs).await).await;
}

/// MST-005: a message that kills its process stops at the delivery limit, and takes no other message along.
async fn poison(scene: Scene) {
    let arguments = ["--delivery-limit", "3"];
    let poison = scene.send_one("die").await;
    let is_failed = async || scene.message(poison).await.is_some_and(|m| m.status == Status::Failed);
    let mut deaths = 0;
    while !is_failed().await {
        assert!(deaths <= 3, "delivered more often than the limit allows");
        let mut worker = scene.doomed_worker(&arguments);
        tokio::select! {
            () = worker.died() => deaths += 1,
            () = eventually(DEADLINE, "the poison message is failed", is_failed) => worker.kill().await,
        }
    }
    // A process that stalls until its lease has lapsed is delivered to without a death, so there may be fewer.
    assert!((1..=3).contains(&deaths), "{deaths} deaths");
    let ended = scene.message(poison).await.unwrap();
    assert_eq!(ended.reason, Some(FailureReason::DeliveryLimit));
    assert_eq!(ended.attempts, 3);
    // Sent afterwards: the queue goes on as ever.
    let others = [scene.send("record", 5).await];
    let worker = scene.worker(&arguments).await;
    eventually(DEADLINE, "the others are done", async || scene.is_settled(&others).await).await;
    worker.stop().await;
    assert_eq!(scene.outbox.stats().await.unwrap().done, 5);
    scene.assert_ledger().await;
    if scene.way == Way::Jobs {
        let run = scene.jobs.run(poison).await.unwrap().unwrap();
        assert_eq!((run.state, run.attempts), (RunState::Failed, 3));
        assert!(run.error.is_some() && run.started_at.is_some());
    }
}

async fn mst_005_a_poison_message_stops_at_the_limit(database: Database) {
    poison(Scene::new(database, Way::Messages).await).await;
}

async fn mst_005_a_poisonous_timer_stops_at_the_limit(database: Database) {
    poison(Scene::new(database, Way::Timers).await).await;
}

async fn mst_005_a_poisonous_run_stops_at_the_limit(database: Database) {
    poison(Scene::new(database, Way::Jobs).await).await;
}

async fn mst_005_a_received_poison_message_stops_at_the_limit(database: Database) {
    poison(Scene::new(database, Way::Received).await).await;
}

/// MST-002: a graceful stop leaves nothing in progress, not even what a handler would not give up.
async fn graceful_stop(scene: Scene) {
    let sent = scene.send("hang", 30).await;
    // A lease so long that nothing but a release can free the messages within the test.
    let mut worker = scene.worker(&["--lease-ms", "3600000"]).await;
    worker.line("hanging").await;
    worker.stop().await;
    let (stats, timers) = (scene.outbox.stats().await.unwrap(), scene.timers.stats().await.unwrap());
    let runs = scene.runs(&sent).await;
    let pending = runs.iter().filter(|run| run.state == RunState::Pending).count() as u64;
    assert_eq!((stats.ready + timers.pending + pending, stats.in_progress, timers.claimed), (30, 0, 0));
    assert!(!runs.iter().any(|run| matches!(run.state, RunState::Claimed | RunState::Running)));
    for id in sent.items.into_iter().chain(runs.iter().map(|run| run.id)) {
        let message = scene.message(id).await;
        assert!(
            message.is_none_or(|message| message.attempts == 0),
            "a release must not count as a delivery"
        );
    }
}

async fn mst_002_a_graceful_stop_leaves_nothing_in_progress(database: Database) {
    graceful_stop(Scene::new(database, Way::Messages).await).await;
}

async fn mst_002_a_graceful_stop_leaves_no_timer_in_progress(database: Database) {
    graceful_stop(Scene::new(database, Way::Timers).await).await;
}

async fn mst_002_a_graceful_stop_leaves_no_run_in_progress(database: Database) {
    graceful_stop(Scene::new(database, Way::Jobs).await).await;
}

async fn mst_002_a_graceful_stop_leaves_no_received_message_in_progress(database: Database) {
    graceful_stop(Scene::new(database, Way::Received).await).await;
}

/// R14: the winner is killed with SIGKILL; once its reservation has lapsed, exactly one of the next hundred gets the message.
async fn r14_a_killed_winner_is_followed_by_one(database: Database) {
    let inbox = database.inbox().await;
    let mut winner = Worker::spawn(&database, &["--guard", "m", "--lease-ms", "2000"], &[]);
    winner.line("guarding").await;
    winner.line("ready").await;
    assert!(matches!(inbox.begin("e2e", "m").await.unwrap(), Begin::Busy { .. }));
    winner.kill().await;
    let started = std::time::Instant::now();
    let mut next = Vec::new();
    while next.is_empty() {
        assert!(started.elapsed() < DEADLINE, "nobody got the message of the dead one");
        let begins = join_all((0..100).map(|_| inbox.begin("e2e", "m"))).await;
        next.extend(begins.into_iter().filter_map(|begin| begin.unwrap().into_new()));
    }
    assert_eq!(next.len(), 1);
    let guard = next.remove(0);
    assert_eq!(guard.attempt(), 2);
    guard.complete().await.unwrap();
    assert!(matches!(inbox.begin("e2e", "m").await.unwrap(), Begin::Done));
}

on_every_database!(
    mst_001_killed_workers_lose_nothing["MST-001", "MST-030", "R2"],
    mst_001_killed_workers_lose_no_timer["MST-001", "MST-030", "R17"],
    mst_001_killed_schedulers_lose_no_run["MST-001", "MST-030", "R17", "R18"],
    mst_002_a_graceful_stop_leaves_nothing_in_progress["MST-002", "R12"],
    mst_002_a_graceful_stop_leaves_no_timer_in_progress["MST-002", "R12", "R17"],
    mst_002_a_graceful_stop_leaves_no_run_in_progress["MST-002", "R12", "R17"],
    mst_004_killed_between_claim_and_enqueue["MST-004", "R17"],
    mst_004_killed_between_claim_and_enqueue_of_runs["MST-004", "R17"],
    mst_005_a_poison_message_stops_at_the_limit["MST-005", "R3"],
    mst_005_a_poisonous_timer_stops_at_the_limit["MST-005", "R3", "R17"],
    mst_005_a_poisonous_run_stops_at_the_limit["MST-005", "R3", "R17"],
    mst_001_killed_workers_lose_no_received_message["MST-001", "MST-030", "R15"],
    mst_002_a_graceful_stop_leaves_no_received_message_in_progress["MST-002", "R12"],
    mst_005_a_received_poison_message_stops_at_the_limit["MST-005", "R3"],
    r14_a_killed_winner_is_followed_by_one["R14", "MST-001"],
);
