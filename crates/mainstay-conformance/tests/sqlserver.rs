//! The contract on SQL Server: on the server that `MAINSTAY_TEST_SQLSERVER` names. Without it every case is recorded as not run.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a fixture fails by panicking")]

#[path = "fixtures/sqlserver.rs"]
mod fixture;

mainstay_conformance::suite!(fixture::SqlServerFixture::named);
