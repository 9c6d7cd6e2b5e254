//! Reading the histories of a run back.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::Line;

/// A line and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// `<file>:<line>`, from 1.
    pub place: String,
    /// The line.
    pub line: Line,
}

/// All lines of a run, in the order of their time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// The lines.
    pub lines: Vec<Placed>,
}

impl History {
    /// Reads every `*.ndjson` of a directory. The last line of a file may be torn; any other must be whole.
    pub fn read(directory: &Path) -> Result<Self> {
        let mut lines = Vec::new();
        let entries =
            std::fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "ndjson") {
                read_file(&path, &mut lines)?;
            }
        }
        // Lines of one process keep their order: its clock never goes back, and the sort is stable.
        lines.sort_by_key(|placed| placed.line.at);
        Ok(Self { lines })
    }
}

fn read_file(path: &Path, lines: &mut Vec<Placed>) -> Result<()> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut parts = text.split(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((index, part)) = parts.next() {
        let is_last = parts.peek().is_none();
        match serde_json::from_slice(part) {
            Ok(line) => lines.push(Placed { place: format!("{name}:{}", index + 1), line }),
            // What follows the last line break is nothing, or a torn line.
            Err(_) if is_last => {}
            Err(error) => bail!("{}:{}: {error}", path.display(), index + 1),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Answer, Call, Event, Kind, QueueName, Recorder};
    use super::*;

    #[test]
    fn what_was_recorded_is_read_back_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let a = Recorder::open(directory.path(), "worker-1.1", Kind::Worker, None).unwrap();
        let b = Recorder::open(directory.path(), "operator-1.1", Kind::Operator, None).unwrap();
        let reap = a.invoke(Call::Reap { queue: QueueName::Outbox });
        b.note(Event::Started(7));
        reap.ok(Answer::Count(3));
        let events: Vec<Event> = History::read(directory.path())
            .unwrap()
            .lines
            .into_iter()
            .map(|placed| placed.line.event)
            .collect();
        let expected = [
            Event::Invoke(Box::new(Call::Reap { queue: QueueName::Outbox })),
            Event::Started(7),
            Event::Ok(Box::new(Answer::Count(3))),
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn only_the_last_line_may_be_torn() {
        let directory = tempfile::tempdir().unwrap();
        let recorder = Recorder::open(directory.path(), "worker-1.1", Kind::Worker, None).unwrap();
        recorder.note(Event::Stopped);
        let path = directory.path().join("worker-1.1.ndjson");
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{}", &whole[..20])).unwrap();
        assert_eq!(History::read(directory.path()).unwrap().lines.len(), 1);
        std::fs::write(&path, format!("{}\n{whole}", &whole[..20])).unwrap();
        let error = History::read(directory.path()).unwrap_err().to_string();
        assert!(error.contains("worker-1.1.ndjson:1:"), "{error}");
    }
}
