//! What a run leaves behind: one JSON file per case and provider, under `target/conformance/<provider>`.
//!
//! The file says `failed` from before the case runs until it has passed, so a case that crashes its process is not
//! mistaken for one that did not run.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The provider keeps the contract.
    Passed,
    /// It does not, or the case did not end.
    Failed,
    /// The provider declares that it has no such thing.
    NotApplicable {
        /// The capability it lacks.
        reason: String,
    },
    /// Nothing is known: what it takes to run it is not there. Never counts as passed.
    NotRun {
        /// What it takes.
        reason: String,
    },
}

/// The result of one case on one provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The case.
    pub case: String,
    /// The requirements it checks.
    pub ids: Vec<String>,
    /// The provider and its mode.
    pub provider: String,
    /// How it ended.
    pub outcome: Outcome,
}

impl CaseResult {
    /// Writes or overwrites the result's file in `directory`.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let directory = directory.join(&self.provider);
        std::fs::create_dir_all(&directory)?;
        let mut text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        text.push('\n');
        std::fs::write(directory.join(format!("{}.json", self.case)), text)
    }
}

/// All results in `directory`, by provider and case. None when it is not there.
pub fn read(directory: &Path) -> io::Result<Vec<CaseResult>> {
    let mut results = Vec::new();
    for provider in children(directory)? {
        for file in children(&provider)? {
            if file.extension().is_some_and(|extension| extension == "json") {
                let text = std::fs::read_to_string(&file)?;
                let result: CaseResult = serde_json::from_str(&text)
                    .map_err(|error| io::Error::other(format!("{}: {error}", file.display())))?;
                results.push(result);
            }
        }
    }
    results.sort_by(|a, b| (&a.provider, &a.case).cmp(&(&b.provider, &b.case)));
    Ok(results)
}

fn children(directory: &Path) -> io::Result<Vec<PathBuf>> {
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    std::fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path())).collect()
}

/// Where results go: `conformance` in the target directory of the running program, which Cargo marks with a cache
/// tag; `target/conformance` here when it was not built by Cargo.
pub fn directory() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file());
    target.unwrap_or(Path::new("target")).join("conformance")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_as_they_were_written() {
        let directory = std::env::temp_dir().join(format!("mainstay-results-{}", uuid::Uuid::new_v4()));
        let result = |case: &str, outcome| CaseResult {
            case: case.to_owned(),
            ids: vec!["OBX-001".to_owned()],
            provider: "memory".to_owned(),
            outcome,
        };
        let lacking = result("b", Outcome::NotApplicable { reason: "roles".to_owned() });
        lacking.write(&directory).unwrap();
        result("a", Outcome::Failed).write(&directory).unwrap();
        result("a", Outcome::Passed).write(&directory).unwrap();
        assert_eq!(read(&directory).unwrap(), [result("a", Outcome::Passed), lacking]);
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(read(&directory).unwrap(), []);
    }
}
