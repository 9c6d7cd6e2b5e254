//! Where settings come from, and which wins.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use program::{Program, Ran};

/// The database `migrate` says it migrated.
fn migrated(ran: Ran) -> String {
    let ran = ran.succeeded();
    ran.stdout.split(": ").next().unwrap().to_owned()
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file() {
    let program = Program::new();
    program.write("mainstay.toml", "database = \"file.db\"\n");
    program.write("other.toml", "database = \"other.db\"\n");
    assert_eq!(migrated(program.run(&["migrate"])), "sqlite:file.db");
    assert_eq!(migrated(program.run(&["migrate", "--config", "other.toml"])), "sqlite:other.db");

    let with_variable = |value: &str, arguments: &[&str]| {
        let mut command = program.command(arguments);
        migrated(Ran::of(command.env("MAINSTAY_DATABASE", value).output().unwrap()))
    };
    assert_eq!(with_variable("env.db", &["migrate"]), "sqlite:env.db");
    assert_eq!(with_variable("", &["migrate"]), "sqlite:file.db");
    assert_eq!(with_variable("env.db", &["migrate", "--database", "flag.db"]), "sqlite:flag.db");
    // A global flag may stand before the command as well as after it.
    assert_eq!(with_variable("env.db", &["--database", "flag.db", "migrate"]), "sqlite:flag.db");
}

#[test]
fn names_come_from_the_same_places() {
    let program = Program::new();
    program.write("mainstay.toml", "database = \"a.db\"\nschema = \"one\"\noutbox_table = \"letters\"\n");
    program.run(&["migrate"]).succeeded();
    program.run(&["outbox", "enqueue", "t"]).succeeded();
    let ready = |arguments: &[&str]| {
        let ran = program.run(&[&["outbox", "stats", "--json"], arguments].concat());
        (ran.code, if ran.code == 0 { ran.json()["ready"].as_u64() } else { None })
    };
    assert_eq!(ready(&[]), (0, Some(1)));
    assert_eq!(ready(&["--schema", "one", "--outbox-table", "letters"]), (0, Some(1)));
    assert_eq!(ready(&["--schema", "two"]), (1, None));
    assert_eq!(ready(&["--outbox-table", "parcels"]), (1, None));
    let mut command = program.command(&["outbox", "stats"]);
    let ran = Ran::of(command.env("MAINSTAY_SCHEMA", "two").output().unwrap());
    ran.failed(1, &["mainstay migrate"]);
}

#[test]
fn an_unknown_key_is_named_with_its_file_and_line() {
    let program = Program::new();
    program.write("mainstay.toml", "schema = \"one\"\ndatabse = \"postgres://u:s3cret@h/d\"\n");
    let ran = program.run(&["migrate"]).failed(2, &["databse", "mainstay.toml", "line 2"]);
    assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
}

#[test]
fn a_file_that_is_no_configuration_is_refused_without_quoting_it() {
    let program = Program::new();
    for text in ["database = \"postgres://u:s3cret@h/d\" oops\n", "database = [\"s3cret\"]\n", "s3cret\n"] {
        program.write("mainstay.toml", text);
        let ran = program.run(&["migrate"]).failed(2, &["mainstay.toml", "line 1"]);
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
    }
}

#[test]
fn logging_goes_to_stderr_as_asked() {
    let program = Program::with_database();
    let quiet = program.run(&["outbox", "enqueue", "t", "s3cret"]).succeeded();
    assert_eq!(quiet.stderr, "");
    let loud = program.run(&["-vvv", "outbox", "enqueue", "t", "s3cret"]).succeeded();
    assert!(!loud.stderr.is_empty());
    assert!(!loud.stderr.contains("s3cret"), "a payload is logged: {}", loud.stderr);
    let mut command = program.command(&["outbox", "stats"]);
    let ran = Ran::of(command.env("MAINSTAY_LOG", "a=b=c").output().unwrap());
    ran.failed(2, &["MAINSTAY_LOG"]);
    let mut command = program.command(&["outbox", "stats"]);
    let ran = Ran::of(command.env("MAINSTAY_LOG", "wran").output().unwrap());
    ran.failed(2, &["MAINSTAY_LOG", "\"wran\" is no level"]);
}
