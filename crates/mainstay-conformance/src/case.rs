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

/// The register of all files: names each module and the macro its own register makes, once. It makes [`crate::all`] and
/// [`suite!`](crate::suite), so no file can be in the one and not in the other, and listed without ever being run.
macro_rules! suite_of {
    ($d:tt $($file:ident: $group:ident),+ $(,)?) => {
        /// Every case of the contract.
        pub fn all() -> Vec<$crate::case::Case> {
            [$($file::CASES),+].concat()
        }

        /// Makes one test of every case, each under its own name: `suite!(MyFixture::new)`. The argument is an async
        /// function without arguments that makes a fixture.
        #[macro_export]
        macro_rules! suite {
            ($d fixture:expr) => { $($crate::$group!($d fixture);)+ };
        }
    };
}
pub(crate) use suite_of;

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
