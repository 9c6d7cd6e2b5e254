//! A worker that calls the SQL functions or procedures, as programs in other languages do.

use std::time::Duration;

use anyhow::Result;
use uuid::Uuid;

use crate::history::{Answer, Call, Claim, Ending, Invoked, Outcome, QueueName, Trouble};

use super::Child;
use super::payload::{Act, Payload};
use super::session::{Dialects, Session};
use super::sql_calls::{Change, Changed, change, claim};
use super::trouble::{DriverError, before_commit};

const QUEUE: QueueName = QueueName::Outbox;

/// What begins a transaction. Everything after it is rolled back by the first error.
const BEGIN: Dialects =
    Dialects { postgres: "begin", sqlite: "begin", sql_server: "SET XACT_ABORT ON; BEGIN TRANSACTION" };

/// A message in hand.
struct Taken {
    claim: Claim,
    attempt: u32,
    payload: Payload,
}

/// Runs until the process is to stop. A connection that fails ends the process, and it is started again.
pub(super) async fn run(mut child: Child) -> Result<()> {
    let mut session = child.database.session().await?;
    let owner = Uuid::new_v4();
    loop {
        if child.stop.is_cancelled() {
            return Ok(());
        }
        let taken = take(&child, &mut session, owner).await?;
        if taken.is_empty() {
            child.pause(200).await;
        }
        for taken in taken {
            handle(&mut child, &mut session, owner, taken).await?;
        }
    }
}

async fn take(child: &Child, session: &mut Session, owner: Uuid) -> Result<Vec<Taken>> {
    let limit = child.delivery_limit;
    let invoked =
        child.recorder.invoke(Call::Claim { queue: QUEUE, owner, lease_ms: child.lease_ms(), limit });
    let (invoked, batch) = answered(invoked, claim(session, owner, child.lease, limit).await)?;
    let (items, payloads): (Vec<_>, Vec<_>) = batch.items.into_iter().unzip();
    let taken = items.iter().zip(payloads).map(|(item, payload)| Taken {
        claim: Claim { id: item.id, generation: item.generation },
        attempt: item.attempt,
        payload,
    });
    let taken = taken.collect();
    invoked.ok(Answer::Claimed { items, rejected: batch.rejected });
    Ok(taken)
}

/// Records the failure of a statement; hands on its answer otherwise.
fn answered<T>(invoked: Invoked<'_>, result: Result<T, DriverError>) -> Result<(Invoked<'_>, T)> {
    match result {
        Ok(value) => Ok((invoked, value)),
        Err(error) => {
            error.record(invoked);
            Err(error.into())
        }
    }
}

async fn handle(child: &mut Child, session: &mut Session, owner: Uuid, taken: Taken) -> Result<()> {
    let claim = taken.claim;
    let recorder = std::sync::Arc::clone(&child.recorder);
    let handled = recorder.invoke(Call::Handle { queue: QUEUE, owner, claim });
    let mut left = Duration::from_millis(taken.payload.ms);
    // Half of those that take long are not renewed, and lose their claim.
    let renews = child.random.percent(50);
    while !left.is_zero() {
        let step = left.min(child.lease / 2);
        tokio::time::sleep(step).await;
        left -= step;
        if renews && !left.is_zero() {
            renew(child, session, owner, claim).await?;
        }
    }
    handled.ok(Answer::Done);
    let (with, outcome) = match taken.payload.act {
        Act::Complete => return complete(child, session, owner, claim).await,
        Act::Ack => (Change::Ack, Outcome::Ack),
        Act::Fail => (Change::Fail, Outcome::Fail),
        Act::Retry(times) if taken.attempt <= times => (Change::Abandon, Outcome::Abandon),
        Act::Snooze if claim.is_to_be_snoozed() => (Change::Release, Outcome::Release),
        Act::Retry(_) | Act::Snooze => return complete(child, session, owner, claim).await,
    };
    let ends = vec![Ending { claim, outcome }];
    let invoked = child.recorder.invoke(Call::Settle { queue: QUEUE, owner, ends });
    let (invoked, changed) = answered(invoked, change(session, with, owner, claim).await)?;
    invoked.ok(answer(claim, changed));
    Ok(())
}

fn answer(claim: Claim, changed: Changed) -> Answer {
    let ids = |is_among: bool| if is_among { vec![claim.id] } else { Vec::new() };
    Answer::Changed { changed: ids(changed == Changed::Done), stale: ids(changed == Changed::Lost) }
}

async fn renew(child: &Child, session: &mut Session, owner: Uuid, claim: Claim) -> Result<()> {
    let invoked = child.recorder.invoke(Call::Renew {
        queue: QUEUE,
        owner,
        claims: vec![claim],
        lease_ms: child.lease_ms(),
    });
    let renewed = change(session, Change::Renew(child.lease), owner, claim).await;
    let (invoked, changed) = answered(invoked, renewed)?;
    invoked.ok(answer(claim, changed));
    Ok(())
}

/// Writes an effect and acks, in one transaction; rolls it back if the claim is lost.
async fn complete(child: &Child, session: &mut Session, owner: Uuid, claim: Claim) -> Result<()> {
    let invoked = child.recorder.invoke(Call::Complete { queue: QUEUE, owner, claim });
    let work = async {
        // The id is a UUID. In one round trip, as drivers do.
        let begin = BEGIN.of(child.database.engine());
        session.execute(&format!("{begin}; insert into chaos_effect values ('{}')", claim.id)).await?;
        let changed = change(session, Change::Ack, owner, claim).await?;
        if changed != Changed::Done {
            session.execute("rollback").await?;
        }
        Ok(changed == Changed::Done)
    };
    let is_acked: Result<bool, DriverError> = work.await;
    match is_acked {
        Ok(true) => {
            let (invoked, ()) = answered(invoked, session.execute("commit").await)?;
            invoked.ok(Answer::Done);
            Ok(())
        }
        Ok(false) => {
            invoked.fail(Trouble {
                kind: "ClaimLost".to_owned(),
                text: "the claim is no longer held".to_owned(),
            });
            Ok(())
        }
        Err(error) => {
            // The commit was not sent, so nothing of it stays.
            invoked.fail(before_commit(&error));
            Err(error.into())
        }
    }
}
