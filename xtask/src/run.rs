use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// How long an interrupted program may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a program to its end, its output going where this program's goes.
///
/// It gets its own process group: when this program is interrupted, in the terminal or by a
/// signal to it alone, the whole group ends with it, a test that cargo runs included.
pub(crate) fn run(command: &mut Command, interrupt: &Interrupt) -> Result<(), Failure> {
    interrupt.check()?;
    let name = command.get_program().display().to_string();
    let mut child = command
        .process_group(0)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| Failure::new(format!("cannot run {name}: {error}")))?;

    loop {
        let ended =
            child.try_wait().map_err(|error| Failure::new(format!("cannot wait for {name}: {error}")))?;
        if let Some(status) = ended {
            interrupt.check()?;
            if status.success() {
                return Ok(());
            }
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Err(match (code, status.signal()) {
                (None, Some(signal)) => Failure::new(format!("{name} died of signal {signal}")),
                (code, _) => Failure::code(code.unwrap_or(1)),
            });
        }
        if interrupt.is_raised() {
            end(&mut child);
            interrupt.check()?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends a program and all it started: what a killed test started goes on otherwise.
fn end(child: &mut Child) {
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return;
    };
    // What Ctrl-C sends: PostgreSQL ends its clients' sessions for it, but waits for them when
    // it is told to terminate. All these fail only when the group is gone, which is wanted.
    let _ = kill_process_group(group, Signal::INT);
    let deadline = Instant::now() + PATIENCE;
    loop {
        // The group exists until the end of its first process is noted, too.
        let _ = child.try_wait();
        if test_kill_process_group(group).is_err() {
            return;
        }
        if Instant::now() > deadline {
            let _ = kill_process_group(group, Signal::KILL);
            let _ = child.wait();
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
