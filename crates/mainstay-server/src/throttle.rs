//! How many failed authentications an address may have. Only failures are counted, and only failures are turned away: others behind the
//! same address go on.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures within [`WINDOW`] before an address is told to wait.
const FAILURES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// Addresses remembered at once. Whoever has more addresses than that gains nothing: tokens can't be guessed.
const ADDRESSES: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<HashMap<IpAddr, (Instant, u32)>>);

impl Throttle {
    /// Counts a failure. True when there were too many.
    pub(crate) fn failed(&self, from: Option<IpAddr>) -> bool {
        let Some(from) = from.map(network) else { return false };
        let now = Instant::now();
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= ADDRESSES && !seen.contains_key(&from) {
            seen.retain(|_, (since, _)| now.duration_since(*since) < WINDOW);
            if seen.len() >= ADDRESSES {
                seen.clear();
            }
        }
        let (since, failures) = seen.entry(from).or_insert((now, 0));
        if now.duration_since(*since) >= WINDOW {
            (*since, *failures) = (now, 0);
        }
        *failures = failures.saturating_add(1);
        *failures > FAILURES
    }
}

/// Of IPv6, who has one address has the rest of its /64 too.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_count() {
        let throttle = Throttle::default();
        let address = |text: &str| Some(text.parse().unwrap());
        for _ in 0..FAILURES {
            assert!(!throttle.failed(address("10.0.0.1")));
        }
        assert!(throttle.failed(address("10.0.0.1")));
        assert!(throttle.failed(address("::ffff:10.0.0.1")), "the same one");
        assert!(!throttle.failed(address("10.0.0.2")));
        assert!(!throttle.failed(None));
    }

    #[test]
    fn it_does_not_grow_without_bound() {
        let throttle = Throttle::default();
        for number in 0..(ADDRESSES as u32 * 2) {
            throttle.failed(Some(IpAddr::V4(number.into())));
        }
        assert!(throttle.0.lock().unwrap().len() <= ADDRESSES);
    }
}
