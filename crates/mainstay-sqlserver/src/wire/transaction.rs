//! What is done in transactions, the application's own and handlers', when a call in one fails or is given up.

use std::sync::Arc;

use mainstay_core::ErrorKind;
use mainstay_core::store::{CallIn, Names, Queue, StoreCall, StoreTransaction};

use super::server::{Reply, Server, read, step, wide};
use crate::adapter::Origin;
use crate::pool::Connections;
use crate::procedures::QueueProcedures;
use crate::transaction::SqlServerTransaction;

pub(super) fn call() -> StoreCall {
    let (store, origin) = ("shop".to_owned(), Arc::new(Origin));
    StoreCall { operation: "test", store, origin, steps: vec![step()] }
}

/// A handler's transaction. Its beginning is the first thing that the server is asked.
pub(super) async fn begun(pool: &Connections) -> Box<SqlServerTransaction> {
    let outbox = Arc::new(QueueProcedures::new(&Names::default().of(Queue::Outbox)));
    let (store, connections, procedures) = ("shop".to_owned(), pool.clone(), Arc::clone(&outbox));
    let begun = SqlServerTransaction::begin(store, connections, procedures, outbox, true).await;
    Box::new(begun.unwrap())
}

/// Whether the next thing that the server was asked has this in it.
async fn was_asked(server: &mut Server, words: &str) -> bool {
    let (sent, words) = (server.queries.recv().await.unwrap(), wide(words));
    sent.windows(words.len()).any(|part| part == words)
}

/// Waits for something until the server has been asked once more, and gives it up then.
async fn given_up<T>(server: &mut Server, work: impl Future<Output = T>) {
    tokio::select! {
        biased;
        asked = server.queries.recv() => drop(asked.unwrap()),
        _ = work => panic!("the server has not answered"),
    }
}

#[tokio::test]
async fn nothing_is_done_beside_a_transaction_that_is_gone() {
    let mut server = Server::start(vec![Reply::Error(1205), Reply::Error(50_005)]).await;
    let mut client = server.pool(1).open_one("test").await.unwrap().into_client();
    // A deadlock has ended the transaction: to try this call again would be to do it alone.
    let victim = client.call_in(&call()).await.unwrap_err();
    assert_eq!((victim.kind(), victim.is_retryable()), (ErrorKind::Conflict, false));
    let refused = client.call_in(&call()).await.unwrap_err();
    assert_eq!((refused.field(), refused.is_retryable()), (Some("tx"), false));
    // It is the server who looks, in the same batch.
    assert!(was_asked(&mut server, "IF @@TRANCOUNT = 0 THROW 50005").await);
}

#[tokio::test]
async fn after_a_call_that_failed_nothing_is_asked_but_to_roll_back() {
    let mut server = Server::start(vec![Reply::Number(0), Reply::Error(547)]).await;
    let pool = server.pool(1);
    let mut transaction = begun(&pool).await;
    assert!(was_asked(&mut server, "BEGIN TRANSACTION").await);
    let failed = transaction.call(&call()).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::InvalidArgument);
    assert!(was_asked(&mut server, "SELECT @P1").await);
    let refused = transaction.call(&call()).await.unwrap_err();
    assert_eq!((refused.kind(), refused.is_retryable()), (ErrorKind::Conflict, false));
    transaction.rollback().await.unwrap();
    assert!(was_asked(&mut server, "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION").await);
    // The server has confirmed that, so the connection is as good as any.
    pool.run("test", &step()).await.unwrap();
    assert_eq!(server.opened(), 1);
}

#[tokio::test]
async fn a_transaction_in_which_a_call_failed_is_not_committed() {
    let mut server = Server::start(vec![Reply::Number(0), Reply::Error(547), Reply::Number(9)]).await;
    let pool = server.pool(1);
    let mut transaction = begun(&pool).await;
    transaction.call(&call()).await.unwrap_err();
    assert_eq!(transaction.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
    // With the connection goes the transaction, whatever was left of it.
    server.ended.wait_for(|ended| *ended == 1).await.unwrap();
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 9, "nobody was asked to commit");
    assert_eq!(server.opened(), 2);
}

#[tokio::test]
async fn a_call_that_is_given_up_takes_the_transaction_along() {
    let mut server = Server::start(vec![Reply::Number(0), Reply::Silence]).await;
    let pool = server.pool(1);
    let mut transaction = begun(&pool).await;
    assert!(was_asked(&mut server, "BEGIN TRANSACTION").await);
    given_up(&mut server, transaction.call(&call())).await;
    server.ended.wait_for(|ended| *ended == 1).await.unwrap();
    assert_eq!(transaction.call(&call()).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(transaction.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
    pool.run("test", &step()).await.unwrap();
    assert_eq!(server.opened(), 2);
}

#[tokio::test]
async fn so_does_a_commit() {
    let mut server = Server::start(vec![Reply::Number(0), Reply::Silence]).await;
    let pool = server.pool(1);
    let transaction = begun(&pool).await;
    assert!(was_asked(&mut server, "BEGIN TRANSACTION").await);
    given_up(&mut server, transaction.commit()).await;
    server.ended.wait_for(|ended| *ended == 1).await.unwrap();
    pool.run("test", &step()).await.unwrap();
    assert_eq!(server.opened(), 2);
}

#[tokio::test]
async fn a_commit_that_the_server_does_not_confirm_is_an_error_and_costs_the_connection() {
    for (reply, kind) in [(Reply::Error(1205), ErrorKind::Conflict), (Reply::End, ErrorKind::Unavailable)] {
        let mut server = Server::start(vec![Reply::Number(0), reply]).await;
        let pool = server.pool(1);
        let transaction = begun(&pool).await;
        assert_eq!(transaction.commit().await.unwrap_err().kind(), kind);
        server.ended.wait_for(|ended| *ended == 1).await.unwrap();
        pool.run("test", &step()).await.unwrap();
        assert_eq!(server.opened(), 2);
    }
}

#[tokio::test]
async fn a_rollback_on_a_connection_that_is_gone_has_happened() {
    let mut server = Server::start(vec![Reply::Number(0), Reply::End]).await;
    let transaction = begun(&server.pool(1)).await;
    transaction.rollback().await.unwrap();
    server.ended.wait_for(|ended| *ended == 1).await.unwrap();
}
