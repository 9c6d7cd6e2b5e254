//! Log lines, on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// Sends log lines that pass the filter to stderr.
pub(crate) fn start(filter: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failure::usage("the log filter (MAINSTAY_LOG or `log` in the configuration file) is not valid")
            .because(error)
            .hint("examples: warn, info, mainstay_core=debug")
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}
