//! Tests at the level of the protocol, which need no server: a few lines speak as one would, and what they say is each test's to say.

mod pool;
mod quiet;
mod server;
mod tls;
mod transaction;
