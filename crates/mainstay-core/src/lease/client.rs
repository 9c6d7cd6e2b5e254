//! The application's handle on the leases of a database.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::audit::Actor;
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::store::LeaseStore;
use crate::telemetry;
use crate::text::validate_name;

use super::{
    Lease, LeaseAnswer, LeaseClaim, LeaseFilter, LeaseHolder, LeaseOptions, LeaseRecord, LeaseRequest,
};

/// The longest pause between two looks at a lease that somebody else holds: it may be given up at any time.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// The shortest one.
const LOOK_MIN: Duration = Duration::from_millis(20);

/// What came of asking for a lease.
#[derive(Debug)]
#[must_use = "dropping an acquired lease gives it up"]
pub enum Acquired {
    /// It is the caller's.
    Lease(Lease),
    /// Somebody else has it.
    Held(LeaseHolder),
}

impl Acquired {
    /// The lease, if it was acquired.
    pub fn lease(self) -> Option<Lease> {
        match self {
            Self::Lease(lease) => Some(lease),
            Self::Held(_) => None,
        }
    }
}

/// What came of work that needs a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ran<T> {
    /// It was done while the lease was held, to its end.
    Done(T),
    /// It was not begun: somebody else has the lease.
    Held(LeaseHolder),
}

/// The application's handle on the leases of a database. Cheap to clone.
///
/// All rules are checked here, once, before any provider sees a call.
#[derive(Clone)]
pub struct Leases {
    store: Arc<dyn LeaseStore>,
    owner: Arc<str>,
    options: Arc<LeaseOptions>,
    /// Who takes leases away by hand.
    actor: Actor,
}

impl Leases {
    /// The leases of a provider's store.
    pub fn new(store: Arc<dyn LeaseStore>) -> Self {
        Self { store, owner: process_name().into(), options: Arc::default(), actor: Actor::library() }
    }

    /// Acquires with these options unless told otherwise. Defaults to those of [`LeaseOptions`].
    #[must_use]
    pub fn with_options(mut self, options: LeaseOptions) -> Self {
        self.options = Arc::new(options);
        self
    }

    /// The same handle for somebody: a lease it takes away is recorded in the audit trail as theirs. Defaults to
    /// [`Actor::library`].
    #[must_use]
    pub fn by(&self, actor: impl Into<Actor>) -> Self {
        Self { actor: actor.into(), ..self.clone() }
    }

    /// The options leases are acquired with unless told otherwise.
    pub fn options(&self) -> &LeaseOptions {
        &self.options
    }

    /// Who acquires, unless the options say otherwise: host, process id and a random number.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The provider's store.
    pub fn store(&self) -> &Arc<dyn LeaseStore> {
        &self.store
    }

    /// Acquires `name`, or tells who holds it. Dropping this midway gives up what it may have got.
    pub async fn acquire(&self, name: &str) -> Result<Acquired> {
        self.acquire_with(name, self.options.as_ref().clone()).await
    }

    /// The same with other options.
    pub async fn acquire_with(&self, name: &str, options: LeaseOptions) -> Result<Acquired> {
        validate_name("lease.acquire", "name", name)?;
        options.validate()?;
        let request = LeaseRequest {
            name: name.to_owned(),
            owner: options.owner.clone().unwrap_or_else(|| self.owner.as_ref().to_owned()),
            duration: options.duration,
            context: options.context.clone(),
            reentrant: options.reentrant,
        };
        let begun = Instant::now();
        loop {
            let holder = match self.ask(&request, &options).await? {
                Acquired::Held(holder) => holder,
                acquired => return Ok(acquired),
            };
            let left = options.wait.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(Acquired::Held(holder));
            }
            sleep(pause(&holder).min(left)).await;
        }
    }

    /// Asks once, in a task of its own: an answer that nobody waits for any more must not leave the lease held by nobody.
    async fn ask(&self, request: &LeaseRequest, options: &LeaseOptions) -> Result<Acquired> {
        let (sender, answer) = oneshot::channel();
        let (store, request, options) = (Arc::clone(&self.store), request.clone(), options.clone());
        tokio::spawn(async move {
            let asked_at = clock::now();
            let answered = store.acquire(&request).await.map(|answer| match answer {
                LeaseAnswer::Held(holder) => {
                    let holder = holder.seen_now();
                    telemetry::lease_contended(store.identifier(), &request.name, &holder);
                    Acquired::Held(holder)
                }
                LeaseAnswer::Granted(grant) => {
                    let claim = LeaseClaim { name: request.name, owner: request.owner, epoch: grant.epoch };
                    telemetry::lease_acquired(store.identifier(), &claim, &grant);
                    Acquired::Lease(Lease::new(store, claim, options, grant, asked_at))
                }
            });
            // Dropped here if nobody waits, and so given up.
            drop(sender.send(answered));
        });
        answer.await.unwrap_or_else(|_| {
            Err(Error::new(
                ErrorKind::Internal,
                "lease.acquire",
                "the request was broken off: the provider panicked, or the runtime is ending",
            ))
        })
    }

    /// Runs `work` while holding `name`, and gives it up at the end. When somebody else has the lease, `work` is not begun.
    /// When the lease is lost before the end, `work` is dropped and the error is `LeaseLost`.
    pub async fn run_with_lease<T, F, Fut>(&self, name: &str, work: F) -> Result<Ran<T>>
    where
        F: FnOnce(Arc<Lease>) -> Fut,
        Fut: Future<Output = T>,
    {
        self.run_with(name, self.options.as_ref().clone(), work).await
    }

    /// The same with other options.
    pub async fn run_with<T, F, Fut>(&self, name: &str, options: LeaseOptions, work: F) -> Result<Ran<T>>
    where
        F: FnOnce(Arc<Lease>) -> Fut,
        Fut: Future<Output = T>,
    {
        let lease = match self.acquire_with(name, options).await? {
            Acquired::Held(holder) => return Ok(Ran::Held(holder)),
            Acquired::Lease(lease) => Arc::new(lease),
        };
        let done = lease.cancellation().run_until_cancelled(work(Arc::clone(&lease))).await;
        // Work that never paused may have outlived the lease without being dropped.
        let held = lease.check();
        if let Err(error) = lease.release().await {
            telemetry::lease_unreleased(self.store.identifier(), name, &error);
        }
        match (done, held) {
            (Some(done), Ok(())) => Ok(Ran::Done(done)),
            (_, Err(lost)) => Err(lost),
            // `work` has released the lease itself and did not end with that.
            (None, Ok(())) => Err(Error::new(ErrorKind::LeaseLost, "lease.run", "the lease is lost")),
        }
    }

    /// One lease, held or free. None when nobody has ever held it.
    pub async fn get(&self, name: &str) -> Result<Option<LeaseRecord>> {
        validate_name("lease.get", "name", name)?;
        self.store.get(name).await
    }

    /// Leases, by name.
    pub async fn list(&self, filter: &LeaseFilter) -> Result<Vec<LeaseRecord>> {
        filter.validate()?;
        self.store.list(filter).await
    }

    /// Takes a lease away from whoever holds it, and tells who that was; none when nobody did. The holder learns it at its next
    /// renewal, and at once where it guards its writes. For operators, when a holder is known to be gone or stuck.
    pub async fn force_release(&self, name: &str) -> Result<Option<String>> {
        validate_name("lease.force_release", "name", name)?;
        self.actor.validate("lease.force_release")?;
        let owner = self.store.force_release(name, &self.actor).await?;
        telemetry::lease_forced(self.store.identifier(), name, owner.as_deref());
        Ok(owner)
    }

    /// How many leases are held now, by anybody.
    pub async fn active(&self) -> Result<u64> {
        self.store.active().await
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.store.identifier();
        f.debug_struct("Leases").field("store", &store).field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// Until the holder's time is up, but not for long, and not all at the same moment.
fn pause(holder: &LeaseHolder) -> Duration {
    let random = f64::from(Uuid::new_v4().as_u128() as u32) / f64::from(u32::MAX);
    holder.remaining().clamp(LOOK_MIN, LOOK_MAX).mul_f64(0.5 + 0.5 * random)
}

/// Tells people which process it is. Nothing depends on it being unique: an epoch is.
fn process_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| std::env::var("HOSTNAME").ok()).or_else(|| std::env::var("COMPUTERNAME").ok());
    let host: String = host.unwrap_or_default().trim().chars().filter(|c| *c != '\0').take(200).collect();
    let host = if host.is_empty() { "host".to_owned() } else { host };
    format!("{host}/{}/{:08x}", std::process::id(), Uuid::new_v4().as_u128() as u32)
}
