//! `mainstay outbox export` and `import`: there and back again, interrupted, doubled and damaged.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use std::io::Write;
use std::process::Stdio;

use mainstay::outbox::{Message, OnFailure};
use mainstay::queue::ClaimRequest;
use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay::{Outbox, OwnerToken};
use program::{Program, Ran};
use serde_json::{Value, json};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn import(program: &Program, arguments: &[&str]) -> Value {
    program.run(&[&["outbox", "import", "--json"], arguments].concat()).succeeded().json()
}

async fn open(program: &Program, file: &str) -> (Sqlite, Outbox) {
    let sqlite = Sqlite::open(program.folder().join(file)).await.unwrap();
    let outbox = Outbox::new(sqlite.outbox());
    (sqlite, outbox)
}

/// A second database beside the first.
fn second(program: &Program) {
    program.run(&["--database", "new.db", "migrate"]).succeeded();
}

#[tokio::test]
async fn messages_arrive_as_they_were_and_in_their_order() {
    let program = Program::with_database();
    let (sqlite, outbox) = open(&program, "shop.db").await;
    let payload = "{\"a\": 1}\n\u{0}\u{1f980} \"quoted\"";
    let whole =
        Message::new("whole", payload).correlation("c").idempotency_key("i").priority(-3).header("h", "v");
    let whole = whole
        .ordering_key("k")
        .on_failure(OnFailure::Hold)
        .due_at("2999-01-01T00:00:00.123456Z".parse().unwrap());
    let whole = outbox.enqueue(whole.expires_at("2999-02-01T00:00:00Z".parse().unwrap())).await.unwrap();
    // Of one key, with ids that are not in its order.
    let mut ids: Vec<_> = (0..20).map(|_| mainstay::WorkItemId::new()).collect();
    ids.reverse();
    for id in &ids {
        outbox.enqueue(Message::new("step", "").ordering_key("line").work_item_id(*id)).await.unwrap();
    }
    sqlite.close().await;
    second(&program);
    let exported = program.run(&["outbox", "export", "--output", "all.ndjson"]).succeeded();
    assert_eq!(exported.stdout, "");
    assert_eq!(exported.stderr, "21 messages written to all.ndjson\n");
    let file = std::fs::read_to_string(program.folder().join("all.ndjson")).unwrap();
    assert!(!file.contains("owner") && !file.contains("generation"), "no claim can be made of it");
    let told = import(&program, &["--database", "new.db", "all.ndjson"]);
    assert_eq!(told, json!({ "imported": 21, "known": 0, "left_out": 0, "wrong": 0, "dry_run": false }));

    let (sqlite, outbox) = open(&program, "new.db").await;
    let arrived = outbox.get(whole.work_item).await.unwrap().unwrap();
    assert_eq!((arrived.message_id, arrived.payload.as_deref()), (whole.message, Some(payload)));
    assert_eq!(
        (arrived.correlation_id.as_deref(), arrived.idempotency_key.as_deref()),
        (Some("c"), Some("i"))
    );
    assert_eq!((arrived.ordering_key.as_deref(), arrived.priority), (Some("k"), -3));
    assert_eq!(arrived.headers.get("h").map(String::as_str), Some("v"));
    assert_eq!(arrived.next_attempt_at.to_string(), "2999-01-01T00:00:00.123456Z");
    assert_eq!(arrived.expires_at.unwrap().to_string(), "2999-02-01T00:00:00Z");
    let owner = OwnerToken::new();
    for id in &ids {
        let claimed = outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
        assert_eq!(
            claimed.items.iter().map(|item| item.id()).collect::<Vec<_>>(),
            [*id],
            "one at a time, in order"
        );
        outbox.ack(owner, &claimed.handles()).await.unwrap();
    }
    sqlite.close().await;
    // What is done there by now does not come back.
    let again = import(&program, &["--database", "new.db", "all.ndjson"]);
    assert_eq!((&again["imported"], &again["known"]), (&json!(0), &json!(21)));
    let back =
        program.run(&["--database", "new.db", "outbox", "export", "--status", "ready"]).succeeded().stdout;
    let (first, back) = (&lines(&file)[0], &lines(&back)[0]);
    for field in [
        "id",
        "message_id",
        "topic",
        "payload",
        "headers",
        "hold_on_failure",
        "next_attempt_at",
        "expires_at",
    ] {
        assert_eq!(first[field], back[field], "{field}");
    }
}

#[test]
fn what_is_done_or_failed_is_left_out_unless_it_is_asked_for() {
    let program = Program::with_database();
    for topic in ["a", "b"] {
        program.run(&["outbox", "enqueue", topic, "x"]).succeeded();
    }
    let listed = program.run(&["outbox", "list", "--topic", "b", "--json"]).succeeded().json();
    program.run(&["outbox", "cancel", listed[0]["id"].as_str().unwrap()]).succeeded();
    let all = program.run(&["outbox", "export"]).succeeded().stdout;
    assert_eq!(lines(&all).len(), 2);
    assert_eq!(lines(&program.run(&["outbox", "export", "--topic", "a"]).succeeded().stdout).len(), 1);
    let failed =
        program.run(&["outbox", "export", "--status", "failed", "--reason", "cancelled"]).succeeded().stdout;
    assert_eq!(lines(&failed)[0]["topic"], "b");
    program.write("all.ndjson", &all);
    second(&program);
    let told = import(&program, &["--database", "new.db", "all.ndjson"]);
    assert_eq!((&told["imported"], &told["left_out"]), (&json!(1), &json!(1)));
    let told = import(&program, &["--database", "new.db", "all.ndjson", "--status", "failed"]);
    assert_eq!((&told["imported"], &told["left_out"]), (&json!(1), &json!(1)));
    let stats = program.run(&["--database", "new.db", "outbox", "stats", "--json"]).succeeded().json();
    assert_eq!(stats["ready"], 2);
}

#[test]
fn what_expired_is_brought_back_to_run() {
    let program = Program::with_database();
    let line = |number: u32, status: &str| {
        json!({ "id": format!("0190a5c4-7d5e-7b2c-8f0e-0000000000{number:02}"), "topic": status, "payload": "", "status": status,
                "expires_at": "2001-01-01T00:00:00Z" })
        .to_string()
            + "\n"
    };
    program.write("in.ndjson", &[line(1, "failed"), line(2, "in-progress"), line(3, "ready")].concat());
    let all = [
        "outbox",
        "import",
        "in.ndjson",
        "--status",
        "failed",
        "--status",
        "in-progress",
        "--status",
        "ready",
    ];
    let ran = program.run(&all).succeeded();
    assert_eq!(ran.stdout, "3 messages imported\n");
    assert_eq!(ran.stderr, "2 messages that had expired were imported without an expiry\n");
    for row in lines(&program.run(&["outbox", "export"]).succeeded().stdout) {
        assert_eq!(row["expires_at"].is_null(), row["topic"] != "ready", "{row}");
    }
}

#[test]
fn an_import_leaves_a_record_and_one_that_fails_too() {
    let program = Program::with_database();
    let line = |number: u32| {
        format!(
            "{{\"id\":\"0190a5c4-7d5e-7b2c-8f0e-0000000000{number:02}\",\"topic\":\"t\",\"payload\":\"s3cret\"}}\n"
        )
    };
    let records = || {
        let listed = ["audit", "list", "--name", "outbox.import", "--json"];
        program.run(&listed).succeeded().json().as_array().unwrap().clone()
    };
    program.write("in.ndjson", &[line(1), line(2)].concat());
    program.run(&["outbox", "import", "--dry-run", "in.ndjson"]).succeeded();
    assert_eq!(records().len(), 0, "nothing was done");
    program.run(&["--actor", "alice", "outbox", "import", "in.ndjson"]).succeeded();
    let [record] = &records()[..] else { panic!("{:?}", records()) };
    assert_eq!((&record["actor"], &record["outcome"]), (&json!("alice"), &json!("succeeded")), "{record}");
    let shown = program.run(&["audit", "show", record["id"].as_str().unwrap(), "--json"]).succeeded().json();
    assert_eq!(shown["data"], json!({ "imported": 2, "from_line": 1, "to_line": 2 }));
    program.run(&["outbox", "import", "in.ndjson"]).succeeded();
    assert_eq!(records().len(), 1, "nothing was added");
    program.write("in.ndjson", &[&line(3), "s3cret\n"].concat());
    program.run(&["outbox", "import", "in.ndjson"]).failed(1, &["line 2"]);
    let told = records();
    assert_eq!(told.iter().filter(|record| record["outcome"] == "failed").count(), 1, "{told:?}");
    assert_eq!(told.len(), 3, "and the line before it was imported: {told:?}");
    assert!(!format!("{told:?}").contains("s3cret"));
}

#[cfg(unix)]
#[test]
fn a_file_is_there_when_all_of_it_is_and_its_owner_s_alone() {
    use std::os::unix::fs::PermissionsExt;

    let program = Program::with_database();
    program.run(&["outbox", "enqueue", "t", "x"]).succeeded();
    // What somebody else has under a name like ours is left alone.
    program.write("out.ndjson.part", "mine");
    program.run(&["outbox", "export", "--output", "out.ndjson"]).succeeded();
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(program.folder())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains("ndjson"))
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["out.ndjson", "out.ndjson.part"]);
    assert_eq!(std::fs::read_to_string(program.folder().join("out.ndjson.part")).unwrap(), "mine");
    let mode = program.folder().join("out.ndjson").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // What is no file is not replaced by one.
    program.run(&["outbox", "export", "--output", "/dev/null"]).failed(2, &["is not a file"]);
    program.run(&["outbox", "export", "--output", "."]).failed(2, &["is not a file"]);
    program.run(&["outbox", "export", "--output", "nowhere/out.ndjson"]).failed(1, &["can't be written"]);
    assert_eq!(names(), ["out.ndjson", "out.ndjson.part"]);
}

#[test]
fn a_pipe_goes_from_one_database_to_the_other() {
    let program = Program::with_database();
    for _ in 0..3 {
        program.run(&["outbox", "enqueue", "t", "x"]).succeeded();
    }
    second(&program);
    let mut from = program.command(&["outbox", "export"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut to = program.command(&["--database", "new.db", "outbox", "import"]);
    let to = to.stdin(from.stdout.take().unwrap()).output().unwrap();
    assert!(from.wait().unwrap().success());
    assert_eq!(Ran::of(to).succeeded().stdout, "3 messages imported\n");
}

#[test]
fn a_wrong_line_is_named_and_mended_by_running_again() {
    let program = Program::with_database();
    let line = |number: u32, more: &str| {
        format!(
            "{{\"id\":\"0190a5c4-7d5e-7b2c-8f0e-0000000000{number:02}\",\"topic\":\"t\",\"payload\":\"s3cret\"{more}}}\n"
        )
    };
    let bad = [
        ("{\"topic\":\"t\",\"payload\":\"s3cret\"}\n".to_owned(), "id must be given, or idempotency_key"),
        (line(50, ",\"prority\":3"), "unknown field `prority`"),
        (line(51, ",\"priority\":99"), "priority must be -9 to 9"),
        (line(52, ",\"priority\":\"s3cret\""), "value of another kind"),
        (line(53, ",\"status\":\"lost\""), "status"),
        ("s3cret\n".to_owned(), "no JSON object"),
        (line(54, ",\"payload_base64\":\"eA==\""), "must not both be given"),
        (
            "{\"id\":\"0190a5c4-7d5e-7b2c-8f0e-000000000055\",\"topic\":\"t\",\"payload_base64\":\"/w==\"}\n"
                .to_owned(),
            "UTF-8",
        ),
    ];
    for (at, (wrong, says)) in bad.iter().enumerate() {
        let number = 1 + 2 * at as u32;
        program.write(
            "in.ndjson",
            &[&line(number, ""), "\n", &line(number + 1, ""), wrong, &line(49, "")].concat(),
        );
        let ran =
            program.run(&["outbox", "import", "in.ndjson"]).failed(1, &["line 4 can't be imported", says]);
        assert!(ran.stderr.contains("2 of the lines before it imported"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
        let dry = program.run(&["outbox", "import", "--dry-run", "--json", "in.ndjson"]).ended(1);
        let told = dry.json();
        assert_eq!((&told["imported"], &told["known"], &told["wrong"]), (&json!(1), &json!(2), &json!(1)));
        assert!(dry.stderr.starts_with("line 4: "), "{}", dry.stderr);
    }
    program.write("in.ndjson", &[line(1, ""), line(49, ""), line(49, "")].concat());
    assert_eq!(
        program.run(&["outbox", "import", "in.ndjson"]).succeeded().stdout,
        "1 message imported, 2 there already\n"
    );
    let total = program.run(&["outbox", "stats", "--json"]).succeeded().json()["ready"].clone();
    assert_eq!(total, 2 * bad.len() as u64 + 1);
    // An id that is another message's is told, and not passed over.
    program.write("in.ndjson", &line(1, ",\"message_id\":\"0190a5c4-7d5e-7b2c-8f0e-999999999999\""));
    program.run(&["outbox", "import", "in.ndjson"]).failed(1, &["line 1", "is that of another message"]);
    program.run(&["outbox", "import", "missing.ndjson"]).failed(2, &["missing.ndjson can't be read"]);
}

#[test]
fn bytes_in_base64_are_taken() {
    let program = Program::with_database();
    program.write("in.ndjson", "{\"idempotency_key\":\"k\",\"topic\":\"t\",\"payload_base64\":\"w6QK\"}\n");
    assert_eq!(import(&program, &["in.ndjson"])["imported"], 1);
    assert_eq!(import(&program, &["in.ndjson"])["known"], 1, "by its idempotency key");
    let row = lines(&program.run(&["outbox", "export"]).succeeded().stdout).remove(0);
    assert_eq!(row["payload"], "ä\n");
}

/// Killed in the middle, over and over, and run again: in the end each message is there once.
#[test]
fn whoever_is_killed_runs_it_again() {
    let program = Program::with_database();
    let mut text = String::new();
    const ALL: u64 = 3_000;
    for _ in 0..ALL {
        let line = json!({ "id": mainstay::WorkItemId::new(), "topic": "t", "payload": "x".repeat(200), "ordering_key": "k" });
        text.push_str(&format!("{line}\n"));
    }
    program.write("in.ndjson", &text);
    let ready = || program.run(&["outbox", "stats", "--json"]).succeeded().json()["ready"].as_u64().unwrap();
    for _ in 0..3 {
        let before = ready();
        let mut command = program.command(&["outbox", "import", "in.ndjson"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        // When it has done something, whatever that is.
        let begun = std::time::Instant::now();
        while child.try_wait().unwrap().is_none() && ready() == before && begun.elapsed().as_secs() < 60 {}
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let partly = ready();
    let told = import(&program, &["in.ndjson"]);
    assert_eq!(told["known"].as_u64().unwrap(), partly);
    assert_eq!(told["imported"].as_u64().unwrap() + partly, ALL);
    assert_eq!(ready(), ALL);
    let file: Vec<_> = lines(&text).iter().map(|line| line["id"].clone()).collect();
    let there = lines(&program.run(&["outbox", "export"]).succeeded().stdout);
    assert_eq!(
        there.iter().map(|line| line["id"].clone()).collect::<Vec<_>>(),
        file,
        "in the order of the file"
    );
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    let program = Program::with_database();
    let big = "x".repeat(1 << 20);
    for _ in 0..4 {
        let mut command = program.command(&["outbox", "enqueue", "t", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(big.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }
    let mut child = program.start(&["outbox", "export"]);
    drop(child.stdout.take());
    let ended = Ran::of(child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
}
