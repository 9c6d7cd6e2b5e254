//! The worker of an earlier commit, which a test runs beside this tree's on one database.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::{cargo, target};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::run::run;

/// The file with the commit's hash.
const PIN: &str = "tests/e2e/pinned-commit";

/// Builds the worker of the pinned commit, once per commit. None if this clone does not have the commit.
pub(crate) fn pinned_worker(interrupt: &Interrupt) -> Result<Option<PathBuf>, Failure> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let commit = std::fs::read_to_string(root.join(PIN))
        .map_err(|error| Failure::new(format!("cannot read {PIN}: {error}")))?;
    let commit = commit.trim();
    let git = || {
        let mut git = Command::new("git");
        git.current_dir(root);
        git
    };
    let object = format!("{commit}^{{commit}}");
    let known = git().args(["cat-file", "-e", &object]).stderr(Stdio::null()).status();
    if !known.is_ok_and(|status| status.success()) {
        eprintln!(
            "warning: this clone does not have commit {commit} of {PIN}: the test that runs the program of that \
             commit is not run. Fetch the whole history to run it"
        );
        return Ok(None);
    }

    let folder = target()?.join("pinned");
    let worker = folder.join(format!("worker-{commit}"));
    if worker.exists() {
        return Ok(Some(worker));
    }
    let source = folder.join("source");
    let failed = |error| Failure::new(format!("cannot prepare {}: {error}", source.display()));
    if source.exists() {
        std::fs::remove_dir_all(&source).map_err(failed)?;
    }
    std::fs::create_dir_all(&source).map_err(failed)?;
    let archive = folder.join("source.tar");
    run(git().arg("archive").arg("--output").arg(&archive).arg(commit), interrupt)?;
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&source), interrupt)?;
    std::fs::remove_file(&archive).map_err(failed)?;

    println!("building the worker of commit {commit}");
    let mut build = cargo();
    build.current_dir(&source).env("CARGO_TARGET_DIR", folder.join("build"));
    build.args(["build", "--locked", "--package", "mainstay-e2e", "--bin", "worker"]);
    run(&mut build, interrupt)?;
    // Copied and then renamed, so that a file of this name is whole.
    let part = folder.join("worker.part");
    let built = folder.join("build/debug/worker");
    std::fs::copy(&built, &part).and_then(|_| std::fs::rename(&part, &worker)).map_err(failed)?;
    Ok(Some(worker))
}
