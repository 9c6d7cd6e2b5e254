//! The calls of a queue's procedures.

use std::time::Duration;

use mainstay_core::audit::Actor;
use mainstay_core::outbox::{MessageFilter, Page, PreparedMessage, Retention};
use mainstay_core::queue::{ClaimHandle, ClaimRequest, Settlement, Status};
use mainstay_core::store::{Names, Queue, Step};
use mainstay_core::{OwnerToken, WorkItemId};

use crate::parameters::{Call, claims, ids, messages, named, settlements};

/// What a page of an export holds at most, in UTF-16: it is in memory as a whole, here and on its way.
const PAGE_BYTES: i64 = 4 << 20;

/// The calls of one queue's procedures, by the names they have.
pub(crate) struct QueueProcedures {
    names: Names,
}

impl QueueProcedures {
    /// For the queue that `names` are for.
    pub(crate) fn new(names: &Names) -> Self {
        Self { names: names.clone() }
    }

    pub(crate) fn queue(&self) -> Queue {
        self.names.kind()
    }

    fn call(&self, verb: &str) -> Call {
        Call::new(&named(&self.names, &self.names.queue(), verb))
    }

    pub(crate) fn enqueue(&self, all: &[PreparedMessage]) -> Step {
        let (messages, bodies) = messages(all);
        self.call("EnqueueMany").text("Messages", messages).text("Bodies", bodies).step()
    }

    pub(crate) fn claim(&self, request: &ClaimRequest) -> Step {
        let call = self.call("Claim").owner(request.owner).seconds("LeaseSeconds", request.lease);
        let call = call.integer("BatchSize", request.batch).integer("DeliveryLimit", request.delivery_limit);
        let call =
            call.topics("OnlyTopics", &request.only_topics).topics("ExceptTopics", &request.except_topics);
        call.telling_of_joins().step()
    }

    pub(crate) fn settle(&self, owner: OwnerToken, all: &[Settlement], keep_payload: bool) -> Step {
        let call = self.call("Settle").owner(owner).text("Settlements", settlements(all));
        call.flag("KeepPayload", keep_payload).telling_of_joins().step()
    }

    pub(crate) fn renew(&self, owner: OwnerToken, all: &[ClaimHandle], lease: Duration) -> Step {
        self.call("RenewMany").owner(owner).text("Claims", claims(all)).seconds("LeaseSeconds", lease).step()
    }

    pub(crate) fn reap(&self, batch: u32) -> Step {
        self.call("ReapExpired").integer("MaxRows", batch).step()
    }

    pub(crate) fn get(&self, id: WorkItemId) -> Step {
        self.call("Get").id("Id", id.as_uuid()).step()
    }

    pub(crate) fn list(&self, filter: &MessageFilter, page: &Page) -> Step {
        let call =
            self.filtered(self.call("List"), filter).maybe_integer("Status", filter.status.map(Status::code));
        call.maybe_id("Before", page.before.map(|id| id.as_uuid())).integer("MaxRows", page.limit).step()
    }

    pub(crate) fn export(&self, filter: &MessageFilter, after: Option<i64>, rows: u32) -> Step {
        let call = self.filtered(self.call("Export"), filter);
        let call = call.maybe_integer("Status", filter.status.map(Status::code));
        call.maybe_integer("After", after).integer("MaxRows", rows).integer("MaxBytes", PAGE_BYTES).step()
    }

    fn filtered(&self, call: Call, filter: &MessageFilter) -> Call {
        let call = call.maybe_text("Topic", filter.topic.as_deref());
        let call = call.maybe_text("Reason", filter.reason.map(|reason| reason.as_str()));
        let call = call.maybe_text("CorrelationId", filter.correlation_id.as_deref());
        call.maybe_moment("SettledAfter", filter.settled_after)
            .maybe_moment("SettledBefore", filter.settled_before)
    }

    pub(crate) fn cancel(&self, all: &[WorkItemId], by: Option<&Actor>) -> Step {
        self.call("CancelMany").text("Ids", ids(all)).actor(by).telling_of_joins().step()
    }

    pub(crate) fn requeue(&self, all: &[WorkItemId], by: &Actor) -> Step {
        self.call("RequeueMany").text("Ids", ids(all)).actor(Some(by)).step()
    }

    pub(crate) fn requeue_where(&self, filter: &MessageFilter, limit: u32, by: &Actor) -> Step {
        self.filtered(self.call("RequeueWhere"), filter).integer("MaxRows", limit).actor(Some(by)).step()
    }

    pub(crate) fn release_key(&self, key: &str, by: &Actor) -> Step {
        self.call("ReleaseKey").text("OrderingKey", key).actor(Some(by)).step()
    }

    pub(crate) fn pause(&self, topic: &str, reason: Option<&str>, by: &Actor) -> Step {
        self.call("Pause").text("Topic", topic).maybe_text("Reason", reason).actor(Some(by)).step()
    }

    pub(crate) fn resume(&self, topic: &str, by: &Actor) -> Step {
        self.call("Resume").text("Topic", topic).actor(Some(by)).step()
    }

    pub(crate) fn paused(&self) -> Step {
        self.call("ListPaused").step()
    }

    pub(crate) fn stats(&self, whole: bool) -> Step {
        self.call("Stats").flag("Whole", whole).step()
    }

    pub(crate) fn purge(&self, retention: &Retention, by: Option<&Actor>) -> Step {
        let call = self.call("Purge").maybe_seconds("DoneOlderThanSeconds", retention.done);
        let call = call.maybe_seconds("FailedOlderThanSeconds", retention.failed);
        call.integer("MaxRows", retention.batch).actor(by).step()
    }

    pub(crate) fn forward(&self, owner: OwnerToken, batch: u32, keep_payload: bool) -> Step {
        self.call("Forward").owner(owner).integer("BatchSize", batch).flag("KeepPayload", keep_payload).step()
    }

    pub(crate) fn next_due(&self, only: &[String], except: &[String]) -> Step {
        self.call("NextDue").topics("OnlyTopics", only).topics("ExceptTopics", except).step()
    }
}
