//! The calls, with their arguments.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Begins every text that is in a payload and must be in no log.
pub const MARKER: &str = "chaos-marker-";

/// A work queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueName {
    /// Messages.
    Outbox,
    /// Received messages.
    Inbox,
    /// Timers.
    Timers,
    /// Runs of jobs.
    Runs,
}

/// A message as its sender describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Its id.
    pub id: Uuid,
    /// Its topic.
    pub topic: String,
    /// Its ordering key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// A text that is in the payload and must be in no log. It begins with [`MARKER`].
    pub marker: String,
    /// Delay until it is due.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delay_ms: u64,
    /// The join it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<Uuid>,
    /// The idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// What a message is added in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Within {
    /// Its own statement.
    Alone,
    /// The caller's transaction, which is then committed.
    Commit,
    /// The caller's transaction, which is then rolled back: no worker may ever see the message.
    Rollback,
}

/// A claim of a work item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Claim {
    /// The item.
    pub id: Uuid,
    /// Which claim of it.
    pub generation: i64,
}

impl Claim {
    /// Whether a handler that snoozes does so at this claim: at every other one, and a few times only. Not by the attempt,
    /// because a snoozed delivery does not count. The low bits of a generation count an item's claims.
    pub const fn is_to_be_snoozed(self) -> bool {
        let claims = self.generation & 0xffff;
        claims % 2 == 1 && claims < 8
    }
}

/// What becomes of a claimed item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Handled.
    Ack,
    /// To be tried again; the delivery counts.
    Abandon,
    /// Given back; the delivery does not count.
    Release,
    /// Failed for good.
    Fail,
    /// Failed for good without a delivery.
    Reject,
}

/// A claim and what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// The claim.
    pub claim: Claim,
    /// What becomes of it.
    pub outcome: Outcome,
}

/// A call. The owner is that of the claims, as a UUID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Adds messages, all or none. Answered with `enqueued`; with `rolled_back` when that was intended.
    Enqueue {
        /// The messages.
        messages: Vec<Sent>,
        /// In which transaction.
        within: Within,
    },
    /// Takes due work. Answered with `claimed`.
    Claim {
        /// The queue.
        queue: QueueName,
        /// Who claims.
        owner: Uuid,
        /// How long the claims hold.
        lease_ms: u64,
        /// Deliveries an item may have.
        limit: u32,
    },
    /// Ends claims. Answered with `changed`.
    Settle {
        /// The queue.
        queue: QueueName,
        /// Whose claims.
        owner: Uuid,
        /// What becomes of each.
        ends: Vec<Ending>,
    },
    /// Extends claims. Answered with `changed`.
    Renew {
        /// The queue.
        queue: QueueName,
        /// Whose claims.
        owner: Uuid,
        /// The claims.
        claims: Vec<Claim>,
        /// How long they hold from then on.
        lease_ms: u64,
    },
    /// Runs a handler. Its answer is when the handler returned.
    Handle {
        /// The queue.
        queue: QueueName,
        /// Who claimed.
        owner: Uuid,
        /// The claim.
        claim: Claim,
    },
    /// Writes an effect and acks, in one transaction. Answered with `done`.
    Complete {
        /// The queue.
        queue: QueueName,
        /// Who claimed.
        owner: Uuid,
        /// The claim.
        claim: Claim,
    },
    /// Makes items that are due messages under the same ids. Answered with `changed`.
    Forward {
        /// Timers or runs.
        queue: QueueName,
        /// Who claims.
        owner: Uuid,
    },
    /// Makes work with a lapsed lease Ready. Answered with `count`.
    Reap {
        /// The queue.
        queue: QueueName,
    },
    /// Fails Ready messages. Answered with `changed`.
    Cancel {
        /// The messages.
        ids: Vec<Uuid>,
    },
    /// Makes Failed messages Ready. Answered with `changed`.
    Requeue {
        /// The messages; empty for a filter.
        ids: Vec<Uuid>,
    },
    /// Ends the hold on an ordering key. Answered with `flag`.
    ReleaseKey {
        /// The key.
        key: String,
    },
    /// Pauses a topic. Answered with `flag`.
    Pause {
        /// The topic.
        topic: String,
    },
    /// Resumes a topic. Answered with `flag`.
    Resume {
        /// The topic.
        topic: String,
    },
    /// Deletes Done messages of the outbox. Answered with `count`.
    Purge {
        /// Older than this.
        age_ms: u64,
    },
    /// Acquires a lease. Answered with `granted` or `held`.
    Acquire {
        /// The lease.
        name: String,
        /// Who asks.
        owner: String,
        /// For how long.
        lease_ms: u64,
    },
    /// Renews a lease. Answered with `granted` or `held`.
    Prolong {
        /// The lease.
        name: String,
        /// Under which epoch it was acquired.
        epoch: i64,
        /// For how long.
        lease_ms: u64,
    },
    /// Gives a lease up. Answered with `flag`.
    GiveUp {
        /// The lease.
        name: String,
        /// Under which epoch it was acquired.
        epoch: i64,
    },
    /// Takes a lease away from its holder. Answered with `flag`.
    ForceRelease {
        /// The lease.
        name: String,
    },
    /// Guards a lease in a transaction, writes a row with the epoch in it, and commits. Answered with `done`.
    GuardedWrite {
        /// The lease.
        name: String,
        /// Under which epoch it was acquired.
        epoch: i64,
        /// Which write of the process this is: the row's unique value.
        value: Uuid,
    },
    /// Learns which buckets the node owns. Answered with `owned`.
    Own {
        /// How long a bucket is held without a renewal.
        lease_ms: u64,
    },
    /// Receives a message into the inbox's queue. Answered with `received`.
    Receive {
        /// Where it comes from.
        source: String,
        /// Its id there.
        id: String,
        /// A text that is in the payload and must be in no log. It begins with [`MARKER`].
        marker: String,
    },
    /// Reserves a received message. Answered with `begun`.
    Begin {
        /// Where it comes from.
        source: String,
        /// Its id there.
        id: String,
        /// How long the reservation holds.
        lease_ms: u64,
    },
    /// Writes an effect and completes a reservation, in one transaction. Answered with `done`.
    Finish {
        /// Where it comes from.
        source: String,
        /// Its id there.
        id: String,
        /// The reservation's generation.
        generation: i64,
    },
    /// Adds timers. Answered with `enqueued`. A timer becomes a message under its id.
    Schedule {
        /// The messages that they become.
        messages: Vec<Sent>,
    },
    /// Fails timers that have not been promoted. Answered with `changed`.
    CancelTimers {
        /// The timers.
        ids: Vec<Uuid>,
    },
    /// Saves a job. Answered with `done`.
    SaveJob {
        /// Its name.
        name: String,
        /// How often it is due.
        every_ms: u64,
    },
    /// Writes the runs of a job that are due. Answered with `runs`.
    Materialise,
    /// Makes a join and its members, with a continuation. Answered with `done`.
    Join {
        /// The join.
        id: Uuid,
        /// Its members.
        members: Vec<Sent>,
        /// The message that follows, when all of them have ended.
        continuation: Sent,
    },
    /// Deploys the schema. Answered with `done`.
    Deploy,
}

impl Call {
    /// The kind of the call, as `verdict.json` counts it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Enqueue { .. } => "enqueue",
            Self::Claim { .. } => "claim",
            Self::Settle { .. } => "settle",
            Self::Renew { .. } => "renew",
            Self::Handle { .. } => "handle",
            Self::Complete { .. } => "complete",
            Self::Forward { .. } => "forward",
            Self::Reap { .. } => "reap",
            Self::Cancel { .. } => "cancel",
            Self::Requeue { .. } => "requeue",
            Self::ReleaseKey { .. } => "release_key",
            Self::Pause { .. } => "pause",
            Self::Resume { .. } => "resume",
            Self::Purge { .. } => "purge",
            Self::Acquire { .. } => "acquire",
            Self::Prolong { .. } => "prolong",
            Self::GiveUp { .. } => "give_up",
            Self::ForceRelease { .. } => "force_release",
            Self::GuardedWrite { .. } => "guarded_write",
            Self::Own { .. } => "own",
            Self::Receive { .. } => "receive",
            Self::Begin { .. } => "begin",
            Self::Finish { .. } => "finish",
            Self::Schedule { .. } => "schedule",
            Self::CancelTimers { .. } => "cancel_timers",
            Self::SaveJob { .. } => "save_job",
            Self::Materialise => "materialise",
            Self::Join { .. } => "join",
            Self::Deploy => "deploy",
        }
    }

    /// The queue that the call names.
    pub const fn queue(&self) -> Option<QueueName> {
        match self {
            Self::Claim { queue, .. }
            | Self::Settle { queue, .. }
            | Self::Renew { queue, .. }
            | Self::Handle { queue, .. }
            | Self::Complete { queue, .. }
            | Self::Forward { queue, .. }
            | Self::Reap { queue } => Some(*queue),
            _ => None,
        }
    }
}
