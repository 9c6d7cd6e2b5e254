//! What a registration expects to find, and what it has found and done.
//!
//! Reading a job, changing it and writing it back are several steps, and somebody else may change, disable or delete it in
//! between. A write that says what it was made from is refused then, by the database and in the same step that would write.

use std::fmt;

use jiff::Timestamp;

use crate::error::{Error, ErrorKind};

use super::Job;

/// What a registration expects to find under the job's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expected {
    /// Whatever is there: a job is changed, and made if there is none.
    #[default]
    Anything,
    /// No job of that name.
    Nothing,
    /// The job that was read: still of this version, and not another one that was registered after it was deleted. From a
    /// [`Job`]: `Expected::from(&job)`.
    Unchanged {
        /// Its version.
        version: i64,
        /// When it was registered: versions begin anew with a new job.
        created_at: Timestamp,
    },
}

impl Expected {
    /// Whether this is what was expected.
    pub fn is_met_by(&self, found: Option<&Job>) -> bool {
        match (self, found) {
            (Self::Anything, _) | (Self::Nothing, None) => true,
            (Self::Unchanged { version, created_at }, Some(job)) => {
                (*version, *created_at) == (job.version, job.created_at)
            }
            (Self::Nothing, Some(_)) | (Self::Unchanged { .. }, None) => false,
        }
    }

    /// The error for what was found instead. Providers return it where nothing was written.
    pub fn refusal(self, job: &str, found: Option<&Job>) -> Error {
        let mismatch =
            JobMismatch { job: job.to_owned(), expected: self, found: found.map(|job| job.version) };
        Error::new(ErrorKind::Mismatch, "job.create_or_update", mismatch.to_string()).with_source(mismatch)
    }
}

impl From<&Job> for Expected {
    fn from(job: &Job) -> Self {
        Self::Unchanged { version: job.version, created_at: job.created_at }
    }
}

/// Why a registration was refused: what is there is not what was expected. The source of an error of [`ErrorKind::Mismatch`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobMismatch {
    /// The job's name.
    pub job: String,
    /// What was expected.
    pub expected: Expected,
    /// The version of the job that is there; none if there is no such job.
    pub found: Option<i64>,
}

impl fmt::Display for JobMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, expected, found } = self;
        write!(f, "nothing was written of the job {job:?}: ")?;
        match (expected, found) {
            (Expected::Unchanged { version, .. }, Some(found)) if version == found => {
                write!(f, "it was deleted and registered anew since version {version} was read")
            }
            (Expected::Unchanged { version, .. }, Some(found)) => {
                write!(f, "version {version} was expected, and it is of version {found}")
            }
            (Expected::Unchanged { version, .. }, None) => {
                write!(f, "version {version} was expected, and there is no such job")
            }
            (Expected::Nothing, Some(found)) => {
                write!(f, "no such job was expected, and there is one, of version {found}")
            }
            (Expected::Nothing, None) => f.write_str("no such job was expected, and there was one just then"),
            (Expected::Anything, _) => f.write_str("it was changed at the same moment"),
        }?;
        f.write_str("; read it again and decide anew")
    }
}

impl std::error::Error for JobMismatch {}

/// What a registration has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobChange {
    /// There was no such job.
    Created,
    /// The job was another one before.
    Updated,
    /// The job was as it was to be; nothing was written.
    Unchanged,
}

/// A job that is registered, and what was done for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// The job as it stands now.
    pub job: Job,
    /// What was done.
    pub change: JobChange,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobDefinition;

    fn job(version: i64, created_at: Timestamp) -> Job {
        let mut job = Job::new(JobDefinition::new("nightly", "t", "@daily"), created_at);
        job.version = version;
        job
    }

    #[test]
    fn only_what_was_read_is_met() {
        let (then, later) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let read = Expected::from(&job(2, then));
        for (expected, found, met) in [
            (Expected::default(), None, true),
            (Expected::default(), Some(job(9, later)), true),
            (Expected::Nothing, None, true),
            (Expected::Nothing, Some(job(1, then)), false),
            (read, Some(job(2, then)), true),
            (read, Some(job(3, then)), false),
            (read, Some(job(2, later)), false),
            (read, None, false),
        ] {
            assert_eq!(expected.is_met_by(found.as_ref()), met, "{expected:?} {found:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_job_what_was_expected_and_what_was_found() {
        let read = Expected::from(&job(2, Timestamp::UNIX_EPOCH));
        for (expected, found, says) in [
            (read, Some(job(3, Timestamp::UNIX_EPOCH)), "version 2 was expected, and it is of version 3"),
            (read, Some(job(2, Timestamp::MAX)), "registered anew since version 2"),
            (read, None, "version 2 was expected, and there is no such job"),
            (Expected::Nothing, Some(job(7, Timestamp::MAX)), "there is one, of version 7"),
        ] {
            let error = expected.refusal("nightly", found.as_ref());
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Mismatch, false));
            assert!(error.message().contains("\"nightly\"") && error.message().contains(says), "{error}");
            let source = std::error::Error::source(&error).unwrap().downcast_ref::<JobMismatch>().unwrap();
            assert_eq!((source.expected, source.found), (expected, found.map(|job| job.version)));
        }
    }
}
