//! The doctor: what is around the work is told, and looking at it changes nothing.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::health::{Check, Health, HealthReport, HealthStatus, Probe};
use mainstay_core::job::{JobDefinition, Misfire};
use mainstay_core::outbox::Message;
use mainstay_core::store::{Names, Queue};

use crate::case::cases;
use crate::fixture::{Fixture, Lacking};
use crate::world::{TOPIC, World};

cases! { $ doctor_cases:
    r25_a_doctor_looks_at_what_is_around_the_work ["R25"],
    r25_a_doctor_tells_which_topic_lags ["R25"],
    r25_a_doctor_tells_of_runs_that_were_made_late ["R25"],
    r25_a_doctor_is_content_with_the_rights_that_are_granted ["R25"],
    r25_a_doctor_tells_of_rights_that_are_lacking ["R25"],
    r25_a_doctor_leaves_everything_as_it_is ["R25"],
}

const MINUTE: Duration = Duration::from_secs(60);

/// What is asked beyond what health asks.
const BEYOND: [&str; 12] = [
    "clock",
    "indexes",
    "lag.inbox",
    "lag.job_runs",
    "lag.outbox",
    "lag.timers",
    "notifications",
    "rights",
    "runs",
    "sessions",
    "storage",
    "transactions",
];

async fn examine(world: &World<'_>) -> HealthReport {
    Health::new(Arc::clone(&world.provider)).check(Probe::Doctor).await
}

#[track_caller]
fn found<'a>(report: &'a HealthReport, check: &str) -> (HealthStatus, &'a str) {
    let check = report.check(check).unwrap_or_else(|| panic!("no check {check} in {report:#?}"));
    (check.status, &check.summary)
}

/// What not every server that speaks the protocol tells, nor tells everybody: then that is said, and nothing else is held up by it.
fn is_kept_back(fx: &dyn Fixture, check: &Check) -> bool {
    fx.provider_name() == "sqlserver"
        && ["indexes", "storage", "transactions"].contains(&check.name)
        && check.status == HealthStatus::Unknown
        && check.summary.contains("tell")
}

async fn r25_a_doctor_looks_at_what_is_around_the_work(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let health = Health::new(Arc::clone(&world.provider)).check(Probe::Full).await;
    let report = examine(&world).await;
    let names = |report: &HealthReport| report.checks.iter().map(|check| check.name).collect::<Vec<_>>();
    let mut beyond = names(&report);
    beyond.retain(|name| !names(&health).contains(name));
    beyond.sort_unstable();
    assert_eq!(beyond, BEYOND);
    assert_eq!(report.checks.len(), health.checks.len() + BEYOND.len());
    let pooled = fx.provider_name().ends_with("pgbouncer");
    for check in report.checks.iter().filter(|check| !is_kept_back(fx, check)) {
        let fine = check.status <= HealthStatus::Healthy;
        let deaf = pooled && check.name == "notifications" && check.status == HealthStatus::Degraded;
        assert!(fine || deaf, "{check:?}");
        assert!(check.status <= HealthStatus::Healthy || check.advice.is_some(), "{check:?}");
    }
    assert_eq!(found(&report, "sessions").1.contains("pooler"), pooled, "{report:#?}");
    assert!(report.status.is_fit() || report.checks.iter().any(|check| is_kept_back(fx, check)));
}

async fn r25_a_doctor_tells_which_topic_lags(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue(Message::new("invoice.sent", "")).await;
    world.advance(4 * MINUTE).await;
    for _ in 0..2 {
        world.enqueue(Message::new("order.paid", "")).await;
    }
    world.enqueue(Message::new("report.built", "").due_at(world.now().await + 60 * MINUTE)).await;
    let stats = world.outbox.stats().await.unwrap();
    let waiting: Vec<_> = stats.topics.iter().map(|topic| topic.oldest_ready.is_some()).collect();
    if world.provider.diagnosis().is_none() {
        return assert_eq!(found(&examine(&world).await, "lag.outbox").0, HealthStatus::NotApplicable);
    }
    assert_eq!(waiting, [true, true, false], "{stats:?}");
    let report = examine(&world).await;
    let (status, told) = found(&report, "lag.outbox");
    assert_eq!(status, HealthStatus::Healthy, "{told}");
    assert!(
        told.starts_with("invoice.sent: 1 waiting, the first for 4 min; order.paid: 2 waiting"),
        "{told}"
    );
    assert!(!told.contains("report.built"), "{told}");
    world.advance(2 * MINUTE).await;
    assert_eq!(found(&examine(&world).await, "lag.outbox").0, HealthStatus::Degraded);
    // It is told, and by itself makes nothing unhealthy: that is for what anybody could claim.
    assert_eq!(world.claim(OwnerToken::new(), 10).await.len(), 3);
    assert_eq!(found(&examine(&world).await, "lag.outbox"), (HealthStatus::Healthy, "nothing waits"));
}

async fn r25_a_doctor_tells_of_runs_that_were_made_late(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    if world.provider.diagnosis().is_none() {
        return assert_eq!(found(&examine(&world).await, "runs").0, HealthStatus::NotApplicable);
    }
    let misfire = Misfire::All { cap: 20, window: 60 * MINUTE };
    let every_minute = JobDefinition::new("every minute", TOPIC, "* * * * *").misfire(misfire);
    world.jobs().create_or_update(every_minute).await.unwrap();
    world.jobs().materialise(OwnerToken::new()).await.unwrap();
    let report = examine(&world).await;
    assert_eq!(found(&report, "runs").0, HealthStatus::Healthy, "{report:#?}");
    // Nobody looks at it for a while.
    world.advance(10 * MINUTE).await;
    world.jobs().materialise(OwnerToken::new()).await.unwrap();
    let report = examine(&world).await;
    let (status, told) = found(&report, "runs");
    assert_eq!(status, HealthStatus::Degraded, "{report:#?}");
    assert!(told.contains("made late, one of every minute by "), "{told}");
    // After a day it is history.
    world.advance(25 * 60 * MINUTE).await;
    assert_eq!(found(&examine(&world).await, "runs").0, HealthStatus::Healthy);
}

async fn r25_a_doctor_is_content_with_the_rights_that_are_granted(fx: &dyn Fixture) {
    // A file has no users: whoever opened it may do everything.
    let provider = match fx.least_privilege().await {
        Ok(provider) => provider,
        Err(Lacking(_)) => fx.provider().await,
    };
    let report = Health::new(provider).check(Probe::Doctor).await;
    assert!(found(&report, "rights").0 <= HealthStatus::Healthy, "{report:#?}");
}

async fn r25_a_doctor_tells_of_rights_that_are_lacking(fx: &dyn Fixture) {
    let Ok(provider) = fx.without_rights().await else { return };
    let Some(diagnosis) = provider.diagnosis() else { return };
    // The schema itself is out of its sight, so of the tables nothing is told; what it lacks is known all the same.
    let report = Health::new(Arc::clone(&provider)).check(Probe::Doctor).await;
    assert!(report.check("rights").is_some() && !report.status.is_fit(), "{report:#?}");
    let seen = diagnosis.rights().await.unwrap();
    let outbox = Names::default().of(Queue::Outbox).queue().to_owned();
    let rights = match fx.provider_name() {
        // All that anybody needs there is to execute.
        "sqlserver" => ["Outbox_Claim", "Outbox_EnqueueMany", "Lease_Acquire"]
            .map(|name| format!("EXECUTE on \"infra\".\"{name}\"")),
        _ => {
            ["USAGE on schema infra".to_owned(), format!("INSERT on {outbox}"), format!("DELETE on {outbox}")]
        }
    };
    for right in rights {
        assert!(seen.missing.contains(&right), "{right} of {seen:?}");
    }
}

async fn r25_a_doctor_leaves_everything_as_it_is(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue_some(5).await;
    world.claim(OwnerToken::new(), 2).await;
    world.jobs().create_or_update(JobDefinition::new("j", TOPIC, "* * * * *")).await.unwrap();
    world.jobs().trigger("j").await.unwrap();
    world.advance(50 * MINUTE).await;
    let before = fx.contents(&Names::default()).await;
    let report = examine(&world).await;
    let unknown = |check: &&Check| check.status == HealthStatus::Unknown && !is_kept_back(fx, check);
    assert_eq!(report.checks.iter().filter(unknown).count(), 0, "{report:#?}");
    assert_eq!(fx.contents(&Names::default()).await, before);
}
