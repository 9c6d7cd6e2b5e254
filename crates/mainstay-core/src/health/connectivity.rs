//! Whether the database answers, and how fast.

use std::time::Duration;

use jiff::Timestamp;

use crate::error::{Error, ErrorKind};

use super::check::told;
use super::{Finding, HealthOptions, HealthStatus};

/// No answer, an error, or the database's time, after so long.
pub(super) fn judge(
    answer: Option<&Result<Timestamp, Error>>,
    took: Duration,
    options: &HealthOptions,
) -> Finding {
    match answer {
        None => {
            let text = format!("the database does not answer: nothing within {}", told(options.timeout));
            Finding::new(HealthStatus::Unhealthy, text).advise(
                "see whether it is up, overloaded or behind a network that drops packets; then ask again",
            )
        }
        Some(Err(error)) => {
            let text = format!("the database can't be reached: {}", error.message());
            Finding::new(HealthStatus::Unhealthy, text).advise(match error.kind() {
                ErrorKind::Denied => "see to the user, the password and the rights it connects with",
                ErrorKind::Config => "correct the URL of the database",
                _ => "see whether it is up, and whether its address is right",
            })
        }
        Some(Ok(_)) if took > options.slow_answer => {
            let text =
                format!("answered after {}, which is more than {}", told(took), told(options.slow_answer));
            Finding::new(HealthStatus::Degraded, text).advise(
                "see whether the database, the network or this process's pool of connections is overloaded",
            )
        }
        Some(Ok(_)) => Finding::healthy(format!("answered after {}", told(took))),
    }
}
