//! The environment variables by which the servers are handed to the tests.

/// URL of the administrative database, as superuser.
pub const POSTGRES: &str = "MAINSTAY_TEST_POSTGRES";

/// The same database and user through PgBouncer in transaction mode.
pub const PGBOUNCER: &str = "MAINSTAY_TEST_PGBOUNCER";

/// Path of the certificate of the authority that signed the server's certificate.
pub const CA: &str = "MAINSTAY_TEST_CA";

/// Directory of the PostgreSQL programs.
pub const PG_BIN: &str = "MAINSTAY_TEST_PG_BIN";

/// Directory of an initialised, never started cluster from which private ones are copied.
pub const BLANK: &str = "MAINSTAY_TEST_BLANK";

/// Path of the `faketime` library; absent where the tool is.
pub const FAKETIME: &str = "MAINSTAY_TEST_FAKETIME";
