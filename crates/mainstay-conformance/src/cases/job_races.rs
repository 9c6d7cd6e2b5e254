//! Definitions of jobs that several change at once: nobody's change is lost, and nothing comes back.

use std::time::Duration;

use futures_util::future::{join, join_all};
use mainstay_core::job::{Expected, JobChange, JobDefinition, JobMismatch, Jobs, Registered};
use mainstay_core::{Error, ErrorKind, Result};

use super::jobs::daily;
use crate::case::{Verdict, cases};
use crate::fixture::Fixture;
use crate::world::World;

cases! { $ job_races_cases:
    r18_of_many_who_create_a_job_at_once_one_does ["R18", "PRIM-SCHED-005"],
    r18_what_was_changed_since_it_was_read_is_not_written_over ["R18", "PRIM-SCHED-005"],
    r18_a_job_that_was_registered_anew_is_another_one ["R18", "PRIM-SCHED-008"],
    r18_updates_at_once_lose_nothing ["R18", "PRIM-SCHED-005"],
    r18_an_update_does_not_enable_what_is_disabled_at_the_same_moment ["R18"],
    r18_an_update_does_not_bring_back_what_is_deleted_at_the_same_moment ["R18", "PRIM-SCHED-008"],
    r18_a_registration_says_what_it_has_done ["R18", "PRIM-SCHED-005"],
    r18_other_languages_say_which_version_they_expect ["R18"],
}

/// How often two are sent off at once. Most of these meet.
const ROUNDS: usize = 20;

/// Several instances on one database.
async fn crew(fx: &dyn Fixture, size: usize) -> Vec<Jobs> {
    let mut crew = Vec::new();
    for _ in 0..size {
        crew.push(Jobs::new(fx.second().await.jobs()));
    }
    crew
}

/// It was refused, for this version that is there.
#[track_caller]
fn refused(registered: Result<Registered>, found: Option<i64>) {
    let error = registered.expect_err("what is there is not what was expected");
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Mismatch, false), "{error}");
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<JobMismatch>());
    let mismatch = source.expect("the error tells what was found");
    assert_eq!((mismatch.job.as_str(), mismatch.found), ("nightly", found), "{error}");
}

async fn r18_of_many_who_create_a_job_at_once_one_does(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let crew = crew(fx, 4).await;
    let job = daily(&world, "nightly").await;
    for _ in 0..ROUNDS {
        let all = crew.iter().chain(&crew).enumerate();
        let created = join_all(all.map(async |(number, jobs)| {
            jobs.register(job.clone().payload(number.to_string()), Expected::Nothing).await
        }))
        .await;
        let (created, others): (Vec<_>, Vec<_>) = created.into_iter().partition(Result::is_ok);
        assert_eq!((created.len(), others.len()), (1, 7));
        others.into_iter().for_each(|other| refused(other, Some(1)));
        let created = created.into_iter().next().unwrap().unwrap();
        assert_eq!((created.change, created.job.version), (JobChange::Created, 1));
        assert!(created.job.next_nominal_at.is_some(), "whoever calculated it");
        assert_eq!(world.jobs().get("nightly").await.unwrap(), Some(created.job));
        assert_eq!(world.jobs().delete("nightly").await.unwrap(), Some(0));
    }
}

async fn r18_what_was_changed_since_it_was_read_is_not_written_over(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, second) = (world.jobs(), Jobs::new(fx.second().await.jobs()));
    let job = daily(&world, "nightly").await;
    let read = jobs.create_or_update(job.clone()).await.unwrap();
    let stale = || jobs.register(read.definition().priority(3), Expected::from(&read));

    second.create_or_update(job.clone().payload("theirs")).await.unwrap();
    refused(stale().await, Some(2));
    assert!(second.disable("nightly").await.unwrap());
    refused(stale().await, Some(3));
    assert!(second.enable("nightly").await.unwrap());
    refused(stale().await, Some(4));
    let now = jobs.get("nightly").await.unwrap().unwrap();
    assert_eq!((now.payload.as_str(), now.priority, now.enabled, now.version), ("theirs", 0, true, 4));
    // What only a scheduler notes is no change of the definition.
    let next = jobs.register(now.definition().priority(3), Expected::from(&now)).await.unwrap();
    assert_eq!((next.change, next.job.version), (JobChange::Updated, 5));

    second.delete("nightly").await.unwrap();
    refused(stale().await, None);
    assert_eq!(jobs.get("nightly").await.unwrap(), None, "it stays deleted");
}

async fn r18_a_job_that_was_registered_anew_is_another_one(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, second) = (world.jobs(), Jobs::new(fx.second().await.jobs()));
    let job = daily(&world, "nightly").await;
    let read = jobs.create_or_update(job.clone()).await.unwrap();
    second.delete("nightly").await.unwrap();
    world.advance(Duration::from_secs(1)).await;
    let anew = second.create_or_update(job.payload("theirs")).await.unwrap();
    assert_eq!(anew.version, read.version);
    refused(jobs.register(read.definition().priority(3), Expected::from(&read)).await, Some(1));
    assert_eq!(jobs.get("nightly").await.unwrap(), Some(anew));
}

async fn r18_updates_at_once_lose_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let crew = crew(fx, 4).await;
    world.jobs().create_or_update(daily(&world, "nightly").await.payload("0")).await.unwrap();
    const EACH: usize = 10;
    join_all(crew.iter().map(async |jobs| {
        for _ in 0..EACH {
            // Whoever is never the first one says so, and has changed nothing.
            while let Err(error) = jobs
                .update("nightly", |job| {
                    let count: usize = job.payload.parse().unwrap();
                    Result::<_, Error>::Ok(job.definition().payload((count + 1).to_string()))
                })
                .await
            {
                assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
            }
        }
    }))
    .await;
    let job = world.jobs().get("nightly").await.unwrap().unwrap();
    let all = crew.len() * EACH;
    assert_eq!((job.payload, job.version), (all.to_string(), all as i64 + 1));
}

/// Moves a job's priority on by one, whatever else it is.
async fn raise(jobs: &Jobs) -> Result<Registered> {
    jobs.update("nightly", |job| Ok(job.definition().priority((job.priority + 1) % 10))).await
}

async fn r18_an_update_does_not_enable_what_is_disabled_at_the_same_moment(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, second) = (world.jobs(), Jobs::new(fx.second().await.jobs()));
    jobs.create_or_update(daily(&world, "nightly").await).await.unwrap();
    for round in 0..ROUNDS {
        let (raised, disabled) = join(raise(&jobs), second.disable("nightly")).await;
        assert_eq!((raised.unwrap().change, disabled.unwrap()), (JobChange::Updated, true));
        let job = jobs.get("nightly").await.unwrap().unwrap();
        assert_eq!((job.enabled, usize::from(job.priority.unsigned_abs())), (false, (round + 1) % 10));
        jobs.enable("nightly").await.unwrap();
    }
}

async fn r18_an_update_does_not_bring_back_what_is_deleted_at_the_same_moment(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, second) = (world.jobs(), Jobs::new(fx.second().await.jobs()));
    let job = daily(&world, "nightly").await;
    for _ in 0..ROUNDS {
        jobs.create_or_update(job.clone()).await.unwrap();
        let (raised, deleted) = join(raise(&jobs), second.delete("nightly")).await;
        assert_eq!(deleted.unwrap(), Some(0));
        if let Err(error) = raised {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        }
        assert_eq!(jobs.get("nightly").await.unwrap(), None);
    }
}

async fn r18_a_registration_says_what_it_has_done(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    let job = daily(&world, "nightly").await;
    for (job, change, version) in [
        (job.clone(), JobChange::Created, 1),
        (job.clone(), JobChange::Unchanged, 1),
        (job.clone().priority(1), JobChange::Updated, 2),
        (job.clone().priority(1), JobChange::Unchanged, 2),
    ] {
        let registered = jobs.register(job, Expected::Anything).await.unwrap();
        assert_eq!((registered.change, registered.job.version), (change, version));
        assert_eq!(jobs.get("nightly").await.unwrap(), Some(registered.job));
    }
    let unknown = jobs.update("nobody", |job| Result::<_, Error>::Ok(job.definition())).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    let other = |_: &_| Result::<_, Error>::Ok(JobDefinition::new("other", "t", "@daily"));
    let renamed = jobs.update("nightly", other).await.unwrap_err();
    assert_eq!((renamed.kind(), renamed.field()), (ErrorKind::InvalidArgument, Some("name")));
    assert_eq!(jobs.get("other").await.unwrap(), None);
}

async fn r18_other_languages_say_which_version_they_expect(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        return Verdict::NotApplicable("functions");
    }
    let names = Default::default();
    let register = async |payload: &str, expected: Option<&str>| {
        let [name, topic, cron] = ["nightly", "t", "0 2 * * *"].map(Some);
        let (misfire, overlap, zero) = (Some("once"), Some("allow"), Some("0"));
        let mut arguments = vec![name, topic, cron, Some(payload), Some("UTC"), None, misfire];
        arguments.extend([None, None, overlap, zero, zero, None, expected]);
        fx.call(&names, "jobs_create_or_update", &arguments).await
    };
    let says = |answer: std::result::Result<Vec<String>, String>, what: &str| {
        let error = answer.unwrap_err();
        assert!(error.contains("\"nightly\"") && error.contains(what), "{error}");
    };
    says(register("1", Some("1")).await, "version 1 was expected, and there is no such job");
    register("1", Some("0")).await.unwrap();
    says(register("2", Some("0")).await, "no such job was expected, and it is of version 1");
    register("2", Some("1")).await.unwrap();
    says(register("3", Some("1")).await, "version 1 was expected, and it is of version 2");
    register("4", None).await.unwrap();
    let job = world.jobs().get("nightly").await.unwrap().unwrap();
    assert_eq!((job.payload.as_str(), job.version), ("4", 3));
    Verdict::Passed
}
