//! One line of JSON per run.

use serde_json::{Map, Value, json};

use crate::{Peer, Request};

/// Where the middle and the end of a set of times lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles {
    /// Half are below.
    pub p50: f64,
    /// All but one in a hundred are below.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// Sorts the times out; none when there are none.
pub fn percentiles(mut times: Vec<f64>) -> Option<Percentiles> {
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times.get(((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1)));
    Some(Percentiles { p50: *at(0.5)?, p99: *at(0.99)?, max: *at(1.0)? })
}

/// What was measured, under the names of the table.
#[derive(Debug, Default)]
pub(crate) struct Report(Map<String, Value>);

impl Report {
    pub(crate) fn rate(messages: u64, seconds: f64) -> Self {
        let mut report = Self::default();
        report.set("per_second", json!(round(messages as f64 / seconds.max(1e-9))));
        report.set("messages", json!(messages));
        report.set("seconds", json!(round(seconds)));
        report
    }

    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    pub(crate) fn times(&mut self, prefix: &str, times: Option<Percentiles>) {
        let Some(times) = times else { return };
        for (name, ms) in [("p50_ms", times.p50), ("p99_ms", times.p99), ("max_ms", times.max)] {
            self.set(&format!("{prefix}{name}"), json!(round(ms)));
        }
    }

    pub(crate) fn print<P: Peer>(mut self, request: &Request) {
        self.set("program", json!(P::NAME));
        self.set("version", json!(P::VERSION));
        self.set("work", json!(request.work.to_string()));
        println!("{}", Value::Object(self.0));
    }
}

fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::percentiles;

    #[test]
    fn percentiles_are_in_their_place() {
        assert_eq!(percentiles(Vec::new()), None);
        let of_hundred = percentiles((1..=100).rev().map(f64::from).collect()).unwrap();
        assert_eq!((of_hundred.p50, of_hundred.p99, of_hundred.max), (51.0, 100.0, 100.0));
        assert_eq!(percentiles(vec![7.0]).unwrap().p99, 7.0);
    }
}
