//! Puts a [`Mainstay`] together.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::audit::{Audit, AuditRetention};
use crate::bell::Bell;
use crate::error::{Error, Result};
use crate::fanout::{Fanout, KnownFanouts};
use crate::health::{FailedKept, Health, Watchdog, WatchdogOptions};
use crate::inbox::Inbox;
use crate::job::{JobDefinition, Jobs};
use crate::join::Joins;
use crate::lease::{LeaseGauges, LeaseOptions, Leases};
use crate::operation::{OperationOptions, Operations};
use crate::outbox::Outbox;
use crate::queue::slots::Slots;
use crate::renewing::call_limit;
use crate::store::{Provider, Queue};
use crate::timer::Timers;

use super::fanout::FanoutBuilder;
use super::jobs::JobsBuilder;
use super::joins::JoinsBuilder;
use super::mainstay::{Inner, Mainstay};
use super::queue::Ends;
use super::{
    AuditSweep, Gauges, InboxBuilder, InboxSweep, OperationSweep, OutboxBuilder, RetentionSweep, Service,
    StalledOperations, SweepClock, TimersBuilder,
};

/// What hands received messages to their handlers is called.
pub(crate) const INBOX_DISPATCHER: &str = "inbox dispatcher";

/// Puts a [`Mainstay`] together. Mistakes are collected and told by [`MainstayBuilder::build`].
#[must_use = "nothing happens until it is built"]
pub struct MainstayBuilder {
    provider: Arc<dyn Provider>,
    outbox: OutboxBuilder,
    inbox: InboxBuilder,
    leases: LeaseOptions,
    timers: Option<TimersBuilder>,
    jobs: JobsBuilder,
    joins: Option<JoinsBuilder>,
    fanouts: Vec<FanoutBuilder>,
    coordinate_fanouts: bool,
    audit: AuditRetention,
    operations: Option<OperationOptions>,
    watchdog: Option<WatchdogOptions>,
    deploy_schema: bool,
    bell: Bell,
    slots: Slots,
}

impl MainstayBuilder {
    pub(super) fn new(provider: Arc<dyn Provider>) -> Self {
        Self {
            provider,
            outbox: OutboxBuilder::default(),
            inbox: InboxBuilder::default(),
            leases: LeaseOptions::default(),
            timers: None,
            jobs: JobsBuilder::default(),
            joins: None,
            fanouts: Vec::new(),
            coordinate_fanouts: false,
            audit: AuditRetention::default(),
            operations: None,
            watchdog: None,
            deploy_schema: false,
            bell: Bell::default(),
            slots: Slots::default(),
        }
    }

    /// Sets up the outbox: handlers, policies, options.
    pub fn outbox(mut self, set_up: impl FnOnce(OutboxBuilder) -> OutboxBuilder) -> Self {
        self.outbox = set_up(self.outbox);
        self
    }

    /// Sets up the inbox: handlers, policies, options.
    pub fn inbox(mut self, set_up: impl FnOnce(InboxBuilder) -> InboxBuilder) -> Self {
        self.inbox = set_up(self.inbox);
        self
    }

    /// How leases are acquired and kept, unless told otherwise. Defaults to those of [`LeaseOptions`].
    pub fn leases(mut self, options: LeaseOptions) -> Self {
        self.leases = options;
        self
    }

    /// Fires timers in this process. Without it timers can be scheduled, but it takes another process to fire them.
    pub fn timers(mut self, set_up: impl FnOnce(TimersBuilder) -> TimersBuilder) -> Self {
        self.timers = Some(set_up(self.timers.unwrap_or_default()));
        self
    }

    /// Registers a job at the start, or changes the one of this name, and makes this process a scheduler. Its runs are messages
    /// of the topic, which is the job's name unless told otherwise.
    pub fn job(
        mut self,
        name: impl Into<String>,
        cron: impl Into<String>,
        set_up: impl FnOnce(JobDefinition) -> JobDefinition,
    ) -> Self {
        let name = name.into();
        self.jobs = self.jobs.define(set_up(JobDefinition::new(name.clone(), name, cron)));
        self
    }

    /// Makes this process a scheduler, also of jobs that others have registered, and sets it up.
    pub fn jobs(mut self, set_up: impl FnOnce(JobsBuilder) -> JobsBuilder) -> Self {
        self.jobs = set_up(self.jobs.wanted());
        self
    }

    /// Keeps the deadlines of joins in this process, and handles messages of the topic `join.wait`. Without it joins can be started, and
    /// end when their steps have; but it takes another process to end them at their deadlines.
    pub fn joins(mut self, set_up: impl FnOnce(JoinsBuilder) -> JoinsBuilder) -> Self {
        self.joins = Some(set_up(self.joins.unwrap_or_default()));
        self
    }

    /// Sets up the fan-outs of a topic: registers them at the start, makes this process one of their coordinators, and handles their
    /// slices.
    pub fn fanout(
        mut self,
        topic: impl Into<String>,
        set_up: impl FnOnce(FanoutBuilder) -> FanoutBuilder,
    ) -> Self {
        self.fanouts.push(set_up(FanoutBuilder::new(topic.into())));
        self
    }

    /// Makes this process one of the coordinators of every fan-out that is in the database, with the shards that it knows, whoever has registered
    /// it and whenever. Defaults to off. Not beside an application that coordinates them with a planner of its own: whoever holds a fan-out's lease
    /// plans it.
    pub fn coordinate_fanouts(mut self, coordinate: bool) -> Self {
        self.coordinate_fanouts = coordinate;
        self
    }

    /// How long records of the audit trail are kept. Defaults to those of [`AuditRetention`]: for ever.
    pub fn audit(mut self, retention: AuditRetention) -> Self {
        self.audit = retention;
        self
    }

    /// How operations are kept alive, given up and forgotten, and does the latter two in this process. Without it operations can be
    /// started, with the default options, but it takes another process to mark those that are stalled and to forget those that ended.
    pub fn operations(mut self, options: OperationOptions) -> Self {
        self.operations = Some(options);
        self
    }

    /// Looks now and then whether this process's database is well, and says what is not in the log and in the metrics. Defaults to off: it
    /// reads a little, also while there is nothing to do.
    pub fn watchdog(mut self, options: WatchdogOptions) -> Self {
        self.watchdog = Some(options);
        self
    }

    /// Brings the schema up to date at the start. Defaults to off: then a missing or old schema is an error.
    pub fn deploy_schema(mut self, deploy: bool) -> Self {
        self.deploy_schema = deploy;
        self
    }

    /// As one of many: rings when its clients add work, and shares how many handlers run at once.
    pub(crate) fn among_others(mut self, bell: Bell, slots: Slots) -> Self {
        (self.bell, self.slots) = (bell, slots);
        self
    }

    /// Checks everything and puts it together. Nothing runs yet.
    pub fn build(mut self) -> Result<Mainstay> {
        let (limit, bell) = (self.outbox.payload_limit, self.bell);
        let outbox = Outbox::new(self.provider.outbox()).with_payload_limit(limit).with_bell(bell.clone());
        let inbox = Inbox::new(self.provider.as_ref()).with_payload_limit(self.inbox.payload_limit);
        let inbox = inbox.with_bell(bell.clone());
        self.leases.validate()?;
        let leases = Leases::new(self.provider.leases()).with_options(self.leases);
        let jobs = Jobs::new(self.provider.jobs()).with_payload_limit(limit).with_bell(bell.clone());
        let timers = Timers::new(self.provider.as_ref()).with_payload_limit(limit).with_bell(bell.clone());
        let joins = Joins::new(self.provider.joins()).with_payload_limit(limit).with_bell(bell.clone());
        if let Some(builder) = &self.joins {
            builder.register(&joins, &mut self.outbox.registry)?;
        }

        let fanout = Fanout::new(self.provider.as_ref()).with_leases(leases.clone()).with_bell(bell);
        let (mut coordinators, mut fanouts) = (Vec::new(), Vec::new());
        for builder in self.fanouts {
            let (outbox, registrations) = builder.build(&fanout, self.outbox, &mut coordinators)?;
            self.outbox = outbox;
            fanouts.extend(registrations);
        }
        let known_fanouts = self.coordinate_fanouts.then(|| Arc::new(KnownFanouts::new(fanout.clone())));
        let audit = Audit::new(self.provider.audit());
        let options = self.operations.unwrap_or_default();
        options.validate()?;
        let operations = Operations::new(self.provider.operations()).with_options(options);

        let failed_kept = FailedKept {
            outbox: self.outbox.retention.and_then(|retention| retention.failed),
            inbox: self.inbox.retention.and_then(|retention| retention.dead),
        };
        let clocks = SweepClock::new(&self.provider);
        let clock = |what: &'static str| clocks.of(what);
        // What these services make is late by as much as their calls hang.
        let limit = call_limit(self.outbox.options.lease);
        let lease_gauges = positive("gauge interval", self.outbox.gauge_interval)?;
        let ends = |name, queue: &Outbox| {
            let (queue, outbox, jobs) = (queue.clone(), outbox.clone(), jobs.clone());
            Ends { name, queue, outbox, jobs, slots: self.slots.clone() }
        };
        let of_outbox = self.outbox.services(
            ends("dispatcher", &outbox),
            |gauges| gauges,
            |retention| {
                retention.validate()?;
                Ok(Arc::new(RetentionSweep::new(outbox.clone(), retention, clock("outbox")))
                    as Arc<dyn Service>)
            },
        )?;
        let of_inbox =
            self.inbox.services(ends(INBOX_DISPATCHER, inbox.queue()), Gauges::of_inbox, |retention| {
                retention.validate()?;
                Ok(Arc::new(InboxSweep::new(inbox.clone(), retention, clock("inbox"))) as Arc<dyn Service>)
            })?;
        let mut services = of_outbox.chores;
        services.extend(of_inbox.chores);
        if let Some(interval) = lease_gauges {
            services.push(Arc::new(LeaseGauges::new(leases.clone(), interval)));
        }
        self.audit.validate()?;
        if self.audit.age.is_some() {
            services.push(Arc::new(AuditSweep::new(audit.clone(), self.audit, clock("audit"))));
        }
        if let Some(options) = self.operations {
            if options.retention.ended.is_some() {
                let clock = clock("operations");
                services.push(Arc::new(OperationSweep::new(operations.clone(), options.retention, clock)));
            }
            if let Some(silence) = options.stalled_after {
                services.push(Arc::new(StalledOperations::new(operations.clone(), silence)));
            }
        }
        if let Some(options) = self.watchdog {
            options.validate()?;
            let health = Health::new(Arc::clone(&self.provider)).keeping(failed_kept);
            services.push(Arc::new(Watchdog::new(health.with_options(options.health)?, options)));
        }
        let runs = Outbox::new(self.provider.queue(Queue::JobRuns));
        let before = services.len();
        let definitions = self.jobs.build(&jobs, &runs, clock, limit, &mut services)?;
        if let Some(builder) = self.timers {
            services.extend(builder.services(&timers, clock, limit)?);
        }
        let schedules = services.len() > before;
        let ends_joins = self.joins.is_some();
        if let Some(builder) = self.joins {
            services.extend(builder.services(&joins, clock, limit)?);
        }
        services.extend(coordinators.iter().map(|one| Arc::clone(one) as Arc<dyn Service>));
        services.extend(known_fanouts.iter().map(|known| Arc::clone(known) as Arc<dyn Service>));
        Ok(Mainstay::new(Inner {
            provider: self.provider,
            outbox,
            inbox,
            leases,
            timers,
            jobs,
            joins,
            audit,
            operations,
            definitions,
            fanout,
            fanouts,
            registered: AtomicBool::new(false),
            outbox_dispatcher: of_outbox.dispatcher,
            inbox_dispatcher: of_inbox.dispatcher,
            services,
            schedules,
            ends_joins,
            coordinators,
            known_fanouts,
            deploy_schema: self.deploy_schema,
            startup: Arc::default(),
            failed_kept,
        }))
    }
}

/// Refuses an interval of zero.
pub(super) fn positive(field: &'static str, interval: Option<Duration>) -> Result<Option<Duration>> {
    match interval {
        Some(interval) if interval.is_zero() => {
            Err(Error::invalid("mainstay.build", field, "must be above zero; none switches it off"))
        }
        other => Ok(other),
    }
}
