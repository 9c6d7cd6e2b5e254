//! Fan-outs: each method is one call of one SQL function, or one reading, in one round trip.
//!
//! Arguments and answers are texts, so that the same statements run on the program's own connections and in the transactions of
//! every driver (see `texts`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::audit::Actor;
use mainstay_core::fanout::{FanoutCursor, FanoutKey, FanoutPolicy, PlannedSlice, PreparedFanout, answer};
use mainstay_core::store::{FanoutStore, Names, StoreCall, Wake};
use mainstay_core::{Error, ErrorKind, Result};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::audit::actor;
use crate::error::closed;
use crate::listener::{Listener, Subject};
use crate::pool::Connections;
use crate::statements::FanoutStatements;
use crate::texts::Texts;
use crate::waiting::Ear;

/// Fan-outs in PostgreSQL.
pub struct PostgresFanout {
    texts: Texts,
    statements: Arc<FanoutStatements>,
    listener: Option<Arc<Listener>>,
    closed: CancellationToken,
}

impl PostgresFanout {
    pub(crate) fn new(
        connections: Connections,
        names: &Names,
        listener: Option<Arc<Listener>>,
        closed: CancellationToken,
    ) -> Result<Self> {
        let texts = Texts::new(connections, names, names.fanout());
        Ok(Self { texts, statements: FanoutStatements::shared(names)?, listener, closed })
    }

    fn call<const N: usize>(
        &self,
        operation: &'static str,
        sql: &str,
        key: &FanoutKey,
        rest: [Option<String>; N],
    ) -> StoreCall {
        self.texts.call(operation, sql, arguments(key, rest))
    }

    /// The version of a policy; none if there is no such fan-out.
    async fn version(&self, key: &FanoutKey) -> Result<Option<i64>> {
        const WAIT: &str = "fanout.wait";
        let answers = self.texts.ask(WAIT, &self.statements.version, arguments(key, [])).await?;
        if answers.is_empty() {
            return Ok(None);
        }
        answer::only::<(i64,)>(WAIT, &answers).map(|(version,)| Some(version))
    }

    async fn wait_open(&self, key: &FanoutKey, version: Option<i64>, timeout: Duration) -> Result<Wake> {
        let deadline = Instant::now() + timeout.min(Duration::from_secs(24 * 3_600));
        // Before the look: what comes after it is then heard. Whoever changes a policy always notifies.
        let mut ear = Ear::new(self.listener.as_deref(), Subject::Fanout);
        loop {
            if self.version(key).await? != version {
                return Ok(Wake::Notified);
            }
            if !ear.sleep_until(deadline).await {
                return Ok(Wake::TimedOut);
            }
            ear = Ear::new(self.listener.as_deref(), Subject::Fanout);
        }
    }
}

fn arguments<const N: usize>(key: &FanoutKey, rest: [Option<String>; N]) -> Vec<Option<String>> {
    [text(key.topic()), text(key.work_key())].into_iter().chain(rest).collect()
}

/// What the function refuses although the arguments were checked before.
fn in_flight(error: Error, field: &'static str) -> Error {
    if error.kind() == ErrorKind::InvalidArgument { error.with_field(field) } else { error }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn seconds(duration: Duration) -> Option<String> {
    Some(duration.as_secs().to_string())
}

fn micros(moment: Timestamp) -> String {
    moment.as_microsecond().to_string()
}

#[async_trait]
impl FanoutStore for PostgresFanout {
    fn identifier(&self) -> &str {
        self.texts.identifier()
    }

    async fn register(&self, fanout: &PreparedFanout, by: &Actor) -> Result<FanoutPolicy> {
        const REGISTER: &str = "fanout.register";
        let [by, about] = actor(Some(by));
        let values = [
            seconds(fanout.every()),
            seconds(fanout.jitter()),
            fanout.cron().map(str::to_owned),
            text(fanout.time_zone()),
            Some(fanout.enabled().to_string()),
            by,
            about,
        ];
        let arguments = arguments(fanout.key(), values);
        answer::policy_of(REGISTER, &self.texts.ask(REGISTER, &self.statements.register, arguments).await?)
    }

    async fn standing(&self, key: &FanoutKey) -> Result<Option<(FanoutPolicy, Timestamp)>> {
        const STANDING: &str = "fanout.standing";
        let answers = self.texts.ask(STANDING, &self.statements.standing, arguments(key, [])).await?;
        answer::maybe_policy(STANDING, &answers)
    }

    async fn list(&self, after: Option<&FanoutKey>, limit: u32) -> Result<Vec<FanoutPolicy>> {
        const LIST: &str = "fanout.list";
        let (topic, work_key) = (after.map(|key| key.topic()), after.map(|key| key.work_key()));
        let arguments = vec![topic.map(str::to_owned), work_key.map(str::to_owned), Some(limit.to_string())];
        let policies =
            answer::policies(LIST, &self.texts.ask(LIST, &self.statements.list, arguments).await?)?;
        Ok(policies.into_iter().map(|(policy, _)| policy).collect())
    }

    async fn set(&self, policy: &FanoutPolicy, by: &Actor) -> Result<Option<FanoutPolicy>> {
        const SET: &str = "fanout.set";
        let [by, about] = actor(Some(by));
        let values = [
            Some(policy.version.to_string()),
            seconds(policy.every),
            seconds(policy.jitter),
            policy.cron.clone(),
            text(&policy.time_zone),
            Some(policy.enabled.to_string()),
            by,
            about,
        ];
        let answers = self.texts.ask(SET, &self.statements.set, arguments(&policy.key, values)).await?;
        Ok(answer::maybe_policy(SET, &answers)?.map(|(policy, _)| policy))
    }

    async fn request_run(&self, key: &FanoutKey, by: &Actor) -> Result<bool> {
        const RUN: &str = "fanout.run";
        let arguments = arguments(key, actor(Some(by)));
        answer::changed(RUN, &self.texts.ask(RUN, &self.statements.request_run, arguments).await?)
    }

    async fn add_shards(&self, key: &FanoutKey, shards: &[String], by: &Actor) -> Result<u64> {
        const ADD: &str = "fanout.add_shards";
        let [by, about] = actor(Some(by));
        let arguments = arguments(key, [Some(answer::texts(shards)), by, about]);
        let answers = self.texts.ask(ADD, &self.statements.add_shards, arguments).await?;
        let (added,): (Option<u64>,) = answer::only(ADD, &answers)?;
        added.ok_or_else(|| answer::unknown(ADD, key))
    }

    async fn forget_shard(&self, key: &FanoutKey, shard: &str, by: &Actor) -> Result<bool> {
        const FORGET: &str = "fanout.forget_shard";
        let [by, about] = actor(Some(by));
        let arguments = arguments(key, [text(shard), by, about]);
        let answers = self.texts.ask(FORGET, &self.statements.forget_shard, arguments).await;
        answer::changed(FORGET, &answers.map_err(|error| in_flight(error, "shard_key"))?)
    }

    async fn delete(&self, key: &FanoutKey, by: &Actor) -> Result<Option<u64>> {
        const DELETE: &str = "fanout.delete";
        let arguments = arguments(key, actor(Some(by)));
        let answers = self.texts.ask(DELETE, &self.statements.delete, arguments).await;
        answer::deleted(DELETE, answers.map_err(|error| in_flight(error, "work_key"))?.first())
    }

    async fn look(&self, key: &FanoutKey, shards: &[String]) -> Result<Vec<FanoutCursor>> {
        const LOOK: &str = "fanout.look";
        let arguments = arguments(key, [Some(answer::texts(shards))]);
        answer::cursors(LOOK, &self.texts.ask(LOOK, &self.statements.look, arguments).await?)
    }

    async fn cursors(&self, key: &FanoutKey, after: Option<&str>, limit: u32) -> Result<Vec<FanoutCursor>> {
        const CURSORS: &str = "fanout.cursors";
        let arguments = arguments(key, [after.map(str::to_owned), Some(limit.to_string())]);
        answer::cursors(CURSORS, &self.texts.ask(CURSORS, &self.statements.cursors, arguments).await?)
    }

    async fn complete(&self, key: &FanoutKey, shard: &str, at: Timestamp) -> Result<bool> {
        const COMPLETE: &str = "fanout.complete";
        let arguments = arguments(key, [text(shard), Some(micros(at))]);
        answer::changed(COMPLETE, &self.texts.ask(COMPLETE, &self.statements.complete, arguments).await?)
    }

    fn completion(&self, key: &FanoutKey, shard: &str, at: Timestamp) -> StoreCall {
        self.call("fanout.complete_in", &self.statements.complete, key, [text(shard), Some(micros(at))])
    }

    fn completed(&self, answers: &[String]) -> Result<bool> {
        answer::changed("fanout.complete_in", answers)
    }

    fn claim(&self, key: &FanoutKey, version: i64, slices: &[PlannedSlice]) -> StoreCall {
        let arguments = [Some(version.to_string()), Some(answer::plan(slices))];
        self.call("fanout.claim", &self.statements.claim, key, arguments)
    }

    fn claimed(&self, answers: &[String]) -> Result<Vec<String>> {
        answer::shards("fanout.claim", answers)
    }

    fn ran(
        &self,
        key: &FanoutKey,
        version: i64,
        nominal: Timestamp,
        requested: Option<Timestamp>,
    ) -> StoreCall {
        let arguments = [Some(version.to_string()), Some(micros(nominal)), requested.map(micros)];
        self.call("fanout.ran", &self.statements.ran, key, arguments)
    }

    async fn wait(&self, key: &FanoutKey, version: Option<i64>, timeout: Duration) -> Result<Wake> {
        tokio::select! {
            wake = self.wait_open(key, version, timeout) => wake,
            () = self.closed.cancelled() => Err(closed("fanout.wait")),
        }
    }
}

impl std::fmt::Debug for PostgresFanout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresFanout").field("identifier", &self.texts.identifier()).finish_non_exhaustive()
    }
}
