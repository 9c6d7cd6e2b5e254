//! Runs of jobs: dispatched, started, ended, remembered, forgotten.

use std::time::Duration;

use mainstay_core::job::{JobDefinition, JobOptions, JobRun, Jobs, RunFilter, RunState, Trigger};
use mainstay_core::outbox::{Message, Page, Retention};
use mainstay_core::queue::{ClaimRequest, Context, HandlerError};
use mainstay_core::{ErrorKind, OwnerToken, WorkItemId};

use crate::case::cases;
use crate::crew::Reports;
use crate::fixture::Fixture;
use crate::world::{LEASE, World, handles, interrupted};

use super::jobs::{DAY, daily};

cases! { $ job_runs_cases:
    r17_a_run_becomes_a_message_under_its_own_id ["R17", "PRIM-SCHED-009"],
    r17_a_run_whose_id_another_message_has_is_a_failed_run ["R17", "R18"],
    r17_a_crash_between_materialising_and_dispatching_loses_nothing ["R17", "MST-004"],
    r17_work_that_is_given_up_midway_is_done_once_all_the_same ["R17", "R18"],
    r17_runs_are_claimed_acked_abandoned_failed_and_reaped_as_any_work_item ["R17", "R18"],
    r18_a_run_stands_where_its_message_stands ["R18"],
    r18_a_run_whose_message_fails_is_failed_with_its_error ["R18"],
    r18_a_message_that_is_cancelled_is_a_cancelled_run ["R18"],
    r18_a_requeued_message_is_a_run_that_goes_on ["R18"],
    r18_ends_are_noted_of_the_runs_asked_for_and_looked_for_page_by_page ["R18"],
    r18_retention_of_the_outbox_keeps_the_ends_of_runs ["R18", "R29"],
    r18_a_handler_knows_its_run_and_leaves_an_output ["R18"],
    r18_an_output_is_bounded_and_for_runs_only ["R18"],
    r18_runs_are_listed_newest_first_page_by_page ["R18"],
    r18_the_jitter_is_between_the_nominal_and_the_due_time ["R18"],
    r29_runs_are_kept_for_ninety_days_and_failed_ones_for_ever ["R29"],
    r29_each_transaction_forgets_one_batch_of_runs ["R29"],
}

/// A job, triggered and dispatched.
async fn dispatched(world: &World<'_>) -> (Jobs, WorkItemId) {
    let jobs = world.jobs();
    jobs.create_or_update(daily(world, "nightly").await).await.unwrap();
    let run = jobs.trigger("nightly").await.unwrap().id;
    assert_eq!(jobs.dispatch(OwnerToken::new(), 10).await.unwrap().len(), 1);
    (jobs, run)
}

async fn run(jobs: &Jobs, id: WorkItemId) -> JobRun {
    jobs.run(id).await.unwrap().unwrap_or_else(|| panic!("there must be a run {id}"))
}

async fn r17_a_run_becomes_a_message_under_its_own_id(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    jobs.create_or_update(daily(&world, "nightly").await.payload("p").priority(2)).await.unwrap();
    let made = jobs.trigger("nightly").await.unwrap();
    let sent = jobs.dispatch(OwnerToken::new(), 10).await.unwrap();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].id, sent[0].job.as_deref()), (made.id, Some("nightly")));
    let message = world.row(made.id).await;
    assert_eq!(message.message_id.as_uuid(), made.id.as_uuid(), "whoever deduplicates knows the run");
    assert_eq!((message.topic.as_str(), message.payload.as_deref()), ("report", Some("p")));
    assert_eq!((message.priority, message.headers["mainstay-run"].clone()), (2, made.id.to_string()));
    assert_eq!(message.correlation_id.as_deref(), Some(format!("job-run-{}", made.id).as_str()));
    let after = run(&jobs, made.id).await;
    assert_eq!(after.state, RunState::Dispatched);
    assert!(after.dispatched_at.is_some_and(|at| at >= made.created_at));
    assert!(jobs.dispatch(OwnerToken::new(), 10).await.unwrap().is_empty(), "once");
    assert_eq!(world.total().await, 1);
}

async fn r17_a_run_whose_id_another_message_has_is_a_failed_run(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    jobs.create_or_update(daily(&world, "nightly").await).await.unwrap();
    // One of the others is open for as long as this takes, one is done.
    let (owner, mut made) = (OwnerToken::new(), Vec::new());
    for is_done in [true, false] {
        let id = jobs.trigger("nightly").await.unwrap().id;
        world.enqueue(Message::new("other", "").work_item_id(id)).await;
        if is_done {
            let claimed = world.claim_one(owner).await;
            world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
        }
        made.push(id);
    }
    assert!(jobs.dispatch(owner, 10).await.unwrap().is_empty(), "neither became a message");
    assert_eq!(world.total().await, 2);
    assert_eq!(jobs.collect().await.unwrap().len(), 2);
    for id in made {
        let run = run(&jobs, id).await;
        assert_eq!((run.state, run.dispatched_at), (RunState::Failed, None));
        assert_eq!(run.error.as_deref(), Some("the outbox already has another message under this id"));
    }
}

async fn r17_a_crash_between_materialising_and_dispatching_loses_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    jobs.create_or_update(daily(&world, "nightly").await).await.unwrap();
    world.advance(DAY).await;
    let made = jobs.materialise(OwnerToken::new()).await.unwrap().runs;
    // Whoever made it is gone. Another finds nothing to make, and the run to dispatch.
    let second = Jobs::new(fx.second().await.jobs());
    let owner = OwnerToken::new();
    assert_eq!(second.materialise(owner).await.unwrap(), Default::default());
    let sent = second.dispatch(owner, 10).await.unwrap();
    assert_eq!(sent.iter().map(|run| run.id).collect::<Vec<_>>(), made);
    assert!(jobs.dispatch(OwnerToken::new(), 10).await.unwrap().is_empty());
    assert_eq!(world.total().await, 1, "neither lost nor doubled");
}

async fn r17_work_that_is_given_up_midway_is_done_once_all_the_same(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    jobs.create_or_update(daily(&world, "nightly").await).await.unwrap();
    for day in 1..=6usize {
        world.advance(DAY).await;
        let owner = OwnerToken::new();
        // Given up after so many steps, which may be before, within or after any of its transactions.
        interrupted(day, jobs.materialise(owner)).await;
        interrupted(day, jobs.dispatch(owner, 10)).await;
        jobs.materialise(owner).await.unwrap();
        jobs.dispatch(owner, 10).await.unwrap();
        world
            .until("what was given up is over and dispatched", async |world: &World<'_>| {
                // Somebody may still be at what was given up; afterwards there is nothing left.
                world.jobs().dispatch(OwnerToken::new(), 10).await.unwrap();
                world.total().await == day as u64
            })
            .await;
        let runs = jobs.runs(&RunFilter::all(), Page::default()).await.unwrap();
        assert_eq!(runs.len(), day, "one run a day: {runs:?}");
    }
}

async fn r17_runs_are_claimed_acked_abandoned_failed_and_reaped_as_any_work_item(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, queue, owner) = (world.jobs(), world.run_queue(), OwnerToken::new());
    jobs.create_or_update(daily(&world, "nightly").await).await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(jobs.trigger("nightly").await.unwrap().id);
    }
    let request = ClaimRequest::new(owner).lease(LEASE);
    let mut claimed = queue.claim(&request).await.unwrap().items;
    claimed.sort_by_key(|item| ids.iter().position(|id| *id == item.id()));
    assert_eq!(claimed.iter().map(|item| item.id()).collect::<Vec<_>>(), ids);
    assert!(queue.claim(&ClaimRequest::new(OwnerToken::new())).await.unwrap().items.is_empty());
    let claims = handles(&claimed);
    queue.ack(owner, &claims[..1]).await.unwrap();
    queue.abandon(owner, &claims[1..2], Some(Duration::from_secs(600)), None).await.unwrap();
    queue.fail(owner, &claims[2..3], Some("no way".to_owned())).await.unwrap();
    let states = async || {
        let mut states = Vec::new();
        for id in &ids {
            states.push(run(&jobs, *id).await.state);
        }
        states
    };
    let wanted = [RunState::Succeeded, RunState::Pending, RunState::Failed, RunState::Claimed];
    assert_eq!(states().await, wanted);
    // Noted or not, it is the same.
    assert_eq!(jobs.collect().await.unwrap().len(), 2);
    assert_eq!(states().await, wanted);
    assert_eq!(run(&jobs, ids[2]).await.error.as_deref(), Some("no way"));
    world.advance(LEASE * 2).await;
    assert_eq!(queue.reap_expired().await.unwrap(), 1);
    assert_eq!(run(&jobs, ids[3]).await.state, RunState::Pending);
    assert_eq!(queue.requeue(&ids[2..3]).await.unwrap(), ids[2..3]);
    assert_eq!(run(&jobs, ids[2]).await.state, RunState::Pending, "another life");
}

async fn r18_a_run_stands_where_its_message_stands(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, id) = dispatched(&world).await;
    assert_eq!(run(&jobs, id).await.state, RunState::Dispatched);
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await;
    assert_eq!(claimed.id(), id);
    assert_eq!(run(&jobs, id).await.state, RunState::Running);
    world.outbox.abandon(owner, &[claimed.handle], None, Some("not yet".to_owned())).await.unwrap();
    let waiting = run(&jobs, id).await;
    assert_eq!((waiting.state, waiting.attempts), (RunState::Dispatched, 1));
    assert_eq!(waiting.error.as_deref(), Some("not yet"));
    assert!(jobs.collect().await.unwrap().is_empty(), "it is not over");
    world.advance(Duration::from_secs(60)).await;
    let claimed = world.claim_one(owner).await;
    world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    // Told at once, and noted later.
    let over = run(&jobs, id).await;
    assert_eq!((over.state, over.attempts), (RunState::Succeeded, 2));
    let ended = jobs.collect().await.unwrap();
    assert_eq!(ended.len(), 1);
    assert_eq!((ended[0].id, ended[0].outcome), (id, RunState::Succeeded));
    let noted = run(&jobs, id).await;
    assert_eq!((noted.state, noted.attempts, noted.ended_at), (RunState::Succeeded, 2, over.ended_at));
    assert_eq!(noted.error, None, "what went wrong on the way is in the past");
    assert!(jobs.collect().await.unwrap().is_empty(), "once");
}

async fn r18_a_run_whose_message_fails_is_failed_with_its_error(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, id) = dispatched(&world).await;
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await;
    world.outbox.fail(owner, &[claimed.handle], Some("the disk is full".to_owned())).await.unwrap();
    let told = run(&jobs, id).await;
    assert_eq!((told.state, told.error.as_deref()), (RunState::Failed, Some("the disk is full")));
    assert_eq!(jobs.collect().await.unwrap()[0].outcome, RunState::Failed);
    assert_eq!(run(&jobs, id).await, told);
}

async fn r18_a_message_that_is_cancelled_is_a_cancelled_run(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, id) = dispatched(&world).await;
    assert_eq!(world.outbox.cancel(&[id]).await.unwrap(), [id]);
    let told = run(&jobs, id).await;
    assert_eq!((told.state, told.error.as_deref()), (RunState::Cancelled, Some("cancelled")));
    jobs.collect().await.unwrap();
    assert_eq!(run(&jobs, id).await, told);
    // So is one that is not dispatched.
    let pending = jobs.trigger("nightly").await.unwrap().id;
    assert_eq!(world.run_queue().cancel(&[pending]).await.unwrap(), [pending]);
    assert_eq!(run(&jobs, pending).await.state, RunState::Cancelled);
    assert_eq!(jobs.collect().await.unwrap()[0].outcome, RunState::Cancelled);
    assert_eq!(run(&jobs, pending).await.state, RunState::Cancelled);
}

async fn r18_a_requeued_message_is_a_run_that_goes_on(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, id) = dispatched(&world).await;
    let owner = OwnerToken::new();
    for collected in [false, true] {
        let claimed = world.claim_one(owner).await;
        assert!(world.provider.jobs().started(id).await.unwrap());
        world.outbox.fail(owner, &[claimed.handle], Some("no".to_owned())).await.unwrap();
        if collected {
            jobs.collect().await.unwrap();
        }
        assert_eq!(world.outbox.requeue(&[id]).await.unwrap(), [id]);
        let again = run(&jobs, id).await;
        assert_eq!((again.state, again.ended_at), (RunState::Dispatched, None), "collected: {collected}");
        assert_eq!(again.started_at, None, "another life has another beginning");
    }
    let claimed = world.claim_one(owner).await;
    world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    assert_eq!(jobs.collect().await.unwrap()[0].outcome, RunState::Succeeded);
    assert_eq!(run(&jobs, id).await.state, RunState::Succeeded);
}

async fn r18_ends_are_noted_of_the_runs_asked_for_and_looked_for_page_by_page(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, store, owner) = (world.jobs(), world.provider.jobs(), OwnerToken::new());
    let mut ids = Vec::new();
    for name in ["a", "a", "b", "b", "b"] {
        jobs.create_or_update(daily(&world, name).await).await.unwrap();
        ids.push(jobs.trigger(name).await.unwrap().id);
    }
    jobs.dispatch(owner, 10).await.unwrap();
    let (under_way, over) = (ids[1], [ids[0], ids[2], ids[3], ids[4]]);
    for claimed in world.claim(owner, 10).await.iter().filter(|claimed| claimed.id() != under_way) {
        world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    }
    let noted = jobs.collect_runs(&[ids[4], under_way, WorkItemId::new()]).await.unwrap();
    assert_eq!(noted.iter().map(|run| run.id).collect::<Vec<_>>(), ids[4..], "those, and if they are over");
    let (mut found, mut looks, mut place) = (Vec::new(), 0, None);
    loop {
        let page = store.ended(place.as_ref(), 2).await.unwrap();
        assert!(page.over.len() <= 2);
        found.extend(page.over);
        looks += 1;
        place = page.next;
        if place.is_none() {
            break;
        }
    }
    assert_eq!((found.as_slice(), looks), (&over[..3], 3), "what is noted is not looked at");
    assert_eq!(jobs.collect().await.unwrap().len(), 3);
    assert_eq!(store.ended(None, 2).await.unwrap(), Default::default());
}

async fn r18_retention_of_the_outbox_keeps_the_ends_of_runs(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, good) = dispatched(&world).await;
    let bad = jobs.trigger("nightly").await.unwrap().id;
    jobs.dispatch(OwnerToken::new(), 10).await.unwrap();
    let owner = OwnerToken::new();
    for claimed in world.claim(owner, 10).await {
        match claimed.id() == good {
            true => world.outbox.ack(owner, &[claimed.handle]).await.unwrap(),
            false => world.outbox.fail(owner, &[claimed.handle], Some("no".to_owned())).await.unwrap(),
        };
    }
    world.advance(DAY * 40).await;
    let before = [run(&jobs, good).await, run(&jobs, bad).await];
    // Nobody has collected anything.
    let all = Retention::default().done(Some(DAY)).failed(Some(DAY));
    assert_eq!(world.outbox.purge(&all).await.unwrap(), 2);
    assert_eq!(world.run_queue().purge(&all).await.unwrap(), 2);
    assert_eq!([run(&jobs, good).await, run(&jobs, bad).await], before);
    assert_eq!(before.map(|run| run.state), [RunState::Succeeded, RunState::Failed]);
}

async fn r18_a_handler_knows_its_run_and_leaves_an_output(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    jobs.create_or_update(daily(&world, "nightly").await).await.unwrap();
    let made = jobs.trigger("nightly").await.unwrap();
    let (reporter, mut reports) = Reports::new();
    let handler = move |context: Context| {
        let reporter = reporter.clone();
        async move {
            context.record_output(&format!("attempt {}", context.attempt())).await?;
            if context.attempt() == 1 {
                return Err(HandlerError::retry_after(Duration::from_millis(1), "again"));
            }
            // Nobody may be listening any more.
            let _ = reporter.send(context);
            Ok(())
        }
    };
    let running = world.work(|outbox| outbox.raw_handler("report", handler)).await;
    jobs.dispatch(OwnerToken::new(), 10).await.unwrap();
    let context = reports.next().await;
    let current = context.job().expect("it is a run").clone();
    assert_eq!((current.job.as_str(), current.id, current.trigger), ("nightly", made.id, Trigger::Manual));
    assert_eq!(current.nominal_at, made.nominal_at);
    // The worker notes the end by itself, soon after: no scheduler is running.
    world
        .until("the end is noted", async |world: &World<'_>| {
            let run = run(&world.jobs(), made.id).await;
            run.state == RunState::Succeeded && run.duration().is_some()
        })
        .await;
    let over = run(&jobs, made.id).await;
    assert_eq!((over.output.as_deref(), over.attempts), (Some("attempt 2"), 2));
    let (started, ended) = (over.started_at.unwrap(), over.ended_at.unwrap());
    assert!(over.dispatched_at.unwrap() <= started && started <= ended);
    running.stop().await.unwrap();
}

async fn r18_an_output_is_bounded_and_for_runs_only(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, id) = dispatched(&world).await;
    let long = "ü".repeat(Jobs::OUTPUT_MAX / 2);
    jobs.record_output(id, &long).await.unwrap();
    assert_eq!(run(&jobs, id).await.output.as_deref(), Some(long.as_str()));
    for wrong in [format!("{long}x"), "a\0b".to_owned()] {
        let error = jobs.record_output(id, &wrong).await.unwrap_err();
        assert_eq!(error.field(), Some("output"), "{error}");
    }
    let error = jobs.record_output(WorkItemId::new(), "x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let (reporter, mut reports) = Reports::new();
    let running = world.work(|outbox| outbox.raw_handler("plain", crate::crew::reporting(reporter))).await;
    world.enqueue(mainstay_core::outbox::Message::new("plain", "")).await;
    let context = reports.next().await;
    assert_eq!(context.job(), None);
    assert_eq!(context.record_output("x").await.unwrap_err().kind(), ErrorKind::Unsupported);
    running.stop().await.unwrap();
}

async fn r18_runs_are_listed_newest_first_page_by_page(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    for name in ["a", "b"] {
        jobs.create_or_update(daily(&world, name).await).await.unwrap();
    }
    let mut made = Vec::new();
    for number in 0..6 {
        made.push(jobs.trigger(if number % 3 == 0 { "b" } else { "a" }).await.unwrap());
    }
    // Two that come in one moment are of different moments if they are of one job, so of two jobs the order is theirs.
    made.sort_by_key(|run| std::cmp::Reverse((run.nominal_at, run.id)));
    let of_b_made: Vec<_> = made.iter().filter(|run| run.job == "b").map(|run| run.id).collect();
    let made: Vec<_> = made.iter().map(|run| run.id).collect();
    let ids = |runs: &[JobRun]| runs.iter().map(|run| run.id).collect::<Vec<_>>();
    let all = jobs.runs(&RunFilter::all(), Page::default()).await.unwrap();
    assert_eq!(ids(&all), made);
    let first = jobs.runs(&RunFilter::all(), Page { limit: 4, before: None }).await.unwrap();
    let rest = Page { limit: 4, before: first.last().map(|run| run.id) };
    let rest = jobs.runs(&RunFilter::all(), rest).await.unwrap();
    assert_eq!([ids(&first), ids(&rest)].concat(), made);
    let of_b = jobs.runs(&RunFilter::all().job("b"), Page::default()).await.unwrap();
    assert_eq!(ids(&of_b), of_b_made);
    world.run_queue().cancel(&made[..1]).await.unwrap();
    let filter = RunFilter::all().state(RunState::Cancelled).trigger(Trigger::Manual);
    assert_eq!(ids(&jobs.runs(&filter, Page::default()).await.unwrap()), made[..1]);
    assert!(jobs.runs(&RunFilter::all().trigger(Trigger::Cron), Page::default()).await.unwrap().is_empty());
    assert!(jobs.runs(&RunFilter::all(), Page { limit: 0, before: None }).await.is_err());
}

async fn r18_the_jitter_is_between_the_nominal_and_the_due_time(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, owner) = (world.jobs(), OwnerToken::new());
    let job = jobs.create_or_update(daily(&world, "nightly").await.jitter(DAY)).await.unwrap();
    world.advance(DAY).await;
    let made = jobs.materialise(owner).await.unwrap().runs;
    let run = run(&jobs, made[0]).await;
    assert_eq!(run.due_at, job.due_at(run.nominal_at), "any scheduler comes to the same");
    assert!(run.due_at >= run.nominal_at && run.due_at.duration_since(run.nominal_at).as_hours() < 24);
    let due_now = run.due_at <= world.now().await;
    assert_eq!(jobs.dispatch(owner, 10).await.unwrap().len(), usize::from(due_now));
    world.advance(DAY).await;
    jobs.dispatch(owner, 10).await.unwrap();
    assert_eq!(world.total().await, 1);
}

/// Ends runs of each kind and returns their ids: succeeded, failed, skipped, cancelled, and one that is not over.
async fn one_of_each(world: &World<'_>) -> [WorkItemId; 5] {
    let (jobs, owner) = (world.jobs(), OwnerToken::new());
    let overlap = mainstay_core::job::Overlap::Skip;
    jobs.create_or_update(daily(world, "nightly").await).await.unwrap();
    jobs.create_or_update(JobDefinition::new("single", "single", "@yearly").overlap(overlap)).await.unwrap();
    let (succeeded, failed) =
        (jobs.trigger("nightly").await.unwrap().id, jobs.trigger("nightly").await.unwrap().id);
    jobs.dispatch(owner, 10).await.unwrap();
    for claimed in world.claim(owner, 10).await {
        match claimed.id() == succeeded {
            true => world.outbox.ack(owner, &[claimed.handle]).await.unwrap(),
            false => world.outbox.fail(owner, &[claimed.handle], None).await.unwrap(),
        };
    }
    let cancelled = jobs.trigger("nightly").await.unwrap().id;
    world.run_queue().cancel(&[cancelled]).await.unwrap();
    let open = jobs.trigger("single").await.unwrap().id;
    let skipped = jobs.trigger("single").await.unwrap();
    assert_eq!(skipped.state, RunState::Skipped);
    jobs.collect().await.unwrap();
    [succeeded, failed, skipped.id, cancelled, open]
}

async fn r29_runs_are_kept_for_ninety_days_and_failed_ones_for_ever(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    let [succeeded, failed, skipped, cancelled, open] = one_of_each(&world).await;
    let retention = JobOptions::default().retention.expect("there is a default");
    assert_eq!((retention.done, retention.failed), (Some(DAY * 90), None));
    world.advance(DAY * 89).await;
    assert_eq!(jobs.purge(&retention).await.unwrap(), 0);
    world.advance(DAY * 2).await;
    assert_eq!(jobs.purge(&retention).await.unwrap(), 3);
    for gone in [succeeded, skipped, cancelled] {
        assert_eq!(jobs.run(gone).await.unwrap(), None);
        assert!(world.run_queue().get(gone).await.unwrap().is_none(), "the queue forgets it too");
    }
    assert_eq!(run(&jobs, failed).await.state, RunState::Failed);
    assert_eq!(run(&jobs, open).await.state, RunState::Pending, "what is not over is never touched");
    assert_eq!(jobs.purge(&retention.failed(Some(DAY))).await.unwrap(), 1);
    assert_eq!(jobs.run(failed).await.unwrap(), None);
}

async fn r29_each_transaction_forgets_one_batch_of_runs(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    one_of_each(&world).await;
    world.advance(DAY).await;
    let retention = Retention::default().done(Some(Duration::ZERO)).failed(Some(Duration::ZERO)).batch(2);
    let store = world.provider.jobs();
    assert_eq!(store.purge(&retention, None).await.unwrap(), 2);
    assert_eq!(store.purge(&retention, None).await.unwrap(), 2);
    assert_eq!(store.purge(&retention, None).await.unwrap(), 0);
    assert_eq!(world.jobs().runs(&RunFilter::all(), Page::default()).await.unwrap().len(), 1);
}
