//! The chaos harness: processes that use Mainstay under real faults, and what they record.
//!
//! A controller starts child processes of every kind and injects faults by a seeded schedule. Each
//! process appends every call to its own history ([`history`]), before and after it. At the end
//! the checker reads all histories together and gives a [`verdict`].

pub mod history;
pub mod verdict;
