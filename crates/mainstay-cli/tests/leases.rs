//! `mainstay lease run` and `mainstay leases`, on a SQLite file.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use mainstay::lease::{Lease, LeaseOptions, Leases};
use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay_tests::eventually;
use program::Program;
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(60);

async fn hold(program: &Program, name: &str) -> Lease {
    let sqlite = Sqlite::open(program.folder().join("shop.db")).await.unwrap();
    let options =
        LeaseOptions::default().duration(Duration::from_secs(600)).owner("somebody").context("by hand");
    Leases::new(sqlite.leases()).acquire_with(name, options).await.unwrap().lease().unwrap()
}

/// A run under way, whose output is read line by line.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn start(program: &Program, arguments: &[&str]) -> Self {
        let mut child = program.start(arguments);
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The exit code, and what was told on stderr.
    fn end(mut self) -> (i32, String) {
        let mut told = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        (self.child.wait().unwrap().code().expect("it ended by itself"), told)
    }
}

fn is_alive(process: &str) -> bool {
    let state = std::fs::read_to_string(Path::new("/proc").join(process).join("stat"));
    // One that has ended and was not waited for yet is still in the list.
    state.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}

#[test]
fn a_command_runs_with_the_lease_and_ends_as_it_does() {
    let program = Program::with_database();
    let tell = "echo $MAINSTAY_LEASE_NAME $MAINSTAY_LEASE_EPOCH $MAINSTAY_LEASE_TOKEN $MAINSTAY_LEASE_OWNER";
    for epoch in [1, 2] {
        let ran = program.run(&["lease", "run", "job", "--owner", "me", "--", "sh", "-c", tell]).succeeded();
        assert_eq!(ran.stdout, format!("job {epoch} {epoch} me\n"));
        assert_eq!(ran.stderr, "");
    }
    program.run(&["lease", "run", "job", "--", "sh", "-c", "exit 7"]).ended(7);
    program.run(&["lease", "run", "job", "--", "sh", "-c", "kill -9 $$"]).ended(137);
    program.run(&["lease", "run", "job", "--", "no-such-command"]).failed(127, &["no-such-command"]);
    program.run(&["lease", "run", "job", "--", "."]).failed(126, &["can't be run"]);
    let ran = program.run(&["lease", "run", "job", "--json", "--", "sh", "-c", "echo out; exit 3"]).ended(3);
    assert_eq!(ran.stdout, "out\n", "stdout is the command's");
    let told: Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(
        (&told["acquired"], &told["lost"], &told["exit_code"]),
        (&true.into(), &false.into(), &3.into())
    );
    let lease = program.run(&["leases", "show", "job", "--json"]).succeeded().json();
    assert_eq!((&lease["held"], &lease["epoch"]), (&false.into(), &7.into()), "released each time");
}

#[tokio::test]
async fn whoever_holds_it_is_told() {
    let program = Program::with_database();
    let lease = hold(&program, "job").await;
    let run = ["lease", "run", "job", "--", "echo", "never"];
    let ran = program.run(&run).failed(75, &["held by somebody until", "(by hand)", "not run"]);
    assert_eq!(ran.stdout, "");
    let ran = program.run(&["--json", "lease", "run", "job", "--", "echo", "never"]).ended(75);
    let told: Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!((&told["acquired"], &told["holder"]["owner"]), (&false.into(), &"somebody".into()));

    let waiting = program.start(&["lease", "run", "job", "--wait", "60s", "--", "echo", "at last"]);
    assert!(lease.close().await.unwrap());
    let output = waiting.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"at last\n".as_slice()));
}

/// Nobody is left to renew the lease then, or to end the command when it is lost.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_command_dies_with_a_program_that_is_killed() {
    let program = Program::with_database();
    let command = "trap '' TERM HUP; echo $$; while :; do sleep 0.1; done";
    let mut running = Running::start(&program, &["lease", "run", "job", "--", "sh", "-c", command]);
    let process = running.line();
    assert!(is_alive(&process), "{process}");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    eventually(DEADLINE, "the command is gone", async || !is_alive(&process)).await;
}

#[tokio::test]
async fn a_lost_lease_ends_the_command_and_what_it_started() {
    let program = Program::with_database();
    // Neither the command nor what it has started heeds a request to end.
    let command =
        "trap '' TERM; sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & echo $! $$; wait; sleep 1000";
    let mut running =
        Running::start(&program, &["lease", "run", "job", "--duration", "3s", "--", "sh", "-c", command]);
    let processes = running.line();
    let processes: Vec<&str> = processes.split(' ').collect();
    assert!(processes.iter().all(|process| is_alive(process)), "{processes:?}");
    let ran = program.run(&["leases", "release", "job"]).succeeded();
    assert!(ran.stdout.starts_with("job released: ") && ran.stdout.contains(" held it"), "{}", ran.stdout);
    let (code, told) = running.end();
    assert_eq!(code, 76, "{told}");
    assert!(told.contains("the lease job was lost; the command was ended"), "{told}");
    eventually(DEADLINE, "all of it is gone", async || !processes.iter().any(|process| is_alive(process)))
        .await;
}

/// There the command has no process group of its own, which could not read what is typed. One that it started has lost its parent, too.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_lost_lease_ends_what_the_command_started_at_a_terminal_too() {
    let program = Program::with_database();
    // The end of the terminal is not heeded either.
    let command =
        "test -t 0 || exit 9; trap '' TERM HUP; (sleep 1000 & echo $!); sleep 1000 & echo $! $$; wait";
    let run = "exec \"$PROGRAM\" lease run job --duration 3s -- sh -c \"$COMMAND\"";
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", run, "/dev/null"]);
    terminal.env("PROGRAM", env!("CARGO_BIN_EXE_mainstay")).env("COMMAND", command);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MAINSTAY_")) {
        terminal.env_remove(name);
    }
    let terminal = terminal.current_dir(program.folder()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = terminal.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    let mut running = Running { child, lines };
    let processes = format!("{} {}", running.line(), running.line());
    let processes: Vec<&str> = processes.split(' ').collect();
    assert!(processes.len() == 3 && processes.iter().all(|process| is_alive(process)), "{processes:?}");
    program.run(&["leases", "release", "job"]).succeeded();
    let mut told = String::new();
    running.lines.read_to_string(&mut told).unwrap();
    assert!(told.contains("the lease job was lost; the command was ended"), "{told}");
    assert_eq!(running.end().0, 76);
    eventually(DEADLINE, "all of it is gone", async || !processes.iter().any(|process| is_alive(process)))
        .await;
}

#[test]
fn a_request_to_end_is_passed_on() {
    let program = Program::with_database();
    let command = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut running = Running::start(&program, &["lease", "run", "job", "--", "sh", "-c", command]);
    assert_eq!(running.line(), "ready");
    let id = running.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(running.line(), "bye");
    assert_eq!(running.end().0, 5);
    let lease = program.run(&["leases", "show", "job", "--json"]).succeeded().json();
    assert_eq!(lease["held"], false, "it was released");
}

#[tokio::test]
async fn leases_are_listed_shown_and_released() {
    let program = Program::with_database();
    assert_eq!(program.run(&["leases", "list"]).succeeded().stdout, "no leases\n");
    program.run(&["lease", "run", "earlier", "--", "true"]).succeeded();
    let _lease = hold(&program, "job").await;

    let listed = program.run(&["leases", "list", "--json"]).succeeded().json();
    let names: Vec<_> =
        listed.as_array().unwrap().iter().map(|lease| lease["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["earlier", "job"]);
    let listed = program.run(&["leases", "list", "--prefix", "ear", "--json"]).succeeded().json();
    assert_eq!((listed.as_array().unwrap().len(), listed[0]["name"].as_str()), (1, Some("earlier")));
    let table = program.run(&["leases", "list", "--held"]).succeeded().stdout;
    assert!(table.contains("somebody") && table.contains("by hand") && !table.contains("earlier"), "{table}");
    let page = program.run(&["leases", "list", "--limit", "1"]).succeeded();
    assert!(page.stderr.contains("--after earlier"), "{}", page.stderr);
    let page = program.run(&["leases", "list", "--after", "earlier", "--json"]).succeeded().json();
    assert_eq!(page.as_array().unwrap().len(), 1);

    let shown = program.run(&["leases", "show", "job"]).succeeded().stdout;
    for says in ["held by        somebody", "context        by hand", "epoch          1", "fencing token  1"]
    {
        assert!(shown.contains(says), "{says:?} is not in {shown}");
    }
    assert!(program.run(&["leases", "show", "earlier"]).succeeded().stdout.contains("nobody"));
    program.run(&["leases", "show", "never"]).failed(1, &["nobody has ever held", "leases list"]);

    let released = program.run(&["leases", "release", "job", "--json"]).succeeded().json();
    assert_eq!((&released["released"], &released["owner"]), (&true.into(), &"somebody".into()));
    program.run(&["leases", "release", "job"]).failed(1, &["nobody holds it"]);
}

#[test]
fn each_wrong_argument_is_named() {
    let program = Program::with_database();
    let long = "x".repeat(256);
    for (arguments, says) in [
        (vec!["lease"], "Usage"),
        (vec!["lease", "run"], "<NAME>"),
        (vec!["lease", "run", "job"], "<COMMAND>"),
        (vec!["lease", "run", "", "--", "true"], "name must be 1 to 255 characters"),
        (vec!["lease", "run", &long, "--", "true"], "name must be 1 to 255 characters, got 256"),
        (vec!["lease", "run", "job", "--duration", "1ms", "--", "true"], "duration must be 100 ms to 24 h"),
        (vec!["lease", "run", "job", "--duration", "soon", "--", "true"], "--duration"),
        (vec!["lease", "run", "job", "--owner", "", "--", "true"], "owner must be 1 to 255 characters"),
        (vec!["lease", "run", "job", "--reentrant", "--", "true"], "--owner"),
        (vec!["leases", "list", "--limit", "0"], "--limit"),
        (vec!["leases", "show"], "<NAME>"),
        (vec!["leases", "release", ""], "name must be 1 to 255 characters"),
    ] {
        let ran = program.run(&arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{arguments:?}: {says:?} is not in {}", ran.stderr);
    }
}
