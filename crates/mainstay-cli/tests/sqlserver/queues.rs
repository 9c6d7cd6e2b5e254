//! `mainstay outbox`, `inbox` and `retention`: each command there and back.

use mainstay::queue::ClaimRequest;
use mainstay::sqlserver::SqlServer;
use mainstay::store::Provider;
use mainstay::{Inbox, Outbox, OwnerToken};
use serde_json::{Value, json};

use crate::harness::{Case, cases};
use crate::own_database::OwnDatabase;

pub(crate) const CASES: &[Case] = cases![
    messages_are_enqueued_listed_cancelled_and_requeued,
    a_held_key_is_released_and_a_topic_paused,
    messages_are_carried_from_and_to_a_file_of_sqlite,
    messages_are_received_once_marked_and_requeued,
    what_is_past_its_age_is_deleted,
];

const NOBODY: &str = "00000000-0000-7000-8000-000000000000";

fn enqueue(database: &OwnDatabase, arguments: &[&str]) -> String {
    let enqueued = database.json(&[&["outbox", "enqueue"], arguments].concat());
    enqueued["work_item"].as_str().unwrap().to_owned()
}

fn show(database: &OwnDatabase, id: &str) -> Value {
    database.json(&["outbox", "show", id])
}

/// Claims what is due, as a worker would, and fails it; how many there were.
async fn fail_due(server: &SqlServer) -> usize {
    let (outbox, owner) = (Outbox::new(server.outbox()), OwnerToken::new());
    let claimed = outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    outbox.fail(owner, &claimed.handles(), Some("no".to_owned())).await.unwrap();
    claimed.items.len()
}

fn messages_are_enqueued_listed_cancelled_and_requeued() {
    let database = OwnDatabase::migrated();
    let payload = "{\"order\": 7, \"note\": \"it's \u{1f980}\"}";
    let whole = [
        "order.paid",
        payload,
        "--correlation-id=request-1",
        "--due-in=1h",
        "--key=order-7",
        "--ordering-key=customer-3",
        "--priority=-3",
        "--expires-in=2h",
        "--header=source=test",
        "--header=empty=",
    ];
    let first = enqueue(&database, &whole);
    let shown = show(&database, &first);
    for (field, value) in [
        ("topic", "order.paid"),
        ("payload", payload),
        ("correlation_id", "request-1"),
        ("idempotency_key", "order-7"),
        ("ordering_key", "customer-3"),
        ("status", "ready"),
    ] {
        assert_eq!(shown[field], value, "{field}");
    }
    assert_eq!(
        (&shown["priority"], &shown["headers"]),
        (&json!(-3), &json!({"source": "test", "empty": ""}))
    );
    assert!(shown["due_at"].is_string() && shown["expires_at"].is_string(), "{shown}");
    assert_eq!(enqueue(&database, &whole), first, "the key was used before");
    assert_eq!(database.told(&["outbox", "show", &first, "--payload"]), payload);
    let second = enqueue(&database, &["mail.send", "secret"]);

    let ids = |arguments: &[&str]| {
        let listed = database.run(&[&["outbox", "list", "--json"], arguments].concat()).succeeded();
        assert!(!listed.stdout.contains("secret"), "{}", listed.stdout);
        let rows = listed.json();
        rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]), [second.as_str(), first.as_str()]);
    assert_eq!(ids(&["--limit=1"]), [second.as_str()]);
    assert_eq!(ids(&["--after", &second]), [first.as_str()]);
    assert_eq!(ids(&["--correlation-id=request-1"]), [first.as_str()]);
    database.run(&["outbox", "list", "--after", NOBODY]).failed(1, &["to list after"]);

    let ran = database.run(&["outbox", "cancel", NOBODY, &second]);
    let ran = ran.failed(1, &[&format!("{NOBODY} not cancelled: there is no such message")]);
    assert_eq!(ran.stdout, format!("{second} cancelled\n"));
    assert_eq!(ids(&["--status=failed", "--reason=cancelled"]), [second.as_str()]);
    let table = database.told(&["outbox", "list"]);
    assert!(table.contains(&first) && table.contains("failed: cancelled"), "{table}");
    let stats = database.json(&["outbox", "stats"]);
    let counts = ["ready", "scheduled", "in_progress", "failed"].map(|name| stats[name].as_u64().unwrap());
    assert_eq!(counts, [0, 1, 0, 1], "{stats}");
    assert!(database.told(&["outbox", "stats"]).contains("scheduled"));

    assert_eq!(database.told(&["outbox", "requeue", &second]), format!("{second} requeued\n"));
    database.run(&["outbox", "requeue", &second]).failed(1, &[&second, "it is ready"]);
    database.run(&["outbox", "cancel", &first, &second]).succeeded();
    assert_eq!(database.json(&["outbox", "requeue", "--topic=mail.send"])["requeued"], 1);
    assert_eq!(database.json(&["outbox", "requeue", "--all-failed"])["requeued"], 1);
    let shown = show(&database, &first);
    assert_eq!((&shown["status"], &shown["payload"]), (&json!("ready"), &json!(payload)), "{shown}");
    database.run(&["outbox", "show", NOBODY]).failed(1, &["there is no message", NOBODY]);
}

fn a_held_key_is_released_and_a_topic_paused() {
    let database = OwnDatabase::migrated();
    let failed = enqueue(&database, &["t", "--ordering-key=k", "--hold-on-failure"]);
    database.run(&["outbox", "release-key", "k"]).failed(1, &["k not released", "not held"]);
    assert_eq!(database.within(fail_due), 1);
    let shown = show(&database, &failed);
    assert_eq!((&shown["reason"], &shown["last_error"]), (&json!("handler"), &json!("no")), "{shown}");
    assert_eq!(database.json(&["outbox", "stats"])["held_keys"], 1);
    assert_eq!(database.json(&["outbox", "release-key", "k"])["released"], true);

    let paused = enqueue(&database, &["mail.send"]);
    let pause = ["--actor", "alice", "outbox", "pause", "mail.send", "--reason", "INC-17"];
    assert_eq!(database.told(&pause), "mail.send paused\n");
    assert_eq!(database.told(&pause), "mail.send paused already\n");
    assert_eq!(database.within(fail_due), 0);
    let stats = database.json(&["outbox", "stats"]);
    assert_eq!(
        (&stats["paused"][0]["topic"], &stats["paused"][0]["by"]),
        (&json!("mail.send"), &json!("alice"))
    );
    let why = database.json(&["why", &paused]);
    assert_eq!((&why["because"], &why["reason"]), (&json!("paused"), &json!("INC-17")), "{why}");
    assert!(database.told(&["health"]).contains("1 topic paused: \"mail.send\" of the outbox"));
    let resumed = database.json(&["outbox", "resume", "mail.send"]);
    assert_eq!(resumed, json!({ "topic": "mail.send", "paused": false, "changed": true }));
    assert_eq!(database.told(&["outbox", "resume", "mail.send"]), "mail.send not paused\n");
    assert_eq!(database.within(fail_due), 1);
}

fn messages_are_carried_from_and_to_a_file_of_sqlite() {
    let database = OwnDatabase::migrated();
    let whole = [
        "order.paid",
        "{\"order\": 7}\n\u{1f980}",
        "--due-at=2999-01-01T00:00:00.123456Z",
        "--ordering-key=k",
        "--header=h=v",
    ];
    let id = enqueue(&database, &whole);
    let cancelled = enqueue(&database, &["other"]);
    database.run(&["outbox", "cancel", &cancelled]).succeeded();
    let exported = database.run(&["outbox", "export", "--output", "all.ndjson"]).succeeded();
    assert_eq!(exported.stderr, "2 messages written to all.ndjson\n");

    let elsewhere = ["--database", "new.db"];
    database.run(&[&elsewhere[..], &["migrate"]].concat()).succeeded();
    let told = database.json(&[&elsewhere[..], &["outbox", "import", "all.ndjson"]].concat());
    assert_eq!((&told["imported"], &told["left_out"]), (&json!(1), &json!(1)), "{told}");
    let mut arrived = database.json(&[&elsewhere[..], &["outbox", "show", &id]].concat());
    let mut shown = show(&database, &id);
    // Each database says by its own clock when it was added.
    for message in [&mut arrived, &mut shown] {
        message.as_object_mut().unwrap().remove("created_at");
    }
    assert_eq!(arrived, shown);

    let back = enqueue_in_file(&database, &elsewhere);
    let export = [&elsewhere[..], &["outbox", "export", "--output", "back.ndjson"]].concat();
    database.run(&export).succeeded();
    let dry = database.json(&["outbox", "import", "--dry-run", "back.ndjson"]);
    assert_eq!((&dry["imported"], &dry["dry_run"]), (&json!(1), &json!(true)), "{dry}");
    database.run(&["outbox", "show", &back]).ended(1);
    let told = database.json(&["outbox", "import", "back.ndjson"]);
    assert_eq!((&told["imported"], &told["known"]), (&json!(1), &json!(1)), "{told}");
    assert_eq!(show(&database, &back)["payload"], "back");
    let told = database.json(&["outbox", "import", "back.ndjson"]);
    assert_eq!((&told["imported"], &told["known"]), (&json!(0), &json!(2)), "{told}");
    let records = database.json(&["audit", "list", "--name", "outbox.import"]);
    assert_eq!(records.as_array().unwrap().len(), 1, "{records}");
}

fn enqueue_in_file(database: &OwnDatabase, file: &[&str]) -> String {
    let enqueued = database.json(&[file, &["outbox", "enqueue", "t", "back"]].concat());
    enqueued["work_item"].as_str().unwrap().to_owned()
}

fn messages_are_received_once_marked_and_requeued() {
    let database = OwnDatabase::migrated();
    let receive = |id: &str, payload: &str| {
        database.json(&["inbox", "enqueue", "billing", id, "invoice.paid", payload, "--ordering-key=c"])
    };
    let first = receive("inv-1", "{\"n\":1}");
    assert_eq!((&first["outcome"], &first["hash_mismatch"]), (&json!("added"), &json!(false)), "{first}");
    let again = receive("inv-1", "{\"n\":2}");
    assert_eq!((&again["outcome"], &again["hash_mismatch"]), (&json!("replaced"), &json!(true)), "{again}");
    assert_eq!(again["work_item"], first["work_item"]);
    let shown = database.json(&["inbox", "show", "billing", "inv-1"]);
    assert_eq!(
        (&shown["entry"]["state"], &shown["message"]["payload"]),
        (&json!("seen"), &json!("{\"n\":2}"))
    );
    database.run(&["inbox", "show", "billing", "inv-99"]).failed(1, &["billing/inv-99"]);

    database.within(async |server: &SqlServer| {
        let (inbox, owner) = (Inbox::new(server), OwnerToken::new());
        let claimed = inbox.claim(&ClaimRequest::new(owner)).await.unwrap();
        inbox.fail(owner, &claimed.handles(), Some("broken".to_owned())).await.unwrap();
    });
    let dead = database.json(&["inbox", "list", "--state=dead"]);
    assert_eq!((dead.as_array().unwrap().len(), &dead[0]["last_error"]), (1, &json!("broken")), "{dead}");
    let one =
        database.run(&["inbox", "requeue", "billing", "inv-1", "inv-9"]).failed(1, &["no such message"]);
    assert_eq!(one.stdout, "billing/inv-1 requeued\n");
    assert_eq!(database.json(&["inbox", "requeue", "--all-dead"])["requeued"], 0);
    let marked = database.told(&["inbox", "mark", "processed", "billing", "inv-1"]);
    assert!(marked.contains("marked as processed"), "{marked}");
    database.run(&["inbox", "mark", "processed", "billing", "inv-1"]).failed(1, &["it is done"]);
    database.run(&["inbox", "mark", "dead", "billing", "inv-2", "--error=not ours"]).succeeded();
    let stats = database.json(&["inbox", "stats"]);
    assert_eq!((&stats["ledger"]["done"], &stats["ledger"]["dead"]), (&json!(1), &json!(1)), "{stats}");
    assert!(database.told(&["inbox", "stats"]).contains("in the queue"));
    assert_eq!(database.told(&["inbox", "pause", "invoice.paid"]), "invoice.paid paused\n");
    assert_eq!(database.json(&["inbox", "stats"])["paused"][0]["topic"], "invoice.paid");
    assert_eq!(database.told(&["inbox", "resume", "invoice.paid"]), "invoice.paid resumed\n");
}

fn what_is_past_its_age_is_deleted() {
    let database = OwnDatabase::migrated();
    let [old, young] = ["old", "young"].map(|topic| enqueue(&database, &[topic]));
    database.run(&["outbox", "cancel", &old, &young]).succeeded();
    let aged =
        "UPDATE infra.Outbox_history SET ProcessedAt = DATEADD(DAY, -40, ProcessedAt) WHERE Topic = N'old'";
    database.execute([aged]);
    let keep = ["retention", "run", "--keep", "failed=39d"];
    let outbox = |told: &Value| {
        let found = told["results"].as_array().unwrap().iter().find(|result| result["what"] == "outbox");
        found.unwrap_or_else(|| panic!("no outbox in {told}")).clone()
    };
    let dry = database.json(&[&keep[..], &["--dry-run"]].concat());
    assert_eq!(outbox(&dry)["would_delete"], 1, "{dry}");
    let told = database.json(&keep);
    assert_eq!(outbox(&told)["deleted"], 1, "{told}");
    assert_eq!(told["results"].as_array().unwrap().len(), 7, "{told}");
    database.run(&["outbox", "show", &old]).ended(1);
    database.run(&["outbox", "show", &young]).succeeded();
    let records = database.json(&["audit", "list", "--name", "outbox.purge"]);
    assert_eq!(records.as_array().unwrap().len(), 1, "{records}");
}
