//! What the driver's own client does in the application's transactions.

use std::sync::Arc;

use mainstay_core::ErrorKind;
use mainstay_core::store::{CallIn, StoreCall};

use super::server::{Reply, Server, step, wide};
use crate::adapter::Origin;

fn call() -> StoreCall {
    let (store, origin) = ("shop".to_owned(), Arc::new(Origin));
    StoreCall { operation: "test", store, origin, steps: vec![step()] }
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
    let sent = server.queries.recv().await.unwrap();
    let guard = wide("IF @@TRANCOUNT = 0 THROW 50005");
    assert!(sent.windows(guard.len()).any(|part| part == guard));
}
