//! Where the settings come from: flag, environment, file, default, in this order.

use std::path::{Path, PathBuf};

use mainstay::audit::Actor;
use mainstay::otlp::{Otlp, OtlpOptions};
use mainstay::store::Names;
use serde::Deserialize;

use crate::cli::Flags;
use crate::commands::config::mending;
use crate::commands::serve::settings::ServeFile;
use crate::database::Database;
use crate::failure::Failure;
use crate::output::Stream;
use crate::user;

const DEFAULT_FILE: &str = "mainstay.toml";

/// The configuration file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) database: Option<String>,
    pub(crate) schema: Option<String>,
    pub(crate) outbox_table: Option<String>,
    pub(crate) fleet: Option<String>,
    pub(crate) log: Option<String>,
    pub(crate) serve: Option<ServeFile>,
    pub(crate) telemetry: Option<OtlpOptions>,
}

/// The settings every command shares.
pub(crate) struct Settings {
    /// The configuration file, if one is named.
    config: Option<PathBuf>,
    database: Option<String>,
    /// The schema named on the command line itself, which alone moves what otherwise keeps to a schema of its own.
    pub(crate) schema_flag: Option<String>,
    schema: Option<String>,
    outbox_table: Option<String>,
    fleet: Option<String>,
    log: Option<String>,
    /// The section `[serve]`.
    pub(crate) serve: ServeFile,
    /// The section `[telemetry]`.
    pub(crate) telemetry: OtlpOptions,
    /// Where traces and metrics go, while a command runs that has some.
    pub(crate) otlp: Option<Otlp>,
    /// Who does what is done.
    pub(crate) actor: Actor,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

impl Settings {
    /// Collects the settings.
    pub(crate) fn collect(flags: Flags) -> Result<Self, Failure> {
        let file = read_file(flags.config.as_deref())?;
        Self::of(flags, file)
    }

    /// The settings where the file says this.
    pub(crate) fn of(flags: Flags, file: File) -> Result<Self, Failure> {
        let from_flags = match (flags.quiet, flags.verbose) {
            (true, _) => None,
            (false, 0) => None,
            (false, 1) => Some("info".to_owned()),
            (false, 2) => Some("debug".to_owned()),
            (false, _) => Some("trace".to_owned()),
        };
        let actor = first(flags.actor, "MAINSTAY_ACTOR", None)?;
        let actor = actor.map_or_else(|| Actor::from(format!("cli:{}", user::name())), Actor::from);
        let actor = actor.correlated(flags.correlation_id.as_deref().unwrap_or_default());
        // Told now, and not when half of the work is done.
        actor.validate("cli").map_err(|error| {
            let field = error.field().unwrap_or("actor").replace('_', "-");
            Failure::usage(format!("the {field} is not valid")).because(error.message())
        })?;
        Ok(Self {
            config: flags.config,
            actor,
            database: first(flags.database, "MAINSTAY_DATABASE", file.database)?,
            schema_flag: flags.schema.clone(),
            schema: first(flags.schema, "MAINSTAY_SCHEMA", file.schema)?,
            outbox_table: first(flags.outbox_table, "MAINSTAY_OUTBOX_TABLE", file.outbox_table)?,
            fleet: file.fleet,
            serve: file.serve.unwrap_or_default(),
            telemetry: file.telemetry.unwrap_or_default(),
            otlp: None,
            log: if flags.quiet { None } else { first(from_flags, "MAINSTAY_LOG", file.log)? },
            json: flags.json,
            quiet: flags.quiet,
        })
    }

    /// The section `[serve]` as it is now.
    pub(crate) fn read_serve_again(&self) -> Result<ServeFile, Failure> {
        Ok(read_file(self.config.as_deref())?.serve.unwrap_or_default())
    }

    /// Which log lines are shown, for a command whose own trouble is (or is not) worth telling unasked.
    pub(crate) fn log_filter(&self, tells_unasked: bool) -> &str {
        let unasked = match (tells_unasked, self.quiet) {
            (false, _) => "off",
            (true, true) => "error",
            (true, false) => "warn",
        };
        self.log.as_deref().unwrap_or(unasked)
    }

    /// Whether the screen may be drawn in place: nothing else is written to it.
    pub(crate) fn may_draw(&self) -> bool {
        !self.json && self.may_draw_on(Stream::Out)
    }

    /// Whether lines may be drawn in place there: somebody watches it, and the log does not go there as well.
    pub(crate) fn may_draw_on(&self, stream: Stream) -> bool {
        let logs_to_terminal = self.log.is_some() && Stream::Err.is_terminal();
        !self.quiet && !logs_to_terminal && stream.is_terminal()
    }

    /// The names of schema and tables.
    pub(crate) fn names(&self) -> mainstay::Result<Names> {
        self.names_in(self.schema.as_deref().unwrap_or(Names::default().schema()))
    }

    /// The names with another schema.
    pub(crate) fn names_in(&self, schema: &str) -> mainstay::Result<Names> {
        let names = Names::default().with_schema(schema)?;
        match &self.outbox_table {
            Some(table) => names.with_outbox(table),
            None => Ok(names),
        }
    }

    /// The outbox's table, if one is named.
    pub(crate) fn outbox_table(&self) -> Option<&str> {
        self.outbox_table.as_deref()
    }

    /// The fleet file, if one is named.
    pub(crate) fn fleet(&self, flag: Option<PathBuf>) -> Result<Option<PathBuf>, Failure> {
        if flag.is_some() {
            return Ok(flag);
        }
        Ok(first(None, "MAINSTAY_FLEET", self.fleet.clone())?.map(PathBuf::from))
    }

    /// The database, if one is named.
    pub(crate) fn database(&self) -> Result<Option<Database>, Failure> {
        self.database.as_deref().map(Database::parse).transpose()
    }

    /// The database, which must be named.
    pub(crate) fn require_database(&self) -> Result<Database, Failure> {
        self.database()?.ok_or_else(|| {
            Failure::usage("no database is named").hint(format!(
                "give --database URL, set MAINSTAY_DATABASE, or write `database = \"…\"` into {DEFAULT_FILE}\n{}",
                crate::database::FORMS
            ))
        })
    }
}

/// The first that is there: flag, environment, file.
pub(crate) fn first(
    flag: Option<String>,
    variable: &str,
    file: Option<String>,
) -> Result<Option<String>, Failure> {
    if flag.is_some() {
        return Ok(flag);
    }
    match std::env::var(variable) {
        // Set to nothing is how a shell unsets it for one command.
        Ok(value) if !value.is_empty() => Ok(Some(value)),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::usage(format!("the environment variable {variable} is not valid UTF-8")))
        }
        _ => Ok(file),
    }
}

/// The configuration file and what stands in it; nothing if there is none and none is named.
pub(crate) fn file_text(named: Option<&Path>) -> Result<(PathBuf, Option<String>), Failure> {
    let path = named.map_or_else(|| PathBuf::from(DEFAULT_FILE), Path::to_path_buf);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok((path, Some(text))),
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => Ok((path, None)),
        Err(error) => {
            Err(Failure::usage(format!("the configuration file {} can't be read", path.display()))
                .because(error))
        }
    }
}

fn read_file(named: Option<&Path>) -> Result<File, Failure> {
    let (path, text) = file_text(named)?;
    let Some(text) = text else { return Ok(File::default()) };
    toml::from_str(&text).map_err(|error| {
        // Told without any value: the error's own display quotes the line, its message the value, and either may be a password.
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        let failure = Failure::usage(format!("the configuration file {}, line {line}", path.display()))
            .because(mending::told(error.message()));
        failure.hint(match mending::nearest(error.message()) {
            Some(known) => format!("did you mean `{known}`? `mainstay config check` tells all that is wrong at once"),
            None => "`mainstay config check` tells all that is wrong at once; docs/reference/configuration.md has every key".to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::File;

    const PAGE: &str = include_str!("../../../docs/reference/configuration.md");

    /// The keys that a section takes: whoever names one that is not known is told them.
    fn taken(section: &str) -> BTreeSet<String> {
        let error = toml::from_str::<File>(&format!("{section}\nno_such_key = 1\n")).err().unwrap();
        let message = error.message();
        assert!(message.starts_with("unknown field `no_such_key`, expected"), "{message}");
        message.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    /// The keys in the first column of the page's table with this head, before what is said of them. A key that is a section stands there as one.
    fn described(head: &str) -> BTreeSet<String> {
        let start = format!("| {head} |");
        let table = PAGE.lines().skip_while(|line| !line.starts_with(&start)).skip(2);
        let rows = table.take_while(|line| line.starts_with('|'));
        let keys = rows.map(|row| row.split(" | ").next().unwrap().split([':', ';']).next().unwrap());
        let quoted = keys.flat_map(|keys| keys.split('`').skip(1).step_by(2));
        quoted.map(|key| key.trim_matches(['[', ']']).trim_start_matches("serve.").to_owned()).collect()
    }

    #[test]
    fn the_reference_has_every_key_and_no_other() {
        // These have a chapter of their own.
        let chapters = ["serve", "telemetry"].map(str::to_owned).into();
        assert_eq!(described("Key"), &taken("") - &chapters);
        for section in ["[serve]", "[serve.retention]", "[[serve.webhook]]", "[telemetry]"] {
            assert_eq!(described(&format!("Key of `{section}`")), taken(section), "{section}");
        }
    }
}
