//! The ledger of received messages: each method is one call of one procedure, in one round trip.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::audit::Actor;
use mainstay_core::inbox::{
    BeginAnswer, ContentHash, InboxEntry, InboxFilter, InboxKey, InboxPage, InboxRetention, LedgerStats,
    Mark, PreparedIncoming, Received, Reservation, ReservationEnd, Seen, answer,
};
use mainstay_core::store::{InboxStore, Names, Queue, StoreCall};
use mainstay_core::{OwnerToken, Result};
use serde_json::{Map, Value, json};

use crate::parameters::{Call, bodies, listed, message};
use crate::pool::Connections;
use crate::texts::Texts;
use crate::waiting::Signals;

/// The ledger of received messages in SQL Server.
pub struct SqlServerInbox {
    texts: Texts,
    signals: Signals,
}

impl SqlServerInbox {
    pub(crate) fn new(connections: Connections, names: &Names, signals: Signals) -> Self {
        Self { texts: Texts::new(connections, names, names.inbox()), signals }
    }

    fn keyed(&self, verb: &str, key: &InboxKey) -> Call {
        self.texts.procedure(verb).text("Source", key.source()).text("MessageId", key.message_id())
    }

    fn held(&self, verb: &str, reservation: &Reservation) -> Call {
        let call = self.keyed(verb, &reservation.key).owner(reservation.owner);
        call.integer("Generation", reservation.generation)
    }

    fn receiving(&self, messages: &[PreparedIncoming]) -> Call {
        let list =
            messages.iter().zip(1..).map(|(incoming, place)| Value::Object(received_as(place, incoming)));
        let bodies =
            bodies(messages.iter().map(|incoming| (incoming.message().payload(), Some(headers(incoming)))));
        let call =
            self.texts.procedure("ReceiveMany").text("Messages", Value::Array(list.collect()).to_string());
        call.text("Bodies", bodies)
    }

    fn signal(&self) {
        self.signals.signal(Queue::Inbox);
    }
}

/// A received message as an object.
fn received_as(place: usize, incoming: &PreparedIncoming) -> Map<String, Value> {
    let mut object = message(place, incoming.message());
    object.insert("source".to_owned(), listed(incoming.key().source()));
    object.insert("key".to_owned(), listed(incoming.key().message_id()));
    object.insert("hash".to_owned(), incoming.hash().to_string().into());
    object
}

/// Its headers. Where it came from stands there too, for whoever handles it.
fn headers(incoming: &PreparedIncoming) -> String {
    let own = incoming
        .message()
        .headers_json()
        .and_then(|json| serde_json::from_str::<Map<String, Value>>(&json).ok());
    let mut headers = own.unwrap_or_default();
    headers.insert("mainstay-source".to_owned(), incoming.key().source().into());
    headers.insert("mainstay-message-id".to_owned(), incoming.key().message_id().into());
    Value::Object(headers).to_string()
}

#[async_trait]
impl InboxStore for SqlServerInbox {
    fn identifier(&self) -> &str {
        self.texts.identifier()
    }

    async fn seen(&self, key: &InboxKey, hash: Option<&ContentHash>) -> Result<Seen> {
        let call = self.keyed("AlreadyProcessed", key).maybe_text("Hash", hash.map(ContentHash::to_string));
        answer::seen(&self.texts.ask("inbox.seen", call).await?)
    }

    async fn mark(&self, key: &InboxKey, mark: &Mark, by: Option<&Actor>) -> Result<bool> {
        const MARK: &str = "inbox.mark";
        let call = self.keyed("Mark", key).text("As", mark.as_str()).actor(by);
        let call = match mark {
            Mark::Processing(lease) => call.seconds("LeaseSeconds", *lease),
            Mark::Processed => call,
            Mark::Dead(error) => call.maybe_text("Error", error.as_deref()),
        };
        let changed = answer::changed(MARK, &self.texts.ask(MARK, call).await?)?;
        // What stood behind it in its ordering key may be ready now.
        self.signal();
        Ok(changed)
    }

    async fn begin(
        &self,
        key: &InboxKey,
        hash: Option<&ContentHash>,
        owner: OwnerToken,
        lease: Duration,
    ) -> Result<BeginAnswer> {
        let call = self.keyed("Begin", key).owner(owner).seconds("LeaseSeconds", lease);
        let call = call.maybe_text("Hash", hash.map(ContentHash::to_string));
        answer::begun(&self.texts.ask("inbox.begin", call).await?)
    }

    async fn renew(&self, reservation: &Reservation, lease: Duration) -> Result<Option<Timestamp>> {
        let call = self.held("GuardRenew", reservation).seconds("LeaseSeconds", lease);
        answer::renewed(&self.texts.ask("inbox.renew", call).await?)
    }

    async fn end(&self, reservation: &Reservation, end: &ReservationEnd) -> Result<bool> {
        const END: &str = "inbox.end";
        let (state, error) = match end {
            ReservationEnd::Complete => (2, None),
            ReservationEnd::Fail(error) => (3, error.as_deref()),
            ReservationEnd::Release(error) => (0, error.as_deref()),
        };
        let call = self.held("GuardEnd", reservation).integer("State", state).maybe_text("Error", error);
        let changed = answer::changed(END, &self.texts.ask(END, call).await?)?;
        self.signal();
        Ok(changed)
    }

    async fn enqueue(&self, messages: &[PreparedIncoming]) -> Result<Vec<Received>> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.texts.ask("inbox.enqueue", self.receiving(messages)).await?;
        self.signal();
        answer::received(&answers)
    }

    async fn get(&self, key: &InboxKey) -> Result<Option<InboxEntry>> {
        const GET: &str = "inbox.get";
        Ok(answer::entries(GET, &self.texts.ask(GET, self.keyed("Entries", key)).await?)?.pop())
    }

    async fn list(&self, filter: &InboxFilter, page: &InboxPage) -> Result<Vec<InboxEntry>> {
        const LIST: &str = "inbox.list";
        let call = self.texts.procedure("Entries").maybe_text("Source", filter.source.as_deref());
        let call = call.maybe_integer("State", filter.state.map(|state| state.code()));
        let call = call.maybe_text("Topic", filter.topic.as_deref());
        let after = page.after.as_ref();
        let call = call.maybe_text("AfterSource", after.map(InboxKey::source));
        let call = call.maybe_text("AfterMessageId", after.map(InboxKey::message_id));
        answer::entries(LIST, &self.texts.ask(LIST, call.integer("MaxRows", page.limit)).await?)
    }

    async fn revive(&self, keys: &[InboxKey], by: &Actor) -> Result<Vec<InboxKey>> {
        const REVIVE: &str = "inbox.revive";
        let object =
            |key: &InboxKey| json!({ "source": listed(key.source()), "key": listed(key.message_id()) });
        let list = Value::Array(keys.iter().map(object).collect()).to_string();
        let call = self.texts.procedure("Revive").text("Keys", list).actor(Some(by));
        let revived = answer::keys(REVIVE, &self.texts.ask(REVIVE, call).await?)?;
        self.signal();
        Ok(revived)
    }

    async fn stats(&self) -> Result<LedgerStats> {
        answer::stats(&self.texts.ask("inbox.stats", self.texts.procedure("LedgerStats")).await?)
    }

    async fn forget(&self, retention: &InboxRetention, by: Option<&Actor>) -> Result<u64> {
        const FORGET: &str = "inbox.forget";
        let call = self.texts.procedure("Forget").maybe_seconds("DoneOlderThanSeconds", retention.done);
        let call = call
            .maybe_seconds("DeadOlderThanSeconds", retention.dead)
            .integer("MaxRows", retention.batch)
            .actor(by);
        let (forgotten,): (u64,) = answer::only(FORGET, &self.texts.ask(FORGET, call).await?)?;
        Ok(forgotten)
    }

    fn completion(&self, reservation: &Reservation) -> StoreCall {
        self.texts.call("inbox.complete_in", self.held("GuardEnd", reservation).integer("State", 2))
    }

    fn completed(&self, answers: &[String]) -> Result<bool> {
        answer::changed("inbox.complete_in", answers)
    }

    fn reception(&self, messages: &[PreparedIncoming]) -> StoreCall {
        self.texts.call("inbox.enqueue_in", self.receiving(messages))
    }

    fn received(&self, answers: &[String]) -> Result<Vec<Received>> {
        answer::received(answers)
    }
}

impl std::fmt::Debug for SqlServerInbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlServerInbox").field("identifier", &self.texts.identifier()).finish_non_exhaustive()
    }
}
