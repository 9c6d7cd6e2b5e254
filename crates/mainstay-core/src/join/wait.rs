//! The topic `join.wait`: a message that waits for a join and then enqueues another. For programs that were written for it; a
//! continuation given at the start needs no message that waits.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::id::{JoinId, MessageId, WorkItemId};
use crate::outbox::Message;
use crate::queue::{Context, Handler, HandlerError, HandlerResult};

use super::{JOIN, Join, JoinState, Joins};

/// The topic.
pub const JOIN_WAIT: &str = "join.wait";

/// How `join.wait` messages wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitOptions {
    /// How long a message waits between two looks at a join that has not ended. Defaults to 1 s.
    pub pause: Duration,
}

impl Default for WaitOptions {
    fn default() -> Self {
        Self { pause: Duration::from_secs(1) }
    }
}

impl WaitOptions {
    /// Refuses a pause outside its bounds.
    pub fn validate(&self) -> Result<()> {
        if self.pause.is_zero() || self.pause > Duration::from_secs(24 * 3_600) {
            let reason = format_args!("must be above zero and at most 24 h, got {:?}", self.pause);
            return Err(Error::invalid("join.options", "pause", reason));
        }
        Ok(())
    }
}

/// What the message says.
#[derive(Deserialize)]
struct Payload {
    #[serde(rename = "joinId", alias = "JoinId")]
    join: JoinId,
    #[serde(rename = "failIfAnyStepFailed", alias = "FailIfAnyStepFailed", default = "yes")]
    fail_if_any_step_failed: bool,
    #[serde(rename = "onCompleteTopic", alias = "OnCompleteTopic", default)]
    on_complete_topic: Option<String>,
    #[serde(rename = "onCompletePayload", alias = "OnCompletePayload", default)]
    on_complete_payload: Option<Value>,
    #[serde(rename = "onFailTopic", alias = "OnFailTopic", default)]
    on_fail_topic: Option<String>,
    #[serde(rename = "onFailPayload", alias = "OnFailPayload", default)]
    on_fail_payload: Option<Value>,
}

const fn yes() -> bool {
    true
}

impl Payload {
    /// Whether the join counts as failed for this message.
    fn failed(&self, join: &Join) -> bool {
        match join.state {
            JoinState::Completed => self.fail_if_any_step_failed && join.failed > 0,
            // All steps have ended: told not to mind failed ones, it goes on.
            JoinState::Failed => self.fail_if_any_step_failed || join.remaining() > 0,
            JoinState::Pending | JoinState::Cancelled => true,
        }
    }

    /// What is to be enqueued, if anything.
    fn continuation(self, context: &Context, join: &Join) -> Option<Message> {
        let (outcome, topic, payload) = match self.failed(join) {
            false => ("completed", self.on_complete_topic, self.on_complete_payload),
            true => ("failed", self.on_fail_topic, self.on_fail_payload),
        };
        let topic = topic.filter(|topic| !topic.is_empty())?;
        let payload = match payload {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
        };
        let derived = |part: &str| derived(context.id(), outcome, part);
        let message = Message::new(topic, payload)
            .work_item_id(WorkItemId::from_uuid(derived("work item")))
            .message_id(MessageId::from_uuid(derived("message")))
            .reserved_header(JOIN, join.id.to_string());
        Some(match context.correlation_id() {
            Some(correlation) => message.correlation(correlation),
            None => message,
        })
    }
}

/// An id that is the same whenever it is made of the same: a UUID of version 8.
fn derived(waiting: WorkItemId, outcome: &str, part: &str) -> Uuid {
    let mut hash = Sha256::new_with_prefix("mainstay.join.wait\0");
    hash.update(waiting.as_uuid().as_bytes());
    hash.update(format!("\0{outcome}\0{part}"));
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// The handler of [`JOIN_WAIT`].
///
/// An unknown join fails the message. While the join has not ended the message waits, and no attempt of it is used up. Then the
/// continuation is enqueued and the message acked, in one transaction and so exactly once; without a topic for how the join
/// ended, it is acked alone. A cancelled join counts as failed.
pub fn wait_handler(joins: Joins, options: WaitOptions) -> Handler {
    Handler::raw(move |context| {
        let joins = joins.clone();
        async move { wait(&joins, options, context).await }
    })
}

async fn wait(joins: &Joins, options: WaitOptions, context: Context) -> HandlerResult {
    let payload: Payload = serde_json::from_str(context.payload()).map_err(|error| {
        // The category only: serde_json's own text may quote a value.
        HandlerError::fail(format_args!("the payload is not that of {JOIN_WAIT} ({:?})", error.classify()))
    })?;
    let Some(join) = joins.get(payload.join).await? else {
        return Err(HandlerError::fail(format_args!("there is no join {}", payload.join)));
    };
    if !join.has_ended() {
        return Err(HandlerError::snooze(options.pause));
    }
    let Some(continuation) = payload.continuation(&context, &join) else { return Ok(()) };
    let mut transaction = context.own_transaction().await?;
    transaction.enqueue(continuation).await?;
    Ok(transaction.complete().await?)
}
