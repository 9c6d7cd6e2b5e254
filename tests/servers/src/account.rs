use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::error::{Context, Error, Result};

/// The system account servers run under: PostgreSQL refuses to run as root, so root uses
/// the account `postgres`, and everyone else their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    ids: Option<(u32, u32)>,
}

impl Account {
    pub(crate) fn for_servers() -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self { ids: None });
        }
        Ok(Self { ids: Some((id_of("-u")?, id_of("-g")?)) })
    }

    /// A command that runs `program` under this account, in `directory`.
    ///
    /// The directory must be one the account can read: the PostgreSQL programs want to know
    /// where they are, and the caller's directory may be closed to them.
    pub(crate) fn command(self, program: impl AsRef<OsStr>, directory: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(directory).env("LC_ALL", "C");
        for (name, _) in std::env::vars_os() {
            // PGDATA, PGPORT, PGOPTIONS and the like are about the caller's servers.
            if name.as_encoded_bytes().starts_with(b"PG") {
                command.env_remove(name);
            }
        }
        if let Some((user, group)) = self.ids {
            command.uid(user).gid(group);
        }
        command
    }

    /// A temporary directory that belongs to this account.
    pub(crate) fn directory(self) -> Result<TempDir> {
        let directory = tempfile::Builder::new()
            .prefix("mainstay-")
            .tempdir()
            .context(|| "cannot create a temporary directory".to_owned())?;
        if let Some((user, group)) = self.ids {
            chown(directory.path(), Some(user), Some(group))
                .context(|| format!("cannot give {} away", directory.path().display()))?;
        }
        Ok(directory)
    }

    /// Writes a file that only this account can read.
    pub(crate) fn write(self, path: &Path, contents: &str) -> Result<()> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;

        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .and_then(|mut file| file.write_all(contents.as_bytes()))
            .context(|| format!("cannot write {}", path.display()))?;
        if let Some((user, group)) = self.ids {
            chown(path, Some(user), Some(group))
                .context(|| format!("cannot give {} away", path.display()))?;
        }
        Ok(())
    }
}

fn id_of(kind: &str) -> Result<u32> {
    let output =
        Command::new("id").args([kind, "postgres"]).output().context(|| "cannot run id".to_owned())?;
    String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .map_err(|_| Error::new("PostgreSQL does not run as root, and there is no account `postgres`"))
}
