//! What a command did to each of the things it was given.

use std::collections::HashSet;
use std::fmt::Display;
use std::hash::Hash;
use std::process::ExitCode;

use serde::Serialize;

use crate::failure::Told;
use crate::output;
use crate::settings::Settings;
use crate::text::harmless;

#[derive(Serialize)]
struct Verdict<'a, I> {
    id: &'a I,
    changed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Tells of each whether it changed, and if not, why. Anything left unchanged is exit code 1, as an
/// error that is told already: a record of it tells the same.
pub(crate) async fn tell<I: Eq + Hash + Display + Serialize>(
    asked: &[I],
    changed: &[I],
    verb: &str,
    settings: &Settings,
    why_not: impl AsyncFn(&I) -> anyhow::Result<String>,
) -> anyhow::Result<ExitCode> {
    let changed: HashSet<_> = changed.iter().collect();
    let mut verdicts = Vec::with_capacity(asked.len());
    for id in asked {
        let why = match changed.contains(id) {
            true => None,
            false => Some(why_not(id).await?),
        };
        verdicts.push(Verdict { id, changed: why.is_none(), why });
    }
    if settings.json {
        output::json(&verdicts)?;
    } else {
        for Verdict { id, why, .. } in &verdicts {
            match why {
                None => output::line(harmless(&format!("{id} {verb}")))?,
                Some(why) => output::refusal(&harmless(&format!("{id} not {verb}: {why}"))),
            }
        }
    }
    let left = verdicts
        .iter()
        .filter_map(|Verdict { id, why, .. }| Some(format!("{id} not {verb}: {}", why.as_ref()?)));
    let left: Vec<_> = left.collect();
    match left.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(Told(left.join("; ")).into()),
    }
}
