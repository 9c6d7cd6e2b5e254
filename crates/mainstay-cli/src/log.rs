//! Log lines, on stderr, and spans, to wherever traces go.

use mainstay::otlp::Otlp;
use mainstay::telemetry::SPANS;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::failure::Failure;
use crate::output::Stream;

/// Whether a filter can be read.
pub(crate) fn check(filter: &str) -> Result<(), Failure> {
    read(filter).map(drop)
}

/// Sends log lines that pass the filter to stderr, and the engine's spans to the collector, if there is one.
pub(crate) fn start(filter: &str, otlp: Option<&Otlp>) -> Result<(), Failure> {
    let filter = read(filter)?;
    let ansi = Stream::Err.is_styled();
    let Some(spans) = otlp.and_then(|otlp| otlp.layer()) else {
        fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).init();
        return Ok(());
    };
    // Each with a filter of its own: what is logged has nothing to do with what is traced.
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(ansi).with_filter(filter);
    let spans = spans.with_filter(filter_fn(|metadata| metadata.is_span() && metadata.target() == SPANS));
    tracing_subscriber::registry().with(lines).with(spans).init();
    Ok(())
}

fn read(filter: &str) -> Result<EnvFilter, Failure> {
    let wrong = |why: String| {
        Failure::usage("the log filter (MAINSTAY_LOG or `log` in the configuration file) is not valid")
            .because(why)
            .hint("examples: warn, info, mainstay_core=debug")
    };
    if let Some(word) = unknown_level(filter) {
        return Err(wrong(format!(
            "{word:?} is no level (off, error, warn, info, debug, trace); for all of a module write {word}=trace"
        )));
    }
    EnvFilter::try_new(without_drivers(filter)).map_err(|error| wrong(error.to_string()))
}

/// A driver that logs what a server has refused, values and all, is heard only by who asks for it by name: what it says is told by our own errors.
fn without_drivers(filter: &str) -> String {
    match filter.trim() {
        filter if filter.contains("tiberius") => filter.to_owned(),
        "" => "error,tiberius=off".to_owned(),
        filter => format!("{filter},tiberius=off"),
    }
}

/// The first word of the filter that stands alone and is no level. To the filter it would be the name of a module, so that a
/// mistyped level would show nothing and say nothing.
fn unknown_level(filter: &str) -> Option<&str> {
    let alone = |word: &&str| !word.is_empty() && !word.contains(['=', '[', '{', '}', ']']);
    let is_level = |word: &str| word.parse::<tracing_subscriber::filter::LevelFilter>().is_ok();
    filter.split(',').map(str::trim).filter(alone).find(|word| !is_level(word))
}

#[cfg(test)]
mod tests {
    use super::{unknown_level, without_drivers};

    #[test]
    fn a_driver_is_heard_only_by_its_name() {
        assert_eq!(without_drivers("warn"), "warn,tiberius=off");
        assert_eq!(without_drivers(" "), "error,tiberius=off");
        assert_eq!(without_drivers("info,tiberius=debug"), "info,tiberius=debug");
    }

    #[test]
    fn a_mistyped_level_is_found() {
        for fine in [
            "",
            "warn",
            "WARN",
            "off",
            "info,mainstay_core=debug",
            "mainstay_core[claim{id=1}]=trace",
            "error, x=off",
        ] {
            assert_eq!(unknown_level(fine), None, "{fine}");
        }
        for (filter, word) in [("wran", "wran"), ("info,debgu", "debgu"), ("mainstay_core", "mainstay_core")]
        {
            assert_eq!(unknown_level(filter), Some(word));
        }
    }
}
