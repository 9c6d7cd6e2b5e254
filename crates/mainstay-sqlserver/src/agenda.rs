//! What there is to do, and when: one look over all queues, jobs, joins and fan-outs, in one round trip.

use std::time::Duration;

use mainstay_core::Result;
use mainstay_core::store::{Agenda, Names, Step};

use crate::parameters::{Call, named};
use crate::pool::Connections;
use crate::rows::{self, Reader};

const AGENDA: &str = "sqlserver.agenda";

/// Looks at what there is to do.
pub(crate) struct SqlServerAgenda {
    connections: Connections,
    step: Step,
}

impl SqlServerAgenda {
    pub(crate) fn new(connections: Connections, names: &Names) -> Self {
        Self { connections, step: Call::new(&named(names, names.outbox(), "Agenda")).step() }
    }

    pub(crate) async fn look(&self) -> Result<Agenda> {
        let rows = self.connections.run(AGENDA, &self.step).await?;
        let next = |place: usize| -> Result<Option<Duration>> {
            let Some(row) = rows.get(place) else { return Ok(None) };
            Ok(Reader::new(AGENDA, row).maybe_integer("due_in")?.map(rows::micros))
        };
        let mut agenda = Agenda::empty();
        (agenda.outbox, agenda.inbox) = (next(0)?, next(1)?);
        agenda.scheduled = [next(2)?, next(3)?, next(4)?].into_iter().flatten().min();
        agenda.joins = next(5)?;
        agenda.fanout_changes = rows::only(AGENDA, &rows)?.integer("fanout_changes")?;
        Ok(agenda)
    }
}
