//! Where the programs are that the servers need: PostgreSQL, PgBouncer, OpenSSL, and the `faketime` library.
//!
//! Only looks; it never installs anything.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::variables;

/// The oldest PostgreSQL release the tests run on.
const OLDEST: u32 = 15;

/// The places where programs are looked for.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The directory of PostgreSQL's programs, where somebody has named it.
    postgres: Option<PathBuf>,
    /// The search path, and then where daemons are kept, which a user's path may leave out.
    directories: Vec<PathBuf>,
    /// Where distributions keep several releases of PostgreSQL side by side.
    releases: PathBuf,
}

impl Programs {
    /// The places of this machine, and what the environment says.
    pub fn here() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let daemons = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
        Self {
            postgres: std::env::var_os(variables::PG_BIN).map(PathBuf::from),
            directories: std::env::split_paths(&path).chain(daemons).collect(),
            releases: PathBuf::from("/usr/lib/postgresql"),
        }
    }

    /// These directories alone, and the releases of PostgreSQL below `releases`.
    pub fn within(path: &OsString, releases: &Path) -> Self {
        Self {
            postgres: None,
            directories: std::env::split_paths(path).collect(),
            releases: releases.to_owned(),
        }
    }

    /// Whether somebody has named the PostgreSQL to take.
    pub fn names_postgres(&self) -> bool {
        self.postgres.is_some()
    }

    /// The directory of the programs of a PostgreSQL server that is recent enough: the one that
    /// [`variables::PG_BIN`] names, or else the newest there is.
    pub fn postgres(&self) -> Result<PathBuf> {
        if let Some(named) = &self.postgres {
            return self.named(named);
        }
        let candidates = self.candidates().into_iter();
        let servers = candidates.filter_map(|directory| Some((release(&directory)?, directory)));
        // Of the same release the first: that is the one the path leads to.
        let newest = servers.reduce(|best, next| if next.0 > best.0 { next } else { best });
        match newest {
            Some((release, directory)) if release >= OLDEST => Ok(directory),
            Some((release, directory)) => Err(too_old(release, &directory)),
            None => Err(Error::new(format!(
                "no PostgreSQL server programs (initdb, postgres): install PostgreSQL {OLDEST} or newer"
            ))),
        }
    }

    fn named(&self, directory: &Path) -> Result<PathBuf> {
        match release(directory) {
            Some(release) if release >= OLDEST => Ok(directory.to_owned()),
            Some(release) => Err(too_old(release, directory)),
            None => Err(Error::new(format!(
                "{} names {}, but there are no PostgreSQL server programs (initdb, postgres)",
                variables::PG_BIN,
                directory.display()
            ))),
        }
    }

    fn candidates(&self) -> Vec<PathBuf> {
        // The path may hold a link to initdb alone: its neighbours are where it really is.
        let on_path = self.find("initdb").and_then(|initdb| initdb.canonicalize().ok());
        let mut candidates: Vec<PathBuf> =
            on_path.and_then(|initdb| initdb.parent().map(Path::to_owned)).into_iter().collect();
        let config = self.find("pg_config");
        candidates.extend(
            config.and_then(|config| output_of(Command::new(config).arg("--bindir"))).map(PathBuf::from),
        );
        candidates.extend(entries(&self.releases).map(|directory| directory.join("bin")));
        candidates
    }

    /// The `pgbouncer` program.
    pub fn pgbouncer(&self) -> Result<PathBuf> {
        self.find("pgbouncer").ok_or_else(|| Error::new("no pgbouncer: install PgBouncer"))
    }

    /// The `openssl` program.
    pub fn openssl(&self) -> Result<PathBuf> {
        self.find("openssl").ok_or_else(|| Error::new("no openssl: install OpenSSL's command line tool"))
    }

    fn find(&self, program: &str) -> Option<PathBuf> {
        self.directories.iter().map(|directory| directory.join(program)).find(|candidate| candidate.is_file())
    }
}

/// The directory of the programs of a PostgreSQL server on this machine.
pub fn find_postgres() -> Result<PathBuf> {
    Programs::here().postgres()
}

/// The `pgbouncer` program of this machine.
pub fn find_pgbouncer() -> Result<PathBuf> {
    Programs::here().pgbouncer()
}

/// The `openssl` program of this machine.
pub fn find_openssl() -> Result<PathBuf> {
    Programs::here().openssl()
}

/// The library that the `faketime` tool preloads into a program.
pub fn find_faketime() -> Option<PathBuf> {
    let mut directories = Vec::new();
    for root in ["/usr/lib", "/usr/lib64", "/usr/local/lib"] {
        let root = Path::new(root);
        directories.push(root.join("faketime"));
        directories.extend(entries(root).map(|entry| entry.join("faketime")));
    }
    directories
        .into_iter()
        .map(|directory| directory.join("libfaketime.so.1"))
        .find(|library| library.is_file())
}

fn too_old(release: u32, directory: &Path) -> Error {
    Error::new(format!(
        "PostgreSQL {release} in {} is too old: {OLDEST} or newer is needed; install one (for Debian and Ubuntu \
         apt.postgresql.org has all), or name the directory of its programs in {}",
        directory.display(),
        variables::PG_BIN
    ))
}

/// The release of the server in `directory`, if all programs of a server are there.
fn release(directory: &Path) -> Option<u32> {
    // A client package brings some of the programs to the same directory.
    if !directory.join("initdb").is_file() {
        return None;
    }
    // "postgres (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)", or "17beta1" for a preview.
    let version = output_of(Command::new(directory.join("postgres")).arg("--version"))?;
    let number = version.split_whitespace().nth(2)?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use tempfile::TempDir;

    use super::*;

    /// A machine with these releases of PostgreSQL, and nothing on its path.
    fn machine(releases: &[(&str, &str)]) -> (TempDir, Programs) {
        let root = tempfile::tempdir().unwrap();
        for (name, version) in releases {
            let bin = root.path().join("releases").join(name).join("bin");
            std::fs::create_dir_all(&bin).unwrap();
            program(&bin, "initdb", "exit 0");
            program(&bin, "postgres", &format!("echo 'postgres (PostgreSQL) {version}'"));
        }
        let path = root.path().join("path");
        std::fs::create_dir(&path).unwrap();
        let programs = Programs::within(&path.into(), &root.path().join("releases"));
        (root, programs)
    }

    fn program(directory: &Path, name: &str, body: &str) {
        // By another process: a file that this one has open to write, and so a process another test is just starting,
        // can't be run.
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$2\" && chmod 755 \"$2\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", write, "write", body]).arg(directory.join(name));
        assert!(shell.status().unwrap().success());
    }

    #[test]
    fn of_several_releases_the_newest_is_taken() {
        let (root, programs) = machine(&[
            ("9.6", "9.6.24"),
            ("15", "15.8 (Debian 15.8-0+deb12u1)"),
            ("17", "17beta1"),
            ("16", "16.4"),
        ]);
        assert_eq!(programs.postgres().unwrap(), root.path().join("releases/17/bin"));
    }

    #[test]
    fn a_newer_release_is_taken_before_the_one_on_the_path() {
        let (root, programs) = machine(&[("14", "14.9"), ("16", "16.4")]);
        let initdb = root.path().join("releases/14/bin/initdb");
        std::os::unix::fs::symlink(initdb, root.path().join("path/initdb")).unwrap();
        assert_eq!(programs.postgres().unwrap(), root.path().join("releases/16/bin"));
    }

    #[test]
    fn a_release_that_is_too_old_is_told_with_what_to_do() {
        let (root, programs) = machine(&[("13", "13.12"), ("14", "14.9")]);
        let told = programs.postgres().unwrap_err().to_string();
        for text in ["PostgreSQL 14 in", "15 or newer", variables::PG_BIN] {
            assert!(told.contains(text), "{text}: {told}");
        }
        let named = Programs { postgres: Some(root.path().join("releases/14/bin")), ..programs };
        assert!(named.postgres().unwrap_err().to_string().contains("PostgreSQL 14 in"));
    }

    #[test]
    fn the_one_that_is_named_is_taken_and_no_other() {
        let (root, programs) = machine(&[("15", "15.1"), ("16", "16.4")]);
        let named = root.path().join("releases/15/bin");
        let programs = Programs { postgres: Some(named.clone()), ..programs };
        assert_eq!(programs.postgres().unwrap(), named);
        let programs = Programs { postgres: Some(root.path().to_owned()), ..programs };
        assert!(programs.postgres().unwrap_err().to_string().contains(variables::PG_BIN));
    }

    #[test]
    fn a_machine_without_them_has_none() {
        let (root, programs) = machine(&[]);
        assert!(programs.postgres().unwrap_err().to_string().contains("install PostgreSQL 15 or newer"));
        assert!(programs.pgbouncer().is_err() && programs.openssl().is_err());
        program(&root.path().join("path"), "pgbouncer", "exit 0");
        assert_eq!(programs.pgbouncer().unwrap(), root.path().join("path/pgbouncer"));
        // A client package alone is no server.
        let bin = root.path().join("releases/16/bin");
        std::fs::create_dir_all(&bin).unwrap();
        program(&bin, "pg_dump", "exit 0");
        assert!(programs.postgres().is_err());
    }
}
