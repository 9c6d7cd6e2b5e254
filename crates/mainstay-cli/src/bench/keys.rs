//! What is measured, by the names under which it is told.

/// How a figure is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    PerSecond,
    Milliseconds,
    Bytes,
    Number,
}

/// A figure.
#[derive(Debug)]
pub(crate) struct Key {
    /// In JSON, and for `--only`.
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) title: &'static str,
    pub(crate) unit: Unit,
    /// What it is compared with: a bare limit, or the same work without what is measured here.
    pub(crate) limit: Option<&'static str>,
}

const fn key(name: &'static str, title: &'static str, unit: Unit, limit: Option<&'static str>) -> Key {
    Key { name, title, unit, limit }
}

use Unit::{Bytes, Milliseconds, Number, PerSecond};

/// All figures, in the order in which they are told.
pub(crate) const KEYS: [Key; 24] = [
    key("enqueue_1", "enqueue, 1 caller", PerSecond, Some("limit_insert_1")),
    key("enqueue_16", "enqueue, 16 callers", PerSecond, Some("limit_shared_commit_16")),
    key("enqueue_256", "enqueue, 256 callers", PerSecond, Some("limit_shared_commit_256")),
    key("enqueue_in_tx_16", "enqueue in a transaction, 16 callers", PerSecond, Some("limit_insert_in_tx_16")),
    key("bulk", "enqueue in bulk", PerSecond, Some("limit_copy")),
    key("drain", "drain", PerSecond, Some("limit_claim_settle")),
    key("drain_joined", "drain of one join's members", PerSecond, Some("drain")),
    key("end_to_end", "end to end, 16 callers", PerSecond, None),
    key("latency_p50_ms", "latency, p50", Milliseconds, Some("limit_latency_p50_ms")),
    key("latency_p99_ms", "latency, p99", Milliseconds, Some("limit_latency_p99_ms")),
    key("write_alone_p95_ms", "one write, p95", Milliseconds, None),
    key(
        "write_beside_busy_p95_ms",
        "one write beside a busy process, p95",
        Milliseconds,
        Some("write_alone_p95_ms"),
    ),
    key("idle_queries_per_s", "queries when idle", Number, None),
    key("wal_bytes_per_message", "WAL per message", Bytes, None),
    key("dead_tuples_per_message", "dead tuples per message", Number, None),
    key("limit_insert_1", "insert, 1 connection", PerSecond, None),
    key("limit_insert_16", "insert, 16 connections", PerSecond, None),
    key("limit_insert_in_tx_16", "insert in a transaction, 16 connections", PerSecond, None),
    key("limit_shared_commit_16", "16 callers share a commit", PerSecond, None),
    key("limit_shared_commit_256", "256 callers share a commit", PerSecond, None),
    key("limit_copy", "COPY", PerSecond, None),
    key("limit_claim_settle", "claim and settle by updates", PerSecond, None),
    key("limit_latency_p50_ms", "latency of a notification, p50", Milliseconds, None),
    key("limit_latency_p99_ms", "latency of a notification, p99", Milliseconds, None),
];

/// The figure of this name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

#[cfg(test)]
mod tests {
    use super::{KEYS, find};

    #[test]
    fn every_limit_is_measured() {
        for key in &KEYS {
            assert!(key.limit.is_none_or(|limit| find(limit).is_some()), "{}", key.name);
        }
    }
}
