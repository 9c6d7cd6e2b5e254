//! The coordinator of a fan-out.
//!
//! Any number may run, in one process or in many; the one that holds the fan-out's lease works, and another takes over when it is gone.
//! There is no tick: it sleeps until the next shard is due or the next occurrence comes, or until somebody changes the policy.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{Error, ErrorKind, Result};
use crate::lease::{Acquired, Lease, LeaseHolder};
use crate::renewing::{WAIT_SPARE, attempt, call_limit};
use crate::runtime::{Lifecycle, Pause, Service};
use crate::store::Wake;
use crate::telemetry;

use super::{Fanout, FanoutKey, Pass, Planner, RunContinuation};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The pause after a pass that failed, first and longest.
const TROUBLE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// How often one that does not hold the lease asks for it, at most and at least.
const STANDBY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long a coordinator leaves the fan-out to others after a pass that got no answer: longer than they wait between two attempts to
/// take over.
const GIVE_WAY: Duration = Duration::from_secs(10);

/// How many times longer than a look took it rests before the next one, whatever is due: so many shards that are due one after the
/// other must not become a look at all of them for each.
const REST: u32 = 4;

/// How long giving up the lease may take. It is a courtesy; it lapses by itself.
const LEAVE: Duration = Duration::from_secs(1);

/// How a coordinator works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FanoutOptions {
    /// The first wait when nothing is due; it doubles as long as nothing happens. Defaults to 0.25 s. Only where the database can't
    /// notify (through a pooler) does it matter: a policy that was changed is seen after it.
    pub poll_min: Duration,
    /// The longest wait when nothing is due and no notification comes, and the longest between two looks while slices are in flight: at
    /// most 24 h. Defaults to 30 s.
    pub poll_max: Duration,
}

impl Default for FanoutOptions {
    fn default() -> Self {
        Self { poll_min: Duration::from_millis(250), poll_max: Duration::from_secs(30) }
    }
}

impl FanoutOptions {
    /// Refuses values outside their bounds.
    pub fn validate(&self) -> Result<()> {
        let (min, max) = (self.poll_min, self.poll_max);
        if min.is_zero() || max < min || max > DAY {
            let reason = format_args!(
                "must be above zero and at most poll_max, which is at most 24 h, got {min:?} and {max:?}"
            );
            return Err(Error::invalid("fanout.options", "poll_min", reason));
        }
        Ok(())
    }
}

/// The coordinator of one fan-out. See [`Service`] for how it starts and stops.
pub struct FanoutService {
    fanout: Fanout,
    key: FanoutKey,
    planner: Arc<dyn Planner>,
    continuation: RunContinuation,
    options: FanoutOptions,
    /// When it looks next, as far as it knows; none: once the policy has changed.
    next_look: Mutex<Option<Instant>>,
}

impl FanoutService {
    pub(crate) const NAME: &'static str = "fan-out coordinator";

    /// A coordinator of this fan-out.
    pub fn new(
        fanout: Fanout,
        key: FanoutKey,
        planner: Arc<dyn Planner>,
        options: FanoutOptions,
    ) -> Result<Self> {
        options.validate()?;
        let continuation = RunContinuation::default();
        let next_look = Mutex::new(Some(Instant::now()));
        Ok(Self { fanout, key, planner, continuation, options, next_look })
    }

    /// Has this follow each run.
    pub fn with_continuation(mut self, continuation: RunContinuation) -> Result<Self> {
        continuation.validate(&self.key, self.fanout.outbox.limits())?;
        self.continuation = continuation;
        Ok(self)
    }

    /// When it looks next, whether it runs or not; none: only once the policy has changed. One that has not looked yet should at once.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        *self.next_look.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn looks_at(&self, next: Option<Instant>) {
        *self.next_look.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    fn identifier(&self) -> &str {
        self.fanout.store().identifier()
    }

    /// Ends only with the store.
    async fn terms(&self, held: &mut Option<Lease>) {
        let mut trouble = Pause::new(TROUBLE);
        loop {
            *held = None;
            match self.term(held, &mut trouble).await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Closed => return,
                Err(error) if error.is_unanswered() => {
                    // The lease is renewed over other connections, so no other coordinator could work. Others may reach what this one does not.
                    *held = None;
                    telemetry::fanout_failed(self.identifier(), &self.key, &error, GIVE_WAY);
                    sleep(GIVE_WAY).await;
                }
                Err(error) => self.rest_from(&error, &mut trouble).await,
            }
        }
    }

    async fn rest_from(&self, error: &Error, trouble: &mut Pause) {
        let delay = trouble.step();
        telemetry::fanout_failed(self.identifier(), &self.key, error, delay);
        sleep(delay).await;
    }

    /// Coordinates for as long as it holds the lease. Returns at once, after a pause, if somebody else has it.
    async fn term(&self, held: &mut Option<Lease>, trouble: &mut Pause) -> Result<()> {
        let leases = &self.fanout.leases;
        let options = leases.options().clone().wait(Duration::ZERO);
        let limit = call_limit(leases.options().duration);
        let name = self.key.lease_name();
        let lease = match attempt("fanout.acquire", limit, leases.acquire_with(&name, options)).await? {
            Acquired::Held(holder) => {
                self.looks_at(Some(Instant::now() + holder.remaining().max(STANDBY.1)));
                sleep(standby(&holder)).await;
                return Ok(());
            }
            Acquired::Lease(lease) => held.insert(lease),
        };
        telemetry::fanout_term(self.identifier(), &self.key, lease.epoch());
        while !lease.is_lost() {
            let begun = Instant::now();
            let pass =
                self.fanout.coordinate_with(&self.key, self.planner.as_ref(), &self.continuation, lease);
            let Some(pass) = lease.cancellation().run_until_cancelled(pass).await else { break };
            match pass {
                Ok(pass) => {
                    trouble.reset();
                    let idle = self.idle(&pass, begun.elapsed(), lease.duration());
                    if let Some(ended) = lease.cancellation().run_until_cancelled(idle).await {
                        ended?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Closed => return Err(error),
                Err(error) if error.kind() == ErrorKind::LeaseLost => break,
                Err(error) if error.is_unanswered() => return Err(error),
                // The lease stays: whoever had it next would have the same trouble.
                Err(error) => self.rest_from(&error, trouble).await,
            }
        }
        Ok(())
    }

    /// Waits until another look is worth it.
    async fn idle(&self, pass: &Pass, took: Duration, lease: Duration) -> Result<()> {
        let under_way = pass.in_flight > 0 || !pass.dispatched.is_empty();
        let next = pass.next.map(|next| Duration::try_from(next).unwrap_or_default());
        // A slice may leave work behind that is due at once, and nobody tells when it has ended.
        let next = if under_way { next.map(|next| next.min(self.options.poll_max)) } else { next };
        let at = next.map(|next| Instant::now() + next.max(took * REST).min(366 * DAY));
        self.looks_at(at);
        let mut poll = Pause::new((self.options.poll_min, self.options.poll_max));
        loop {
            let left = at.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(());
            }
            // No longer than a lease, so that a wait without an answer is given up within two.
            let wait = poll.step().min(left).min(lease.max(self.options.poll_min));
            let waited = self.fanout.store().wait(&self.key, pass.version, wait);
            if attempt("fanout.wait", wait + WAIT_SPARE.min(lease), waited).await? != Wake::TimedOut {
                return Ok(());
            }
        }
    }
}

/// Until the holder's time is up, but not for long: it may give the lease up at any time.
fn standby(holder: &LeaseHolder) -> Duration {
    holder.remaining().clamp(STANDBY.0, STANDBY.1)
}

#[async_trait]
impl Service for FanoutService {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        lifecycle.started();
        let mut held = None;
        lifecycle.stopping().run_until_cancelled(self.terms(&mut held)).await;
        if let Some(lease) = held {
            telemetry::service(self.identifier(), self.name(), None, "stopping");
            // So that another can take over at once. Whether it ended or was given up makes no difference here.
            let _ = timeout(LEAVE, lease.close()).await;
        }
        Ok(())
    }
}

impl std::fmt::Debug for FanoutService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FanoutService")
            .field("fanout", &self.fanout)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fanout::{FanoutPolicy, shards_from};
    use crate::runtime::{Running, start};
    use crate::silent::{Silent, SilentProvider};

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A coordinator with this planner, over a database that hangs.
    fn coordinator(planner: impl Planner) -> (Arc<Silent>, Running) {
        let silent = Arc::new(Silent::default());
        let fanout = Fanout::new(&SilentProvider(Arc::clone(&silent)));
        let key = FanoutKey::new("etl", "payments").unwrap();
        let service = FanoutService::new(fanout, key, Arc::new(planner), FanoutOptions::default()).unwrap();
        (silent, start(Arc::new(service)))
    }

    fn policy() -> FanoutPolicy {
        FanoutPolicy::new(FanoutKey::new("etl", "payments").unwrap(), jiff::Timestamp::now())
    }

    fn no_shards() -> impl Planner {
        shards_from(async || Ok::<_, std::io::Error>(Vec::<String>::new()))
    }

    /// Reads within an hour of a clock that only moves when nothing else does.
    async fn reaches(silent: &Silent, call: &str, count: usize) {
        let reached = timeout(HOUR, silent.reaches(call, count)).await;
        assert!(reached.is_ok(), "{call}: {} instead of {count}", silent.count(call));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_without_an_answer_gives_the_lease_up_whichever_deadline_fires() {
        let (silent, _running) = coordinator(no_shards());
        reaches(&silent, "lease.release", 1).await;
        // From now on the provider's own deadline fires first.
        *silent.standing.lock().unwrap() = Some(Err("the database did not answer within 1 s"));
        let released = silent.count("lease.release");
        let asked = silent.count("fanout.standing");
        reaches(&silent, "fanout.standing", asked + 2).await;
        assert!(silent.count("lease.release") > released);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_planner_keeps_the_lease_and_comes_to_its_end() {
        let planner = shards_from(async || {
            sleep(HOUR / 2).await;
            Ok::<_, std::io::Error>(Vec::<String>::new())
        });
        let (silent, _running) = coordinator(planner);
        *silent.standing.lock().unwrap() = Some(Ok(policy()));
        reaches(&silent, "fanout.wait", 1).await;
        assert_eq!((silent.count("fanout.standing"), silent.count("lease.release")), (1, 0));
        assert!(silent.count("lease.renew") > 10);
    }

    #[test]
    fn options_are_bounded() {
        let fine = FanoutOptions::default();
        fine.validate().unwrap();
        let field = |options: FanoutOptions| options.validate().unwrap_err().field().unwrap();
        assert_eq!(field(FanoutOptions { poll_min: Duration::ZERO, ..fine }), "poll_min");
        assert_eq!(field(FanoutOptions { poll_max: 2 * DAY, ..fine }), "poll_min");
    }
}
