//! Connections, memory and the write-ahead log stay within their bounds.

use super::violation;
use crate::checker::evidence::{Evidence, Noted};
use crate::history::Sample;
use crate::verdict::{Rule, Violation};

/// Connections beyond the pools': one that is being replaced, and one that cancels a statement.
const SPARE_CONNECTIONS: u64 = 2;

/// How long a process may have more connections than that, in nanoseconds. What a cut connection has left waiting for a lock
/// ends by the lock timeout of the functions that workers call, which is four seconds.
const LEFT_NS: u64 = 5_000_000_000;

/// The most memory that a process may use, in KiB.
const MAX_RSS_KIB: u64 = 512 * 1024;

/// The most that SQLite's write-ahead log may take, in bytes.
const MAX_WAL_BYTES: u64 = 256 * 1024 * 1024;

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    if let Some(run) = evidence.run {
        let most = u64::from(run.what.connections) + SPARE_CONNECTIONS;
        let connections = |sample: &Sample| sample.connections.map(u64::from);
        violations.extend(exceeded(evidence, "connections of a process", most, LEFT_NS, connections));
    }
    let memory = |sample: &Sample| sample.rss_kib;
    violations.extend(exceeded(evidence, "KiB of memory in a process", MAX_RSS_KIB, 0, memory));
    let log = |sample: &Sample| sample.wal_bytes;
    violations.extend(exceeded(evidence, "bytes of write-ahead log", MAX_WAL_BYTES, 0, log));
    violations
}

/// Finds stretches of samples above a bound that last for longer than is allowed. Reports each once, with its highest sample.
fn exceeded(
    evidence: &Evidence<'_>,
    what: &str,
    most: u64,
    allowed_ns: u64,
    measure: impl Fn(&Sample) -> Option<u64>,
) -> Vec<Violation> {
    let mut peaks: Vec<Vec<Noted<'_, u64>>> = Vec::new();
    let mut is_above = false;
    for sample in &evidence.samples {
        // A sample that did not measure it ends no stretch.
        let Some(value) = measure(sample.what) else { continue };
        if value > most {
            if !is_above {
                peaks.push(Vec::new());
            }
            let noted = Noted { at: sample.at, line: sample.line, what: value };
            peaks.last_mut().into_iter().for_each(|stretch| stretch.push(noted));
        }
        is_above = value > most;
    }
    let lasts = |stretch: &&Vec<Noted<'_, u64>>| {
        stretch.first().zip(stretch.last()).is_some_and(|(first, last)| last.at - first.at >= allowed_ns)
    };
    let told = peaks.iter().filter(lasts).filter_map(|stretch| {
        let (first, peak) = (stretch.first()?, stretch.iter().max_by_key(|noted| noted.what)?);
        let text = format!("{} {what}, the most is {most}", peak.what);
        Some(violation(Rule::Resources, text, [""; 0], [first.line, peak.line]))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, broken, legal};

    fn connections(counts: &[Option<u32>]) -> Book {
        let mut book = Book::new();
        for (n, connections) in (1..).zip(counts) {
            book.sample(2_500 * n, Sample { connections: *connections, ..Sample::default() });
        }
        book
    }

    #[test]
    fn connections_stay_within_the_pool() {
        legal(&connections(&[Some(10), Some(12), None, Some(13), Some(13), Some(12), Some(14)]).history());
        let counts = [Some(13), None, Some(15), Some(12), Some(14), Some(13), Some(13)];
        let violations = broken(Rule::Resources, &connections(&counts).history());
        assert_eq!(violations.len(), 2);
        assert_eq!(violations[0].text, "15 connections of a process, the most is 12");
        assert_eq!(violations[0].lines, ["controller:2", "controller:4"]);
        assert_eq!(violations[1].lines, ["controller:6"]);
    }

    #[test]
    fn memory_and_log_are_bounded() {
        for sample in [
            Sample { rss_kib: Some(MAX_RSS_KIB + 1), ..Sample::default() },
            Sample { wal_bytes: Some(MAX_WAL_BYTES + 1), ..Sample::default() },
        ] {
            let mut book = Book::new();
            book.sample(100, sample);
            assert_eq!(broken(Rule::Resources, &book.history()).len(), 1);
        }
        let mut book = Book::new();
        let most = Sample { rss_kib: Some(MAX_RSS_KIB), wal_bytes: Some(MAX_WAL_BYTES), ..Sample::default() };
        book.sample(100, most);
        legal(&book.history());
    }
}
