//! Databases from a file, read anew each time.
//!
//! ```toml
//! [[databases]]
//! id = "acme"
//! url = "postgres://app:secret@db1/acme"
//!
//! [[databases]]
//! id = "globex"
//! url = "sqlite:/var/lib/app/globex.db"
//! schema = "work"
//! outbox_table = "mail"
//! options = { region = "eu" }
//! ```
//!
//! Beside its id and URL a database may have whatever [`DatabaseEntry::set`] knows. A file whose name ends in `.json` holds the same as JSON. What is not known is refused, so that a misspelt key is not silently left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::Deserialize;

use crate::error::{Error, ErrorKind, Result};

use super::discovery::validate;
use super::{DatabaseDiscovery, DatabaseEntry};

const READ: &str = "fleet.read_file";

/// The databases that a file names.
#[derive(Debug, Clone)]
pub struct DatabaseFile {
    path: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    databases: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    id: String,
    url: String,
    #[serde(default)]
    options: BTreeMap<String, String>,
    /// What is said of it besides, known or not.
    #[serde(flatten)]
    rest: BTreeMap<String, Option<String>>,
}

impl DatabaseFile {
    /// The file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Reads it now. Blocks for as long as that takes.
    pub fn read(&self) -> Result<Vec<DatabaseEntry>> {
        read(&self.path)
    }
}

#[async_trait]
impl DatabaseDiscovery for DatabaseFile {
    async fn discover(&self) -> Result<Vec<DatabaseEntry>> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || read(&path)).await;
        read.map_err(|error| Error::new(ErrorKind::Internal, READ, "the reader panicked").with_source(error))?
    }
}

fn read(path: &Path) -> Result<Vec<DatabaseEntry>> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let text = format!("{} can't be read; check that it is there and may be read", path.display());
        Error::new(ErrorKind::Unavailable, READ, text).with_source(error)
    })?;
    let is_json = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"));
    // Neither error is kept: both quote the line at fault, and that may hold a password.
    let parsed: Result<File, (usize, usize)> = if is_json {
        serde_json::from_str(&text).map_err(|error| (error.line(), error.column()))
    } else {
        toml::from_str(&text).map_err(|error| place(&text, error.span().map_or(0, |span| span.start)))
    };
    let file = parsed.map_err(|(line, column)| {
        let path = path.display();
        let text = format!(
            "{path} is not a list of databases (line {line}, column {column}): each has an `id` and a `url`, \
             and may have a `schema`, names of tables such as `outbox_table`, each a text, and `options`"
        );
        Error::new(ErrorKind::Config, READ, text)
    })?;
    let entries = file.databases.into_iter().map(entry).collect::<Result<Vec<_>>>();
    let entries = entries.map_err(|error| {
        let text = format!("{} is not a list of databases: {}", path.display(), error.message());
        Error::new(ErrorKind::Config, READ, text).with_source(error)
    })?;
    // Whether it may be empty is for the fleet to say.
    validate(&entries, true)?;
    Ok(entries)
}

fn entry(line: Line) -> Result<DatabaseEntry> {
    let mut entry = DatabaseEntry::new(line.id, line.url);
    for (field, value) in line.rest {
        entry = entry.set(&field, value.as_deref())?;
    }
    entry.options = line.options;
    Ok(entry)
}

/// Line and column of a byte, both from 1.
fn place(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, str::len) + 1;
    (line, column)
}
