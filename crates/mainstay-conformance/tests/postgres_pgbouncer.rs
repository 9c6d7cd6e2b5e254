//! The contract on PostgreSQL through PgBouncer in transaction mode.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a fixture fails by panicking")]

#[path = "fixtures/postgres.rs"]
mod fixture;

mainstay_conformance::suite!(fixture::PostgresFixture::pooled);
