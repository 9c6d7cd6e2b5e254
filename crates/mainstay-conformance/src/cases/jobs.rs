//! Jobs: registered, changed, listed, switched, triggered, deleted.

use std::time::Duration;

use jiff::{Timestamp, ToSpan};
use mainstay_core::job::{Job, JobDefinition, Misfire, Overlap, RunFilter, RunState, Trigger};
use mainstay_core::outbox::{Message, Page};
use mainstay_core::queue::{ClaimRequest, Status};
use mainstay_core::timer::NewTimer;
use mainstay_core::{ErrorKind, OwnerToken};

use crate::case::{Verdict, cases};
use crate::fixture::Fixture;
use crate::world::{LEASE, World};

cases! { $ jobs_cases:
    prim_sched_005_a_job_is_created_or_updated_by_its_name ["PRIM-SCHED-005", "R18"],
    prim_sched_005_registering_a_job_as_it_is_changes_nothing ["PRIM-SCHED-005"],
    prim_sched_005_every_part_of_a_definition_is_kept ["PRIM-SCHED-005", "R18"],
    prim_sched_005_a_promised_time_outlives_an_update_of_anything_but_the_schedule ["PRIM-SCHED-005", "R18"],
    prim_sched_006_a_trigger_makes_a_claimable_run ["PRIM-SCHED-006", "R18"],
    prim_sched_006_an_unknown_job_cannot_be_triggered ["PRIM-SCHED-006", "R18"],
    prim_sched_007_an_update_changes_topic_and_payload_of_later_runs ["PRIM-SCHED-007"],
    prim_sched_008_a_deleted_job_loses_its_pending_runs_and_keeps_its_history ["PRIM-SCHED-008", "R18"],
    prim_sched_008_a_claimed_run_of_a_deleted_job_is_cancelled_too ["PRIM-SCHED-008"],
    prim_sched_009_due_occurrences_become_runs ["PRIM-SCHED-009", "R18"],
    prim_sched_010_the_next_event_is_the_nearest_of_all ["PRIM-SCHED-010"],
    r18_a_disabled_job_does_not_run_and_goes_on_from_when_it_is_enabled ["R18"],
    r18_a_job_that_somebody_disabled_stays_so_when_it_is_registered_again ["R18"],
    r18_jobs_are_listed_by_name_however_many ["R18"],
    r19_a_wrong_expression_is_refused_at_registration ["R19", "R18"],
    r18_other_languages_register_jobs ["R18"],
    r18_a_job_that_cannot_be_read_keeps_nobody_from_the_others ["R18"],
    r18_a_job_that_one_scheduler_cannot_read_is_another_ones ["R18"],
    r18_a_role_with_the_documented_rights_can_do_it_all ["R18"],
}

/// A job that is not due while a case runs: at a time that was five minutes ago, every day.
pub(super) async fn daily(world: &World<'_>, name: &str) -> JobDefinition {
    let minute = (world.now().await - 5.minutes()).to_zoned(jiff::tz::TimeZone::UTC);
    JobDefinition::new(name, "report", format!("{} {} * * *", minute.minute(), minute.hour()))
}

pub(super) const DAY: Duration = Duration::from_secs(24 * 3_600);

async fn get(world: &World<'_>, name: &str) -> Job {
    world.jobs().get(name).await.unwrap().unwrap_or_else(|| panic!("there must be a job {name}"))
}

/// A job is the same but for what a scheduler notes.
fn definition(job: &Job) -> impl PartialEq + std::fmt::Debug + use<> {
    (job.definition(), job.version, job.created_at, job.updated_at)
}

async fn prim_sched_005_a_job_is_created_or_updated_by_its_name(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    assert_eq!(jobs.get("nightly").await.unwrap(), None);
    let created = jobs.create_or_update(daily(&world, "nightly").await.payload("1")).await.unwrap();
    assert_eq!((created.version, created.enabled, created.payload.as_str()), (1, true, "1"));
    assert_eq!(get(&world, "nightly").await, created);
    let now = world.now().await;
    let next = created.next_nominal_at.expect("a new job has a next nominal time");
    assert!(next > now && next.duration_since(now).as_hours() < 24, "{next}");
    let second = mainstay_core::job::Jobs::new(fx.second().await.jobs());
    let updated = second.create_or_update(daily(&world, "nightly").await.payload("2")).await.unwrap();
    assert_eq!((updated.version, updated.payload.as_str()), (2, "2"));
    assert_eq!(updated.created_at, created.created_at);
    assert_eq!(get(&world, "nightly").await, updated);
    jobs.create_or_update(daily(&world, "Nightly").await).await.unwrap();
    let names: Vec<_> = jobs.list(None, 100).await.unwrap().into_iter().map(|job| job.name).collect();
    assert_eq!(names.len(), 2, "names are case-sensitive: {names:?}");
}

async fn prim_sched_005_registering_a_job_as_it_is_changes_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let job = daily(&world, "nightly").await.payload("p");
    let first = world.jobs().create_or_update(job.clone()).await.unwrap();
    let again = world.jobs().create_or_update(job).await.unwrap();
    assert_eq!(first, again);
}

async fn prim_sched_005_every_part_of_a_definition_is_kept(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = JobDefinition::new("every \"part\" 'of' it ü", "t", "0 30 2 * * mon")
        .payload("{\"a\": 'b'}")
        .time_zone("Europe/Berlin")
        .misfire(Misfire::All { cap: 7, window: Duration::from_secs(3_600) })
        .overlap(Overlap::Queue)
        .jitter(Duration::from_secs(90))
        .priority(-3)
        .enabled(true);
    let kept = world.jobs().create_or_update(all.clone()).await.unwrap();
    assert_eq!(kept.definition(), all);
    let other = all.misfire(Misfire::Skip).overlap(Overlap::Skip).enabled(false);
    let kept = world.jobs().create_or_update(other.clone()).await.unwrap();
    assert_eq!(kept.definition(), other);
    assert_eq!(kept.next_nominal_at, None, "a disabled job has no next nominal time");
}

async fn prim_sched_005_a_promised_time_outlives_an_update_of_anything_but_the_schedule(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    let job = daily(&world, "nightly").await;
    jobs.create_or_update(job.clone()).await.unwrap();
    world.advance(DAY).await;
    // It is due now, and was not looked at yet. Another payload must not lose the occurrence.
    let promised = get(&world, "nightly").await.next_nominal_at.unwrap();
    assert!(promised < world.now().await);
    let updated = jobs.create_or_update(job.clone().payload("other").priority(4)).await.unwrap();
    assert_eq!(updated.next_nominal_at, Some(promised));
    // Another schedule is another promise.
    let updated =
        jobs.create_or_update(job.payload("other").priority(4).time_zone("Asia/Tokyo")).await.unwrap();
    assert!(updated.next_nominal_at.unwrap() > world.now().await);
}

async fn prim_sched_006_a_trigger_makes_a_claimable_run(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    jobs.create_or_update(daily(&world, "nightly").await.payload("p").priority(3)).await.unwrap();
    let run = jobs.trigger("nightly").await.unwrap();
    assert_eq!((run.state, run.trigger, run.job.as_str()), (RunState::Pending, Trigger::Manual, "nightly"));
    let queue = world.run_queue();
    let owner = OwnerToken::new();
    let claimed = queue.claim(&ClaimRequest::new(owner).lease(LEASE)).await.unwrap().items;
    assert_eq!(claimed.len(), 1);
    let item = &claimed[0];
    assert_eq!((item.id(), item.topic.as_str(), item.payload.as_str()), (run.id, "report", "p"));
    assert_eq!(item.priority, 3);
    assert_eq!(item.headers["mainstay-job"], "nightly");
    assert_eq!(item.headers["mainstay-run"], run.id.to_string());
    assert_eq!(item.headers["mainstay-trigger"], "manual");
    assert_eq!(item.headers["mainstay-nominal"].parse::<Timestamp>().unwrap(), run.nominal_at);
    assert_eq!(jobs.run(run.id).await.unwrap().unwrap().state, RunState::Claimed);
    // Two at once are two runs, and a disabled job can be triggered too.
    jobs.disable("nightly").await.unwrap();
    let (one, two) = (jobs.trigger("nightly").await.unwrap(), jobs.trigger("nightly").await.unwrap());
    assert_ne!(one.id, two.id);
    assert_ne!(one.nominal_at, two.nominal_at);
    for run in [&one, &two] {
        assert_ne!(run.nominal_at.subsec_nanosecond(), 0, "a whole second is for an occurrence");
    }
}

async fn prim_sched_006_an_unknown_job_cannot_be_triggered(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    let error = jobs.trigger("nobody's").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.message().contains("nobody's"), "{error}");
    assert_eq!(jobs.enable("nobody's").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(jobs.disable("nobody's").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(jobs.delete("nobody's").await.unwrap(), None);
    assert_eq!(jobs.trigger("").await.unwrap_err().field(), Some("name"));
    assert_eq!(world.run_queue().stats().await.unwrap().open(), 0);
}

async fn prim_sched_007_an_update_changes_topic_and_payload_of_later_runs(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    let job = daily(&world, "nightly").await;
    jobs.create_or_update(job.clone().topic("old").payload("1")).await.unwrap();
    let before = jobs.trigger("nightly").await.unwrap().id;
    jobs.create_or_update(job.topic("new").payload("2")).await.unwrap();
    let after = jobs.trigger("nightly").await.unwrap().id;
    world.advance(DAY).await;
    let owner = OwnerToken::new();
    let due = jobs.materialise(owner).await.unwrap().runs;
    assert_eq!(due.len(), 1);
    jobs.dispatch(owner, 10).await.unwrap();
    let message = async |id| {
        let row = world.row(id).await;
        (row.topic, row.payload.unwrap())
    };
    assert_eq!(message(before).await, ("old".to_owned(), "1".to_owned()));
    assert_eq!(message(after).await, ("new".to_owned(), "2".to_owned()));
    assert_eq!(message(due[0]).await, ("new".to_owned(), "2".to_owned()));
}

async fn prim_sched_008_a_deleted_job_loses_its_pending_runs_and_keeps_its_history(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    let owner = OwnerToken::new();
    jobs.create_or_update(daily(&world, "nightly").await).await.unwrap();
    jobs.create_or_update(daily(&world, "other").await).await.unwrap();
    let dispatched = jobs.trigger("nightly").await.unwrap().id;
    jobs.dispatch(owner, 10).await.unwrap();
    let pending = [jobs.trigger("nightly").await.unwrap().id, jobs.trigger("nightly").await.unwrap().id];
    let others = jobs.trigger("other").await.unwrap().id;
    assert_eq!(jobs.delete("nightly").await.unwrap(), Some(2));
    assert_eq!(jobs.get("nightly").await.unwrap(), None);
    let claimed = world.run_queue().claim(&ClaimRequest::new(owner)).await.unwrap().items;
    assert_eq!(claimed.iter().map(|item| item.id()).collect::<Vec<_>>(), [others]);
    for id in pending {
        let run = jobs.run(id).await.unwrap().expect("its history stays");
        assert_eq!(run.state, RunState::Cancelled);
        assert!(run.ended_at.is_some() && run.error.is_some());
    }
    let run = jobs.run(dispatched).await.unwrap().expect("its history stays");
    assert_eq!(run.state, RunState::Dispatched, "what is dispatched goes on");
    let history = jobs.runs(&RunFilter::all().job("nightly"), Page::default()).await.unwrap();
    assert_eq!(history.len(), 3);
    assert_eq!(jobs.delete("nightly").await.unwrap(), None, "once");
    // The name can be used again, and the old runs are still there.
    jobs.create_or_update(daily(&world, "nightly").await).await.unwrap();
    assert_eq!(jobs.runs(&RunFilter::all().job("nightly"), Page::default()).await.unwrap().len(), 3);
}

async fn prim_sched_008_a_claimed_run_of_a_deleted_job_is_cancelled_too(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, queue, owner) = (world.jobs(), world.run_queue(), OwnerToken::new());
    jobs.create_or_update(daily(&world, "nightly").await).await.unwrap();
    let run = jobs.trigger("nightly").await.unwrap().id;
    let claimed = queue.claim(&ClaimRequest::new(owner)).await.unwrap();
    assert_eq!(claimed.items.len(), 1);
    assert_eq!(jobs.delete("nightly").await.unwrap(), Some(1));
    assert_eq!(jobs.run(run).await.unwrap().expect("its history stays").state, RunState::Cancelled);
    // Whoever has it can neither give it back nor finish it.
    queue.abandon(owner, &claimed.handles(), None, None).await.unwrap();
    queue.ack(owner, &claimed.handles()).await.unwrap();
    world.advance(LEASE * 2).await;
    assert!(jobs.dispatch(owner, 10).await.unwrap().is_empty());
    assert_eq!(jobs.run(run).await.unwrap().expect("its history stays").state, RunState::Cancelled);
}

async fn prim_sched_009_due_occurrences_become_runs(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    let owner = OwnerToken::new();
    jobs.create_or_update(daily(&world, "nightly").await.payload("p")).await.unwrap();
    assert_eq!(jobs.materialise(owner).await.unwrap(), Default::default(), "nothing is due yet");
    world.advance(DAY).await;
    let promised = get(&world, "nightly").await.next_nominal_at.unwrap();
    let made = jobs.materialise(owner).await.unwrap();
    assert_eq!((made.runs.len(), made.misfired, made.overlapped), (1, 0, 0));
    let run = jobs.run(made.runs[0]).await.unwrap().unwrap();
    assert_eq!((run.nominal_at, run.trigger, run.state), (promised, Trigger::Cron, RunState::Pending));
    assert_eq!(run.due_at, promised, "no jitter was asked for");
    let job = get(&world, "nightly").await;
    assert_eq!(job.last_nominal_at, Some(promised));
    assert_eq!(job.version, 1, "only a change of the definition counts");
    let next = job.next_nominal_at.unwrap();
    assert!(next > world.now().await);
    assert_eq!(jobs.materialise(owner).await.unwrap(), Default::default(), "once");
    let item = world.run_queue().get(run.id).await.unwrap().unwrap();
    assert_eq!((item.status, item.payload.as_deref()), (Status::Ready, Some("p")));
}

async fn prim_sched_010_the_next_event_is_the_nearest_of_all(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    assert_eq!(world.timers.next_event_time().await.unwrap(), None);
    // A message in the outbox is no scheduled event.
    world.enqueue(Message::new("t", "").due_in(Duration::from_secs(5))).await;
    assert_eq!(world.timers.next_event_time().await.unwrap(), None);
    let job = jobs.create_or_update(daily(&world, "nightly").await).await.unwrap();
    assert_eq!(world.timers.next_event_time().await.unwrap(), job.next_nominal_at);
    let near = async |wanted: Timestamp| {
        let found = world.timers.next_event_time().await.unwrap().unwrap();
        let off = found.duration_since(wanted).abs();
        assert!(off.as_secs() < 30, "{found} is not {wanted}");
    };
    let timer = NewTimer::new("t", "", Duration::from_secs(7_200));
    world.timers.schedule(timer).await.unwrap();
    near(world.now().await + 2.hours()).await;
    let runs = world.run_queue();
    let held = jobs.trigger("nightly").await.unwrap();
    near(world.now().await).await;
    runs.cancel(&[held.id]).await.unwrap();
    near(world.now().await + 2.hours()).await;
    jobs.disable("nightly").await.unwrap();
    world.advance(Duration::from_secs(9_000)).await;
    assert!(world.timers.next_event_time().await.unwrap().unwrap() < world.now().await, "overdue");
}

async fn r18_a_disabled_job_does_not_run_and_goes_on_from_when_it_is_enabled(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    let owner = OwnerToken::new();
    jobs.create_or_update(daily(&world, "nightly").await).await.unwrap();
    assert!(jobs.disable("nightly").await.unwrap());
    assert!(!jobs.disable("nightly").await.unwrap(), "once");
    let job = get(&world, "nightly").await;
    assert_eq!((job.enabled, job.next_nominal_at), (false, None));
    world.advance(DAY * 3).await;
    assert_eq!(jobs.materialise(owner).await.unwrap(), Default::default());
    assert!(jobs.enable("nightly").await.unwrap());
    let job = get(&world, "nightly").await;
    assert!(job.enabled && job.next_nominal_at.unwrap() > world.now().await);
    assert_eq!(jobs.materialise(owner).await.unwrap(), Default::default(), "what it missed does not run");
    world.advance(DAY).await;
    assert_eq!(jobs.materialise(owner).await.unwrap().runs.len(), 1);
}

async fn r18_a_job_that_somebody_disabled_stays_so_when_it_is_registered_again(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    let job = daily(&world, "nightly").await;
    jobs.create_or_update(job.clone()).await.unwrap();
    jobs.disable("nightly").await.unwrap();
    let again = jobs.create_or_update(job.clone().payload("new")).await.unwrap();
    assert_eq!((again.enabled, again.payload.as_str(), again.next_nominal_at), (false, "new", None));
    let again = jobs.create_or_update(job.payload("new").enabled(true)).await.unwrap();
    assert!(again.enabled && again.next_nominal_at.is_some(), "unless it says so");
}

async fn r18_jobs_are_listed_by_name_however_many(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    // More than one page of them.
    for number in 0..505 {
        let job = JobDefinition::new(format!("job-{number:03}"), "t", "@daily").enabled(false);
        jobs.create_or_update(job).await.unwrap();
    }
    let mut names: Vec<String> = Vec::new();
    loop {
        let page = jobs.list(names.last().map(String::as_str), 100).await.unwrap();
        if page.is_empty() {
            break;
        }
        names.extend(page.into_iter().map(|job| job.name));
    }
    let wanted: Vec<_> = (0..505).map(|number| format!("job-{number:03}")).collect();
    assert_eq!(names, wanted);
}

async fn r19_a_wrong_expression_is_refused_at_registration(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let jobs = world.jobs();
    for (cron, says) in [("60 * * * *", "minute"), ("* * *", "fields"), ("0 0 0 0 0 0 0", "fields")] {
        let error = jobs.create_or_update(JobDefinition::new("n", "t", cron)).await.unwrap_err();
        assert_eq!(error.field(), Some("cron"), "{cron}: {error}");
        assert!(error.message().contains(says), "{cron}: {error}");
    }
    let unknown = JobDefinition::new("n", "t", "@daily").time_zone("Europe/Berln");
    assert_eq!(jobs.create_or_update(unknown).await.unwrap_err().field(), Some("time_zone"));
    assert!(jobs.list(None, 100).await.unwrap().is_empty(), "nothing was written");
    assert_eq!(jobs.list(None, 0).await.unwrap_err().field(), Some("limit"));
    // Five fields begin with the minute, six with the second.
    let minutely = jobs.create_or_update(JobDefinition::new("five", "t", "* * * * *")).await.unwrap();
    assert_eq!(minutely.next_nominal_at.unwrap().as_second() % 60, 0);
    let at_30 = jobs.create_or_update(JobDefinition::new("six", "t", "30 * * * * *")).await.unwrap();
    assert_eq!(at_30.next_nominal_at.unwrap().as_second() % 60, 30);
    for name in ["@yearly", "@monthly", "@weekly", "@daily", "@hourly"] {
        jobs.create_or_update(JobDefinition::new(name, "t", name)).await.unwrap();
    }
}

async fn r18_other_languages_register_jobs(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        return Verdict::NotApplicable("functions");
    }
    let names = Default::default();
    let call = async |function: &str, arguments: &[Option<&str>]| fx.call(&names, function, arguments).await;
    let jobs = world.jobs();
    call("jobs_create_or_update", &[Some("n"), Some("t"), Some("0 2 * * *")]).await.unwrap();
    // The next time is calculated by a scheduler, as from the registration.
    assert_eq!(get(&world, "n").await.next_nominal_at, None);
    jobs.materialise(OwnerToken::new()).await.unwrap();
    let job = get(&world, "n").await;
    assert!(job.next_nominal_at.is_some());
    // What came while no scheduler was there is late, and not lost.
    call("jobs_create_or_update", &[Some("late"), Some("t"), Some("* * * * *")]).await.unwrap();
    world.advance(Duration::from_secs(3_600)).await;
    assert_eq!(jobs.materialise(OwnerToken::new()).await.unwrap().runs.len(), 1);
    jobs.delete("late").await.unwrap();

    assert_eq!(call("jobs_disable", &[Some("n")]).await.unwrap(), ["t"]);
    assert_eq!(call("jobs_enable", &[Some("n")]).await.unwrap(), ["t"]);
    let run = call("jobs_trigger", &[Some("n")]).await.unwrap().remove(0);
    let run = jobs.run(run.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!((run.job.as_str(), run.trigger), ("n", Trigger::Manual));
    assert_eq!(call("jobs_delete", &[Some("n")]).await.unwrap(), ["1"]);
    for (function, argument) in [("jobs_trigger", "n"), ("jobs_enable", "n")] {
        let error = call(function, &[Some(argument)]).await.unwrap_err();
        assert!(error.contains("there is no job \"n\""), "{function}: {error}");
    }
    for (arguments, says) in [
        ([None, Some("t"), Some("c")], "name must be"),
        ([Some("n"), Some(""), Some("c")], "topic must be"),
        ([Some("n"), Some("t"), Some("")], "cron must be"),
    ] {
        let error = call("jobs_create_or_update", &arguments).await.unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    Verdict::Passed
}

async fn r18_a_job_that_cannot_be_read_keeps_nobody_from_the_others(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        return Verdict::NotApplicable("functions");
    }
    let (jobs, owner) = (world.jobs(), OwnerToken::new());
    let names = Default::default();
    fx.call(&names, "jobs_create_or_update", &[Some("bad"), Some("t"), Some("60 * * * *")]).await.unwrap();
    jobs.create_or_update(daily(&world, "good").await).await.unwrap();
    world.advance(DAY).await;
    assert_eq!(jobs.materialise(owner).await.unwrap().runs.len(), 1);
    let bad = get(&world, "bad").await;
    assert!(bad.problem.as_deref().is_some_and(|problem| problem.contains("minute")), "{:?}", bad.problem);
    assert_eq!(jobs.materialise(owner).await.unwrap(), Default::default());
    let event = world.timers.next_event_time().await.unwrap().unwrap();
    assert!(event <= world.now().await, "the good one's run: {event}");
    // A change gives it another chance.
    let mended = jobs.create_or_update(JobDefinition::new("bad", "t", "0 * * * *")).await.unwrap();
    assert!(mended.problem.is_none() && mended.next_nominal_at.is_some());
    assert_ne!(definition(&bad), definition(&mended));
    Verdict::Passed
}

async fn r18_a_job_that_one_scheduler_cannot_read_is_another_ones(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (jobs, owner, store) = (world.jobs(), OwnerToken::new(), world.provider.jobs());
    let job = jobs.create_or_update(daily(&world, "nightly").await).await.unwrap();
    // An older program knows less of expressions or zones than we do.
    assert!(store.reject("nightly", job.version, "what is that?").await.unwrap());
    assert!(!store.reject("nightly", job.version, "and that?").await.unwrap(), "once");
    assert!(!store.reject("nightly", job.version + 1, "and that?").await.unwrap(), "of this version");
    let rejected = get(&world, "nightly").await;
    assert_eq!(
        (rejected.next_nominal_at, rejected.problem.as_deref()),
        (job.next_nominal_at, Some("what is that?"))
    );
    assert_eq!(store.next_nominal().await.unwrap(), None, "nobody is woken for it over and over");
    // Whoever can read it takes the note back, before its time or after.
    assert_eq!(jobs.materialise(owner).await.unwrap(), Default::default());
    let cleared = get(&world, "nightly").await;
    assert_eq!((cleared.next_nominal_at, cleared.problem), (job.next_nominal_at, None));
    assert!(store.reject("nightly", job.version, "what is that?").await.unwrap());
    world.advance(DAY).await;
    assert_eq!(jobs.materialise(owner).await.unwrap().runs.len(), 1, "no occurrence is lost");
    assert_eq!(get(&world, "nightly").await.problem, None);
}

async fn r18_a_role_with_the_documented_rights_can_do_it_all(
    fx: &dyn Fixture,
) -> Result<(), crate::fixture::Lacking> {
    let world = World::open(fx).await;
    let role = fx.least_privilege().await?;
    let jobs = mainstay_core::job::Jobs::new(role.jobs());
    let owner = OwnerToken::new();
    jobs.create_or_update(daily(&world, "nightly").await).await.unwrap();
    world.advance(DAY).await;
    assert_eq!(jobs.materialise(owner).await.unwrap().runs.len(), 1);
    let run = jobs.trigger("nightly").await.unwrap().id;
    assert_eq!(jobs.dispatch(owner, 10).await.unwrap().len(), 2);
    jobs.record_output(run, "fine").await.unwrap();
    let claimed = world.claim(owner, 10).await;
    world.outbox.ack(owner, &crate::world::handles(&claimed)).await.unwrap();
    assert_eq!(jobs.collect().await.unwrap().len(), 2);
    world.advance(DAY * 100).await;
    let retention = mainstay_core::outbox::Retention::default();
    mainstay_core::outbox::Outbox::new(role.outbox()).purge(&retention).await.unwrap();
    assert_eq!(jobs.purge(&retention).await.unwrap(), 2);
    assert!(jobs.disable("nightly").await.unwrap());
    assert_eq!(jobs.delete("nightly").await.unwrap(), Some(0));
    assert_eq!(world.timers.next_event_time().await.unwrap(), None);
    Ok(())
}
