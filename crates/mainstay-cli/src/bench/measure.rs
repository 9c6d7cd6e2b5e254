//! The measurements, one after the other; each limit right beside what is compared with it, and every one that needs an
//! outbox on an empty one of its own.

use std::time::Instant;

use anyhow::Context as _;
use mainstay::join::JoinState;
use mainstay::{Joins, NewJoin};

use super::limits::{Limits, batch};
use super::scratch::{Place, Stage};
use super::{Plan, Progress, Results, Scratch, beside, cost, enqueue, handle};
use crate::failure::Failure;
use crate::meter::Meter;

/// Callers at once, where there are many.
const CALLERS: usize = 16;
const MANY_CALLERS: usize = 256;

/// Measures what is wanted.
pub(crate) async fn measure(
    scratch: &Scratch,
    plan: &Plan,
    progress: &mut Progress,
) -> anyhow::Result<Results> {
    // Before anything else: a database that can't be used is told by what an application would be told.
    let stage = scratch.stage().await?;
    scratch.clear(stage).await?;
    let limits = Limits::make(scratch).await?;
    let bench = Bench { scratch, plan, limits, meter: Meter::install() };
    let mut results = Results::default();
    bench.enqueue(progress, &mut results).await?;
    bench.bulk(progress, &mut results).await?;
    bench.drain(progress, &mut results).await?;
    bench.drain_joined(progress, &mut results).await?;
    bench.end_to_end(progress, &mut results).await?;
    bench.latency(progress, &mut results).await?;
    bench.beside(progress, &mut results).await?;
    bench.idle(progress, &mut results).await?;
    Ok(results)
}

struct Bench<'a> {
    scratch: &'a Scratch,
    plan: &'a Plan,
    limits: Limits,
    meter: Meter,
}

impl Bench<'_> {
    fn wants(&self, name: &str) -> bool {
        self.plan.wants(&[name])
    }

    async fn stage(&self) -> anyhow::Result<Stage> {
        self.scratch.stage().await
    }

    async fn enqueue(&self, progress: &mut Progress, results: &mut Results) -> anyhow::Result<()> {
        let (limits, time) = (&self.limits, self.plan.time);
        if self.wants("limit_insert_1") {
            results.set("limit_insert_1", limits.insert(progress, "insert, 1 connection", time, 1).await?);
        }
        self.standalone(progress, results, "enqueue_1", "enqueue, 1 caller", 1).await?;

        if self.wants("limit_insert_16") {
            let rate = limits.insert(progress, "insert, 16 connections", time, CALLERS).await?;
            results.set("limit_insert_16", rate);
        }
        if self.wants("limit_shared_commit_16") {
            let rate = limits.shared_commit(progress, "16 callers share a commit", time, CALLERS).await?;
            results.set("limit_shared_commit_16", rate);
        }
        self.standalone(progress, results, "enqueue_16", "enqueue, 16 callers", CALLERS).await?;

        if self.wants("limit_shared_commit_256") {
            let title = "256 callers share a commit";
            let rate = limits.shared_commit(progress, title, time, MANY_CALLERS).await?;
            results.set("limit_shared_commit_256", rate);
        }
        self.standalone(progress, results, "enqueue_256", "enqueue, 256 callers", MANY_CALLERS).await?;

        if self.wants("limit_insert_in_tx_16") {
            let title = "insert in a transaction";
            let rate = limits.insert_in_tx(progress, title, time, CALLERS).await?;
            results.set("limit_insert_in_tx_16", rate);
        }
        if self.wants("enqueue_in_tx_16") {
            let (stage, title) = (self.stage().await?, "enqueue in a transaction");
            let outbox = &stage.outbox;
            let rate =
                enqueue::in_transaction(progress, title, self.scratch, outbox, self.plan, CALLERS).await?;
            rate.into_iter().for_each(|rate| results.set("enqueue_in_tx_16", rate));
            self.scratch.clear(stage).await?;
        }
        Ok(())
    }

    async fn standalone(
        &self,
        progress: &mut Progress,
        results: &mut Results,
        name: &'static str,
        title: &str,
        callers: usize,
    ) -> anyhow::Result<()> {
        if self.wants(name) {
            let stage = self.stage().await?;
            let rate = enqueue::standalone(progress, title, &stage.outbox, self.plan, callers).await?;
            results.set(name, rate);
            self.scratch.clear(stage).await?;
        }
        Ok(())
    }

    async fn bulk(&self, progress: &mut Progress, results: &mut Results) -> anyhow::Result<()> {
        if self.wants("limit_copy") {
            results.set("limit_copy", self.limits.copy(progress, "COPY", self.plan).await?);
        }
        if self.wants("bulk") {
            let stage = self.stage().await?;
            let messages = self.plan.messages;
            let rate = enqueue::bulk(progress, "enqueue in bulk", &stage.outbox, messages, None).await?;
            results.set("bulk", rate);
            self.scratch.clear(stage).await?;
        }
        Ok(())
    }

    /// A full outbox is emptied; what the server counted meanwhile is the cost of a message's whole life.
    async fn drain(&self, progress: &mut Progress, results: &mut Results) -> anyhow::Result<()> {
        if self.wants("limit_claim_settle") {
            let rate = self.limits.claim_settle(progress, "claim and settle by updates", self.plan).await?;
            results.set("limit_claim_settle", rate);
        }
        if !self.plan.wants(&["drain", "wal_bytes_per_message", "dead_tuples_per_message"]) {
            return Ok(());
        }
        let (stage, before) = (self.stage().await?, self.meter.read());
        let plain = self.scratch.plain();
        let log_before = match plain {
            Some(plain) => cost::log_end(plain).await?,
            None => None,
        };
        enqueue::bulk(progress, "filling the outbox", &stage.outbox, self.plan.messages, None).await?;
        let messages = self.meter.read().enqueued - before.enqueued;
        self.checkpoint().await?;
        let started = Instant::now();
        let running = handle::Handlers::new().start(&stage.provider, self.plan.workers, true).await?;
        let rate = handle::drained(progress, "drain", &self.meter, before.done, messages, started).await?;
        results.set("drain", rate);
        handle::stop(running).await?;
        if let (Some(plain), Some(before)) = (plain, log_before)
            && let Some(after) = cost::log_end(plain).await?
        {
            results.set("wal_bytes_per_message", (after - before) / messages as f64);
        }
        // Closed first, for the counts to be complete.
        stage.provider.close().await;
        if let Some(plain) = plain {
            let dead = cost::dead_tuples(plain, self.scratch.schema()).await?;
            results.set("dead_tuples_per_message", dead / messages as f64);
        }
        self.scratch.clear(stage).await
    }

    /// The same with messages that are all steps of one join, which the last of them has to end.
    async fn drain_joined(&self, progress: &mut Progress, results: &mut Results) -> anyhow::Result<()> {
        if !self.wants("drain_joined") {
            return Ok(());
        }
        let (stage, before) = (self.stage().await?, self.meter.read());
        let (joins, messages) = (Joins::new(stage.provider.joins()), self.plan.messages);
        let join = joins.start(NewJoin::new(u32::try_from(messages)?)).await?;
        enqueue::bulk(progress, "filling a join", &stage.outbox, messages, Some(join)).await?;
        self.checkpoint().await?;
        let started = Instant::now();
        let running = handle::Handlers::new().start(&stage.provider, self.plan.workers, true).await?;
        let title = "drain of one join's members";
        let rate = handle::drained(progress, title, &self.meter, before.done, messages, started).await?;
        handle::stop(running).await?;
        let ended = joins.get(join).await?.context("the join of the measurement is gone")?;
        if ended.state != JoinState::Completed || u64::from(ended.completed) != messages {
            let found = format!("it is {}, {} of {messages} steps counted", ended.state, ended.completed);
            return Err(Failure::new("the join did not end with its last step").because(found).into());
        }
        results.set("drain_joined", rate);
        self.scratch.clear(stage).await
    }

    /// The database as it would be after a while.
    async fn checkpoint(&self) -> anyhow::Result<()> {
        // A role that may not do it measures without it.
        match &self.scratch.place {
            Place::Postgres { plain, .. } => {
                let client = plain.pool().get().await?;
                let _refused = client.batch_execute("checkpoint").await;
            }
            Place::SqlServer { server, .. } => {
                let _refused = batch(&mut server.client().await?, "CHECKPOINT").await;
            }
            Place::Memory | Place::File { .. } => {}
        }
        Ok(())
    }

    async fn end_to_end(&self, progress: &mut Progress, results: &mut Results) -> anyhow::Result<()> {
        if !self.wants("end_to_end") {
            return Ok(());
        }
        let stage = self.stage().await?;
        // Connections of their own for the dispatchers, as a worker's process has. In memory there is no other way in.
        let apart = match self.scratch.is_on_a_server() {
            true => Some(self.scratch.connect().await?),
            false => None,
        };
        let provider = apart.as_ref().unwrap_or(&stage.provider);
        let running = handle::Handlers::new().start(provider, self.plan.workers, true).await?;
        let rate = handle::end_to_end(progress, "end to end", &stage.outbox, &self.meter, self.plan).await?;
        results.set("end_to_end", rate);
        handle::stop(running).await?;
        if let Some(apart) = &apart {
            apart.close().await;
        }
        self.scratch.clear(stage).await
    }

    async fn latency(&self, progress: &mut Progress, results: &mut Results) -> anyhow::Result<()> {
        if self.plan.wants(&["limit_latency_p50_ms", "limit_latency_p99_ms"])
            && let Some((p50, p99)) =
                self.limits.latency(progress, "latency of a notification", self.plan).await?
        {
            results.set("limit_latency_p50_ms", p50);
            results.set("limit_latency_p99_ms", p99);
        }
        if self.plan.wants(&["latency_p50_ms", "latency_p99_ms"]) {
            let stage = self.stage().await?;
            let handlers = handle::Handlers::new();
            let running = handlers.start(&stage.provider, 1, false).await?;
            let (p50, p99) = handlers.latency(progress, &stage.outbox, &self.meter, self.plan).await?;
            results.set("latency_p50_ms", p50);
            results.set("latency_p99_ms", p99);
            handle::stop(running).await?;
            self.scratch.clear(stage).await?;
        }
        Ok(())
    }

    async fn beside(&self, progress: &mut Progress, results: &mut Results) -> anyhow::Result<()> {
        let Place::File { path, .. } = &self.scratch.place else { return Ok(()) };
        if !self.plan.wants(&["write_alone_p95_ms", "write_beside_busy_p95_ms"]) {
            return Ok(());
        }
        let (stage, time) = (self.stage().await?, self.plan.time);
        let alone = beside::p95(progress, "one write", &stage.outbox, time).await?;
        results.set("write_alone_p95_ms", alone);
        if self.wants("write_beside_busy_p95_ms") {
            let busy = beside::BusyProcess::start(path, time).await?;
            let title = "one write beside a busy process";
            results.set("write_beside_busy_p95_ms", beside::p95(progress, title, &stage.outbox, time).await?);
            busy.end().await?;
        }
        self.scratch.clear(stage).await
    }

    async fn idle(&self, progress: &mut Progress, results: &mut Results) -> anyhow::Result<()> {
        if !self.scratch.is_on_a_server() || !self.wants("idle_queries_per_s") {
            return Ok(());
        }
        let stage = self.stage().await?;
        let rate = match self.scratch.plain() {
            Some(plain) => cost::idle(progress, self.scratch, plain, self.plan).await?,
            None => cost::idle_by_round_trips(progress, self.scratch, self.plan).await?,
        };
        results.set("idle_queries_per_s", rate);
        self.scratch.clear(stage).await
    }
}
