//! Reads what the code under test logs and counts while a case runs. Works because a case's runtime has one thread.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, PoisonError};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// One event or span, with its fields as text.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) message: String,
    pub(crate) fields: BTreeMap<String, String>,
    pub(crate) is_span: bool,
    /// Where it was written: the path of the module.
    pub(crate) target: String,
}

impl Line {
    /// The field's text, empty when there is none.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

/// Everything logged on this thread from its making to its end, at every level, spans included.
pub(crate) struct Logs {
    lines: Arc<Mutex<Vec<Line>>>,
    _guard: DefaultGuard,
}

impl Logs {
    pub(crate) fn capture() -> Self {
        let lines = Arc::<Mutex<Vec<Line>>>::default();
        let subscriber = tracing_subscriber::registry().with(Capture { lines: Arc::clone(&lines) });
        Self { lines, _guard: tracing::subscriber::set_default(subscriber) }
    }

    pub(crate) fn all(&self) -> Vec<Line> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The events with this text and level, in order.
    pub(crate) fn find(&self, level: Level, text: &str) -> Vec<Line> {
        let matches = |line: &Line| !line.is_span && line.level == level && line.message.contains(text);
        self.all().into_iter().filter(matches).collect()
    }

    /// All of it as one text, to search for what must not be there.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for line in self.all() {
            // Writing to a String can't fail.
            let _ = writeln!(text, "{} {} {:?}", line.level, line.message, line.fields);
        }
        text
    }
}

struct Capture {
    lines: Arc<Mutex<Vec<Line>>>,
}

impl Capture {
    fn push(&self, line: Line) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

impl<S: Subscriber> Layer<S> for Capture {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap_or_default();
        let (level, target) = (*event.metadata().level(), event.metadata().target().to_owned());
        self.push(Line { level, message, fields: fields.0, is_span: false, target });
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let metadata = attributes.metadata();
        let (message, target) = (metadata.name().to_owned(), metadata.target().to_owned());
        self.push(Line { level: *metadata.level(), message, fields: fields.0, is_span: true, target });
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        let (message, target) = (String::new(), String::new());
        self.push(Line { level: Level::TRACE, message, fields: fields.0, is_span: true, target });
    }
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
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
