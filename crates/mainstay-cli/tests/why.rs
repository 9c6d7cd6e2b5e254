//! `mainstay why`: each reason for which a message is not running.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use mainstay::queue::ClaimRequest;
use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay::{Outbox, OwnerToken};
use program::Program;

fn enqueue(program: &Program, arguments: &[&str]) -> String {
    let all = [&["outbox", "enqueue", "order.paid", "--json"], arguments].concat();
    program.run(&all).succeeded().json()["work_item"].as_str().unwrap().to_owned()
}

fn because(program: &Program, id: &str) -> String {
    let told = program.run(&["why", id, "--json"]).succeeded().json();
    assert_eq!(told["id"], id);
    told["because"].as_str().unwrap().to_owned()
}

#[test]
fn each_reason_is_told_with_what_to_do() {
    let program = Program::with_database();
    let later = enqueue(&program, &["--due-in=1h"]);
    let first = enqueue(&program, &["--ordering-key=order-7", "--hold-on-failure"]);
    let second = enqueue(&program, &["--ordering-key=order-7"]);
    assert_eq!(because(&program, &later), "not_due");
    assert_eq!(because(&program, &first), "unclaimed");
    assert_eq!(because(&program, &second), "key_behind");
    let told = program.run(&["why", &second]).succeeded().stdout;
    assert!(told.contains("order-7") && told.contains(&format!("mainstay why {first}")), "{told}");

    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let sqlite = Sqlite::open(program.folder().join("shop.db")).await.unwrap();
        let (outbox, owner) = (Outbox::new(sqlite.outbox()), OwnerToken::new());
        let claimed = outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
        assert_eq!(because(&program, &first), "claimed");
        outbox.fail(owner, &claimed.handles(), Some("no stock".to_owned())).await.unwrap();
        sqlite.close().await;
    });
    let told = program.run(&["why", &first]).succeeded().stdout;
    assert!(told.contains("no stock") && told.contains("outbox requeue"), "{told}");
    assert_eq!(because(&program, &second), "key_held");
    let told = program.run(&["why", &second]).succeeded().stdout;
    assert!(told.contains("release-key") && told.contains(&first), "{told}");

    program.run(&["outbox", "cancel", &later]).succeeded();
    assert!(program.run(&["why", &later]).succeeded().stdout.contains("cancelled"));
    let timer = program.run(&["timers", "schedule", "t", "--due-in=1h", "--json"]).succeeded().json();
    let told = program.run(&["why", timer["work_item"].as_str().unwrap()]).succeeded().stdout;
    assert!(told.contains("in timers") && told.contains("not due yet"), "{told}");
    let nobody = "00000000-0000-7000-8000-000000000000";
    program.run(&["why", nobody]).failed(1, &[nobody, "outbox list"]);
    program.run(&["why", "7"]).failed(2, &["UUID"]);
}
