//! The programs the tests need: which are missing, and their installation by the means of Debian.
//!
//! Nothing is installed that is there, and no daemon a package brings is started.

use std::path::PathBuf;
use std::process::Command;

use mainstay_servers::{Programs, SharedServers, find_faketime};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::run::run;

/// Installs packages without letting them start the daemons they bring, by the means Debian
/// has for it: a policy that forbids it, for as long as the installation takes. Someone
/// else's policy is left as it is. The first argument is where the policy goes.
const INSTALL: &str = r#"
set -eu
policy=$1
shift
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
apt-get update -q
apt-get install -y -q --no-install-recommends "$@"
"#;

/// Where Debian looks for the policy.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Brings the programs the tests need, then starts the servers all tests share.
pub(crate) fn start_servers(interrupt: &Interrupt) -> Result<SharedServers, Failure> {
    install_servers(interrupt)?;
    let programs = Programs::here();
    let (postgres, pgbouncer): (PathBuf, PathBuf) = (programs.postgres()?, programs.pgbouncer()?);
    Ok(SharedServers::start(&postgres, &pgbouncer)?)
}

/// Brings the programs the tests need.
pub(crate) fn install_servers(interrupt: &Interrupt) -> Result<(), Failure> {
    let mut packages = missing(&Programs::here());
    // Records what the simulation of power losses replays.
    if !succeeds(Command::new("strace").arg("-V")) {
        packages.push("strace");
    }
    install(&packages, interrupt)?;
    // What needs them is left out without them, and says so.
    let has_ip = succeeds(Command::new("ip").arg("-Version"));
    for (found, package) in [(find_faketime().is_some(), "faketime"), (has_ip, "iproute2")] {
        if !found && let Err(failure) = install(&[package], interrupt) {
            interrupt.check()?;
            eprintln!("warning: going on without {package}. {}", failure.message.unwrap_or_default());
        }
    }
    interrupt.check()
}

/// The packages whose programs are not there.
fn missing(programs: &Programs) -> Vec<&'static str> {
    let mut missing = Vec::new();
    // No package puts right a directory that was named wrongly.
    if programs.postgres().is_err() && !programs.names_postgres() {
        missing.push("postgresql");
    }
    if programs.pgbouncer().is_err() {
        missing.push("pgbouncer");
    }
    if programs.openssl().is_err() {
        missing.push("openssl");
    }
    missing
}

/// Installs packages; nothing when there are none.
pub(crate) fn install(packages: &[&str], interrupt: &Interrupt) -> Result<(), Failure> {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    let by_hand = || format!("Install by hand what Debian calls: {list}");
    let shell = Rights::here().shell().map_err(|why| {
        Failure::new(format!("not installed: {list}, and it can't be done here: {why}. {}", by_hand()))
    })?;
    eprintln!("installing {list}");
    run(&mut installation(shell, POLICY, packages), interrupt)
        .map_err(|failure| Failure { message: Some(by_hand()), ..failure })
}

/// The command that installs packages, by a shell that may.
fn installation(shell: &[&str], policy: &str, packages: &[&str]) -> Command {
    let mut words =
        shell.iter().copied().chain(["-c", INSTALL, "install", policy]).chain(packages.iter().copied());
    let mut command = Command::new(words.next().unwrap_or("sh"));
    command.args(words);
    command
}

/// What this process may do on this machine.
struct Rights {
    has_apt: bool,
    is_root: bool,
    /// Whether there is a sudo that does not ask for a password.
    has_sudo: bool,
}

impl Rights {
    fn here() -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self {
            has_apt: succeeds(Command::new("apt-get").arg("--version")),
            is_root,
            has_sudo: !is_root && succeeds(Command::new("sudo").args(["-n", "true"])),
        }
    }

    /// A shell that may install packages, or why there is none.
    fn shell(&self) -> Result<&'static [&'static str], &'static str> {
        match self {
            Self { has_apt: false, .. } => Err("there is no apt-get"),
            Self { is_root: true, .. } => Ok(&["sh"]),
            Self { has_sudo: true, .. } => Ok(&["sudo", "-n", "sh"]),
            _ => Err("it takes root, or a sudo that does not ask for a password"),
        }
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::path::Path;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn what_is_missing_is_named_by_its_package() {
        let empty = tempfile::tempdir().unwrap();
        let programs = Programs::within(&empty.path().into(), empty.path());
        assert_eq!(missing(&programs), ["postgresql", "pgbouncer", "openssl"]);
        std::fs::write(empty.path().join("pgbouncer"), "").unwrap();
        assert_eq!(missing(&programs), ["postgresql", "openssl"]);
    }

    #[test]
    fn whoever_may_not_install_is_told_why() {
        let rights = |has_apt, is_root, has_sudo| Rights { has_apt, is_root, has_sudo };
        assert_eq!(rights(true, true, false).shell(), Ok(&["sh"][..]));
        assert_eq!(rights(true, false, true).shell(), Ok(&["sudo", "-n", "sh"][..]));
        assert!(rights(true, false, false).shell().unwrap_err().contains("root"));
        assert!(rights(false, true, true).shell().unwrap_err().contains("apt-get"));
    }

    /// An apt-get that writes down how it is called, and fails at `fails`.
    fn machine(fails: &str) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        let apt = format!(
            "here={}\n[ -x $here/policy ] && forbidden=yes\n\
             echo \"$DEBIAN_FRONTEND ${{forbidden:-no}}: $*\" >>$here/calls\n[ \"$1\" != \"{fails}\" ]\n",
            root.path().display()
        );
        // By another process: a file that this one has open to write can't be run.
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$2\" && chmod 755 \"$2\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", write, "write", &apt]).arg(root.path().join("apt-get"));
        assert!(succeeds(&mut shell));
        root
    }

    fn install_on(root: &Path) -> (bool, String) {
        let policy = root.join("policy");
        let mut command = installation(&["sh"], policy.to_str().unwrap(), &["postgresql", "pgbouncer"]);
        let path = format!("{}:{}", root.display(), std::env::var("PATH").unwrap());
        let succeeded = succeeds(command.env("PATH", path));
        (succeeded, std::fs::read_to_string(root.join("calls")).unwrap())
    }

    #[test]
    fn lists_are_updated_first_nothing_is_asked_and_no_daemon_starts() {
        let root = machine("");
        let expected = "noninteractive yes: update -q\n\
                        noninteractive yes: install -y -q --no-install-recommends postgresql pgbouncer\n";
        assert_eq!(install_on(root.path()), (true, expected.to_owned()));
        assert!(!root.path().join("policy").exists(), "the policy is gone again");
    }

    #[test]
    fn a_step_that_fails_is_the_end_of_it() {
        let root = machine("update");
        assert_eq!(install_on(root.path()), (false, "noninteractive yes: update -q\n".to_owned()));
        assert!(!root.path().join("policy").exists(), "the policy is gone again");
        let root = machine("install");
        assert!(!install_on(root.path()).0);
    }

    #[test]
    fn a_policy_of_somebody_else_stays() {
        let root = machine("");
        std::fs::write(root.path().join("policy"), "theirs").unwrap();
        assert!(install_on(root.path()).0);
        assert_eq!(std::fs::read_to_string(root.path().join("policy")).unwrap(), "theirs");
    }
}
