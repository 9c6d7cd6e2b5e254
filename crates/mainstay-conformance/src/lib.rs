//! The executable contract every Mainstay provider is held to.
//!
//! A behaviour exists when it is a case here, named after its requirement. A provider's author writes one
//! [`Fixture`] and calls [`suite!`] in a test file; that makes one test of every case. A provider declares what it
//! can't do in its capabilities; a case then checks the declared counterpart, or says that it does not apply. No
//! case is ever left out.
//!
//! Each run leaves one file per case under `target/conformance`; [`report::render`] makes the reference page of them.
// A case that is written but not registered is dead code, and that must not compile.
#![deny(dead_code)]

mod case;
mod cases;
mod crew;
mod faulty_leases;
mod fixture;
mod overheard;
mod probe;
pub mod report;
pub mod requirements;
pub mod results;
mod run;
mod session;
mod tenants;
mod through_inbox;
mod world;

pub use case::{Case, Verdict};
pub use cases::all;
pub use fixture::{Affliction, End, Fixture, Lacking, Metered, Tenant};
pub use run::{IntoFixture, NotRun, run_case};
pub use session::Session;

#[doc(hidden)]
pub use tokio;
