//! Jobs while others are at the same rows: whoever holds one, and whoever comes between two steps.

use std::sync::Arc;

use mainstay_core::OwnerToken;
use mainstay_core::job::{JobDefinition, JobOptions, JobService, Jobs, Overlap, RunFilter, RunState};
use mainstay_core::outbox::{MessageFilter, Page};
use mainstay_core::queue::ClaimRequest;
use mainstay_core::runtime::start;
use mainstay_core::store::Provider;
use mainstay_tests::eventually;
use tokio_postgres::Client;

use crate::support::{DEADLINE, Fixture, somebody_waits};

/// A job that fires every minute and is due since an hour.
async fn due(client: &Client, jobs: &Jobs, name: &str) {
    jobs.create_or_update(JobDefinition::new(name, "t", "* * * * *")).await.unwrap();
    let back = "update infra.jobs set next_nominal_at = next_nominal_at - interval '1 hour' where name = $1";
    assert_eq!(client.execute(back, &[&name]).await.unwrap(), 1);
}

/// Notes the end of a run in a transaction that is still open while its message is requeued.
#[tokio::test]
async fn a_run_that_is_requeued_while_its_end_is_noted_goes_on() {
    let fixture = Fixture::new().await;
    let (jobs, owner) = (Jobs::new(fixture.postgres.jobs()), OwnerToken::new());
    jobs.create_or_update(JobDefinition::new("single", "t", "@yearly").overlap(Overlap::Skip)).await.unwrap();
    let run = jobs.trigger("single").await.unwrap().id;
    jobs.dispatch(owner, 10).await.unwrap();
    let claimed = fixture.outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    fixture.outbox.fail(owner, &claimed.handles(), Some("no".to_owned())).await.unwrap();

    let (collecting, watching) = (fixture.database.client().await, fixture.database.client().await);
    collecting.batch_execute("begin").await.unwrap();
    let ids = vec![run.as_uuid()];
    let noted = collecting.query("select id from infra.jobs_collect($1)", &[&ids]).await.unwrap();
    assert_eq!(noted.len(), 1);
    let outbox = fixture.outbox.clone();
    let requeue = tokio::spawn(async move { outbox.requeue(&[run]).await.unwrap() });
    eventually(DEADLINE, "the requeue waits, or is over", async || {
        requeue.is_finished() || somebody_waits(&watching).await
    })
    .await;
    collecting.batch_execute("commit").await.unwrap();
    assert_eq!(requeue.await.unwrap(), [run]);

    let again = jobs.run(run).await.unwrap().unwrap();
    assert_eq!((again.state, again.ended_at), (RunState::Dispatched, None));
    assert_eq!(jobs.trigger("single").await.unwrap().state, RunState::Skipped, "it is not over");
    let claimed = fixture.outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    fixture.outbox.ack(owner, &claimed.handles()).await.unwrap();
    assert_eq!(jobs.collect().await.unwrap()[0].outcome, RunState::Succeeded);
    fixture.end().await;
}

/// The other way round: the message is requeued first, in a transaction that is still open.
#[tokio::test]
async fn the_end_of_a_run_that_is_being_requeued_is_not_noted() {
    let fixture = Fixture::new().await;
    let (jobs, owner) = (Jobs::new(fixture.postgres.jobs()), OwnerToken::new());
    jobs.create_or_update(JobDefinition::new("single", "t", "@yearly")).await.unwrap();
    let run = jobs.trigger("single").await.unwrap().id;
    jobs.dispatch(owner, 10).await.unwrap();
    let claimed = fixture.outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    fixture.outbox.fail(owner, &claimed.handles(), None).await.unwrap();
    let requeueing = fixture.database.client().await;
    requeueing.batch_execute("begin").await.unwrap();
    let ids = vec![run.as_uuid()];
    requeueing.query("select infra.outbox_requeue($1)", &[&ids]).await.unwrap();
    assert!(jobs.collect().await.unwrap().is_empty(), "somebody is busy with it");
    requeueing.batch_execute("commit").await.unwrap();
    assert!(jobs.collect().await.unwrap().is_empty());
    assert_eq!(jobs.run(run).await.unwrap().unwrap().state, RunState::Dispatched);
    fixture.end().await;
}

#[tokio::test]
async fn a_job_that_somebody_holds_keeps_nobody_from_the_others() {
    let fixture = Fixture::new().await;
    let (jobs, owner) = (Jobs::new(fixture.postgres.jobs()), OwnerToken::new());
    let holding = fixture.database.client().await;
    for name in ["held", "other"] {
        due(&holding, &jobs, name).await;
    }
    holding.batch_execute("begin; select from infra.jobs where name = 'held' for update").await.unwrap();
    let made = tokio::time::timeout(DEADLINE, jobs.materialise(owner)).await.expect("nobody waits").unwrap();
    assert_eq!(made.runs.len(), 1);
    assert_eq!(jobs.run(made.runs[0]).await.unwrap().unwrap().job, "other");
    holding.batch_execute("rollback").await.unwrap();
    let made = jobs.materialise(owner).await.unwrap();
    assert_eq!(made.runs.len(), 1, "nothing is lost");
    assert_eq!(jobs.run(made.runs[0]).await.unwrap().unwrap().job, "held");
    fixture.end().await;
}

#[tokio::test]
async fn jobs_that_fail_keep_neither_the_others_nor_dispatching_from_going_on() {
    let fixture = Fixture::new().await;
    let jobs = Jobs::new(fixture.postgres.jobs());
    let client = fixture.database.client().await;
    client
        .batch_execute(
            "create function refuse() returns trigger language plpgsql as $$ begin raise 'not today'; end $$;
             create trigger refuse before insert on infra.jobs_ledger for each row when (new.job like 'bad%') execute function refuse()",
        )
        .await
        .unwrap();
    // As many as are taken for the database's own trouble, and more; and they come first.
    for name in ["bad1", "bad2", "bad3", "bad4", "good"] {
        due(&client, &jobs, name).await;
    }
    let scheduler = JobService::new(jobs.clone(), JobOptions::default()).unwrap();
    let running = start(Arc::new(scheduler));
    eventually(DEADLINE, "the good one is dispatched", async || {
        fixture.outbox.list(&MessageFilter::default(), Page::default()).await.unwrap().len() == 1
    })
    .await;
    // Once they can be made, they are.
    client.batch_execute("drop trigger refuse on infra.jobs_ledger").await.unwrap();
    eventually(DEADLINE, "all are made", async || {
        jobs.runs(&RunFilter::all(), Page::default()).await.unwrap().len() == 5
    })
    .await;
    running.stop().await.unwrap();
    fixture.end().await;
}
