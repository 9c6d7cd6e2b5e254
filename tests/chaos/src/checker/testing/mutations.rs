//! Ways to break a legal history, each with the rule that it breaks.

use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;

use crate::checker::linear::MOST_CALLS;
use crate::history::{
    Answer, Call, Claim, Condition, Event, History, Item, Line, MARKER, Outcome, Placed, Within,
};
use crate::verdict::Rule;

/// Breaks a history at one of the places where that is possible, which `pick` picks.
pub(crate) type Mutation = fn(&mut History, usize) -> Option<()>;

/// All mutations, with the rule that each breaks.
pub(crate) const ALL: [(&str, Rule, Mutation); 22] = [
    ("drop a row", Rule::NothingLost, drop_row),
    ("drop the acks of a message", Rule::NothingLost, drop_acks),
    ("roll back an enqueue", Rule::NothingInvented, roll_back),
    ("change a payload", Rule::NothingInvented, change_payload),
    ("repeat a generation", Rule::OneClaim, repeat_generation),
    ("claim an item in another claim as well", Rule::OneClaim, duplicate_claim),
    ("end a claim twice", Rule::OneEnd, duplicate_end),
    ("accept a stale settle", Rule::OneEnd, accept_stale),
    ("claim what was acked", Rule::OneEnd, claim_acked),
    ("reserve what is completed", Rule::OneEnd, reserve_completed),
    ("refuse a message that is free", Rule::Exclusion, refuse_free),
    ("drop an effect", Rule::Effects, drop_effect),
    ("double an effect", Rule::Effects, double_effect),
    ("drop a business row", Rule::Effects, drop_business),
    ("commit a business row without its message", Rule::Effects, commit_business),
    ("claim what is in progress", Rule::Exclusion, claim_in_progress),
    ("repeat an epoch", Rule::Exclusion, repeat_epoch),
    ("write under a lost lease", Rule::Exclusion, write_late),
    ("commit a guarded write late", Rule::Exclusion, commit_late),
    ("claim a later message of a key", Rule::Order, claim_later),
    ("miscount an attempt", Rule::Deliveries, miscount),
    ("leave a message open", Rule::Liveness, leave_open),
];

fn take<T>(places: impl IntoIterator<Item = T>, pick: usize) -> Option<T> {
    let mut places: Vec<T> = places.into_iter().collect();
    if places.is_empty() { None } else { Some(places.swap_remove(pick % places.len())) }
}

/// A call that was answered.
#[derive(Clone)]
struct Answered {
    /// The places of its two lines.
    invoke: usize,
    answer: usize,
    call: Call,
    what: Answer,
}

fn answered(history: &History) -> Vec<Answered> {
    let mut open: HashMap<(&str, u64), (usize, &Call)> = HashMap::new();
    let mut calls = Vec::new();
    for (index, line) in history.lines.iter().map(|placed| &placed.line).enumerate() {
        match &line.event {
            Event::Invoke(call) => _ = open.insert((&line.process, line.call), (index, call)),
            Event::Ok(what) => {
                let (invoke, call) = open[&(line.process.as_str(), line.call)];
                let (call, what) = (call.clone(), (**what).clone());
                calls.push(Answered { invoke, answer: index, call, what });
            }
            _ => {}
        }
    }
    calls
}

/// Every claim of an item, in the order of the answers: the call, and the item's place in its answer.
fn claims(history: &History) -> Vec<(Answered, usize, Item)> {
    let calls = answered(history).into_iter();
    calls
        .flat_map(|call| {
            let items = match &call.what {
                Answer::Claimed { items, .. } => items.clone(),
                _ => Vec::new(),
            };
            items.into_iter().enumerate().map(move |(place, item)| (call.clone(), place, item))
        })
        .collect()
}

/// Every settle that changed a claim.
fn ends(history: &History) -> Vec<(Answered, Claim, Outcome)> {
    let calls = answered(history).into_iter();
    let ends = calls.filter_map(|call| match (&call.call, &call.what) {
        (Call::Settle { ends, .. }, Answer::Changed { changed, .. }) if !changed.is_empty() => {
            let end = ends[0];
            Some((call, end.claim, end.outcome))
        }
        _ => None,
    });
    ends.collect()
}

fn items_mut(history: &mut History, answer: usize) -> Option<&mut Vec<Item>> {
    match &mut history.lines[answer].line.event {
        Event::Ok(answer) => match &mut **answer {
            Answer::Claimed { items, .. } => Some(items),
            _ => None,
        },
        _ => None,
    }
}

/// Adds a call of a process of its own.
fn insert(history: &mut History, from: u64, to: u64, call: Call, answer: Answer) {
    let events = [(from, Event::Invoke(Box::new(call))), (to, Event::Ok(Box::new(answer)))];
    for (number, (at, event)) in (1..).zip(events) {
        let template = history.lines[0].line.clone();
        let line = Line { at, process: "stranger".to_owned(), call: 0, event, ..template };
        history.lines.push(Placed { place: format!("stranger:{number}"), line });
    }
    history.lines.sort_by_key(|placed| placed.line.at);
}

fn take_call(history: &History) -> Option<Call> {
    let calls = answered(history).into_iter();
    calls.map(|call| call.call).find(|call| matches!(call, Call::Claim { .. }))
}

fn at(history: &History, line: usize) -> u64 {
    history.lines[line].line.at
}

/// The rows at the end, by id.
fn rows(history: &History) -> BTreeMap<Uuid, usize> {
    let lines = history.lines.iter().enumerate();
    let rows = lines.filter_map(|(index, placed)| match &placed.line.event {
        Event::End(condition) => match &**condition {
            Condition::Message(state) => Some((state.id, index)),
            _ => None,
        },
        _ => None,
    });
    rows.collect()
}

fn row(history: &History, line: usize) -> &crate::history::MessageState {
    match &history.lines[line].line.event {
        Event::End(condition) => match &**condition {
            Condition::Message(state) => state,
            _ => unreachable!("only rows are asked for"),
        },
        _ => unreachable!("only rows are asked for"),
    }
}

fn change_row(history: &mut History, line: usize, change: impl FnOnce(&mut crate::history::MessageState)) {
    if let Event::End(condition) = &mut history.lines[line].line.event
        && let Condition::Message(state) = &mut **condition
    {
        change(state);
    }
}

/// Ids whose enqueue was answered and committed.
fn committed(history: &History) -> HashSet<Uuid> {
    let calls = answered(history).into_iter();
    calls
        .flat_map(|call| match call.what {
            Answer::Enqueued { ids, .. } => ids,
            _ => Vec::new(),
        })
        .collect()
}

fn every_call_came_out(history: &History, is_meant: impl Fn(&Call) -> bool) -> bool {
    let mut under_way = HashSet::new();
    for line in history.lines.iter().map(|placed| &placed.line) {
        match &line.event {
            Event::Invoke(call) if is_meant(call) => _ = under_way.insert((&line.process, line.call)),
            Event::Ok(_) | Event::Fail(_) => _ = under_way.remove(&(&line.process, line.call)),
            _ => {}
        }
    }
    under_way.is_empty()
}

fn has_condition(history: &History, is_meant: impl Fn(&Condition) -> bool) -> bool {
    let mut events = history.lines.iter().map(|placed| &placed.line.event);
    events.any(|event| matches!(event, Event::End(condition) if is_meant(condition)))
}

fn has_call(history: &History, is_meant: impl Fn(&Call) -> bool) -> bool {
    let mut events = history.lines.iter().map(|placed| &placed.line.event);
    events.any(|event| matches!(event, Event::Invoke(call) if is_meant(call)))
}

fn drop_row(history: &mut History, pick: usize) -> Option<()> {
    // A purge accounts for as many messages as it deleted. It is certain how many of these there were
    // if the audit trail tells, and if every enqueue does.
    let is_certain = has_condition(history, |it| matches!(it, Condition::Audited { .. }))
        && every_call_came_out(history, |call| matches!(call, Call::Enqueue { .. }));
    if !is_certain && has_call(history, |call| matches!(call, Call::Purge { .. })) {
        return None;
    }
    let committed = committed(history);
    let places = rows(history).into_iter().filter(|(id, _)| committed.contains(id));
    let (_, line) = take(places, pick)?;
    history.lines.remove(line);
    Some(())
}

fn drop_acks(history: &mut History, pick: usize) -> Option<()> {
    let done = rows(history).into_iter().filter(|(_, line)| row(history, *line).status == "done");
    let (id, _) = take(done, pick)?;
    let is_ack = |call: &Call| match call {
        Call::Settle { ends, .. } => ends.iter().any(|end| end.claim.id == id && end.outcome == Outcome::Ack),
        Call::Complete { claim, .. } => claim.id == id,
        _ => false,
    };
    let lines = history.lines.iter();
    let acks: HashSet<(String, u64)> = lines
        .filter(|placed| matches!(&placed.line.event, Event::Invoke(call) if is_ack(call)))
        .map(|placed| (placed.line.process.clone(), placed.line.call))
        .collect();
    history.lines.retain(|placed| !acks.contains(&(placed.line.process.clone(), placed.line.call)));
    Some(())
}

fn roll_back(history: &mut History, pick: usize) -> Option<()> {
    let claimed: HashSet<Uuid> = claims(history).into_iter().map(|(_, _, item)| item.id).collect();
    let calls = answered(history).into_iter();
    let places = calls.filter(|call| {
        matches!(&call.what, Answer::Enqueued { ids, .. } if ids.iter().any(|id| claimed.contains(id)))
    });
    let enqueue = take(places, pick)?;
    let Call::Enqueue { messages, .. } = enqueue.call else { return None };
    let call = Call::Enqueue { messages, within: Within::Rollback };
    history.lines[enqueue.invoke].line.event = Event::Invoke(Box::new(call));
    history.lines[enqueue.answer].line.event = Event::Ok(Box::new(Answer::RolledBack));
    Some(())
}

fn change_payload(history: &mut History, pick: usize) -> Option<()> {
    let (call, place, _) = take(claims(history), pick)?;
    items_mut(history, call.answer)?[place].marker = format!("{MARKER}another");
    Some(())
}

fn repeat_generation(history: &mut History, pick: usize) -> Option<()> {
    let claims = claims(history);
    let mut first: HashMap<Uuid, i64> = HashMap::new();
    let mut places = Vec::new();
    for (call, place, item) in claims {
        match first.get(&item.id) {
            Some(generation) => places.push((call.answer, place, *generation)),
            None => _ = first.insert(item.id, item.generation),
        }
    }
    let (answer, place, generation) = take(places, pick)?;
    items_mut(history, answer)?[place].generation = generation;
    Some(())
}

fn duplicate_claim(history: &mut History, pick: usize) -> Option<()> {
    let (call, _, item) = take(claims(history), pick)?;
    let calls = answered(history).into_iter();
    let others =
        calls.filter(|other| matches!(other.what, Answer::Claimed { .. }) && other.answer != call.answer);
    let other = take(others, pick)?;
    items_mut(history, other.answer)?.push(item);
    Some(())
}

fn duplicate_end(history: &mut History, pick: usize) -> Option<()> {
    let (end, ..) = take(ends(history), pick)?;
    let last = history.lines.last()?.line.at;
    insert(history, last, last, end.call, end.what);
    Some(())
}

fn accept_stale(history: &mut History, pick: usize) -> Option<()> {
    let claims = claims(history);
    let calls = answered(history).into_iter();
    let stale = calls.filter_map(|call| match (&call.call, &call.what) {
        (Call::Settle { ends, .. }, Answer::Changed { stale, .. }) if !stale.is_empty() => {
            let claim = ends[0].claim;
            let is_lost = claims.iter().any(|(later, _, item)| {
                item.id == claim.id
                    && item.generation > claim.generation
                    && at(history, later.answer) < at(history, call.invoke)
            });
            is_lost.then_some((call, claim.id))
        }
        _ => None,
    });
    let (call, id) = take(stale, pick)?;
    let answer = Answer::Changed { changed: vec![id], stale: vec![] };
    history.lines[call.answer].line.event = Event::Ok(Box::new(answer));
    Some(())
}

fn claim_acked(history: &mut History, pick: usize) -> Option<()> {
    let acks = ends(history).into_iter().filter(|(.., outcome)| *outcome == Outcome::Ack);
    let (_, claim, _) = take(acks, pick)?;
    let item = claims(history).into_iter().map(|(_, _, item)| item).find(|item| item.id == claim.id)?;
    let item = Item { generation: claim.generation + 1, ..item };
    let last = history.lines.last()?.line.at;
    let answer = Answer::Claimed { items: vec![item], rejected: vec![] };
    let call = take_call(history)?;
    insert(history, last, last, call, answer);
    Some(())
}

fn effects(history: &History) -> Vec<usize> {
    let lines = history.lines.iter().enumerate();
    let effects = lines.filter(|(_, placed)| {
        matches!(&placed.line.event, Event::End(condition) if matches!(**condition, Condition::Effect { .. }))
    });
    effects.map(|(index, _)| index).collect()
}

fn drop_effect(history: &mut History, pick: usize) -> Option<()> {
    let completed: HashSet<Uuid> = answered(history)
        .into_iter()
        .filter_map(|call| match call.call {
            Call::Complete { claim, .. } => Some(claim.id),
            _ => None,
        })
        .collect();
    let places = effects(history).into_iter().filter(|line| {
        matches!(&history.lines[*line].line.event, Event::End(condition)
            if matches!(&**condition, Condition::Effect { id, .. } if completed.contains(id)))
    });
    let line = take(places, pick)?;
    history.lines.remove(line);
    Some(())
}

fn double_effect(history: &mut History, pick: usize) -> Option<()> {
    let line = take(effects(history), pick)?;
    let copy = history.lines[line].clone();
    history.lines.push(copy);
    Some(())
}

fn business_mut(history: &mut History) -> Option<&mut Vec<Uuid>> {
    let events = history.lines.iter_mut().map(|placed| &mut placed.line.event);
    events.into_iter().find_map(|event| match event {
        Event::End(condition) => match &mut **condition {
            Condition::Business { ids } => Some(ids),
            _ => None,
        },
        _ => None,
    })
}

/// Drops a row whose transaction was answered, or whose message is there.
fn drop_business(history: &mut History, pick: usize) -> Option<()> {
    let (committed, rows) = (committed(history), rows(history));
    let ids = business_mut(history)?;
    let places = ids.iter().filter(|id| committed.contains(*id) || rows.contains_key(*id)).copied();
    let id = take(places, pick)?;
    ids.retain(|other| *other != id);
    Some(())
}

/// Adds the row of a transaction whose message is not there.
fn commit_business(history: &mut History, pick: usize) -> Option<()> {
    // A purge explains that a message is gone whose transaction may have been committed.
    let is_certain = every_call_came_out(history, |call| matches!(call, Call::Enqueue { .. }));
    if !is_certain && has_call(history, |call| matches!(call, Call::Purge { .. })) {
        return None;
    }
    let lines = history.lines.iter().map(|placed| &placed.line.event);
    let sent: Vec<Uuid> = lines
        .filter_map(|event| match event {
            Event::Invoke(call) => match &**call {
                Call::Enqueue { messages, .. } => Some(messages.iter().map(|sent| sent.id)),
                _ => None,
            },
            _ => None,
        })
        .flatten()
        .collect();
    let ids = business_mut(history)?;
    let id = take(sent.into_iter().filter(|id| !ids.contains(id)), pick)?;
    ids.push(id);
    Some(())
}

/// A claim, and until when it surely holds: it is settled by a call with an answer.
fn held(history: &History) -> Vec<(Item, u64, u64)> {
    let ends = ends(history);
    // A call without an answer may have ended it before.
    let lines = history.lines.iter().map(|placed| &placed.line);
    let mut tried: HashMap<Claim, u64> = HashMap::new();
    for line in lines {
        if let Event::Invoke(call) = &line.event {
            let claims = match &**call {
                Call::Settle { ends, .. } => ends.iter().map(|end| end.claim).collect(),
                Call::Complete { claim, .. } => vec![*claim],
                _ => Vec::new(),
            };
            for claim in claims {
                tried.entry(claim).or_insert(line.at);
            }
        }
    }
    let held = claims(history).into_iter().filter_map(|(call, _, item)| {
        let claim = Claim { id: item.id, generation: item.generation };
        ends.iter().find(|(_, ended, _)| *ended == claim)?;
        let Call::Claim { lease_ms, .. } = call.call else { return None };
        let lapses = at(history, call.invoke) + lease_ms * 1_000_000;
        let (from, to) = (at(history, call.answer), tried[&claim].min(lapses));
        (from + 2 < to).then_some((item, from, to))
    });
    held.collect()
}

fn claim_in_progress(history: &mut History, pick: usize) -> Option<()> {
    let (item, from, to) = take(held(history), pick)?;
    let again = Item { generation: item.generation + 1, attempt: item.attempt + 1, ..item };
    let answer = Answer::Claimed { items: vec![again], rejected: vec![] };
    let call = take_call(history)?;
    insert(history, from + 1, to - 1, call, answer);
    Some(())
}

fn claim_later(history: &mut History, pick: usize) -> Option<()> {
    // What an operator may have ended or brought back has no certain order.
    if has_call(history, |call| matches!(call, Call::Requeue { .. } | Call::Cancel { .. })) {
        return None;
    }
    let rows = rows(history);
    let committed = committed(history);
    let mut places = Vec::new();
    for (item, from, to) in held(history) {
        // An item that may fail twice has no certain first end.
        let Some(state) = rows.get(&item.id).map(|line| row(history, *line)) else { continue };
        let is_sure = item.generation == 1 && state.generation == Some(1) && state.status == "done";
        for line in rows.values().filter(|_| is_sure && committed.contains(&item.id)) {
            let later = row(history, *line);
            if item.key.is_some() && later.key == item.key && later.seq > state.seq {
                places.push((Item { id: later.id, generation: 1_000, ..item.clone() }, from, to));
            }
        }
    }
    let (later, from, to) = take(places, pick)?;
    let answer = Answer::Claimed { items: vec![later], rejected: vec![] };
    let call = take_call(history)?;
    insert(history, from + 1, to - 1, call, answer);
    Some(())
}

/// Every acquisition of a lease, with its epoch and token.
fn acquisitions(history: &History) -> Vec<(Answered, i64, i64)> {
    let calls = answered(history).into_iter();
    let acquired = calls.filter_map(|call| match (&call.call, &call.what) {
        (Call::Acquire { .. }, Answer::Granted { epoch, token, .. }) => {
            let (epoch, token) = (*epoch, *token);
            Some((call, epoch, token))
        }
        _ => None,
    });
    acquired.collect()
}

fn repeat_epoch(history: &mut History, pick: usize) -> Option<()> {
    let acquisitions = acquisitions(history);
    let pairs = acquisitions.windows(2).map(|pair| (pair[0].1, pair[1].clone()));
    let (epoch, (call, _, token)) = take(pairs, pick)?;
    let until = at(history, call.answer);
    history.lines[call.answer].line.event = Event::Ok(Box::new(Answer::Granted { epoch, token, until }));
    Some(())
}

fn write_late(history: &mut History, pick: usize) -> Option<()> {
    let acquisitions = acquisitions(history);
    let pairs = acquisitions.windows(2).map(|pair| (pair[0].1, pair[1].0.clone()));
    let (epoch, next) = take(pairs, pick)?;
    let value = Uuid::from_u128(1);
    let late = at(history, next.answer) + 1;
    let call = Call::GuardedWrite { name: "l".to_owned(), epoch, value };
    insert(history, late, late + 1, call, Answer::Done);
    Some(())
}

/// Hides a row of a lower epoch from one that was written later.
fn commit_late(history: &mut History, pick: usize) -> Option<()> {
    let events = history.lines.iter_mut().map(|placed| &mut placed.line.event);
    let seen = events.filter_map(|event| match event {
        Event::End(condition) => match &mut **condition {
            Condition::Guarded { seen: Some(seen), .. } if *seen > 0 => Some(seen),
            _ => None,
        },
        _ => None,
    });
    *take(seen, pick)? -= 1;
    Some(())
}

fn reserve_completed(history: &mut History, pick: usize) -> Option<()> {
    let calls = answered(history).into_iter();
    let finished = calls.filter_map(|call| match call.call {
        Call::Finish { source, id, .. } => Some((source, id)),
        _ => None,
    });
    let (source, id) = take(finished, pick)?;
    let last = history.lines.last()?.line.at;
    let call = Call::Begin { source, id, lease_ms: 1_000 };
    insert(history, last, last, call, Answer::Begun { generation: Some(1_000) });
    Some(())
}

/// Refuses the first reservation of a message, before which no call can have reserved it.
fn refuse_free(history: &mut History, pick: usize) -> Option<()> {
    let mut calls: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, placed) in history.lines.iter().enumerate() {
        if let Event::Invoke(call) = &placed.line.event
            && let Call::Begin { id, .. } | Call::Finish { id, .. } = &**call
        {
            calls.entry(id.clone()).or_default().push(index);
        }
    }
    let answered = answered(history);
    let places = calls.values().filter(|invocations| invocations.len() <= MOST_CALLS).filter_map(|it| {
        let first = answered.iter().find(|call| call.invoke == it[0])?;
        let is_alone = it.get(1).is_none_or(|second| at(history, *second) > at(history, first.answer));
        let is_granted = matches!(first.what, Answer::Begun { generation: Some(_) });
        (is_alone && is_granted).then_some(first.answer)
    });
    let answer = take(places, pick)?;
    history.lines[answer].line.event = Event::Ok(Box::new(Answer::Begun { generation: None }));
    Some(())
}

fn miscount(history: &mut History, pick: usize) -> Option<()> {
    let claims = claims(history);
    let last: HashMap<Uuid, i64> =
        claims.into_iter().map(|(_, _, item)| (item.id, item.generation)).collect();
    let places = rows(history).into_iter().filter(|(id, line)| {
        last.get(id).is_some_and(|generation| row(history, *line).generation == Some(*generation))
    });
    let (_, line) = take(places, pick)?;
    // By two: a release without an answer leaves one of two counts.
    change_row(history, line, |state| state.attempts += 2);
    Some(())
}

fn leave_open(history: &mut History, pick: usize) -> Option<()> {
    let (_, line) = take(rows(history), pick)?;
    change_row(history, line, |state| state.status = "ready".to_owned());
    Some(())
}
