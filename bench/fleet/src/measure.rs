//! The run: makes the databases, starts the two processes, and measures them idle, busy, and with some down.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use mainstay_tests::PostgresUrl;
use tokio_postgres::Client;

use crate::affliction::afflict;
use crate::child::{Part, Usage};
use crate::latency::{By, Draw, Samples};
use crate::plan::{Plan, Request};
use crate::report::{Findings, Idle};
use crate::tenants::{PREFIX, Tenant, Tenants, connect};
use crate::watcher::Watcher;
use crate::wire::{Load, Order};

/// How long all databases may take to be seen to for the first time.
const FIRST: Duration = Duration::from_secs(180);

/// How long messages are waited for at the end: longer than the longest pause between looks.
const LAST: Duration = Duration::from_secs(40);

/// Makes everything, measures, and prints one line of JSON.
pub(crate) async fn measure(request: Request) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let progress = Progress(Instant::now());
    let plan = request.plan;
    let server = PostgresUrl::parse(&request.url);
    progress
        .tell(&format!("making {} databases of SQLite and {} of PostgreSQL", plan.tenants, plan.databases));
    let tenants = Tenants::make(&plan, folder.path(), &server).await?;
    let made_in = progress.0.elapsed().as_secs_f64();
    let log = folder.path().join("node.log");
    let run = Run::start(plan, tenants, &server, &log, progress).await?;
    let done = run.whole(made_in).await;
    if done.is_err() {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        eprintln!("the node's last words:\n{}", log.lines().rev().take(10).collect::<Vec<_>>().join("\n"));
    }
    println!("{}", done?.json());
    Ok(())
}

/// Tells what is being done, and when it began.
struct Progress(Instant);

impl Progress {
    fn tell(&self, text: &str) {
        eprintln!("{:>6.1} s {text}", self.0.elapsed().as_secs_f64());
    }
}

/// The databases, and the processes at work on them.
struct Run {
    plan: Plan,
    tenants: Tenants,
    node: Part,
    sender: Part,
    process: u32,
    admin: Client,
    watcher: Watcher,
    progress: Progress,
    begun: HashMap<u64, u64>,
    draws: Vec<Draw>,
    drawn: usize,
    sent: u64,
}

impl Run {
    async fn start(
        plan: Plan,
        tenants: Tenants,
        server: &PostgresUrl,
        log: &std::path::Path,
        progress: Progress,
    ) -> Result<Self> {
        progress.tell("starting the fleet");
        let node = Part::start("node", &tenants.list, log)?;
        let sender = Part::start("sender", &tenants.list, &log.with_extension("sender"))?;
        let process = node.id()?;
        let watcher = Watcher::start(process, connect(server).await?);
        let admin = connect(server).await?;
        let (begun, draws) = (HashMap::new(), Vec::new());
        Ok(Self {
            plan,
            tenants,
            node,
            sender,
            process,
            admin,
            watcher,
            progress,
            begun,
            draws,
            drawn: 0,
            sent: 0,
        })
    }

    async fn whole(mut self, made_in: f64) -> Result<Findings> {
        let seen_to_in = self.until_all_are_seen_to().await?;
        let seen_to_cpu = Usage::of(self.process)?.cpu;
        self.progress.tell(&format!("all were seen to after {seen_to_in:.1} s; letting them come to rest"));
        tokio::time::sleep(self.plan.settle).await;
        self.progress.tell("measuring with nothing to do");
        let idle = self.idle().await?;
        let (before, began) = (Usage::of(self.process)?, Instant::now());
        for window in 0..self.plan.pairs * 2 {
            self.window(window).await?;
        }
        let after = Usage::of(self.process)?;
        let busy_cpu = (after.cpu - before.cpu) / began.elapsed().as_secs_f64();
        self.progress.tell("waiting for the last messages");
        self.until_all_are_begun().await?;
        let busy = self.watcher.take();
        let report = self.node.report().await?;
        let peak_rss = Usage::of(self.process)?.peak_rss;
        self.progress.tell("stopping");
        self.sender.stop().await.context("the sender")?;
        let stopped_in = self.node.stop().await.context("the node")?.as_secs_f64();
        let samples = Samples::of(&self.draws, &self.begun);
        let (budget, peak) = (report.budget, report.peak);
        let plan = self.plan;
        Ok(Findings {
            plan,
            made_in,
            seen_to_in,
            seen_to_cpu,
            idle,
            busy,
            busy_cpu,
            peak_rss,
            budget,
            peak,
            stopped_in,
            samples,
        })
    }

    /// Each database is worked on once at the start, for its chores. Waits until all have been; how long that took.
    async fn until_all_are_seen_to(&mut self) -> Result<f64> {
        let began = Instant::now();
        let mut told = began;
        loop {
            let report = self.node.report().await?;
            if report.waiting == 0 && report.warm == 0 && report.looks_sqlite > 0 {
                anyhow::ensure!(report.failing == 0, "{} databases fail from the start", report.failing);
                return Ok(began.elapsed().as_secs_f64());
            }
            anyhow::ensure!(began.elapsed() < FIRST, "{} databases still wait", report.waiting);
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                self.progress.tell(&format!("{} wait, {} are warm", report.waiting, report.warm));
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    async fn idle(&mut self) -> Result<Idle> {
        self.watcher.take();
        let (reported, served, used, began) =
            (self.node.report().await?, self.served().await?, Usage::of(self.process)?, Instant::now());
        tokio::time::sleep(self.plan.idle).await;
        let seconds = began.elapsed().as_secs_f64();
        let (then_reported, then_served, then_used) =
            (self.node.report().await?, self.served().await?, Usage::of(self.process)?);
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        Ok(Idle {
            transactions: rate(served.0, then_served.0),
            sessions: rate(served.1, then_served.1),
            looks_sqlite: rate(reported.looks_sqlite, then_reported.looks_sqlite),
            looks_postgres: rate(reported.looks_postgres, then_reported.looks_postgres),
            cpu: (then_used.cpu - used.cpu) / seconds,
            rss: then_used.rss,
            most: self.watcher.take(),
        })
    }

    /// Transactions and sessions that the server has counted in the fleet's databases.
    async fn served(&self) -> Result<(u64, u64)> {
        let sql = "select sum(xact_commit + xact_rollback)::bigint, sum(sessions)::bigint
                   from pg_stat_database where starts_with(datname, $1)";
        let row = self.admin.query_one(sql, &[&PREFIX]).await?;
        Ok((row.get::<_, i64>(0) as u64, row.get::<_, i64>(1) as u64))
    }

    /// One window: some databases are busy, and in every other window ten others are down. Half of those get a message just before, so that
    /// they are at work when it happens, and all of them get calls while they are down.
    async fn window(&mut self, window: usize) -> Result<()> {
        let down = window % 2 == 1;
        let group = std::mem::take(&mut self.tenants.groups[window]);
        let ids: Vec<String> = group.iter().map(|tenant| tenant.id.clone()).collect();
        self.progress.tell(&format!(
            "window {} of {}: {}",
            window + 1,
            self.plan.pairs * 2,
            if down { "ten are down" } else { "all are well" }
        ));
        // Every other one: there are two of a kind.
        let at_work = ids.iter().step_by(2).cloned().collect();
        self.node.ask(&Order::Touch(at_work), Duration::ZERO).await?;
        let afflictions = if down { afflict(&group, &self.admin).await? } else { Vec::new() };
        for _ in 0..self.plan.draws {
            let aside = if down { ids.clone() } else { Vec::new() };
            self.draw(window, down, aside).await?;
        }
        let failing = self.take_report().await?;
        if down {
            self.progress.tell(&format!("         {failing} were known to be down"));
        }
        for affliction in afflictions {
            affliction.end(&self.admin).await?;
        }
        Ok(())
    }

    /// Makes others busy for a while.
    async fn draw(&mut self, window: usize, down: bool, aside: Vec<String>) -> Result<()> {
        let (mut same, mut other) = (Vec::new(), Vec::new());
        for from in [&self.tenants.files, &self.tenants.databases] {
            // Of what the plan has, not of what is left for this.
            let all = if from[0].is_file() { self.plan.tenants } else { self.plan.databases };
            let count = Plan::busy(all);
            for at in 0..count {
                // A large step, so that they are not neighbours; and another one each time until all were there.
                let tenant = &from[(self.drawn * count + at) * 101 % from.len()];
                if at % 2 == 0 { same.push(tenant.clone()) } else { other.push(tenant.clone()) }
            }
        }
        self.drawn += 1;
        let (same_load, other_load) = (self.load(&same, aside), self.load(&other, Vec::new()));
        let takes = self.plan.draw;
        let (same_order, other_order) = (Order::Send(same_load), Order::Send(other_load));
        let (same_shots, other_shots) =
            tokio::try_join!(self.node.send(&same_order, takes), self.sender.send(&other_order, takes))?;
        for (by, tenants, shots) in
            [(By::SameProcess, same, same_shots), (By::OtherProcess, other, other_shots)]
        {
            let files = tenants.iter().map(Tenant::is_file).collect();
            self.draws.push(Draw { window, down, by, files, shots });
        }
        Ok(())
    }

    fn load(&mut self, to: &[Tenant], aside: Vec<String>) -> Load {
        let first = self.sent;
        // More than there will be.
        self.sent += 1_000_000;
        let to = to.iter().map(|tenant| tenant.id.clone()).collect();
        Load { first, to, per_second: self.plan.per_second, seconds: self.plan.draw.as_secs_f64(), aside }
    }

    /// Takes over what has begun; how many databases fail.
    async fn take_report(&mut self) -> Result<usize> {
        let report = self.node.report().await?;
        for (number, at) in report.begun {
            let begun = self.begun.entry(number).or_insert(at);
            *begun = at.min(*begun);
        }
        Ok(report.failing)
    }

    async fn until_all_are_begun(&mut self) -> Result<()> {
        let began = Instant::now();
        loop {
            self.take_report().await?;
            if Samples::of(&self.draws, &self.begun).missing == 0 || began.elapsed() > LAST {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}
