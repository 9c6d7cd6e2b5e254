//! What timers have of their own. The rest is a queue's.

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::audit::Actor;
use mainstay_core::outbox::When;
use mainstay_core::store::{Names, Queue, TimerStore};
use mainstay_core::{Result, WorkItemId};

use crate::parameters::{Call, named};
use crate::pool::Connections;
use crate::rows;
use crate::waiting::Signals;

/// The timers in SQL Server.
pub(crate) struct SqlServerTimers {
    connections: Connections,
    names: Names,
    signals: Signals,
}

impl SqlServerTimers {
    pub(crate) fn new(connections: Connections, names: &Names, signals: Signals) -> Self {
        Self { connections, names: names.clone(), signals }
    }

    fn call(&self, verb: &str) -> Call {
        Call::new(&named(&self.names, &self.names.timers(), verb))
    }
}

#[async_trait]
impl TimerStore for SqlServerTimers {
    async fn reschedule(&self, id: WorkItemId, due: When, by: Option<&Actor>) -> Result<bool> {
        const RESCHEDULE: &str = "timers.reschedule";
        let call = self.call("Reschedule").id("Id", id.as_uuid());
        let call = match due {
            When::At(moment) => call.maybe_moment("DueAt", Some(moment)),
            When::In(delay) => call.seconds("DueInSeconds", delay),
        };
        let rows = self.connections.run(RESCHEDULE, &call.actor(by).step()).await?;
        let changed = rows::only(RESCHEDULE, &rows)?.flag("changed")?;
        if changed {
            self.signals.signal(Queue::Timers);
        }
        Ok(changed)
    }

    async fn next_event_time(&self) -> Result<Option<Timestamp>> {
        const NEXT: &str = "timers.next_event_time";
        let rows = self.connections.run(NEXT, &self.call("NextEventTime").step()).await?;
        rows::only(NEXT, &rows)?.maybe_moment("at")
    }
}
