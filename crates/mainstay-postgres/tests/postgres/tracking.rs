//! Operations through the functions, as other languages use them.

use mainstay_core::operation::{OperationFilter, OperationPage, OperationState, Operations};
use mainstay_core::store::Provider;

use crate::support::Fixture;

#[tokio::test]
async fn other_languages_track_operations_by_functions() {
    let fixture = Fixture::new().await;
    let client = fixture.database.client().await;
    let operations = Operations::new(fixture.postgres.operations());
    let start =
        "select infra.operations_start('import', total => 2, tag_keys => '{tenant}', tag_values => '{7}')";
    let id: uuid::Uuid = client.query_one(start, &[]).await.unwrap().get(0);
    let state = async |call: &str| -> Option<i16> {
        client.query_one(&format!("select infra.{call}"), &[]).await.unwrap().get(0)
    };
    assert_eq!(state(&format!("operations_progress('{id}', done => 1)")).await, Some(0));
    let note =
        format!("select state, seq from infra.operations_note('{id}', 'page', data => '{{\"n\": 1}}')");
    let noted = client.query_one(&note, &[]).await.unwrap();
    assert_eq!((noted.get::<_, i16>(0), noted.get::<_, i64>(1)), (0, 1));
    assert_eq!(state(&format!("operations_end('{id}', 'failed', 'no room')")).await, Some(0));
    assert_eq!(state(&format!("operations_end('{id}')")).await, Some(2), "the first end stays");
    assert_eq!(state(&format!("operations_progress('{id}')")).await, Some(2));
    let noted = client.query_one(&note, &[]).await.unwrap();
    assert_eq!((noted.get::<_, i16>(0), noted.get::<_, Option<i64>>(1)), (2, None));
    let nobody = uuid::Uuid::nil();
    assert_eq!(state(&format!("operations_end('{nobody}')")).await, None);
    assert_eq!(state(&format!("operations_progress('{nobody}')")).await, None);

    let filter = OperationFilter::all().tag("tenant", "7");
    let found = operations.list(&filter, OperationPage::default()).await.unwrap().remove(0);
    assert_eq!((found.state, found.error.as_deref()), (OperationState::Failed, Some("no room")));
    assert_eq!((found.progress.done, found.progress.total, found.events), (Some(1), Some(2), 1));
    assert!(found.actor.starts_with("sql:"), "{}", found.actor);

    // Nor is the end changed by hand.
    let error = client.batch_execute("update infra.operations set state = 1").await.unwrap_err();
    assert!(error.as_db_error().is_some_and(|error| error.message().contains("an end is final")));
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_the_functions() {
    let fixture = Fixture::new().await;
    let client = fixture.database.client().await;
    let id = uuid::Uuid::nil();
    for (call, says) in [
        ("operations_start('')".to_owned(), "name must be 1 to 255"),
        ("operations_start(null)".to_owned(), "name must be 1 to 255"),
        ("operations_start('x', actor => '')".to_owned(), "actor must be"),
        ("operations_start('x', total => -1)".to_owned(), "total must be"),
        ("operations_start('x', tag_keys => '{a}')".to_owned(), "as many elements"),
        (format!("operations_progress('{id}', -1)"), "0 or more"),
        (format!("operations_note('{id}', '')"), "kind must be"),
        (format!("operations_end('{id}', 'stalled')"), "outcome must be"),
        ("operations_mark_stalled(0)".to_owned(), "above 0"),
        ("operations_mark_stalled('NaN')".to_owned(), "above 0"),
        ("operations_mark_stalled(1, 0)".to_owned(), "max_rows"),
        ("operations_purge(-1)".to_owned(), "older_than_seconds"),
        ("operations_purge(1, 0)".to_owned(), "max_rows"),
    ] {
        let error = client.batch_execute(&format!("select infra.{call}")).await.unwrap_err();
        let text = error.as_db_error().map(|error| error.message().to_owned()).unwrap_or_default();
        assert!(text.contains(says), "{call}: {text}");
    }
}
