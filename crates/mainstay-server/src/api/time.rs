//! Durations as numbers of seconds, and moments that may be given either way.

use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::outbox::When;

use crate::problem::Problem;

/// The longest delay: 3,650 days.
const DELAY_MAX: Duration = Duration::from_secs(315_360_000);

/// A number of seconds.
pub(super) fn seconds(field: &str, number: f64) -> Result<Duration, Problem> {
    Duration::try_from_secs_f64(number).map_err(|_| {
        Problem::invalid(field, format_args!("must be a number of seconds, 0 or more, got {number}"))
    })
}

/// The same where there may be none.
pub(super) fn optional(field: &str, number: Option<f64>) -> Result<Option<Duration>, Problem> {
    number.map(|number| seconds(field, number)).transpose()
}

/// After how long something is tried again, where that is not left to the default.
pub(super) fn delay(field: &str, number: Option<f64>) -> Result<Option<Duration>, Problem> {
    let delay = optional(field, number)?;
    if delay.is_some_and(|delay| delay.is_zero() || delay > DELAY_MAX) {
        let most = DELAY_MAX.as_secs();
        return Err(Problem::invalid(
            field,
            format_args!("must be above 0 and at most {most}; leave it out for the default"),
        ));
    }
    Ok(delay)
}

/// A moment, given as one or as a number of seconds from now.
pub(super) fn when(name: &str, at: Option<Timestamp>, within: Option<f64>) -> Result<Option<When>, Problem> {
    match (at, within) {
        (Some(_), Some(_)) => Err(Problem::invalid(
            format!("{name}_at"),
            format_args!("must not be given together with {name}_in_seconds"),
        )),
        (Some(at), None) => Ok(Some(When::At(at))),
        (None, Some(number)) => Ok(Some(When::In(seconds(&format!("{name}_in_seconds"), number)?))),
        (None, None) => Ok(None),
    }
}
