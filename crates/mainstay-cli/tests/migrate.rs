//! `mainstay migrate` on SQLite.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use program::Program;

#[test]
fn a_schema_is_made_once_and_then_current() {
    let program = Program::new();
    program.write("mainstay.toml", "database = \"a.db\"\n");
    program.run(&["migrate", "--check"]).failed(3, &["a.db"]);
    let first = program.run(&["migrate", "--json"]).succeeded().json();
    assert_eq!((&first["status"], &first["changed"]), (&"current".into(), &true.into()));
    let second = program.run(&["migrate", "--json"]).succeeded().json();
    assert_eq!((&second["status"], &second["changed"]), (&"current".into(), &false.into()));
    program.run(&["migrate", "--check"]).succeeded();
    let other = program.run(&["migrate", "--check", "--schema", "other"]);
    other.failed(1, &["not current", "mainstay migrate"]);
    let other = program.run(&["migrate", "--check", "--schema", "other", "--json"]).ended(1).json();
    assert_eq!(other["status"], "missing");
}

#[test]
fn a_step_edited_by_hand_is_told() {
    let program = Program::with_database();
    let database = rusqlite::Connection::open(program.folder().join("shop.db")).unwrap();
    let ledger: String = database
        .query_row("select name from sqlite_schema where name like '%mainstay_migration'", [], |row| {
            row.get(0)
        })
        .unwrap();
    database.execute(&format!("update \"{ledger}\" set checksum = 'edited'"), []).unwrap();
    program.run(&["migrate", "--check"]).failed(1, &["step 1", "edited by hand"]);
    program.run(&["migrate"]).failed(1, &["step 1"]);
}

#[test]
fn a_ledger_that_is_gone_is_told_with_what_to_do() {
    for gone in ["drop table infra_mainstay_migration", "delete from infra_mainstay_migration"] {
        let program = Program::with_database();
        let database = rusqlite::Connection::open(program.folder().join("shop.db")).unwrap();
        database.execute_batch(gone).unwrap();
        for command in [&["migrate"][..], &["migrate", "--check"], &["outbox", "stats"]] {
            let says = ["infra_outbox_history", "no record in infra_mainstay_migration", "--print"];
            let ran = program.run(command).failed(1, &says);
            assert!(!ran.stderr.contains("should not happen"), "{command:?}: {}", ran.stderr);
        }
        let json = program.run(&["migrate", "--check", "--json"]).ended(1).json();
        assert_eq!(json["status"], "unrecorded");
        // What it says to do helps.
        let script = program.run(&["migrate", "--print"]).succeeded().stdout;
        let table = script.find("CREATE TABLE IF NOT EXISTS").unwrap();
        database.execute_batch(&script[table..=table + script[table..].find(';').unwrap()]).unwrap();
        for (row, _) in script.match_indices("INSERT INTO \"infra_mainstay_migration\"") {
            database.execute_batch(&script[row..=row + script[row..].find(';').unwrap()]).unwrap();
        }
        program.run(&["migrate", "--check"]).succeeded();
    }
}

#[test]
fn a_table_that_is_gone_is_told() {
    let program = Program::with_database();
    let database = rusqlite::Connection::open(program.folder().join("shop.db")).unwrap();
    database.execute_batch("drop table infra_outbox_hold").unwrap();
    let json = program.run(&["migrate", "--check", "--json"]).ended(1).json();
    let version = mainstay::sqlite::MIGRATIONS.last().unwrap().version;
    assert_eq!((&json["status"], &json["version"]), (&"incomplete".into(), &version.into()));
}

#[test]
fn the_script_is_printed_without_touching_anything() {
    let program = Program::new();
    let sqlite = program.run(&["--database", "a.db", "migrate", "--print", "--schema", "shop"]).succeeded();
    assert!(sqlite.stdout.contains("shop_outbox"), "{}", sqlite.stdout);
    assert!(!program.folder().join("a.db").exists());
    // Whoever is behind this URL is not asked.
    let url = "postgres://u:s3cret@127.0.0.1:1/d";
    let postgres = program.run(&["--database", url, "migrate", "--print", "--schema", "shop"]).succeeded();
    for text in ["\"shop\".\"outbox\"", "outbox_claim"] {
        assert!(postgres.stdout.contains(text), "{text:?} is not in the script");
    }
    assert!(!postgres.stdout.contains("s3cret"));
    // As JSON it is JSON.
    let json =
        program.run(&["--database", url, "migrate", "--print", "--schema", "shop", "--json"]).succeeded();
    assert_eq!(json.json()["script"].as_str().unwrap().trim_end(), postgres.stdout.trim_end());
    let grants = ["--database", url, "migrate", "--grants", "app"];
    let plain = program.run(&grants).succeeded().stdout;
    let json = program.run(&[&grants[..], &["--json"]].concat()).succeeded().json();
    assert_eq!(
        (json["role"].as_str(), json["script"].as_str().map(str::trim_end)),
        (Some("app"), Some(plain.trim_end()))
    );
}

#[test]
fn a_printed_script_makes_the_schema_that_check_wants() {
    let program = Program::new();
    let script = program.run(&["--database", "a.db", "migrate", "--print"]).succeeded().stdout;
    let database = rusqlite::Connection::open(program.folder().join("a.db")).unwrap();
    database.execute_batch(&script).unwrap();
    drop(database);
    program.run(&["--database", "a.db", "migrate", "--check"]).succeeded();
}
