//! `mainstay config check`, `completions` and `man`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use program::{Program, Ran};
use serde_json::{Value, json};

fn check(program: &Program, arguments: &[&str]) -> Ran {
    program.run(&[&["config", "check"], arguments].concat())
}

fn setting<'a>(told: &'a Value, name: &str) -> (&'a str, &'a str) {
    let found = told["settings"].as_array().unwrap().iter().find(|setting| setting["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no {name} in {told}"));
    (found["value"].as_str().unwrap(), found["from"].as_str().unwrap())
}

#[test]
fn what_counts_is_told_with_where_it_comes_from() {
    let program = Program::new();
    let text = "database = 'postgres://app:s3cret@db.internal/shop'\nlog = 'info'\n[serve]\nlisten = '127.0.0.1:9'\n";
    program.write("mainstay.toml", text);
    let mut command = program.command(&["config", "check", "--json", "--schema", "work"]);
    let ran = Ran::of(command.env("MAINSTAY_LOG", "debug").env("MAINSTAY_DATABSE", "x").output().unwrap())
        .succeeded();
    assert!(!ran.stdout.contains("s3cret"), "{}", ran.stdout);
    let told = ran.json();
    assert_eq!((&told["file"], &told["problems"]), (&json!("mainstay.toml"), &json!([])));
    assert!(told["notes"][0].as_str().unwrap().contains("did you mean MAINSTAY_DATABASE"), "{told}");
    let (database, from) = setting(&told, "database");
    assert!(database.contains("db.internal") && from == "mainstay.toml", "{told}");
    assert_eq!(setting(&told, "schema"), ("work", "--schema"));
    assert_eq!(setting(&told, "log"), ("debug", "MAINSTAY_LOG"));
    assert_eq!(setting(&told, "outbox_table"), ("outbox", "default"));
    assert_eq!(setting(&told, "serve.listen"), ("127.0.0.1:9", "mainstay.toml"));
    let table = check(&program, &[]).succeeded().stdout;
    assert!(table.contains("nothing is wrong") && !table.contains("s3cret"), "{table}");
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let program = Program::new();
    let text = "databse = 's3cret'\ndatabase = 'oracle://u:s3cret@h/d'\nlog = 'wran'\nschema = ''\nfleet = 'fleet.toml'\n\n\
                [serve]\nlisten = 'nowhere'\nmax_bach = 3\nmax_wait_seconds = 'long'\n";
    program.write("mainstay.toml", text);
    program.write("fleet.toml", "[[databases]]\nid = 'a'\nurl = 'sqlite:a.db'\n[[databases]]\nid = 'b'\nurl = 'gopher://u:s3cret@h'\n");
    let ran = check(&program, &["--json"]).ended(2);
    assert!(!ran.stdout.contains("s3cret"), "{}", ran.stdout);
    let told = ran.json();
    let problems: Vec<_> = told["problems"].as_array().unwrap().iter().map(ToString::to_string).collect();
    for says in [
        "unknown key `databse`",
        "did you mean `database`?",
        "did you mean `max_batch`?",
        "mainstay.toml, line 10",
        "\"log\"",
        "\"database\"",
        "schema",
        "the address to listen at",
        "fleet, database b",
    ] {
        assert!(problems.iter().any(|problem| problem.contains(says)), "{says:?} is not in {problems:#?}");
    }
    let ran = check(&program, &[]).failed(2, &["error: mainstay.toml, line 1", "problems"]);
    assert!(!ran.stderr.contains("s3cret") && !ran.stdout.contains("s3cret"), "{}", ran.stderr);
}

#[test]
fn what_a_command_would_refuse_is_told_without_asking_anybody() {
    let program = Program::new();
    let text = "database = 'postgres://app:s3cret@h/d?sslmode=nonsense'\nfleet = 'fleet.toml'\n[serve]\nmax_connections = 0\n\
                [telemetry]\nendpoint = 'http://h:4318'\nsampler = 'sometimes'\n[telemetry.headers]\nauthorization = 'Bearer s3cret'\n";
    program.write("mainstay.toml", text);
    program.write("fleet.toml", "[[databases]]\nid = 'a'\nurl = 'mssql://u:s3cret@h:nowhere/d'\n");
    let ran = check(&program, &["--json"]).ended(2);
    assert!(
        !ran.stdout.contains("s3cret") && !ran.stderr.contains("s3cret"),
        "{} {}",
        ran.stdout,
        ran.stderr
    );
    let told = ran.json();
    let places: Vec<_> = told["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| problem["place"].as_str().unwrap())
        .collect();
    for place in ["database", "fleet, database a", "[serve]", "[telemetry]"] {
        assert!(places.contains(&place), "{place} is not in {told:#}");
    }
    assert_eq!(setting(&told, "telemetry.headers"), ("authorization", "mainstay.toml"));
    assert_eq!(setting(&told, "telemetry.endpoint"), ("http://h:4318", "mainstay.toml"));
    // Nobody is there, and nobody has to be.
    program.write("mainstay.toml", "database = 'postgres://app@127.0.0.1:1/d'\n");
    check(&program, &[]).succeeded();
    program.write("mainstay.toml", "[serve.retention]\nfailed = '90d'\ninbox_done = '1h'\n");
    let told = check(&program, &["--json"]).ended(2).json();
    assert_eq!(setting(&told, "serve.retention.failed"), ("90d", "mainstay.toml"));
    assert!(
        told["problems"][0]["problem"].as_str().unwrap().contains("inbox_done must be at least"),
        "{told}"
    );
}

#[test]
fn a_secret_in_the_wrong_place_is_not_shown() {
    let program = Program::new();
    for text in [
        "[telemetry]\nheaders = 'authorization=Bearer s3cret'\n",
        "[telemetry]\nheaders = 'x, expected s3cret'\n",
        "[serve]\ntoken = 's3cret'\n",
        "[serve.retention]\nfailed = 's3cret'\n",
    ] {
        program.write("mainstay.toml", text);
        let ran = program.run(&["outbox", "list"]).failed(2, &["mainstay.toml, line", "config check"]);
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
        let ran = check(&program, &[]).ended(2);
        assert!(!ran.stderr.contains("s3cret") && !ran.stdout.contains("s3cret"), "{}", ran.stderr);
    }
    program.write("mainstay.toml", "");
    let ran = program.run(&["outbox", "stats", "mssql://h/d?access_token=s3cret"]).ended(2);
    assert!(ran.stderr.contains("mssql://h/d") && !ran.stderr.contains("s3cret"), "{}", ran.stderr);
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let program = Program::new();
    assert!(check(&program, &[]).succeeded().stdout.contains("no configuration file"));
    check(&program, &["--config", "missing.toml"]).failed(2, &["missing.toml can't be read"]);
    program.write("broken.toml", "what = is = this\n");
    let told = check(&program, &["--config", "broken.toml", "--json"]).ended(2).json();
    assert!(told["problems"][0]["place"].as_str().unwrap().contains("broken.toml, line 1"), "{told}");
    program.write("fleet-is-gone.toml", "fleet = 'gone.toml'\n");
    check(&program, &["--config", "fleet-is-gone.toml"]).failed(2, &["fleet", "gone.toml"]);
}

#[test]
fn shells_complete_what_there_is() {
    let program = Program::new();
    // Neither needs a configuration that is right.
    program.write("mainstay.toml", "nonsense");
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = program.run(&["completions", shell]).succeeded().stdout;
        for word in ["release-key", "pause", "dry-run"] {
            assert!(script.contains(word), "{word} is not in {shell}'s");
        }
    }
    program.run(&["completions", "tcsh"]).failed(2, &["tcsh"]);
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let program = Program::new();
    program.write("mainstay.toml", "nonsense");
    let page = program.run(&["man"]).succeeded().stdout;
    assert!(page.contains(".TH mainstay 1") && page.contains("Exit codes"), "{page}");
    let told = program.run(&["man", "--dir", "share/man1"]).succeeded().stdout;
    let written =
        |name: &str| std::fs::read_to_string(program.folder().join("share/man1").join(name)).unwrap();
    assert!(
        written("mainstay-outbox-export.1").contains("dry")
            || written("mainstay-outbox-import.1").contains("dry")
    );
    let pages = std::fs::read_dir(program.folder().join("share/man1")).unwrap().count();
    assert!(told.starts_with(&format!("{pages} pages written")) && pages > 60, "{told}");
}

#[test]
fn colours_are_for_those_who_want_them() {
    let program = Program::with_database();
    let said = |variables: &[(&str, &str)]| {
        let mut command = program.command(&["health"]);
        command.envs(variables.iter().copied());
        let help = program.command(&["--help"]).envs(variables.iter().copied()).output().unwrap();
        let wrong = program
            .command(&["outbox", "list", "--config", "missing"])
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let table = Ran::of(command.output().unwrap()).succeeded().stdout;
        [table, Ran::of(help).stdout, Ran::of(wrong).stderr].map(|text| text.contains('\u{1b}'))
    };
    assert_eq!(said(&[]), [false; 3], "a pipe has none");
    assert_eq!(said(&[("CLICOLOR_FORCE", "1")]), [true; 3]);
    assert_eq!(said(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), [false; 3]);
    assert_eq!(said(&[("CLICOLOR_FORCE", "0")]), [false; 3]);
}
