//! Every line a provider can log names its store, the rare ones included that no test brings about.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

const MACROS: [&str; 5] =
    ["tracing::trace!", "tracing::debug!", "tracing::info!", "tracing::warn!", "tracing::error!"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let mut files: Vec<_> =
        files.into_iter().filter(|path| path.extension().is_some_and(|it| it == "rs")).collect();
    files.extend(folders.iter().flat_map(|folder| sources(folder)));
    files
}

/// What stands between a macro's parentheses, up to its text.
fn fields(after: &str) -> &str {
    let end = after.find(&['"', ';'][..]).unwrap_or(after.len());
    after[..end].trim_start_matches('(')
}

fn names_store(fields: &str) -> bool {
    fields.split(',').any(|field| {
        let name = field.split('=').next().unwrap_or_default();
        name.trim().trim_start_matches(['%', '?', '&']) == "store"
    })
}

#[test]
fn every_line_of_a_provider_names_its_store() {
    let mut found = 0;
    for provider in ["mainstay-sqlite", "mainstay-postgres"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates").join(provider).join("src");
        for file in sources(&folder) {
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(
                !text.contains("use tracing::"),
                "{}: write tracing's macros with their path",
                file.display()
            );
            for start in
                MACROS.iter().flat_map(|name| text.match_indices(name).map(|(at, name)| at + name.len()))
            {
                found += 1;
                let fields = fields(&text[start..]);
                assert!(names_store(fields), "{}: {fields:?} is of no store", file.display());
            }
        }
    }
    assert!(found >= 6, "the lines of the providers are found");
}

#[test]
fn a_field_is_told_by_its_name() {
    for fields in ["store, a", "%store, a", "store = %self.store, a", "a, store = &x,", "\n    store,\n"] {
        assert!(names_store(fields), "{fields:?}");
    }
    for fields in ["a, b", "stores, a", "a = store,", "path = %self.store,"] {
        assert!(!names_store(fields), "{fields:?}");
    }
}
