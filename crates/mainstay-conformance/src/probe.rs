//! Reads what the code under test logs and counts while a case runs. Works because a case's runtime has one thread.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;

pub(crate) use mainstay_tests::LogRecord as Line;

use mainstay_tests::CapturedLogs;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tracing::subscriber::DefaultGuard;
use tracing::{Level, Metadata};

/// Everything logged on this thread from its making to its end, at every level, spans included.
pub(crate) struct Logs {
    captured: CapturedLogs,
    _guard: DefaultGuard,
}

impl Logs {
    pub(crate) fn capture() -> Self {
        let captured = CapturedLogs::new();
        let guard = captured.install();
        Self { captured, _guard: guard }
    }

    pub(crate) fn all(&self) -> Vec<Line> {
        self.captured.records()
    }

    /// The events with this text and level, in order.
    pub(crate) fn find(&self, level: Level, text: &str) -> Vec<Line> {
        self.captured.find(level, text)
    }

    /// All of it as one text, to search for what must not be there.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for line in self.all() {
            // Writing to a String can't fail.
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

/// Whether a line is this project's.
pub(crate) fn is_own(line: &Line) -> bool {
    line.target.starts_with("mainstay")
}

/// What this project logs without naming a store, on any thread that has no capture of its own: those of the provider
/// above all. Listens to the whole process from the first use on, since a provider's threads can't be told apart by case.
pub(crate) struct Nameless {
    captured: CapturedLogs,
}

impl Nameless {
    /// Begins to listen, unless somebody has.
    pub(crate) fn listen() -> &'static Self {
        static LISTENER: LazyLock<Nameless> = LazyLock::new(|| {
            let captured = CapturedLogs::only(is_nameless);
            captured.install_everywhere();
            Nameless { captured }
        });
        &LISTENER
    }

    /// What was heard so far, whichever case it comes from.
    pub(crate) fn heard(&self) -> Vec<Line> {
        let mut lines = self.captured.records();
        lines.retain(|line| line.target != TRIAL);
        lines
    }

    /// Whether a line that a thread of its own logs is really heard.
    pub(crate) fn hears(&self) -> bool {
        let trial = std::thread::spawn(|| tracing::debug!(target: TRIAL, "of no store"));
        trial.join().is_ok() && self.captured.records().iter().any(|line| line.target == TRIAL)
    }
}

const TRIAL: &str = "mainstay_conformance::trial";

fn is_nameless(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("mainstay") && metadata.fields().field("store").is_none()
}

/// Everything counted on this thread while a [`Meter::install`] guard lives.
pub(crate) struct Meter {
    recorder: DebuggingRecorder,
    snapshotter: Snapshotter,
}

impl Meter {
    pub(crate) fn new() -> Self {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        Self { recorder, snapshotter }
    }

    pub(crate) fn install(&self) -> metrics::LocalRecorderGuard<'_> {
        metrics::set_default_local_recorder(&self.recorder)
    }

    /// What was counted under each `name` and `label=value` since the last reading, as whole numbers; a histogram
    /// counts its samples.
    pub(crate) fn read(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (key, _, _, value) in self.snapshotter.snapshot().into_vec() {
            let number = match value {
                DebugValue::Counter(count) => count,
                DebugValue::Gauge(value) => value.0 as u64,
                DebugValue::Histogram(samples) => samples.len() as u64,
            };
            let key = key.key();
            let labels = key.labels().filter(|label| label.key() != "store");
            let labels: Vec<_> = labels.map(|label| format!("{}={}", label.key(), label.value())).collect();
            let name = [vec![key.name().to_owned()], labels].concat().join(" ");
            *sums.entry(name).or_insert(0) += number;
        }
        sums
    }
}
