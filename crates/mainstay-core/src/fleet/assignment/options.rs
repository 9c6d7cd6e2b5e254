//! How a node takes part in a fleet.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::lease::LeaseOptions;
use crate::text::validate_nul;

use super::Buckets;

const OPERATION: &str = "fleet.assignment";

/// The longest name of a fleet, in characters: it is part of the names of leases.
const FLEET_MAX: usize = 100;

/// The longest name of a node, in characters: a number is added to it.
const NODE_MAX: usize = 200;

/// How a node takes part in a fleet. All nodes of a fleet must have the same `fleet` and `buckets`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AssignmentOptions {
    /// The fleet's name, 1 to 100 characters without a colon. Fleets with different names share nothing. Defaults to `default`.
    pub fleet: String,
    /// This node, for people, 1 to 200 characters. It need not be unique. Defaults to none: host, process id and a random number.
    pub node: Option<String>,
    /// How many buckets databases are put into, 1 to 1,024; several times as many as there will be nodes. A node with another number
    /// than the others waits until they have left. Defaults to 64.
    pub buckets: u32,
    /// How long a node holds its buckets without a renewal, 100 ms to 24 h; also how long a crash keeps them from the others, and how
    /// soon a newcomer has its share at the latest. Defaults to 30 s.
    pub lease: Duration,
    /// How often a node renews what it holds and looks who is there, at most a third of the lease. Up to a quarter sooner, at random.
    /// Defaults to none: a sixth of the lease.
    pub look: Option<Duration>,
}

impl Default for AssignmentOptions {
    fn default() -> Self {
        Self {
            fleet: "default".to_owned(),
            node: None,
            buckets: Buckets::default().count(),
            lease: Duration::from_secs(30),
            look: None,
        }
    }
}

impl AssignmentOptions {
    /// The fleet's name.
    #[must_use]
    pub fn fleet(mut self, name: impl Into<String>) -> Self {
        self.fleet = name.into();
        self
    }
    /// This node, for people.
    #[must_use]
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.node = Some(name.into());
        self
    }
    /// How many buckets databases are put into.
    #[must_use]
    pub fn buckets(mut self, count: u32) -> Self {
        self.buckets = count;
        self
    }
    /// How long a node holds its buckets without a renewal.
    #[must_use]
    pub fn lease(mut self, duration: Duration) -> Self {
        self.lease = duration;
        self
    }
    /// How often a node renews and looks.
    #[must_use]
    pub fn look(mut self, interval: Duration) -> Self {
        self.look = Some(interval);
        self
    }

    /// Refuses what is outside its bounds, by its field.
    pub fn validate(&self) -> Result<()> {
        name("fleet", &self.fleet, FLEET_MAX)?;
        if self.fleet.contains(':') {
            return Err(Error::invalid(OPERATION, "fleet", "must not contain a colon"));
        }
        if let Some(node) = &self.node {
            name("node", node, NODE_MAX)?;
        }
        Buckets::new(self.buckets)?;
        LeaseOptions::default().duration(self.lease).validate()?;
        match self.look {
            Some(look) if look.is_zero() || look > self.lease / 3 => {
                let most = self.lease / 3;
                let reason = format_args!(
                    "must be more than 0 and at most a third of the lease ({most:?}), got {look:?}"
                );
                Err(Error::invalid(OPERATION, "look", reason))
            }
            _ => Ok(()),
        }
    }

    /// How often to look.
    pub(super) fn look_every(&self) -> Duration {
        self.look.unwrap_or(self.lease / 6)
    }
}

fn name(field: &'static str, value: &str, most: usize) -> Result<()> {
    validate_nul(OPERATION, field, value)?;
    let got = value.chars().count();
    if (1..=most).contains(&got) {
        return Ok(());
    }
    Err(Error::invalid(OPERATION, field, format_args!("must be 1 to {most} characters, got {got}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_bounds_is_refused_by_its_field() {
        let fine = AssignmentOptions::default;
        for (options, field) in [
            (fine().fleet(""), "fleet"),
            (fine().fleet("a:b"), "fleet"),
            (fine().fleet("a\0b"), "fleet"),
            (fine().fleet("ü".repeat(101)), "fleet"),
            (fine().node(""), "node"),
            (fine().node("ü".repeat(201)), "node"),
            (fine().buckets(0), "buckets"),
            (fine().buckets(1_025), "buckets"),
            (fine().lease(Duration::from_millis(99)), "duration"),
            (fine().look(Duration::ZERO), "look"),
            (fine().look(Duration::from_millis(10_001)), "look"),
        ] {
            assert_eq!(options.validate().unwrap_err().field(), Some(field), "{options:?}");
        }
        fine().validate().unwrap();
        let widest = fine().fleet("ü".repeat(100)).node("ü".repeat(200)).buckets(1_024);
        widest.look(Duration::from_secs(10)).validate().unwrap();
    }
}
