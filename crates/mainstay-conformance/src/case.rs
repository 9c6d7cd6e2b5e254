//! A case: one behaviour, the requirements it stands for, and the code that checks it.

use futures_util::future::LocalBoxFuture;

use crate::fixture::{Fixture, Lacking};

/// One behaviour of the contract.
#[derive(Clone, Copy)]
pub struct Case {
    /// The name; it begins with the first requirement.
    pub name: &'static str,
    /// The requirements it checks.
    pub ids: &'static [&'static str],
    /// Checks it. Panics where the provider breaks the contract.
    pub run: for<'a> fn(&'a dyn Fixture) -> LocalBoxFuture<'a, Verdict>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("ids", &self.ids).finish_non_exhaustive()
    }
}

/// How a case ended, unless it panicked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a case that does not apply must say so"]
pub enum Verdict {
    /// The provider keeps the contract.
    Passed,
    /// The provider declares that it has no such thing: the capability.
    NotApplicable(&'static str),
}

/// What a case's function may return.
pub(crate) trait IntoVerdict {
    fn into_verdict(self) -> Verdict;
}

impl IntoVerdict for () {
    fn into_verdict(self) -> Verdict {
        Verdict::Passed
    }
}

impl IntoVerdict for Verdict {
    fn into_verdict(self) -> Verdict {
        self
    }
}

impl IntoVerdict for Result<(), Lacking> {
    fn into_verdict(self) -> Verdict {
        match self {
            Ok(()) => Verdict::Passed,
            Err(Lacking(capability)) => Verdict::NotApplicable(capability),
        }
    }
}

/// The register of one file: names each function and its requirements, once. It makes the table [`crate::all`]
/// collects and the macro by which [`suite!`](crate::suite) makes tests, so the two can't differ.
macro_rules! cases {
    ($d:tt $group:ident: $($name:ident [$($id:literal),+ $(,)?]),+ $(,)?) => {
        pub(crate) const CASES: &[$crate::case::Case] = &[$(
            $crate::case::Case {
                name: stringify!($name),
                ids: &[$($id),+],
                run: |fixture| ::std::boxed::Box::pin(async move {
                    $crate::case::IntoVerdict::into_verdict($name(fixture).await)
                }),
            }
        ),+];

        #[doc(hidden)]
        #[macro_export]
        macro_rules! $group {
            ($d fixture:expr) => { $($crate::test_of_case!($name, $d fixture);)+ };
        }
    };
}
pub(crate) use cases;

/// Makes one test of every case, each under its own name: `suite!(MyFixture::new)`. The argument is an async
/// function without arguments that makes a fixture.
#[macro_export]
macro_rules! suite {
    ($fixture:expr) => {
        $crate::abandon_cases!($fixture);
        $crate::ack_cases!($fixture);
        $crate::assignment_cases!($fixture);
        $crate::administration_cases!($fixture);
        $crate::recording_cases!($fixture);
        $crate::audit_cases!($fixture);
        $crate::claim_cases!($fixture);
        $crate::concurrency_cases!($fixture);
        $crate::crash_cases!($fixture);
        $crate::dedupe_cases!($fixture);
        $crate::delivery_cases!($fixture);
        $crate::effects_cases!($fixture);
        $crate::elsewhere_cases!($fixture);
        $crate::enqueue_cases!($fixture);
        $crate::fail_cases!($fixture);
        $crate::fanout_cases!($fixture);
        $crate::fanout_planners_cases!($fixture);
        $crate::fanout_policy_cases!($fixture);
        $crate::fanout_clock_cases!($fixture);
        $crate::fanout_cursors_cases!($fixture);
        $crate::fanout_runs_cases!($fixture);
        $crate::fanout_service_cases!($fixture);
        $crate::fleet_cases!($fixture);
        $crate::fleet_due_cases!($fixture);
        $crate::fleet_selection_cases!($fixture);
        $crate::fleet_sharing_cases!($fixture);
        $crate::fleet_shares_cases!($fixture);
        $crate::fleet_trouble_cases!($fixture);
        $crate::fleet_watch_cases!($fixture);
        $crate::forget_cases!($fixture);
        $crate::fuzz_cases!($fixture);
        $crate::guard_cases!($fixture);
        $crate::handlers_cases!($fixture);
        $crate::doctor_cases!($fixture);
        $crate::watchdog_cases!($fixture);
        $crate::health_cases!($fixture);
        $crate::inbox_engine_cases!($fixture);
        $crate::inbox_service_cases!($fixture);
        $crate::input_cases!($fixture);
        $crate::job_runs_cases!($fixture);
        $crate::job_waits_cases!($fixture);
        $crate::jobs_cases!($fixture);
        $crate::join_ends_cases!($fixture);
        $crate::job_races_cases!($fixture);
        $crate::join_races_cases!($fixture);
        $crate::join_wait_cases!($fixture);
        $crate::joins_cases!($fixture);
        $crate::join_counting_cases!($fixture);
        $crate::lease_cases!($fixture);
        $crate::lease_guard_cases!($fixture);
        $crate::lease_keeping_cases!($fixture);
        $crate::lease_many_cases!($fixture);
        $crate::limits_cases!($fixture);
        $crate::mishaps_cases!($fixture);
        $crate::observability_cases!($fixture);
        $crate::operation_scope_cases!($fixture);
        $crate::operations_cases!($fixture);
        $crate::ordering_cases!($fixture);
        $crate::reap_cases!($fixture);
        $crate::receive_cases!($fixture);
        $crate::receive_again_cases!($fixture);
        $crate::replay_cases!($fixture);
        $crate::retention_cases!($fixture);
        $crate::retry_cases!($fixture);
        $crate::scheduling_cases!($fixture);
        $crate::schema_cases!($fixture);
        $crate::security_cases!($fixture);
        $crate::service_cases!($fixture);
        $crate::timer_claims_cases!($fixture);
        $crate::timer_firing_cases!($fixture);
        $crate::timers_cases!($fixture);
        $crate::wait_cases!($fixture);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! test_of_case {
    ($name:ident, $fixture:expr) => {
        #[test]
        fn $name() {
            $crate::run_case(stringify!($name), $fixture);
        }
    };
}
