//! The run a handler is working on, as its message tells it.

use jiff::Timestamp;

use crate::id::WorkItemId;
use crate::outbox::Headers;

use super::Trigger;

// All begin with `RESERVED_HEADER`.
const RUN: &str = "mainstay-run";
const JOB: &str = "mainstay-job";
const NOMINAL: &str = "mainstay-nominal";
const TRIGGER: &str = "mainstay-trigger";

/// The run of a job whose message a handler has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CurrentRun {
    /// The job's name.
    pub job: String,
    /// The run: the id of its work item.
    pub id: WorkItemId,
    /// The time it is for.
    pub nominal_at: Timestamp,
    /// What made it.
    pub trigger: Trigger,
}

impl CurrentRun {
    /// What the headers say, if they are those of a run.
    pub(crate) fn from_headers(headers: &Headers) -> Option<Self> {
        // Asked of every message, and mostly answered here.
        let id = headers.get(RUN)?;
        Some(Self {
            id: id.parse().ok()?,
            job: headers.get(JOB)?.clone(),
            nominal_at: headers.get(NOMINAL)?.parse().ok()?,
            trigger: headers.get(TRIGGER)?.parse().ok()?,
        })
    }

    /// The headers that say it. What a provider writes itself is to be the same.
    pub fn to_headers(&self) -> Headers {
        let header = |name: &str, value: String| (name.to_owned(), value);
        Headers::from([
            header(RUN, self.id.to_string()),
            header(JOB, self.job.clone()),
            header(NOMINAL, self.nominal_at.to_string()),
            header(TRIGGER, self.trigger.to_string()),
        ])
    }

    /// The run of a job for this time; for providers.
    pub fn new(job: String, id: WorkItemId, nominal_at: Timestamp, trigger: Trigger) -> Self {
        Self { job, id, nominal_at, trigger }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_there_and_back() {
        let nominal = Timestamp::from_second(1_800_000_000).unwrap();
        let run = CurrentRun::new("report".to_owned(), WorkItemId::new(), nominal, Trigger::Manual);
        let mut headers = run.to_headers();
        assert!(headers.keys().all(|name| name.starts_with(crate::outbox::RESERVED_HEADER)));
        assert_eq!(CurrentRun::from_headers(&headers), Some(run.clone()));
        // As PostgreSQL writes it.
        headers.insert("mainstay-nominal".to_owned(), "2027-01-15T08:00:00.000000Z".to_owned());
        assert_eq!(CurrentRun::from_headers(&headers), Some(run));
        headers.remove("mainstay-run");
        assert_eq!(CurrentRun::from_headers(&headers), None);
    }
}
