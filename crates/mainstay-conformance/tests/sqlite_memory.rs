//! The contract on SQLite in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a fixture fails by panicking")]

#[path = "fixtures/sqlite.rs"]
mod fixture;

mainstay_conformance::suite!(fixture::SqliteFixture::memory);
