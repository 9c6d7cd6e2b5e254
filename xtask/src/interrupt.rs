use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::Failure;

/// The exit code of a program ended by Ctrl-C, by the shells' convention.
const INTERRUPTED: u8 = 130;

/// Whether this program was asked to end. From its creation on a Ctrl-C no longer ends the
/// program by itself, so that the servers it started can be stopped first.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub(crate) fn watch() -> Result<Self, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .map_err(|error| Failure::new(format!("cannot watch for Ctrl-C: {error}")))?;
        }
        Ok(Self(flag))
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails if this program was asked to end.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.is_raised() { Err(Failure::code(INTERRUPTED)) } else { Ok(()) }
    }
}
