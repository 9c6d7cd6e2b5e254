//! What the program says, compared to the letter with what it said when somebody last looked at it: help, tables and JSON.
//!
//! `UPDATE_GOLDEN=1 cargo test -p mainstay-cli --test golden` writes the files anew; read the difference before you commit it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use std::path::PathBuf;

use program::Program;

/// Compares with the file of that name.
#[track_caller]
fn compare(name: &str, said: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, said).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == said,
        "{name} is not what it was.\n--- it was:\n{known}\n--- it is:\n{said}\nIf that is right: UPDATE_GOLDEN=1"
    );
}

/// The text without what is different each time: ids, times, durations, and the blanks that make up for their length.
fn steady(text: &str) -> String {
    let mut steady = Vec::new();
    for line in text.lines() {
        let line = replaced(line, is_id, "<id>");
        let line = replaced(&line, is_moment, "<time>");
        let line = replaced(&line, is_version, "version <n>");
        let line = replaced(&line, is_duration, "<age>");
        let line = line
            .split("  ")
            .filter(|part| !part.trim().is_empty())
            .map(str::trim)
            .collect::<Vec<_>>()
            .join("  ");
        steady.push(if line.contains('─') { "───".to_owned() } else { line });
    }
    steady.join("\n") + "\n"
}

/// Puts `mark` in place of each stretch that `matches` measures at its beginning.
fn replaced(line: &str, matches: fn(&str) -> Option<usize>, mark: &str) -> String {
    let (mut out, mut rest) = (String::new(), line);
    while let Some(first) = rest.chars().next() {
        let after_word = out.chars().last().is_some_and(char::is_alphanumeric);
        match matches(rest).filter(|_| !after_word) {
            Some(length) => {
                out.push_str(mark);
                rest = &rest[length..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

/// A UUID.
fn is_id(text: &str) -> Option<usize> {
    let id = text.get(..36)?;
    let dashes = [8, 13, 18, 23];
    let fits =
        id.char_indices().all(|(at, c)| if dashes.contains(&at) { c == '-' } else { c.is_ascii_hexdigit() });
    fits.then_some(36)
}

/// `2026-11-18 00:00:00`, or the same as RFC 3339 with fractions.
fn is_moment(text: &str) -> Option<usize> {
    let head = text.get(..19)?;
    let shape = "0000-00-00 00:00:00";
    let fits = head.chars().zip(shape.chars()).all(|(c, s)| match s {
        '0' => c.is_ascii_digit(),
        ' ' => c == ' ' || c == 'T',
        other => c == other,
    });
    let tail =
        text[19..].find(|c: char| !c.is_ascii_digit() && c != '.' && c != 'Z').unwrap_or(text.len() - 19);
    fits.then_some(19 + tail)
}

/// `version 12`, of the schema, or `version 3.51.3`, of a database: they change with migrations and updates.
fn is_version(text: &str) -> Option<usize> {
    let number = text.strip_prefix("version ")?;
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    let digits = number[..end].trim_end_matches('.').len();
    (digits > 0).then_some("version ".len() + digits)
}

/// `0.1 s`, `12.3 ms`, `3 min`, or a fraction of a second as a number of JSON.
fn is_duration(text: &str) -> Option<usize> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = &text[..digits];
    if number.is_empty() || !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    for unit in [" ms", " min", " s"] {
        if text[digits..].starts_with(unit) && !text[digits + unit.len()..].starts_with(char::is_alphanumeric)
        {
            return Some(digits + unit.len());
        }
    }
    number.contains('.').then_some(digits)
}

#[test]
fn help_is_as_it_was() {
    let program = Program::new();
    for (name, command) in [
        ("help.txt", &[][..]),
        ("help-outbox.txt", &["outbox"]),
        ("help-outbox-pause.txt", &["outbox", "pause"]),
        ("help-outbox-export.txt", &["outbox", "export"]),
        ("help-outbox-import.txt", &["outbox", "import"]),
        ("help-config-check.txt", &["config", "check"]),
        ("help-retention-run.txt", &["retention", "run"]),
        ("help-health.txt", &["health"]),
        ("help-doctor.txt", &["doctor"]),
        ("help-why.txt", &["why"]),
        ("help-config.txt", &["config"]),
        ("help-jobs.txt", &["jobs"]),
        ("help-jobs-create.txt", &["jobs", "create"]),
        ("help-leases.txt", &["leases"]),
        ("help-lease-run.txt", &["lease", "run"]),
        ("help-serve.txt", &["serve"]),
        ("help-completions.txt", &["completions"]),
        ("help-man.txt", &["man"]),
    ] {
        let said = program.run(&[command, &["--help"]].concat()).succeeded();
        assert_eq!(said.stderr, "");
        compare(name, &said.stdout);
    }
}

/// An outbox in which something stands everywhere it can.
fn shop() -> Program {
    let program = Program::with_database();
    let enqueue = |arguments: &[&str]| {
        let all = [&["outbox", "enqueue", "--json"], arguments].concat();
        program.run(&all).succeeded().json()["work_item"].as_str().unwrap().to_owned()
    };
    enqueue(&["order.paid", "{\"order\":7}", "--header", "source=test", "--ordering-key", "customer-3"]);
    enqueue(&["mail.send", "{}", "--due-at", "2999-01-01T00:00:00Z", "--priority", "3"]);
    let cancelled = enqueue(&["order.paid", "x", "--correlation-id", "request-1"]);
    program.run(&["outbox", "cancel", &cancelled]).succeeded();
    program.run(&["--actor", "alice", "outbox", "pause", "mail.send", "--reason", "INC-17"]).succeeded();
    let nightly = ["--topic", "report.build", "--tz", "Europe/Berlin", "--overlap", "skip"];
    program.run(&[&["jobs", "create", "nightly", "30 2 * * *"], &nightly[..]].concat()).succeeded();
    program.run(&["jobs", "create", "hourly", "0 * * * *", "--disabled"]).succeeded();
    program.run(&["lease", "run", "nightly-report", "--context", "ticket 7", "--", "true"]).succeeded();
    program
}

/// The message of the shop that waits for its topic to be resumed.
fn paused(program: &Program) -> String {
    let listed = program.run(&["outbox", "list", "--topic", "mail.send", "--json"]).succeeded().json();
    listed[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn tables_are_as_they_were() {
    let program = shop();
    let paused = paused(&program);
    for (name, command) in [
        ("outbox-list.txt", &["outbox", "list"][..]),
        ("outbox-stats.txt", &["outbox", "stats"]),
        ("inbox-stats.txt", &["inbox", "stats"]),
        ("audit-list.txt", &["audit", "list", "--actor", "alice"]),
        ("retention-run.txt", &["retention", "run", "--dry-run", "--keep", "failed=90d"]),
        ("why.txt", &["why", &paused]),
        ("config-check.txt", &["--actor", "alice", "config", "check"]),
        ("jobs-list.txt", &["jobs", "list"]),
        ("leases-list.txt", &["leases", "list"]),
        ("health.txt", &["health"]),
        ("doctor.txt", &["doctor"]),
    ] {
        compare(name, &steady(&program.run(command).succeeded().stdout));
    }
}

/// Nothing in it depends on when it is asked.
#[test]
fn fires_are_explained_as_they_were() {
    let asked = ["30 2 * * *", "--tz", "Europe/Berlin", "--from", "2027-03-27T00:00:00Z", "--count", "3"];
    let said = Program::new().run(&[&["jobs", "explain"], &asked[..]].concat()).succeeded();
    compare("jobs-explain.txt", &said.stdout);
}

#[test]
fn json_is_as_it_was() {
    let program = shop();
    let paused = paused(&program);
    for (name, command) in [
        ("outbox-list.json", &["outbox", "list", "--json"][..]),
        ("outbox-stats.json", &["outbox", "stats", "--json"]),
        ("retention-run.json", &["retention", "run", "--json"]),
        ("why.json", &["why", &paused, "--json"]),
        ("config-check.json", &["--actor", "alice", "config", "check", "--json"]),
        ("jobs-list.json", &["jobs", "list", "--json"]),
        ("leases-list.json", &["leases", "list", "--json"]),
        ("health.json", &["health", "--json"]),
        ("doctor.json", &["doctor", "--json"]),
        ("outbox-export.ndjson", &["outbox", "export"]),
    ] {
        compare(name, &steady(&program.run(command).succeeded().stdout));
    }
}

#[test]
fn what_changes_each_time_is_found() {
    let said = "0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11   a   2026-11-18 00:00:00   0.1 s  12 min\n";
    assert_eq!(steady(said), "<id>  a  <time>  <age>  <age>\n");
    assert_eq!(steady("in SQLite version 3.51.3."), "in SQLite version <n>.\n");
    assert_eq!(steady("the schema is at version 12, as wanted"), "the schema is at version <n>, as wanted\n");
    assert_eq!(
        steady("{\"at\":\"2026-11-18T00:00:00.123Z\",\"n\":3,\"s\":0.25}"),
        "{\"at\":\"<time>\",\"n\":3,\"s\":<age>}\n"
    );
}
