//! What a command did to each of the things it was given.

use std::collections::HashSet;
use std::fmt::Display;
use std::hash::Hash;
use std::process::ExitCode;

use serde::Serialize;

use crate::failure::FAILED;
use crate::output;
use crate::settings::Settings;

#[derive(Serialize)]
struct Verdict<'a, I> {
    id: &'a I,
    changed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Tells of each whether it changed, and if not, why. Anything left unchanged is exit code 1.
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
    let all = verdicts.iter().all(|verdict| verdict.changed);
    if settings.json {
        output::json(&verdicts)?;
    } else {
        for Verdict { id, why, .. } in &verdicts {
            match why {
                None => output::line(format_args!("{id} {verb}"))?,
                Some(why) => eprintln!("{id} not {verb}: {why}"),
            }
        }
    }
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}
