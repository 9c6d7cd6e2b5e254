//! From a message's commit to the moment its handler begins.
//!
//! The first message to a database that rests wakes it up; those that come before it is awake wait with it. Both say how long waking up
//! takes. What comes after is what a busy database is like. They are told apart, because in one percentile the one would hide the other.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::wire::Shot;

/// Fewer messages than this have no 99th percentile worth the name.
const ENOUGH: usize = 200;

/// Who adds messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum By {
    /// The process with the fleet.
    SameProcess,
    /// One that knows nothing of it.
    OtherProcess,
}

/// How the database was when the message came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Hit {
    /// It rested, and this is the first.
    First,
    /// Its first message had not been begun.
    Behind,
    Warm,
}

/// The messages that one process has added to the databases that were drawn.
#[derive(Debug)]
pub(crate) struct Draw {
    pub(crate) window: usize,
    /// Whether some were down.
    pub(crate) down: bool,
    pub(crate) by: By,
    /// Of those it was for, which are files.
    pub(crate) files: Vec<bool>,
    pub(crate) shots: Vec<Shot>,
}

/// One message, times in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) window: usize,
    pub(crate) down: bool,
    pub(crate) by: By,
    pub(crate) is_file: bool,
    pub(crate) hit: Hit,
    /// From the moment the call had returned. The handler may be faster than that: then it is nothing.
    pub(crate) since_commit: f64,
    /// From the moment before the call.
    pub(crate) since_call: f64,
}

/// All messages, and how many came to nothing.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) all: Vec<Sample>,
    /// Calls that failed or did not return in time.
    pub(crate) failed: usize,
    /// Messages that were committed and not begun by the end.
    pub(crate) missing: usize,
}

impl Samples {
    /// Puts together what was sent and what was begun.
    pub(crate) fn of(draws: &[Draw], begun: &HashMap<u64, u64>) -> Self {
        let mut samples = Self::default();
        for draw in draws {
            for (to, is_file) in draw.files.iter().enumerate() {
                samples.add(draw, to, *is_file, begun);
            }
        }
        samples
    }

    fn add(&mut self, draw: &Draw, to: usize, is_file: bool, begun: &HashMap<u64, u64>) {
        let shots: Vec<&Shot> = draw.shots.iter().filter(|shot| shot.to == to).collect();
        let first_begun = shots.iter().filter_map(|shot| begun.get(&shot.number)).min();
        for (at, shot) in shots.iter().enumerate() {
            let Some(committed) = shot.committed else {
                self.failed += 1;
                continue;
            };
            let (Some(begun), Some(first_begun)) = (begun.get(&shot.number), first_begun) else {
                self.missing += 1;
                continue;
            };
            let hit = match at {
                0 => Hit::First,
                _ if shot.called < *first_begun => Hit::Behind,
                _ => Hit::Warm,
            };
            let since = |moment: u64| begun.saturating_sub(moment) as f64 / 1e3;
            let (window, down, by) = (draw.window, draw.down, draw.by);
            let (since_commit, since_call) = (since(committed), since(shot.called));
            self.all.push(Sample { window, down, by, is_file, hit, since_commit, since_call });
        }
    }

    /// The 99th percentile of those that were warm and that `is_one` picks. None if they are too few to have one.
    pub(crate) fn warm_p99(&self, is_one: impl Fn(&Sample) -> bool) -> Option<f64> {
        let picked = self.all.iter().filter(|sample| sample.hit == Hit::Warm && is_one(sample));
        let told = percentiles(picked.map(|sample| sample.since_commit))?;
        (told.count >= ENOUGH).then_some(told.p99)
    }

    /// A line for each kind of message there was.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let mut lines = Vec::new();
        for by in [By::SameProcess, By::OtherProcess] {
            for is_file in [true, false] {
                for hit in [Hit::Warm, Hit::First] {
                    for down in [false, true] {
                        let is_one = |sample: &&Sample| {
                            (sample.by, sample.is_file, sample.hit, sample.down) == (by, is_file, hit, down)
                        };
                        let picked = || self.all.iter().filter(is_one);
                        let commit = percentiles(picked().map(|sample| sample.since_commit));
                        let call = percentiles(picked().map(|sample| sample.since_call));
                        let database = if is_file { "sqlite" } else { "postgres" };
                        lines.push(json!({
                            "by": by, "database": database, "hit": hit, "down": down,
                            "since_commit_ms": commit, "since_call_ms": call,
                        }));
                    }
                }
            }
        }
        lines
    }
}

/// The middle and the end of some figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) count: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) most: f64,
}

/// None when there are no figures.
pub(crate) fn percentiles(figures: impl Iterator<Item = f64>) -> Option<Percentiles> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let most = *figures.last()?;
    let rank =
        |part: f64| figures[((figures.len() as f64 * part).ceil() as usize).clamp(1, figures.len()) - 1];
    Some(Percentiles { count: figures.len(), p50: rank(0.5), p99: rank(0.99), most })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shot(number: u64, called: u64, committed: Option<u64>) -> Shot {
        Shot { number, to: 0, called, committed }
    }

    #[test]
    fn ranks_are_those_of_the_figures() {
        assert_eq!(percentiles(std::iter::empty()), None);
        let told = percentiles((1..=200).map(f64::from)).unwrap();
        assert_eq!((told.p50, told.p99, told.most), (100.0, 198.0, 200.0));
    }

    #[test]
    fn what_wakes_a_database_up_is_told_apart() {
        let shots = vec![
            shot(1, 0, Some(1_000)),
            shot(2, 2_000, Some(3_000)),
            shot(3, 9_000, Some(10_000)),
            shot(4, 10_000, None),
            shot(5, 11_000, Some(12_000)),
        ];
        let draw = Draw { window: 0, down: false, by: By::SameProcess, files: vec![true], shots };
        let begun = HashMap::from([(1, 5_000), (2, 6_000), (3, 9_500)]);
        let samples = Samples::of(&[draw], &begun);
        let told: Vec<_> = samples.all.iter().map(|it| (it.hit, it.since_commit, it.since_call)).collect();
        assert_eq!(told, [(Hit::First, 4.0, 5.0), (Hit::Behind, 3.0, 4.0), (Hit::Warm, 0.0, 0.5)]);
        assert_eq!((samples.failed, samples.missing), (1, 1));
    }
}
