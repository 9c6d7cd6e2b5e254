//! Taking due work. The writer's transaction has the database to itself (`BEGIN IMMEDIATE`), so what is looked at here can't
//! change underneath, in this process or in another.
//!
//! Every candidate that a look brings up is claimed, failed or parked, and so is no candidate any more. That is why the
//! loop ends, and why an empty claim means that nothing was ready.

use std::cmp::Reverse;

use mainstay_core::join::{Counted, Step};
use mainstay_core::queue::{ClaimBatch, ClaimHandle, ClaimRequest, Claimed, FailureReason, Rejected};
use mainstay_core::{MessageId, WorkItemId};
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use crate::error::Fault;
use crate::joins::Counting;
use crate::statements::Statements;
use crate::value::{
    headers_at, lease_end, maybe_moment_at, maybe_text_at, moment, moment_at, text_at, uuid_at,
};

use super::settle::{Ending, retire};

/// Claims within the caller's transaction. Also tells what the end of rejected messages meant for joins.
pub(crate) fn claim(
    connection: &Connection,
    sql: &Statements,
    request: &ClaimRequest,
) -> Result<(ClaimBatch, Vec<Counted>), Fault> {
    claim_with(connection, sql, request, &sql.claim_take)
}

/// The same without the payloads, which are empty texts here.
pub(super) fn claim_bare(
    connection: &Connection,
    sql: &Statements,
    request: &ClaimRequest,
) -> Result<ClaimBatch, Fault> {
    Ok(claim_with(connection, sql, request, &sql.forward_take)?.0)
}

fn claim_with(
    connection: &Connection,
    sql: &Statements,
    request: &ClaimRequest,
    take: &str,
) -> Result<(ClaimBatch, Vec<Counted>), Fault> {
    let now = sql.now(connection)?;
    let mut levels = connection.prepare_cached(&sql.claim_levels)?;
    let levels = levels.query_map([now], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?;
    let mut round = Round {
        connection,
        sql,
        request,
        take,
        now,
        locked_until: lease_end(now, request.lease),
        topics: Topics::new(&request.only_topics, &request.except_topics),
        room: request.batch as usize,
        passed: 0,
        claimed: Vec::new(),
        rejected: Vec::new(),
    };
    for (level, quota) in visits(&levels, request.batch as usize, lucky(levels.len())) {
        round.take(level, quota)?;
    }
    // Shares of lower levels were taken first; the most urgent still come first in the answer.
    round.claimed.sort_by_key(|(seq, item)| (Reverse(item.priority), item.due_at, *seq));
    let items = round.claimed.into_iter().map(|(_, item)| item).collect();
    let mut counted = Vec::new();
    if !round.rejected.is_empty() {
        let mut counting = Counting::begin(connection, sql, now)?;
        for rejected in &round.rejected {
            counting.ended(rejected.id, Step::Failed)?;
        }
        counted = counting.counted()?;
    }
    Ok((ClaimBatch { items, rejected: round.rejected }, counted))
}

/// Which levels to visit, and how much each visit may take. Every lower level first takes a tenth, all of them at most half
/// of the batch, and then the highest goes first. Where the batch is too small to share, one claim in ten starts at
/// a random level instead, so none waits for ever.
fn visits(levels: &[i64], batch: usize, lucky: Option<usize>) -> Vec<(i64, usize)> {
    let lower = levels.get(1..).unwrap_or_default();
    let share = match lower.len() {
        0 => 0,
        count => (batch / 10).max(1).min(batch / 2 / count),
    };
    let mut visits = Vec::new();
    if share > 0 {
        visits.extend(lower.iter().map(|level| (*level, share)));
    } else if let Some(level) = lucky.and_then(|place| levels.get(place)) {
        visits.push((*level, batch));
    }
    visits.extend(levels.iter().map(|level| (*level, batch)));
    visits
}

/// In one of ten cases, a random place.
fn lucky(levels: usize) -> Option<usize> {
    let random = Uuid::new_v4();
    let [first, second, ..] = random.as_bytes();
    (first % 10 == 0 && levels > 0).then(|| usize::from(*second) % levels)
}

/// Topics as the statements take them: none means no restriction.
#[derive(Debug, Clone)]
pub(crate) struct Topics {
    pub(crate) only: Option<String>,
    pub(crate) except: Option<String>,
}

impl Topics {
    pub(crate) fn new(only: &[String], except: &[String]) -> Self {
        Self { only: json_list(only), except: json_list(except) }
    }
}

fn json_list(topics: &[String]) -> Option<String> {
    // A list of texts always has a JSON form, so `ok()` hides no error.
    if topics.is_empty() { None } else { serde_json::to_string(topics).ok() }
}

struct Candidate {
    seq: i64,
    verdict: i64,
}

struct Round<'a> {
    connection: &'a Connection,
    sql: &'a Statements,
    request: &'a ClaimRequest,
    /// The statement that takes one.
    take: &'a str,
    now: i64,
    locked_until: i64,
    topics: Topics,
    room: usize,
    /// Candidates that were not claimed, so far.
    passed: usize,
    claimed: Vec<(i64, Claimed)>,
    rejected: Vec<Rejected>,
}

impl Round<'_> {
    /// Takes up to `quota` from one level.
    fn take(&mut self, level: i64, quota: usize) -> Result<(), Fault> {
        let mut want = quota.min(self.room);
        while want > 0 {
            let candidates = self.candidates(level, want)?;
            if candidates.is_empty() || self.has_looked_enough() {
                return Ok(());
            }
            let found = candidates.len();
            let before = self.claimed.len();
            for candidate in candidates {
                match candidate.verdict {
                    0 => {
                        self.claim(candidate.seq)?;
                        want -= 1;
                        self.room -= 1;
                    }
                    1 => self.reject(candidate.seq, FailureReason::Expired)?,
                    2 => self.reject(candidate.seq, FailureReason::DeliveryLimit)?,
                    _ => self.park(candidate.seq)?,
                }
            }
            self.passed += found - (self.claimed.len() - before);
        }
        Ok(())
    }

    /// With something to show, a long row of messages that can't be had must not keep the caller waiting; and never without
    /// end, because nobody else can write meanwhile.
    fn has_looked_enough(&self) -> bool {
        let has_something = !self.claimed.is_empty() || !self.rejected.is_empty();
        let patience = if has_something { 2_000 } else { 20_000 };
        self.passed > patience + 4 * self.request.batch as usize
    }

    fn candidates(&self, level: i64, limit: usize) -> Result<Vec<Candidate>, Fault> {
        let mut statement = self.connection.prepare_cached(&self.sql.claim_candidates)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = statement.query_map(
            params![
                self.now,
                level,
                self.topics.only,
                self.topics.except,
                self.request.delivery_limit,
                limit
            ],
            |row| Ok(Candidate { seq: row.get(0)?, verdict: row.get(2)? }),
        )?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    fn claim(&mut self, seq: i64) -> Result<(), Fault> {
        let owner = self.request.owner.as_uuid();
        let item = self
            .connection
            .prepare_cached(self.take)?
            .query_row(params![seq, owner.as_bytes(), self.locked_until], |row| self.claimed_from(row))?;
        if item.ordering_key.is_some() {
            self.connection.prepare_cached(&self.sql.claim_fence)?.execute([seq])?;
        }
        self.claimed.push((seq, item));
        Ok(())
    }

    fn claimed_from(&self, row: &Row<'_>) -> rusqlite::Result<Claimed> {
        let handle = ClaimHandle::new(WorkItemId::from_uuid(uuid_at(row, 0)?), row.get(1)?);
        let message = MessageId::from_uuid(uuid_at(row, 2)?);
        let (topic, payload, attempt) = (text_at(row, 3)?, text_at(row, 4)?, row.get(5)?);
        let (now, until) = (moment(self.now), moment(self.locked_until));
        let mut item = Claimed::new(handle, message, topic, payload, attempt, now, until);
        item.correlation_id = maybe_text_at(row, 6)?;
        item.created_at = moment_at(row, 7)?;
        item.due_at = moment_at(row, 8)?;
        item.expires_at = maybe_moment_at(row, 9)?;
        item.last_error = maybe_text_at(row, 10)?;
        item.priority = row.get(11)?;
        item.ordering_key = maybe_text_at(row, 12)?;
        item.headers = headers_at(row, 13)?;
        Ok(item)
    }

    fn park(&self, seq: i64) -> Result<(), Fault> {
        self.connection.prepare_cached(&self.sql.claim_park)?.execute([seq])?;
        Ok(())
    }

    fn reject(&mut self, seq: i64, reason: FailureReason) -> Result<(), Fault> {
        let facts = |row: &Row<'_>| Ok((uuid_at(row, 0)?, text_at(row, 1)?, maybe_moment_at(row, 2)?));
        let (id, topic, expiry) =
            self.connection.prepare_cached(&self.sql.claim_rejected)?.query_row([seq], facts)?;
        let error = match (reason, expiry) {
            (FailureReason::Expired, Some(expiry)) => format!("expired at {expiry}"),
            _ => format!("delivery limit of {} reached", self.request.delivery_limit),
        };
        let ending = Ending::rejected(reason, &error);
        retire(self.connection, self.sql, seq, self.now, &ending)?;
        self.rejected.push(Rejected { id: WorkItemId::from_uuid(id), topic, reason });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_level_is_one_visit() {
        assert_eq!(visits(&[0], 50, None), [(0, 50)]);
        assert_eq!(visits(&[], 50, None), []);
    }

    #[test]
    fn lower_levels_have_a_share_of_at_most_half() {
        assert_eq!(visits(&[9, 0], 50, None)[0], (0, 5));
        let levels: Vec<i64> = (-9..=9).rev().collect();
        let shared: usize =
            visits(&levels, 100, None).iter().filter(|(_, quota)| *quota < 100).map(|v| v.1).sum();
        assert!((18..=50).contains(&shared), "{shared}");
    }

    #[test]
    fn a_batch_too_small_to_share_sometimes_starts_elsewhere() {
        assert_eq!(visits(&[9, 0], 1, None)[0], (9, 1));
        assert_eq!(visits(&[9, 5, 0], 1, Some(1))[0], (5, 1));
    }
}
