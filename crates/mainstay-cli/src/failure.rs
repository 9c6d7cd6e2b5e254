//! What is told when something goes wrong, and the exit code that goes with it.
//!
//! One block on stderr: what failed, why, and what to do. Everything passes through [`redact`] on its way out, so
//! that a password in a text that slipped through is still not shown.

use std::fmt;
use std::process::ExitCode;

use mainstay::{Error, ErrorKind};

use crate::redact::redact;

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

/// Tells an error on stderr and gives its exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        // Whoever read our output has had enough; that is no failure worth a word.
        return ExitCode::SUCCESS;
    }
    let failure = match error.downcast_ref::<Failure>() {
        Some(failure) => failure,
        None => &describe(error),
    };
    eprintln!("{}", redact(&failure.to_string()));
    ExitCode::from(failure.code)
}

fn describe(error: &anyhow::Error) -> Failure {
    let Some(library) = error.chain().find_map(|cause| cause.downcast_ref::<Error>()) else {
        let why = error.chain().skip(1).map(ToString::to_string).collect::<Vec<_>>().join(": ");
        let failure = Failure::new(error.to_string());
        return if why.is_empty() { failure } else { failure.because(why) };
    };
    // A context above the library's error says what was being done; without one its operation has to do.
    let told = error.to_string();
    let what = if told == library.to_string() { format!("{} failed", library.operation()) } else { told };
    let failure = Failure { code: exit_code(library.kind()), ..Failure::new(what) };
    let failure = failure.because(library.message());
    match advice(library.kind()) {
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
fn advice(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Unavailable => {
            Some("check the host and port of --database, and that the database is running")
        }
        ErrorKind::Conflict => Some("something else was changing the same rows; try again"),
        ErrorKind::Internal => Some("this should not happen; run it again with -vv and report what it says"),
        _ => None,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
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
        let failure = describe(&anyhow::Error::new(error).context("could not count"));
        assert_eq!(failure.code, UNREACHABLE);
        assert!(failure.to_string().starts_with("error: could not count\n  why: refused\n  do:  check"));
    }
}
