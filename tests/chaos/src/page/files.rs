//! The page and its verdicts as files.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{Committed, page};

/// The page, in the directory of the reference.
const PAGE: &str = "reliability.md";

/// The directory of the verdicts, beside the page.
const VERDICTS: &str = "reliability";

/// Reads the verdicts that are committed in `docs/reference/reliability`, given `docs/reference`.
pub fn read(reference: &Path) -> Result<Vec<Committed>> {
    let directory = reference.join(VERDICTS);
    let entries = match std::fs::read_dir(&directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot list {}", directory.display()))?,
    };
    let mut verdicts = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let verdict =
            serde_json::from_slice(&text).with_context(|| format!("{} is not a verdict", path.display()))?;
        verdicts.push(Committed { file, verdict });
    }
    verdicts.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(verdicts)
}

/// Writes the page into `docs/reference`.
pub fn write(reference: &Path) -> Result<()> {
    let path = reference.join(PAGE);
    let text = page(&read(reference)?);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Fails if the page in `docs/reference` is not what its verdicts give.
pub fn check(reference: &Path) -> Result<()> {
    let path = reference.join(PAGE);
    let found = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let wanted = page(&read(reference)?);
    if found == wanted {
        return Ok(());
    }
    let differs = found.lines().zip(wanted.lines()).take_while(|(found, wanted)| found == wanted).count();
    let at = |text: &str| text.lines().nth(differs).unwrap_or("(the end)").to_owned();
    bail!(
        "{} is not what the committed verdicts give; run `cargo xtask reliability --write` and commit it.\n\
         The first difference is in line {}:\n  committed: {}\n  verdicts:  {}",
        path.display(),
        differs + 1,
        at(&found),
        at(&wanted)
    )
}
