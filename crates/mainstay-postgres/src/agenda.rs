//! What there is to do, and when: one look over all queues, jobs, joins and fan-outs, in one statement.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::Result;
use mainstay_core::store::{Agenda, Names};

use crate::pool::Connections;
use crate::rows::{self, Reader};
use crate::statements::AgendaStatements;

const AGENDA: &str = "postgres.agenda";

/// Looks at what there is to do.
pub(crate) struct PostgresAgenda {
    connections: Connections,
    statements: Arc<AgendaStatements>,
}

impl PostgresAgenda {
    pub(crate) fn new(connections: Connections, names: &Names) -> Result<Self> {
        Ok(Self { connections, statements: AgendaStatements::shared(names)? })
    }

    pub(crate) async fn look(&self) -> Result<Agenda> {
        let rows = self.connections.query(AGENDA, &self.statements.agenda, &[]).await?;
        let mut agenda = Agenda::empty();
        let Some(row) = rows.first() else { return Ok(agenda) };
        let next = |column| -> Result<Option<Duration>> {
            Ok(Reader::new(AGENDA, row).get::<Option<f64>>(column)?.and_then(rows::seconds))
        };
        (agenda.outbox, agenda.inbox, agenda.scheduled, agenda.joins) =
            (next(0)?, next(1)?, next(2)?, next(3)?);
        agenda.fanout_changes = Reader::new(AGENDA, row).get(4)?;
        Ok(agenda)
    }
}
