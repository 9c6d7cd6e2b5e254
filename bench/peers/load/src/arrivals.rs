//! What the handlers tell: how many ran, and when.
//!
//! Of the whole process, because the handlers of some queues are plain functions. Without a lock: it is part of what is
//! measured.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

static COUNT: AtomicU64 = AtomicU64::new(0);
static FLIGHTS: OnceLock<Flights> = OnceLock::new();

/// When each message was sent and arrived, in nanoseconds since the start; zero when not yet.
struct Flights {
    start: Instant,
    sent: Vec<AtomicU64>,
    arrived: Vec<AtomicU64>,
}

/// To be called by the handler of message `id` before anything else.
pub fn handled(id: i64) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    if let Some(flights) = FLIGHTS.get()
        && let Some(arrived) = usize::try_from(id).ok().and_then(|id| flights.arrived.get(id))
    {
        let now = flights.now();
        // A second delivery is not when it arrived.
        let _first = arrived.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Handlers that ran.
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// From now on the times of messages 0 to `messages` are kept.
pub(crate) fn keep_times(messages: u64) {
    let slots = || (0..messages).map(|_| AtomicU64::new(0)).collect();
    FLIGHTS.get_or_init(|| Flights { start: Instant::now(), sent: slots(), arrived: slots() });
}

/// To be called just before the enqueue of message `id`.
pub(crate) fn sent(id: i64) {
    if let Some(flights) = FLIGHTS.get()
        && let Some(sent) = usize::try_from(id).ok().and_then(|id| flights.sent.get(id))
    {
        sent.store(flights.now(), Ordering::Relaxed);
    }
}

/// How long each message took that arrived, in milliseconds.
pub(crate) fn times_ms() -> Vec<f64> {
    let Some(flights) = FLIGHTS.get() else { return Vec::new() };
    let pairs = flights.sent.iter().zip(&flights.arrived);
    let times = pairs.map(|(sent, arrived)| (sent.load(Ordering::Relaxed), arrived.load(Ordering::Relaxed)));
    times
        .filter(|(_, arrived)| *arrived > 0)
        .map(|(sent, arrived)| arrived.saturating_sub(sent) as f64 / 1e6)
        .collect()
}

impl Flights {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }
}
