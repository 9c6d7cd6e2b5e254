//! `mainstay config check`.

use std::fmt;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use crate::cli::Flags;
use crate::failure::{self, Failure};
use crate::output;
use crate::redact::redact;
use crate::settings::{self, File, Settings};
use crate::text::{counted, harmless};

use super::effective::{self, Effective};
use super::mending;

pub(super) const EXAMPLES: &str = "\
Examples:
  mainstay config check
  mainstay config check --config /etc/mainstay/mainstay.toml
  mainstay config check --json | jq -r '.settings[] | \"\\(.name)=\\(.value) (\\(.from))\"'

Reads everything as the program would, tells all that is wrong with it at once, and prints the
settings that count with where each comes from, [serve] and [telemetry] included. No password and
no token is shown, and no database is asked; `mainstay health` does that. The exit code is 2 if
something is wrong.";

/// The variables that the program reads, beside those of tests and builds.
const VARIABLES: [&str; 11] = [
    "MAINSTAY_ACTOR",
    "MAINSTAY_DATABASE",
    "MAINSTAY_FLEET",
    "MAINSTAY_LISTEN",
    "MAINSTAY_LOG",
    "MAINSTAY_OUTBOX_TABLE",
    "MAINSTAY_SCHEMA",
    "MAINSTAY_TLS_CERTIFICATE",
    "MAINSTAY_TLS_KEY",
    "MAINSTAY_TOKEN",
    "MAINSTAY_TOKENS",
];

/// Something that is wrong, and where.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    place: String,
    problem: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Problem {
    pub(super) fn new(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { place: place.into(), problem: problem.into(), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn of(place: &str, failure: &Failure) -> Self {
        let told = redact(&failure.in_words());
        // Which part it is about is said by the place.
        let told = told.strip_prefix(&format!("{place} is not valid: ")).unwrap_or(&told).to_owned();
        let problem = Self::new(place, told);
        match failure.advice() {
            Some(hint) => problem.hint(redact(hint)),
            None => problem,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)?;
        match &self.hint {
            Some(hint) => write!(f, "; {}", hint.lines().map(str::trim).collect::<Vec<_>>().join(" ")),
            None => Ok(()),
        }
    }
}

pub(super) fn run(flags: Flags) -> anyhow::Result<ExitCode> {
    let json = flags.json;
    let (path, text) = settings::file_text(flags.config.as_deref())?;
    let shown = path.display().to_string();
    let (file, mut problems) = match &text {
        Some(text) => mending::read::<File>(text, &shown),
        None => (Some(File::default()), Vec::new()),
    };
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut notes: Vec<_> = unknown_variables(names).collect();
    // What could not be read at all says nothing of what counts.
    let mut found = Vec::new();
    if let Some(file) = file {
        found = effective::collect(&flags, &file, &shown);
        match Settings::of(flags, file) {
            Ok(settings) => {
                // What a pool or a timer of a provider needs to be there; nothing in it is asked.
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let (wrong, told) = runtime.block_on(values(&settings));
                problems.extend(wrong);
                notes.extend(told);
            }
            Err(failure) => problems.push(Problem::of("settings", &failure)),
        }
    }
    let file = text.is_some().then_some(&shown);
    if json {
        output::json(&json!({ "file": file, "problems": problems, "notes": notes, "settings": found }))?;
    } else {
        tell(file, &found, &problems, &notes)?;
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(failure::USAGE) })
}

/// What is wrong with values that could be read, and what else there is to tell of them.
async fn values(settings: &Settings) -> (Vec<Problem>, Vec<String>) {
    let (mut problems, mut notes) = (Vec::new(), Vec::new());
    let mut check = |place: &str, checked: Result<(), Failure>| {
        if let Err(failure) = checked {
            problems.push(Problem::of(place, &failure));
        }
    };
    check("log", crate::log::check(settings.log_filter(true)));
    let names = settings.names();
    check("database", settings.database().map(drop));
    check("schema, outbox_table", names.as_ref().map(drop).map_err(|error| Failure::usage(error.message())));
    check("[serve]", crate::commands::serve::settings::check(&settings.serve));
    match crate::otlp::check(settings.telemetry.clone()) {
        Ok(unheeded) => notes.extend(unheeded),
        Err(failure) => check("[telemetry]", Err(failure)),
    }
    if let (Ok(Some(database)), Ok(names)) = (settings.database(), names)
        && let Err(error) = database.check(names).await
    {
        match error.downcast_ref::<Failure>() {
            Some(failure) => problems.push(Problem::of("database", failure)),
            None => problems.push(Problem::new("database", failure::in_a_line(&error).1)),
        }
    }
    let fleet = settings.fleet(None);
    match fleet {
        Ok(Some(path)) => match crate::commands::stores::troubles(&path, settings).await {
            Ok(troubles) => problems.extend(
                troubles
                    .into_iter()
                    .map(|(id, trouble)| Problem::new(format!("fleet, database {id}"), trouble)),
            ),
            Err(error) => {
                let (_, told) = failure::in_a_line(&error);
                problems.push(Problem::new("fleet", told));
            }
        },
        Ok(None) => {}
        Err(failure) => problems.push(Problem::of("fleet", &failure)),
    }
    (problems, notes)
}

/// Variables that look as if they were meant for the program, and that it does not read. They do no harm, so they are only told.
fn unknown_variables(names: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let unknown = names.filter(|name| name.starts_with("MAINSTAY_") && !VARIABLES.contains(&name.as_str()));
    unknown.filter_map(|name| {
        let near = mending::closest(&name, VARIABLES.into_iter())?;
        Some(format!("the environment variable {name} is not read; did you mean {near}?"))
    })
}

fn tell(
    file: Option<&String>,
    found: &[Effective],
    problems: &[Problem],
    notes: &[String],
) -> Result<(), anyhow::Error> {
    match file {
        Some(file) => output::line(format_args!("{file}"))?,
        None => output::line("no configuration file")?,
    }
    let mut table = output::table(["setting", "value", "from"]);
    for setting in found {
        table.add_row([setting.name.clone(), harmless(&setting.value), setting.from.clone()]);
    }
    output::print(&table)?;
    for note in notes {
        output::note(harmless(note));
    }
    for problem in problems {
        output::error(&format!("error: {}", harmless(&problem.to_string())));
    }
    match problems.len() as u64 {
        0 => output::line("nothing is wrong"),
        wrong => {
            output::note(counted(wrong, "problem"));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_told_and_others_are_not() {
        let names = ["MAINSTAY_DATABSE", "MAINSTAY_SCHEMA", "MAINSTAY_TEST_SERVERS_OF_MINE", "PATH"];
        let told: Vec<_> = unknown_variables(names.into_iter().map(str::to_owned)).collect();
        assert_eq!(
            told,
            ["the environment variable MAINSTAY_DATABSE is not read; did you mean MAINSTAY_DATABASE?"]
        );
    }
}
