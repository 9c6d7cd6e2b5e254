//! Runs one case on one fixture and records how it ended.

use std::time::Duration;

use crate::case::{Case, Verdict};
use crate::fixture::Fixture;
use crate::results::{self, CaseResult, Outcome};

/// No case needs a fraction of this; one that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// Why a suite can't be run here: what it takes, such as a server that is not named. Its cases are recorded as not run, and say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotRun {
    /// The provider and its mode, as in the report.
    pub provider: &'static str,
    /// What it takes.
    pub reason: &'static str,
}

/// What makes a fixture may find that there is nothing to make one of.
pub trait IntoFixture {
    /// The fixture.
    type Fixture: Fixture;

    /// The fixture, or why there is none.
    fn into_fixture(self) -> Result<Self::Fixture, NotRun>;
}

impl<F: Fixture> IntoFixture for F {
    type Fixture = F;

    fn into_fixture(self) -> Result<F, NotRun> {
        Ok(self)
    }
}

impl<F: Fixture> IntoFixture for Result<F, NotRun> {
    type Fixture = F;

    fn into_fixture(self) -> Result<F, NotRun> {
        self
    }
}

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
    F: IntoFixture,
    M: AsyncFnOnce() -> F,
{
    let case = crate::all().into_iter().find(|case| case.name == name).expect("a case of this name");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime for the case");
    runtime.block_on(async {
        let fixture = match make().await.into_fixture() {
            Ok(fixture) => fixture,
            Err(NotRun { provider, reason }) => {
                return record(&case, provider, Outcome::NotRun { reason: reason.to_owned() });
            }
        };
        let provider = fixture.provider_name();
        record(&case, provider, Outcome::Failed);
        let verdict = tokio::time::timeout(PATIENCE, (case.run)(&fixture)).await;
        match verdict {
            Ok(Verdict::Passed) => record(&case, provider, Outcome::Passed),
            Ok(Verdict::NotApplicable(capability)) => {
                eprintln!("not applicable: {capability}");
                record(&case, provider, Outcome::NotApplicable { reason: capability.to_owned() });
            }
            Err(_) => panic!("{name} did not end within {PATIENCE:?}"),
        }
    });
}

#[allow(clippy::expect_used, reason = "a result that can't be written must not go unnoticed")]
fn record(case: &Case, provider: &str, outcome: Outcome) {
    let result = CaseResult {
        case: case.name.to_owned(),
        ids: case.ids.iter().map(|id| (*id).to_owned()).collect(),
        provider: provider.to_owned(),
        outcome,
    };
    result.write(&results::directory()).expect("write the result of the case");
}
