//! What has to be in a database after a power loss, by the marks before it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use anyhow::{Context, Result, bail};
use rusqlite::Connection;

use crate::verdict::Rule;

/// A settled message that is done.
const DONE: i64 = 2;
/// One that waits, or is being handled.
const OPEN: std::ops::RangeInclusive<i64> = 0..=1;

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Deploy,
    Enqueue,
    Claim,
    Lease,
    Settle,
    Handle,
    Discard,
}

#[derive(Debug)]
struct Asked {
    what: What,
    labels: Vec<String>,
    /// With the labels of the answer.
    answered: Option<Vec<String>>,
}

/// The calls so far.
#[derive(Debug, Default)]
pub(super) struct Promises {
    calls: BTreeMap<u64, Asked>,
    answered: u64,
}

impl Promises {
    /// Takes in a line of the file of marks.
    pub(super) fn mark(&mut self, line: &str) -> Result<()> {
        let mut words = line.split(' ');
        let number = words.next().context("a mark is empty")?.parse()?;
        let verb = words.next();
        let what = if verb == Some("ask") { words.next() } else { None };
        let labels = words.map(str::to_owned).collect();
        let what = match (verb, what) {
            (Some("ok"), _) => {
                let call = self.calls.get_mut(&number).context("a call was answered that was not made")?;
                call.answered = Some(labels);
                self.answered += 1;
                return Ok(());
            }
            (_, Some("deploy")) => What::Deploy,
            (_, Some("enqueue")) => What::Enqueue,
            (_, Some("claim")) => What::Claim,
            (_, Some("lease")) => What::Lease,
            (_, Some("settle")) => What::Settle,
            (_, Some("handle")) => What::Handle,
            (_, Some("discard")) => What::Discard,
            _ => bail!("no such mark: {line}"),
        };
        self.calls.insert(number, Asked { what, labels, answered: None });
        Ok(())
    }

    /// Calls that were answered.
    pub(super) fn answered(&self) -> u64 {
        self.answered
    }

    /// Whether the tables must be there.
    pub(super) fn is_deployed(&self) -> bool {
        self.calls.values().any(|call| call.what == What::Deploy && call.answered.is_some())
    }

    /// Compares the calls with what was found.
    pub(super) fn broken_by(&self, found: &Found) -> Vec<(Rule, String)> {
        let mut broken = Vec::new();
        // Asked for, whether it was answered or not.
        let (mut enqueued, mut ended, mut noted) = (HashSet::new(), HashSet::new(), HashSet::new());
        for (number, call) in &self.calls {
            let labels = &call.labels;
            let say = |text: &str| format!("call {number}: {text}");
            match call.what {
                What::Deploy => {}
                What::Enqueue => {
                    enqueued.extend(labels);
                    let there = labels.iter().filter(|label| found.messages.contains_key(*label)).count();
                    if call.answered.is_some() && there < labels.len() {
                        broken.push((Rule::NothingLost, say("messages of an answered enqueue are missing")));
                    } else if there > 0 && there < labels.len() {
                        broken
                            .push((Rule::Effects, say("some messages of one enqueue are there, others not")));
                    }
                }
                What::Claim => {
                    let claims = numbers(call);
                    if claims.iter().any(|(label, number)| found.generations.get(*label) < Some(number)) {
                        broken.push((Rule::OneClaim, say("an answered claim's generation is lost")));
                    }
                }
                What::Lease => {
                    let leases = numbers(call);
                    if leases.iter().any(|(name, number)| found.tokens.get(*name) < Some(number)) {
                        broken.push((Rule::Exclusion, say("a fencing token that was given is lost")));
                    }
                }
                What::Settle => {
                    ended.extend(labels);
                    let sure = call.answered.iter().flatten();
                    if sure.clone().any(|label| found.messages.get(label) != Some(&DONE)) {
                        broken.push((Rule::OneEnd, say("a message whose ack was answered is not done")));
                    }
                }
                What::Handle => {
                    let [handled, next] = &labels[..] else { continue };
                    enqueued.insert(next);
                    ended.insert(handled);
                    noted.insert(handled);
                    let parts = [
                        found.messages.get(handled) == Some(&DONE),
                        found.messages.contains_key(next),
                        found.notes.contains(handled),
                    ];
                    let there = parts.iter().filter(|part| **part).count();
                    if call.answered.is_some() && there < parts.len() {
                        broken.push((Rule::NothingLost, say("parts of a committed transaction are missing")));
                    } else if there > 0 && there < parts.len() {
                        broken.push((
                            Rule::Effects,
                            say("some parts of one transaction are there, others not"),
                        ));
                    }
                }
                What::Discard => {
                    if labels.iter().any(|label| found.messages.contains_key(label)) {
                        let text = say("a message of a transaction that was rolled back is there");
                        broken.push((Rule::NothingInvented, text));
                    }
                }
            }
        }
        let discarded: HashSet<_> = self
            .calls
            .values()
            .filter(|call| call.what == What::Discard)
            .flat_map(|call| &call.labels)
            .collect();
        for (label, status) in &found.messages {
            if !enqueued.contains(label) && !discarded.contains(label) {
                broken.push((Rule::NothingInvented, format!("the message {label} was never asked for")));
            }
            if !(OPEN.contains(status) || *status == DONE && ended.contains(label)) {
                broken
                    .push((Rule::NothingInvented, format!("status {status} of {label} was never asked for")));
            }
        }
        for label in found.notes.iter().filter(|label| !noted.contains(label)) {
            broken.push((Rule::NothingInvented, format!("the note {label} was never asked for")));
        }
        broken
    }
}

/// Returns the numbers that an answer gave, with what each of them belongs to: `label:number`.
fn numbers(call: &Asked) -> Vec<(&str, i64)> {
    let given = call.answered.iter().flatten().filter_map(|label| label.split_once(':'));
    // A number that can't be read is above all that a database holds.
    given.map(|(label, number)| (label, number.parse().unwrap_or(i64::MAX))).collect()
}

/// What a database holds.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The status of each message, by its label.
    pub(super) messages: HashMap<String, i64>,
    pub(super) notes: BTreeSet<String>,
    /// The generation of each message, by its label.
    pub(super) generations: HashMap<String, i64>,
    /// The fencing token of each lease.
    pub(super) tokens: HashMap<String, i64>,
}

impl Found {
    /// Reads it. None where there are no tables.
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        let tables = "SELECT count(*) FROM sqlite_master WHERE name IN ('infra_outbox_message', 'note')";
        if connection.query_row(tables, [], |row| row.get::<_, i64>(0))? < 2 {
            return Ok(None);
        }
        let mut found = Self::default();
        let mut messages =
            connection.prepare("SELECT payload, status, generation FROM infra_outbox_message")?;
        let mut rows = messages.query([])?;
        while let Some(row) = rows.next()? {
            let payload: String = row.get(0)?;
            let label = payload.split(' ').next().unwrap_or_default();
            found.messages.insert(label.to_owned(), row.get(1)?);
            found.generations.insert(label.to_owned(), row.get(2)?);
        }
        let mut leases = connection.prepare("SELECT name, fencing_token FROM infra_lease")?;
        let tokens = leases.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        found.tokens = tokens.collect::<rusqlite::Result<_>>()?;
        let mut notes = connection.prepare("SELECT label FROM note")?;
        let labels = notes.query_map([], |row| row.get(0))?;
        found.notes = labels.collect::<rusqlite::Result<_>>()?;
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promises(marks: &[&str]) -> Promises {
        let mut promises = Promises::default();
        marks.iter().for_each(|mark| promises.mark(mark).unwrap());
        promises
    }

    fn found(messages: &[(&str, i64)], notes: &[&str]) -> Found {
        Found {
            messages: messages.iter().map(|(label, status)| ((*label).to_owned(), *status)).collect(),
            notes: notes.iter().map(|label| (*label).to_owned()).collect(),
            ..Found::default()
        }
    }

    fn rules(marks: &[&str], found: &Found) -> Vec<Rule> {
        promises(marks).broken_by(found).into_iter().map(|(rule, _)| rule).collect()
    }

    #[test]
    fn what_was_answered_has_to_be_there_and_what_was_asked_may_be() {
        let answered = ["1 ask enqueue a b", "1 ok"];
        assert_eq!(rules(&answered, &found(&[("a", 0), ("b", 1)], &[])), []);
        assert_eq!(rules(&answered, &found(&[("a", 0)], &[])), [Rule::NothingLost]);
        let asked = ["1 ask enqueue a b"];
        assert_eq!(rules(&asked, &found(&[], &[])), []);
        assert_eq!(rules(&asked, &found(&[("a", 0), ("b", 0)], &[])), []);
        assert_eq!(rules(&asked, &found(&[("b", 0)], &[])), [Rule::Effects]);
    }

    #[test]
    fn an_answered_ack_stays_and_an_end_has_to_be_asked_for() {
        let marks = ["1 ask enqueue a b", "1 ok", "2 ask settle a b", "2 ok a"];
        assert_eq!(rules(&marks, &found(&[("a", 2), ("b", 1)], &[])), []);
        assert_eq!(rules(&marks, &found(&[("a", 1), ("b", 2)], &[])), [Rule::OneEnd]);
        assert_eq!(rules(&marks[..2], &found(&[("a", 2), ("b", 0)], &[])), [Rule::NothingInvented]);
        assert_eq!(rules(&marks, &found(&[("a", 2), ("b", 3)], &[])), [Rule::NothingInvented]);
    }

    #[test]
    fn an_answered_claim_or_lease_keeps_its_number() {
        let marks = ["1 ask enqueue a", "1 ok", "2 ask claim", "2 ok a:7", "3 ask lease l", "3 ok l:4"];
        let held = |generation, token| Found {
            generations: HashMap::from([("a".to_owned(), generation)]),
            tokens: HashMap::from([("l".to_owned(), token)]),
            ..found(&[("a", 1)], &[])
        };
        assert_eq!(rules(&marks, &held(7, 4)), []);
        assert_eq!(rules(&marks, &held(8, 5)), []);
        assert_eq!(rules(&marks, &held(6, 4)), [Rule::OneClaim]);
        assert_eq!(rules(&marks, &held(7, 3)), [Rule::Exclusion]);
        assert_eq!(rules(&marks, &found(&[("a", 0)], &[])), [Rule::OneClaim, Rule::Exclusion]);
        // Without their answers nothing is promised.
        let asked = ["1 ask enqueue a", "1 ok", "2 ask claim", "3 ask lease l"];
        assert_eq!(rules(&asked, &found(&[("a", 0)], &[])), []);
    }

    #[test]
    fn a_transaction_is_there_as_a_whole_or_not_at_all() {
        let asked = ["1 ask enqueue a", "1 ok", "2 ask handle a b"];
        assert_eq!(rules(&asked, &found(&[("a", 1)], &[])), []);
        assert_eq!(rules(&asked, &found(&[("a", 2), ("b", 0)], &["a"])), []);
        assert_eq!(rules(&asked, &found(&[("a", 2), ("b", 0)], &[])), [Rule::Effects]);
        let answered = [&asked[..], &["2 ok"]].concat();
        assert_eq!(rules(&answered, &found(&[("a", 1)], &[])), [Rule::NothingLost]);
        assert_eq!(rules(&answered, &found(&[("a", 2), ("b", 0)], &["a", "z"])), [Rule::NothingInvented]);
    }

    #[test]
    fn what_was_rolled_back_or_never_asked_for_is_not_there() {
        let marks = ["1 ask discard a", "1 ok"];
        assert_eq!(rules(&marks, &found(&[], &[])), []);
        assert_eq!(rules(&marks, &found(&[("a", 0)], &[])), [Rule::NothingInvented]);
        assert_eq!(rules(&marks, &found(&[("z", 0)], &[])), [Rule::NothingInvented]);
    }
}
