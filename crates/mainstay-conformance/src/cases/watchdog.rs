//! The watchdog: what is bad is in the log and in the metrics, and so is that it is over.

use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::health::{HealthStatus, Probe, WatchdogOptions};
use mainstay_core::inbox::{InboxRetention, Incoming};
use mainstay_core::outbox::{Message, Retention};
use mainstay_core::queue::ClaimRequest;
use mainstay_core::runtime::Mainstay;
use tracing::Level;

use crate::case::cases;
use crate::fixture::Fixture;
use crate::probe::{Logs, Meter};
use crate::world::{TOPIC, World, handles};

cases! { $ watchdog_cases:
    r25_a_watchdog_says_what_is_bad_and_that_it_is_over ["R25", "R26", "R27"],
    r25_failed_messages_that_retention_is_about_to_delete_are_told ["R25", "R29"],
}

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

async fn r25_a_watchdog_says_what_is_bad_and_that_it_is_over(fx: &dyn Fixture) {
    let (logs, meter) = (Logs::capture(), Meter::new());
    let _counting = meter.install();
    let world = World::open(fx).await;
    world.enqueue(Message::new(TOPIC, "a secret")).await;
    world.advance(40 * MINUTE).await;
    let options = WatchdogOptions::default().interval(Duration::from_secs(1));
    let mainstay = Mainstay::builder_over(world.provider.clone()).watchdog(options).build().unwrap();
    let running = mainstay.start().await.unwrap();
    let of = |level, text: &str, check: &str| {
        logs.find(level, text)
            .iter()
            .filter(|line| line.to_string().contains(&format!("check={check} ")))
            .count()
    };
    world.until("it is said", async |_| of(Level::ERROR, "bad", "overdue.outbox") == 1).await;
    assert_eq!(of(Level::ERROR, "bad", "workers"), 1, "{}", logs.text());
    let counted = meter.read();
    assert_eq!(counted.get("mainstay_health_status check=overdue.outbox"), Some(&3), "{counted:?}");
    world.claim(OwnerToken::new(), 1).await;
    world.until("it is over", async |_| of(Level::INFO, "well again", "overdue.outbox") == 1).await;
    running.stop().await.unwrap();
    // However often it looked meanwhile.
    assert_eq!(of(Level::ERROR, "bad", "overdue.outbox"), 1, "{}", logs.text());
    assert!(!logs.text().contains("a secret"));
}

async fn r25_failed_messages_that_retention_is_about_to_delete_are_told(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let keep = |failed| {
        let retention = Some(Retention::default().failed(failed));
        world.mainstay(|outbox| outbox.retention(retention))
    };
    let found = async |mainstay: &Mainstay| {
        let report = mainstay.health().check(Probe::Full).await;
        report.check("expiring").map(|check| (check.status, check.summary.clone()))
    };
    let (week, for_ever) = (keep(Some(7 * DAY)), keep(None));
    let failed = world.enqueue_some(2).await;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 2).await;
    world.outbox.fail(owner, &handles(&claimed), Some("broken".to_owned())).await.unwrap();
    world.advance(5 * DAY).await;
    assert_eq!(found(&week).await.unwrap().0, HealthStatus::Healthy);
    world.advance(DAY + MINUTE).await;
    let (status, told) = found(&week).await.unwrap();
    assert_eq!(status, HealthStatus::Degraded);
    assert!(told.starts_with("2 failed messages are deleted by retention within 24 h"), "{told}");
    // Where they are kept there is nothing to tell.
    assert_eq!(found(&for_ever).await, None);
    assert_eq!(world.outbox.requeue(&failed).await.unwrap().len(), 2);
    assert_eq!(found(&week).await.unwrap().0, HealthStatus::Healthy);
    // The same of what the inbox gave up.
    let forgets = InboxRetention::default().dead(Some(7 * DAY));
    let dead = Mainstay::builder_over(world.provider.clone())
        .outbox(|outbox| outbox.retention(None))
        .inbox(|inbox| inbox.retention(Some(forgets)))
        .build()
        .unwrap();
    dead.inbox().enqueue(Incoming::new("billing", "1", Message::new(TOPIC, ""))).await.unwrap();
    let claimed = dead.inbox().claim(&ClaimRequest::new(owner)).await.unwrap();
    dead.inbox().fail(owner, &claimed.handles(), Some("broken".to_owned())).await.unwrap();
    assert_eq!(found(&dead).await.unwrap().0, HealthStatus::Healthy);
    world.advance(6 * DAY + MINUTE).await;
    let (status, told) = found(&dead).await.unwrap();
    assert_eq!(status, HealthStatus::Degraded);
    assert!(told.starts_with("1 dead message of the inbox is deleted by retention within 24 h"), "{told}");
}
