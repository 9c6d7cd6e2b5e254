//! All that a command has started, also what has left its process group or lost its parent.
//!
//! At a terminal a command can't have a group of its own, in which it could not read what is typed. Linux tells who descends from whom, and whoever loses
//! his parent can be made a child of this process: so nobody gets away.

use std::collections::HashSet;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use tokio::signal::unix::{SignalKind, signal};

/// A process, as the kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    id: i32,
    parent: i32,
    /// It has ended, and its parent was not told yet.
    ended: bool,
}

/// From here on whoever loses his parent becomes a child of this process.
pub(super) fn adopt_orphans() {
    // Where that can't be had, those are missed who lost their parents.
    let _unable = set_child_subreaper(Some(getpid()));
}

/// Lets those go that were adopted and have ended, as a parent has to. Not `own`, whose end somebody waits for.
pub(super) async fn bury_orphans(own: Option<u32>) {
    let Ok(mut ended) = signal(SignalKind::child()) else { return };
    let own = own.and_then(|id| i32::try_from(id).ok());
    let this = getpid().as_raw_pid();
    while ended.recv().await.is_some() {
        let orphans =
            processes().into_iter().filter(|it| it.parent == this && it.ended && Some(it.id) != own);
        for orphan in orphans.filter_map(|orphan| Pid::from_raw(orphan.id)) {
            // An error means that there is nothing left to do.
            let _gone = waitpid(Some(orphan), WaitOptions::NOHANG);
        }
    }
}

/// Asks every descendant of this process to end. False when there is none, or none can be found.
pub(super) fn ask_to_end() -> bool {
    let living = living();
    for process in &living {
        // An error means that it has ended.
        let _gone = kill_process(*process, Signal::TERM);
    }
    !living.is_empty()
}

/// Kills every descendant of this process, and whoever they were just starting.
pub(super) fn kill() {
    let mut killed = HashSet::new();
    loop {
        let living = living();
        let new: Vec<Pid> = living.into_iter().filter(|process| killed.insert(*process)).collect();
        if new.is_empty() {
            return;
        }
        for process in new {
            // An error means that it has ended.
            let _gone = kill_process(process, Signal::KILL);
        }
    }
}

fn living() -> Vec<Pid> {
    let found = descendants(getpid().as_raw_pid(), &processes());
    found.iter().filter(|process| !process.ended).filter_map(|process| Pid::from_raw(process.id)).collect()
}

fn descendants(of: i32, all: &[Process]) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for process in all.iter().filter(|process| process.parent == parent) {
            // They are not read all at once, so what they tell may not fit together.
            if !found.iter().any(|known| known.id == process.id) {
                found.push(*process);
                parents.push(process.id);
            }
        }
    }
    found
}

fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let process = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        entry.file_name().to_str()?.parse::<i32>().ok()?;
        // It may end meanwhile.
        let stat = std::fs::read(entry.path().join("stat")).ok()?;
        parse(&String::from_utf8_lossy(&stat))
    };
    entries.filter_map(process).collect()
}

/// `id (name) state parent …`, where the name may have anything in it.
fn parse(stat: &str) -> Option<Process> {
    let (before, after) = stat.rsplit_once(')')?;
    let mut rest = after.split_ascii_whitespace();
    let ended = matches!(rest.next()?, "Z" | "X");
    Some(Process { id: before.split(' ').next()?.parse().ok()?, parent: rest.next()?.parse().ok()?, ended })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_read() {
        let process = |id, parent, ended| Some(Process { id, parent, ended });
        assert_eq!(parse("12 (sh) S 1 12 12 0"), process(12, 1, false));
        assert_eq!(parse("12 (a) Z 9 (b) Z 7 12"), process(12, 7, true));
        assert_eq!(parse("12 (sh"), None);
    }

    #[test]
    fn descendants_are_found_at_any_distance() {
        let all = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 1), (6, 6)].map(|(id, parent)| Process {
            id,
            parent,
            ended: false,
        });
        let ids = |of| {
            let mut ids: Vec<i32> = descendants(of, &all).iter().map(|process| process.id).collect();
            ids.sort_unstable();
            ids
        };
        assert_eq!((ids(2), ids(4), ids(1)), (vec![3, 4], vec![], vec![2, 3, 4, 5]));
        assert_eq!(ids(6), [6], "also where it can't be true");
    }
}
