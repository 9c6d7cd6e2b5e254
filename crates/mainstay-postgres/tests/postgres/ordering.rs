//! Ordering keys and the locks behind them.

use mainstay_core::OwnerToken;
use mainstay_core::outbox::Message;
use mainstay_core::store::Queue;
use tokio_postgres::Client;

use crate::support::Fixture;

/// Adds an item with the ordering key `k`.
async fn add(client: &Client, queue: &str, payload: &str) {
    let add = format!(
        "select infra.{queue}_add_one(gen_random_uuid(), gen_random_uuid(), 't', '{payload}', ordering_key => 'k')"
    );
    client.batch_execute(&add).await.unwrap();
}

/// Claims what is due, and returns the payloads.
async fn claim(client: &Client, queue: &str, owner: OwnerToken) -> Vec<String> {
    let claim = format!("select payload from infra.{queue}_claim('{owner}', 30, 50)");
    client.query(&claim, &[]).await.unwrap().into_iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn mst_040_a_claim_ends_lapsed_claims_of_later_items_of_its_key_in_every_queue() {
    let fixture = Fixture::new().await;
    let (client, other) = (fixture.database.client().await, fixture.database.client().await);
    for queue in [Queue::Outbox, Queue::Inbox, Queue::Timers, Queue::JobRuns].map(Queue::as_str) {
        let (slow, quick) = (OwnerToken::new(), OwnerToken::new());
        // The first commits late, so the second is claimed before it. Then its lease lapses.
        other.batch_execute("begin").await.unwrap();
        add(&other, queue, "first").await;
        add(&client, queue, "second").await;
        assert_eq!(claim(&client, queue, slow).await, ["second"], "{queue}");
        other.batch_execute("commit").await.unwrap();
        let lapse =
            format!("update infra.{queue} set locked_until = clock_timestamp() where payload = 'second'");
        client.batch_execute(&lapse).await.unwrap();

        // Another session has locked it, and may be renewing it.
        let lock = format!("begin; select from infra.{queue} where payload = 'second' for no key update");
        other.batch_execute(&lock).await.unwrap();
        assert_eq!(claim(&client, queue, quick).await, Vec::<String>::new(), "{queue}");
        other.batch_execute("rollback").await.unwrap();

        assert_eq!(claim(&client, queue, quick).await, ["first"], "{queue}");
        let ended = format!(
            "select status = 0 and owner is null and locked_until is null from infra.{queue} where payload = 'second'"
        );
        assert!(client.query_one(&ended, &[]).await.unwrap().get::<_, bool>(0), "{queue}");
        let renew = format!(
            "select infra.{queue}_renew('{slow}', array(select id from infra.{queue} where payload = 'second'))"
        );
        assert_eq!(client.query(&renew, &[]).await.unwrap().len(), 0, "{queue}");
    }
    fixture.end().await;
}

#[tokio::test]
async fn advisory_locks_of_an_application_keep_no_key_unclaimed() {
    let fixture = Fixture::new().await;
    let application = fixture.database.client().await;
    // Those that an application is likely to take: by the number of a table, by small numbers, and by the hash of a name.
    let locks = "select pg_advisory_lock(c.oid::int, n) from pg_class c, generate_series(0, 1023) n
          where c.relname in ('outbox', 'outbox_floor') and c.relnamespace = 'infra'::regnamespace;
        select pg_advisory_lock(n) from generate_series(0, 1023) n;
        select pg_advisory_lock(hashtext('key ' || n)) from generate_series(0, 49) n;
        select pg_advisory_lock(hashtextextended('key ' || n, 0)) from generate_series(0, 49) n";
    application.batch_execute(locks).await.unwrap();
    for number in 0..50 {
        let message = Message::new("t", "").ordering_key(format!("key {number}"));
        fixture.outbox.enqueue(message).await.unwrap();
    }
    assert_eq!(fixture.claim().await.items.len(), 50);
    let floors = application.query_one("select count(*) from infra.outbox_floor", &[]).await.unwrap();
    assert_eq!(floors.get::<_, i64>(0), 1, "nor the floors where they are");
    fixture.end().await;
}
