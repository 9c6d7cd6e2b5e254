//! What a server does with the provider's locks and sessions: on the server that `MAINSTAY_TEST_SQLSERVER` names. Without it no
//! test runs, and each says so.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod locks;
mod renewing;
mod support;
