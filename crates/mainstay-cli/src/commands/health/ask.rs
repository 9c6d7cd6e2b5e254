//! Asking, whatever state the database is in.

use std::sync::Arc;
use std::time::Instant;

use mainstay::health::{DatabaseHealth, FleetHealth, Health, HealthOptions, HealthReport, Probe};
use mainstay::store::{Names, Provider};

use crate::commands::stores::{self, FleetArgs, visit};
use crate::database::{Database, IfMissing};
use crate::failure::{self, UNREACHABLE};
use crate::settings::Settings;

/// One database. An error is wrong usage; a database that can't be opened is a report.
pub(super) async fn one(
    database: &Database,
    names: Names,
    probe: Probe,
    options: HealthOptions,
) -> anyhow::Result<HealthReport> {
    let unreachable = |why: &str| DatabaseHealth::unreachable("", probe, database.to_string(), why).report;
    let begun = Instant::now();
    let opened = tokio::time::timeout(options.timeout, database.open_wide(names, IfMissing::Refuse)).await;
    let provider = match opened {
        Ok(Ok(provider)) => provider,
        Ok(Err(error)) => {
            let (code, why) = failure::in_a_line(&error);
            return if code == UNREACHABLE {
                Ok(unreachable(&why).took(begun.elapsed()))
            } else {
                Err(error)
            };
        }
        Err(_) => return Ok(unreachable(&format!("no answer within {:?}", options.timeout))),
    };
    let mut report = Health::new(Arc::clone(&provider)).with_options(options)?.check(probe).await;
    report.database = database.to_string();
    close(provider, options).await;
    Ok(report)
}

/// All databases of a fleet file, or some of them.
pub(super) async fn fleet(
    fleet: FleetArgs,
    probe: Probe,
    options: HealthOptions,
    at_once: u32,
    settings: &Settings,
) -> anyhow::Result<FleetHealth> {
    let begun = Instant::now();
    let databases = stores::read(fleet, settings)?;
    let look = move |provider: Arc<dyn Provider>| async move {
        Ok(Health::new(provider).with_options(options)?.check(probe).await)
    };
    // The checks end by themselves before that; what is left is to open and to close.
    let patience = options.timeout * 10;
    let asked = visit::each(databases, (patience, at_once), IfMissing::Refuse, look).await;
    let databases = asked.into_iter().map(|(store, result)| {
        let location = store.location().unwrap_or_default();
        match result {
            Ok(mut report) => {
                report.database = location;
                DatabaseHealth::new(store.id(), report)
            }
            Err(trouble) => DatabaseHealth::unreachable(store.id(), probe, location, &trouble.text),
        }
    });
    Ok(FleetHealth::new(databases.collect(), begun.elapsed()))
}

/// Nobody waits for a database that does not answer to be closed.
async fn close(provider: Arc<dyn Provider>, options: HealthOptions) {
    let _too_long = tokio::time::timeout(options.timeout, provider.close()).await;
}
