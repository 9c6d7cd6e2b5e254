//! Processes die while they settle the steps of a join. Each step is counted once, and what follows is done once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
#[macro_use]
mod support;

use std::collections::HashSet;
use std::time::Duration;

use mainstay::join::{Join, JoinState, MemberPage, MemberState};
use mainstay::outbox::{Message, MessageFilter, Outbox, Page};
use mainstay::{JoinId, Joins, NewJoin};
use mainstay_e2e::Stall;
use mainstay_tests::eventually;
use support::{Database, Worker};

const DEADLINE: Duration = Duration::from_secs(120);

/// A join in a database, its steps in the outbox.
struct Scene {
    database: Database,
    outbox: Outbox,
    joins: Joins,
    join: JoinId,
}

impl Scene {
    /// A join of so many steps, whose handlers leave an effect each, and so does what follows.
    async fn new(database: Database, steps: u32) -> Self {
        let (outbox, joins) = (database.outbox().await, database.joins().await);
        let follows = NewJoin::new(steps).on_completed(Message::new("record", "follows"));
        let join = joins.start(follows).await.unwrap();
        let messages = (0..steps).map(|n| Message::new("record", n.to_string()).join(join)).collect();
        outbox.enqueue_many(messages).await.unwrap();
        Self { database, outbox, joins, join }
    }

    async fn read(&self) -> Join {
        self.joins.get(self.join).await.unwrap().unwrap()
    }

    async fn worker(&self) -> Worker {
        Worker::start(&self.database, &[]).await
    }

    /// Every step was counted once, and every step and what follows was handled once.
    async fn assert_ended(&self, steps: u32) {
        let join = self.read().await;
        assert_eq!((join.state, join.completed, join.failed), (JoinState::Completed, steps, 0));
        let members = self.joins.members(self.join, MemberPage::first(10_000)).await.unwrap();
        assert!(members.iter().all(|member| member.state == MemberState::Completed));
        assert_eq!(members.len(), usize::try_from(steps).unwrap());
        let page = Page { limit: 1_000, ..Page::default() };
        let messages = self.outbox.list(&MessageFilter::all(), page).await.unwrap();
        assert_eq!(messages.len(), members.len() + 1, "one message follows");
        let wanted: HashSet<_> = messages.iter().map(|message| message.message_id.to_string()).collect();
        let effects = mainstay_e2e::effects(self.database.url()).await.unwrap();
        assert_eq!(effects.len(), wanted.len(), "an effect was lost or doubled");
        assert_eq!(effects.into_iter().collect::<HashSet<_>>(), wanted);
    }

    async fn until_settled(&self, messages: u64) {
        eventually(DEADLINE, "all messages are settled", async || {
            self.outbox.stats().await.is_ok_and(|stats| stats.open() == 0 && stats.done == messages)
        })
        .await;
    }
}

/// Workers are killed again and again while they settle.
async fn join_032_killed_workers_count_each_step_once(database: Database) {
    let scene = Scene::new(database, 300).await;
    let mut workers = vec![scene.worker().await, scene.worker().await];
    for round in 0..4 {
        let goal = (round + 1) * 40;
        eventually(DEADLINE, "some more steps are counted", async || scene.read().await.completed >= goal)
            .await;
        workers.remove(0).kill().await;
        workers.push(scene.worker().await);
    }
    scene.until_settled(301).await;
    scene.assert_ended(300).await;
}

/// A worker is killed when its step is marked and not yet counted.
async fn join_032_killed_between_a_step_and_its_count(database: Database) {
    let stalled = database.direct_url();
    let scene = Scene::new(database, 5).await;
    let stall = Stall::begin_counting(&stalled).await.unwrap();
    let worker = scene.worker().await;
    eventually(DEADLINE, "the worker is about to count", async || stall.is_reached().await.unwrap()).await;
    worker.kill().await;
    let join = scene.read().await;
    assert_eq!((join.state, join.completed), (JoinState::Pending, 0), "counted by somebody who is dead");
    assert_eq!(scene.outbox.stats().await.unwrap().done, 0, "settled by somebody who is dead");
    stall.end_sessions().await.unwrap();
    stall.end().await.unwrap();
    let worker = scene.worker().await;
    scene.until_settled(6).await;
    worker.stop().await;
    scene.assert_ended(5).await;
}

on_every_database!(
    join_032_killed_workers_count_each_step_once["JOIN-032", "MST-001"],
    join_032_killed_between_a_step_and_its_count["JOIN-032", "MST-001"],
);
