//! Jobs that another language registers with a plain INSERT, and how the statements find their way.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use mainstay_core::OwnerToken;
use mainstay_core::job::{JobDefinition, Jobs, Misfire, Overlap};
use mainstay_core::store::Provider;
use support::Scratch;

#[tokio::test]
async fn a_plain_insert_registers_a_job() {
    let scratch = Scratch::new().await;
    let jobs = Jobs::new(scratch.sqlite.jobs());
    let insert = "INSERT INTO infra_jobs (name, topic, cron) VALUES ('nightly', 'report', '0 2 * * *')";
    scratch.connect().execute(insert, []).unwrap();
    let job = jobs.get("nightly").await.unwrap().unwrap();
    assert_eq!((job.enabled, job.misfire, job.overlap), (true, Misfire::Once, Overlap::Allow));
    assert_eq!((job.time_zone.as_str(), job.version, job.next_nominal_at), ("UTC", 1, None));
    // A scheduler calculates when it is to run, as from its registration.
    jobs.materialise(OwnerToken::new()).await.unwrap();
    let job = jobs.get("nightly").await.unwrap().unwrap();
    assert!(job.next_nominal_at.is_some_and(|next| next > job.updated_at));
}

#[tokio::test]
async fn a_job_that_cannot_be_read_keeps_nobody_from_the_others() {
    let scratch = Scratch::new().await;
    let (jobs, owner) = (Jobs::new(scratch.sqlite.jobs()), OwnerToken::new());
    let hour_ago = "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER) * 1000 - 3600000000";
    let insert = format!(
        "INSERT INTO infra_jobs (name, topic, cron, updated_at)
         VALUES ('bad', 't', '60 * * * *', {hour_ago}), ('good', 't', '* * * * *', {hour_ago})"
    );
    scratch.connect().execute(&insert, []).unwrap();
    assert_eq!(jobs.materialise(owner).await.unwrap().runs.len(), 1);
    let bad = jobs.get("bad").await.unwrap().unwrap();
    assert!(bad.problem.as_deref().is_some_and(|problem| problem.contains("minute")), "{:?}", bad.problem);
    assert!(jobs.materialise(owner).await.unwrap().runs.is_empty());
    let mended = jobs.create_or_update(JobDefinition::new("bad", "t", "@daily")).await.unwrap();
    assert!(mended.problem.is_none() && mended.next_nominal_at.is_some());
}

#[tokio::test]
async fn what_would_break_the_rules_is_refused() {
    let scratch = Scratch::new().await;
    let connection = scratch.connect();
    for (columns, values) in [
        ("name, topic, cron", "'', 't', '@daily'"),
        ("name, topic, cron", "'n', '', '@daily'"),
        ("name, topic, cron, enabled", "'n', 't', '@daily', 2"),
        ("name, topic, cron, misfire", "'n', 't', '@daily', 2"),
        ("name, topic, cron, misfire_cap", "'n', 't', '@daily', 5"),
        ("name, topic, cron, overlap", "'n', 't', '@daily', 3"),
        ("name, topic, cron, jitter_seconds", "'n', 't', '@daily', 86401"),
        ("name, topic, cron, priority", "'n', 't', '@daily', 10"),
        ("name, topic, cron, next_nominal_at", "'n', 't', '@daily', 'soon'"),
    ] {
        let insert = format!("INSERT INTO infra_jobs ({columns}) VALUES ({values})");
        assert!(connection.execute(&insert, []).is_err(), "{insert}");
    }
}
