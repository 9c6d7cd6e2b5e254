//! `mainstay jobs list`.

use std::process::ExitCode;

use anyhow::Context;
use mainstay::Jobs;
use mainstay::job::Job;
use serde_json::Value;

use crate::output;
use crate::settings::Settings;
use crate::text::{moment, shorten};

/// Jobs fetched at a time: payloads come along, and are not kept.
const PAGE: u32 = 50;

async fn all(jobs: &Jobs) -> Result<Vec<Job>, mainstay::Error> {
    let mut all: Vec<Job> = Vec::new();
    loop {
        let mut page = jobs.list(all.last().map(|job| job.name.as_str()), PAGE).await?;
        page.iter_mut().for_each(|job| job.payload = String::new());
        let full = page.len() == PAGE as usize;
        all.extend(page);
        if !full {
            return Ok(all);
        }
    }
}

pub(super) async fn run(jobs: &Jobs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let all = all(jobs).await.context("the jobs can't be listed")?;
    if settings.json {
        let rows: Result<Vec<_>, _> = all.iter().map(without_payload).collect();
        output::json(&rows?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        output::line("no jobs")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["name", "topic", "cron", "zone", "next (UTC)", "last (UTC)", ""]);
    for job in &all {
        table.add_row([
            shorten(&job.name, 40),
            shorten(&job.topic, 40),
            shorten(&job.cron, 40),
            shorten(&job.time_zone, 32),
            job.next_nominal_at.map(moment).unwrap_or_default(),
            job.last_nominal_at.map(moment).unwrap_or_default(),
            standing(job),
        ]);
    }
    output::print(&table)?;
    Ok(ExitCode::SUCCESS)
}

/// What keeps a job from running, if anything does.
pub(super) fn standing(job: &Job) -> String {
    match &job.problem {
        Some(problem) => shorten(problem, 60),
        None if !job.enabled => "disabled".to_owned(),
        None => String::new(),
    }
}

/// A job as JSON. A list is what ends up in logs and tickets, so payloads stay out of it.
fn without_payload(job: &Job) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(job)?;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("payload");
    }
    Ok(value)
}
