use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;

use crate::error::{Error, Result};

/// A loopback port nobody listens on.
///
/// Taken from below the range the system gives to outgoing connections: a server that is
/// down for a moment must find its port still free when it starts again.
pub(crate) fn free_port() -> Result<u16> {
    for attempt in 0_u16..200 {
        let spread = RandomState::new().hash_one(attempt) % 12_000;
        let port = 20_000 + spread as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::new("no free port between 20000 and 32000 on 127.0.0.1"))
}
