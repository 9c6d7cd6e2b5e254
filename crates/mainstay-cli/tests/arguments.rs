//! Wrong arguments: exit code 2, with a message that names what is wrong. And never a password.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use program::Program;

#[test]
fn each_wrong_argument_is_named() {
    let program = Program::with_database();
    let long = "x".repeat(256);
    for (arguments, says) in [
        (vec!["frobnicate"], "frobnicate"),
        (vec!["outbox"], "Usage"),
        (vec!["outbox", "enqueue"], "<TOPIC>"),
        (vec!["outbox", "enqueue", ""], "topic must be 1 to 255 characters"),
        (vec!["outbox", "enqueue", &long], "topic must be 1 to 255 characters, got 256"),
        (vec!["outbox", "enqueue", "t", "--priority", "10"], "priority must be -9 to 9, got 10"),
        (vec!["outbox", "enqueue", "t", "--priority", "high"], "--priority"),
        (vec!["outbox", "enqueue", "t", "--due-in", "soon"], "--due-in"),
        (vec!["outbox", "enqueue", "t", "--due-at", "tomorrow"], "RFC 3339"),
        (vec!["outbox", "enqueue", "t", "--due-at", "9999-12-31T23:59:59Z"], "to 9999-12-30T22:00:00Z"),
        (vec!["outbox", "enqueue", "t", "--due-in", "-5s"], "a duration can't be negative"),
        (vec!["timers", "schedule", "t", "--due-in", "-5s"], "a duration can't be negative"),
        (vec!["outbox", "enqueue", "t", "--due-in", "1s", "--due-at", "2030-01-01T00:00:00Z"], "--due-at"),
        (vec!["outbox", "enqueue", "t", "--expires-in", "0s"], "above zero"),
        (vec!["outbox", "enqueue", "t", "--key", ""], "idempotency_key must be 1 to 255"),
        (vec!["outbox", "enqueue", "t", "--ordering-key", &long], "ordering_key must be 1 to 255"),
        (vec!["outbox", "enqueue", "t", "--correlation-id", &long], "correlation_id must be 1 to 255"),
        (vec!["outbox", "enqueue", "t", "--header", "novalue"], "NAME=VALUE"),
        (
            vec!["outbox", "enqueue", "t", "--header", "k=1", "--header", "k=2"],
            "the header \"k\" is given twice",
        ),
        (vec!["timers", "schedule", "t", "--due-in=1s", "--header=k=1", "--header=k=1"], "given twice"),
        (vec!["inbox", "mark", "processed", "s", "m", "--error", "x"], "inbox mark dead"),
        (vec!["outbox", "enqueue", "t", "--payload-file", "nowhere"], "nowhere"),
        (vec!["outbox", "enqueue", "t", "p", "--payload-file", "nowhere"], "--payload-file"),
        (vec!["outbox", "list", "--status", "finished"], "ready, in-progress, done or failed"),
        (vec!["outbox", "list", "--reason", "bad luck"], "handler, delivery-limit, expired or cancelled"),
        (vec!["outbox", "list", "--limit", "0"], "--limit"),
        (vec!["outbox", "list", "--limit", "1001"], "--limit"),
        (vec!["outbox", "list", "--after", "yesterday"], "UUID"),
        (vec!["audit", "list", "--after", "2027-01-31T09:00:00Z"], "UUID"),
        (vec!["audit", "list", "--since", "0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11"], "2027-01-31"),
        (vec!["outbox", "show", "7"], "UUID"),
        (vec!["outbox", "cancel"], "<IDS>"),
        (vec!["outbox", "requeue"], "--all-failed"),
        (vec!["outbox", "requeue", "--all-failed", "--topic", "t"], "--topic"),
        (vec!["outbox", "requeue", "--all-failed", "--limit", "0"], "--limit"),
        (vec!["jobs"], "Usage"),
        (vec!["jobs", "explain"], "<CRON>"),
        (vec!["jobs", "explain", "@daily", "--from", "tomorrow"], "RFC 3339"),
        (vec!["jobs", "explain", "@daily", "--count", "0"], "--count"),
        (vec!["jobs", "explain", "@daily", "--count", "1001"], "--count"),
        (vec!["jobs", "explain", "@daily", "--tz", ""], "is not an IANA time zone"),
        (vec!["demo", "--for", "0s"], "above zero"),
        (vec!["demo", "--for", "10"], "--for"),
        (vec!["demo", "--rate", "0"], "--rate"),
        (vec!["demo", "--workers", "many"], "--workers"),
        (vec!["demo", "--database", "sqlite::memory:"], "a connection of its own"),
        (vec!["bench", "--messages", "1"], "--messages"),
        (vec!["migrate", "--print", "--check"], "--check"),
        (vec!["migrate", "--schema", "a$b"], "schema name must not contain"),
        (vec!["migrate", "--schema", "a$b"], "error: the schema is not valid"),
        (vec!["migrate", "--schema", "sqlite_x"], "schema name must not be `sqlite`"),
        (vec!["migrate", "--check", "--schema", "SQLite"], "got \"SQLite\""),
        (
            vec!["migrate", "--database", "postgres://h/d", "--schema", "pg_x"],
            "schema name must not begin with `pg_`",
        ),
        (
            vec!["migrate", "--database", "postgres://h/d", "--schema", "information_schema"],
            "schema name must not be `information_schema`",
        ),
        (
            vec!["migrate", "--database", "postgres://h/d", "--grants", ""],
            "--grants must be 1 to 63 bytes, got 0",
        ),
        (
            vec!["migrate", "--database", "mssql://h/d", "--grants", ""],
            "--grants must be 1 to 128 characters, got 0",
        ),
        (vec!["migrate", "--outbox-table", ""], "outbox table name must be 1 to 36 bytes"),
        (vec!["migrate", "--config", "nowhere.toml"], "nowhere.toml"),
        (vec!["migrate", "-v", "-q"], "--quiet"),
    ] {
        let ran = program.run(&arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{arguments:?}: {says:?} is not in {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{arguments:?}: {}", ran.stdout);
    }
}

#[test]
fn a_wrong_database_url_names_its_part_and_never_the_password() {
    let program = Program::new();
    for (url, says) in [
        ("", "empty"),
        ("shop", "no scheme"),
        ("host=h password=s3cret", "no scheme"),
        ("u:s3cret@h/x.db", "looks like a URL"),
        ("mysql://u:s3cret@h/d", "mysql"),
        ("sqlite:", "path"),
        ("postgres:u:s3cret@h/d", "//"),
        ("postgres://u:s3cret@h:port/d", "port"),
        ("postgres://u:s3cret@h:99999/d", "port"),
        ("postgres://u:s3cret@/d", "host"),
        ("postgres://u:s3cret%@h/d", "password"),
        ("postgres://u:s3cret@h/d?sslmode=perhaps", "sslmode"),
        ("postgres://u:s3cret@h/d?colour=red", "colour"),
        ("postgres://h/d?port=x&password=s3cret", "port"),
    ] {
        for command in [&["migrate"][..], &["outbox", "stats"], &["demo"], &["bench"]] {
            let ran = program.run(&[&["--database", url], command].concat());
            assert_eq!(ran.code, 2, "{url}: {}", ran.stderr);
            assert!(ran.stderr.contains(says), "{url}: {says:?} is not in {}", ran.stderr);
            assert!(ran.stderr.contains("accepted are"), "{url}: {}", ran.stderr);
            assert!(!ran.stderr.contains("s3cret") && ran.stdout.is_empty(), "{}", ran.stderr);
        }
    }
}

#[test]
fn a_misplaced_url_is_not_quoted_in_full() {
    let program = Program::new();
    let ran = program.run(&["migrate", "postgres://u:s3cret@h/d"]).failed(2, &["postgres://u:***@h/d"]);
    assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
    // One without its scheme too; and one that is a path by its scheme.
    let ran = program.run(&["migrate", "u:s3cret@h/d"]).failed(2, &["u:***@h/d"]);
    assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
    for command in [&["migrate"][..], &["outbox", "stats"], &["health"], &["health", "--json"]] {
        let ran = program.run(&[&["--database", "sqlite:u:s3cret@h/x.db"], command].concat()).ended(3);
        assert!(
            !ran.stderr.contains("s3cret") && !ran.stdout.contains("s3cret"),
            "{}{}",
            ran.stdout,
            ran.stderr
        );
    }
}

/// Connection strings as ADO.NET writes them. The password of each is made of these two, so that a piece of it is found too.
const SECRET: [&str; 2] = ["qZ7q", "kW9k"];

#[rustfmt::skip]
const CONNECTION_STRINGS: [&str; 13] = [
    "Server=h;User Id=u;Password=qZ7qkW9k",
    "Server=h;User Id=u;Password='qZ7q;kW9k'",
    "Server=h;User Id=u;Password=\"qZ7q;kW9k\";Encrypt=true",
    "Server=h;User Id=u;Password='qZ7q''kW9k'",
    "Server=h;User Id=u;Password=\"qZ7q\"kW9k\"",
    "Server=h;User Id=u;Password='qZ7qkW9k",
    "Server=h;User Id=u;Password = qZ7qkW9k ",
    "Server=h;User Id=u;Pwd=qZ7q kW9k;Encrypt=true",
    "Server=h;User Id=u;Password=qZ7q;kW9k",
    "Server=h;User Id=u;Password=qZ7q://kW9k",
    "Server=h;Access Token=\"qZ7q kW9k\"",
    "Password=qZ7q kW9k;Server=h",
    "Sever=h;User Id=u;Password='qZ7q kW9k'",
];

#[track_caller]
fn assert_secret_is_kept(program: &Program, arguments: &[&str]) {
    let ran = program.run(arguments);
    assert!((1..=3).contains(&ran.code), "{arguments:?}: {} {}", ran.code, ran.stderr);
    assert!(!ran.stderr.is_empty() || !ran.stdout.is_empty(), "{arguments:?}");
    for piece in SECRET {
        let shown = ran.stdout.contains(piece) || ran.stderr.contains(piece);
        assert!(!shown, "{piece} of {arguments:?}: {}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn a_misplaced_connection_string_of_sql_server_keeps_its_password() {
    let program = Program::with_database();
    for text in CONNECTION_STRINGS {
        let (database, limit) = (format!("--databse={text}"), format!("--limit={text}"));
        for arguments in [
            &[text][..],
            &["migrate", text],
            &["outbox", text],
            &["--databse", text, "migrate"],
            &[&database, "migrate"],
            &["outbox", "list", "--limit", text],
            &["outbox", "list", &limit],
            &["outbox", "list", "--status", text],
            &["outbox", "show", text],
            &["outbox", "enqueue", "t", "--due-in", text],
            &["outbox", "import", text],
            &["outbox", "release-key", text],
            &["outbox", "stats", "--config", text],
            &["outbox", "stats", "--schema", text],
            &["stores", "list", "--fleet", text],
            &["jobs", "show", text],
            &["jobs", "create", "n", text],
            &["fanout", "show", text, "k"],
            &["leases", "release", text],
            &["health", "--url", text],
            &["serve", "--listen", text],
        ] {
            assert_secret_is_kept(&program, arguments);
        }
    }
}

#[test]
fn a_connection_string_of_sql_server_is_told_without_its_password() {
    let program = Program::new();
    // Nobody is there: one that is right is told by its place, another by what is wrong with it.
    for text in CONNECTION_STRINGS {
        let text = text.replace("Server=h", "Server=127.0.0.1,1").replace("Encrypt=true", "Encrypt=disabled");
        // A text of JSON is one of TOML.
        let text = serde_json::Value::from(text);
        program.write("mainstay.toml", &format!("database = {text}\n"));
        program.write("fleet.toml", &format!("[[databases]]\nid = 'a'\nurl = {text}\n"));
        for command in [
            &["outbox", "stats"][..],
            &["-vvv", "outbox", "stats"],
            &["migrate", "--json"],
            &["health"],
            &["doctor", "--json"],
            &["stores", "status", "--fleet", "fleet.toml"],
            &["demo", "--for", "1s"],
        ] {
            assert_secret_is_kept(&program, command);
        }
        let checked = program.run(&["config", "check", "--json"]);
        assert!(!SECRET.iter().any(|piece| checked.stdout.contains(piece)), "{}", checked.stdout);
    }
}

#[test]
fn what_is_wrong_is_told_around_a_misplaced_connection_string() {
    let program = Program::new();
    let text = "Server=h;User Id=u;Password='qZ7q;kW9k'";
    let shown = "'Server=h;User Id=u;Password=***'";
    program.run(&["migrate", text]).failed(2, &[&format!("unexpected argument {shown} found"), "Usage"]);
    let limit = format!("--limit={text}");
    for arguments in [&["outbox", "list", "--limit", text][..], &["outbox", "list", &limit]] {
        program.run(arguments).failed(2, &[&format!("invalid value {shown} for '--limit <ROWS>'")]);
    }
}

#[test]
fn a_database_that_does_not_answer_is_exit_code_3() {
    let program = Program::new();
    // Port 1 of the loopback is nobody's.
    let url = "postgres://u:s3cret@127.0.0.1:1/d";
    for command in [
        &["migrate"][..],
        &["migrate", "--check"],
        &["outbox", "stats"],
        &["outbox", "enqueue", "t"],
        &["demo", "--for", "1s"],
        &["bench", "--messages", "100"],
    ] {
        for more in [&[][..], &["-vvv"]] {
            let ran = program.run(&[&["--database", url], command, more].concat());
            let ran = ran.failed(3, &["error: ", "127.0.0.1:1", "do: "]);
            assert!(!ran.stderr.contains("s3cret") && !ran.stdout.contains("s3cret"), "{}", ran.stderr);
        }
    }
    program
        .run(&["--database", "nowhere.db", "outbox", "stats"])
        .failed(3, &["nowhere.db", "mainstay migrate"]);
    program.write("text.db", "this is a text and not a database, however long one looks at it");
    program
        .run(&["--database", "text.db", "outbox", "stats"])
        .failed(3, &["text.db can't be opened", "why: "]);
    assert!(!program.folder().join("nowhere.db").exists(), "a mistyped path must not make a file");
}

#[test]
fn a_schema_that_is_not_there_says_what_to_run() {
    let program = Program::with_database();
    program.run(&["outbox", "stats", "--schema", "other"]).failed(1, &["mainstay migrate"]);
}

#[test]
fn help_and_version_go_to_stdout() {
    let program = Program::new();
    let help = program.run(&["--help"]).succeeded().stdout;
    for text in ["Exit codes:", "MAINSTAY_DATABASE", "Examples:", "demo", "bench"] {
        assert!(help.contains(text), "{text:?} is not in {help}");
    }
    for command in [
        &["demo"][..],
        &["migrate"],
        &["bench"],
        &["outbox", "enqueue"],
        &["outbox", "requeue"],
        &["jobs", "explain"],
    ] {
        let help = program.run(&[command, &["--help"]].concat()).succeeded().stdout;
        assert!(help.contains("Example"), "{help}");
    }
    let version = program.run(&["--version"]).succeeded().stdout;
    assert_eq!(version, format!("mainstay {}\n", env!("CARGO_PKG_VERSION")));
}
