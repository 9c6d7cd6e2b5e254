//! Messages in transactions of the application's own, beside rows of its own.

use anyhow::Result;
use mainstay::outbox::{EnqueueIn, EnqueueInBlocking, Enqueued, Message, Outbox, PreparedMessage};
use mainstay::sqlserver::Client;
use uuid::Uuid;

use crate::history::{Answer, Call, Invoked, Sent, Trouble, Within};

use super::Child;
use super::recorded::{enqueued, sent};
use super::session::Engine;
use super::trouble::{DriverError, before_commit, trouble};

/// The application's transactions, with the connection to SQL Server that they share: the first batches of a connection are
/// slow.
#[derive(Default)]
pub(super) struct Business {
    client: Option<Client>,
}

/// What a transaction writes.
struct Work<'a> {
    messages: &'a [PreparedMessage],
    ids: &'a [Uuid],
    within: Within,
}

impl Work<'_> {
    fn invoke<'a>(&self, child: &'a Child) -> Invoked<'a> {
        let messages: Vec<Sent> = self.messages.iter().map(sent).collect();
        child.recorder.invoke(Call::Enqueue { messages, within: self.within })
    }

    /// The statements for the rows of the application. The ids are UUIDs.
    fn inserts(&self) -> impl Iterator<Item = String> {
        self.ids.iter().map(|id| format!("insert into chaos_business values ('{id}')"))
    }
}

impl Business {
    /// Enqueues messages and writes a row for each. Then commits or rolls back.
    pub(super) async fn run(
        &mut self,
        child: &Child,
        outbox: &Outbox,
        messages: Vec<Message>,
        within: Within,
    ) {
        // With ids that are known before the call.
        let prepared: Vec<PreparedMessage> =
            messages.into_iter().filter_map(|message| message.prepare(outbox.limits()).ok()).collect();
        let ids: Vec<Uuid> = prepared.iter().map(|message| message.work_item().as_uuid()).collect();
        let work = Work { messages: &prepared, ids: &ids, within };
        match child.database.engine() {
            Engine::Postgres => in_postgres(child, outbox, &work).await,
            // Blocks, as a program does that has no runtime.
            Engine::Sqlite => tokio::task::block_in_place(|| in_sqlite(child, outbox, &work)),
            Engine::SqlServer => self.in_sql_server(child, outbox, &work).await,
        }
    }

    async fn in_sql_server(&mut self, child: &Child, outbox: &Outbox, work: &Work<'_>) {
        let client = match self.client.take() {
            Some(client) => Ok(client),
            None => child.database.sql_server_client().await,
        };
        let Ok(mut client) = client else { return };
        let invoked = work.invoke(child);
        // A client is dropped with whatever failed on it, and the server rolls back.
        let written = async {
            run(&mut client, "SET XACT_ABORT ON; BEGIN TRANSACTION".to_owned()).await?;
            for insert in work.inserts() {
                run(&mut client, insert).await?;
            }
            Ok::<_, DriverError>(())
        };
        if let Err(error) = written.await {
            return invoked.fail(before_commit(error));
        }
        let results = match client.enqueue_in(outbox.store().as_ref(), work.messages).await {
            Ok(results) => results,
            Err(error) => return invoked.fail(trouble(&error)),
        };
        if work.within == Within::Rollback {
            // Also if the answer is lost: nothing has committed it.
            let rolled_back = run(&mut client, "ROLLBACK TRANSACTION".to_owned()).await;
            self.client = rolled_back.is_ok().then_some(client);
            return invoked.ok(Answer::RolledBack);
        }
        match run(&mut client, "COMMIT TRANSACTION".to_owned()).await {
            Ok(()) => {
                self.client = Some(client);
                invoked.ok(enqueued(work.ids, &results));
            }
            Err(error) => error.record(invoked),
        }
    }
}

async fn run(client: &mut Client, batch: String) -> Result<(), DriverError> {
    client.simple_query(batch).await?.into_results().await?;
    Ok(())
}

async fn in_postgres(child: &Child, outbox: &Outbox, work: &Work<'_>) {
    let Ok(mut client) = child.database.client().await else { return };
    let invoked = work.invoke(child);
    let mut tx = match client.transaction().await {
        Ok(tx) => tx,
        Err(error) => return invoked.fail(before_commit(error)),
    };
    for insert in work.inserts() {
        if let Err(error) = tx.batch_execute(&insert).await {
            return invoked.fail(before_commit(error));
        }
    }
    let results = match tx.enqueue_in(outbox.store().as_ref(), work.messages).await {
        Ok(results) => results,
        Err(error) => return invoked.fail(trouble(&error)),
    };
    if work.within == Within::Rollback {
        // Also if the answer is lost: nothing has committed it.
        let _ = tx.rollback().await;
        return invoked.ok(Answer::RolledBack);
    }
    match tx.commit().await {
        Ok(()) => invoked.ok(enqueued(work.ids, &results)),
        Err(error) => DriverError::from(error).record(invoked),
    }
}

fn in_sqlite(child: &Child, outbox: &Outbox, work: &Work<'_>) {
    let Ok(mut connection) = child.database.connection() else { return };
    let invoked = work.invoke(child);
    let mut tx = match connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate) {
        Ok(tx) => tx,
        Err(error) => return invoked.fail(before_commit(error)),
    };
    for insert in work.inserts() {
        if let Err(error) = tx.execute(&insert, []) {
            return invoked.fail(before_commit(error));
        }
    }
    let plain = |message: &PreparedMessage| message.due().is_none() && message.idempotency_key().is_none();
    let is_third = work.ids.first().is_some_and(|id| id.as_u128() % 3 == 0);
    // The transaction is rolled back when this returns before its commit.
    let results = if work.messages.iter().all(plain) && is_third {
        match insert(&tx, work.messages) {
            Ok(results) => results,
            Err(error) => return invoked.fail(before_commit(error)),
        }
    } else {
        match EnqueueInBlocking::enqueue_in(&mut tx, outbox.store().as_ref(), work.messages) {
            Ok(results) => results,
            Err(error) => return invoked.fail(trouble(&error)),
        }
    };
    if work.within == Within::Rollback {
        let _ = tx.rollback();
        return invoked.ok(Answer::RolledBack);
    }
    match tx.commit() {
        Ok(()) => invoked.ok(enqueued(work.ids, &results)),
        Err(error) => invoked.unknown(Trouble { kind: "commit".to_owned(), text: error.to_string() }),
    }
}

/// Adds messages by plain SQL, as programs in other languages do.
fn insert(tx: &rusqlite::Transaction<'_>, messages: &[PreparedMessage]) -> rusqlite::Result<Vec<Enqueued>> {
    let insert =
        "insert into infra_outbox (id, message_id, topic, payload, ordering_key, priority, hold_on_failure)
        values (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let mut statement = tx.prepare_cached(insert)?;
    let mut results = Vec::new();
    for added in messages {
        let (work_item, message) = (added.work_item(), added.message());
        statement.execute(rusqlite::params![
            work_item.as_uuid().as_bytes().as_slice(),
            message.as_uuid().as_bytes().as_slice(),
            added.topic(),
            added.payload(),
            added.ordering_key(),
            added.priority(),
            added.hold_on_failure(),
        ])?;
        results.push(Enqueued { work_item, message, added: true });
    }
    Ok(results)
}
