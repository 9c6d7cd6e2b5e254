//! The chaos harness: processes that use Mainstay under real faults, and what they record.
//!
//! A controller starts child processes of every kind ([`child`]) and injects faults by a seeded schedule ([`schedule`]).
//! Each process appends every call to its own history ([`history`]), before and after it. At the end the [`checker`] reads
//! all histories together and gives a [`verdict`].

pub mod checker;
pub mod child;
pub mod clock;
pub mod controller;
pub mod history;
pub mod network;
pub mod options;
pub mod page;
pub mod power;
mod random;
pub mod schedule;
pub mod verdict;
