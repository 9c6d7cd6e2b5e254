//! Fan-outs on SQLite: each method is a few statements in one operation of the writer, or one look of a reader.
//!
//! What may also happen in a transaction of the application's is worded as a call, so that every driver can run it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::audit::{Actor, ITEMS_SHOWN, PreparedAudit};
use mainstay_core::fanout::{FanoutCursor, FanoutKey, FanoutPolicy, PlannedSlice, PreparedFanout, answer};
use mainstay_core::store::{Argument, FanoutStore, Step, StoreCall, WaitRequest, Wake};
use mainstay_core::{OwnerToken, Result};
use rusqlite::{Connection, OptionalExtension};
use serde_json::{Value, json};

use crate::audit::note;
use crate::call;
use crate::database::{Database, fanout_identifier};
use crate::error::Fault;
use crate::statements::{FanoutStatements, Statements};
use crate::value::micros;
use crate::wake;
use crate::writer::Ticket;

/// Fan-outs in one SQLite database.
pub struct SqliteFanout {
    identifier: String,
    database: Arc<Database>,
    statements: Arc<FanoutStatements>,
}

fn step<const N: usize>(sql: &Arc<str>, key: &FanoutKey, rest: [Argument; N]) -> Step {
    let mut arguments = vec![key.topic().into(), key.work_key().into()];
    arguments.extend(rest);
    Step { sql: Arc::clone(sql), arguments }
}

fn seconds(duration: Duration) -> Argument {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX).into()
}

/// What can be set of a policy, for a record.
fn told(policy: &FanoutPolicy) -> Value {
    json!({
        "every_seconds": policy.every.as_secs(),
        "jitter_seconds": policy.jitter.as_secs(),
        "cron": policy.cron,
        "time_zone": policy.time_zone,
        "enabled": policy.enabled,
    })
}

/// The record of something that is done to a fan-out.
fn record(operation: &str, key: &FanoutKey, by: &Actor, data: Value) -> PreparedAudit {
    PreparedAudit::administrative(operation, by, data).about("fanout", [key.to_string()])
}

impl SqliteFanout {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        let identifier = fanout_identifier(&database.location, &database.names);
        let statements = FanoutStatements::shared(&database.names);
        Self { identifier, database, statements }
    }

    fn call(&self, operation: &'static str, steps: Vec<Step>) -> StoreCall {
        let origin = Arc::clone(&self.database);
        StoreCall { operation, store: self.identifier.clone(), origin, steps }
    }

    /// Runs it in a transaction of its own, and tells coordinators if they may care.
    async fn write(
        &self,
        ticket: impl Into<Ticket>,
        steps: Vec<Step>,
        wakes: fn(&Vec<String>) -> bool,
    ) -> Result<Vec<String>> {
        let run = move |connection: &Connection, _: &Statements| call::run(connection, &steps);
        self.database.write_and_wake(ticket, run, wakes).await
    }

    /// The same with a record of what the last of the steps has changed, made of all the answers; nothing is recorded without one.
    async fn administer<F>(
        &self,
        ticket: impl Into<Ticket>,
        steps: Vec<Step>,
        tell: F,
        wakes: fn(&Vec<String>) -> bool,
    ) -> Result<Vec<String>>
    where
        F: Fn(&[String]) -> Result<Option<PreparedAudit>> + Send + 'static,
    {
        let audit = Arc::clone(&self.database.audit);
        let run = move |connection: &Connection, _: &Statements| -> Result<Vec<String>, Fault> {
            let answers = call::run(connection, &steps)?;
            if let Some(record) = tell(&answers)? {
                note(connection, &audit, &record)?;
            }
            Ok(answers)
        };
        self.database.write_and_wake(ticket, run, wakes).await
    }

    async fn read(&self, operation: &'static str, steps: Vec<Step>) -> Result<Vec<String>> {
        let run = move |connection: &Connection, _: &Statements| call::run(connection, &steps);
        self.database.read(operation, run).await
    }
}

/// A policy before and after a change. None if there was none, and no second one if it was not changed.
fn changed(operation: &'static str, answers: &[String]) -> Result<Option<[Option<FanoutPolicy>; 2]>> {
    let mut policies = answer::policies(operation, answers)?.into_iter().map(|(policy, _)| policy);
    Ok(policies.next().map(|before| [Some(before), policies.next()]))
}

#[async_trait]
impl FanoutStore for SqliteFanout {
    fn identifier(&self) -> &str {
        &self.identifier
    }

    async fn register(&self, fanout: &PreparedFanout, by: &Actor) -> Result<FanoutPolicy> {
        const REGISTER: &str = "fanout.register";
        let key = fanout.key();
        let values = [
            seconds(fanout.every()),
            seconds(fanout.jitter()),
            fanout.cron().into(),
            fanout.time_zone().into(),
            i64::from(fanout.enabled()).into(),
        ];
        let sql = &self.statements;
        let standing = || step(&sql.standing, key, []);
        let steps = vec![standing(), step(&sql.register, key, values), standing()];
        let (key, by) = (key.clone(), by.clone());
        let tell = move |answers: &[String]| {
            let policies = answer::policies(REGISTER, answers)?;
            let (before, after) = match policies.as_slice() {
                [(after, _)] => (None, after),
                [(before, _), (after, _)] if before.version != after.version => (Some(before), after),
                _ => return Ok(None),
            };
            let data = json!({ "before": before.map(told), "after": told(after) });
            Ok(Some(record(REGISTER, &key, &by, data)))
        };
        answer::policy_of(REGISTER, &self.administer(REGISTER, steps, tell, |_| true).await?)
    }

    async fn standing(&self, key: &FanoutKey) -> Result<Option<(FanoutPolicy, Timestamp)>> {
        const STANDING: &str = "fanout.standing";
        let steps = vec![step(&self.statements.standing, key, [])];
        answer::maybe_policy(STANDING, &self.read(STANDING, steps).await?)
    }

    async fn list(&self, after: Option<&FanoutKey>, limit: u32) -> Result<Vec<FanoutPolicy>> {
        const LIST: &str = "fanout.list";
        let (topic, work_key) = after.map_or(("", ""), |after| (after.topic(), after.work_key()));
        let arguments = vec![topic.into(), work_key.into(), i64::from(limit).into()];
        let steps = vec![Step { sql: Arc::clone(&self.statements.list), arguments }];
        let policies = answer::policies(LIST, &self.read(LIST, steps).await?)?;
        Ok(policies.into_iter().map(|(policy, _)| policy).collect())
    }

    async fn set(&self, policy: &FanoutPolicy, by: &Actor) -> Result<Option<FanoutPolicy>> {
        const SET: &str = "fanout.set";
        let values = [
            policy.version.into(),
            seconds(policy.every),
            seconds(policy.jitter),
            policy.cron.as_deref().into(),
            policy.time_zone.as_str().into(),
            i64::from(policy.enabled).into(),
        ];
        let sql = &self.statements;
        let steps = vec![step(&sql.standing, &policy.key, []), step(&sql.set, &policy.key, values)];
        let (key, by) = (policy.key.clone(), by.clone());
        let tell = move |answers: &[String]| {
            let [before, after] = changed(SET, answers)?.unwrap_or_default();
            let Some((before, after)) = before.zip(after) else { return Ok(None) };
            let data = json!({ "before": told(&before), "after": told(&after) });
            Ok(Some(record(SET, &key, &by, data)))
        };
        let answers = self.administer(SET, steps, tell, |answers| answers.len() == 2).await?;
        Ok(changed(SET, &answers)?.and_then(|[_, after]| after))
    }

    async fn request_run(&self, key: &FanoutKey, by: &Actor) -> Result<bool> {
        const RUN: &str = "fanout.run";
        let sql = &self.statements;
        let steps = vec![step(&sql.standing, key, []), step(&sql.request_run, key, [])];
        let (key, by) = (key.clone(), by.clone());
        let tell = move |answers: &[String]| {
            let [before, after] = changed(RUN, answers)?.unwrap_or_default();
            let Some((before, after)) = before.zip(after) else { return Ok(None) };
            let data = json!({
                "before": { "run_requested_at": before.run_requested_at },
                "after": { "run_requested_at": after.run_requested_at },
            });
            Ok(Some(record(RUN, &key, &by, data)))
        };
        Ok(self.administer(RUN, steps, tell, |answers| answers.len() == 2).await?.len() == 2)
    }

    async fn add_shards(&self, key: &FanoutKey, shards: &[String], by: &Actor) -> Result<u64> {
        const ADD: &str = "fanout.add_shards";
        let sql = &self.statements;
        let add = |shard: &String| step(&sql.add_shard, key, [shard.as_str().into()]);
        let there = [step(&sql.standing, key, [])].into_iter();
        let steps = there.chain(shards.iter().map(add)).chain([step(&sql.shards_added, key, [])]).collect();
        let (key, by) = (key.clone(), by.clone());
        let tell = move |answers: &[String]| {
            let [_policy, added @ ..] = answers else { return Err(answer::unknown(ADD, &key)) };
            let added = answer::shards(ADD, added)?;
            if added.is_empty() {
                return Ok(None);
            }
            let data = json!({ "count": added.len(), "items": &added[..added.len().min(ITEMS_SHOWN)] });
            let about = added.iter().map(|shard| format!("{key}:{shard}"));
            Ok(Some(record(ADD, &key, &by, data).about("shard", about)))
        };
        let ticket = Ticket::new(ADD, shards.len());
        let answers = self.administer(ticket, steps, tell, |answers| answers.len() > 1).await?;
        Ok(answers.len().saturating_sub(1) as u64)
    }

    async fn forget_shard(&self, key: &FanoutKey, shard: &str, by: &Actor) -> Result<bool> {
        const FORGET: &str = "fanout.forget_shard";
        let sql = &self.statements;
        let steps = vec![step(&sql.look, key, [shard.into()]), step(&sql.forget_shard, key, [shard.into()])];
        let (key, by, shard) = (key.clone(), by.clone(), shard.to_owned());
        let tell = move |answers: &[String]| {
            let [looked, _deleted] = answers else { return Ok(None) };
            let before = answer::cursors(FORGET, std::slice::from_ref(looked))?.pop();
            let before = before.map(|cursor| {
                json!({ "last_completed_at": cursor.last_completed_at, "slice_due_at": cursor.slice_due_at })
            });
            let data = json!({ "shard": shard, "before": before, "after": null });
            Ok(Some(record(FORGET, &key, &by, data).about("shard", [format!("{key}:{shard}")])))
        };
        let answers = self.administer(FORGET, steps, tell, |_| false).await?;
        if let [looked] = answers.as_slice() {
            let cursor = answer::cursors(FORGET, std::slice::from_ref(looked))?.pop();
            return Err(answer::in_flight(FORGET, "shard_key", cursor.and_then(|cursor| cursor.slice_id)));
        }
        Ok(!answers.is_empty())
    }

    async fn delete(&self, key: &FanoutKey, by: &Actor) -> Result<Option<u64>> {
        const DELETE: &str = "fanout.delete";
        let sql = &self.statements;
        let parts = [&sql.standing, &sql.flying, &sql.delete, &sql.delete_cursors];
        let steps = parts.map(|sql| step(sql, key, [])).into();
        let (key, by) = (key.clone(), by.clone());
        let tell = move |answers: &[String]| {
            let [before, deleted] = answers else { return Ok(None) };
            // Refused here, so that nothing stays of what was done so far.
            let shards = answer::deleted(DELETE, Some(deleted))?;
            let before = answer::policy_of(DELETE, std::slice::from_ref(before))?;
            let data = json!({ "before": told(&before), "after": null, "shards": shards });
            Ok(Some(record(DELETE, &key, &by, data)))
        };
        let answers = self.administer(DELETE, steps, tell, |answers| !answers.is_empty()).await?;
        answer::deleted(DELETE, answers.get(1))
    }

    async fn look(&self, key: &FanoutKey, shards: &[String]) -> Result<Vec<FanoutCursor>> {
        const LOOK: &str = "fanout.look";
        let look = |shard: &String| step(&self.statements.look, key, [shard.as_str().into()]);
        answer::cursors(LOOK, &self.read(LOOK, shards.iter().map(look).collect()).await?)
    }

    async fn cursors(&self, key: &FanoutKey, after: Option<&str>, limit: u32) -> Result<Vec<FanoutCursor>> {
        const CURSORS: &str = "fanout.cursors";
        let arguments = [after.unwrap_or_default().into(), i64::from(limit).into()];
        let steps = vec![step(&self.statements.cursors, key, arguments)];
        answer::cursors(CURSORS, &self.read(CURSORS, steps).await?)
    }

    async fn complete(&self, key: &FanoutKey, shard: &str, at: Timestamp) -> Result<bool> {
        let steps = self.completion(key, shard, at).steps;
        Ok(!self.write("fanout.complete", steps, |_| false).await?.is_empty())
    }

    fn completion(&self, key: &FanoutKey, shard: &str, at: Timestamp) -> StoreCall {
        let arguments = [shard.into(), micros(at).into()];
        self.call("fanout.complete_in", vec![step(&self.statements.complete, key, arguments)])
    }

    fn completed(&self, answers: &[String]) -> Result<bool> {
        Ok(!answers.is_empty())
    }

    fn claim(&self, key: &FanoutKey, version: i64, slices: &[PlannedSlice]) -> StoreCall {
        let claim = |slice: &PlannedSlice| {
            let arguments = [
                version.into(),
                slice.shard_key.as_str().into(),
                slice.cursor.map(micros).into(),
                slice
                    .last_slice
                    .as_ref()
                    .map(|id| id.as_uuid().into_bytes())
                    .as_ref()
                    .map(<[u8; 16]>::as_slice)
                    .into(),
                slice.id.as_uuid().as_bytes().as_slice().into(),
                micros(slice.nominal).into(),
            ];
            let shard = [slice.shard_key.as_str().into()];
            [step(&self.statements.claim_shard, key, shard), step(&self.statements.claim, key, arguments)]
        };
        self.call("fanout.claim", slices.iter().flat_map(claim).collect())
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
        let arguments = [version.into(), micros(nominal).into(), requested.map(micros).into()];
        self.call("fanout.ran", vec![step(&self.statements.ran, key, arguments)])
    }

    async fn wait(&self, key: &FanoutKey, version: Option<i64>, timeout: Duration) -> Result<Wake> {
        let (sql, topic, work_key) =
            (Arc::clone(&self.statements), key.topic().to_owned(), key.work_key().to_owned());
        let next = move |connection: &Connection, _: &_, now: i64| {
            let mut statement = connection.prepare_cached(&sql.version)?;
            let found = statement.query_row([&topic, &work_key], |row| row.get::<_, i64>(0)).optional()?;
            Ok((found != version).then_some(now))
        };
        wake::wait(&self.database, &WaitRequest::new(OwnerToken::new()).timeout(timeout), Arc::new(next))
            .await
    }
}

impl fmt::Debug for SqliteFanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteFanout").field("identifier", &self.identifier).finish_non_exhaustive()
    }
}
