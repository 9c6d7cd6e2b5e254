//! What timers have of their own: each method is one call of one public SQL function.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::audit::Actor;
use mainstay_core::outbox::When;
use mainstay_core::store::{Names, TimerStore};
use mainstay_core::{Result, WorkItemId};
use tokio_postgres::types::Type;

use crate::moment::Moment;
use crate::pool::{Connections, Parameter};
use crate::rows;
use crate::statements::TimerStatements;

/// Timers in PostgreSQL.
pub(crate) struct PostgresTimers {
    connections: Connections,
    statements: Arc<TimerStatements>,
}

impl PostgresTimers {
    pub(crate) fn new(connections: Connections, names: &Names) -> Result<Self> {
        Ok(Self { connections, statements: TimerStatements::shared(names)? })
    }
}

#[async_trait]
impl TimerStore for PostgresTimers {
    async fn reschedule(&self, id: WorkItemId, due: When, by: Option<&Actor>) -> Result<bool> {
        const RESCHEDULE: &str = "timers.reschedule";
        let (at, within) = match due {
            When::At(moment) => (Some(Moment(moment)), None),
            When::In(delay) => (None, Some(delay.as_secs_f64())),
        };
        let id = id.as_uuid();
        let (by, about) = (by.map(Actor::as_str), by.and_then(Actor::correlation_id));
        let parameters: [Parameter<'_>; 5] = [
            (&id, Type::UUID),
            (&at, Type::TIMESTAMPTZ),
            (&within, Type::FLOAT8),
            (&by, Type::TEXT),
            (&about, Type::TEXT),
        ];
        rows::value(
            RESCHEDULE,
            &self.connections.query(RESCHEDULE, &self.statements.reschedule, &parameters).await?,
        )
    }

    async fn next_event_time(&self) -> Result<Option<Timestamp>> {
        const NEXT: &str = "timers.next_event_time";
        let rows = self.connections.query(NEXT, &self.statements.next_event_time, &[]).await?;
        Ok(rows::value::<Option<Moment>>(NEXT, &rows)?.map(|moment| moment.0))
    }
}
