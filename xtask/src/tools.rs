use std::path::PathBuf;
use std::process::Command;

use mainstay_servers::{SharedServers, find_faketime, find_openssl, find_pgbouncer, find_postgres};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::run::run;

/// Installs packages without letting them start the daemons they bring, by the means Debian
/// has for it: a policy that forbids it, for as long as the installation takes. Someone
/// else's policy is left as it is.
const INSTALL: &str = r#"
set -eu
policy=/usr/sbin/policy-rc.d
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

/// Brings the programs the tests need, then starts the servers all tests share.
pub(crate) fn start_servers(interrupt: &Interrupt) -> Result<SharedServers, Failure> {
    let mut missing = Vec::new();
    if find_postgres().is_err() {
        missing.push("postgresql");
    }
    if find_pgbouncer().is_err() {
        missing.push("pgbouncer");
    }
    if find_openssl().is_err() {
        missing.push("openssl");
    }
    install(&missing, interrupt)?;
    if find_faketime().is_none()
        && let Err(failure) = install(&["faketime"], interrupt)
    {
        interrupt.check()?;
        let message = failure.message.unwrap_or_default();
        eprintln!("warning: going on without faketime. {message}");
    }

    interrupt.check()?;
    let (postgres, pgbouncer): (PathBuf, PathBuf) = (find_postgres()?, find_pgbouncer()?);
    Ok(SharedServers::start(&postgres, &pgbouncer)?)
}

/// Installs what Debian calls `packages`.
pub(crate) fn install(packages: &[&str], interrupt: &Interrupt) -> Result<(), Failure> {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    let by_hand = || format!("Install by hand what Debian calls: {list}");
    let Some(mut command) = privileged_shell() else {
        return Err(Failure::new(format!(
            "{list} is missing, and installing takes apt-get and root or a sudo that does not \
             ask. {}",
            by_hand()
        )));
    };
    eprintln!("installing {list}");
    run(command.arg("-c").arg(INSTALL).arg("install").args(packages), interrupt)
        .map_err(|failure| Failure { message: Some(by_hand()), ..failure })
}

/// A shell that may install packages.
fn privileged_shell() -> Option<Command> {
    if !succeeds(Command::new("apt-get").arg("--version")) {
        return None;
    }
    if rustix::process::geteuid().is_root() {
        return Some(Command::new("sh"));
    }
    if succeeds(Command::new("sudo").args(["-n", "true"])) {
        let mut command = Command::new("sudo");
        command.args(["-n", "sh"]);
        return Some(command);
    }
    None
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
