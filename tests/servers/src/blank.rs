use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::account::Account;
use crate::certificates;
use crate::error::{Context, Result};
use crate::process::complete;
use crate::secret;

/// An initialised cluster that is never started, to copy others from.
///
/// Initialising takes a second or more, copying a tenth of it.
#[derive(Debug)]
pub struct Blank {
    directory: PathBuf,
    // Held for its removal; none when another process owns the directory.
    _owned: Option<TempDir>,
}

impl Blank {
    /// Initialises a cluster with a superuser `postgres`, a random password for it, and a
    /// certificate for localhost.
    pub fn create(bin: &Path) -> Result<Self> {
        let account = Account::for_servers()?;
        let owned = account.directory()?;
        let directory = owned.path().to_owned();
        account.write(&directory.join("password"), &secret::password()?)?;

        let mut initdb = account.command(bin.join("initdb"), &directory);
        initdb.args(["--pgdata=data", "--username=postgres", "--pwfile=password"]);
        initdb.args(["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]);
        // Nothing here has to outlive a crash of the machine.
        initdb.arg("--no-sync");
        complete(initdb)?;
        certificates::create(account, &directory)?;
        Ok(Self { directory, _owned: Some(owned) })
    }

    /// The blank cluster another process created.
    pub fn open(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), _owned: None }
    }

    /// Where it is, for [`Blank::open`].
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The certificate of the authority that signed the servers' certificate.
    pub fn ca(&self) -> PathBuf {
        self.directory.join("ca.crt")
    }

    /// The password of the superuser `postgres`.
    pub fn password(&self) -> Result<String> {
        let path = self.directory.join("password");
        std::fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))
    }

    /// Copies the cluster to the subdirectory `data` of `target`.
    pub(crate) fn copy_to(&self, account: Account, target: &Path) -> Result<()> {
        let mut copy = account.command("cp", target);
        copy.arg("-R").arg("-p").arg(self.directory.join("data"));
        copy.arg("data");
        complete(copy)
    }
}
