//! What came of it, and whether the goals are met.

use serde_json::{Value, json};

use crate::latency::{By, Sample, Samples};
use crate::plan::Plan;
use crate::watcher::Most;

/// The goals.
const MEMORY: f64 = 200.0;
const RATIO: f64 = 1.2;

/// Everything that was measured.
pub(crate) struct Findings {
    pub(crate) plan: Plan,
    /// Seconds to make the databases, and from the start of the process until all had been seen to once.
    pub(crate) made_in: f64,
    pub(crate) seen_to_in: f64,
    /// And the seconds of processor time of that.
    pub(crate) seen_to_cpu: f64,
    pub(crate) idle: Idle,
    /// The most there were while some were busy.
    pub(crate) busy: Most,
    /// Processor time of the process while some were busy, in seconds a second.
    pub(crate) busy_cpu: f64,
    pub(crate) peak_rss: u64,
    pub(crate) budget: usize,
    /// The most of the budget that was ever given out.
    pub(crate) peak: usize,
    pub(crate) stopped_in: f64,
    pub(crate) samples: Samples,
}

/// What it costs that nothing happens. Rates are per second.
pub(crate) struct Idle {
    pub(crate) transactions: f64,
    pub(crate) sessions: f64,
    pub(crate) looks_sqlite: f64,
    pub(crate) looks_postgres: f64,
    pub(crate) cpu: f64,
    pub(crate) rss: u64,
    pub(crate) most: Most,
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl Findings {
    pub(crate) fn json(&self) -> Value {
        json!({
            "sqlite": self.plan.tenants,
            "postgres": self.plan.databases,
            "made_in_seconds": self.made_in,
            "seen_to_in_seconds": self.seen_to_in,
            "seen_to_cpu_seconds": self.seen_to_cpu,
            "stopped_in_seconds": self.stopped_in,
            "idle": {
                "seconds": self.plan.idle.as_secs_f64(),
                "postgres_transactions_per_second": self.idle.transactions,
                "postgres_sessions_per_second": self.idle.sessions,
                "postgres_looks_per_second": self.idle.looks_postgres,
                "sqlite_looks_per_second": self.idle.looks_sqlite,
                "cpu_seconds_per_second": self.idle.cpu,
                "rss_mib": mib(self.idle.rss),
                "most": most(&self.idle.most),
            },
            "busy": {
                "messages_per_second_each": self.plan.per_second,
                "cpu_seconds_per_second": self.busy_cpu,
                "most": most(&self.busy),
                "calls_failed": self.samples.failed,
                "messages_missing": self.samples.missing,
            },
            "peak_rss_mib": mib(self.peak_rss),
            "latency": self.samples.lines(),
            "p99_ratio": {
                "same_process": self.ratio(By::SameProcess),
                "other_process": self.ratio(By::OtherProcess),
                "each_pair": self.each_pair(),
                "well_to_well": self.well_to_well(),
            },
            "goals": self.goals(),
        })
    }

    fn goals(&self) -> Vec<Value> {
        let goal = |name: &str, measured: Option<f64>, limit: f64| {
            let met = measured.map(|measured| measured <= limit);
            json!({ "goal": name, "measured": measured, "limit": limit, "met": met })
        };
        let open = self.busy.open.max(self.idle.most.open).max(self.peak);
        let lost = self.samples.missing + self.samples.failed;
        vec![
            goal("memory at most, MiB", Some(mib(self.peak_rss)), MEMORY),
            goal("connections at most", Some(open as f64), self.budget as f64),
            goal("p99 with ten down to none, same process", self.ratio(By::SameProcess), RATIO),
            goal("p99 with ten down to none, other process", self.ratio(By::OtherProcess), RATIO),
            goal("messages that were not taken or not begun", Some(lost as f64), 0.0),
        ]
    }

    /// The 99th percentile of the warm ones with some down, through that with none, over all windows. The two senders are not put together:
    /// they differ by far, and so may their numbers.
    fn ratio(&self, by: By) -> Option<f64> {
        let p99 = |down: bool| self.samples.warm_p99(|it| it.down == down && it.by == by);
        Some(p99(true)? / p99(false)?)
    }

    /// The same for each pair of windows by itself, of what the same process has sent.
    fn each_pair(&self) -> Vec<Option<f64>> {
        let p99 = |window: usize| self.samples.warm_p99(|it| it.window == window && it.by == By::SameProcess);
        (0..self.plan.pairs).map(|pair| Some(p99(pair * 2 + 1)? / p99(pair * 2)?)).collect()
    }

    /// Windows without any down beside each other: what differs there is the machine's doing.
    fn well_to_well(&self) -> Option<f64> {
        let p99 = |odd: usize| {
            let is_one = |it: &Sample| !it.down && it.by == By::SameProcess && (it.window / 2) % 2 == odd;
            self.samples.warm_p99(is_one)
        };
        Some(p99(1)? / p99(0)?)
    }
}

fn most(most: &Most) -> Value {
    json!({
        "connections": most.open,
        "connections_at_the_server": most.at_server,
        "rss_mib": mib(most.rss),
        "threads": most.threads,
        "descriptors": most.descriptors,
    })
}
