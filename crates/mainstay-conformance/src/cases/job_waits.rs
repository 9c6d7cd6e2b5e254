//! Schedulers asleep: what wakes them, and what does not.

use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::job::{JobDefinition, Jobs};
use mainstay_core::store::{WaitRequest, Wake};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::World;

cases! { $ job_waits_cases:
    r18_a_scheduler_sleeps_until_the_next_occurrence ["R18"],
    r18_whoever_changes_a_job_wakes_a_scheduler ["R18"],
    r18_what_is_far_away_or_disabled_wakes_nobody ["R18"],
}

/// Much longer than any of the waits below take: only a wait that misses its reason gets there.
const LONG: Duration = Duration::from_secs(120);

fn every_second(name: &str) -> JobDefinition {
    JobDefinition::new(name, "t", "* * * * * *")
}

fn far_away(name: &str) -> JobDefinition {
    JobDefinition::new(name, "t", "@yearly")
}

async fn r18_a_scheduler_sleeps_until_the_next_occurrence(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, owner) = (world.jobs(), OwnerToken::new());
    jobs.create_or_update(every_second("ticker")).await.unwrap();
    for _ in 0..2 {
        // It may end a little early; what counts is that it does not sleep through.
        while jobs.materialise(owner).await.unwrap().runs.is_empty() {
            let woken = jobs.store().wait(&WaitRequest::new(owner).timeout(LONG)).await.unwrap();
            assert_ne!(woken, Wake::TimedOut);
        }
        // The run ends the next wait, until it is dispatched.
        let woken = jobs.store().wait(&WaitRequest::new(owner).timeout(LONG)).await.unwrap();
        assert_ne!(woken, Wake::TimedOut);
        jobs.dispatch(owner, 10).await.unwrap();
    }
    jobs.store().leave(owner).await;
}

async fn r18_whoever_changes_a_job_wakes_a_scheduler(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = Jobs::new(fx.second().await.jobs());
    let hears = fx.hears_of_enqueues();
    let timeout = if hears { LONG } else { Duration::from_secs(1) };
    world.jobs().create_or_update(far_away("there")).await.unwrap();
    world.jobs().create_or_update(every_second("off").enabled(false)).await.unwrap();
    for (round, change) in ["created", "updated", "enabled", "triggered"].into_iter().enumerate() {
        let (store, owner) = (world.provider.jobs(), OwnerToken::new());
        let request = WaitRequest::new(owner).timeout(timeout);
        let waiting = tokio::spawn(async move {
            // A wake-up too many is allowed: it costs one look. What counts is the one for something that is due.
            loop {
                let woken = store.wait(&request).await.unwrap();
                let due = !store.due(owner, None, 10).await.unwrap().jobs.is_empty();
                let run = !store.dispatch(owner, 10).await.unwrap().is_empty();
                if due || run || woken == Wake::TimedOut {
                    return woken;
                }
            }
        });
        // Whether the wait has begun by now or not, it must not miss this.
        for _ in 0..round * 20 {
            tokio::task::yield_now().await;
        }
        match change {
            "created" => drop(second.create_or_update(every_second("new")).await.unwrap()),
            "updated" => drop(second.create_or_update(every_second("there").enabled(true)).await.unwrap()),
            "enabled" => assert!(second.enable("off").await.unwrap()),
            _ => drop(second.trigger("there").await.unwrap()),
        }
        let woken = waiting.await.unwrap();
        assert!(!hears || woken != Wake::TimedOut, "{change}: it slept through");
        // Nothing is near in the next round.
        for job in second.list(None, 1_000).await.unwrap() {
            second.disable(&job.name).await.unwrap();
        }
        second.dispatch(OwnerToken::new(), 100).await.unwrap();
    }
}

async fn r18_what_is_far_away_or_disabled_wakes_nobody(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, owner) = (world.jobs(), OwnerToken::new());
    jobs.create_or_update(far_away("far")).await.unwrap();
    jobs.create_or_update(every_second("off").enabled(false)).await.unwrap();
    let request = WaitRequest::new(owner).timeout(Duration::from_millis(50));
    // A wake-up for nothing is allowed; a stream of them is not.
    let mut wakes = 0;
    while jobs.store().wait(&request).await.unwrap() != Wake::TimedOut {
        wakes += 1;
        assert!(wakes < 20, "it never waits");
    }
    // Nor does a job keep those awake who only work on runs.
    jobs.create_or_update(every_second("off").enabled(true)).await.unwrap();
    world.advance(Duration::from_secs(5)).await;
    let runs = world.run_queue();
    wakes = 0;
    while runs.store().wait(&request).await.unwrap() != Wake::TimedOut {
        wakes += 1;
        assert!(wakes < 20, "it never waits");
    }
}
