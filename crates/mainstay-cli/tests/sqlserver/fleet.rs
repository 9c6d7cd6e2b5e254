//! `mainstay stores` and `health`: a fleet of two databases, each named in another form.

use serde_json::{Value, json};

use crate::harness::{Case, cases};
use crate::own_database::OwnDatabase;

pub(crate) const CASES: &[Case] = cases![two_databases_are_deployed_and_looked_at];

#[track_caller]
fn row<'a>(rows: &'a Value, id: &str) -> &'a Value {
    let found = rows.as_array().unwrap().iter().find(|row| row["id"] == id);
    found.unwrap_or_else(|| panic!("no {id} in {rows}"))
}

fn two_databases_are_deployed_and_looked_at() {
    let (acme, globex) = (OwnDatabase::new(), OwnDatabase::new());
    let entry = |id: &str, url: &str| format!("[[databases]]\nid = \"{id}\"\nurl = \"{url}\"\n\n");
    let down = "mssql://app:s3cret@127.0.0.1:1/d";
    let file = [entry("acme", &acme.url()), entry("globex", &globex.ado()), entry("down", down)].concat();
    acme.program.write("fleet.toml", &file);
    let run = |arguments: &[&str]| {
        let ran = acme.run(&[arguments, &["--fleet", "fleet.toml"]].concat());
        assert!(!ran.stdout.contains("s3cret") && !ran.stderr.contains("s3cret"), "{}", ran.stderr);
        ran
    };
    let rows = run(&["stores", "list", "--json"]).succeeded().json();
    assert_eq!(row(&rows, "acme")["database"], acme.location());
    assert_eq!(row(&rows, "globex")["database"], globex.location());
    let rows = run(&["stores", "status", "--json"]).ended(1).json();
    assert_eq!(
        (&row(&rows, "acme")["status"], &row(&rows, "globex")["status"]),
        (&json!("missing"), &json!("missing"))
    );

    let rows = run(&["stores", "deploy", "acme", "globex", "--json"]).succeeded().json();
    for id in ["acme", "globex"] {
        assert_eq!(
            (&row(&rows, id)["ok"], &row(&rows, id)["changed"]),
            (&json!(true), &json!(true)),
            "{rows}"
        );
    }
    globex.run(&["outbox", "enqueue", "t"]).succeeded();
    let rows = run(&["stores", "status", "acme", "globex", "--json"]).succeeded().json();
    assert_eq!(
        (&row(&rows, "acme")["outbox"]["ready"], &row(&rows, "globex")["outbox"]["ready"]),
        (&json!(0), &json!(1))
    );
    let told = run(&["stores", "status"]).ended(3);
    assert!(told.stdout.contains("current") && told.stdout.contains("down"), "{}", told.stdout);

    let health = run(&["health", "--store=acme", "--store=globex", "--json"]).succeeded().json();
    assert_eq!(
        (&health["status"], health["databases"].as_array().unwrap().len()),
        (&json!("healthy"), 2),
        "{health}"
    );
    run(&["health"]).ended(3);
}
