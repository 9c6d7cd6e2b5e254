//! Runs one case on one fixture and records how it ended.

use std::time::Duration;

use crate::case::{Case, Verdict};
use crate::fixture::Fixture;
use crate::results::{self, CaseResult, Outcome};

/// No case needs a fraction of this; one that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs the case `name` on a fixture that `make` makes, and writes its result.
///
/// The runtime has one thread, so that what the provider logs and counts can be read by the case.
///
/// # Panics
///
/// If the provider breaks the contract, or there is no such case.
#[allow(clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]
pub fn run_case<F, M>(name: &str, make: M)
where
    F: Fixture,
    M: AsyncFnOnce() -> F,
{
    let case = crate::all().into_iter().find(|case| case.name == name).expect("a case of this name");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime for the case");
    runtime.block_on(async {
        let fixture = make().await;
        record(&case, &fixture, Outcome::Failed);
        let verdict = tokio::time::timeout(PATIENCE, (case.run)(&fixture)).await;
        match verdict {
            Ok(Verdict::Passed) => record(&case, &fixture, Outcome::Passed),
            Ok(Verdict::NotApplicable(capability)) => {
                eprintln!("not applicable: {capability}");
                record(&case, &fixture, Outcome::NotApplicable { reason: capability.to_owned() });
            }
            Err(_) => panic!("{name} did not end within {PATIENCE:?}"),
        }
    });
}

#[allow(clippy::expect_used, reason = "a result that can't be written must not go unnoticed")]
fn record(case: &Case, fixture: &dyn Fixture, outcome: Outcome) {
    let result = CaseResult {
        case: case.name.to_owned(),
        ids: case.ids.iter().map(|id| (*id).to_owned()).collect(),
        provider: fixture.provider_name().to_owned(),
        outcome,
    };
    result.write(&results::directory()).expect("write the result of the case");
}
