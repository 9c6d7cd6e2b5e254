//! The lock that says which process writes next: of an empty file beside the database,
//! `app.db-turn`.
//!
//! It is a lock of the operating system (`flock`), so it ends with the process at the latest. A
//! writer that closes removes the file unless another process holds the lock just then. One that
//! has a removed file open notices, and opens the new one.
//!
//! On systems other than Unix there is no such file.

#[cfg(unix)]
pub(super) use unix::Queue;

#[cfg(not(unix))]
pub(super) use elsewhere::Queue;

/// Where a process stands.
#[cfg_attr(not(unix), allow(dead_code, reason = "there is no queue"))]
pub(super) enum Place {
    /// This process is next, for as long as the lock lives.
    Next(#[allow(dead_code, reason = "it is dropped")] Lock),
    /// Another process is next.
    Behind,
    /// There is no queue.
    Nowhere,
}

#[cfg(unix)]
pub(super) use unix::Lock;

#[cfg(not(unix))]
pub(super) enum Lock {}

#[cfg(unix)]
mod unix {
    use std::cell::RefCell;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use rustix::fd::OwnedFd;
    use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, unlink};
    use rustix::io::Errno;

    use super::Place;
    use crate::connection::Location;

    pub(in crate::writer) struct Queue {
        /// None in memory.
        database: Option<PathBuf>,
        file: RefCell<Option<(PathBuf, Arc<OwnedFd>)>>,
    }

    pub(in crate::writer) struct Lock(Arc<OwnedFd>);

    impl Drop for Lock {
        fn drop(&mut self) {
            // Could it fail, the lock would end when the file is closed.
            let _ = flock(&*self.0, FlockOperation::Unlock);
        }
    }

    impl Queue {
        pub(in crate::writer) fn beside(location: &Location) -> Self {
            let path = location.place().path();
            let database = (!location.is_memory()).then(|| path.to_owned());
            Self { database, file: RefCell::default() }
        }

        /// Takes the lock if it is free.
        pub(in crate::writer) fn enter(&self) -> Place {
            let Some(database) = &self.database else { return Place::Nowhere };
            // A file that was removed meanwhile is opened anew, once: more often would only help
            // fairness.
            for _ in 0..2 {
                let mut file = self.file.borrow_mut();
                if file.is_none() {
                    *file = open_beside(database);
                }
                let Some((_, lock)) = &*file else { return Place::Nowhere };
                match flock(&**lock, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => {}
                    Err(Errno::WOULDBLOCK | Errno::INTR) => return Place::Behind,
                    Err(_) => return Place::Nowhere,
                }
                if fstat(&**lock).is_ok_and(|file| file.st_nlink > 0) {
                    return Place::Next(Lock(Arc::clone(lock)));
                }
                *file = None;
            }
            Place::Nowhere
        }
    }

    impl Drop for Queue {
        fn drop(&mut self) {
            let used = self.file.get_mut().is_some();
            if used
                && let Place::Next(_lock) = self.enter()
                && let Some((path, _)) = self.file.get_mut()
            {
                // A file that is left behind does no harm.
                let _ = unlink(&*path);
            }
        }
    }

    fn open_beside(database: &Path) -> Option<(PathBuf, Arc<OwnedFd>)> {
        // Beside the file itself, as SQLite's own files, whatever links lead there.
        let mut path = std::fs::canonicalize(database).ok()?.into_os_string();
        path.push("-turn");
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = open(&path, flags, Mode::from_raw_mode(0o644)).ok()?;
        Some((path.into(), Arc::new(file)))
    }
}

#[cfg(not(unix))]
mod elsewhere {
    use super::Place;
    use crate::connection::Location;

    /// No queue: processes ask SQLite alone, only more often than it would by itself.
    pub(in crate::writer) struct Queue;

    impl Queue {
        pub(in crate::writer) fn beside(_: &Location) -> Self {
            Self
        }

        pub(in crate::writer) fn enter(&self) -> Place {
            Place::Nowhere
        }
    }
}
