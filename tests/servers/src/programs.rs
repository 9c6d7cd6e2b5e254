use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::variables;

/// The oldest PostgreSQL release Mainstay supports.
const OLDEST: u32 = 14;

/// The directory of the programs of a PostgreSQL server that is recent enough.
///
/// Looks where [`variables::PG_BIN`] says, on the path, where `pg_config` says, and where
/// distributions keep several releases side by side, the newest first.
pub fn find_postgres() -> Result<PathBuf> {
    let mut too_old = None;
    for directory in postgres_candidates() {
        match release(&directory) {
            Some(release) if release >= OLDEST => return Ok(directory),
            Some(release) => too_old = Some((release, directory)),
            None => {}
        }
    }
    Err(match too_old {
        Some((release, directory)) => Error::new(format!(
            "PostgreSQL {release} in {} is too old: {OLDEST} or newer is needed",
            directory.display()
        )),
        None => Error::new(format!(
            "no PostgreSQL server programs (initdb, postgres): install PostgreSQL {OLDEST} or newer"
        )),
    })
}

/// The `pgbouncer` program.
pub fn find_pgbouncer() -> Result<PathBuf> {
    find("pgbouncer").ok_or_else(|| Error::new("no pgbouncer: install PgBouncer"))
}

/// The `openssl` program.
pub fn find_openssl() -> Result<PathBuf> {
    find("openssl").ok_or_else(|| Error::new("no openssl: install OpenSSL's command line tool"))
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

fn postgres_candidates() -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    candidates.extend(std::env::var_os(variables::PG_BIN).map(PathBuf::from));
    // The path may hold a link to initdb alone: its neighbours are where it really is.
    candidates.extend(
        find("initdb")
            .and_then(|initdb| initdb.canonicalize().ok())
            .and_then(|initdb| initdb.parent().map(Path::to_owned)),
    );
    candidates.extend(output_of(Command::new("pg_config").arg("--bindir")).map(PathBuf::from));

    let mut installed: Vec<(u32, PathBuf)> = entries(Path::new("/usr/lib/postgresql"))
        .filter_map(|directory| {
            let release = directory.file_name()?.to_str()?.parse().ok()?;
            Some((release, directory.join("bin")))
        })
        .collect();
    installed.sort();
    candidates.extend(installed.into_iter().rev().map(|(_, directory)| directory));
    candidates
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

/// A program on the path, or where daemons are kept, which a user's path may leave out.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
