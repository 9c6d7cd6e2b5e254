use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::tools::start_servers;

pub(crate) const USAGE: &str = "\
postgres
    Start the servers of the tests and print the environment that tests find them by, to
    run tests by other means than `cargo xtask test`. Ctrl-C or the end of the input stops
    the servers";

pub(crate) fn main(arguments: &[String]) -> Result<(), Failure> {
    if let Some(argument) = arguments.first() {
        return Err(Failure::usage(format!("unexpected argument `{argument}`")));
    }
    let interrupt = Interrupt::watch()?;
    let servers = start_servers(&interrupt)?;
    for (name, value) in servers.environment() {
        println!("export {name}='{}'", value.display());
    }
    eprintln!("running; Ctrl-C or the end of the input stops the servers");
    let ended = end_of_input();
    while !interrupt.is_raised() && !ended.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Becomes true when the input ends. Reading blocks, so a thread does it, which goes away
/// with the process.
fn end_of_input() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut buffer = [0; 256];
        while matches!(input.read(&mut buffer), Ok(count) if count > 0) {}
        flag.store(true, Ordering::Relaxed);
    });
    ended
}
