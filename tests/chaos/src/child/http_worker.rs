//! A worker over HTTP. The server runs in the process too, and the two speak over a loopback connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mainstay::Mainstay;
use mainstay::server::{Access, Interface, ListenOptions, Listener};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::history::{Answer, Call, Claim, Ending, Invoked, Item, Outcome, QueueName, Rejection, Trouble};

use super::Child;
use super::payload::{Act, Payload};

const QUEUE: QueueName = QueueName::Outbox;

/// What a claim is answered.
#[derive(Deserialize)]
struct Claims {
    items: Vec<Taken>,
    rejected: Vec<Refused>,
}

/// A message in hand.
#[derive(Deserialize)]
struct Taken {
    claim: String,
    id: Uuid,
    message_id: Uuid,
    topic: String,
    payload: String,
    attempt: u32,
    ordering_key: Option<String>,
}

#[derive(Deserialize)]
struct Refused {
    id: Uuid,
    reason: String,
}

/// What a settle is answered.
#[derive(Deserialize)]
struct Settled {
    changed: Vec<Uuid>,
    stale: Vec<Uuid>,
}

/// Runs until the process is to stop.
pub(super) async fn run(child: Child) -> Result<()> {
    let Some(provider) = child.stop.run_until_cancelled(child.database.provider_at_last()).await else {
        return Ok(());
    };
    let mainstay = Mainstay::builder_over(provider).build()?;
    let interface = Interface::builder(mainstay, Access::anyone()).build()?;
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind(loopback, ListenOptions::default()).await?;
    let address = listener.address()?;
    let server = tokio::spawn(listener.serve(interface.router(), child.stop.clone()));
    let owner = Uuid::new_v4();
    while !child.stop.is_cancelled() {
        let taken = claim(&child, address, owner).await;
        if taken.is_empty() {
            child.pause(100).await;
        }
        for taken in taken {
            handle(&child, address, owner, taken).await;
        }
    }
    drop(server.await);
    Ok(())
}

/// Posts JSON. None of the body when the server refused, with its problem as the error.
async fn post(address: SocketAddr, path: &str, body: &Value) -> Result<Result<Value, Trouble>> {
    let mut stream = TcpStream::connect(address).await?;
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let text = String::from_utf8(answer).context("an answer that is no text")?;
    let (head, body) = text.split_once("\r\n\r\n").context("an answer without an end of its head")?;
    let status: u16 = head.split_whitespace().nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    match status {
        200 => Ok(Ok(serde_json::from_str(body).context("an answer that is no JSON")?)),
        // Refused before anything was done.
        400..500 => Ok(Err(Trouble { kind: status.to_string(), text: body.to_owned() })),
        _ => bail!("{status}: {body}"),
    }
}

/// Records what became of a request. None if it failed.
fn answered<'a, T: for<'b> Deserialize<'b>>(
    invoked: Invoked<'a>,
    result: Result<Result<Value, Trouble>>,
) -> Option<(Invoked<'a>, T)> {
    let read = |value| serde_json::from_value(value).context("an answer of another form");
    match result.and_then(|answer| answer.map(read).transpose_error()) {
        Ok(Ok(value)) => Some((invoked, value)),
        Ok(Err(trouble)) => {
            invoked.fail(trouble);
            None
        }
        Err(error) => {
            invoked.unknown(Trouble { kind: "http".to_owned(), text: format!("{error:#}") });
            None
        }
    }
}

/// Moves the error of reading an answer outwards.
trait TransposeError<T> {
    fn transpose_error(self) -> Result<Result<T, Trouble>>;
}

impl<T> TransposeError<T> for Result<Result<T>, Trouble> {
    fn transpose_error(self) -> Result<Result<T, Trouble>> {
        match self {
            Ok(read) => read.map(Ok),
            Err(trouble) => Ok(Err(trouble)),
        }
    }
}

/// What a ticket stands for. Clients take it as it is; a history needs to know.
fn read(ticket: &str) -> Option<Claim> {
    let bytes = URL_SAFE_NO_PAD.decode(ticket).ok()?;
    let (_, content): (String, Value) = serde_json::from_slice(&bytes).ok()?;
    let (_, id, generation, _): (Uuid, Uuid, i64, Value) = serde_json::from_value(content).ok()?;
    Some(Claim { id, generation })
}

async fn claim(child: &Child, address: SocketAddr, owner: Uuid) -> Vec<Taken> {
    let (lease_ms, limit) = (child.lease_ms(), child.delivery_limit);
    let invoked = child.recorder.invoke(Call::Claim { queue: QUEUE, owner, lease_ms, limit });
    let body = json!({
        "owner": owner, "batch": 4, "lease_seconds": child.lease.as_secs_f64(), "delivery_limit": limit,
    });
    let answer = post(address, "/v1/outbox/claims", &body).await;
    let Some((invoked, claims)) = answered::<Claims>(invoked, answer) else { return Vec::new() };
    let item = |taken: &Taken| Item {
        id: taken.id,
        message: taken.message_id,
        generation: read(&taken.claim).map_or(0, |claim| claim.generation),
        attempt: taken.attempt,
        topic: taken.topic.clone(),
        key: taken.ordering_key.clone(),
        marker: Payload::marker_of(&taken.payload),
        claimed_at: None,
        until: None,
    };
    invoked.ok(Answer::Claimed {
        items: claims.items.iter().map(item).collect(),
        rejected: claims
            .rejected
            .into_iter()
            .map(|refused| Rejection { id: refused.id, reason: refused.reason })
            .collect(),
    });
    claims.items
}

async fn handle(child: &Child, address: SocketAddr, owner: Uuid, taken: Taken) {
    let Some(claim) = read(&taken.claim) else { return };
    let recorder = Arc::clone(&child.recorder);
    let handled = recorder.invoke(Call::Handle { queue: QUEUE, owner, claim });
    let payload = Payload::read(&taken.payload);
    tokio::time::sleep(Duration::from_millis(payload.ms)).await;
    handled.ok(Answer::Done);
    let (path, outcome) = match payload.act {
        Act::Fail => ("fail", Outcome::Fail),
        Act::Retry(times) if taken.attempt <= times => ("abandon", Outcome::Abandon),
        Act::Snooze if claim.is_to_be_snoozed() => ("release", Outcome::Release),
        // Whatever it would do in a transaction it cannot do over HTTP.
        Act::Ack | Act::Complete | Act::Retry(_) | Act::Snooze => ("ack", Outcome::Ack),
    };
    let mut body = json!({ "claims": [taken.claim] });
    if path == "abandon" {
        body["delay_seconds"] = json!(0.2);
    }
    let ends = vec![Ending { claim, outcome }];
    let invoked = child.recorder.invoke(Call::Settle { queue: QUEUE, owner, ends });
    let answer = post(address, &format!("/v1/outbox/claims/{path}"), &body).await;
    if let Some((invoked, settled)) = answered::<Settled>(invoked, answer) {
        invoked.ok(Answer::Changed { changed: settled.changed, stale: settled.stale });
    }
}
