//! `mainstay health`, `doctor` and `config check`.

use serde_json::{Value, json};

use crate::harness::{Case, cases};
use crate::own_database::OwnDatabase;

pub(crate) const CASES: &[Case] =
    cases![health_is_told_with_what_to_do, a_doctor_looks_closer, a_configuration_is_checked];

#[track_caller]
fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let found = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {report}"))
}

fn health_is_told_with_what_to_do() {
    let database = OwnDatabase::new();
    assert!(database.run(&["health"]).ended(1).stdout.contains("mainstay migrate"));
    database.run(&["health", "live"]).succeeded();
    database.run(&["migrate"]).succeeded();
    let report = database.json(&["health"]);
    assert_eq!(
        (&report["status"], &report["provider"]),
        (&json!("healthy"), &json!("sqlserver")),
        "{report}"
    );
    assert_eq!(report["database"], database.location());
    for probe in ["live", "ready"] {
        assert_eq!(database.json(&["health", probe])["status"], "healthy");
    }
    database.run(&["outbox", "enqueue", "t"]).succeeded();
    database.execute([
        "UPDATE infra.Outbox SET DueAt = DATEADD(HOUR, -1, DueAt), CreatedAt = DATEADD(HOUR, -1, CreatedAt)",
    ]);
    let report = database.run(&["health", "--json"]).ended(1).json();
    assert_eq!(check(&report, "overdue.outbox")["status"], "unhealthy", "{report}");
    let told = database.run(&["health"]).ended(1).stdout;
    assert!(told.ends_with(&format!("{}: unhealthy\n", database.location())), "{told}");

    // Port 1 of the loopback is nobody's.
    for nowhere in
        ["mssql://app:s3cret@127.0.0.1:1/shop", "Server=127.0.0.1,1;User Id=app;Password='s3;cret'"]
    {
        let ran = database.run(&["health", "--database", nowhere]).ended(3);
        assert!(ran.stdout.contains("can't be reached"), "{}", ran.stdout);
        for text in [&ran.stdout, &ran.stderr] {
            assert!(!text.contains("s3cret") && !text.contains("cret'"), "{text}");
        }
    }
}

fn a_doctor_looks_closer() {
    let database = OwnDatabase::migrated();
    database.run(&["outbox", "enqueue", "order.paid"]).succeeded();
    let ran = database.run(&["doctor", "--json"]);
    // What a server does not show to everybody is told as unknown, and the rest is examined.
    assert!(ran.code == 0 || ran.code == 3, "{}{}", ran.stdout, ran.stderr);
    let report = ran.json();
    assert_eq!((&report["probe"], &report["reached"]), (&json!("doctor"), &json!(true)), "{report}");
    let lag = check(&report, "lag.outbox")["summary"].as_str().unwrap();
    assert!(lag.starts_with("order.paid: 1 waiting"), "{report}");
    let told = database.run(&["doctor"]).stdout;
    assert!(told.contains(" lag.outbox ") && told.contains(&database.location()), "{told}");
    for name in ["connectivity", "schema", "rights"] {
        assert_eq!(check(&report, name)["status"], "healthy", "{report}");
    }
}

fn a_configuration_is_checked() {
    let database = OwnDatabase::new();
    let shown = |arguments: &[&str]| {
        let told = database.json(&[&["config", "check"], arguments].concat());
        assert_eq!(told["problems"], json!([]), "{told}");
        let settings = told["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["name"] == "database").unwrap()["value"].clone()
    };
    assert_eq!(shown(&[]), json!(database.location()));
    assert_eq!(shown(&["--database", &database.ado()]), json!(database.location()));
    let wrong = [
        ("mssql://u:s3cret@h:nowhere/d", "port"),
        ("mssql://u:s3@cret@h/d", "%40"),
        ("Server=h;User Id=u;Password='s3cret", "quotes"),
        ("Server=h;User Id=u;Password=s3cret;Colour=red", "Colour"),
    ];
    for (url, says) in wrong {
        let ran = database.run(&["config", "check", "--database", url]).failed(2, &[says]);
        assert!(!ran.stdout.contains("s3cret") && !ran.stderr.contains("cret"), "{}", ran.stderr);
    }
}
