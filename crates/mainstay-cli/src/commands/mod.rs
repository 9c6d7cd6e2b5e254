//! One file per command: its arguments and what it does.

pub(crate) mod audit;
pub(crate) mod bench;
#[cfg(target_os = "linux")]
pub(crate) mod bound;
pub(crate) mod completions;
pub(crate) mod config;
mod content;
pub(crate) mod demo;
#[cfg(target_os = "linux")]
mod descendants;
pub(crate) mod fanout;
pub(crate) mod health;
pub(crate) mod inbox;
pub(crate) mod jobs;
pub(crate) mod joins;
pub(crate) mod lease;
pub(crate) mod leases;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod operations;
pub(crate) mod outbox;
mod pausing;
pub(crate) mod retention;
pub(crate) mod serve;
pub(crate) mod stores;
pub(crate) mod timers;
pub(crate) mod token;
mod verdicts;
pub(crate) mod why;
