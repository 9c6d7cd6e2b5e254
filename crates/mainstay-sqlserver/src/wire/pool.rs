//! What happens to the pool's connections when operations are given up, fail, or meet a server that says nothing.

use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::store::{ConnectionGate, StoreTransaction};
use tokio::time::Instant;

use super::server::{Reply, Server, Welcome, read, step, wide};
use super::transaction::begun as begun_transaction;
use crate::pool::Connections;

#[tokio::test]
async fn a_connection_is_used_again_once_its_answer_is_complete() {
    let server = Server::start(vec![Reply::Number(1), Reply::Number(2)]).await;
    let pool = server.pool(4);
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 1);
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 2);
    assert_eq!((server.opened(), pool.visits()), (1, 2));
}

#[tokio::test]
async fn an_operation_that_is_given_up_takes_its_connection_along() {
    let mut server = Server::start(vec![Reply::Silence, Reply::Number(2)]).await;
    // One connection at most: were it kept, the second operation would never get one.
    let pool = server.pool(1);
    let abandoned = tokio::spawn({
        let pool = pool.clone();
        async move { pool.run("test", &step()).await }
    });
    server.queries.recv().await.unwrap();
    abandoned.abort();
    server.ended.wait_for(|ended| *ended == 1).await.unwrap();
    assert_eq!(
        read(&pool.run("test", &step()).await.unwrap()),
        2,
        "no half-read answer is taken for another's"
    );
    assert_eq!(server.opened(), 2);
}

#[tokio::test]
async fn who_lost_to_a_concurrent_statement_tries_again_and_other_errors_are_told() {
    let server =
        Server::start(vec![Reply::Error(1205), Reply::Error(1222), Reply::Number(3), Reply::Error(547)])
            .await;
    let pool = server.pool(1);
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 3);
    let error = pool.run("test", &step()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::InvalidArgument, false));
    assert_eq!(server.opened(), 1, "an error that has ended its transaction costs no connection");
    let stubborn = Server::start(vec![Reply::Error(1205); 9]).await;
    let error = stubborn.pool(1).run("test", &step()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Conflict, true));
}

#[tokio::test]
async fn a_connection_that_the_server_has_ended_is_not_used() {
    let mut server = Server::start(vec![Reply::NumberAndEnd(1), Reply::Number(2)]).await;
    let pool = server.pool(1);
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 1);
    server.ended.wait_for(|ended| *ended == 1).await.unwrap();
    // The end has been sent; it is here once it can be seen.
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 2);
    assert_eq!(server.opened(), 2);
}

#[tokio::test]
async fn arguments_have_types_that_every_engine_takes() {
    let mut server = Server::start(vec![Reply::Number(1)]).await;
    server.pool(1).run("test", &step()).await.unwrap();
    let sent = server.queries.recv().await.unwrap();
    let has = |part: &[u8]| sent.windows(part.len()).any(|window| window == part);
    // A text as NVARCHAR, and a whole number as eight bytes of INTN.
    assert!(has(&wide("ü😀")) && has(&wide("@P1 nvarchar(")), "texts are NVARCHAR");
    assert!(has(&[0x26, 8, 8, 7, 0, 0, 0, 0, 0, 0, 0]), "numbers are BIGINT");
}

#[tokio::test]
async fn nobody_gets_a_connection_once_closed() {
    let server = Server::start(Vec::new()).await;
    let pool = server.pool(1);
    pool.run("test", &step()).await.unwrap();
    pool.close();
    assert_eq!(pool.run("test", &step()).await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_login_that_the_server_refuses_for_the_moment_is_tried_again() {
    let moments = vec![Welcome::Error(40613), Welcome::Error(49918)];
    let server = Server::start_with(moments, vec![Reply::Number(4)], None).await;
    assert_eq!(read(&server.pool(1).run("test", &step()).await.unwrap()), 4);
    assert_eq!(server.opened(), 3);
    // A password that is wrong stays so.
    let server = Server::start_with(vec![Welcome::Error(18456)], Vec::new(), None).await;
    let error = server.pool(1).run("test", &step()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable(), server.opened()), (ErrorKind::Denied, false, 1));
    assert!(!format!("{error} {error:?}").contains("secret"));
}

/// A pool whose connections somebody else decides on: this many.
fn allowed(server: &Server, connections: usize) -> Connections {
    let gate = ConnectionGate::new(|| {});
    gate.allow(connections);
    server.pool_under(connections, Some(gate))
}

/// An operation that nobody waits for.
fn begun(pool: &Connections) -> tokio::task::JoinHandle<mainstay_core::Result<Vec<crate::rows::Row>>> {
    let pool = pool.clone();
    tokio::spawn(async move { pool.run("test", &step()).await })
}

#[tokio::test]
async fn connections_to_a_server_that_says_nothing_can_be_cut() {
    let mut server = Server::start(vec![Reply::Silence]).await;
    let pool = allowed(&server, 1);
    let stuck = begun(&pool);
    server.queries.recv().await.unwrap();
    assert_eq!(pool.open(), 1);
    pool.sever();
    pool.at_most(0).await;
    assert_eq!(stuck.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    server.ended.wait_for(|ended| *ended == 1).await.unwrap();
}

#[tokio::test]
async fn so_can_one_that_never_gets_past_its_login() {
    let mut server = Server::start_with(vec![Welcome::Silence], Vec::new(), None).await;
    let pool = allowed(&server, 1);
    let stuck = begun(&pool);
    server.logins.recv().await.unwrap();
    assert_eq!(pool.open(), 1);
    pool.sever();
    pool.at_most(0).await;
    assert_eq!(stuck.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    server.ended.wait_for(|ended| *ended == 1).await.unwrap();
}

#[tokio::test]
async fn so_can_one_that_a_handler_holds_on_to() {
    let mut server = Server::start(vec![Reply::Number(1)]).await;
    let pool = allowed(&server, 1);
    let mut lease = pool.lease_for_transaction("test").await.unwrap();
    lease.query("test", &step()).await.unwrap();
    pool.sever();
    // Though the handler still has it.
    pool.at_most(0).await;
    server.ended.wait_for(|ended| *ended == 1).await.unwrap();
    assert_eq!(lease.query("test", &step()).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_statement_that_a_busy_server_did_not_begin_with_is_asked_again_on_another_connection() {
    let busy = vec![Reply::Error(40501), Reply::Error(10928), Reply::Number(5)];
    let server = Server::start(busy).await;
    assert_eq!(read(&server.pool(1).run("test", &step()).await.unwrap()), 5);
    assert_eq!(server.opened(), 3);
    let busier = Server::start(vec![Reply::Error(40613); 9]).await;
    let error = busier.pool(1).run("test", &step()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable(), busier.opened()), (ErrorKind::Unavailable, true, 3));
    // Whether this was done, nobody knows.
    let unclear = Server::start(vec![Reply::Error(40197), Reply::Number(6)]).await;
    assert_eq!(unclear.pool(1).run("test", &step()).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_connection_is_given_up_where_it_may_have_a_transaction_or_is_to_the_wrong_server() {
    // A secondary; a procedure that is not there; an error by which the server ends the connection.
    for (reply, kind) in [
        (Reply::Error(3906), ErrorKind::ReadOnly),
        (Reply::Error(208), ErrorKind::Schema),
        (Reply::Told(823, 24, "no"), ErrorKind::Unavailable),
        (Reply::End, ErrorKind::Unavailable),
    ] {
        let mut server = Server::start(vec![reply, Reply::Number(7)]).await;
        let pool = server.pool(1);
        assert_eq!(pool.run("test", &step()).await.unwrap_err().kind(), kind);
        server.ended.wait_for(|ended| *ended == 1).await.unwrap();
        assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 7);
        assert_eq!(server.opened(), 2);
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_a_login_is_waited_for_only_so_long() {
    let mut server = Server::start_with(vec![Welcome::Silence], vec![Reply::Number(8)], None).await;
    let pool = server.pool(1);
    let stuck = begun(&pool);
    server.logins.recv().await.unwrap();
    // From here on only the clock can go on.
    tokio::time::pause();
    let error = stuck.await.unwrap().unwrap_err();
    tokio::time::resume();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    assert!(error.message().contains("did not answer within 20s"), "{error}");
    server.ended.wait_for(|ended| *ended == 1).await.unwrap();
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 8);
}

#[tokio::test]
async fn a_call_without_an_answer_is_given_up_with_its_connection() {
    let mut server = Server::start(vec![Reply::Silence, Reply::Number(8)]).await;
    let pool = server.pool(1);
    let stuck = begun(&pool);
    server.queries.recv().await.unwrap();
    // From here on only the clock can go on.
    tokio::time::pause();
    let error = stuck.await.unwrap().unwrap_err();
    tokio::time::resume();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    assert!(error.message().contains("call_timeout"), "{error}");
    server.ended.wait_for(|ended| *ended == 1).await.unwrap();
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 8);
}

#[tokio::test]
async fn no_connection_waits_for_locks_without_end() {
    let mut server = Server::start(vec![Reply::Number(1)]).await;
    let pool = server.pool(2);
    pool.run("test", &step()).await.unwrap();
    let sent = server.settings.recv().await.unwrap();
    assert!(sent.ends_with(&wide("SET LOCK_TIMEOUT 4000")));
    // The application's own client waits as long as the application wants.
    pool.open_one("test").await.unwrap();
    server.settings.recv().await.unwrap();
    assert!(server.settings.recv().await.unwrap().ends_with(&wide("SET LOCK_TIMEOUT -1")));
    let transaction = begun_transaction(&pool).await;
    server.queries.recv().await.unwrap();
    let sent = server.queries.recv().await.unwrap();
    assert!(
        sent.ends_with(&wide("SET LOCK_TIMEOUT 30000; BEGIN TRANSACTION")),
        "a handler's own statements wait longer"
    );
    transaction.commit().await.unwrap();
    assert!(
        server.queries.recv().await.unwrap().ends_with(&wide("COMMIT TRANSACTION; SET LOCK_TIMEOUT 4000"))
    );
    let transaction = begun_transaction(&pool).await;
    server.queries.recv().await.unwrap();
    transaction.rollback().await.unwrap();
    assert!(
        server.queries.recv().await.unwrap().ends_with(&wide("ROLLBACK TRANSACTION; SET LOCK_TIMEOUT 4000"))
    );
}

#[tokio::test]
async fn the_attempts_of_a_call_share_its_time() {
    // The first attempt loses late, and the second one gets no answer.
    let mut server = Server::start(vec![Reply::Held(1222), Reply::Silence]).await;
    let pool = server.pool(1);
    let began = Instant::now();
    let call = begun(&pool);
    server.queries.recv().await.unwrap();
    tokio::time::pause();
    tokio::time::advance(pool.call_timeout() * 3 / 4).await;
    tokio::time::resume();
    server.go_on();
    server.queries.recv().await.unwrap();
    // From here on only the clock can go on.
    tokio::time::pause();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    assert!(began.elapsed() < pool.call_timeout() * 3 / 2, "each attempt had its own time limit");
}

#[tokio::test]
async fn a_connection_that_is_given_up_keeps_its_place_until_the_server_has_ended_it() {
    let mut server = Server::start(vec![Reply::Deaf, Reply::Number(9)]).await;
    let pool = server.pool(1);
    let stuck = begun(&pool);
    server.queries.recv().await.unwrap();
    stuck.abort();
    let next = tokio::time::timeout(Duration::from_millis(50), pool.run("test", &step())).await;
    assert!(next.is_err() && server.opened() == 1, "the server has two sessions of a pool of one");
    server.go_on();
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 9);
    assert_eq!(server.opened(), 2);
}

#[tokio::test]
async fn so_it_does_for_a_short_time_where_the_server_never_ends_it() {
    let mut server = Server::start(vec![Reply::Deaf, Reply::Number(9)]).await;
    let pool = server.pool(1);
    let stuck = begun(&pool);
    server.queries.recv().await.unwrap();
    stuck.abort();
    assert_eq!(read(&pool.run("test", &step()).await.unwrap()), 9);
}
