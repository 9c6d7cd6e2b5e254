//! `mainstay lease run`: a command that runs while a lease is held, and not a moment longer.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use mainstay::lease::{Acquired, Lease, LeaseHolder, LeaseOptions, Leases};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::signals::Signals;
use crate::text::{harmless, parse_duration, parse_positive_duration};

/// How long the release of the lease may take.
const RELEASE: Duration = Duration::from_secs(5);

/// Somebody else has the lease: trying again later may help.
const HELD: u8 = 75;
/// The lease was lost and the command killed.
const LOST: u8 = 76;
/// The command can't be executed.
const NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
const NOT_FOUND: u8 = 127;

const EXAMPLES: &str = "\
Examples:
  mainstay lease run nightly-report -- ./report.sh --full
  mainstay lease run leader --wait 1h -- my-service       One of many runs, the others stand by
  mainstay lease run import --duration 5m --context \"$USER\" -- sh -c 'step1 && step2'

The lease is renewed while the command runs and released when it ends. If it is lost, because the database can't be
reached or an operator took it away, the command and the processes it started are asked to end, and killed a moment
later: on Linux all of them, elsewhere those that have not left the command's process group, and at a terminal only the
command itself. On Linux the command also dies with mainstay itself, should that be killed. The command finds the lease in
MAINSTAY_LEASE_NAME, MAINSTAY_LEASE_OWNER, MAINSTAY_LEASE_EPOCH and MAINSTAY_LEASE_TOKEN, and can guard its own writes
with them:
  select infra.lease_guard('nightly-report', '$MAINSTAY_LEASE_OWNER', $MAINSTAY_LEASE_EPOCH)

Exit codes:
  that of the command, or 128 and the number of the signal that ended it
  75   somebody else has the lease; who it is is told on stderr
  76   the lease was lost, and the command was ended
  126  the command can't be executed, 127 there is no such command
With --json what is told is JSON, still on stderr: stdout is the command's.";

/// Do something while holding a lease
#[derive(Debug, Subcommand)]
pub(crate) enum LeaseCommand {
    /// Run a command while holding a lease
    Run(RunArgs),
    /// What `run` starts
    #[cfg(target_os = "linux")]
    #[command(name = super::bound::NAME, hide = true)]
    Bound(super::bound::BoundArgs),
}

/// Run a command while holding a lease
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The lease's name
    name: String,
    /// How long the lease is held without a renewal; after a crash nobody else has it for as long
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_positive_duration)]
    duration: Duration,
    /// How long to wait for a lease that somebody else holds
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    wait: Duration,
    /// Who holds it [default: host, process id and a random number]
    #[arg(long, value_name = "TEXT")]
    owner: Option<String>,
    /// A text for people who look at the lease
    #[arg(long, value_name = "TEXT")]
    context: Option<String>,
    /// Take the lease from an earlier holder of the same --owner
    #[arg(long, requires = "owner")]
    reentrant: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl RunArgs {
    fn options(&self) -> mainstay::Result<LeaseOptions> {
        let mut options = LeaseOptions::default().duration(self.duration).wait(self.wait);
        options.owner = self.owner.clone();
        options.context = self.context.clone().filter(|text| !text.is_empty());
        options.reentrant = self.reentrant;
        options.validate()?;
        Ok(options)
    }
}

pub(crate) async fn run(command: LeaseCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    let arguments = match command {
        LeaseCommand::Run(arguments) => arguments,
        // Settings don't concern it, so it does not get here from the command line.
        #[cfg(target_os = "linux")]
        LeaseCommand::Bound(arguments) => return Err(super::bound::turn_into(&arguments)),
    };
    let options = arguments.options()?;
    let provider = super::leases::open(settings).await?;
    let leases = Leases::new(provider.leases());
    // Watched from before the lease is acquired, so that no signal finds it unprotected.
    let group = Group::default();
    let mut signals = Signals::watch({
        let group = group.clone();
        // The second one ends this process at once, and must not leave the command without its lease.
        move || group.kill()
    });
    let acquired = tokio::select! {
        acquired = leases.acquire_with(&arguments.name, options) => Some(acquired?),
        () = signals.stop() => None,
    };
    let code = match acquired {
        None => ExitCode::from(130),
        Some(Acquired::Held(holder)) => {
            tell_held(&arguments.name, &holder, settings);
            ExitCode::from(HELD)
        }
        Some(Acquired::Lease(lease)) => {
            let ended = supervise(&arguments, &lease, signals, group).await;
            let lost = lease.is_lost();
            // It lapses by itself where this fails or takes long; the command has ended either way.
            match tokio::time::timeout(RELEASE, lease.close()).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => output::note(format_args!(
                    "the lease could not be released and lapses by itself: {error}"
                )),
                Err(_) => output::note("the lease could not be released in time and lapses by itself"),
            }
            tell_end(&arguments.name, ended?, lost, settings)
        }
    };
    provider.close().await;
    Ok(code)
}

/// How the command ended.
enum Ended {
    ByItself(ExitStatus),
    Killed,
}

/// Runs the command until it ends, or the lease does.
async fn supervise(
    arguments: &RunArgs,
    lease: &Lease,
    mut signals: Signals,
    group: Group,
) -> anyhow::Result<Ended> {
    let mut child = start(arguments, lease, group)?;
    loop {
        tokio::select! {
            biased;
            // First: what has ended by itself was not ended.
            status = child.process.wait() => return Ok(Ended::ByItself(status?)),
            () = lease.cancellation().cancelled() => break,
            () = signals.stop(), if !child.asked => child.ask_to_end(),
        }
    }
    child.ask_to_end();
    // The lease counts as lost a little before anybody else can have it; that is the time there is to end well.
    let grace = (arguments.duration / 20).min(Duration::from_secs(1));
    let ended = tokio::time::timeout(grace, child.process.wait()).await;
    // Also when the command itself has ended: what it started may not have.
    child.kill();
    if ended.is_err() {
        child.process.wait().await?;
    }
    Ok(Ended::Killed)
}

/// The command and what it has started: its process group, if it has one of its own, and on Linux whoever descends from it.
#[derive(Clone, Default)]
struct Group(Arc<AtomicI32>);

impl Group {
    /// False when nobody was told.
    #[cfg(unix)]
    fn ask_to_end(&self) -> bool {
        #[cfg(target_os = "linux")]
        if super::descendants::ask_to_end() {
            return true;
        }
        self.signal(rustix::process::Signal::TERM)
    }

    fn kill(&self) {
        #[cfg(target_os = "linux")]
        super::descendants::kill();
        #[cfg(unix)]
        self.signal(rustix::process::Signal::KILL);
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) -> bool {
        // Zero as long as there is none.
        let group = rustix::process::Pid::from_raw(self.0.load(Ordering::SeqCst));
        group.is_some_and(|id| rustix::process::kill_process_group(id, signal).is_ok())
    }
}

/// A command that was started.
struct Supervised {
    process: Child,
    group: Group,
    asked: bool,
}

/// What runs the command so that it does not outlive this process, where that can be had. The kernel goes by the thread that starts
/// it: that must be one that lives as long as the process, as the main one does.
fn command_of(program: &OsStr, rest: &[OsString]) -> Command {
    #[cfg(target_os = "linux")]
    if std::fs::exists(super::bound::PROGRAM).unwrap_or(false) {
        let mut command = Command::new(super::bound::PROGRAM);
        command.arg0("mainstay").args(["lease", super::bound::NAME, &std::process::id().to_string(), "--"]);
        command.arg(program).args(rest);
        return command;
    }
    let mut command = Command::new(program);
    command.args(rest);
    command
}

/// The failure to run a command, with the exit codes of a shell.
pub(super) fn unrunnable(program: &OsStr, error: std::io::Error) -> Failure {
    let code = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    let what = format!("the command {:?} can't be run", program.to_string_lossy());
    Failure::with_code(code, what).because(error)
}

fn start(arguments: &RunArgs, lease: &Lease, group: Group) -> anyhow::Result<Supervised> {
    // The parser takes at least one.
    let (program, rest) =
        arguments.command.split_first().ok_or_else(|| Failure::usage("there is no command"))?;
    let mut command = command_of(program, rest);
    command
        .env("MAINSTAY_LEASE_NAME", lease.name())
        .env("MAINSTAY_LEASE_OWNER", lease.owner())
        .env("MAINSTAY_LEASE_EPOCH", lease.epoch().to_string())
        .env("MAINSTAY_LEASE_TOKEN", lease.fencing_token().to_string())
        .kill_on_drop(true);
    #[cfg(target_os = "linux")]
    super::descendants::adopt_orphans();
    // Not at a terminal: a command in a group of its own could not read what is typed.
    let grouped = cfg!(unix) && !std::io::stdin().is_terminal();
    #[cfg(unix)]
    if grouped {
        command.process_group(0);
    }
    let process = command.spawn().map_err(|error| unrunnable(program, error))?;
    #[cfg(target_os = "linux")]
    tokio::spawn(super::descendants::bury_orphans(process.id()));
    if let (true, Some(id)) = (grouped, process.id().and_then(|id| i32::try_from(id).ok())) {
        group.0.store(id, Ordering::SeqCst);
    }
    Ok(Supervised { process, group, asked: false })
}

impl Supervised {
    fn ask_to_end(&mut self) {
        self.asked = true;
        #[cfg(unix)]
        if !self.group.ask_to_end()
            && let Some(id) = self.process.id().and_then(|id| i32::try_from(id).ok())
            && let Some(id) = rustix::process::Pid::from_raw(id)
        {
            // An error means that there is nobody left to tell.
            let _gone = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
    }

    fn kill(&mut self) {
        self.group.kill();
        // Where it has no group of its own. An error means that it has ended.
        let _ended = self.process.start_kill();
    }
}

fn tell(value: &Value, text: &str, settings: &Settings) {
    if settings.json {
        output::note(value);
    } else {
        output::note(harmless(text));
    }
}

fn tell_held(name: &str, holder: &LeaseHolder, settings: &Settings) {
    let context = holder.context.as_deref().map(|context| format!(" ({context})")).unwrap_or_default();
    let text = format!("the lease {name} is {holder}{context}; the command was not run");
    tell(&json!({ "name": name, "acquired": false, "holder": holder }), &text, settings);
}

fn tell_end(name: &str, ended: Ended, lost: bool, settings: &Settings) -> ExitCode {
    let (status, killed) = match ended {
        Ended::ByItself(status) => (code_of(status), false),
        Ended::Killed => (LOST, true),
    };
    if killed {
        let text = format!("the lease {name} was lost; the command was ended");
        tell(&json!({ "name": name, "acquired": true, "lost": true, "exit_code": status }), &text, settings);
    } else if lost {
        let text = format!("the lease {name} was lost as the command ended");
        tell(&json!({ "name": name, "acquired": true, "lost": true, "exit_code": status }), &text, settings);
    } else if settings.json {
        tell(&json!({ "name": name, "acquired": true, "lost": false, "exit_code": status }), "", settings);
    }
    ExitCode::from(status)
}

/// The command's exit code, or the shell's way of telling which signal ended it.
fn code_of(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return u8::try_from(128 + signal).unwrap_or(u8::MAX);
    }
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
