//! The ledger of received messages: each method is one call of one public SQL function, in one round trip.
//!
//! Arguments and answers are texts, so that the same statements run on the program's own connections and in the transactions of
//! every driver (see `texts`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::audit::Actor;
use mainstay_core::inbox::{
    BeginAnswer, ContentHash, InboxEntry, InboxFilter, InboxKey, InboxPage, InboxRetention, LedgerStats,
    Mark, PreparedIncoming, Received, Reservation, ReservationEnd, Seen, answer,
};
use mainstay_core::store::{InboxStore, Names, StoreCall};
use mainstay_core::{OwnerToken, Result};

use crate::audit::actor;
use crate::contention::{Key, Wait};
use crate::parameters::{array, incoming_as_text};
use crate::pool::Connections;
use crate::statements::InboxStatements;
use crate::texts::Texts;

/// The ledger of received messages in PostgreSQL.
pub struct PostgresInbox {
    texts: Texts,
    statements: Arc<InboxStatements>,
}

impl PostgresInbox {
    pub(crate) fn new(connections: Connections, names: &Names) -> Result<Self> {
        Ok(Self {
            texts: Texts::new(connections, names, names.inbox()),
            statements: InboxStatements::shared(names)?,
        })
    }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn seconds(duration: Duration) -> Option<String> {
    Some(duration.as_secs_f64().to_string())
}

/// What transactions of other clients can have received as well.
fn received(key: &InboxKey) -> Key {
    Key::Received(key.source().to_owned(), key.message_id().to_owned())
}

fn hex(hash: Option<&ContentHash>) -> Option<String> {
    hash.map(ContentHash::to_string)
}

/// Source, message id, owner and generation.
fn held(reservation: &Reservation) -> [Option<String>; 4] {
    let Reservation { key, owner, generation } = reservation;
    [text(key.source()), text(key.message_id()), Some(owner.to_string()), Some(generation.to_string())]
}

fn held_and(reservation: &Reservation, last: Option<String>) -> [Option<String>; 5] {
    let [source, message_id, owner, generation] = held(reservation);
    [source, message_id, owner, generation, last]
}

#[async_trait]
impl InboxStore for PostgresInbox {
    fn identifier(&self) -> &str {
        self.texts.identifier()
    }

    async fn seen(&self, key: &InboxKey, hash: Option<&ContentHash>) -> Result<Seen> {
        let arguments = [text(key.source()), text(key.message_id()), hex(hash)];
        answer::seen(&self.texts.ask("inbox.seen", &self.statements.seen, arguments).await?)
    }

    async fn mark(&self, key: &InboxKey, mark: &Mark, by: Option<&Actor>) -> Result<bool> {
        const MARK: &str = "inbox.mark";
        let (source, message_id) = (text(key.source()), text(key.message_id()));
        let [by, about] = actor(by);
        let answers = match mark {
            Mark::Processing(lease) => {
                let arguments = [source, message_id, seconds(*lease), by, about];
                self.texts.ask(MARK, &self.statements.mark_processing, arguments).await?
            }
            Mark::Processed => {
                self.texts.ask(MARK, &self.statements.mark_processed, [source, message_id, by, about]).await?
            }
            Mark::Dead(error) => {
                let arguments = [source, message_id, error.clone(), by, about];
                self.texts.ask(MARK, &self.statements.mark_dead, arguments).await?
            }
        };
        answer::changed(MARK, &answers)
    }

    async fn begin(
        &self,
        key: &InboxKey,
        hash: Option<&ContentHash>,
        owner: OwnerToken,
        lease: Duration,
    ) -> Result<BeginAnswer> {
        let (source, message_id) = (text(key.source()), text(key.message_id()));
        let arguments = [source, message_id, Some(owner.to_string()), seconds(lease), hex(hash)];
        let (sql, keys) = (&self.statements.begin, vec![received(key)]);
        answer::begun(&self.texts.ask_in_turn("inbox.begin", sql, arguments, keys, Wait::Brief).await?)
    }

    async fn renew(&self, reservation: &Reservation, lease: Duration) -> Result<Option<Timestamp>> {
        let arguments = held_and(reservation, seconds(lease));
        answer::renewed(&self.texts.ask("inbox.renew", &self.statements.renew, arguments).await?)
    }

    async fn end(&self, reservation: &Reservation, end: &ReservationEnd) -> Result<bool> {
        const END: &str = "inbox.end";
        let sql = &self.statements;
        let answers = match end {
            ReservationEnd::Complete => self.texts.ask(END, &sql.complete, held(reservation)).await?,
            ReservationEnd::Fail(error) => {
                self.texts.ask(END, &sql.fail, held_and(reservation, error.clone())).await?
            }
            ReservationEnd::Release(error) => {
                self.texts.ask(END, &sql.release, held_and(reservation, error.clone())).await?
            }
        };
        answer::changed(END, &answers)
    }

    async fn enqueue(&self, messages: &[PreparedIncoming]) -> Result<Vec<Received>> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let arguments = incoming_as_text(messages);
        let (sql, keys) = (&self.statements.enqueue, messages.iter().map(|message| received(message.key())));
        let answers =
            self.texts.ask_in_turn("inbox.enqueue", sql, arguments, keys.collect(), Wait::Long).await?;
        answer::received(&answers)
    }

    async fn get(&self, key: &InboxKey) -> Result<Option<InboxEntry>> {
        const GET: &str = "inbox.get";
        let arguments = [text(key.source()), text(key.message_id())];
        Ok(answer::entries(GET, &self.texts.ask(GET, &self.statements.get, arguments).await?)?.pop())
    }

    async fn list(&self, filter: &InboxFilter, page: &InboxPage) -> Result<Vec<InboxEntry>> {
        const LIST: &str = "inbox.list";
        let after = page.after.as_ref();
        let arguments = [
            filter.source.clone(),
            filter.state.map(|state| state.code().to_string()),
            filter.topic.clone(),
            after.map(|key| key.source().to_owned()),
            after.map(|key| key.message_id().to_owned()),
            Some(page.limit.to_string()),
        ];
        answer::entries(LIST, &self.texts.ask(LIST, &self.statements.list, arguments).await?)
    }

    async fn revive(&self, keys: &[InboxKey], by: &Actor) -> Result<Vec<InboxKey>> {
        const REVIVE: &str = "inbox.revive";
        let sources = keys.iter().map(|key| text(key.source())).collect();
        let message_ids = keys.iter().map(|key| text(key.message_id())).collect();
        let [by, about] = actor(Some(by));
        let arguments = [array(Some(sources)), array(Some(message_ids)), by, about];
        answer::keys(REVIVE, &self.texts.ask(REVIVE, &self.statements.revive, arguments).await?)
    }

    async fn stats(&self) -> Result<LedgerStats> {
        answer::stats(&self.texts.ask("inbox.stats", &self.statements.stats, []).await?)
    }

    async fn forget(&self, retention: &InboxRetention, by: Option<&Actor>) -> Result<u64> {
        const FORGET: &str = "inbox.forget";
        let batch = Some(retention.batch.to_string());
        let (done, dead) = (retention.done.and_then(seconds), retention.dead.and_then(seconds));
        let [by, about] = actor(by);
        let arguments = [done, dead, batch, by, about];
        let (forgotten,): (u64,) =
            answer::only(FORGET, &self.texts.ask(FORGET, &self.statements.forget, arguments).await?)?;
        Ok(forgotten)
    }

    fn completion(&self, reservation: &Reservation) -> StoreCall {
        self.texts.call("inbox.complete_in", &self.statements.complete, held(reservation))
    }

    fn completed(&self, answers: &[String]) -> Result<bool> {
        answer::changed("inbox.complete_in", answers)
    }

    fn reception(&self, messages: &[PreparedIncoming]) -> StoreCall {
        self.texts.call("inbox.enqueue_in", &self.statements.enqueue, incoming_as_text(messages))
    }

    fn received(&self, answers: &[String]) -> Result<Vec<Received>> {
        answer::received(answers)
    }
}

impl std::fmt::Debug for PostgresInbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresInbox").field("identifier", &self.texts.identifier()).finish_non_exhaustive()
    }
}
