//! A worker that calls the SQL functions, as programs in other languages do.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::history::{Answer, Call, Claim, Ending, Invoked, Item, Outcome, QueueName};

use super::Child;
use super::payload::{Act, Payload};
use super::trouble::record_driver;

const QUEUE: QueueName = QueueName::Outbox;

/// A message in hand.
struct Taken {
    claim: Claim,
    attempt: i32,
    payload: Payload,
}

/// Runs until the process is to stop. A connection that fails ends the process, and it is started again.
pub(super) async fn run(mut child: Child) -> Result<()> {
    let client = child.database.client().await?;
    let owner = Uuid::new_v4();
    loop {
        if child.stop.is_cancelled() {
            return Ok(());
        }
        let taken = claim(&child, &client, owner).await?;
        if taken.is_empty() {
            child.pause(200).await;
        }
        for taken in taken {
            handle(&mut child, &client, owner, taken).await?;
        }
    }
}

async fn claim(child: &Child, client: &Client, owner: Uuid) -> Result<Vec<Taken>> {
    let lease_seconds = i32::try_from(child.lease.as_secs()).context("a lease of years")?;
    let limit = i32::try_from(child.delivery_limit).context("so many deliveries")?;
    let invoked = child.recorder.invoke(Call::Claim {
        queue: QUEUE,
        owner,
        lease_ms: child.lease_ms(),
        limit: child.delivery_limit,
    });
    let select = "select id, message_id, generation, attempt, topic, payload, ordering_key,
            (extract(epoch from claimed_at) * 1000000)::bigint, (extract(epoch from locked_until) * 1000000)::bigint
        from infra.outbox_claim(owner => $1, lease_seconds => $2, batch => 4, delivery_limit => $3)";
    let arguments: [(&(dyn ToSql + Sync), Type); 3] =
        [(&owner, Type::UUID), (&lease_seconds, Type::INT4), (&limit, Type::INT4)];
    let rows = answered(invoked, client.query_typed(select, &arguments).await)?;
    let (invoked, rows) = rows;
    let mut taken = Vec::new();
    let mut items = Vec::new();
    for row in rows {
        let (id, generation, attempt): (Uuid, i64, i32) = (row.get(0), row.get(2), row.get(3));
        let text: String = row.get(5);
        let payload = Payload::read(&text);
        items.push(Item {
            id,
            message: row.get(1),
            generation,
            attempt: attempt.unsigned_abs(),
            topic: row.get(4),
            key: row.get(6),
            marker: payload.marker().to_owned(),
            claimed_at: Some(row.get(7)),
            until: Some(row.get(8)),
        });
        taken.push(Taken { claim: Claim { id, generation }, attempt, payload });
    }
    invoked.ok(Answer::Claimed { items, rejected: Vec::new() });
    Ok(taken)
}

/// Records the failure of a statement; hands on its answer otherwise.
fn answered<T>(invoked: Invoked<'_>, result: Result<T, tokio_postgres::Error>) -> Result<(Invoked<'_>, T)> {
    match result {
        Ok(value) => Ok((invoked, value)),
        Err(error) => {
            record_driver(invoked, &error);
            Err(error.into())
        }
    }
}

async fn handle(child: &mut Child, client: &Client, owner: Uuid, taken: Taken) -> Result<()> {
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
            renew(child, client, owner, claim).await?;
        }
    }
    handled.ok(Answer::Done);
    let outcome = match taken.payload.act {
        Act::Complete => return complete(child, client, owner, claim).await,
        Act::Ack => Outcome::Ack,
        Act::Fail => Outcome::Fail,
        Act::Retry(times) if taken.attempt.unsigned_abs() <= times => Outcome::Abandon,
        Act::Snooze if claim.generation % 2 == 1 && claim.generation < 8 => Outcome::Release,
        Act::Retry(_) | Act::Snooze => return complete(child, client, owner, claim).await,
    };
    let call = match outcome {
        Outcome::Fail => "infra.outbox_fail($1, $2, $3, 'as the payload says')",
        Outcome::Abandon => "infra.outbox_abandon($1, $2, $3, 0.2, 'as the payload says')",
        Outcome::Release => "infra.outbox_release($1, $2, $3, 0.1)",
        _ => "infra.outbox_ack($1, $2, $3)",
    };
    let ends = vec![Ending { claim, outcome }];
    let invoked = child.recorder.invoke(Call::Settle { queue: QUEUE, owner, ends });
    let (invoked, changed) = answered(invoked, change(client, call, owner, claim).await)?;
    invoked.ok(answer(claim, changed));
    Ok(())
}

/// Calls a function that answers with the ids that it changed.
async fn change(
    client: &Client,
    call: &str,
    owner: Uuid,
    claim: Claim,
) -> Result<Vec<Uuid>, tokio_postgres::Error> {
    let (ids, generations) = (vec![claim.id], vec![claim.generation]);
    let arguments: [(&(dyn ToSql + Sync), Type); 3] =
        [(&owner, Type::UUID), (&ids, Type::UUID_ARRAY), (&generations, Type::INT8_ARRAY)];
    let rows = client.query_typed(&format!("select * from {call}"), &arguments).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

fn answer(claim: Claim, changed: Vec<Uuid>) -> Answer {
    let stale = if changed.is_empty() { vec![claim.id] } else { Vec::new() };
    Answer::Changed { changed, stale }
}

async fn renew(child: &Child, client: &Client, owner: Uuid, claim: Claim) -> Result<()> {
    let invoked = child.recorder.invoke(Call::Renew {
        queue: QUEUE,
        owner,
        claims: vec![claim],
        lease_ms: child.lease_ms(),
    });
    let call = format!("infra.outbox_renew($1, $2, $3, {})", child.lease.as_secs_f64());
    let (invoked, changed) = answered(invoked, change(client, &call, owner, claim).await)?;
    invoked.ok(answer(claim, changed));
    Ok(())
}

/// Writes an effect and acks, in one transaction; rolls it back if the claim is lost.
async fn complete(child: &Child, client: &Client, owner: Uuid, claim: Claim) -> Result<()> {
    let invoked = child.recorder.invoke(Call::Complete { queue: QUEUE, owner, claim });
    let work = async {
        // The id is a UUID. In one round trip, as drivers do.
        let begin = format!("begin; insert into chaos_effect values ('{}')", claim.id);
        client.batch_execute(&begin).await?;
        let changed = change(client, "infra.outbox_ack($1, $2, $3)", owner, claim).await?;
        if changed.is_empty() {
            client.batch_execute("rollback").await?;
        }
        Ok(!changed.is_empty())
    };
    match work.await {
        Ok(true) => {
            let (invoked, ()) = answered(invoked, client.batch_execute("commit").await)?;
            invoked.ok(Answer::Done);
            Ok(())
        }
        Ok(false) => {
            invoked.fail(crate::history::Trouble {
                kind: "ClaimLost".to_owned(),
                text: "the claim is no longer held".to_owned(),
            });
            Ok(())
        }
        Err(error) => {
            let error: tokio_postgres::Error = error;
            // The commit was not sent, so nothing of it stays.
            invoked
                .fail(crate::history::Trouble { kind: "BeforeCommit".to_owned(), text: error.to_string() });
            Err(error.into())
        }
    }
}
