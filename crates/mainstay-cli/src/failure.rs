//! What is told when something goes wrong, and the exit code that goes with it.
//!
//! One block on stderr: what failed, why, and what to do. Everything passes through [`redact`] on its way out, so
//! that a password in a text that slipped through is still not shown.

use std::fmt;
use std::process::ExitCode;

use mainstay::{Error, ErrorKind};

use crate::database::Database;
use crate::output;
use crate::redact::redact;
use crate::text::harmless;

/// Not as wanted.
pub(crate) const FAILED: u8 = 1;
/// Wrong usage.
pub(crate) const USAGE: u8 = 2;
/// The database can't be reached.
pub(crate) const UNREACHABLE: u8 = 3;

/// A failure of the program itself.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    what: String,
    why: Option<String>,
    hint: Option<String>,
}

impl Failure {
    /// Something that is not as wanted.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { code: FAILED, what: what.into(), why: None, hint: None }
    }

    /// A mistake in an argument, a setting or the configuration file.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { code: USAGE, ..Self::new(what) }
    }

    /// A database that can't be reached.
    pub(crate) fn unreachable(what: impl Into<String>) -> Self {
        Self { code: UNREACHABLE, ..Self::new(what) }
    }

    /// Something with an exit code of its own.
    pub(crate) fn with_code(code: u8, what: impl Into<String>) -> Self {
        Self { code, ..Self::new(what) }
    }

    /// A page that is asked for after what is not there: it would be empty, as if there were no more.
    pub(crate) fn nothing_to_follow(noun: &str, after: impl fmt::Display) -> Self {
        Self::new(format!("there is no {noun} {} to list after", harmless(&after.to_string()))).hint(
            "--after takes the last one of the page before; if it was deleted since, begin without --after",
        )
    }

    /// Says why.
    pub(crate) fn because(mut self, why: impl fmt::Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    /// Says what to do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl Failure {
    /// What failed and why, in one line.
    pub(crate) fn in_words(&self) -> String {
        let why = self.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        format!("{}{why}", self.what).lines().map(str::trim).collect::<Vec<_>>().join(" ")
    }

    /// What to do.
    pub(crate) fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        for (label, text) in [("why:", &self.why), ("do: ", &self.hint)] {
            if let Some(text) = text {
                write!(f, "\n  {label} {}", text.replace('\n', "\n       "))?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Something that is not as wanted and was told on stderr already, one thing at a time. The text is for the record of it.
#[derive(Debug)]
pub(crate) struct Told(pub(crate) String);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Told {}

/// Tells an error on stderr and gives its exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        // Whoever read our output has had enough; that is no failure worth a word.
        return ExitCode::SUCCESS;
    }
    if error.is::<Told>() {
        return ExitCode::from(FAILED);
    }
    let failure = match error.downcast_ref::<Failure>() {
        Some(failure) => failure,
        None => &describe(error, None),
    };
    output::error(&failure.to_string());
    ExitCode::from(failure.code)
}

/// The error as it is told of work on this database. What was worded already stays as it is.
pub(crate) fn at(error: anyhow::Error, database: Option<&Database>) -> anyhow::Error {
    if error.is::<Failure>() || error.is::<Told>() || is_broken_pipe(&error) {
        return error;
    }
    describe(&error, database).into()
}

/// The error in one line, with its exit code: for what is told of one database among many.
pub(crate) fn in_a_line(error: &anyhow::Error) -> (u8, String) {
    let (code, text) = match error.downcast_ref::<Failure>() {
        Some(failure) => (failure.code, failure.in_words()),
        None => {
            let failure = describe(error, None);
            (failure.code, failure.why.unwrap_or(failure.what))
        }
    };
    (code, redact(&text.lines().map(str::trim).collect::<Vec<_>>().join(" ")))
}

fn describe(error: &anyhow::Error, database: Option<&Database>) -> Failure {
    let Some(library) = error.chain().find_map(|cause| cause.downcast_ref::<Error>()) else {
        let why = error.chain().skip(1).map(ToString::to_string).collect::<Vec<_>>().join(": ");
        let failure = Failure::new(error.to_string());
        return if why.is_empty() { failure } else { failure.because(why) };
    };
    // A context above the library's error says what was being done; without one its operation has to do.
    let told = error.to_string();
    let what = match library.field() {
        _ if told != library.to_string() => told,
        Some(_) if library.kind() == ErrorKind::AlreadyExists => "the id is used already".to_owned(),
        Some(field) => format!("the {field} is not valid"),
        None => format!("{} failed", library.operation()),
    };
    let failure = Failure { code: exit_code(library.kind()), ..Failure::new(what) };
    let failure = failure.because(library.message());
    match advice(library.kind(), database) {
        Some(advice) => failure.hint(advice),
        None => failure,
    }
}

/// The exit code of each kind of error, as `mainstay --help` documents it.
fn exit_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::InvalidArgument | ErrorKind::Config => USAGE,
        ErrorKind::Unavailable | ErrorKind::Closed => UNREACHABLE,
        _ => FAILED,
    }
}

/// What to do, where the message of the kind does not say it already.
fn advice(kind: ErrorKind, database: Option<&Database>) -> Option<String> {
    let advice = match (kind, database) {
        (ErrorKind::Unavailable, Some(Database::Postgres(_) | Database::SqlServer(_))) => {
            "check the host and port of --database, and that the database is running"
        }
        (ErrorKind::Unavailable, Some(Database::SqliteFile(path))) => {
            let path = path.display();
            return Some(format!(
                "see who has the file {path} open (`fuser -v {path}`): a backup, a shell with an open transaction or \
                 another program may hold its lock; then try again"
            ));
        }
        (ErrorKind::Conflict, _) => "something else was changing the same rows; try again",
        (ErrorKind::Internal, _) => "this should not happen; run it again with -vv and report what it says",
        _ => return None,
    };
    Some(advice.to_owned())
}

/// Whether nobody reads our output any more. The database's connection may break in the same way, and that is a failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    if error.chain().any(|cause| cause.is::<Error>()) {
        return false;
    }
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_says_what_why_and_what_to_do() {
        let failure = Failure::usage("the database").because("a\nb").hint("c");
        assert_eq!(failure.to_string(), "error: the database\n  why: a\n       b\n  do:  c");
    }

    #[test]
    fn a_context_becomes_the_headline() {
        let error = Error::new(ErrorKind::Unavailable, "outbox.stats", "refused");
        let database = Database::Postgres("postgres://h/d".to_owned());
        let failure = describe(&anyhow::Error::new(error).context("could not count"), Some(&database));
        assert_eq!(failure.code, UNREACHABLE);
        assert!(
            failure.to_string().starts_with("error: could not count\n  why: refused\n  do:  check the host")
        );
    }

    #[test]
    fn a_locked_file_is_no_matter_of_host_and_port() {
        let error = Error::new(ErrorKind::Unavailable, "outbox.enqueue", "locked");
        let database = Database::SqliteFile("shop.db".into());
        let told = describe(&error.into(), Some(&database)).to_string();
        assert!(told.contains("who has the file shop.db open") && !told.contains("host"), "{told}");
        let error = Error::new(ErrorKind::Unavailable, "outbox.enqueue", "gone");
        assert_eq!(describe(&error.into(), None).hint, None, "nothing is known of where");
    }

    #[test]
    fn a_connection_that_breaks_is_no_reader_that_has_had_enough() {
        let broken = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&anyhow::Error::new(broken()).context("could not print")));
        let library = Error::new(ErrorKind::Unavailable, "outbox.list", "gone").with_source(broken());
        let error = anyhow::Error::new(library).context("the messages can't be listed");
        assert!(!is_broken_pipe(&error));
        assert_eq!(report(&error), ExitCode::from(UNREACHABLE));
    }

    #[test]
    fn a_wrong_value_is_headed_by_its_field() {
        let error = Error::invalid("schema.names", "schema", "name must be shorter");
        let told = describe(&error.into(), None).to_string();
        assert_eq!(told, "error: the schema is not valid\n  why: schema name must be shorter");
    }
}
