//! Commands that only look leave a file as it was, whoever it belongs to.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use program::Program;

const NOBODY: &str = "0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11";

const LOOKS: [&[&str]; 13] = [
    &["migrate", "--check"],
    &["outbox", "list"],
    &["outbox", "stats"],
    &["inbox", "list"],
    &["jobs", "list"],
    &["joins", "list"],
    &["timers", "stats"],
    &["leases", "list"],
    &["audit", "list"],
    &["operations", "list"],
    &["fanout", "list"],
    &["health"],
    &["why", NOBODY],
];

#[test]
fn a_file_of_another_program_and_an_empty_one_stay_as_they_are() {
    let program = Program::new();
    let theirs = program.folder().join("theirs.db");
    let connection = rusqlite::Connection::open(&theirs).unwrap();
    connection.execute_batch("create table notes (text); insert into notes values ('mine')").unwrap();
    drop(connection);
    program.write("empty.db", "");
    program.write(
        "fleet.toml",
        "[[databases]]\nid = \"a\"\nurl = \"theirs.db\"\n\n[[databases]]\nid = \"b\"\nurl = \"empty.db\"\n",
    );
    let files = || {
        let mut files: Vec<_> =
            std::fs::read_dir(program.folder()).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        files.into_iter().map(|file| (std::fs::read(&file).unwrap(), file)).collect::<Vec<_>>()
    };
    let before = files();
    for command in LOOKS {
        for file in ["theirs.db", "empty.db"] {
            let ran = program.run(&[&["--database", file], command].concat());
            assert_eq!(ran.code, 1, "{command:?} {file}: {}{}", ran.stdout, ran.stderr);
            assert!(files() == before, "{command:?} has changed {file}");
        }
    }
    for command in [&["stores", "status"][..], &["stores", "list"], &["health"]] {
        let ran = program.run(&[command, &["--fleet", "fleet.toml"]].concat());
        assert!(ran.code <= 1, "{command:?}: {}{}", ran.stdout, ran.stderr);
        assert!(files() == before, "{command:?} of a fleet has changed a file");
    }
    // And whoever deploys into it finds all that was there.
    program.run(&["--database", "theirs.db", "migrate"]).succeeded();
    let connection = rusqlite::Connection::open(&theirs).unwrap();
    let mode: String = connection.query_row("pragma journal_mode", [], |row| row.get(0)).unwrap();
    let note: String = connection.query_row("select text from notes", [], |row| row.get(0)).unwrap();
    assert_eq!((mode.as_str(), note.as_str()), ("wal", "mine"));
}

#[test]
fn a_folder_and_a_damaged_file_are_called_what_they_are() {
    let program = Program::with_database();
    std::fs::create_dir(program.folder().join("folder.db")).unwrap();
    program.run(&["--database", "folder.db", "outbox", "stats"]).failed(3, &["folder.db is a directory"]);
    for number in 0..40 {
        program.run(&["outbox", "enqueue", "t", &number.to_string().repeat(400)]).succeeded();
    }
    let path = program.folder().join("shop.db");
    let mut bytes = std::fs::read(&path).unwrap();
    // All but the header.
    bytes[4_096..].fill(0xee);
    program.write("damaged.db", "");
    std::fs::write(program.folder().join("damaged.db"), bytes).unwrap();
    let ran = program
        .run(&["--database", "damaged.db", "outbox", "stats"])
        .failed(1, &["is damaged", "restore a backup"]);
    assert!(!ran.stderr.contains("should not happen"), "{}", ran.stderr);
}

/// An empty page would look as if there were no more.
#[test]
fn a_page_after_what_is_not_there_is_refused() {
    let program = Program::with_database();
    for (group, list, noun) in [
        ("outbox", "list", "message"),
        ("timers", "list", "timer"),
        ("jobs", "runs", "run"),
        ("joins", "list", "join"),
        ("operations", "list", "operation"),
        ("audit", "list", "record"),
    ] {
        let says = format!("there is no {noun} {NOBODY} to list after");
        program.run(&[group, list, "--after", NOBODY]).failed(1, &[&says, "begin without --after"]);
    }
    let says = "there is no message billing/inv-17 to list after";
    program.run(&["inbox", "list", "--after", "billing", "inv-17"]).failed(1, &[says]);
}
