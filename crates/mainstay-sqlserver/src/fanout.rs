//! Fan-outs: each method is one call of one procedure, in one round trip.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::audit::Actor;
use mainstay_core::fanout::{FanoutCursor, FanoutKey, FanoutPolicy, PlannedSlice, PreparedFanout, answer};
use mainstay_core::store::{FanoutStore, Names, StoreCall, Wake};
use mainstay_core::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::error::closed;
use crate::parameters::{Call, SEPARATOR, listed, written};
use crate::pool::Connections;
use crate::texts::Texts;
use crate::waiting::Signals;

const WAIT: &str = "fanout.wait";

/// Fan-outs in SQL Server.
pub struct SqlServerFanout {
    texts: Texts,
    signals: Signals,
    closed: CancellationToken,
}

impl SqlServerFanout {
    pub(crate) fn new(
        connections: Connections,
        names: &Names,
        signals: Signals,
        closed: CancellationToken,
    ) -> Self {
        Self { texts: Texts::new(connections, names, names.fanout()), signals, closed }
    }

    fn on(&self, verb: &str, key: &FanoutKey) -> Call {
        self.texts.procedure(verb).text("Topic", key.topic()).text("WorkKey", key.work_key())
    }

    fn completing(&self, key: &FanoutKey, shard: &str, at: Timestamp) -> Call {
        self.on("Complete", key).text("ShardKey", shard).maybe_moment("At", Some(at))
    }

    /// The version of a policy; none if there is no such fan-out.
    async fn version(&self, key: &FanoutKey) -> Result<Option<i64>> {
        let answers = self.texts.ask(WAIT, self.on("Version", key)).await?;
        if answers.is_empty() {
            return Ok(None);
        }
        answer::only::<(i64,)>(WAIT, &answers).map(|(version,)| Some(version))
    }

    async fn wait_open(&self, key: &FanoutKey, version: Option<i64>, timeout: Duration) -> Result<Wake> {
        // Before the look: what comes while it looks is heard.
        let mut signal = self.signals.subscribe_fanout();
        signal.mark_unchanged();
        if self.version(key).await? != version {
            return Ok(Wake::Notified);
        }
        tokio::select! {
            () = tokio::time::sleep(timeout.min(Duration::from_secs(24 * 3_600))) => {}
            // The sender lives as long as this.
            _ = signal.changed() => {}
        }
        Ok(if self.version(key).await? == version { Wake::TimedOut } else { Wake::Notified })
    }
}

/// What the procedure refuses although the arguments were checked before.
fn in_flight(error: Error, field: &'static str) -> Error {
    if error.kind() == ErrorKind::InvalidArgument { error.with_field(field) } else { error }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[async_trait]
impl FanoutStore for SqlServerFanout {
    fn identifier(&self) -> &str {
        self.texts.identifier()
    }

    async fn register(&self, fanout: &PreparedFanout, by: &Actor) -> Result<FanoutPolicy> {
        const REGISTER: &str = "fanout.register";
        let call = self.on("Register", fanout.key()).integer("EverySeconds", seconds(fanout.every()));
        let call = call.integer("JitterSeconds", seconds(fanout.jitter())).maybe_text("Cron", fanout.cron());
        let call = call.text("TimeZone", fanout.time_zone()).flag("Enabled", fanout.enabled());
        let answers = self.texts.ask(REGISTER, call.actor(Some(by))).await?;
        self.signals.signal_fanout();
        answer::policy_of(REGISTER, &answers)
    }

    async fn standing(&self, key: &FanoutKey) -> Result<Option<(FanoutPolicy, Timestamp)>> {
        const STANDING: &str = "fanout.standing";
        answer::maybe_policy(STANDING, &self.texts.ask(STANDING, self.on("List", key)).await?)
    }

    async fn list(&self, after: Option<&FanoutKey>, limit: u32) -> Result<Vec<FanoutPolicy>> {
        const LIST: &str = "fanout.list";
        let call = self.texts.procedure("List").maybe_text("AfterTopic", after.map(FanoutKey::topic));
        let call = call.maybe_text("AfterWorkKey", after.map(FanoutKey::work_key)).integer("MaxRows", limit);
        let policies = answer::policies(LIST, &self.texts.ask(LIST, call).await?)?;
        Ok(policies.into_iter().map(|(policy, _)| policy).collect())
    }

    async fn set(&self, policy: &FanoutPolicy, by: &Actor) -> Result<Option<FanoutPolicy>> {
        const SET: &str = "fanout.set";
        let call = self.on("Set", &policy.key).integer("ExpectedVersion", policy.version);
        let call = call
            .integer("EverySeconds", seconds(policy.every))
            .integer("JitterSeconds", seconds(policy.jitter));
        let call = call.text("Cron", policy.cron.as_deref().unwrap_or_default());
        let call = call.text("TimeZone", &policy.time_zone).flag("Enabled", policy.enabled);
        let answers = self.texts.ask(SET, call.actor(Some(by))).await?;
        self.signals.signal_fanout();
        Ok(answer::maybe_policy(SET, &answers)?.map(|(policy, _)| policy))
    }

    async fn request_run(&self, key: &FanoutKey, by: &Actor) -> Result<bool> {
        const RUN: &str = "fanout.run";
        let answers = self.texts.ask(RUN, self.on("Run", key).actor(Some(by))).await?;
        self.signals.signal_fanout();
        answer::changed(RUN, &answers)
    }

    async fn add_shards(&self, key: &FanoutKey, shards: &[String], by: &Actor) -> Result<u64> {
        const ADD: &str = "fanout.add_shards";
        if shards.is_empty() {
            return Ok(0);
        }
        let call = self.on("AddShards", key).text("Shards", shards.join(SEPARATOR)).actor(Some(by));
        let (added,): (Option<u64>,) = answer::only(ADD, &self.texts.ask(ADD, call).await?)?;
        self.signals.signal_fanout();
        added.ok_or_else(|| answer::unknown(ADD, key))
    }

    async fn forget_shard(&self, key: &FanoutKey, shard: &str, by: &Actor) -> Result<bool> {
        const FORGET: &str = "fanout.forget_shard";
        let call = self.on("ForgetShard", key).text("ShardKey", shard).actor(Some(by));
        let answers = self.texts.ask(FORGET, call).await;
        answer::changed(FORGET, &answers.map_err(|error| in_flight(error, "shard_key"))?)
    }

    async fn delete(&self, key: &FanoutKey, by: &Actor) -> Result<Option<u64>> {
        const DELETE: &str = "fanout.delete";
        let answers = self.texts.ask(DELETE, self.on("Delete", key).actor(Some(by))).await;
        let answers = answers.map_err(|error| in_flight(error, "work_key"))?;
        self.signals.signal_fanout();
        answer::deleted(DELETE, answers.first())
    }

    async fn look(&self, key: &FanoutKey, shards: &[String]) -> Result<Vec<FanoutCursor>> {
        const LOOK: &str = "fanout.look";
        if shards.is_empty() {
            return Ok(Vec::new());
        }
        let call = self.on("Cursors", key).text("Shards", shards.join(SEPARATOR));
        answer::cursors(LOOK, &self.texts.ask(LOOK, call).await?)
    }

    async fn cursors(&self, key: &FanoutKey, after: Option<&str>, limit: u32) -> Result<Vec<FanoutCursor>> {
        const CURSORS: &str = "fanout.cursors";
        let call = self.on("Cursors", key).maybe_text("After", after).integer("MaxRows", limit);
        answer::cursors(CURSORS, &self.texts.ask(CURSORS, call).await?)
    }

    async fn complete(&self, key: &FanoutKey, shard: &str, at: Timestamp) -> Result<bool> {
        const COMPLETE: &str = "fanout.complete";
        answer::changed(COMPLETE, &self.texts.ask(COMPLETE, self.completing(key, shard, at)).await?)
    }

    fn completion(&self, key: &FanoutKey, shard: &str, at: Timestamp) -> StoreCall {
        self.texts.call("fanout.complete_in", self.completing(key, shard, at))
    }

    fn completed(&self, answers: &[String]) -> Result<bool> {
        answer::changed("fanout.complete_in", answers)
    }

    fn claim(&self, key: &FanoutKey, version: i64, slices: &[PlannedSlice]) -> StoreCall {
        let object = |slice: &PlannedSlice| {
            let mut object = json!({ "shard": listed(&slice.shard_key), "id": slice.id, "nominal": written(slice.nominal) });
            if let Some(cursor) = slice.cursor {
                object["completed"] = written(cursor).into();
            }
            if let Some(last) = slice.last_slice {
                object["last"] = json!(last);
            }
            object
        };
        let plan = Value::Array(slices.iter().map(object).collect()).to_string();
        self.texts
            .call("fanout.claim", self.on("Claim", key).integer("Version", version).text("Slices", plan))
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
        let call = self.on("Ran", key).integer("Version", version).maybe_moment("Nominal", Some(nominal));
        self.texts.call("fanout.ran", call.maybe_moment("Requested", requested))
    }

    async fn wait(&self, key: &FanoutKey, version: Option<i64>, timeout: Duration) -> Result<Wake> {
        tokio::select! {
            wake = self.wait_open(key, version, timeout) => wake,
            () = self.closed.cancelled() => Err(closed(WAIT)),
        }
    }
}

impl std::fmt::Debug for SqlServerFanout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlServerFanout")
            .field("identifier", &self.texts.identifier())
            .finish_non_exhaustive()
    }
}
