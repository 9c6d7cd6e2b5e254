//! Time zones by their IANA names, from the data that comes along in the program.
//!
//! Never from the files of the system: two machines with other versions of them would run a job at other times.

use std::fmt;
use std::str::FromStr;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};

const FIELD: &str = "time_zone";

/// A time zone by its IANA name, like `Europe/Berlin`. Defaults to `UTC`.
///
/// ```
/// # use mainstay_core::job::Zone;
/// assert_eq!(Zone::get("europe/berlin")?.name(), "Europe/Berlin");
/// let error = Zone::get("Europe/Berln").unwrap_err();
/// assert!(error.message().contains("did you mean Europe/Berlin"), "{error}");
/// # Ok::<(), mainstay_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Coordinated universal time: no clock change ever.
    pub const UTC: Self = Self(TimeZone::UTC);

    /// The zone of this name, in upper or lower case.
    pub fn get(name: &str) -> Result<Self> {
        let database = TimeZoneDatabase::bundled();
        match database.get(name) {
            Ok(zone) if zone.iana_name().is_some() && !zone.is_unknown() => Ok(Self(zone)),
            _ => Err(unknown(name, &database)),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        // `get` lets no zone without a name through.
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The zone itself.
    pub fn time_zone(&self) -> &TimeZone {
        &self.0
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self::UTC
    }
}

fn unknown(name: &str, database: &TimeZoneDatabase) -> Error {
    let shown: String = name.chars().take(60).collect();
    let near = nearest(&shown, database);
    let advice = match near.as_slice() {
        [] => "names are like Europe/Berlin or UTC".to_owned(),
        [one] => format!("did you mean {one}?"),
        [others @ .., last] => format!("did you mean {} or {last}?", others.join(", ")),
    };
    Error::invalid("job.zone", FIELD, format_args!("{shown:?} is not an IANA time zone; {advice}"))
}

/// The names that were most likely meant, at most three, the likeliest first.
fn nearest(name: &str, database: &TimeZoneDatabase) -> Vec<String> {
    let asked = simple(name);
    if asked.is_empty() {
        return Vec::new();
    }
    let most = (asked.chars().count() / 3).clamp(1, 3);
    let mut found: Vec<_> = database
        .available()
        .filter_map(|known| {
            let known = known.as_str();
            let whole = simple(known);
            let city = whole.rsplit('/').next().unwrap_or_default();
            // One who leaves the region out, or writes another one, means the city.
            let own_city = asked.rsplit('/').next().unwrap_or_default();
            let distance = distance(&asked, &whole).min(1 + distance(own_city, city));
            (distance <= most).then(|| (distance, known.to_owned()))
        })
        .collect();
    found.sort();
    let best = found.first().map_or(0, |(distance, _)| *distance);
    found.into_iter().filter(|(distance, _)| *distance <= best + 1).take(3).map(|(_, name)| name).collect()
}

/// Without the differences that don't matter.
fn simple(name: &str) -> String {
    name.trim().to_lowercase().replace([' ', '-'], "_")
}

/// How many letters have to be added, taken out, changed or swapped with their neighbour to get from one to the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<_>, Vec<_>) = (from.chars().collect(), to.chars().collect());
    let mut before_last = vec![0; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = vec![i; to.len() + 1];
        for j in 1..=to.len() {
            let changed = last[j - 1] + usize::from(from[i - 1] != to[j - 1]);
            row[j] = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

impl FromStr for Zone {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::get(name)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Zone").field(&self.name()).finish()
    }
}

impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::get(&name).map_err(|error| serde::de::Error::custom(error.message()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_written_as_they_are() {
        for (asked, name) in [
            ("UTC", "UTC"),
            ("utc", "UTC"),
            ("EUROPE/berlin", "Europe/Berlin"),
            ("Etc/GMT+5", "Etc/GMT+5"),
            ("America/Argentina/Buenos_Aires", "America/Argentina/Buenos_Aires"),
        ] {
            assert_eq!(Zone::get(asked).unwrap().name(), name);
        }
        assert_eq!(Zone::default(), Zone::get("UTC").unwrap());
        let json = serde_json::to_string(&Zone::get("Asia/Beirut").unwrap()).unwrap();
        assert_eq!(json, "\"Asia/Beirut\"");
        assert_eq!(serde_json::from_str::<Zone>(&json).unwrap().name(), "Asia/Beirut");
    }

    #[test]
    fn a_wrong_name_brings_the_right_one() {
        for (asked, says) in [
            ("Europe/Berln", "did you mean Europe/Berlin?"),
            ("Berlin", "did you mean Europe/Berlin?"),
            ("America/Berlin", "Europe/Berlin"),
            ("America/New York", "did you mean America/New_York?"),
            ("Asia/Toyko", "Asia/Tokyo"),
            ("W. Europe Standard Time", "names are like Europe/Berlin"),
            ("", "names are like"),
            ("Etc/Unknown", "is not an IANA time zone"),
            ("+02:00", "is not an IANA time zone"),
            ("../../etc/passwd", "is not an IANA time zone"),
        ] {
            let error = Zone::get(asked).unwrap_err();
            assert_eq!(error.field(), Some("time_zone"));
            assert!(error.message().contains(says), "{asked}: {}", error.message());
        }
        assert!(Zone::get(&"x".repeat(1 << 20)).unwrap_err().message().len() < 300);
    }
}
