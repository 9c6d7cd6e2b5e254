use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;

/// Cargo, at the root of the workspace, as if started from a shell.
///
/// Cargo gives the programs it runs variables about their package. Handed on to a second
/// cargo they reach build scripts, which then build again what a plain `cargo` has built.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    for (name, _) in std::env::vars_os() {
        let bytes = name.as_encoded_bytes();
        let about_this_package = [&b"CARGO_PKG_"[..], b"CARGO_MANIFEST_", b"CARGO_BIN_"];
        if about_this_package.iter().any(|it| bytes.starts_with(it)) {
            command.env_remove(&name);
        }
    }
    command.env_remove("CARGO").env_remove("CARGO_CRATE_NAME");
    command
}

/// Where cargo puts what it builds: this program was built there, too.
pub(crate) fn target() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().ok();
    let folder = program.as_deref().and_then(|program| program.parent()?.parent());
    folder.map(PathBuf::from).ok_or_else(|| Failure::new("this program is not where cargo builds it"))
}
