//! Traces and metrics, on their way to a collector while a command runs that has some.

use std::time::Duration;

use mainstay::otlp::{Otlp, OtlpOptions};
use tokio::runtime::Runtime;

use crate::failure::Failure;

/// How long the end of a command may take longer for what is left to send.
const LAST_EXPORT: Duration = Duration::from_secs(5);

/// Begins to export, if a collector is named. Also what the environment asks for that there is not.
pub(crate) fn start(file: OtlpOptions) -> Result<(Option<Otlp>, Vec<String>), Failure> {
    let (options, unheeded) = file.with_environment().map_err(told)?;
    Ok((Otlp::start(&options).map_err(told)?, unheeded))
}

/// Refuses what `start` would refuse, and says what else there is to tell.
pub(crate) fn check(file: OtlpOptions) -> Result<Vec<String>, Failure> {
    let (options, unheeded) = file.with_environment().map_err(told)?;
    options.validate().map_err(told)?;
    Ok(unheeded)
}

fn told(error: mainstay::Error) -> Failure {
    let field = error.field().unwrap_or("telemetry").to_owned();
    Failure::usage(format!("where traces and metrics go is not valid: {field}"))
        .because(error.message())
        .hint("see the section [telemetry] of the configuration file, and the environment variables OTEL_…")
}

/// Sends what is left, and ends. A collector that does not answer holds nobody up for long, nor does a name that is still being looked up for it.
pub(crate) fn stop(otlp: Option<Otlp>, runtime: Runtime) {
    let Some(otlp) = otlp else { return };
    runtime.block_on(otlp.stop(LAST_EXPORT));
    runtime.shutdown_timeout(Duration::from_secs(1));
}
