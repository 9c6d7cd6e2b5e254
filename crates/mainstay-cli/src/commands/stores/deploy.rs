//! `mainstay stores deploy`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use mainstay::audit::Actor;
use mainstay::store::{Provider, SchemaStatus};
use serde_json::json;

use crate::attempt::Attempt;
use crate::commands::migrate::{found, word};
use crate::database::IfMissing;
use crate::failure;
use crate::output;
use crate::settings::Settings;
use crate::text::{count, counted, harmless, shorten};

use super::visit::each;
use super::{Store, verdict};

/// What came of one deployment.
struct Deployed {
    changed: bool,
    status: SchemaStatus,
}

pub(super) async fn run(
    stores: Vec<Store>,
    timeout: Duration,
    at_once: u32,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let actor = settings.actor.clone();
    let work = move |provider: Arc<dyn Provider>| deploy(provider, actor.clone());
    let deployed = each(stores, (timeout, at_once), IfMissing::Create, work).await;
    if settings.json {
        let rows: Vec<_> = deployed
            .iter()
            .map(|(store, result)| {
                let done = result.as_ref().ok();
                json!({
                    "id": store.id,
                    "database": store.location(),
                    "ok": done.is_some(),
                    "changed": done.map(|done| done.changed),
                    "status": done.map(|done| word(&done.status)),
                    "version": done.and_then(|done| found(&done.status)),
                    "error": result.as_ref().err().map(|trouble| &trouble.text),
                })
            })
            .collect();
        output::json(&rows)?;
    } else {
        let mut table = output::table(["id", "result", "schema"]);
        for (store, result) in &deployed {
            let (done, detail) = match result {
                Ok(done) if done.changed => ("migrated", done.status.to_string()),
                Ok(done) => ("nothing to do", done.status.to_string()),
                Err(trouble) => ("failed", trouble.text.clone()),
            };
            table.add_row([shorten(&store.id, 60), done.to_owned(), harmless(&detail)]);
        }
        output::print(&table)?;
    }
    let troubles = || deployed.iter().filter_map(|(_, result)| result.as_ref().err());
    if troubles().next().is_some() && !settings.json {
        let failed = count(troubles().count() as u64);
        output::note(format_args!("{failed} of {} not deployed", counted(deployed.len() as u64, "database")));
    }
    Ok(verdict(troubles().map(|trouble| trouble.code)))
}

async fn deploy(provider: Arc<dyn Provider>, actor: Actor) -> anyhow::Result<Deployed> {
    let schema = provider.schema();
    let before = schema.status().await?;
    let status = match schema.deploy_by(&actor).await {
        Ok(status) => status,
        Err(error) => {
            let error = error.into();
            let (code, text) = failure::in_a_line(&error);
            Attempt::new("schema.deploy").failed(provider.as_ref(), &actor, code, &text).await;
            return Err(error);
        }
    };
    Ok(Deployed { changed: before != status, status })
}
