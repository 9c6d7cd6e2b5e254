//! Callers that give up while others keep the writer busy.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use rusqlite::Connection;

use crate::Sqlite;

const HOUR: Duration = Duration::from_secs(3_600);

/// A database in memory whose calls wait for so long.
async fn database(call_timeout: Duration) -> Sqlite {
    Sqlite::memory_builder().transaction_limit(HOUR).call_timeout(call_timeout).open().await.unwrap()
}

#[tokio::test]
async fn what_a_caller_gave_up_before_it_began_is_freed_at_once() {
    let sqlite = database(HOUR).await;
    let open = sqlite.database().open("test").await.unwrap();
    let writer = &open.get("test").unwrap().writer;
    let loan = writer.lend("test", HOUR).await.unwrap();
    let payload = Arc::new(());
    let kept = Arc::clone(&payload);
    let work = move |_: &Connection| Ok(Arc::strong_count(&kept));
    let mut call = Box::pin(writer.run("test".into(), work, |_| false));
    assert!(call.as_mut().now_or_never().is_none(), "the writer is lent");
    assert_eq!(Arc::strong_count(&payload), 2);
    drop(call);
    assert_eq!(Arc::strong_count(&payload), 1);
    loan.roll_back().await;
    writer.run("test".into(), |_| Ok(()), |()| false).await.unwrap();
}

#[tokio::test]
async fn a_call_that_can_not_begin_is_withdrawn_at_its_limit() {
    let sqlite = database(Duration::from_millis(20)).await;
    let open = sqlite.database().open("test").await.unwrap();
    let writer = &open.get("test").unwrap().writer;
    let loan = writer.lend("test", HOUR).await.unwrap();
    let runs = Arc::new(());
    let ran = Arc::clone(&runs);
    let work = move |_: &Connection| {
        std::mem::forget(Arc::clone(&ran));
        Ok(())
    };
    let late = writer.run("test".into(), work, |()| false);
    let late = tokio::time::timeout(HOUR, late).await.unwrap().unwrap_err();
    assert!(late.is_unanswered() && late.is_retryable() && late.message().contains("call_timeout"), "{late}");
    assert!(writer.lend("test", HOUR).await.err().is_some_and(|error| error.is_unanswered()));
    loan.roll_back().await;
    // Behind all that was withdrawn.
    while writer.run("test".into(), |_| Ok(()), |()| false).await.is_err() {}
    assert_eq!(Arc::strong_count(&runs), 1, "it was run after all");
}

#[tokio::test]
async fn a_call_that_has_begun_is_waited_for() {
    let sqlite = database(Duration::from_millis(20)).await;
    let open = sqlite.database().open("test").await.unwrap();
    let writer = &open.get("test").unwrap().writer;
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let work = move |_: &Connection| {
        begun.send(()).unwrap();
        may_go.recv().unwrap();
        Ok(7)
    };
    let call = writer.run("test".into(), work, |_| false);
    let late = async {
        tokio::task::spawn_blocking(move || has_begun.recv()).await.unwrap().unwrap();
        // It can't begin, and is given up at the limit, which the first one is past then.
        let late = writer.run("test".into(), |_| Ok(()), |()| false).await.unwrap_err();
        go.send(()).unwrap();
        late
    };
    let (first, late) = tokio::join!(call, late);
    assert_eq!(first.unwrap(), 7);
    assert!(late.is_unanswered(), "{late}");
}
