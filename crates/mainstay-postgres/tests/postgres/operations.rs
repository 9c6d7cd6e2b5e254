//! Each operation does what it says on a real database.

use std::collections::HashSet;
use std::time::Duration;

use mainstay_core::outbox::{Message, MessageFilter, Page, Retention};
use mainstay_core::queue::{ClaimRequest, FailureReason, Outcome, Settlement, Status};
use mainstay_core::store::{Provider, WaitRequest};
use mainstay_core::{ErrorKind, OwnerToken};
use mainstay_tests::eventually;

use crate::support::{DEADLINE, Fixture, somebody_waits};

#[tokio::test]
async fn a_message_goes_all_the_way() {
    let fixture = Fixture::new().await;
    let message = Message::new("order.paid", "{\"a\":\"ü\"}")
        .correlation("c")
        .idempotency_key("i")
        .ordering_key("o")
        .priority(3)
        .header("h", "v")
        .expires_in(Duration::from_secs(3_600));
    let enqueued = fixture.outbox.enqueue(message.clone()).await.unwrap();
    assert!(enqueued.added);
    assert!(!fixture.outbox.enqueue(message).await.unwrap().added);

    let owner = OwnerToken::new();
    let request = ClaimRequest::new(owner).lease(Duration::from_millis(90_500));
    let batch = fixture.outbox.claim(&request).await.unwrap();
    let [item] = &batch.items[..] else { panic!("{batch:?}") };
    assert_eq!(item.id(), enqueued.work_item);
    assert_eq!(item.message_id, enqueued.message);
    assert_eq!(item.payload, "{\"a\":\"ü\"}");
    assert_eq!(item.correlation_id.as_deref(), Some("c"));
    assert_eq!(item.ordering_key.as_deref(), Some("o"));
    assert_eq!(item.headers["h"], "v");
    assert_eq!((item.attempt, item.priority), (1, 3));
    assert_eq!(item.locked_until.duration_since(item.claimed_at).as_millis(), 90_500);
    assert_eq!(item.expires_at.unwrap().duration_since(item.created_at).as_secs(), 3_600);

    let renewed = fixture.outbox.renew(owner, &batch.handles(), Duration::from_millis(1_500)).await.unwrap();
    assert_eq!(renewed.changed, [item.id()]);
    let held = fixture.outbox.get(item.id()).await.unwrap().unwrap();
    assert_eq!((held.status, held.owner), (Status::InProgress, Some(owner)));

    let settled = fixture.outbox.ack(owner, &batch.handles()).await.unwrap();
    assert_eq!(settled.changed, [item.id()]);
    let again = fixture.outbox.ack(owner, &batch.handles()).await.unwrap();
    assert_eq!(again.stale, [item.id()]);
    let done = fixture.outbox.get(item.id()).await.unwrap().unwrap();
    assert_eq!((done.status, done.processed_by), (Status::Done, Some(owner)));
    assert_eq!(done.payload.as_deref(), Some("{\"a\":\"ü\"}"));
    assert_eq!(done.idempotency_key.as_deref(), Some("i"));
}

#[tokio::test]
async fn many_messages_keep_their_order_and_their_times() {
    let fixture = Fixture::new().await;
    let now = fixture.postgres.now().await.unwrap();
    let soon = now + Duration::from_secs(60);
    let messages = vec![
        Message::new("a", "0"),
        Message::new("b", "1").due_at(soon),
        Message::new("a", "2").due_in(Duration::from_secs(60)).header("x", "y"),
        Message::new("a", "3").idempotency_key("k").expires_at(soon),
        Message::new("a", "4").idempotency_key("k"),
        Message::new("a", "5").due_at(jiff::Timestamp::MIN),
    ];
    let enqueued = fixture.outbox.enqueue_many(messages).await.unwrap();
    let added: Vec<_> = enqueued.iter().map(|e| e.added).collect();
    assert_eq!(added, [true, true, true, true, false, true]);
    assert_eq!(enqueued[3].work_item, enqueued[4].work_item);

    let message = fixture.outbox.get(enqueued[1].work_item).await.unwrap().unwrap();
    assert_eq!(message.due_at.unwrap().as_microsecond(), soon.as_microsecond());
    let message = fixture.outbox.get(enqueued[2].work_item).await.unwrap().unwrap();
    assert_eq!(message.due_at.unwrap().duration_since(message.created_at).as_secs(), 60);
    let claimed = fixture.claim().await;
    let payloads: Vec<_> = claimed.items.iter().map(|item| item.payload.as_str()).collect();
    assert_eq!(payloads, ["0", "3", "5"]);
}

#[tokio::test]
async fn settlements_of_every_kind_in_one_call() {
    let fixture = Fixture::new().await;
    let owner = OwnerToken::new();
    fixture.outbox.enqueue_many((0..7).map(|n| Message::new("t", n.to_string())).collect()).await.unwrap();
    let batch = fixture.outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    let hour = Some(Duration::from_secs(3_600));
    let error = Some("boom".to_owned());
    let fail = |reason| Outcome::Fail { reason, error: Some("boom".to_owned()) };
    let outcomes = [
        Outcome::Ack,
        Outcome::Abandon { delay: hour, error: error.clone() },
        Outcome::Release { delay: hour, error },
        fail(FailureReason::Handler),
        fail(FailureReason::DeliveryLimit),
        fail(FailureReason::Expired),
        fail(FailureReason::Cancelled),
    ];
    let settlements: Vec<_> = batch
        .handles()
        .into_iter()
        .zip(outcomes)
        .map(|(claim, outcome)| Settlement { claim, outcome })
        .collect();
    let settled = fixture.outbox.settle(owner, &settlements).await.unwrap();
    assert_eq!(settled.changed.len(), 7);

    let mut found = Vec::new();
    for item in &batch.items {
        let message = fixture.outbox.get(item.id()).await.unwrap().unwrap();
        found.push((message.status, message.reason, message.attempts));
    }
    assert_eq!(
        found,
        [
            (Status::Done, None, 1),
            (Status::Ready, None, 1),
            (Status::Ready, None, 0),
            (Status::Failed, Some(FailureReason::Handler), 1),
            (Status::Failed, Some(FailureReason::DeliveryLimit), 1),
            (Status::Failed, Some(FailureReason::Expired), 1),
            (Status::Failed, Some(FailureReason::Cancelled), 1),
        ]
    );
}

#[tokio::test]
async fn failed_messages_are_listed_requeued_and_purged() {
    let fixture = Fixture::new().await;
    let owner = OwnerToken::new();
    for n in 0..4 {
        let message = Message::new(if n == 0 { "other" } else { "t" }, "").correlation(format!("c{n}"));
        fixture.outbox.enqueue(message).await.unwrap();
    }
    let batch = fixture.outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    fixture.outbox.fail(owner, &batch.handles(), Some("no".to_owned())).await.unwrap();

    let failed = MessageFilter::all().status(Status::Failed).topic("t").reason(FailureReason::Handler);
    let listed = fixture.outbox.list(&failed, Page::default()).await.unwrap();
    let ids: Vec<_> = listed.iter().map(|message| message.correlation_id.clone().unwrap()).collect();
    assert_eq!(ids, ["c3", "c2", "c1"]);
    let page = Page { limit: 1, before: Some(listed[0].id) };
    assert_eq!(fixture.outbox.list(&failed, page).await.unwrap()[0].id, listed[1].id);

    let one = MessageFilter::all().correlation_id("c2");
    assert_eq!(fixture.outbox.requeue_where(&one, 10).await.unwrap(), [listed[1].id]);
    let done = MessageFilter::all().status(Status::Done);
    assert!(fixture.outbox.requeue_where(&done, 10).await.unwrap().is_empty());
    assert_eq!(fixture.outbox.requeue(&[listed[0].id]).await.unwrap(), [listed[0].id]);
    assert_eq!(fixture.outbox.cancel(&[listed[0].id]).await.unwrap(), [listed[0].id]);

    let stats = fixture.outbox.stats().await.unwrap();
    assert_eq!((stats.ready, stats.failed, stats.open()), (1, 3, 1));
    let topics: Vec<_> = stats.topics.iter().map(|topic| (topic.topic.as_str(), topic.failed)).collect();
    assert_eq!(topics, [("other", 1), ("t", 2)]);

    let none = Retention::default().done(None).failed(None);
    assert_eq!(fixture.outbox.purge(&none).await.unwrap(), 0);
    let all = Retention::default().failed(Some(Duration::ZERO)).batch(1);
    assert_eq!(fixture.outbox.purge(&all).await.unwrap(), 3);
}

#[tokio::test]
async fn one_id_can_be_used_once() {
    let fixture = Fixture::new().await;
    let message = Message::new("t", "secret-payload");
    fixture.outbox.enqueue(message.clone()).await.unwrap();
    let error = fixture.outbox.enqueue(message).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(!format!("{error:?}").contains("secret-payload"), "{error:?}");
}

#[tokio::test]
async fn times_beyond_reach_do_not_make_a_claim_unreadable() {
    let fixture = Fixture::new().await;
    let client = fixture.database.client().await;
    let far = "select infra.outbox_enqueue('t', '', expires_at => '290000-01-01')";
    client.batch_execute(far).await.unwrap();
    let claimed = fixture.claim().await;
    assert_eq!(claimed.items[0].expires_at, Some(jiff::Timestamp::MAX));
}

#[tokio::test]
async fn after_closing_everything_says_so() {
    let fixture = Fixture::new().await;
    fixture.enqueue("x").await;
    fixture.postgres.close().await;
    let error = fixture.outbox.enqueue(Message::new("t", "")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    let error = fixture
        .store
        .wait(&WaitRequest::new(OwnerToken::new()).timeout(Duration::from_secs(60)))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(fixture.store.begin().await.err().unwrap().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_claim_that_goes_on_from_the_last_misses_nothing_before_it() {
    let fixture = Fixture::new().await;
    let messages = (0..30).map(|n| Message::new("t", n.to_string())).collect();
    fixture.outbox.enqueue_many(messages).await.unwrap();
    let (crashed, owner) = (OwnerToken::new(), OwnerToken::new());
    let first = fixture.outbox.claim(&ClaimRequest::new(crashed).batch(5)).await.unwrap();
    assert_eq!(first.items.len(), 5);
    let ten = ClaimRequest::new(owner).batch(10);
    let mut claimed: Vec<_> = fixture.outbox.claim(&ten).await.unwrap().handles();
    // What comes back now lies before the place where the next claim begins.
    let client = fixture.database.client().await;
    let lapse = "update infra.outbox set locked_until = now() - interval '1 second' where owner = $1";
    assert_eq!(client.execute(lapse, &[&crashed.as_uuid()]).await.unwrap(), 5);
    for _ in 0..2 {
        let batch = fixture.outbox.claim(&ten).await.unwrap();
        assert_eq!(batch.items.len(), 10);
        claimed.extend(batch.handles());
    }
    assert!(fixture.outbox.claim(&ten).await.unwrap().items.is_empty());
    let ids: HashSet<_> = claimed.iter().map(|claim| claim.id()).collect();
    assert_eq!(ids.len(), 30);
    assert!(first.items.iter().all(|item| ids.contains(&item.id())));
    assert_eq!(fixture.outbox.ack(owner, &claimed).await.unwrap().changed.len(), 30);
}

#[tokio::test]
async fn an_ack_finds_rows_that_have_moved() {
    let fixture = Fixture::new().await;
    let owner = OwnerToken::new();
    let messages = (0..20).map(|n| Message::new("t", n.to_string())).collect();
    fixture.outbox.enqueue_many(messages).await.unwrap();
    let claims = fixture.outbox.claim(&ClaimRequest::new(owner)).await.unwrap().handles();
    // A renewal writes each row anew, and a full vacuum puts it somewhere else altogether.
    fixture.outbox.renew(owner, &claims[..10], Duration::from_secs(60)).await.unwrap();
    assert_eq!(fixture.outbox.ack(owner, &claims[..10]).await.unwrap().changed.len(), 10);
    let client = fixture.database.client().await;
    client.batch_execute("vacuum full infra.outbox").await.unwrap();
    // The places of the first ten are now those of others, which must not be mistaken for them.
    let stale = fixture.outbox.ack(owner, &claims[..10]).await.unwrap();
    assert_eq!((stale.changed.len(), stale.stale.len()), (0, 10));
    assert_eq!(fixture.outbox.ack(owner, &claims[10..]).await.unwrap().changed.len(), 10);
    assert_eq!(fixture.open().await, 0);
}

#[tokio::test]
async fn an_ack_that_meets_others_ends_each_message_once() {
    let fixture = Fixture::new().await;
    let owner = OwnerToken::new();
    // What somebody else does with the first claim while the ack of all waits for it, and whether the ack has it after that.
    for (other, had) in [
        ("select infra.outbox_ack('{owner}', array['{id}']::uuid[])", false),
        ("select infra.outbox_fail('{owner}', array['{id}']::uuid[])", false),
        ("select infra.outbox_abandon('{owner}', array['{id}']::uuid[])", false),
        ("select infra.outbox_renew('{owner}', array['{id}']::uuid[])", true),
        ("select from infra.outbox where id = '{id}' for update", true),
    ] {
        let messages = (0..20).map(|n| Message::new("t", n.to_string())).collect();
        fixture.outbox.enqueue_many(messages).await.unwrap();
        let claims = fixture.outbox.claim(&ClaimRequest::new(owner)).await.unwrap().handles();
        assert_eq!(claims.len(), 20);
        let client = fixture.database.client().await;
        let id = claims[0].id().as_uuid();
        let call = other.replace("{owner}", &owner.as_uuid().to_string()).replace("{id}", &id.to_string());
        client.batch_execute(&format!("begin; {call}")).await.unwrap();
        let (outbox, asked) = (fixture.outbox.clone(), claims.clone());
        let ack = tokio::spawn(async move { outbox.ack(owner, &asked).await.unwrap() });
        let watcher = fixture.database.client().await;
        eventually(DEADLINE, "the ack waits", async || somebody_waits(&watcher).await).await;
        client.batch_execute("commit").await.unwrap();
        let settled = ack.await.unwrap();
        assert_eq!(settled.changed.len(), if had { 20 } else { 19 }, "{other}");
        assert_eq!(settled.changed.contains(&claims[0].id()), had, "{other}");
        let counts = "select count(*), count(distinct id), count(*) filter (where exists (select from infra.outbox o where o.id = h.id))
                        from infra.outbox_history h";
        let row = client.query_one(counts, &[]).await.unwrap();
        let (rows, ids, both): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let abandoned = i64::from(other.contains("abandon"));
        assert_eq!((rows, ids, both), (20 - abandoned, 20 - abandoned, 0), "{other}");
        client.batch_execute("truncate infra.outbox, infra.outbox_history").await.unwrap();
    }
    fixture.end().await;
}

#[tokio::test]
async fn reserved_headers_are_refused_from_outside() {
    let fixture = Fixture::new().await;
    let client = fixture.database.client().await;
    let own = r#"{"mainstay-run":"forged"}"#;
    let lane = r#"{"mainstay-ordering-key":"k"}"#;
    for call in [
        format!("infra.outbox_enqueue('t', '', headers => '{own}')"),
        format!("infra.outbox_enqueue('t', '', headers => '{lane}')"),
        format!("infra.outbox_enqueue_many(null, null, '{{t}}', '{{\"\"}}', headers => array['{own}'])"),
        format!("infra.outbox_enqueue_many(null, null, '{{t}}', '{{\"\"}}', headers => array['{lane}'])"),
        format!("infra.timers_schedule('t', '', due_in_seconds => 0, headers => '{own}')"),
        format!("infra.timers_schedule('t', '', due_in_seconds => 0, headers => '{lane}')"),
        format!("infra.timers_enqueue('t', '', headers => '{own}')"),
        format!("infra.timers_enqueue_many(null, null, '{{t}}', '{{\"\"}}', headers => array['{own}'])"),
        format!("infra.inbox_enqueue('s', 'm', 't', '', headers => '{own}')"),
        format!("infra.inbox_enqueue_many('{{s}}', '{{m}}', '{{t}}', '{{\"\"}}', headers => array['{own}'])"),
    ] {
        let error = client.query(&format!("select {call}"), &[]).await.expect_err(&call);
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "22023", "{call}");
        assert!(error.message().contains("begin with mainstay-"), "{call}: {}", error.message());
    }
    // Names that only look like it, and what the functions themselves set.
    for call in [
        r#"infra.outbox_enqueue('t', '', headers => '{"mainstay":"1","x-mainstay-run":"2"}')"#,
        r#"infra.outbox_enqueue_many(null, null, '{t}', '{""}', headers => array['{"mainstay":"1"}'])"#,
        "infra.timers_schedule('t', '', due_in_seconds => 0, ordering_key => 'k')",
        r#"infra.inbox_enqueue('s', 'm', 't', '', headers => '{"mainstay":"1"}')"#,
    ] {
        client.query(&format!("select {call}"), &[]).await.expect(call);
    }
    fixture.end().await;
}
