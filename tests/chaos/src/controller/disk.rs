//! A small disk that can be filled: a tmpfs.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Its size. A server's data directory takes about a tenth when it is new.
const SIZE: &str = "size=600m";

/// A mounted tmpfs. Unmounted on drop.
#[derive(Debug)]
pub(super) struct Disk {
    directory: PathBuf,
}

impl Disk {
    /// Mounts a disk over an empty directory.
    pub(super) fn mount(directory: &Path) -> Result<Self> {
        complete(Command::new("mount").args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(directory))?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Moves a directory to a disk that takes its place.
    pub(super) fn under(directory: &Path) -> Result<Self> {
        let aside = directory.with_extension("aside");
        std::fs::rename(directory, &aside).context("cannot move the data directory")?;
        complete(Command::new("cp").arg("-a").arg(&aside).arg(directory))?;
        let empty = || -> Result<()> {
            for entry in std::fs::read_dir(directory)? {
                let path = entry?.path();
                if path.is_dir() { std::fs::remove_dir_all(&path)? } else { std::fs::remove_file(&path)? }
            }
            Ok(())
        };
        // The directory itself stays, for its owner and its rights.
        empty().context("cannot empty the data directory")?;
        let disk = match Self::mount(directory) {
            Ok(disk) => disk,
            Err(error) => {
                std::fs::remove_dir(directory)?;
                std::fs::rename(&aside, directory)?;
                return Err(error);
            }
        };
        let mut all = aside.clone().into_os_string();
        all.push("/.");
        complete(Command::new("cp").arg("-a").arg(all).arg(directory))?;
        complete(Command::new("chmod").arg("--reference").arg(&aside).arg(directory))?;
        complete(Command::new("chown").arg("--reference").arg(&aside).arg(directory))?;
        std::fs::remove_dir_all(&aside)?;
        Ok(disk)
    }

    /// Fills it to the last byte.
    pub(super) fn fill(&self) -> Result<()> {
        let mut file = File::create(self.filler()).context("cannot create the filler")?;
        for size in [1 << 20, 4 << 10, 1] {
            let bytes = vec![0; size];
            // The end of it is the error that is wanted.
            while file.write(&bytes).is_ok_and(|written| written == size) {}
        }
        Ok(())
    }

    /// Makes room again.
    pub(super) fn free(&self) -> Result<()> {
        std::fs::remove_file(self.filler()).context("cannot remove the filler")
    }

    fn filler(&self) -> PathBuf {
        self.directory.join("chaos-filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a server that is just ending still has files open.
        if let Err(error) = complete(Command::new("umount").arg("--lazy").arg(&self.directory)) {
            eprintln!("{error:#}");
        }
    }
}

fn complete(command: &mut Command) -> Result<()> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        bail!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
