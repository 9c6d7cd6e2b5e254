//! Schedulers: late occurrences, runs that overlap, many at once, and the service itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mainstay_core::job::{JobDefinition, Jobs, Misfire, Overlap, RunFilter, RunState};
use mainstay_core::outbox::{MessageFilter, Page};
use mainstay_core::queue::{ClaimRequest, Context};
use mainstay_core::runtime::{Mainstay, RunningMainstay};
use mainstay_core::telemetry::names as metric;
use mainstay_core::{OwnerToken, WorkItemId};

use crate::case::cases;
use crate::crew::{Reports, reporting};
use crate::fixture::Fixture;
use crate::probe::Meter;
use crate::world::World;

use super::jobs::{DAY, daily};

cases! { $ scheduling_cases:
    r18_late_occurrences_are_skipped_if_so_told ["R18"],
    r18_one_run_stands_for_all_late_occurrences_by_default ["R18"],
    r18_all_late_occurrences_run_up_to_the_cap_and_within_the_window ["R18"],
    r18_what_is_on_time_runs_whatever_the_policy ["R18"],
    r18_runs_that_overlap_go_on_beside_each_other_by_default ["R18"],
    r18_an_occurrence_is_skipped_while_an_earlier_run_is_not_over ["R18"],
    r18_runs_that_queue_are_handed_out_one_at_a_time_in_order ["R18"],
    r18_eight_schedulers_make_one_run_per_occurrence ["R18", "R17", "PRIM-SCHED-009"],
    r18_an_occurrence_is_made_once_even_by_who_looked_before ["R18"],
    r18_a_scheduler_makes_dispatches_and_notes_runs ["R18", "PRIM-SCHED-009"],
    r18_a_scheduler_hears_of_a_new_job ["R18"],
    r18_two_schedulers_share_the_work ["R18", "R17"],
    r18_what_schedulers_do_is_counted ["R18", "R26"],
}

/// Has a job miss occurrences for `days`, and tells what a scheduler then makes of them: for how many days ago, oldest first.
async fn missed(world: &World<'_>, misfire: Misfire, days: u32) -> (Vec<i64>, u64) {
    let (jobs, owner) = (world.jobs(), OwnerToken::new());
    jobs.create_or_update(daily(world, "nightly").await.misfire(misfire)).await.unwrap();
    world.advance(DAY * days).await;
    let made = jobs.materialise(owner).await.unwrap();
    let now = world.now().await;
    let mut ages = Vec::new();
    for id in &made.runs {
        let run = jobs.run(*id).await.unwrap().unwrap();
        ages.push(now.duration_since(run.nominal_at).as_hours() / 24);
    }
    let job = jobs.get("nightly").await.unwrap().unwrap();
    assert!(job.next_nominal_at.unwrap() > now, "it goes on");
    assert_eq!(jobs.materialise(owner).await.unwrap(), Default::default(), "once");
    (ages, made.misfired)
}

async fn r18_late_occurrences_are_skipped_if_so_told(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    assert_eq!(missed(&world, Misfire::Skip, 3).await, (vec![], 3));
}

async fn r18_one_run_stands_for_all_late_occurrences_by_default(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    assert_eq!(missed(&world, Misfire::default(), 3).await, (vec![0], 2));
}

async fn r18_all_late_occurrences_run_up_to_the_cap_and_within_the_window(fx: &dyn Fixture) {
    let all = |cap, days| Misfire::All { cap, window: DAY * days };
    let world = World::open(fx).await;
    assert_eq!(missed(&world, all(10, 30), 4).await, (vec![3, 2, 1, 0], 0));
    // The job is changed and misses more; those that ran already do not run again.
    assert_eq!(missed(&world, all(2, 30), 4).await, (vec![1, 0], 2));
    assert_eq!(missed(&world, all(10, 3), 5).await, (vec![2, 1, 0], 2));
}

async fn r18_what_is_on_time_runs_whatever_the_policy(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, owner) = (world.jobs(), OwnerToken::new());
    for (name, misfire) in [("skip", Misfire::Skip), ("once", Misfire::Once)] {
        jobs.create_or_update(JobDefinition::new(name, "t", "* * * * *").misfire(misfire)).await.unwrap();
    }
    world.advance(Duration::from_secs(60)).await;
    let made = jobs.materialise(owner).await.unwrap();
    // A minute has passed, and so one occurrence of each; a second one if the minute turned meanwhile.
    let jobs_of: BTreeSet<String> = {
        let runs = jobs.runs(&RunFilter::all(), Page::default()).await.unwrap();
        runs.into_iter().map(|run| run.job).collect()
    };
    assert_eq!(jobs_of.len(), 2, "{made:?}");
    assert_eq!(made.misfired, 0);
}

async fn r18_runs_that_overlap_go_on_beside_each_other_by_default(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, owner) = (world.jobs(), OwnerToken::new());
    jobs.create_or_update(daily(&world, "nightly").await).await.unwrap();
    jobs.trigger("nightly").await.unwrap();
    world.advance(DAY).await;
    assert_eq!(jobs.materialise(owner).await.unwrap().runs.len(), 1);
    jobs.dispatch(owner, 10).await.unwrap();
    assert_eq!(world.claim(owner, 10).await.len(), 2, "both at once");
}

async fn r18_an_occurrence_is_skipped_while_an_earlier_run_is_not_over(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, owner) = (world.jobs(), OwnerToken::new());
    jobs.create_or_update(daily(&world, "nightly").await.overlap(Overlap::Skip)).await.unwrap();
    let first = jobs.trigger("nightly").await.unwrap().id;
    // Pending, dispatched or running, it is not over.
    for step in 0..3 {
        world.advance(DAY).await;
        let made = jobs.materialise(owner).await.unwrap();
        assert_eq!((made.runs.len(), made.overlapped), (0, 1), "step {step}");
        match step {
            0 => assert_eq!(jobs.dispatch(owner, 10).await.unwrap().len(), 1),
            1 => assert_eq!(world.claim_one(owner).await.id(), first),
            _ => assert_eq!(jobs.trigger("nightly").await.unwrap().state, RunState::Skipped),
        }
    }
    let skipped = jobs.runs(&RunFilter::all().state(RunState::Skipped), Page::default()).await.unwrap();
    assert_eq!(skipped.len(), 4);
    assert!(skipped.iter().all(|run| run.ended_at.is_some() && run.error.is_some()));
    let claimed = world.claim_batch(&ClaimRequest::new(owner)).await.items;
    assert_eq!(claimed.len(), 1, "its lease has lapsed by now");
    world.outbox.ack(owner, &[claimed[0].handle]).await.unwrap();
    // It is over, although nobody has collected that.
    world.advance(DAY).await;
    let made = jobs.materialise(owner).await.unwrap();
    assert_eq!((made.runs.len(), made.overlapped), (1, 0));
    // Of several at once the first runs.
    let all = Misfire::All { cap: 10, window: DAY * 30 };
    let job = daily(&world, "late").await.overlap(Overlap::Skip).misfire(all);
    jobs.create_or_update(job).await.unwrap();
    jobs.disable("nightly").await.unwrap();
    world.advance(DAY * 3).await;
    let made = jobs.materialise(owner).await.unwrap();
    assert_eq!((made.runs.len(), made.overlapped), (1, 2));
}

async fn r18_runs_that_queue_are_handed_out_one_at_a_time_in_order(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, owner) = (world.jobs(), OwnerToken::new());
    // A name so long that no ordering key could hold it.
    let name = "n".repeat(255);
    jobs.create_or_update(daily(&world, &name).await.overlap(Overlap::Queue)).await.unwrap();
    let mut ids: Vec<WorkItemId> = Vec::new();
    for _ in 0..3 {
        ids.push(jobs.trigger(&name).await.unwrap().id);
    }
    world.advance(DAY).await;
    ids.extend(jobs.materialise(owner).await.unwrap().runs);
    assert_eq!(ids.len(), 4);
    // One of a key per transaction, so it takes several.
    world
        .until("all are dispatched", async |world: &World<'_>| {
            world.jobs().dispatch(OwnerToken::new(), 10).await.unwrap();
            world.total().await == 4
        })
        .await;
    for id in ids {
        let claimed = world.claim_one(owner).await;
        assert_eq!(claimed.id(), id);
        world.assert_nothing_due().await;
        world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    }
    world.assert_nothing_due().await;
}

/// How often each occurrence of each job has a run, and how many messages there are in all.
async fn occurrences(
    world: &World<'_>,
) -> (BTreeMap<(String, jiff::Timestamp), usize>, BTreeSet<WorkItemId>) {
    let page = Page { limit: 1_000, before: None };
    let mut count = BTreeMap::new();
    for run in world.jobs().runs(&RunFilter::all(), page).await.unwrap() {
        *count.entry((run.job, run.nominal_at)).or_default() += 1;
    }
    let messages = world.outbox.list(&MessageFilter::all(), page).await.unwrap();
    (count, messages.into_iter().map(|message| message.id).collect())
}

async fn r18_eight_schedulers_make_one_run_per_occurrence(fx: &dyn Fixture) {
    const JOBS: usize = 12;
    const ROUNDS: usize = 6;
    let world = World::open(fx).await;
    let instances = [world.jobs(), Jobs::new(fx.second().await.jobs())];
    for number in 0..JOBS {
        world.jobs().create_or_update(daily(&world, &format!("job-{number}")).await).await.unwrap();
    }
    let mut made = BTreeSet::new();
    for _ in 0..ROUNDS {
        world.advance(DAY).await;
        let scheduler = |jobs: Jobs| async move {
            let owner = OwnerToken::new();
            let made = jobs.materialise(owner).await.unwrap().runs;
            jobs.dispatch(owner, 3).await.unwrap();
            jobs.collect().await.unwrap();
            made
        };
        // Eight of them, on two instances, all at once.
        let all = (0..8).map(|number| tokio::spawn(scheduler(instances[number % 2].clone())));
        for schedulers_own in all.collect::<Vec<_>>() {
            for id in schedulers_own.await.unwrap() {
                assert!(made.insert(id), "{id} was made twice");
            }
        }
    }
    world.jobs().dispatch(OwnerToken::new(), 100).await.unwrap();
    let (runs, messages) = occurrences(&world).await;
    assert_eq!(runs.len(), JOBS * ROUNDS, "every occurrence has a run");
    assert!(runs.values().all(|count| *count == 1), "{runs:?}");
    assert_eq!(messages, made, "every run has one message");
    assert_eq!(world.total().await, (JOBS * ROUNDS) as u64);
}

async fn r18_an_occurrence_is_made_once_even_by_who_looked_before(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (store, owner) = (world.provider.jobs(), OwnerToken::new());
    world.jobs().create_or_update(daily(&world, "nightly").await).await.unwrap();
    world.advance(DAY).await;
    // Two have seen the same; the second to act must find that it is no longer so.
    let due = store.due(owner, None, 10).await.unwrap();
    let job = &due.jobs[0];
    let nominal = job.next_nominal_at.unwrap();
    let mut step = mainstay_core::store::Advance {
        job: job.name.clone(),
        version: job.version,
        expected: job.next_nominal_at,
        next: job.schedule().unwrap().next_after(due.now).unwrap(),
        last: Some(nominal),
        occurrences: vec![mainstay_core::store::Occurrence { nominal_at: nominal, due_at: nominal }],
    };
    let first = store.advance(&step).await.unwrap().expect("the first one advances");
    assert_eq!(first.made.len(), 1);
    assert_eq!(store.advance(&step).await.unwrap(), None);
    // Even one who plans from the new state can't make the occurrence again.
    step.expected = Some(step.next);
    let again = store.advance(&step).await.unwrap().expect("it still is what was planned with");
    assert_eq!((again.made, again.skipped), (vec![], vec![]));
    // Nor can one who planned with another definition.
    world.jobs().create_or_update(daily(&world, "nightly").await.payload("new")).await.unwrap();
    assert_eq!(store.advance(&step).await.unwrap(), None);
    assert_eq!(world.run_queue().stats().await.unwrap().open(), 1);
}

/// A worker and scheduler of its own, with this job if there is one.
async fn scheduler(
    jobs: Option<JobDefinition>,
    provider: std::sync::Arc<dyn mainstay_core::store::Provider>,
    handler: impl Fn(Context) -> std::future::Ready<()> + Send + Sync + 'static,
) -> RunningMainstay {
    let brisk = |options: &mut mainstay_core::job::JobOptions| {
        options.poll_min = Duration::from_millis(10);
        options.poll_max = Duration::from_millis(200);
        options.retention = None;
    };
    let mainstay = Mainstay::builder_over(provider)
        .outbox(|outbox| {
            let quiet = outbox.retention(None).reap_every(None).gauges_every(None);
            let quick = quiet.options(|options| {
                options.poll_min = Duration::from_millis(10);
                options.poll_max = Duration::from_millis(200);
            });
            quick.raw_handler("tick", handler)
        })
        .jobs(|builder| {
            let builder = builder.options(brisk);
            jobs.into_iter().fold(builder, |builder, job| builder.define(job))
        })
        .build()
        .unwrap();
    mainstay.start().await.unwrap()
}

fn every_second() -> JobDefinition {
    JobDefinition::new("ticker", "tick", "* * * * * *")
}

async fn r18_a_scheduler_makes_dispatches_and_notes_runs(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::new();
    let running = scheduler(Some(every_second()), world.provider.clone(), reporting(reporter)).await;
    let mut nominals = Vec::new();
    for _ in 0..3 {
        let context = reports.next().await;
        let run = context.job().unwrap().clone();
        assert_eq!((run.job.as_str(), run.id), ("ticker", context.id()));
        nominals.push(run.nominal_at);
    }
    assert!(nominals.is_sorted() && nominals[0] < nominals[2], "{nominals:?}");
    let noted = RunFilter::all().state(RunState::Succeeded);
    world
        .until("three runs are over", async |world: &World<'_>| {
            let runs = world.jobs().runs(&noted, Page::default()).await.unwrap();
            runs.iter().filter(|run| run.duration().is_some()).count() >= 3
        })
        .await;
    running.stop().await.unwrap();
}

async fn r18_a_scheduler_hears_of_a_new_job(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::new();
    let running = scheduler(None, world.provider.clone(), reporting(reporter)).await;
    let second = Jobs::new(fx.second().await.jobs());
    // Far away at first, so that the scheduler sleeps for it; then nearer.
    second.create_or_update(JobDefinition::new("ticker", "tick", "@yearly")).await.unwrap();
    second.create_or_update(every_second()).await.unwrap();
    assert_eq!(reports.next().await.job().unwrap().job, "ticker");
    second.disable("ticker").await.unwrap();
    second.create_or_update(JobDefinition::new("by hand", "tick", "@yearly")).await.unwrap();
    let run = second.trigger("by hand").await.unwrap();
    loop {
        // What the ticker had made before comes first.
        if reports.next().await.job().unwrap().id == run.id {
            break;
        }
    }
    running.stop().await.unwrap();
}

async fn r18_two_schedulers_share_the_work(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::new();
    let other = fx.second().await;
    let one = scheduler(Some(every_second()), world.provider.clone(), reporting(reporter.clone())).await;
    let two = scheduler(Some(every_second()), other, reporting(reporter)).await;
    let mut seen = BTreeSet::new();
    while seen.len() < 4 {
        let run = reports.next().await.job().unwrap().clone();
        assert!(seen.insert(run.nominal_at), "{} came twice", run.nominal_at);
    }
    one.stop().await.unwrap();
    two.stop().await.unwrap();
    let (runs, messages) = occurrences(&world).await;
    assert!(runs.values().all(|count| *count == 1), "{runs:?}");
    assert!(messages.len() <= runs.len());
}

async fn r18_what_schedulers_do_is_counted(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, owner) = (world.jobs(), OwnerToken::new());
    let meter = Meter::new();
    let _guard = meter.install();
    jobs.create_or_update(daily(&world, "nightly").await.overlap(Overlap::Skip)).await.unwrap();
    world.advance(DAY * 3).await;
    jobs.materialise(owner).await.unwrap();
    let counted = meter.read();
    let of = |name: &str| counted.get(&format!("{name} job=nightly")).copied();
    assert_eq!(of(metric::JOB_MATERIALISED), Some(1), "{counted:?}");
    assert_eq!(of(metric::JOB_LATE), Some(1));
    assert_eq!(counted.get(&format!("{} job=nightly reason=misfire", metric::JOB_SKIPPED)), Some(&2));
    world.advance(DAY).await;
    jobs.materialise(owner).await.unwrap();
    let counted = meter.read();
    assert_eq!(counted.get(&format!("{} job=nightly reason=overlap", metric::JOB_SKIPPED)), Some(&1));
    let made = counted.get(&format!("{} job=nightly", metric::JOB_MATERIALISED)).copied();
    assert_eq!(made.unwrap_or(0), 0);
    jobs.dispatch(owner, 10).await.unwrap();
    let counted = meter.read();
    let of = |name: &str| counted.get(&format!("{name} job=nightly")).copied();
    assert_eq!((of(metric::JOB_DISPATCHED), of(metric::JOB_LATENESS_SECONDS)), (Some(1), Some(1)));
    let claimed = world.claim_one(owner).await;
    world.provider.jobs().started(claimed.id()).await.unwrap();
    world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    jobs.collect().await.unwrap();
    let counted = meter.read();
    let of = |name: &str| counted.get(&format!("{name} job=nightly outcome=succeeded")).copied();
    assert_eq!((of(metric::JOB_ENDED), of(metric::JOB_RUN_SECONDS)), (Some(1), Some(1)));
    jobs.trigger("nightly").await.unwrap();
    assert_eq!(meter.read().get(&format!("{} action=trigger", metric::JOB_ADMINISTERED)), Some(&1));
}
