//! Fan-outs on SQLite: each method is a few statements in one operation of the writer, or one look of a reader.
//!
//! What may also happen in a transaction of the application's is worded as a call, so that every driver can run it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::fanout::{FanoutCursor, FanoutKey, FanoutPolicy, PlannedSlice, PreparedFanout, answer};
use mainstay_core::store::{Argument, FanoutStore, Step, StoreCall, WaitRequest, Wake};
use mainstay_core::{OwnerToken, Result};
use rusqlite::{Connection, OptionalExtension};

use crate::call;
use crate::database::{Database, fanout_identifier};
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

    async fn read(&self, operation: &'static str, steps: Vec<Step>) -> Result<Vec<String>> {
        let run = move |connection: &Connection, _: &Statements| call::run(connection, &steps);
        self.database.read(operation, run).await
    }
}

#[async_trait]
impl FanoutStore for SqliteFanout {
    fn identifier(&self) -> &str {
        &self.identifier
    }

    async fn register(&self, fanout: &PreparedFanout) -> Result<FanoutPolicy> {
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
        let steps = vec![step(&sql.register, key, values), step(&sql.standing, key, [])];
        answer::policy_of(REGISTER, &self.write(REGISTER, steps, |_| true).await?)
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

    async fn set(&self, policy: &FanoutPolicy) -> Result<Option<FanoutPolicy>> {
        const SET: &str = "fanout.set";
        let values = [
            policy.version.into(),
            seconds(policy.every),
            seconds(policy.jitter),
            policy.cron.as_deref().into(),
            policy.time_zone.as_str().into(),
            i64::from(policy.enabled).into(),
        ];
        let steps = vec![step(&self.statements.set, &policy.key, values)];
        let answers = self.write(SET, steps, |answers| !answers.is_empty()).await?;
        Ok(answer::maybe_policy(SET, &answers)?.map(|(policy, _)| policy))
    }

    async fn request_run(&self, key: &FanoutKey) -> Result<bool> {
        let steps = vec![step(&self.statements.request_run, key, [])];
        Ok(!self.write("fanout.run", steps, |answers| !answers.is_empty()).await?.is_empty())
    }

    async fn add_shards(&self, key: &FanoutKey, shards: &[String]) -> Result<u64> {
        let add = |shard: &String| step(&self.statements.add_shard, key, [shard.as_str().into()]);
        let ticket = Ticket::new("fanout.add_shards", shards.len());
        let added = self.write(ticket, shards.iter().map(add).collect(), |_| false).await?;
        Ok(added.len() as u64)
    }

    async fn forget_shard(&self, key: &FanoutKey, shard: &str) -> Result<bool> {
        let steps = vec![step(&self.statements.forget_shard, key, [shard.into()])];
        Ok(!self.write("fanout.forget_shard", steps, |_| false).await?.is_empty())
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
