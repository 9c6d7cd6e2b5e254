//! The application's handle on fan-outs.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::audit::Actor;
use crate::bell::Bell;
use crate::error::{Error, ErrorKind, Result};
use crate::lease::Leases;
use crate::outbox::Outbox;
use crate::store::{CallIn, CallInBlocking, FanoutStore, JoinStore, Provider};
use crate::telemetry;

use super::answer::unknown;
use super::{FanoutChange, FanoutCursor, FanoutDefinition, FanoutKey, FanoutPolicy, FanoutSlice};

/// How often a change is tried whose policy somebody else changes at the same moment.
const ATTEMPTS: u32 = 10;

/// The application's handle on fan-outs. Cheap to clone.
///
/// All rules are checked here, once, before any provider sees a call. Dropping any of the futures is harmless.
#[derive(Clone)]
pub struct Fanout {
    store: Arc<dyn FanoutStore>,
    pub(super) outbox: Outbox,
    pub(super) leases: Leases,
    /// For runs that have a continuation.
    pub(super) joins: Arc<dyn JoinStore>,
    bell: Bell,
    actor: Actor,
}

impl Fanout {
    /// The fan-outs of a provider.
    pub fn new(provider: &dyn Provider) -> Self {
        Self {
            store: provider.fanout(),
            outbox: Outbox::new(provider.outbox()),
            leases: Leases::new(provider.leases()),
            joins: provider.joins(),
            bell: Bell::default(),
            actor: Actor::library(),
        }
    }

    /// Coordinates under leases that are acquired and kept like these.
    #[must_use]
    pub fn with_leases(mut self, leases: Leases) -> Self {
        self.leases = leases;
        self
    }

    /// Rings when a coordinator has something to look at.
    pub(crate) fn with_bell(mut self, bell: Bell) -> Self {
        self.bell = bell;
        self
    }

    /// The same handle for somebody: what it registers, policies that it sets, runs it asks for and shards it adds and forgets are
    /// recorded in the audit trail as theirs. Defaults to [`Actor::library`].
    #[must_use]
    pub fn by(&self, actor: impl Into<Actor>) -> Self {
        Self { actor: actor.into(), ..self.clone() }
    }

    /// The provider's store.
    pub fn store(&self) -> &Arc<dyn FanoutStore> {
        &self.store
    }

    /// Registers a fan-out: its cadence is in the database from then on (R23). One that is there already changes only if other values
    /// are registered than the last time. So every start of a program may do this, and what was changed at run time stays.
    pub async fn register(&self, definition: FanoutDefinition) -> Result<FanoutPolicy> {
        self.actor.validate("fanout.register")?;
        let policy = self.store.register(&definition.prepare()?, &self.actor).await?;
        telemetry::fanout_registered(self.store.identifier(), &policy);
        Ok(policy)
    }

    /// A fan-out's policy.
    pub async fn get(&self, topic: &str, work_key: &str) -> Result<Option<FanoutPolicy>> {
        let standing = self.store.standing(&FanoutKey::new(topic, work_key)?).await?;
        Ok(standing.map(|(policy, _)| policy))
    }

    /// Policies by topic and work key, up to `limit` (1 to 10,000) of those that come after `after`.
    pub async fn list(&self, after: Option<&FanoutKey>, limit: u32) -> Result<Vec<FanoutPolicy>> {
        check_limit("fanout.list", limit)?;
        self.store.list(after, limit).await
    }

    /// Changes a policy at run time, and wakes its coordinator. What is not named stays. `NotFound` if there is no such fan-out.
    pub async fn set(&self, topic: &str, work_key: &str, change: &FanoutChange) -> Result<FanoutPolicy> {
        const SET: &str = "fanout.set";
        let key = FanoutKey::new(topic, work_key)?;
        self.actor.validate(SET)?;
        for _ in 0..ATTEMPTS {
            let Some((before, _)) = self.store.standing(&key).await? else { return Err(unknown(SET, &key)) };
            let wanted = change.applied_to(&before)?;
            if wanted == before {
                return Ok(before);
            }
            if let Some(policy) = self.store.set(&wanted, &self.actor).await? {
                telemetry::fanout_administered(self.store.identifier(), "set", &key);
                self.bell.ring();
                return Ok(policy);
            }
        }
        Err(Error::new(
            ErrorKind::Conflict,
            SET,
            format!("the policy of {key} keeps being changed by others"),
        ))
    }

    /// Asks for a run now: a slice of every shard that has none in flight, whatever the cadence, also where the fan-out is disabled. Its
    /// coordinator makes it. `NotFound` if there is no such fan-out.
    pub async fn run_now(&self, topic: &str, work_key: &str) -> Result<()> {
        const RUN: &str = "fanout.run";
        let key = FanoutKey::new(topic, work_key)?;
        self.actor.validate(RUN)?;
        if !self.store.request_run(&key, &self.actor).await? {
            return Err(unknown(RUN, &key));
        }
        telemetry::fanout_administered(self.store.identifier(), "run", &key);
        self.bell.ring();
        Ok(())
    }

    /// Makes shards known, for [`KnownShards`](super::KnownShards), the planner where there is no other. How many were not known.
    /// `NotFound` if there is no such fan-out: nobody would plan them.
    pub async fn add_shards<S>(
        &self,
        topic: &str,
        work_key: &str,
        shards: impl IntoIterator<Item = S>,
    ) -> Result<u64>
    where
        S: Into<String>,
    {
        const ADD: &str = "fanout.add_shards";
        let key = FanoutKey::new(topic, work_key)?;
        let shards: Vec<String> = shards.into_iter().map(Into::into).collect();
        shards.iter().try_for_each(|shard| FanoutKey::validate_shard(ADD, shard))?;
        self.actor.validate(ADD)?;
        let mut added = 0;
        for page in shards.chunks(500) {
            added += self.store.add_shards(&key, page, &self.actor).await?;
        }
        Ok(added)
    }

    /// Forgets a shard with its cursor. If a planner names it again, it begins anew. False if it was not known. Refused
    /// while a slice of it is in flight: that would complete a shard that is not known, beside a second slice.
    pub async fn forget_shard(&self, topic: &str, work_key: &str, shard_key: &str) -> Result<bool> {
        const FORGET: &str = "fanout.forget_shard";
        FanoutKey::validate_shard(FORGET, shard_key)?;
        self.actor.validate(FORGET)?;
        self.store.forget_shard(&FanoutKey::new(topic, work_key)?, shard_key, &self.actor).await
    }

    /// Deletes a fan-out: its policy, and its shards with their cursors. How many shards, or none if there was no such fan-out. Refused
    /// while a slice of it is in flight; disable it first, so that no more are made. A program that still registers it makes it anew.
    pub async fn delete(&self, topic: &str, work_key: &str) -> Result<Option<u64>> {
        const DELETE: &str = "fanout.delete";
        let key = FanoutKey::new(topic, work_key)?;
        self.actor.validate(DELETE)?;
        let deleted = self.store.delete(&key, &self.actor).await?;
        if deleted.is_some() {
            telemetry::fanout_administered(self.store.identifier(), "delete", &key);
            self.bell.ring();
        }
        Ok(deleted)
    }

    /// How far a shard has come.
    pub async fn cursor(&self, topic: &str, work_key: &str, shard_key: &str) -> Result<Option<FanoutCursor>> {
        FanoutKey::validate_shard("fanout.cursor", shard_key)?;
        Ok(self.store.look(&FanoutKey::new(topic, work_key)?, &[shard_key.to_owned()]).await?.pop())
    }

    /// How far the shards have come, up to `limit` (1 to 10,000) of those that come after `after`.
    pub async fn cursors(
        &self,
        topic: &str,
        work_key: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<FanoutCursor>> {
        check_limit("fanout.cursors", limit)?;
        self.store.cursors(&FanoutKey::new(topic, work_key)?, after, limit).await
    }

    /// Says that a slice's work is done up to `at`. Whether that moved the cursor: it never goes back (R23), whatever order completions
    /// come in.
    pub async fn complete(&self, slice: &FanoutSlice, at: Timestamp) -> Result<bool> {
        let key = key_of(slice)?;
        let moved = self.store.complete(&key, &slice.shard_key, at).await?;
        telemetry::fanout_completed(self.store.identifier(), &key, &slice.shard_key, moved);
        Ok(moved)
    }

    /// The same within the caller's transaction: what was written there and the cursor are committed together or not at all.
    pub async fn complete_in<Tx, Marker>(
        &self,
        tx: &mut Tx,
        slice: &FanoutSlice,
        at: Timestamp,
    ) -> Result<bool>
    where
        Tx: CallIn<Marker> + ?Sized,
    {
        let call = self.store.completion(&key_of(slice)?, &slice.shard_key, at);
        let answers = tx.call_in(&call).await?;
        self.store.completed(&answers)
    }

    /// The same in a transaction of a driver that blocks.
    pub fn complete_in_blocking<Tx, Marker>(
        &self,
        tx: &mut Tx,
        slice: &FanoutSlice,
        at: Timestamp,
    ) -> Result<bool>
    where
        Tx: CallInBlocking<Marker> + ?Sized,
    {
        let call = self.store.completion(&key_of(slice)?, &slice.shard_key, at);
        let answers = tx.call_in(&call)?;
        self.store.completed(&answers)
    }
}

/// A slice may have been read from anybody's payload.
pub(super) fn key_of(slice: &FanoutSlice) -> Result<FanoutKey> {
    FanoutKey::validate_shard("fanout.complete", &slice.shard_key)?;
    FanoutKey::new(slice.fanout_topic.as_str(), slice.work_key.as_str())
}

fn check_limit(operation: &'static str, limit: u32) -> Result<()> {
    if !(1..=10_000).contains(&limit) {
        return Err(Error::invalid(operation, "limit", format_args!("must be 1 to 10,000, got {limit}")));
    }
    Ok(())
}

impl fmt::Debug for Fanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fanout").field("store", &self.store.identifier()).finish_non_exhaustive()
    }
}
