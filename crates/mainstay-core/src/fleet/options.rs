//! How a fleet shares one process among its databases.

use std::time::Duration;

use crate::error::{Error, Result};

use super::BreakerOptions;

const OPTIONS: &str = "fleet.options";

/// How a fleet shares one process among its databases.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FleetOptions {
    /// Connections of this process to all databases together, at least 2. Defaults to 50.
    pub connections: usize,
    /// Connections to one server (`host:port`): enough for one database at work and a fifth more, which is kept for looks and calls. Defaults
    /// to none: only the total bounds it.
    pub connections_per_server: Option<usize>,
    /// Connections of a database while it is worked on: one for notifications or for watching the file, the rest for statements. At least
    /// 2; with transactions in handlers, at least 3. Defaults to 3.
    pub connections_per_store: usize,
    /// Handlers at once, in this process, over all databases; a quarter is for databases that have none running. Each database also has its
    /// own bounds. Defaults to 64.
    pub handlers: usize,
    /// How often discovery is asked again; none: only on demand. Defaults to 5 min.
    pub refresh: Option<Duration>,
    /// Whether discovery may find no database at all. Defaults to false: then an empty answer changes nothing.
    pub allow_empty: bool,
    /// The first wait between looks at a database with nothing to do; it doubles with every look. Defaults to 0.25 s.
    pub poll_min: Duration,
    /// The longest wait between looks at one that is not watched. Defaults to 30 s.
    pub poll_max: Duration,
    /// How often it is seen from outside whether databases were written to, where that can be seen; those are looked at at once. None: they
    /// are only looked at now and then. Defaults to 0.5 s.
    pub watch: Option<Duration>,
    /// The longest wait between looks at a database that is watched. Less than `poll_max` counts as that. Defaults to 5 min.
    pub poll_max_watched: Duration,
    /// The longest wait between looks at a database that is written to all the time without work being added to it. Defaults to 5 s.
    pub ring_max: Duration,
    /// How long a database with nothing to do keeps its connections, if nobody else wants them. Defaults to 5 s.
    pub idle: Duration,
    /// How long a database may keep its connections while others wait for theirs. What it has in hand it finishes. Defaults to 5 s.
    pub share: Duration,
    /// How long a database has to answer a look. Defaults to 5 s.
    pub look_timeout: Duration,
    /// How long a database has to get to work: its schema checked, its jobs registered. Defaults to 30 s.
    pub start_timeout: Duration,
    /// How often the chores of a database are seen to even if it has nothing else to do: retention, lapsed leases. Defaults to 1 h.
    pub upkeep: Duration,
    /// How often the gauges of the fleet are published; none switches it off. Defaults to 30 s.
    pub gauges: Option<Duration>,
    /// When a database that fails is tried again.
    pub breaker: BreakerOptions,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            connections: 50,
            connections_per_server: None,
            connections_per_store: 3,
            handlers: 64,
            refresh: Some(Duration::from_secs(300)),
            allow_empty: false,
            poll_min: Duration::from_millis(250),
            poll_max: Duration::from_secs(30),
            watch: Some(Duration::from_millis(500)),
            poll_max_watched: Duration::from_secs(300),
            ring_max: Duration::from_secs(5),
            idle: Duration::from_secs(5),
            share: Duration::from_secs(5),
            look_timeout: Duration::from_secs(5),
            start_timeout: Duration::from_secs(30),
            upkeep: Duration::from_secs(3_600),
            gauges: Some(Duration::from_secs(30)),
            breaker: BreakerOptions::default(),
        }
    }
}

impl FleetOptions {
    /// Connections that are kept for looks and for calls of the application, so that those who work can't keep everybody else waiting.
    pub(super) fn reserve(&self) -> usize {
        Self::kept(self.connections)
    }

    /// What is kept of so many.
    pub(super) fn kept(connections: usize) -> usize {
        (connections / 5).max(1)
    }

    /// Refuses values outside their bounds.
    pub fn validate(&self) -> Result<()> {
        if !(2..=10_000).contains(&self.connections_per_store) {
            let got = self.connections_per_store;
            return Err(Error::invalid(
                OPTIONS,
                "connections_per_store",
                format_args!("must be 2 to 10,000, got {got}"),
            ));
        }
        let least = self.connections_per_store;
        let bounds = [
            ("connections", Some(self.connections)),
            ("connections_per_server", self.connections_per_server),
        ];
        for (field, bound) in bounds {
            if let Some(got) = bound.filter(|bound| *bound < least + Self::kept(*bound)) {
                let reason = format_args!(
                    "must be enough for one database ({least}) and a fifth more, which is kept for looks; got {got}"
                );
                return Err(Error::invalid(OPTIONS, field, reason));
            }
        }
        if !(1..=100_000).contains(&self.handlers) {
            let got = self.handlers;
            return Err(Error::invalid(OPTIONS, "handlers", format_args!("must be 1 to 100,000, got {got}")));
        }
        let times = [
            ("refresh", self.refresh.unwrap_or(self.poll_min)),
            ("poll_min", self.poll_min),
            ("watch", self.watch.unwrap_or(self.poll_min)),
            ("ring_max", self.ring_max),
            ("look_timeout", self.look_timeout),
            ("start_timeout", self.start_timeout),
            ("upkeep", self.upkeep),
            ("gauges", self.gauges.unwrap_or(self.poll_min)),
        ];
        for (field, time) in times {
            if time.is_zero() {
                return Err(Error::invalid(OPTIONS, field, "must be above zero"));
            }
        }
        if self.poll_max < self.poll_min {
            let reason =
                format_args!("must be at least poll_min ({:?}), got {:?}", self.poll_min, self.poll_max);
            return Err(Error::invalid(OPTIONS, "poll_max", reason));
        }
        self.breaker.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_no_database_fits_in_is_refused() {
        let options = FleetOptions { connections: 3, ..FleetOptions::default() };
        assert_eq!(options.validate().unwrap_err().field(), Some("connections"));
        let options = FleetOptions { connections: 4, ..options };
        options.validate().unwrap();
        let options = FleetOptions { connections_per_server: Some(3), ..options };
        assert_eq!(options.validate().unwrap_err().field(), Some("connections_per_server"));
        let options = FleetOptions { connections_per_server: Some(4), ..options };
        options.validate().unwrap();
    }

    #[test]
    fn times_that_are_no_time_are_refused() {
        let nothing = Duration::ZERO;
        let options = FleetOptions { watch: Some(nothing), ..FleetOptions::default() };
        assert_eq!(options.validate().unwrap_err().field(), Some("watch"));
        let options = FleetOptions { watch: None, ring_max: nothing, ..options };
        assert_eq!(options.validate().unwrap_err().field(), Some("ring_max"));
        let options = FleetOptions { ring_max: Duration::from_millis(1), ..options };
        options.validate().unwrap();
    }
}
