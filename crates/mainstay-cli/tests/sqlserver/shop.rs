//! `mainstay demo` and `bench`: the books balance, and nothing is left behind.

use std::io::{BufRead, BufReader};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Case, cases};
use crate::own_database::OwnDatabase;
use crate::program::Ran;

pub(crate) const CASES: &[Case] = cases![the_books_balance, a_measurement_leaves_nothing_behind];

/// So many orders are enough for one of nearly every kind.
const ORDERS: u64 = 30;

#[track_caller]
fn assert_balanced(summary: &Value) {
    let number = |name: &str| summary[name].as_u64().unwrap_or_else(|| panic!("no {name} in {summary}"));
    assert_eq!(
        (&summary["balanced"], &summary["database"]),
        (&json!(true), &json!("sqlserver")),
        "{summary}"
    );
    assert!(number("orders") >= ORDERS && number("retries") > 0, "{summary}");
    assert_eq!(number("done") + number("failed"), number("enqueued"), "{summary}");
    for name in ["pending", "in_progress", "lost", "shipped_twice", "out_of_order", "reports_misread"] {
        assert_eq!(number(name), 0, "{name}: {summary}");
    }
    for name in ["shipments", "reports", "stock_counts"] {
        assert!(number(name) > 0, "{name}: {summary}");
    }
}

/// How many orders a line of progress tells of.
fn orders(line: &str) -> Option<u64> {
    let before = line.split_once(" orders")?.0;
    before.split_whitespace().next_back()?.replace(',', "").parse().ok()
}

fn the_books_balance() {
    let database = OwnDatabase::new();
    // However long the server takes: it is closed when enough was ordered.
    let demo = ["demo", "--for", "20m", "--rate", "10", "--workers", "4", "--json"];
    let mut child = database.start(&demo);
    let mut progress = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let enough = progress.by_ref().any(|line| orders(&line).is_some_and(|orders| orders >= ORDERS));
    assert!(enough, "it ended by itself");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    // To its end: what is not read would be in its way.
    let rest: Vec<_> = progress.collect();
    let ran = Ran::of(child.wait_with_output().unwrap()).succeeded();
    assert!(rest.iter().any(|line| line.contains("draining")), "there is no progress in {rest:?}");
    assert_balanced(&ran.json());
    let stats = database.json(&["outbox", "stats", "--schema", "mainstay_demo"]);
    let rest = ["ready", "scheduled", "in_progress"].map(|name| stats[name].as_u64().unwrap());
    assert_eq!(rest, [0, 0, 0], "{stats}");
    // Once more on the same tables, named in the other form.
    let told = database.told(&["demo", "--for", "1s", "--workers", "4", "--database", &database.ado()]);
    assert!(told.contains("The books balance"), "{told}");
}

fn a_measurement_leaves_nothing_behind() {
    let database = OwnDatabase::new();
    let bench = ["bench", "--quick", "--messages", "100", "--only", "bulk,limit_insert_1"];
    let results = database.json(&bench);
    for name in ["bulk", "limit_insert_1"] {
        assert!(results[name].as_f64() > Some(0.0), "{name}: {results}");
    }
    assert_eq!(
        (&results["database"], &results["location"]),
        (&json!("sqlserver"), &json!(database.location()))
    );
    let left = "SELECT COUNT(*) FROM sys.schemas WHERE LOWER(name) LIKE 'mainstay%'";
    assert_eq!(database.count(left), 0);
}
