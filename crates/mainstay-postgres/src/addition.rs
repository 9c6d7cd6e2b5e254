//! Adding messages: which statement it takes, and what comes of it.

use mainstay_core::Result;
use mainstay_core::outbox::{Enqueued, PreparedMessage};
use tokio_postgres::Row;

use crate::contention::{Key, Turns, Wait};
use crate::error::from_driver;
use crate::parameters::{Many, One};
use crate::pool::{Connections, Parameter};
use crate::rows;
use crate::session::Session;
use crate::statements::QueueStatements;

const ENQUEUE: &str = "outbox.enqueue";

/// One statement that adds all of the messages, in the caller's transaction or in one of its own.
pub(crate) struct Addition<'a> {
    messages: &'a [PreparedMessage],
    form: Form<'a>,
}

enum Form<'a> {
    One(One<'a>),
    Many(Box<Many<'a>>),
}

impl<'a> Addition<'a> {
    pub(crate) fn new(messages: &'a [PreparedMessage]) -> Self {
        let form = match messages {
            [message] if is_independent(message) => Form::One(One::new(message)),
            messages => Form::Many(Box::new(Many::new(messages))),
        };
        Self { messages, form }
    }

    /// Adds them in a transaction of its own.
    pub(crate) async fn by(
        &self,
        connections: &Connections,
        statements: &QueueStatements,
        turns: &Turns,
    ) -> Result<Vec<Enqueued>> {
        let (sql, parameters) = self.statement(statements);
        let rows = match self.messages.iter().all(is_independent) {
            true => connections.query(ENQUEUE, sql, &parameters).await?,
            false => {
                let keys = self.messages.iter().flat_map(keys).collect();
                connections.query_in_turn(ENQUEUE, sql, &parameters, turns.take(keys), Wait::Long).await?
            }
        };
        self.enqueued(&rows)
    }

    /// Adds them in whatever transaction the connection is in.
    pub(crate) async fn on(
        &self,
        session: Session<'_>,
        statements: &QueueStatements,
    ) -> Result<Vec<Enqueued>> {
        let (sql, parameters) = self.statement(statements);
        let rows = session.query(sql, &parameters).await;
        self.enqueued(&rows.map_err(|error| from_driver(ENQUEUE, error))?)
    }

    fn statement<'s>(&'s self, statements: &'s QueueStatements) -> (&'s str, Vec<Parameter<'s>>) {
        match &self.form {
            Form::One(one) if is_plain(&self.messages[0]) => {
                (&statements.add_plain, one.parameters().into_iter().take(One::PLAIN).collect())
            }
            Form::One(one) => (&statements.add_one, one.parameters().into()),
            Form::Many(many) if many.has_joins() => {
                (&statements.enqueue_joined, many.parameters().into_iter().chain(many.joined()).collect())
            }
            Form::Many(many) if many.has_keys() => (&statements.enqueue_many, many.parameters().into()),
            Form::Many(many) if many.has_own_ids() => {
                let plain = many.parameters().into_iter().take(Many::PLAIN);
                (&statements.add_once, plain.chain([many.own()]).collect())
            }
            Form::Many(many) => (&statements.add, many.parameters().into_iter().take(Many::PLAIN).collect()),
        }
    }

    /// Without idempotency keys all are added under the ids they came with.
    fn enqueued(&self, rows: &[Row]) -> Result<Vec<Enqueued>> {
        match &self.form {
            Form::Many(many) if many.has_joins() || many.has_keys() => rows::enqueued(rows),
            _ => Ok(self.messages.iter().map(added).collect()),
        }
    }
}

fn added(message: &PreparedMessage) -> Enqueued {
    Enqueued { work_item: message.work_item(), message: message.message(), added: true }
}

/// What other messages can have as well. Not its joins: many messages have the same, and they rarely wait for each other there.
fn keys(message: &PreparedMessage) -> impl Iterator<Item = Key> {
    let id = message.has_own_id().then(|| Key::Id(message.work_item().as_uuid()));
    let idempotency = message.idempotency_key().map(|key| Key::Idempotency(key.to_owned()));
    id.into_iter().chain(idempotency)
}

/// Whether a message is added whatever else is there, and waits for no other transaction: it has no idempotency key, no joins and no
/// id that another message can have.
pub(crate) fn is_independent(message: &PreparedMessage) -> bool {
    message.idempotency_key().is_none() && message.joins().is_empty() && !message.has_own_id()
}

/// Nothing but what every message has.
fn is_plain(message: &PreparedMessage) -> bool {
    message.due().is_none()
        && message.expires().is_none()
        && message.ordering_key().is_none()
        && message.priority() == 0
        && !message.hold_on_failure()
}
