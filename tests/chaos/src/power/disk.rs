//! What a disk may hold after the power was lost.
//!
//! What was synced is there. Of what was written later, anything may be: each write whole, in
//! parts, or not at all, and in another order. Creations and removals that were not synced reach
//! the disk in their order, so that some of the first are there.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::trace::{FileId, Step};
use crate::random::Random;

/// Whether a sync does what it promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syncs {
    /// It does.
    Honored,
    /// It does nothing: what a test of the simulation itself has to notice.
    Ignored,
}

/// How what was not synced reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Nothing,
    Everything,
    /// Some writes, in their order.
    Some,
    /// Of each sector of so many bytes that was written, some; each write by itself.
    Torn(usize),
    /// Some writes, in any order.
    Reordered,
}

impl Fate {
    pub(super) fn draw(random: &mut Random) -> Self {
        match random.below(8) {
            0 => Self::Nothing,
            1 => Self::Everything,
            2 | 3 => Self::Some,
            4 | 5 => Self::Torn(512),
            6 => Self::Torn(4_096),
            _ => Self::Reordered,
        }
    }
}

#[derive(Debug, Default)]
struct FileState {
    synced: Vec<u8>,
    /// The steps that are not synced.
    later: Vec<usize>,
}

/// A disk, at a moment within a recording.
pub(super) struct Disk<'a> {
    steps: &'a [Step],
    /// Steps that were taken.
    taken: usize,
    syncs: Syncs,
    files: Vec<FileState>,
    names: BTreeMap<String, FileId>,
    /// Creations and removals that are not synced.
    later_names: Vec<usize>,
}

impl<'a> Disk<'a> {
    pub(super) fn new(steps: &'a [Step], syncs: Syncs) -> Self {
        Self { steps, taken: 0, syncs, files: Vec::new(), names: BTreeMap::new(), later_names: Vec::new() }
    }

    /// Takes the steps before this one.
    pub(super) fn advance(&mut self, cut: usize) -> Result<()> {
        while self.taken < cut {
            let number = self.taken;
            let step = self.steps.get(number).context("the recording has no such step")?;
            self.take(number, step)?;
            self.taken += 1;
        }
        Ok(())
    }

    fn take(&mut self, number: usize, step: &Step) -> Result<()> {
        match step {
            Step::Create { .. } => {
                self.files.push(FileState::default());
                self.later_names.push(number);
            }
            Step::Remove { .. } => self.later_names.push(number),
            Step::Write { file, .. } | Step::Truncate { file, .. } => self.file(*file)?.later.push(number),
            Step::Sync { .. } | Step::SyncNames { .. } if self.syncs == Syncs::Ignored => {}
            Step::Sync { file, before } => {
                let steps = self.steps;
                let file = self.file(*file)?;
                let (synced, later) = file.later.iter().partition(|step| **step < *before);
                file.later = later;
                let synced: Vec<usize> = synced;
                synced.iter().for_each(|step| apply(&mut file.synced, &steps[*step]));
            }
            Step::SyncNames { before } => {
                let synced = self.later_names.partition_point(|step| step < before);
                for step in self.later_names.drain(..synced) {
                    rename(&mut self.names, &self.steps[step]);
                }
            }
            Step::Mark(_) => {}
        }
        Ok(())
    }

    fn file(&mut self, file: FileId) -> Result<&mut FileState> {
        self.files.get_mut(file).context("a file was used before it was made")
    }

    /// The files that are found, with their contents, if the power is lost now.
    pub(super) fn after_loss(&self, fate: Fate, random: &mut Random) -> BTreeMap<String, Vec<u8>> {
        let mut names = self.names.clone();
        let named = match fate {
            Fate::Nothing => 0,
            Fate::Everything => self.later_names.len(),
            _ => random.below(self.later_names.len() + 1),
        };
        for step in &self.later_names[..named] {
            rename(&mut names, &self.steps[*step]);
        }
        let mut content = |file: FileId| self.content(&self.files[file], fate, random);
        names.into_iter().map(|(name, file)| (name, content(file))).collect()
    }

    fn content(&self, file: &FileState, fate: Fate, random: &mut Random) -> Vec<u8> {
        let mut content = file.synced.clone();
        let mut kept = file.later.clone();
        // Not always the same part of them.
        let of = 2 + random.below(3);
        match fate {
            Fate::Nothing => return content,
            Fate::Everything => {}
            Fate::Some => kept.retain(|_| !random.once_in(of)),
            Fate::Reordered => {
                kept.retain(|_| !random.once_in(of));
                random.shuffle(&mut kept);
            }
            Fate::Torn(sector) => {
                for step in kept {
                    tear(&mut content, &self.steps[step], sector, of, random);
                }
                return content;
            }
        }
        kept.iter().for_each(|step| apply(&mut content, &self.steps[*step]));
        // The length may have got there before what was written.
        if random.once_in(4) {
            let end = file.later.iter().map(|step| end_of(&self.steps[*step])).max().unwrap_or(0);
            content.resize(content.len().max(end), 0);
        }
        content
    }
}

fn rename(names: &mut BTreeMap<String, FileId>, step: &Step) {
    match step {
        Step::Create { name, file } => drop(names.insert(name.clone(), *file)),
        Step::Remove { name } => drop(names.remove(name)),
        _ => {}
    }
}

/// Where a step's data ends.
fn end_of(step: &Step) -> usize {
    match step {
        Step::Write { offset, data, .. } => *offset as usize + data.len(),
        _ => 0,
    }
}

fn apply(content: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Write { offset, data, .. } => write(content, *offset as usize, data),
        Step::Truncate { length, .. } => content.resize(*length as usize, 0),
        _ => {}
    }
}

/// Applies some of the sectors of a write.
fn tear(content: &mut Vec<u8>, step: &Step, sector: usize, of: usize, random: &mut Random) {
    let Step::Write { offset, data, .. } = step else {
        if !random.once_in(of) {
            apply(content, step);
        }
        return;
    };
    let (mut at, end) = (*offset as usize, *offset as usize + data.len());
    while at < end {
        let next = end.min((at / sector + 1) * sector);
        if !random.once_in(of) {
            let from = at - *offset as usize;
            write(content, at, &data[from..from + (next - at)]);
        }
        at = next;
    }
}

fn write(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrote(file: FileId, offset: u64, data: &[u8]) -> Step {
        Step::Write { file, offset, data: data.to_vec() }
    }

    fn created(name: &str, file: FileId) -> Step {
        Step::Create { name: name.to_owned(), file }
    }

    /// A file of two sectors that are synced, and two more writes that are not.
    fn steps() -> Vec<Step> {
        vec![
            created("a", 0),
            wrote(0, 0, &[1; 1_024]),
            Step::Sync { file: 0, before: 2 },
            Step::SyncNames { before: 3 },
            wrote(0, 0, &[2; 1_024]),
            wrote(0, 512, &[3; 1_024]),
        ]
    }

    fn disk(steps: &[Step], syncs: Syncs) -> Disk<'_> {
        let mut disk = Disk::new(steps, syncs);
        disk.advance(steps.len()).unwrap();
        disk
    }

    #[test]
    fn what_was_synced_is_there_and_the_rest_may_be() {
        let steps = steps();
        let disk = disk(&steps, Syncs::Honored);
        let mut random = Random::new(1, "disk");
        assert_eq!(disk.after_loss(Fate::Nothing, &mut random)["a"], [1; 1_024]);
        let all = [vec![2; 512], vec![3; 1_024]].concat();
        assert_eq!(disk.after_loss(Fate::Everything, &mut random)["a"], all);

        let (mut whole, mut torn) = (Vec::new(), Vec::new());
        for _ in 0..500 {
            whole.push(disk.after_loss(Fate::Reordered, &mut random).remove("a").unwrap());
            torn.push(disk.after_loss(Fate::Torn(512), &mut random).remove("a").unwrap());
        }
        let sectors = |content: &Vec<u8>| content.chunks(512).map(|sector| sector[0]).collect::<Vec<_>>();
        for content in whole.iter().chain(&torn) {
            assert!(content.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        }
        let seen = |states: &[Vec<u8>], wanted: &[u8]| states.iter().any(|state| sectors(state) == wanted);
        // Only the first of both writes, only the second, both in the other order.
        for wanted in [&[2, 2][..], &[1, 3, 3], &[2, 2, 3]] {
            assert!(seen(&whole, wanted), "{wanted:?}");
        }
        assert!(seen(&torn, &[2, 1]) && seen(&torn, &[1, 1, 3]));
        assert!(!seen(&whole, &[2, 1]), "a whole write is not torn");
    }

    #[test]
    fn syncs_that_are_ignored_leave_nothing_sure() {
        let steps = steps();
        let disk = disk(&steps, Syncs::Ignored);
        assert!(disk.after_loss(Fate::Nothing, &mut Random::new(1, "disk")).is_empty());
    }

    #[test]
    fn a_name_that_was_not_synced_may_be_missing_and_a_removed_one_may_be_back() {
        let mut steps = steps();
        steps.push(Step::Remove { name: "a".to_owned() });
        steps.push(created("b", 1));
        let disk = disk(&steps, Syncs::Honored);
        let mut random = Random::new(1, "disk");
        let mut found = std::collections::BTreeSet::new();
        for _ in 0..100 {
            found.insert(disk.after_loss(Fate::Some, &mut random).into_keys().collect::<Vec<_>>());
        }
        let name = |name: &str| vec![name.to_owned()];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [vec![], name("a"), name("b")]);
    }

    #[test]
    fn a_truncation_is_a_step_as_others_are() {
        let mut steps = steps();
        steps.push(Step::Truncate { file: 0, length: 512 });
        steps.push(Step::Sync { file: 0, before: 7 });
        let disk = disk(&steps, Syncs::Honored);
        assert_eq!(disk.after_loss(Fate::Nothing, &mut Random::new(1, "disk"))["a"], [2; 512]);
    }
}
