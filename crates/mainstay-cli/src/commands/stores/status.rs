//! `mainstay stores status`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use mainstay::Outbox;
use mainstay::outbox::OutboxStats;
use mainstay::store::{Agenda, Provider, SchemaStatus};
use serde_json::{Value, json};

use crate::commands::migrate::{found, word};
use crate::commands::outbox::stats;
use crate::database::IfMissing;
use crate::failure::FAILED;
use crate::output::{self, number};
use crate::settings::Settings;
use crate::text::{age, count, counted, harmless, shorten};

use super::visit::{Trouble, each};
use super::{Store, verdict};

/// How a database is that answered.
struct Seen {
    schema: SchemaStatus,
    /// What is in it, if this program can use its schema.
    work: Option<(OutboxStats, Agenda)>,
}

impl Seen {
    fn trouble(&self) -> Option<Trouble> {
        let unusable = || Trouble { code: FAILED, text: self.schema.to_string() };
        (!self.schema.is_usable()).then(unusable)
    }
}

pub(super) async fn run(
    stores: Vec<Store>,
    timeout: Duration,
    at_once: u32,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let seen = each(stores, (timeout, at_once), IfMissing::Refuse, look).await;
    let rows: Vec<_> = seen
        .into_iter()
        .map(|(store, result)| match result {
            Ok(seen) => {
                let trouble = seen.trouble();
                (store, Some(seen), trouble)
            }
            Err(trouble) => (store, None, Some(trouble)),
        })
        .collect();
    if settings.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(store, seen, trouble)| in_json(store, seen.as_ref(), trouble.as_ref()))
            .collect();
        output::json(&rows)?;
    } else {
        tell(&rows)?;
    }
    Ok(verdict(rows.iter().filter_map(|(_, _, trouble)| trouble.as_ref()).map(|trouble| trouble.code)))
}

async fn look(provider: Arc<dyn Provider>) -> anyhow::Result<Seen> {
    let schema = provider.schema().status().await?;
    // Only a compatible program knows what the tables hold.
    let work = match schema.is_usable() {
        true => Some((Outbox::new(provider.outbox()).stats().await?, provider.agenda().await?)),
        false => None,
    };
    Ok(Seen { schema, work })
}

fn in_json(store: &Store, seen: Option<&Seen>, trouble: Option<&Trouble>) -> Value {
    let work = seen.and_then(|seen| seen.work.as_ref());
    json!({
        "id": store.id,
        "database": store.location(),
        "ok": trouble.is_none(),
        "status": seen.map(|seen| word(&seen.schema)),
        "version": seen.and_then(|seen| found(&seen.schema)),
        "outbox": work.map(|(outbox, _)| stats::in_json(outbox)),
        "next_due_seconds": work.and_then(|(_, agenda)| agenda.next()).map(|next| next.as_secs_f64()),
        "error": trouble.map(|trouble| &trouble.text),
    })
}

fn tell(rows: &[(Arc<Store>, Option<Seen>, Option<Trouble>)]) -> anyhow::Result<()> {
    let mut table =
        output::table(["id", "schema", "ready", "scheduled", "in progress", "failed", "next", "trouble"]);
    for (store, seen, trouble) in rows {
        let work = seen.as_ref().and_then(|seen| seen.work.as_ref());
        let messages =
            |of: fn(&OutboxStats) -> u64| number(work.map_or(String::new(), |(o, _)| count(of(o))));
        let next = work.and_then(|(_, agenda)| agenda.next());
        let next =
            next.map_or(String::new(), |next| if next.is_zero() { "now".to_owned() } else { age(next) });
        table.add_row([
            shorten(&store.id, 60).into(),
            seen.as_ref().map_or("", |seen| word(&seen.schema)).into(),
            messages(|outbox| outbox.ready),
            messages(|outbox| outbox.scheduled),
            messages(|outbox| outbox.in_progress),
            messages(|outbox| outbox.failed),
            next.into(),
            harmless(trouble.as_ref().map_or("", |trouble| &trouble.text)).into(),
        ]);
    }
    output::print(&table)?;
    let troubled = rows.iter().filter(|(_, _, trouble)| trouble.is_some()).count() as u64;
    if troubled > 0 {
        output::note(format_args!(
            "{} of {} not well",
            count(troubled),
            counted(rows.len() as u64, "database")
        ));
    }
    Ok(())
}
