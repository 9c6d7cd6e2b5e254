//! `mainstay operations`: each command on a SQLite file in which a program has left operations.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use mainstay::operation::{NewEvent, Progress};
use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay::{NewOperation, OperationId, Operations};
use program::Program;
use serde_json::json;

const NOBODY: &str = "00000000-0000-7000-8000-000000000000";

/// What a program leaves behind: an import that runs, with a part that failed.
fn leave(program: &Program) -> (OperationId, OperationId) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let sqlite = Sqlite::open(program.folder().join("shop.db")).await.unwrap();
        let operations = Operations::new(sqlite.operations()).by("alice");
        let new = NewOperation::new("import.orders").tag("tenant", "7").total(1_200);
        let whole = operations.start(new).await.unwrap();
        operations.progress(whole, Progress::done(300).message("reading\u{1b}[31m")).await.unwrap();
        operations.event(whole, NewEvent::new("page").data(json!({ "n": 3 }))).await.unwrap();
        let part = operations.start(NewOperation::new("check").parent(whole)).await.unwrap();
        let _ = operations.fail(part, "no such file").await.unwrap();
        sqlite.close().await;
        (whole, part)
    })
}

#[test]
fn operations_are_listed_and_shown() {
    let program = Program::with_database();
    let none = program.run(&["operations", "list"]).succeeded();
    assert!(none.stdout.contains("no operations"), "{}", none.stdout);
    let (whole, part) = leave(&program);
    let listed = program.run(&["operations", "list", "--json"]).succeeded().json();
    assert_eq!((&listed[0]["id"], &listed[1]["id"]), (&json!(part), &json!(whole)));
    for (arguments, wanted) in [
        (["--state=failed"], part),
        (["--name=import."], whole),
        (["--tag=tenant=7"], whole),
        ([&*format!("--parent={whole}")], part),
    ] {
        let arguments = [&["operations", "list", "--json"], &arguments[..]].concat();
        let listed = program.run(&arguments).succeeded().json();
        assert_eq!((listed.as_array().unwrap().len(), &listed[0]["id"]), (1, &json!(wanted)));
    }
    let table = program.run(&["operations", "list"]).succeeded();
    assert!(table.stdout.contains("300 of 1,200"), "{}", table.stdout);

    let shown = program.run(&["operations", "show", &whole.to_string(), "--json"]).succeeded().json();
    assert_eq!((&shown["actor"], &shown["tags"]), (&json!("alice"), &json!({ "tenant": "7" })));
    assert_eq!(shown["event_list"][0]["data"], json!({ "n": 3 }));
    assert_eq!(shown["parts"][0]["error"], json!("no such file"));
    let told = program.run(&["operations", "show", &whole.to_string()]).succeeded();
    assert!(told.stdout.contains("tenant=7") && !told.stdout.contains('\u{1b}'), "{}", told.stdout);
}

#[test]
fn stalled_operations_are_shown_and_marked() {
    let program = Program::with_database();
    let (whole, _) = leave(&program);
    let none = program.run(&["operations", "stalled"]).succeeded();
    assert!(none.stdout.contains("no stalled operations"), "{}", none.stdout);
    let listed = program.run(&["operations", "stalled", "--older-than=1ms", "--json"]).succeeded().json();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["id"]), (1, &json!(whole)));
    let marked = program.run(&["operations", "stalled", "--older-than=1ms", "--mark", "--json"]);
    assert_eq!(marked.succeeded().json(), json!({ "marked": [whole] }));
    let shown = program.run(&["operations", "show", &whole.to_string(), "--json"]).succeeded().json();
    assert_eq!(shown["state"], json!("stalled"));
}

#[test]
fn what_is_not_there_or_makes_no_sense_is_refused() {
    let program = Program::with_database();
    program.run(&["operations", "show", NOBODY]).failed(1, &[NOBODY, "operations list"]);
    for arguments in [
        ["operations", "show", "seven"],
        ["operations", "list", "--state=done"],
        ["operations", "list", "--tag=tenant"],
        ["operations", "list", "--limit=0"],
        ["operations", "stalled", "--older-than=0s"],
    ] {
        program.run(&arguments).failed(2, &[]);
    }
}
