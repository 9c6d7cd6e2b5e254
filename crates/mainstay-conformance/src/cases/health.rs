//! Health: each check turns bad when the thing is bad, and only then; and looking changes nothing.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::health::{
    Explanation, FleetHealth, Health, HealthOptions, HealthReport, HealthStatus, Probe, Startup, Why,
};
use mainstay_core::inbox::Incoming;
use mainstay_core::job::JobDefinition;
use mainstay_core::join::NewJoin;
use mainstay_core::lease::{LeaseOptions, Leases};
use mainstay_core::outbox::{Message, OnFailure};
use mainstay_core::queue::{ClaimRequest, Context, FailureReason, HandlerError};
use mainstay_core::store::Names;
use mainstay_core::timer::NewTimer;
use mainstay_core::{OwnerToken, WorkItemId};

use crate::case::cases;
use crate::cases::lease::acquire;
use crate::crew::PATIENCE;
use crate::fixture::{Affliction, Fixture, Lacking};
use crate::tenants::Tenants;
use crate::world::{LEASE, TOPIC, World, handles, interrupted};

cases! { $ health_cases:
    r25_a_database_with_nothing_to_do_is_healthy ["R25"],
    r25_a_probe_asks_for_what_it_is_for_and_no_more ["R25"],
    r25_what_is_due_for_long_is_overdue ["R25"],
    r25_each_queue_is_told_apart ["R25"],
    r25_what_waits_for_its_ordering_key_is_not_overdue ["R25", "MST-040"],
    r25_a_claim_that_lapsed_long_ago_is_stuck ["R25"],
    r25_workers_are_missed_where_work_is_due ["R25"],
    r25_jobs_and_deadlines_that_nobody_keeps_are_overdue ["R25"],
    r25_a_job_that_nobody_can_read_is_told ["R25"],
    r25_dead_letters_and_what_is_due_later_are_no_trouble ["R25"],
    r25_leases_that_lapsed_are_told_for_a_while ["R25"],
    r25_a_schema_that_is_not_the_right_one_is_unhealthy ["R25", "R28"],
    r25_looking_writes_nothing ["R25"],
    r25_a_dropped_look_does_no_harm ["R25"],
    r25_a_dead_database_is_told_and_so_are_the_others ["R25", "R24"],
    r25_a_silent_database_is_told_within_the_bound ["R25", "R24"],
    r25_a_fleet_tells_the_worst_first ["R25", "R24"],
    r25_it_is_told_why_an_item_is_not_running ["R25", "R8", "MST-040"],
    r25_a_process_is_ready_between_its_start_and_its_stop ["R25"],
}

const MINUTE: Duration = Duration::from_secs(60);

async fn look(world: &World<'_>) -> HealthReport {
    Health::new(Arc::clone(&world.provider)).check(Probe::Full).await
}

#[track_caller]
fn status(report: &HealthReport, check: &str) -> HealthStatus {
    report.check(check).unwrap_or_else(|| panic!("no check {check} in {report:#?}")).status
}

/// These checks are as bad as told, and all others are healthy; the worst comes first and says what to do.
#[track_caller]
fn assert_bad(report: &HealthReport, bad: &[(&str, HealthStatus)]) {
    for check in &report.checks {
        let expected = bad.iter().find(|(name, _)| *name == check.name);
        let expected = expected.map_or(HealthStatus::Healthy, |(_, status)| *status);
        assert_eq!(check.status, expected, "{check:?}");
        assert!(check.status == HealthStatus::Healthy || check.advice.is_some(), "{check:?}");
    }
    for (name, _) in bad {
        assert!(report.check(name).is_some(), "no check {name}");
    }
    assert_eq!(report.status, HealthStatus::worst(bad.iter().map(|(_, status)| *status)));
    assert!(report.checks.is_sorted_by_key(|check| std::cmp::Reverse(check.status)), "{report:#?}");
}

async fn r25_a_database_with_nothing_to_do_is_healthy(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let report = look(&world).await;
    assert_bad(&report, &[]);
    assert_eq!((report.provider, report.reached), (world.provider.kind(), Some(true)));
    let mut names: Vec<_> = report.checks.iter().map(|check| check.name).collect();
    names.sort_unstable();
    let all = [
        "connectivity",
        "leases",
        "overdue.inbox",
        "overdue.job_runs",
        "overdue.jobs",
        "overdue.joins",
        "overdue.outbox",
        "overdue.timers",
        "paused",
        "schema",
        "stuck",
        "workers",
    ];
    assert_eq!(names, all);
}

async fn r25_a_probe_asks_for_what_it_is_for_and_no_more(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue(Message::new(TOPIC, "")).await;
    world.advance(60 * MINUTE).await;
    let health = Health::new(Arc::clone(&world.provider));
    for (probe, asked) in [(Probe::Live, &["connectivity"][..]), (Probe::Ready, &["connectivity", "schema"])]
    {
        let report = health.check(probe).await;
        assert_bad(&report, &[]);
        let names: Vec<_> = report.checks.iter().map(|check| check.name).collect();
        assert_eq!((report.probe, names), (probe, asked.to_vec()));
    }
    assert_eq!(health.check(Probe::Full).await.status, HealthStatus::Unhealthy);
}

async fn r25_what_is_due_for_long_is_overdue(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue_some(3).await;
    world.enqueue(Message::new(TOPIC, "urgent").priority(9)).await;
    assert_bad(&look(&world).await, &[]);
    // Somebody is there, but does not come to it.
    world.advance(4 * MINUTE).await;
    let busy = ClaimRequest::new(OwnerToken::new()).lease(60 * MINUTE).batch(1);
    assert_eq!(world.claim_batch(&busy).await.items.len(), 1);
    assert_bad(&look(&world).await, &[]);
    world.advance(2 * MINUTE).await;
    let report = look(&world).await;
    assert_bad(&report, &[("overdue.outbox", HealthStatus::Degraded)]);
    let told = &report.check("overdue.outbox").unwrap().summary;
    assert!(told.starts_with("3 items") && told.contains("6 min"), "{told}");
    // Half an hour is too long. The limits are options.
    world.advance(25 * MINUTE).await;
    assert_eq!(status(&look(&world).await, "overdue.outbox"), HealthStatus::Unhealthy);
    let patient = HealthOptions::default().overdue(60 * MINUTE, 120 * MINUTE);
    let patient = Health::new(Arc::clone(&world.provider)).with_options(patient).unwrap();
    assert_eq!(status(&patient.check(Probe::Full).await, "overdue.outbox"), HealthStatus::Healthy);
    // Whoever claims the rest ends it.
    world.claim(OwnerToken::new(), 10).await;
    assert_bad(&look(&world).await, &[]);
}

async fn r25_each_queue_is_told_apart(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let nobody = ("workers", HealthStatus::Unhealthy);
    let overdue = |check| [nobody, (check, HealthStatus::Degraded)];
    let timer = world.schedule(NewTimer::new(TOPIC, "", Duration::ZERO)).await;
    world.advance(6 * MINUTE).await;
    assert_bad(&look(&world).await, &overdue("overdue.timers"));
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [timer]);
    // It is a message now, and that is due from now on.
    assert_bad(&look(&world).await, &[]);
    world.claim(OwnerToken::new(), 10).await;

    world
        .jobs()
        .create_or_update(JobDefinition::new("yearly", TOPIC, "0 0 1 1 *").enabled(false))
        .await
        .unwrap();
    world.jobs().trigger("yearly").await.unwrap();
    world.inbox.enqueue(Incoming::new("shop", "7", Message::new(TOPIC, ""))).await.unwrap();
    assert_bad(&look(&world).await, &[]);
    world.advance(6 * MINUTE).await;
    let report = look(&world).await;
    for check in ["overdue.job_runs", "overdue.inbox"] {
        assert_eq!(status(&report, check), HealthStatus::Degraded, "{report:#?}");
    }
    for check in ["overdue.outbox", "overdue.timers", "overdue.jobs", "overdue.joins"] {
        assert_eq!(status(&report, check), HealthStatus::Healthy, "{report:#?}");
    }
    let told = &report.check("workers").unwrap().summary;
    assert!(told.contains("inbox: work") && told.contains("job runs: work"), "{told}");
}

async fn r25_what_waits_for_its_ordering_key_is_not_overdue(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let keyed = |key: &str| Message::new(TOPIC, "").ordering_key(key).on_failure(OnFailure::Hold);
    for key in ["held", "held", "held", "later", "later"] {
        world.enqueue(keyed(key)).await;
    }
    // The first of one key fails and holds it; the first of the other is to be tried again in a day.
    let owner = OwnerToken::new();
    let first = world.claim(owner, 10).await;
    assert_eq!(first.len(), 2);
    let (held, later): (Vec<_>, Vec<_>) =
        first.iter().partition(|item| item.ordering_key.as_deref() == Some("held"));
    let error = || Some("no".to_owned());
    world.outbox.fail(owner, &[held[0].handle], error()).await.unwrap();
    let day = Some(24 * 60 * MINUTE);
    world.outbox.abandon(owner, &[later[0].handle], day, error()).await.unwrap();
    world.advance(60 * MINUTE).await;
    assert_bad(&look(&world).await, &[]);
    assert!(world.outbox.release_key("held").await.unwrap());
    world.advance(60 * MINUTE).await;
    assert_eq!(status(&look(&world).await, "overdue.outbox"), HealthStatus::Unhealthy);
}

async fn r25_a_claim_that_lapsed_long_ago_is_stuck(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue_some(2).await;
    assert_eq!(world.claim(OwnerToken::new(), 10).await.len(), 2);
    // While the lease lasts it is at work, and for a while after that somebody may be about to take over.
    assert_bad(&look(&world).await, &[]);
    world.advance(LEASE + MINUTE).await;
    assert_bad(&look(&world).await, &[]);
    world.advance(MINUTE + Duration::from_secs(1)).await;
    let report = look(&world).await;
    assert_bad(&report, &[("stuck", HealthStatus::Degraded)]);
    let told = &report.check("stuck").unwrap().summary;
    assert!(told.contains("outbox: 2 items") && told.contains("2 min ago"), "{told}");
    world.advance(10 * MINUTE).await;
    assert_bad(&look(&world).await, &[("stuck", HealthStatus::Unhealthy)]);
    assert_eq!(world.claim(OwnerToken::new(), 10).await.len(), 2);
    assert_bad(&look(&world).await, &[]);
}

async fn r25_workers_are_missed_where_work_is_due(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue(Message::new(TOPIC, "")).await;
    world.advance(MINUTE).await;
    assert_bad(&look(&world).await, &[]);
    world.advance(2 * MINUTE).await;
    let report = look(&world).await;
    assert_bad(&report, &[("workers", HealthStatus::Unhealthy)]);
    let told = &report.check("workers").unwrap().summary;
    assert!(told.contains("outbox: work") && told.contains("none has ever"), "{told}");

    let running =
        world.work(|outbox| outbox.raw_handler(TOPIC, async |_: Context| Ok::<(), HandlerError>(()))).await;
    world.until_idle().await;
    let report = look(&world).await;
    assert_bad(&report, &[]);
    assert!(report.check("workers").unwrap().summary.contains("an item ended"), "{report:#?}");
    running.stop().await.unwrap();
    // It ended something a moment ago: somebody who is restarted is not missed at once.
    world.enqueue(Message::new(TOPIC, "").due_at(world.now().await - 60 * MINUTE)).await;
    assert_eq!(status(&look(&world).await, "workers"), HealthStatus::Healthy);
    world.advance(3 * MINUTE).await;
    let report = look(&world).await;
    assert_eq!(status(&report, "workers"), HealthStatus::Unhealthy);
    assert!(report.check("workers").unwrap().summary.contains("ended an item 3 min ago"), "{report:#?}");
}

async fn r25_jobs_and_deadlines_that_nobody_keeps_are_overdue(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let every_minute = JobDefinition::new("every minute", TOPIC, "* * * * *");
    world.jobs().create_or_update(every_minute.clone()).await.unwrap();
    world.joins().start(NewJoin::new(2).deadline_in(60 * MINUTE)).await.unwrap();
    assert_bad(&look(&world).await, &[]);
    world.advance(7 * MINUTE).await;
    assert_bad(&look(&world).await, &[("overdue.jobs", HealthStatus::Degraded)]);
    // What is switched off is not due.
    world.jobs().create_or_update(every_minute.enabled(false)).await.unwrap();
    assert_bad(&look(&world).await, &[]);
    world.advance(59 * MINUTE).await;
    assert_bad(&look(&world).await, &[("overdue.joins", HealthStatus::Degraded)]);
    world.advance(60 * MINUTE).await;
    assert_bad(&look(&world).await, &[("overdue.joins", HealthStatus::Unhealthy)]);
    assert_eq!(world.provider.joins().expire(10).await.unwrap().len(), 1);
    assert_bad(&look(&world).await, &[]);
}

async fn r25_a_job_that_nobody_can_read_is_told(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let job = world.jobs().create_or_update(JobDefinition::new("odd", TOPIC, "0 0 1 1 *")).await.unwrap();
    assert!(world.provider.jobs().reject("odd", job.version, "no such zone").await.unwrap());
    let report = look(&world).await;
    assert_bad(&report, &[("overdue.jobs", HealthStatus::Degraded)]);
    assert!(report.check("overdue.jobs").unwrap().summary.contains("\"odd\""), "{report:#?}");
}

async fn r25_dead_letters_and_what_is_due_later_are_no_trouble(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue_some(20).await;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 50).await;
    world.outbox.fail(owner, &handles(&claimed), Some("broken".to_owned())).await.unwrap();
    world.inbox.mark_dead("shop", "7", Some("broken".to_owned())).await.unwrap();
    let later = world.now().await + 10 * 24 * 60 * MINUTE;
    world.enqueue(Message::new(TOPIC, "").due_at(later)).await;
    world.inbox.enqueue(Incoming::new("shop", "8", Message::new(TOPIC, "").due_at(later))).await.unwrap();
    world.schedule(NewTimer::new(TOPIC, "", later)).await;
    world.joins().start(NewJoin::new(2).deadline_at(later)).await.unwrap();
    assert_bad(&look(&world).await, &[]);
    // However old they get.
    world.advance(9 * 24 * 60 * MINUTE).await;
    assert_bad(&look(&world).await, &[]);
}

async fn r25_leases_that_lapsed_are_told_for_a_while(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let leases = Leases::new(world.provider.leases());
    let still = || LeaseOptions::default().duration(MINUTE).renew(false);
    let held = acquire(&leases, "released", still()).await;
    assert!(held.release().await.unwrap());
    std::mem::forget(acquire(&leases, "nightly", still()).await);
    let report = look(&world).await;
    assert_bad(&report, &[]);
    assert!(report.check("leases").unwrap().summary.contains("1 lease held"), "{report:#?}");
    world.advance(2 * MINUTE).await;
    let report = look(&world).await;
    assert_bad(&report, &[("leases", HealthStatus::Degraded)]);
    assert!(report.check("leases").unwrap().summary.contains("\"nightly\""), "{report:#?}");
    // Somebody takes over.
    std::mem::forget(acquire(&Leases::new(fx.second().await.leases()), "nightly", still()).await);
    assert_bad(&look(&world).await, &[]);
    // Nobody has wanted it for long.
    world.advance(120 * MINUTE).await;
    let report = look(&world).await;
    assert_bad(&report, &[]);
    assert!(report.check("leases").unwrap().summary.contains("1 long lapsed"), "{report:#?}");
}

async fn r25_a_schema_that_is_not_the_right_one_is_unhealthy(fx: &dyn Fixture) {
    let bad = |report: &HealthReport, says: &str| {
        assert_eq!(report.status, HealthStatus::Unhealthy);
        assert_eq!(report.checks[0].name, "schema", "{report:#?}");
        assert!(report.checks[0].summary.contains(says), "{report:#?}");
        assert_eq!(status(report, "connectivity"), HealthStatus::Healthy);
        // What is in other tables only another program knows.
        assert_eq!(status(report, "overdue.outbox"), HealthStatus::Unknown);
        assert_eq!(report.reached, Some(true));
    };
    let health = Health::new(fx.undeployed().await);
    bad(&health.check(Probe::Full).await, "not there");
    assert_eq!(health.check(Probe::Ready).await.status, HealthStatus::Unhealthy);
    assert_eq!(health.check(Probe::Live).await.status, HealthStatus::Healthy);
    let world = World::open(fx).await;
    fx.record_step(&Names::default(), 9_999, "x", 9_999).await;
    bad(&look(&world).await, "newer");
    fx.record_step(&Names::default(), 1, "edited", 1).await;
    bad(&look(&world).await, "not the one this program knows");
}

async fn r25_looking_writes_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    // Something of all that there is to find, much of it bad.
    world.enqueue_some(5).await;
    world.enqueue(Message::new(TOPIC, "").expires_at(world.now().await + MINUTE)).await;
    world.claim(OwnerToken::new(), 2).await;
    world.schedule(NewTimer::new(TOPIC, "", Duration::ZERO)).await;
    world.inbox.enqueue(Incoming::new("shop", "7", Message::new(TOPIC, ""))).await.unwrap();
    world.jobs().create_or_update(JobDefinition::new("j", TOPIC, "* * * * *")).await.unwrap();
    world.jobs().trigger("j").await.unwrap();
    world.joins().start(NewJoin::new(2).deadline_in(MINUTE)).await.unwrap();
    let leases = Leases::new(world.provider.leases());
    std::mem::forget(acquire(&leases, "l", LeaseOptions::default().duration(MINUTE).renew(false)).await);
    world.advance(50 * MINUTE).await;
    let before = fx.contents(&Names::default()).await;
    for probe in [Probe::Live, Probe::Ready, Probe::Full] {
        Health::new(Arc::clone(&world.provider)).check(probe).await;
    }
    let report = look(&world).await;
    assert_eq!(report.status, HealthStatus::Unhealthy, "{report:#?}");
    let unknown = report.checks.iter().filter(|check| check.status == HealthStatus::Unknown);
    assert_eq!(unknown.count(), 0, "{report:#?}");
    assert_eq!(fx.contents(&Names::default()).await, before);
    // A write would have been seen.
    world.enqueue(Message::new(TOPIC, "")).await;
    assert_ne!(fx.contents(&Names::default()).await, before);
}

async fn r25_a_dropped_look_does_no_harm(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for polls in 1..20 {
        let _dropped = interrupted(polls, look(&world)).await;
    }
    assert_bad(&look(&world).await, &[]);
}

/// Makes something wrong with `b` of three databases, and tells what a fleet over them says.
async fn look_with(fx: &dyn Fixture, affliction: Affliction) -> Result<FleetHealth, Lacking> {
    let tenants = Tenants::open(fx, &["a", "b", "c"]).await;
    let fleet = tenants.fleet().build().unwrap();
    let running = fleet.start().await.unwrap();
    fx.afflict(tenants.get("b"), affliction).await?;
    let options = HealthOptions::default().timeout(Duration::from_secs(2));
    let look = fleet.health(Probe::Full, options, 2);
    let report = tokio::time::timeout(PATIENCE, look).await.expect("a look that ends").unwrap();
    running.stop().await;
    for id in ["a", "c"] {
        assert_bad(report.database(id).unwrap(), &[]);
    }
    let order: Vec<_> = report.databases.iter().map(|database| database.id.as_str()).collect();
    assert_eq!(order, ["b", "a", "c"], "{report:#?}");
    assert_eq!(report.status, HealthStatus::Unhealthy);
    Ok(report)
}

async fn r25_a_dead_database_is_told_and_so_are_the_others(fx: &dyn Fixture) -> Result<(), Lacking> {
    let report = look_with(fx, Affliction::Dead).await?;
    let dead = report.database("b").unwrap();
    assert_eq!((dead.status, dead.reached), (HealthStatus::Unhealthy, Some(false)));
    assert_eq!((dead.checks[0].name, dead.checks[0].status), ("connectivity", HealthStatus::Unhealthy));
    let rest = dead.checks[1..].iter();
    assert!(rest.clone().all(|check| check.status == HealthStatus::Unknown), "{dead:#?}");
    assert_eq!(rest.count(), 11);
    Ok(())
}

async fn r25_a_silent_database_is_told_within_the_bound(fx: &dyn Fixture) -> Result<(), Lacking> {
    if !fx.provider().await.capabilities().own_clock {
        return Err(Lacking("own_clock: a database in the same process is never silent to those who read"));
    }
    let report = look_with(fx, Affliction::Silent).await?;
    let silent = report.database("b").unwrap();
    assert_eq!(silent.reached, Some(false));
    assert_eq!(status(silent, "connectivity"), HealthStatus::Unhealthy);
    assert!(silent.check("connectivity").unwrap().summary.contains("2 s"), "{silent:#?}");
    Ok(())
}

async fn r25_a_fleet_tells_the_worst_first(fx: &dyn Fixture) -> Result<(), Lacking> {
    let report = look_with(fx, Affliction::WrongSchema).await?;
    let wrong = report.database("b").unwrap();
    assert_eq!((wrong.checks[0].name, wrong.reached), ("schema", Some(true)));
    let error = HealthOptions::default().timeout(Duration::ZERO);
    let error = FleetHealth::check([], Probe::Full, error, 1).await.unwrap_err();
    assert_eq!(error.field(), Some("timeout"));
    Ok(())
}

async fn r25_a_process_is_ready_between_its_start_and_its_stop(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mainstay =
        world.mainstay(|outbox| outbox.raw_handler(TOPIC, async |_: Context| Ok::<(), HandlerError>(())));
    let told = async |probe| {
        let report = mainstay.health().check(probe).await;
        assert_eq!(report.startup, Some(mainstay.startup()));
        (report.status, status(&report, "startup"))
    };
    let (healthy, unhealthy) = (HealthStatus::Healthy, HealthStatus::Unhealthy);
    assert_eq!(mainstay.startup(), Startup::NotStarted);
    assert_eq!(told(Probe::Live).await, (healthy, healthy));
    assert_eq!(told(Probe::Ready).await, (unhealthy, unhealthy));
    let running = mainstay.start().await.unwrap();
    assert_eq!(mainstay.startup(), Startup::Running);
    for probe in [Probe::Live, Probe::Ready, Probe::Full] {
        assert_eq!(told(probe).await, (healthy, healthy), "{probe:?}");
    }
    // A live process says so without asking the database, which a restart would not heal.
    let live = mainstay.health().check(Probe::Live).await;
    assert_eq!((live.checks.len(), live.reached), (1, None));
    running.stop().await.unwrap();
    assert_eq!(mainstay.startup(), Startup::Stopped);
    assert_eq!(told(Probe::Ready).await.1, unhealthy);
    // One that is dropped has stopped too, and nothing of it counts as broken.
    drop(mainstay.start().await.unwrap());
    assert_eq!(mainstay.startup(), Startup::Stopped);
    // A start that can't be: the schema is another's.
    fx.record_step(&Names::default(), 9_999, "x", 9_999).await;
    mainstay.start().await.unwrap_err();
    assert_eq!(mainstay.startup(), Startup::Stopped);
}

async fn r25_it_is_told_why_an_item_is_not_running(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let why = async |id| Explanation::of(world.provider.as_ref(), id).await.unwrap().map(|told| told.why);
    let known = async |id| why(id).await.unwrap();
    assert_eq!(why(WorkItemId::new()).await, None);
    // Not due, then due and unclaimed, then claimed, then lapsed.
    let id = world.enqueue(Message::new(TOPIC, "").due_in(MINUTE)).await;
    assert!(matches!(known(id).await, Why::NotDue { .. }));
    world.advance(MINUTE).await;
    assert!(matches!(known(id).await, Why::Unclaimed { .. }));
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 1).await;
    assert!(matches!(known(id).await, Why::Claimed { by: Some(by), .. } if by == owner));
    world.advance(2 * MINUTE).await;
    assert!(matches!(known(id).await, Why::Lapsed { by: Some(by), .. } if by == owner));
    let retried = world.outbox.abandon(owner, &handles(&claimed), Some(MINUTE), Some("odd".to_owned())).await;
    assert_eq!(retried.unwrap().changed.len(), 1);
    let told = Explanation::of(world.provider.as_ref(), id).await.unwrap().unwrap();
    assert!(told.summary.contains("tried again") && told.summary.contains("odd"), "{told:?}");
    world.advance(MINUTE).await;
    let claimed = world.claim(owner, 1).await;
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    assert!(matches!(known(id).await, Why::Done { at: Some(_) }));
    // Nobody has a handler.
    let running =
        world.work(|outbox| outbox.raw_handler("other", async |_: Context| Ok::<(), HandlerError>(()))).await;
    let lost = world.enqueue(Message::new(TOPIC, "")).await;
    world
        .until("it is given back", async |_: &World<'_>| {
            matches!(known(lost).await, Why::GivenBack { claims: 1, until: Some(_) })
        })
        .await;
    running.stop().await.unwrap();
    // Behind others of its key, which then is held.
    let keyed = |_| Message::new(TOPIC, "").ordering_key("k").on_failure(OnFailure::Hold);
    let mut lane = Vec::new();
    for number in 0..3 {
        lane.push(world.enqueue(keyed(number)).await);
    }
    let behind = Why::KeyBehind { key: "k".to_owned(), first: lane[0], ahead: 2 };
    assert_eq!(known(lane[2]).await, behind);
    let claimed = world.claim_one(owner).await;
    assert_eq!(known(lane[2]).await, behind);
    world.outbox.fail(owner, &[claimed.handle], Some("no".to_owned())).await.unwrap();
    for id in &lane[1..] {
        assert_eq!(known(*id).await, Why::KeyHeld { key: "k".to_owned(), by: lane[0] });
    }
    assert!(matches!(known(lane[0]).await, Why::Failed { reason: Some(FailureReason::Handler), .. }));
    // Other queues are looked at, too; what has fired is a message.
    let timer = world.schedule(NewTimer::new(TOPIC, "", MINUTE)).await;
    let told = Explanation::of(world.provider.as_ref(), timer).await.unwrap().unwrap();
    assert_eq!((told.queue, matches!(told.why, Why::NotDue { .. })), ("timers", true));
    world.advance(MINUTE).await;
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [timer]);
    let told = Explanation::of(world.provider.as_ref(), timer).await.unwrap().unwrap();
    assert_eq!((told.queue, matches!(told.why, Why::Unclaimed { .. })), ("outbox", true));
    // What has expired waits for a claim that fails it.
    let expired = world.enqueue(Message::new(TOPIC, "").expires_in(MINUTE)).await;
    world.advance(2 * MINUTE).await;
    assert!(matches!(known(expired).await, Why::Expired { .. }));
}
