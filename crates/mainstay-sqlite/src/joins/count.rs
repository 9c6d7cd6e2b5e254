//! What the end of messages means for joins. Part of whatever ends them, in its transaction.

use std::collections::BTreeMap;

use mainstay_core::join::{Counted, JoinState, Step};
use mainstay_core::{JoinId, WorkItemId};
use rusqlite::{Connection, params};
use uuid::Uuid;

use crate::error::Fault;
use crate::statements::Statements;
use crate::value::{maybe_text_at, uuid_at};

/// What one operation has counted so far.
pub(crate) struct Counting<'a> {
    connection: &'a Connection,
    sql: &'a Statements,
    now: i64,
    /// Whether there was a join that waits for something. While there is none, nothing is looked up.
    waiting: bool,
    /// Completed and failed steps, by join.
    joins: BTreeMap<Uuid, (u32, u32)>,
}

impl<'a> Counting<'a> {
    pub(crate) fn begin(connection: &'a Connection, sql: &'a Statements, now: i64) -> Result<Self, Fault> {
        let waiting = connection.prepare_cached(&sql.joins_waiting)?.query_row([], |row| row.get(0))?;
        let mut joins = BTreeMap::new();
        if waiting {
            let mut lapse = connection.prepare_cached(&sql.joins_lapse)?;
            for id in lapse.query_map([now], |row| uuid_at(row, 0))? {
                joins.insert(id?, (0, 0));
            }
        }
        Ok(Self { connection, sql, now, waiting, joins })
    }

    /// Whether the outbox may have got a message by this.
    pub(crate) fn may_wake(&self) -> bool {
        !self.joins.is_empty()
    }

    /// A message has ended.
    pub(crate) fn ended(&mut self, item: WorkItemId, step: Step) -> Result<(), Fault> {
        if !self.waiting {
            return Ok(());
        }
        let mut count = self.connection.prepare_cached(&self.sql.joins_count)?;
        let item = item.as_uuid();
        let arguments = params![item.as_bytes(), step.code(), self.now];
        for join in count.query_map(arguments, |row| uuid_at(row, 0))? {
            let (completed, failed) = self.joins.entry(join?).or_default();
            match step {
                Step::Completed => *completed += 1,
                Step::Failed => *failed += 1,
            }
        }
        Ok(())
    }

    /// What was counted, and how the joins stand since.
    pub(crate) fn counted(self) -> Result<Vec<Counted>, Fault> {
        let mut all = Vec::with_capacity(self.joins.len());
        for (join, (completed, failed)) in self.joins {
            let mut standing = self.connection.prepare_cached(&self.sql.joins_standing)?;
            let (state, reason) = standing
                .query_row([join.as_bytes()], |row| Ok((row.get::<_, i16>(0)?, maybe_text_at(row, 1)?)))?;
            let state = JoinState::from_code(state)?;
            let reason = reason.map(|text| text.parse()).transpose()?;
            all.push(Counted { join: JoinId::from_uuid(join), completed, failed, state, reason });
        }
        Ok(all)
    }
}
