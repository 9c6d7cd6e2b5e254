//! The logs of a run.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::history::MARKER;

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// `<file>:<line>`, from 1.
    pub place: String,
    /// The line.
    pub text: String,
}

/// Reads the lines with a payload's marker out of every file below a directory.
pub(super) fn leaks(directory: &Path) -> Result<Vec<LogLine>> {
    let mut leaks = Vec::new();
    let mut directories = vec![directory.to_owned()];
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        let entries = std::fs::read_dir(&directory)
            .with_context(|| format!("cannot list the logs in {}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else {
                files += 1;
                search(&path, &mut leaks).with_context(|| format!("cannot read {}", path.display()))?;
            }
        }
    }
    if files == 0 {
        bail!("no logs in {}: nothing shows that payloads stay out of them", directory.display());
    }
    leaks.sort_by(|a, b| a.place.cmp(&b.place));
    Ok(leaks)
}

fn search(path: &Path, leaks: &mut Vec<LogLine>) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut reader = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        // A log can have bytes that are no UTF-8.
        if reader.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        if text.contains(MARKER) {
            leaks.push(LogLine { place: format!("{name}:{number}"), text: text.trim_end().to_owned() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found_in_every_log_and_told_by_line() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("serve")).unwrap();
        std::fs::write(directory.path().join("worker-1.log"), "started\nstopped\n").unwrap();
        let text = [b"\xff\n".as_slice(), b"payload=\"", MARKER.as_bytes(), b"17\"\n"].concat();
        std::fs::write(directory.path().join("serve/out.log"), text).unwrap();
        let expected = LogLine { place: "out.log:2".to_owned(), text: format!("payload=\"{MARKER}17\"") };
        assert_eq!(leaks(directory.path()).unwrap(), [expected]);
    }

    #[test]
    fn a_run_without_logs_is_not_judged() {
        let directory = tempfile::tempdir().unwrap();
        assert!(leaks(directory.path()).is_err());
        assert!(leaks(&directory.path().join("logs")).is_err());
    }
}
