//! What the health checks look at: each method is one call of one procedure that reads only.

use async_trait::async_trait;
use mainstay_core::health::{LaneSeen, LeasesSeen, Patience, SEEN_AT_MOST, ScheduleSeen, WorkSeen};
use mainstay_core::store::{HealthStore, Names, Queue};
use mainstay_core::{Result, WorkItemId};

use crate::parameters::{Call, named};
use crate::pool::Connections;
use crate::rows::{self, Reader};

/// Looks at a SQL Server database for signs of trouble.
pub(crate) struct SqlServerHealth {
    connections: Connections,
    names: Names,
}

impl SqlServerHealth {
    pub(crate) fn new(connections: Connections, names: &Names) -> Self {
        Self { connections, names: names.clone() }
    }

    fn on(&self, queue: Queue, verb: &str) -> Call {
        let names = self.names.of(queue);
        Call::new(&named(&names, &names.queue(), verb)).integer("MaxRows", SEEN_AT_MOST as i64)
    }
}

#[async_trait]
impl HealthStore for SqlServerHealth {
    async fn work(&self, queue: Queue, patience: &Patience) -> Result<WorkSeen> {
        const WORK: &str = "health.work";
        let call = self.on(queue, "Front").seconds("OverdueSeconds", patience.overdue);
        let rows = self.connections.run(WORK, &call.seconds("StuckSeconds", patience.stuck).step()).await?;
        let row = rows::only(WORK, &rows)?;
        let mut seen = WorkSeen::default();
        (seen.overdue, seen.oldest_due) = (row.count("overdue")?, age(row, "oldest_due")?);
        (seen.stuck, seen.longest_lapsed) = (row.count("stuck")?, age(row, "longest_lapsed")?);
        // Whoever waits leaves no trace.
        (seen.idle, seen.busy) = (None, row.count("busy")?);
        seen.last_settled = age(row, "last_settled")?;
        Ok(seen)
    }

    async fn schedule(&self, patience: &Patience) -> Result<ScheduleSeen> {
        const SCHEDULE: &str = "health.schedule";
        let call = Call::new(&named(&self.names, &self.names.jobs(), "Front"));
        let call = call.seconds("OverdueSeconds", patience.overdue).integer("MaxRows", SEEN_AT_MOST as i64);
        let rows = self.connections.run(SCHEDULE, &call.step()).await?;
        let row = rows::only(SCHEDULE, &rows)?;
        let mut seen = ScheduleSeen::default();
        (seen.jobs_overdue, seen.oldest_job) = (row.count("jobs_overdue")?, age(row, "oldest_job")?);
        (seen.jobs_in_trouble, seen.job_in_trouble) =
            (row.count("jobs_in_trouble")?, row.maybe_text("job_in_trouble")?);
        (seen.joins_overdue, seen.oldest_join) = (row.count("joins_overdue")?, age(row, "oldest_join")?);
        Ok(seen)
    }

    async fn leases(&self, patience: &Patience) -> Result<LeasesSeen> {
        const LEASES: &str = "health.leases";
        let call = Call::new(&named(&self.names, &self.names.lease(), "Front"));
        let call = call.seconds("WithinSeconds", patience.lapsed_within);
        let rows = self.connections.run(LEASES, &call.step()).await?;
        let row = rows::only(LEASES, &rows)?;
        let mut seen = LeasesSeen::default();
        (seen.held, seen.lapsed, seen.lapsed_before) =
            (row.count("held")?, row.count("lapsed")?, row.count("lapsed_before")?);
        seen.last_lapsed = row.maybe_text("last_lapsed")?.zip(age(row, "lapsed_for")?);
        Ok(seen)
    }

    async fn lane(&self, queue: Queue, id: WorkItemId) -> Result<LaneSeen> {
        const LANE: &str = "health.lane";
        let rows = self.connections.run(LANE, &self.on(queue, "Ahead").id("Id", id.as_uuid()).step()).await?;
        let mut seen = LaneSeen::default();
        let Some(row) = rows.first() else { return Ok(seen) };
        let row = Reader::new(LANE, row);
        let item = |label| row.maybe_id(label).map(|id| id.map(WorkItemId::from_uuid));
        (seen.held_by, seen.first, seen.ahead) = (item("held_by")?, item("first_item")?, row.count("ahead")?);
        Ok(seen)
    }
}

fn age(row: Reader<'_>, label: &str) -> Result<Option<std::time::Duration>> {
    Ok(row.maybe_integer(label)?.map(rows::micros))
}
