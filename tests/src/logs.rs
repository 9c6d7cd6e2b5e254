use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::instrument::{WithDispatch, WithSubscriber};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// Where there is one dispatcher alone, whichever thread comes first to a line is asked whether anybody wants it, and its no is
/// remembered for all threads: a line that another test logs first would never be captured. With two, both are asked.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Registry::default()));

/// What the code under test logs, at all levels.
#[derive(Clone, Debug)]
pub struct CapturedLogs {
    records: Arc<Mutex<Vec<LogRecord>>>,
    dispatch: Dispatch,
}

/// One thing that was logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Whether it is a span, or one that got further fields, with all it had before; otherwise it is an event: a line in a log.
    pub is_span: bool,
    /// How important it is.
    pub level: Level,
    /// Where it comes from.
    pub target: String,
    /// The text of an event, the name of a span.
    pub message: String,
    /// Its other fields.
    pub fields: BTreeMap<String, String>,
}

impl LogRecord {
    fn new(is_span: bool, metadata: &Metadata<'_>) -> Self {
        Self {
            is_span,
            level: *metadata.level(),
            target: metadata.target().to_owned(),
            message: if is_span { metadata.name().to_owned() } else { String::new() },
            fields: BTreeMap::new(),
        }
    }

    /// The text of a field, empty when there is none.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// Whether its text or one of its fields contains `text`.
    pub fn contains(&self, text: &str) -> bool {
        self.message.contains(text)
            || self.fields.iter().any(|(name, value)| name.contains(text) || value.contains(text))
    }
}

impl fmt::Display for LogRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.level, self.target, self.message)?;
        for (name, value) in &self.fields {
            write!(f, " {name}={value}")?;
        }
        Ok(())
    }
}

impl Default for CapturedLogs {
    fn default() -> Self {
        Self::new()
    }
}

impl CapturedLogs {
    /// Captures nothing until it is [installed](Self::install) or [wrapped](Self::capture)
    /// around something.
    pub fn new() -> Self {
        Self::only(|_| true)
    }

    /// The same, but captures only what is `wanted`. That is decided by where the line stands in the code, before its
    /// text is made.
    pub fn only(wanted: fn(&Metadata<'_>) -> bool) -> Self {
        LazyLock::force(&SECOND);
        let records = Arc::default();
        let layer = CaptureLayer { records: Arc::clone(&records), wanted };
        Self { records, dispatch: Dispatch::new(Registry::default().with(layer)) }
    }

    /// Captures what is logged in this process from now on to its end, on all threads that have nothing else installed.
    ///
    /// # Panics
    ///
    /// If something else is installed for the whole process.
    pub fn install_everywhere(&self) {
        let installed = tracing::dispatcher::set_global_default(self.dispatch.clone());
        installed.expect("nothing else reads the logs of the whole process");
    }

    /// Captures what this thread logs while the guard lives: everything, in a test whose
    /// runtime has one thread.
    #[must_use = "capturing ends when the guard is dropped"]
    pub fn install(&self) -> DefaultGuard {
        tracing::dispatcher::set_default(&self.dispatch)
    }

    /// Captures what `future` logs, on whatever thread it runs; tasks it spawns log elsewhere.
    pub fn capture<F: Future>(&self, future: F) -> WithDispatch<F> {
        future.with_subscriber(self.dispatch.clone())
    }

    /// What to give to code that takes a dispatcher.
    pub fn dispatch(&self) -> Dispatch {
        self.dispatch.clone()
    }

    /// All that was captured, in order.
    pub fn records(&self) -> Vec<LogRecord> {
        lock(&self.records).clone()
    }

    /// The captured events, in order.
    pub fn events(&self) -> Vec<LogRecord> {
        let mut records = self.records();
        records.retain(|record| !record.is_span);
        records
    }

    /// The captured events of exactly this level, in order.
    pub fn at(&self, level: Level) -> Vec<LogRecord> {
        let mut events = self.events();
        events.retain(|event| event.level == level);
        events
    }

    /// The captured events of exactly this level that say `text`, in order.
    pub fn find(&self, level: Level, text: &str) -> Vec<LogRecord> {
        let mut events = self.at(level);
        events.retain(|event| event.message.contains(text));
        events
    }

    /// Whether `text` occurs in anything captured, spans included.
    pub fn contains(&self, text: &str) -> bool {
        lock(&self.records).iter().any(|record| record.contains(text))
    }

    /// Forgets what was captured so far.
    pub fn clear(&self) {
        lock(&self.records).clear();
    }

    /// Checks that `secret` occurs in nothing captured, spans included.
    ///
    /// # Panics
    ///
    /// If it does.
    pub fn assert_never(&self, secret: &str) {
        let records = self.records();
        let leak = records.iter().find(|record| record.contains(secret));
        assert!(leak.is_none(), "{secret:?} was logged: {leak:?}");
    }
}

fn lock(records: &Mutex<Vec<LogRecord>>) -> MutexGuard<'_, Vec<LogRecord>> {
    // Records are whole whatever happened while they were locked.
    records.lock().unwrap_or_else(PoisonError::into_inner)
}

struct CaptureLayer {
    records: Arc<Mutex<Vec<LogRecord>>>,
    wanted: fn(&Metadata<'_>) -> bool,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for CaptureLayer {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        (self.wanted)(metadata)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut record = LogRecord::new(false, event.metadata());
        event.record(&mut FieldsOf(&mut record));
        lock(&self.records).push(record);
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut record = LogRecord::new(true, attributes.metadata());
        attributes.record(&mut FieldsOf(&mut record));
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(record.clone());
        }
        lock(&self.records).push(record);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(record) = extensions.get_mut::<LogRecord>() else { return };
        values.record(&mut FieldsOf(record));
        lock(&self.records).push(record.clone());
    }
}

struct FieldsOf<'a>(&'a mut LogRecord);

impl FieldsOf<'_> {
    fn add(&mut self, field: &Field, value: String) {
        if field.name() == "message" {
            self.0.message = value;
        } else {
            self.0.fields.insert(field.name().to_owned(), value);
        }
    }
}

impl Visit for FieldsOf<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::CapturedLogs;

    #[test]
    fn events_are_captured_with_level_text_and_fields() {
        let logs = CapturedLogs::new();
        let guard = logs.install();
        tracing::warn!(target: "here", kind = "mail", attempt = 3, "job {} failed", 7);
        tracing::trace!("a detail");
        drop(guard);
        tracing::warn!("not captured");

        let warnings = logs.at(Level::WARN);
        assert_eq!(warnings.len(), 1);
        assert_eq!(warnings[0].to_string(), "WARN here: job 7 failed attempt=3 kind=mail");
        assert_eq!(logs.events().len(), 2);
    }

    #[test]
    fn what_is_not_wanted_is_not_captured() {
        let logs = CapturedLogs::only(|metadata| metadata.fields().field("store").is_none());
        let guard = logs.install();
        tracing::info!(store = "a", "of a store");
        tracing::info!("of none");
        drop(guard);
        assert_eq!(logs.find(Level::INFO, "of").len(), 1);
        assert_eq!(logs.find(Level::INFO, "of none")[0].field("store"), "");
    }

    #[tokio::test]
    async fn a_future_is_captured_and_so_are_spans() {
        let logs = CapturedLogs::new();
        logs.capture(async {
            let span = tracing::info_span!("work", payload = tracing::field::Empty);
            tokio::task::yield_now().await;
            span.record("payload", "the secret");
        })
        .await;
        assert!(logs.events().is_empty());
        assert!(logs.contains("the secret"));
        logs.clear();
        logs.assert_never("the secret");
    }
}
