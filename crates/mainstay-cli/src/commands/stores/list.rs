//! `mainstay stores list`.

use std::process::ExitCode;

use serde_json::json;

use crate::output;
use crate::settings::Settings;
use crate::text::{harmless, shorten};

use super::{Store, verdict};

pub(super) fn run(stores: &[Store], settings: &Settings) -> anyhow::Result<ExitCode> {
    let trouble = |store: &Store| store.database.as_ref().err().map(|trouble| trouble.text.clone());
    if settings.json {
        let rows: Vec<_> = stores
            .iter()
            .map(|store| {
                json!({
                    "id": store.id,
                    "database": store.location(),
                    "schema": store.names.schema(),
                    "error": trouble(store),
                })
            })
            .collect();
        output::json(&rows)?;
    } else {
        let mut table = output::table(["id", "database", "schema"]);
        for store in stores {
            let location = store.location().or_else(|| trouble(store)).unwrap_or_default();
            table.add_row([shorten(&store.id, 60), harmless(&location), shorten(store.names.schema(), 40)]);
        }
        output::print(&table)?;
    }
    Ok(verdict(stores.iter().filter_map(|store| store.database.as_ref().err()).map(|trouble| trouble.code)))
}
