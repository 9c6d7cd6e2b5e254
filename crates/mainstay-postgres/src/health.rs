//! What the health checks look at: each method is one statement that reads only.

use std::sync::Arc;

use async_trait::async_trait;
use mainstay_core::health::{LaneSeen, LeasesSeen, Patience, SEEN_AT_MOST, ScheduleSeen, WorkSeen};
use mainstay_core::store::{HealthStore, Names, Queue};
use mainstay_core::{Result, WorkItemId};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::pool::{Connections, Parameter};
use crate::rows::{self, Reader};
use crate::statements::HealthStatements;

/// Looks at a PostgreSQL database for signs of trouble.
pub(crate) struct PostgresHealth {
    connections: Connections,
    /// In the order of [`Queue::ALL`].
    statements: [Arc<HealthStatements>; 4],
}

impl PostgresHealth {
    pub(crate) fn new(connections: Connections, names: &Names) -> Result<Self> {
        let of = |queue| HealthStatements::shared(&names.of(queue));
        let [first, second, third, fourth] = Queue::ALL;
        Ok(Self { connections, statements: [of(first)?, of(second)?, of(third)?, of(fourth)?] })
    }
}

#[async_trait]
impl HealthStore for PostgresHealth {
    async fn work(&self, queue: Queue, patience: &Patience) -> Result<WorkSeen> {
        const WORK: &str = "health.work";
        let (overdue, stuck) = (patience.overdue.as_secs_f64(), patience.stuck.as_secs_f64());
        let most = SEEN_AT_MOST as i64;
        let parameters: [Parameter<'_>; 3] =
            [(&overdue, Type::FLOAT8), (&stuck, Type::FLOAT8), (&most, Type::INT8)];
        let sql = &self.statements[queue as usize].work;
        let rows = self.connections.look(WORK, sql, &parameters).await?;
        let mut seen = WorkSeen::default();
        let Some(row) = rows.first() else { return Ok(seen) };
        let row = Reader::new(WORK, row);
        (seen.overdue, seen.oldest_due) = (row.count(0)?, age(row, 1)?);
        (seen.stuck, seen.longest_lapsed) = (row.count(2)?, age(row, 3)?);
        (seen.idle, seen.busy) = (Some(row.count(4)?), row.count(5)?);
        seen.last_settled = age(row, 6)?;
        Ok(seen)
    }

    async fn schedule(&self, patience: &Patience) -> Result<ScheduleSeen> {
        const SCHEDULE: &str = "health.schedule";
        let (overdue, most) = (patience.overdue.as_secs_f64(), SEEN_AT_MOST as i64);
        let parameters: [Parameter<'_>; 2] = [(&overdue, Type::FLOAT8), (&most, Type::INT8)];
        let rows = self.connections.look(SCHEDULE, &self.statements[0].schedule, &parameters).await?;
        let mut seen = ScheduleSeen::default();
        let Some(row) = rows.first() else { return Ok(seen) };
        let row = Reader::new(SCHEDULE, row);
        (seen.jobs_overdue, seen.oldest_job) = (row.count(0)?, age(row, 1)?);
        (seen.jobs_in_trouble, seen.job_in_trouble) = (row.count(2)?, row.get(3)?);
        (seen.joins_overdue, seen.oldest_join) = (row.count(4)?, age(row, 5)?);
        Ok(seen)
    }

    async fn leases(&self, patience: &Patience) -> Result<LeasesSeen> {
        const LEASES: &str = "health.leases";
        let within = patience.lapsed_within.as_secs_f64();
        let parameters: [Parameter<'_>; 1] = [(&within, Type::FLOAT8)];
        let rows = self.connections.look(LEASES, &self.statements[0].leases, &parameters).await?;
        let mut seen = LeasesSeen::default();
        let Some(row) = rows.first() else { return Ok(seen) };
        let row = Reader::new(LEASES, row);
        (seen.held, seen.lapsed, seen.lapsed_before) = (row.count(0)?, row.count(1)?, row.count(2)?);
        seen.last_lapsed = row.get::<Option<String>>(3)?.zip(age(row, 4)?);
        Ok(seen)
    }

    async fn lane(&self, queue: Queue, id: WorkItemId) -> Result<LaneSeen> {
        const LANE: &str = "health.lane";
        let (id, most) = (id.as_uuid(), SEEN_AT_MOST as i64);
        let parameters: [Parameter<'_>; 2] = [(&id, Type::UUID), (&most, Type::INT8)];
        let rows = self.connections.look(LANE, &self.statements[queue as usize].lane, &parameters).await?;
        let mut seen = LaneSeen::default();
        let Some(row) = rows.first() else { return Ok(seen) };
        let row = Reader::new(LANE, row);
        let item = |column| {
            Ok::<_, mainstay_core::Error>(row.get::<Option<Uuid>>(column)?.map(WorkItemId::from_uuid))
        };
        (seen.held_by, seen.first, seen.ahead) = (item(0)?, item(1)?, row.count(2)?);
        Ok(seen)
    }
}

fn age(row: Reader<'_>, column: usize) -> Result<Option<std::time::Duration>> {
    Ok(row.get::<Option<f64>>(column)?.and_then(rows::seconds))
}
